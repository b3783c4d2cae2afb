"""`memprof fit`: a model and a runtime in, the least memory in which it runs out."""

from __future__ import annotations

from typing import Any

import click

from ..base.errors import UsageError
from .answers import APPEND, OUTPUT, SETTINGS, THREADS, Showing, answer, options
from .subject import here_only

_EPILOG = """\b
Examples:
  memprof fit model.tflite -r tflite --threads 1
  memprof fit model.onnx -r onnxruntime --set optimization=basic --max-latency 2x -o fit.jsonl --plot fit.png
"""
_PARTS = {"whole": "whole run", "load": "MODEL_LOAD", "prepare": "PREPARE", "execute": "EXECUTE"}


@click.command(epilog=_EPILOG)
@options(
    THREADS,
    SETTINGS,
    click.option("--max-latency", metavar="+5%|2x", help="A limit counts as working only if an iteration takes at most so much longer."),
    click.option("--phase", "phases", multiple=True, type=click.Choice(list(_PARTS)), help="Only this part (repeatable).  [default: all]"),
    click.option("--runs", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Timed iterations of each trial."),
    click.option(
        "--by",
        type=click.Choice(["auto", "cgroup", "data", "address-space"]),
        default="auto",
        show_default=True,
        help="The kind of limit: a control group (cgroup), RLIMIT_DATA (data) or RLIMIT_AS (address-space). "
        "The last two count allocated memory. auto takes a control group if it can.",
    ),
    here_only("fit", "memprof makes the control groups of its trials here, and looks here for what may be limited"),
    OUTPUT,
    APPEND,
    click.option("--plot", "picture", metavar="FILE", help="Draw latency and page faults against the limit: .png, .svg or .pdf."),
)
def command(
    showing: Showing,
    phases: tuple[str, ...],
    **words: Any,
) -> int:
    """Find the least memory in which a model runs: all of it, its loading, its preparing, and its steady execution.

    Each trial starts in a control group, and memprof bisects the group's limit. A group is charged for the pages that the run brings in. The
    RSS peak beside it is the upper figure for a device.
    """
    from ..fit import fit

    if showing.picture is not None and phases and "whole" not in phases:
        raise UsageError("--plot draws the cost of a limit on the whole run: add --phase whole")
    request = _request(phases=phases, **words)
    return answer("fit", lambda progress, keep: fit.fit(request, progress, keep), showing)


def _request(settings: tuple[str, ...], max_latency: str | None, phases: tuple[str, ...], shapes: tuple[str, ...], **fields: Any) -> Any:
    from ..base.units import parse_ratio
    from ..fit.fit import PARTS, FitRequest
    from ..programs.runtimes import split_setting
    from ..subjects.suite import parse_shape

    return FitRequest(
        knobs=dict(split_setting(text) for text in settings),
        max_time=parse_ratio(max_latency) if max_latency else None,
        parts=tuple(_PARTS[name] for name in phases) or PARTS,
        shapes=dict(parse_shape(text) for text in shapes),
        **fields,
    )
