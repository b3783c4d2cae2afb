"""`memprof grow`: a work that is repeated in; whether memory rises with it out, in a sentence and an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base.errors import EXIT_INTERRUPTED, EXIT_REGRESSION, UndecidedError, UsageError
from . import report
from .answers import APPEND, OUTPUT, REPORT, Showing, answer, question, report_file, write_report
from .subject import QuestionCommand, Words, place_options, reaching

if TYPE_CHECKING:
    from types import ModuleType

    from ...campaign.progress import Keep, Progress
    from ...growth.grow.grow import GrowRequest
    from ...growth.grow.kinds import Wish
    from ...subjects.suite import Suite

_EPILOG = """\b
Examples:
  memprof grow model.onnx -r onnxruntime
  memprof grow model.onnx -r onnxruntime --shapes 'input=1,3,H,W; H,W in 224,320,640 (random, seed 1)'
  memprof grow model.onnx -r onnxruntime --fresh --budget 20000
  memprof grow model.tflite -r litert --cycles reload
  memprof grow m.bin --phase-regex request='^served' -- engine {model} --requests {runs}
  memprof grow model.onnx -r onnxruntime --for 8h -o soak.jsonl
  memprof grow model.onnx -r ./my_runtime.py --why --who
  memprof grow model.onnx -r onnxruntime --why --report issue.md
  memprof grow --why -- ./server --requests {runs}
  memprof grow --drive http:8000/predict,body=in.json -- gunicorn app:app

Exit codes: 0 steady or bounded, 1 grows, 3 undecided.
"""
EXIT_CODES = {"steady": 0, "bounded": 0, "grows": EXIT_REGRESSION, "undecided": UndecidedError.exit_code}


@click.command(epilog=_EPILOG, cls=QuestionCommand)
@question(
    click.option(
        "--shapes",
        "varied",
        metavar="'INPUT=1,3,H,W; H,W in 224,320'",
        help="Shapes that iterations take one after another, or (random, seed 1).",
    ),
    click.option("--cycles", type=click.Choice(["reload"]), help="Repeat load, prepare, two iterations and delete, in one process."),
    click.option("--same", is_flag=True, help="Feed the same input alone.  [default: the same input, and fresh ones in other processes]"),
    click.option("--fresh", is_flag=True, help="Feed fresh inputs alone: the same shapes, new content in each iteration."),
    click.option(
        "--feed",
        "feeder",
        metavar="'PROGRAM WORD...'",
        help="Feed a program's output, one line per iteration: JSON such as {INPUT: [0.5]}, or the path of a .npz file.",
    ),
    click.option("--budget", metavar="UNITS|TIME", help="At most so many units per process, or so much time in all.  [default: 5min]"),
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
    REPORT,
    click.option("--plot", "picture", metavar="FILE", help="Draw memory over units: .png, .svg or .pdf."),
)
def command(
    showing: Showing, subject: Words, why: bool, who: bool, issue: str | None, on: str | None, remote_dir: str | None, **words: Any
) -> int:
    """Say whether memory rises with use, and by how much with what.

    The work is repeated in fresh processes, which read their memory after each unit of it: three that feed a model the same input, and three
    that feed it fresh ones. The verdict is steady, bounded (it rose, then stopped), grows or undecided, and says whether memory grows with each
    iteration or with new inputs only. An undecided run is made longer, as far as the budget goes.
    """
    if subject.settings["warmup"] is not None or subject.settings["runs"] is not None:
        raise UsageError(
            "--warmup and --runs: grow follows each unit from the first on, and finds itself how many it needs; --budget N is the most"
        )
    with reaching(on, remote_dir, subject.python) as place:
        return _grown(_request(subject.suite(place), **words), showing, why, who, report_file(issue, showing.picture))


def _grown(request: GrowRequest, showing: Showing, why: bool, who: bool, issue: Path | None) -> int:
    from ...base import files
    from ...growth.grow import grow

    answers: list[grow.GrowthAnswer] = []
    lookers: list[ModuleType] = []
    if why:
        from ...growth.grow import cause

        lookers.append(cause)
    if who:
        from ...growth.grow import call_sites

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
    if issue is not None:
        write_report(issue, "tables.growth_report", answers[-1], report("pictures.growth").picture(answers[-1]))
    return code if code == EXIT_INTERRUPTED else EXIT_CODES[answers[0].verdict.word]


def _request(
    suite: Suite,
    varied: str | None,
    same: bool,
    fresh: bool,
    feeder: str | None,
    cycles: str | None,
    budget: str | None,
    soak: str | None,
) -> GrowRequest:
    from ...base.units import parse_duration_ns
    from ...growth.grow.grow import GrowRequest, UnitBudget, parse_budget, parse_shapes
    from ...growth.grow.kinds import check_stream, feeding_words, folder_of

    if same and fresh:
        raise UsageError("--same or --fresh: each asks for one kind of inputs alone, and without them grow feeds both")
    wish: Wish = "same" if same else "fresh" if fresh else "both"
    shapes, seed = parse_shapes(varied) if varied is not None else ((), None)
    soak_ns = parse_duration_ns(soak) if soak is not None else None
    limits = parse_budget(budget) if budget is not None else UnitBudget()
    suite, folder = folder_of(suite)
    words = feeding_words(feeder) if feeder is not None else ()
    check_stream(folder, words, suite.inputs, bool(varied or cycles or suite.only.command))
    return GrowRequest(suite, shapes, seed, cycles, limits, soak_ns, wish=wish, folder=folder, feeder=words)
