"""`memprof heap record`: a model's job, or any program, in; the files of massif, heaptrack or memray and the phases out."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import Any

import click

from ...base.errors import MeasurementError
from .subject import QuestionCommand, Words, here_only, subject

_EPILOG = """\b
Examples:
  memprof heap record model.onnx -r onnxruntime -o profile
  memprof heap record model.tflite -r onert --tool massif --phases load,prepare -o profile
  memprof heap record --tool massif --pages-as-heap -o profile -- ./program argument
"""


@click.command(epilog=_EPILOG, cls=QuestionCommand)
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
@here_only(
    "heap record",
    "the profiler must be installed beside the program, and its files are not brought back; record there, and copy the folder",
)
@functools.partial(subject, without=("phase",))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A new folder for the files.")
@click.option("--json", "as_json", is_flag=True, help="Print the recorded files as JSON.")
def command(output: Path, as_json: bool, subject: Words, phases: str | None, **words: Any) -> int:
    """Run a model, or any program, under an allocation profiler. Keep the profile, with the phases."""
    from ...heap import record
    from . import talk
    from .progress import chosen

    request = record.HeapRequest(output, subject.suite(), until=record.parse_phases(phases) if phases else None, **words)
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
        talk(f"next: {shlex.join(['memprof', 'heap', 'show', str(output)])}")
    return 0 if recorded.run.outcome.ok else MeasurementError.exit_code
