"""`memprof exec`: one program, started as it is; a runs file and tables out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..base.units import parse_celsius, parse_duration_ns
from .subject import (
    condition_options,
    cooling_option,
    measure_suite,
    phase_options,
    place_options,
    reaching,
    recorder_option,
    recording_option,
    recordings_of,
)

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


@click.command(epilog=_EPILOG, context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, required=True, metavar="-- PROGRAM WORD...", type=click.UNPROCESSED)
@click.option("--name", metavar="NAME", help="The model's name in tables.  [default: the model file among the words, or the program]")
@click.option("--variant", metavar="NAME", help="The program's name in tables.  [default: its own]")
@click.option("--cwd", metavar="FOLDER", help="The folder that it runs in.  [default: this one]")
@phase_options
@click.option("--threads", metavar="N,N,...", help="Thread counts to sweep over, for {threads} among the words.")
@click.option("--warmup", type=int, metavar="N", help="For {warmup} among the words.  [default: 5]")
@click.option("--runs", type=int, metavar="N", help="For {runs} among the words.  [default: 5]")
@click.option("--repeats", type=int, default=1, show_default=True, metavar="N", help="How many fresh processes.")
@click.option("--interval", metavar="TIME", help="The polling period.  [default: 1ms]")
@click.option("--cache", type=click.Choice(["warm", "cold", "asis"]), help="The model's page cache before each run.  [default: warm]")
@click.option("--deterministic", is_flag=True, default=None, help="No address randomisation, one malloc arena, and {threads} is 1.")
@condition_options
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable for the program (repeatable).")
@recorder_option
@click.option("--timeout", metavar="TIME", help="The longest time that a run may take.  [default: 10min]")
@place_options
@cooling_option
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Where the runs go.  [default: memprof-DATE-TIME.jsonl]")
@click.option("--append", is_flag=True, help="Add to an existing file. If it holds a part of these runs, measure only the others.")
@click.option("--above-baseline", is_flag=True, help="Show memory above the baseline: the program before its first phase.")
@recording_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables: one row per run and phase.")
def command(
    on: str | None,
    remote_dir: str | None,
    output: str | None,
    append: bool,
    above_baseline: bool,
    keep_recording: bool,
    as_json: bool,
    **words: Any,
) -> int:
    """Measure a program and all that it starts: memory and time of its phases.

    The program reads memprof's standard input; on another machine (--on) it reads nothing. Its output is not shown. If it fails, the end of its
    output is kept in the runs file.
    """
    from ..subjects.configuration import with_defaults
    from . import talk

    with reaching(on, remote_dir) as place:
        suite, recordings = with_defaults(_suite(place=place, **words), talk), recordings_of(output, keep_recording)
        return measure_suite(suite, output, append, above_baseline, as_json, recordings=recordings)


def _suite(
    words: tuple[str, ...],
    variant: str | None,
    phases: tuple[str, ...],
    phase_regexes: tuple[str, ...],
    environment: tuple[str, ...],
    threads: str | None,
    interval: str | None,
    timeout: str | None,
    cpus: str | None,
    max_temperature: str | None,
    **fields: Any,
) -> Any:
    from ..programs.commands import of_words, parse_regexes
    from ..programs.runtimes import split_setting
    from ..records.types import COMMAND
    from ..subjects.suite import Suite, Variant, canonical_cpus, parse_phases, parse_threads

    command = of_words(words)
    command = replace(command, name=variant or command.name)
    return Suite(
        variants=(Variant(runtime=COMMAND, name=command.name, command=command),),
        phases=parse_phases(phases),
        phase_regexes=parse_regexes(phase_regexes),
        env=dict(split_setting(text) for text in environment),
        threads=parse_threads(threads) if threads else (),
        interval_ns=parse_duration_ns(interval) if interval else None,
        timeout_ns=parse_duration_ns(timeout) if timeout else None,
        cpus=canonical_cpus(cpus) if cpus is not None else None,
        max_celsius=parse_celsius(max_temperature) if max_temperature else None,
        stdin=True,
        **fields,
    )
