"""`memprof tune`: a model and a runtime in, or a program; the settings with the least peak out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ...base.errors import UsageError
from ...base.pairs import WITH_COMMAS, by_name
from ...base.units import parse_bytes, parse_duration_ns, parse_ratio
from .answers import Showing, answer, question
from .subject import QuestionCommand, Words, place_or_fleet_options, reaching

if TYPE_CHECKING:
    from ...campaign.fleet.search_client import Machines
    from ...campaign.progress import Keep, Progress
    from ...footprint.tune.answer import Tuned, TunedRuntimes, TuneRequest
    from ...subjects.suite import Suite

_EPILOG = """\b
Examples:
  memprof tune model.onnx -r onnxruntime --threads 1
  memprof tune model.onnx -r onnxruntime -r mnn --budget 112MiB
  memprof tune model.onnx -r onnxruntime --max-latency +10% -o tune.jsonl --plot front.png
  memprof tune model.tflite -r litert --budget 120MiB --time 3min
  memprof tune model.tflite -r tflite --threads 1,2,4
  memprof tune --try env.OMP_NUM_THREADS=1,2,4 --try batch=1,8 -- ./engine --batch {batch} m.bin
  memprof tune model.onnx -r onnxruntime --on dask:tcp://127.0.0.1:8786 --machines kind=pi5
"""


@click.command(epilog=_EPILOG, cls=QuestionCommand)
@question(
    click.option(
        "--max-latency",
        metavar="+5%|1.5x",
        help="The best settings take at most so much longer per iteration than the default. Slower rows are marked, and have no command.",
    ),
    click.option("--budget", metavar="SIZE", help="Ask for the fastest settings whose PEAK is at most this, instead of the least PEAK."),
    click.option(
        "--time",
        "time_",
        default="10min",
        show_default=True,
        metavar="TIME",
        help="How long the search may take, verification included. Several runtimes share it; one that cannot try a value in its share leaves it "
        "to the others.",
    ),
    click.option(
        "--try",
        "tries",
        multiple=True,
        metavar="KEY=VALUE,...",
        help="Try only these values of a knob; of a variable, by "
        "env.NAME; or for {NAME} among the words of a program. The default has the first of a variable's or a word's (repeatable).",
    ),
    click.option(
        "--tolerance",
        type=float,
        default=1e-3,
        show_default=True,
        metavar="SHARE",
        help="How far outputs may differ from the default's before they are marked, as a share of the largest output (at least of 0.001).",
    ),
    place_or_fleet_options,
    click.option("-o", "--output", metavar="RUNS.jsonl", help="Keep every run here. --append needs this file."),
    click.option("--append", is_flag=True, help="Go on with the search in an existing -o file."),
    click.option("--plot", "picture", metavar="FILE", help="Draw the front: .png, .svg or .pdf."),
    several=True,
)
def command(
    showing: Showing,
    subject: Words,
    on: str | None,
    remote_dir: str | None,
    machines: str | None,
    **words: Any,
) -> int:
    """Search the settings of runtimes or a program for those with the least PEAK, and verify them by fresh interleaved runs.

    Several runtimes are searched one after another and share the time; without one named, those that `memprof run` takes.

    A setting that fails is a result: it is learned and avoided. A setting that changes the model's outputs is marked. Let nothing else run
    meanwhile: trials run one after another, and their latencies are compared. On a fleet as many trials run at once as it has machines of the kind.
    """
    from ...footprint.tune import tuner
    from ...records import store
    from .fleet import FleetOptions, searching

    fleet = FleetOptions.given(on, remote_dir, machines)
    with reaching(on if fleet is None else None, remote_dir, subject.python) as place, searching(fleet) as several:
        suite = _spelled_out(subject.suite(place, fleet is not None))
        requests = [_request(replace(suite, variants=(variant,)), fleet=several, **words) for variant in suite.variants]
        earlier = store.load([showing.output]).runs if showing.output and showing.append and Path(showing.output).exists() else ()

        def seek(progress: Progress, keep: Keep) -> Tuned | TunedRuntimes:
            if len(requests) > 1:
                return tuner.tune_each(requests, progress, keep, earlier)
            return tuner.tune(requests[0], progress, keep, earlier)

        return answer("tune", seek, showing, place, several, lambda found: found.unmet)


def _spelled_out(suite: Suite) -> Suite:
    """The suite with a variant for each runtime that `run` would take, where none is named; with what is left out said."""
    from ...subjects.orders import plan
    from ...subjects.suite import ALL, Variant
    from . import talk

    if suite.variants:
        return suite
    planned = plan(replace(suite, runtimes=(ALL,)))
    for remark in planned.remarks:
        talk(remark)
    return replace(suite, variants=tuple(map(Variant, dict.fromkeys(order.job.runtime for order in planned.orders))))


def _request(
    suite: Suite,
    max_latency: str | None,
    budget: str | None,
    time_: str,
    tries: tuple[str, ...],
    tolerance: float,
    fleet: Machines | None,
) -> TuneRequest:
    from ...footprint.tune.answer import THREADS, TuneRequest
    from ...footprint.tune.search import Goal
    from ...subjects.values import parse_pair, parse_threads

    goal = Goal(parse_ratio(max_latency) if max_latency else None, parse_bytes(budget) if budget else None)
    if goal.max_time is not None and goal.budget is not None:
        raise UsageError("--max-latency and --budget are two goals: give one")
    values = {name: texts.split(",") for name, texts in by_name(map(parse_pair, tries), "--try", WITH_COMMAS).items()}
    if THREADS in values:
        if suite.threads:
            raise UsageError("--threads and --try threads say the same: give one")
        suite = replace(suite, threads=parse_threads(",".join(values.pop(THREADS))))
    return TuneRequest(suite, goal, values, tolerance, parse_duration_ns(time_), fleet)
