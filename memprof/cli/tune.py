"""`memprof tune`: a model and a runtime in, the settings with the least peak out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..units import parse_bytes, parse_duration_ns, parse_ratio
from . import heed_sigterm

_EPILOG = """\b
Examples:
  memprof tune model.onnx -r onnxruntime --threads 1
  memprof tune model.onnx -r onnxruntime --max-latency +10% -o tune.jsonl --plot front.png
  memprof tune model.tflite -r litert --budget 120MiB --time 3min
"""


@click.command(epilog=_EPILOG)
@click.argument("model", metavar="MODEL")
@click.option("-r", "--runtime", required=True, metavar="NAME", help="A runtime, or the path of your own.")
@click.option("--max-latency", metavar="+5%|1.5x", help="Only settings whose iterations take at most so much longer than the default's.")
@click.option("--budget", metavar="SIZE", help="The fastest settings whose PEAK keeps within this, rather than the least PEAK.")
@click.option("--time", "time_", default="10min", show_default=True, metavar="TIME", help="How long it may take, verification included.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A knob that keeps this value in every trial (repeatable).")
@click.option("--try", "tries", multiple=True, metavar="KEY=VALUE,...", help="Values to try of a knob, in place of its own (repeatable).")
@click.option("--threads", type=int, metavar="N", help="[default: the runtime's own]")
@click.option("--python", metavar="PATH", help="The interpreter that has the runtime.  [default: memprof's own]")
@click.option("--shape", "shapes", multiple=True, metavar="INPUT=1,3,224,224", help="An input's shape (repeatable).")
@click.option("--inputs", metavar="FILE.npz", help="Inputs by name; those not in it are made.")
@click.option(
    "--tolerance",
    type=float,
    default=1e-3,
    show_default=True,
    metavar="SHARE",
    help="How far outputs may lie from the default's before it is said.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="The same seed and figures give the same search.")
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Keep every run here; needed to take a search up again.")
@click.option("--append", is_flag=True, help="Take up the search in an existing -o file.")
@click.option("--plot", "picture", metavar="FILE", help="Draw the front: .png, .svg or .pdf.")
@click.option("--unit", metavar="UNIT", help="KiB, MiB, GiB, kB or MB.  [default: what suits]")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def command(output: str | None, append: bool, picture: str | None, unit: str | None, as_json: bool, **words: Any) -> None:
    """Search a runtime's knobs for the settings with the least PEAK, and verify them by fresh interleaved runs.

    A setting that fails is a result: it is learned and avoided. A setting that changes the model's outputs is marked. Let nothing else run
    meanwhile: trials run one after another, and their latencies are compared.
    """
    heed_sigterm()
    from .. import campaign, store, tune
    from . import report, talk
    from .progress import chosen

    wish = _wish(**words)
    if append and output is None:
        raise UsageError("--append needs -o: the file to go on with")
    if picture is not None:
        report("style").check(Path(picture))
    earlier = store.load([output]).runs if output and append and Path(output).exists() else ()
    writer = store.Writer(Path(output), append=append) if output else None
    runs: list[bytes] = []

    def keep(line: bytes) -> None:
        runs.append(line)
        if writer is not None:
            writer.write(line)

    progress = chosen()
    try:
        for remark in campaign.surroundings(0):
            progress.say(remark)
        found = tune.tune(wish, progress, keep, earlier)
    finally:
        progress.close()
        if writer is not None:
            writer.discard_if_empty()
    click.echo(report("tune").render(found, unit=unit, format="json" if as_json else "markdown"))
    if picture is not None:
        drawn = report("tune").picture(found, [store.decode(line, "a run") for line in runs])
        report("style").save(drawn, picture)
        talk(f"{picture} is drawn")
    if writer is not None:
        talk(f"{output} holds the runs")


def _wish(
    max_latency: str | None,
    budget: str | None,
    time_: str,
    settings: tuple[str, ...],
    tries: tuple[str, ...],
    shapes: tuple[str, ...],
    **rest: Any,
) -> Any:
    from ..runtimes import split_setting
    from ..search import Goal
    from ..suite import parse_shape
    from ..tune import Wish

    goal = Goal(parse_ratio(max_latency) if max_latency else None, parse_bytes(budget) if budget else None)
    if goal.max_time is not None and goal.budget is not None:
        raise UsageError("--max-latency and --budget are two goals: give one")
    return Wish(
        goal=goal,
        fixed=dict(split_setting(text) for text in settings),
        tries={name: values.split(",") for name, values in (split_setting(text) for text in tries)},
        shapes=dict(parse_shape(text) for text in shapes),
        time_ns=parse_duration_ns(time_),
        **rest,
    )
