"""`memprof heap record`: a model's job, or any program, in; the files of massif, heaptrack or memray and the phases out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..base.errors import MeasurementError
from .subject import here_only

_EPILOG = """\b
Examples:
  memprof heap record model.onnx -r onnxruntime -o profile
  memprof heap record model.tflite -r onert --tool massif --phases load,prepare -o profile
  memprof heap record --tool massif --pages-as-heap -o profile -- ./program argument
"""


@click.command(epilog=_EPILOG, context_settings={"ignore_unknown_options": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="MODEL | -- CMD ARGS...")
@click.option("-r", "--runtime", metavar="NAME", help="The runtime to run the model in, or the file of a runtime that you wrote.")
@click.option(
    "--tool",
    type=click.Choice(["massif", "heaptrack", "memray"]),
    help="The profiler.  [default: the fastest installed one that can do the job]",
)
@click.option("--pages-as-heap", is_flag=True, help="Count mapped pages instead of malloc's blocks (massif).")
@click.option("--stacks", is_flag=True, help="Count thread stacks too; much slower (massif).")
@click.option("--phases", metavar="load,prepare", help="End the run after the last of these phases, so that the tool's file is complete.")
@click.option("--detailed-freq", type=click.IntRange(1), metavar="N", help="Every Nth snapshot has a tree (massif).  [default: 10]")
@click.option(
    "--threshold", type=click.FloatRange(0, 100), metavar="P", help="Places below P percent are summed up (massif).  [default: 1]"
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A knob of the runtime (repeatable).")
@click.option("--threads", type=click.IntRange(1), metavar="N", help="The thread count.  [default: the runtime's own; 1 under massif]")
@click.option("--warmup", type=click.IntRange(0), metavar="N", help="Iterations before the first of EXECUTE.  [default: 0]")
@click.option("--runs", type=click.IntRange(1), metavar="N", help="Iterations of EXECUTE.  [default: 1]")
@click.option("--python", metavar="PATH", help="The interpreter that has the runtime.  [default: memprof's own]")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable for the runtime (repeatable).")
@click.option(
    "--timeout",
    metavar="TIME",
    default="10min",
    show_default=True,
    help="After this time the program is asked to end, and the file is kept.",
)
@here_only(
    "heap record",
    "the profiler must be installed beside the program, and its files are not brought back; record there, and copy the folder",
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A new folder for the files.")
@click.option("--json", "as_json", is_flag=True, help="Print the recorded files as JSON.")
def command(output: Path, as_json: bool, **words: Any) -> int:
    """Run a model, or any program, under an allocation profiler. Keep the profile, with the phases."""
    from ..heap import record
    from . import talk
    from .progress import chosen

    request = _request(output, **words)
    progress = chosen()
    try:
        recorded = record.record(request, progress)
    finally:
        progress.close()
    if recorded.partial:
        talk(f"the profile is partial: {recorded.partial}")
    if as_json:
        import json

        click.echo(json.dumps({"tool": recorded.tool, "files": [str(path) for path in recorded.files], "partial": recorded.partial}))
    else:
        for path in recorded.files:
            click.echo(str(path))
    return 0 if recorded.run.outcome.ok else MeasurementError.exit_code


def _request(
    output: Path,
    words: tuple[str, ...],
    runtime: str | None,
    phases: str | None,
    settings: tuple[str, ...],
    environment: tuple[str, ...],
    threads: int | None,
    warmup: int | None,
    runs: int | None,
    python: str | None,
    timeout: str,
    **fields: Any,
) -> Any:
    from ..base.errors import UsageError
    from ..base.units import parse_duration_ns
    from ..heap.record import Request, parse_phases
    from ..programs.runtimes import split_setting
    from ..subjects.suite import Suite

    limits = {"timeout_ns": parse_duration_ns(timeout), **fields}
    if runtime is None:
        if phases is not None:
            raise UsageError("--phases is for a model in a runtime (-r); a program has no phases that memprof could end it after")
        return Request(output, command=words, **limits)
    if len(words) != 1:
        raise UsageError("name one model for -r RUNTIME")
    suite = Suite(
        models=words,
        runtimes=(runtime,),
        set=dict(split_setting(text) for text in settings),
        env=dict(split_setting(text) for text in environment),
        threads=(threads,) if threads else (),
        warmup=warmup,
        runs=runs,
        python=python,
        release=False,  # a tool that ends the program at a phase, or its teardown, frees too
    )
    return Request(output, suite, until=parse_phases(phases) if phases else None, **limits)
