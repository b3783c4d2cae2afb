"""`memprof plot`: runs files in, a picture out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ...records.metrics import METRICS
from . import CliGroup
from .subject import with_options

_EPILOG = """\b
Examples:
  memprof plot peaks runs.jsonl -o peaks.png
  memprof plot timeline before.jsonl after.jsonl -o loader.svg --phase MODEL_LOAD --phase PREPARE
  memprof plot threads sweep.jsonl -o latency.pdf --metric time_ns
"""


@click.group(cls=CliGroup, epilog=_EPILOG)
def command() -> None:
    """Draw pictures from runs files: PNG, SVG or PDF, by the file's ending."""


def _picture(kind: str, example: str, *options: Callable[[Any], Any]) -> Callable[[Callable[..., None]], click.Command]:
    """A command that draws one kind of picture; the decorated function only carries its help. example: the words after its name."""

    def decorate(described: Callable[..., None]) -> click.Command:
        call: Any = lambda **words: _draw(kind, **words)  # noqa: E731
        call.__doc__ = described.__doc__
        call = with_options((_FILES, _OUTPUT, _MODEL, _VARIANT, *options), call)
        return command.command(kind, epilog=f"\b\nExample:\n  memprof plot {kind} {example}")(call)

    return decorate


_FILES = click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
_OUTPUT = click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="The picture: .png, .svg or .pdf. It replaces an earlier picture, but no other file.",
)
_MODEL = click.option("--model", metavar="NAME", help="Only this model.  [default: all, each in its own panel]")
_VARIANT = click.option("--variant", "variants", multiple=True, metavar="NAME", help="Only this variant (repeatable).")
_PHASE = click.option("--phase", metavar="NAME", help="The phase to draw.  [default: PEAK for RSS peaks, else EXECUTE]")
_KNOWN = f"One of {', '.join(METRICS)}."


def _draw(kind: str, files: tuple[str, ...], output: str, model: str | None, variants: tuple[str, ...], **words: Any) -> None:
    from pathlib import Path

    from ...records.store import unpacked
    from . import load_runs, report, talk

    # The runs first: matplotlib, which the rest imports, takes longer than to refuse a file.
    loaded = load_runs(*files)
    runs = report("pictures.choosing").chosen(loaded.runs, model, variants)
    for run in runs:
        unpacked(run.timeline)
    saving = report("pictures.saving")
    saving.check(Path(output))
    picture = report(f"pictures.{kind}").render(runs, **words)
    saving.save(picture, output)
    talk(f"{output} is drawn")


@_picture("peaks", "runs.jsonl -o peaks.png")
def _peaks() -> None:
    """Draw the RSS peak of each phase as bars, a row per variant.

    Each bar is split into anonymous and file-backed memory, as far as that is known.
    """


@_picture(
    "timeline",
    "before.jsonl after.jsonl -o loader.svg --phase MODEL_LOAD --phase PREPARE",
    click.option("--phase", "phases", multiple=True, metavar="NAME", help="Only this phase; time is counted from its start (repeatable)."),
)
def _timeline() -> None:
    """Draw RSS over time, with the phases.

    Of each variant, the repeat with the median PEAK is drawn.
    """


@_picture(
    "threads",
    "sweep.jsonl -o latency.pdf --metric time_ns",
    click.option(
        "--metric",
        "names",
        multiple=True,
        metavar="NAME",
        help=f"A metric to draw, in its own panel (repeatable). {_KNOWN}  [default: RSS peak and latency]",
    ),
    _PHASE,
)
def _threads() -> None:
    """Draw metrics over thread counts, a line per variant."""


@_picture(
    "tradeoff",
    "runs.jsonl -o tradeoff.png",
    click.option("--metric", "memory", default="rss_peak_bytes", metavar="NAME", help="The metric that stands for memory."),
    _PHASE,
)
def _tradeoff() -> None:
    """Draw latency against memory, a point per variant.

    The Pareto front is marked: no other variant has less memory and less latency than a variant on it.
    """


@_picture("growth", "soak.jsonl -o growth.png")
def _growth() -> None:
    """Draw memory over units of work, of runs that `memprof grow` kept.

    Of each variant, the processes of the last round are drawn, all variants on one scale, with the verdict.
    """


@_picture(
    "scale",
    "law.jsonl -o law.png --within 2GiB",
    click.option("--within", metavar="SIZE", help="A limit to draw."),
)
def _scale() -> None:
    """Draw measured places and the law through them.

    The runs are those that `memprof scale` kept; the law is found again from them. Places that confirmed a prediction are drawn as not fitted.
    """


@_picture(
    "spread",
    "runs.jsonl -o spread.png --phase EXECUTE",
    click.option(
        "--metric",
        "names",
        multiple=True,
        metavar="NAME",
        help=f"A metric to draw, in its own block (repeatable). {_KNOWN}  [default: RSS peak]",
    ),
    _PHASE,
)
def _spread() -> None:
    """Draw every repeat as a point, so that two modes are seen as two."""
