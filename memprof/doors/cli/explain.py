"""`memprof explain`: a model and a runtime in, or a program; an explanation of its memory out."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from .answers import REPORT, report_file, with_remarks, write_report
from .subject import VERBOSE, QuestionCommand, Words, place_options, reaching, subject

if TYPE_CHECKING:
    from ...explain.records import Explanation
    from ...subjects.suite import Suite

_WARMUP = 2  # iterations before the ones that are looked at

_DETERMINISTIC = "--verify of one thread measures deterministic runs, so that no mode of PEAK passes for a saving (--no-deterministic)"

_EPILOG = """\b
Examples:
  memprof explain model.onnx -r onnxruntime
  memprof explain model.tflite -r litert --threads 1 --verify -o why.json --plot why.png
  memprof explain model.onnx -r onnxruntime --verify --report issue.md
  memprof explain model.onnx -r tvm --set weights=separate --format markdown > why.md
  memprof explain model.bin -- ./engine model.bin
  memprof explain model.gguf -- ./engine -m {model}
  memprof explain model.onnx -r onnxruntime --on ssh:pi@board --python /opt/rt/bin/python
  memprof explain --from why.json --plot why.svg
"""


@click.command(epilog=_EPILOG, cls=QuestionCommand)
@click.option(
    "--verify",
    "verified",
    is_flag=True,
    help="Measure each proposal that is a knob, other values of knobs, and the best two by two, interleaved with the settings as they are; rank "
    "them. With one thread all runs are deterministic, unless --no-deterministic is given.",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="Fresh processes per proposal, for --verify."
)
@click.option("--from", "source", metavar="FILE.json", help="Show a result that an earlier explain kept, and measure nothing.")
@click.option("-o", "--output", metavar="FILE.json", help="Keep the result, for --from and `memprof page --explain`.")
@click.option("--keep-runs", metavar="RUNS.jsonl", help="Keep the plain runs, those of --verify included, as a runs file.")
@click.option("--plot", "picture", metavar="FILE", help="Draw the waterfall of each phase: .png, .svg or .pdf.")
@REPORT
@click.option(
    "--format", "form", type=click.Choice(["text", "markdown", "json"]), default="text", show_default=True, help="The form of the output."
)
@place_options
@subject
@VERBOSE
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def command(
    subject: Words,
    source: str | None,
    output: str | None,
    keep_runs: str | None,
    picture: str | None,
    issue: str | None,
    form: str,
    as_json: bool,
    on: str | None,
    remote_dir: str | None,
    **words: Any,
) -> None:
    """Stop the process of a model or a program at the end of each phase and account for its memory.

    Shows copies of the weights, the resident set slice by slice, and findings with advice. --verify measures whether the advice helps. The
    model is measured twice: once plain, and once held and looked at. A program without phases is held near its peak.
    """
    from ...base.errors import UsageError
    from ...explain import records
    from . import report, write

    if (source is None) == (not subject.models and not subject.program):
        raise UsageError("name a model or a program to explain, or --from a file that an earlier explain kept")
    if source is not None and on is not None:
        raise UsageError("--from shows what an earlier explain kept: it measures nothing, and takes no --on")
    if source is not None and issue is not None:
        raise UsageError("--report has the command that repeats the measurement, which --from does not know: give it where you measure")
    if picture is not None:
        report("pictures.saving").check(Path(picture))
    maintainers = report_file(issue, picture)
    if source is not None:
        explanation = records.load(Path(source))
    else:
        with reaching(on, remote_dir, subject.python) as place:
            explanation = _measured(subject.suite(place), output, keep_runs, **words)
    click.echo(
        report("tables.explain").render(explanation, "json" if as_json else form)
    )  # first: a disk that is full now must not cost the result
    if output is not None and source is None:
        write(output, lambda path: path.write_bytes(records.encode(explanation)))
    if picture is not None:
        report("pictures.saving").save(report("pictures.waterfall").draw(explanation), picture)
    if maintainers is not None:
        write_report(maintainers, "tables.explain_report", explanation, report("pictures.waterfall").draw(explanation))


def _measured(suite: Suite, output: str | None, keep_runs: str | None, verified: bool, verbose: bool, repeats: int) -> Explanation:
    from ...base import files
    from ...base.errors import UsageError
    from ...campaign import campaign
    from ...campaign.runs_writer import keeping
    from ...explain import engine, verify
    from ...subjects.orders import of_one
    from . import talk
    from .progress import chosen, showing_output

    if output is not None:
        files.check_new(Path(output), instead="explain does not write over it")
    threads = suite.only.threads or suite.threads
    alike = verified and suite.deterministic is None and threads == (1,)  # modes of PEAK are no savings
    suite = replace(suite, deterministic=True) if alike else suite
    # release: it accounts for the memory of a model that is loaded
    warmup = suite.warmup if suite.warmup is not None else _WARMUP
    order = of_one(replace(suite, warmup=warmup, repeats=1, release=False))
    (variant,) = order.subject.variants
    if variant.command is not None and verified:
        raise UsageError("--verify measures the knobs of a runtime, and nothing of a program is proposed that is one")
    with keeping(Path(keep_runs) if keep_runs else None, talk) as kept, closing(chosen()) as progress:
        nowhere = showing_output(lambda line: None, progress) if verbose else lambda line: None
        keep = showing_output(kept, progress) if verbose else kept
        state = campaign.surroundings(order.job.model.bytes, order.place)
        state += [_DETERMINISTIC] if alike else []
        for remark in state:
            progress.say(remark)
        # With --verify the same settings are among the variants, with as many repeats.
        explanation = with_remarks(engine.explain(order, progress, nowhere if verified else keep), state)
        return verify.verify(explanation, replace(order.subject, repeats=repeats), variant, progress, keep) if verified else explanation
