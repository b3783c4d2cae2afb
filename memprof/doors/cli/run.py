"""`memprof run`: flags or a suite file in, a runs file and tables out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base.errors import EXIT_OK
from ...base.units import counted
from ...subjects.settings import OF_A_SUITE
from .subject import (
    Measuring,
    RunsOptions,
    measure_suite,
    place_or_fleet_options,
    reaching,
    refuse_process,
    refuse_program,
    runs_options,
    settings_options,
)

if TYPE_CHECKING:
    from ...places.place import Place
    from ...subjects.suite import Suite

_EPILOG = """\b
Examples:
  memprof run model.onnx
  memprof run model.onnx -r onnxruntime
  memprof run model.tflite -r tflite -r litert --threads 1,2 > table.md
  memprof run model.tflite --variant copy=onert --variant mapped=onert,mmap=on
  memprof run --suite suite.toml -o runs.jsonl
  memprof run --suite suite.toml --shard 2/5 -o part2.jsonl
  memprof run --cmd 'orig=./train --epochs {runs}' --cmd 'swap=./train --epochs {runs} --swap' --runs 10
  memprof run --suite suite.toml --on dask:tcp://127.0.0.1:8786 --machines kind=pi5 -o runs.jsonl
  memprof run model.tflite -r litert --on ssh:pi@board --python /opt/rt/bin/python
  memprof run m.gguf --cmd 'server=./llama-server -m {model} --port 8080' --drive openai:8080 --runs 20
  memprof run m.tflite -r tflite --cmd 'native=./app {model} {threads}' --threads 1,2
"""


@click.command(epilog=_EPILOG, cls=Measuring)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "-r",
    "--runtime",
    "runtimes",
    multiple=True,
    metavar="NAME",
    help="A runtime, the file of a runtime that you wrote, or all: every one that is installed and takes the model (repeatable).  "
    "[default: all, where neither a variant nor a program is named]",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME=RUNTIME,KEY=VALUE,...",
    help="A named row of the comparison. KEY is a knob, or python, threads, env.NAME or shape.INPUT (repeatable).",
)
@click.option(
    "--cmd",
    "cmds",
    multiple=True,
    metavar="NAME='PROGRAM WORD...'",
    help="Any program as a variant (repeatable). VARIABLE=VALUE may stand before it. memprof fills in {model}, {threads}, {runs} and "
    "{warmup}. Its standard input is empty.",
)
@settings_options(*OF_A_SUITE)
@click.option("--suite", "suite_file", metavar="FILE.toml", help="Models, variants and defaults from a file. Options given here win.")
@click.option("--shard", metavar="K/N", help="Measure only the K-th of N parts of the suite; `memprof merge` puts their runs together.")
@place_or_fleet_options
@click.option("--each", metavar="LABEL", help="With --on dask: measure everything once on every kind of machine, by this label.")
@click.option("--spread", is_flag=True, help="With --on dask: machines that fit are interchangeable, and repeats are divided among them.")
@runs_options("the runtime with no model loaded")
def command(
    wanted: RunsOptions,
    on: str | None,
    remote_dir: str | None,
    shard: str | None,
    machines: str | None,
    each: str | None,
    spread: bool,
    **words: Any,
) -> int:
    """Measure models in runtimes: the memory and time of each phase.

    Each repeat is a fresh process, and variants take turns. Tables go to standard output as Markdown, messages to standard error. Each run is added
    to the runs file as soon as it ends.
    """
    from ...subjects.configuration import with_defaults
    from . import talk
    from .fleet import FleetOptions, measure_on_fleet

    fleet = FleetOptions.given(on, remote_dir, machines, each, spread)
    with reaching(on if fleet is None else None, remote_dir, words["settings"]["python"]) as place:
        suite: Suite | None = with_defaults(_suite(place=place, **words), talk, on_fleet=fleet is not None)
        if shard is not None and suite is not None:
            suite = _shard(suite, shard)
        if suite is None:
            return EXIT_OK
        if fleet is not None:
            return measure_on_fleet(suite, fleet, wanted)
        return measure_suite(suite, wanted, on)


def _shard(suite: Suite, text: str) -> Suite | None:
    """The suite's shard; None, and a sentence about it, if that has nothing to measure."""
    from ...subjects import shards
    from . import talk

    number, count = shards.parse_shard(text)
    part = shards.shard(suite, number, count)
    if part is None:
        there = len(shards.comparisons(suite))
        talk(f"shard {number} of {count} has nothing to measure: there {'is' if there == 1 else 'are'} {counted(there, 'model')}")
    return part


def _suite(
    models: tuple[str, ...],
    runtimes: tuple[str, ...],
    variants: tuple[str, ...],
    cmds: tuple[str, ...],
    settings: Mapping[str, Any],
    suite_file: str | None,
    place: Place,
) -> Suite:
    from ...subjects.suite import ALL, of_words, parse_cmd, parse_variant, read

    if models and not (runtimes or variants or cmds or suite_file):
        refuse_program(models)
        runtimes = (ALL,)
    kinds = {"runtime"} if runtimes or variants else set()
    kinds |= {"program"} if cmds else set()
    kind = kinds.pop() if len(kinds) == 1 and suite_file is None else ""
    refuse_process(models)
    named = (*map(parse_variant, variants), *map(parse_cmd, cmds))
    flags = of_words(settings, kind, place, models=models, runtimes=runtimes, variants=named)
    return flags.over(read(Path(suite_file), cwd=flags.cwd)) if suite_file else flags
