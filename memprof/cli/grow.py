"""`memprof grow`: a work that is repeated in; whether memory rises with it out, in a sentence and an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..base.errors import EXIT_INTERRUPTED, EXIT_REGRESSION, UndecidedError, UsageError
from .answers import APPEND, OUTPUT, Showing, answer, question
from .subject import QuestionCommand, Words, place_options, reaching

if TYPE_CHECKING:
    from types import ModuleType

    from ..campaign.progress import Keep, Progress
    from ..grow.grow import GrowRequest
    from ..subjects.suite import Suite

_EPILOG = """\b
Examples:
  memprof grow model.onnx -r onnxruntime
  memprof grow model.onnx -r onnxruntime --shapes 'input=1,3,H,W; H,W in 224,320,640 (random, seed 1)'
  memprof grow model.tflite -r litert --cycles reload
  memprof grow m.bin --phase-regex request='^served' -- engine {model} --requests {runs}
  memprof grow model.onnx -r onnxruntime --for 8h -o soak.jsonl
  memprof grow model.onnx -r ./my_runtime.py --why --who
  memprof grow --why -- ./server --requests {runs}
  memprof grow --drive http:8000/predict,body=in.json -- gunicorn app:app

Exit codes: 0 steady or bounded, 1 grows, 3 undecided.
"""
EXIT_CODES = {"steady": 0, "bounded": 0, "grows": EXIT_REGRESSION, "undecided": UndecidedError.exit_code}


@click.command(epilog=_EPILOG, cls=QuestionCommand)
@question(
    click.option(
        "--shapes", "varied", metavar="'INPUT=1,3,H,W; H,W in 224,320'", help="Shapes that iterations take in turn, or (random, seed 1)."
    ),
    click.option("--cycles", type=click.Choice(["reload"]), help="Repeat load, prepare, two iterations and delete, in one process."),
    click.option("--budget", metavar="UNITS|TIME", help="At most so many units a process, or so much time in all.  [default: 5min]"),
    click.option(
        "--for",
        "soak",
        metavar="TIME",
        help="One long run of each process, all together for this time. The results so far go to RUNS.jsonl.part every minute.",
    ),
    click.option("--why", is_flag=True, help="If it rose, look into one more process, after its warm-up and at its end: what grew."),
    click.option(
        "--who", is_flag=True, help="If it grows, record one more process with memray or heaptrack: which call sites hold what rose."
    ),
    place_options,
    OUTPUT,
    APPEND,
    click.option("--plot", "picture", metavar="FILE", help="Draw memory over units: .png, .svg or .pdf."),
)
def command(showing: Showing, subject: Words, why: bool, who: bool, on: str | None, remote_dir: str | None, **words: Any) -> int:
    """Say whether memory rises with use, and by how much with what.

    The work is repeated in three fresh processes or more, which read their memory after each unit of it. The verdict is steady, bounded (it
    rose, then stopped), grows or undecided. An undecided run is made longer, as far as the budget goes.
    """
    if subject.settings["warmup"] is not None or subject.settings["runs"] is not None:
        raise UsageError(
            "--warmup and --runs: grow follows each unit from the first on, and finds itself how many it needs; --budget N is the most"
        )
    with reaching(on, remote_dir, subject.python) as place:
        return _grown(_request(subject.suite(place), **words), showing, why, who)


def _grown(request: GrowRequest, showing: Showing, why: bool, who: bool) -> int:
    from ..base import files
    from ..grow import grow

    answers: list[grow.GrowthAnswer] = []
    lookers: list[ModuleType] = []
    if why:
        from ..grow import cause

        lookers.append(cause)
    if who:
        from ..grow import call_sites

        lookers.append(call_sites)
    for looker in lookers:
        looker.check(request)

    def seek(progress: Progress, keep: Keep) -> grow.GrowthAnswer:
        answers.append(grow.grow(request, progress, keep, so_far))
        for looker in lookers if not answers[0].interrupted else ():
            answers.append(looker.explained(request, answers[-1], progress))
        return answers[-1]

    part = Path(f"{showing.output}.part") if showing.output is not None else None

    def so_far(line: bytes) -> None:
        if part is not None:
            files.write(part, line)

    code = answer("growth", seek, showing, request.suite.place)
    if part is not None:
        part.unlink(missing_ok=True)
    return code if code == EXIT_INTERRUPTED else EXIT_CODES[answers[0].verdict.word]


def _request(suite: Suite, varied: str | None, cycles: str | None, budget: str | None, soak: str | None) -> GrowRequest:
    from ..base.units import parse_duration_ns
    from ..grow.grow import GrowRequest, UnitBudget, parse_budget, parse_shapes

    shapes, seed = parse_shapes(varied) if varied is not None else ((), None)
    soak_ns = parse_duration_ns(soak) if soak is not None else None
    return GrowRequest(suite, shapes, seed, cycles, parse_budget(budget) if budget is not None else UnitBudget(), soak_ns)
