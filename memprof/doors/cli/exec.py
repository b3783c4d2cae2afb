"""`memprof exec`: one program, started as it is; a runs file and tables out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ...subjects.settings import OF_A_SUITE
from .subject import (
    EVERY_TABLE,
    RESUMED,
    ROWS_AS_JSON,
    RUNS_FILE,
    VERBOSE,
    Measuring,
    measure_suite,
    place_options,
    reaching,
    recording_option,
    recordings_of,
    refuse_counts,
    refuse_process,
    refused_option,
    settings_options,
)

if TYPE_CHECKING:
    from ...places.place import Place
    from ...subjects.suite import Suite

_EPILOG = """\b
Examples:
  memprof exec -- ./app --model m.tflite
  memprof exec --phase load=nnfw_load_model_from_file --phase execute=nnfw_run -- ./onert_run m.tflite
  memprof exec --phase-regex load='MODEL_LOAD takes' --repeats 5 -- ./app m.tflite
  memprof exec --name vgg16 -o runs.jsonl -- python train.py --epochs 3
  memprof exec --repeats 5 -- sort < words.txt
  memprof exec --on ssh:root@tv -- /opt/app/engine m.bin

Phases come from marks in the program (see memprof marks), from --phase, or from --phase-regex. Marks are the most exact, then --phase.
Without any of them there is one phase, RUN. With several repeats, each run reads a file on standard input from its start. A pipe cannot
be read twice: standard input is then empty.
"""


@click.command(epilog=_EPILOG, cls=Measuring, context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, required=True, metavar="-- PROGRAM WORD...", type=click.UNPROCESSED)
@click.option("--variant", metavar="NAME", help="The program's name in tables, beside that of its model.  [default: --name, or its own]")
@refused_option("-r", "--runtime", sentence=lambda name: f"-r {name}: exec measures a program; memprof run measures a model in a runtime")
@settings_options(*OF_A_SUITE)
@place_options
@RUNS_FILE
@RESUMED
@click.option("--above-baseline", is_flag=True, help="Show memory above the baseline: the program before its first phase.")
@EVERY_TABLE
@recording_option
@VERBOSE
@ROWS_AS_JSON
def command(
    on: str | None,
    remote_dir: str | None,
    output: str | None,
    append: bool,
    above_baseline: bool,
    everything: bool,
    keep_recording: bool,
    verbose: bool,
    as_json: bool,
    **words: Any,
) -> int:
    """Measure a program and the processes that it starts: memory and time of its phases.

    The program reads memprof's standard input; on another machine (--on) it reads nothing. Its output is not shown. If it fails, the end of its
    output is kept in the runs file.
    """
    from ...subjects.configuration import with_defaults
    from . import talk

    with reaching(on, remote_dir, words["settings"]["python"]) as place:
        suite, recordings = with_defaults(_suite(place=place, **words), talk), recordings_of(output, keep_recording)
        return measure_suite(suite, output, append, above_baseline, as_json, verbose, not everything, recordings, on)


def _suite(words: tuple[str, ...], variant: str | None, settings: Mapping[str, Any], place: Place) -> Suite:
    from ...places.place import HERE
    from ...programs.commands import of_words
    from ...subjects.settings import fields
    from ...subjects.suite import Suite, of_command

    refuse_process(words[:1])
    command = of_words(words)
    refuse_counts(command, settings)
    own = of_command(replace(command, name=variant or settings["name"] or command.name))
    suite = Suite(variants=(own,), place=place, stdin=True, **fields(settings, "program", place is not HERE))
    return suite if suite.repeats is not None else replace(suite, repeats=1)
