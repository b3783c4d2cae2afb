"""`memprof fit`: a model and a runtime in, the least memory in which it runs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from . import heed_sigterm

_EPILOG = """\b
Examples:
  memprof fit model.tflite -r tflite --threads 1
  memprof fit model.onnx -r onnxruntime --set optimization=basic --max-latency 2x -o fit.jsonl --plot fit.png
"""
_PARTS = {"whole": "whole run", "load": "MODEL_LOAD", "prepare": "PREPARE", "execute": "EXECUTE"}


@click.command(epilog=_EPILOG)
@click.argument("model", metavar="MODEL")
@click.option("-r", "--runtime", required=True, metavar="NAME", help="A runtime, or the path of your own.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A knob (repeatable).")
@click.option("--max-latency", metavar="+5%|2x", help="A limit under which an iteration takes longer than this does not count as working.")
@click.option("--phase", "phases", multiple=True, type=click.Choice(list(_PARTS)), help="Only this part (repeatable).  [default: all]")
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Timed iterations of each trial.")
@click.option("--threads", type=int, metavar="N", help="[default: the runtime's own]")
@click.option("--python", metavar="PATH", help="The interpreter that has the runtime.  [default: memprof's own]")
@click.option("--shape", "shapes", multiple=True, metavar="INPUT=1,3,224,224", help="An input's shape (repeatable).")
@click.option("--inputs", metavar="FILE.npz", help="Inputs by name; those not in it are made.")
@click.option(
    "--by",
    type=click.Choice(["auto", "cgroup", "data", "address-space"]),
    default="auto",
    show_default=True,
    help="What limits: a control group, or as second best RLIMIT_DATA or RLIMIT_AS, which count what is allocated.",
)
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Keep every run here.")
@click.option("--append", is_flag=True, help="Add to an existing file.")
@click.option("--plot", "picture", metavar="FILE", help="Draw latency and page faults against the limit: .png, .svg or .pdf.")
@click.option("--unit", metavar="UNIT", help="KiB, MiB, GiB, kB or MB.  [default: what suits]")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def command(output: str | None, append: bool, picture: str | None, unit: str | None, as_json: bool, **words: Any) -> None:
    """Find the least memory in which a model runs: all of it, its loading, its preparing, and its steady execution.

    Bisects the limit of a control group that each trial starts in. What is charged to a group are pages that the run brings in itself; the
    RSS peak beside it is the upper figure for a device.
    """
    heed_sigterm()
    from .. import campaign, fit, store
    from . import report, talk
    from .progress import chosen

    wish = _wish(**words)
    if append and output is None:
        raise UsageError("--append needs -o: the file to add to")
    if picture is not None:
        report("style").check(Path(picture))
    writer = store.Writer(Path(output), append=append) if output else None
    progress = chosen()
    try:
        for remark in campaign.surroundings(0):
            progress.say(remark)
        found = fit.fit(wish, progress, writer.write if writer else lambda line: None)
    finally:
        progress.close()
        if writer is not None:
            writer.discard_if_empty()
    click.echo(report("fit").render(found, unit=unit, format="json" if as_json else "markdown"))
    if picture is not None:
        report("style").save(report("fit").picture(found), picture)
        talk(f"{picture} is drawn")
    if writer is not None:
        talk(f"{output} holds the runs")


def _wish(settings: tuple[str, ...], max_latency: str | None, phases: tuple[str, ...], shapes: tuple[str, ...], **rest: Any) -> Any:
    from ..fit import PARTS, Wish
    from ..runtimes import split_setting
    from ..suite import parse_shape
    from ..units import parse_ratio

    return Wish(
        knobs=dict(split_setting(text) for text in settings),
        max_time=parse_ratio(max_latency) if max_latency else None,
        parts=tuple(_PARTS[name] for name in phases) or PARTS,
        shapes=dict(parse_shape(text) for text in shapes),
        **rest,
    )
