"""`memprof exec`: one program, started as it is; a runs file and tables out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ...subjects.settings import OF_A_SUITE
from .subject import (
    Measuring,
    RunsOptions,
    measure_suite,
    place_options,
    program_variant,
    reaching,
    refused_option,
    runs_options,
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
@runs_options("the program before its first phase")
def command(wanted: RunsOptions, on: str | None, remote_dir: str | None, **words: Any) -> int:
    """Measure a program and the processes that it starts: memory and time of its phases.

    The program reads memprof's standard input; on another machine (--on) it reads nothing. Its output is not shown. If it fails, the end of its
    output is kept in the runs file.
    """
    from ...subjects.configuration import with_defaults
    from . import talk

    with reaching(on, remote_dir, words["settings"]["python"]) as place:
        return measure_suite(with_defaults(_suite(place=place, **words), talk), wanted, on)


def _suite(words: tuple[str, ...], variant: str | None, settings: Mapping[str, Any], place: Place) -> Suite:
    from ...subjects.suite import of_words

    own = program_variant(words, {**settings, "name": variant or settings["name"]})
    suite = of_words(settings, "program", place, variants=(own,), stdin=True)
    return suite if suite.repeats is not None else replace(suite, repeats=1)
