"""`memprof run`: flags or a suite file in, a runs file and tables out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..base.errors import EXIT_OK, UsageError
from ..base.units import counted, parse_celsius, parse_duration_ns
from .subject import (
    VERBOSE,
    condition_options,
    cooling_option,
    drive_options,
    machines_option,
    measure_suite,
    phase_options,
    place_or_fleet_options,
    reaching,
    recorder_option,
    recording_option,
    recordings_of,
)

_EPILOG = """\b
Examples:
  memprof run model.onnx -r onnxruntime
  memprof run model.onnx -r all
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


@click.command(epilog=_EPILOG)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "-r",
    "--runtime",
    "runtimes",
    multiple=True,
    metavar="NAME",
    help="A runtime, the file of a runtime that you wrote, or all: every one that is installed and takes the model (repeatable).",
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
@drive_options
@click.option("--cwd", metavar="FOLDER", help="The folder that commands run in.  [default: this one]")
@phase_options
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A knob, for every runtime that has it (repeatable).")
@click.option("--threads", metavar="N,N,...", help="Thread counts to sweep over.  [default: the runtime's own]")
@click.option("--warmup", type=int, metavar="N", help="Iterations that are not timed.  [default: 5]")
@click.option("--runs", type=int, metavar="N", help="Timed iterations.  [default: 5]")
@click.option(
    "--repeats", type=int, metavar="N", help="Fresh processes per variant. Fewer than 5 cannot decide a comparison.  [default: 5]"
)
@click.option(
    "--interval",
    metavar="TIME",
    help="The polling period, for all phases.  [default: 1ms; timed iterations 5ms, or none if the runtime uses every CPU]",
)
@click.option("--cache", type=click.Choice(["warm", "cold", "asis"]), help="The model's page cache before each run.  [default: warm]")
@click.option(
    "--deterministic",
    is_flag=True,
    default=None,
    help="No address randomisation, a fixed hash seed, one malloc arena, and one thread unless --threads says otherwise.",
)
@click.option("--python", metavar="PATH", help="The interpreter that has the runtime.  [default: memprof's own]")
@condition_options
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE", help="A variable for the child (repeatable).")
@recorder_option
@click.option("--timeout", metavar="TIME", help="The longest time that a run may take.  [default: 10min]")
@click.option(
    "--release/--no-release",
    default=None,
    help="End with the phase RELEASE: the runtime is deleted, and the memory that stays is shown.  [default: --release]",
)
@click.option("--shape", "shapes", multiple=True, metavar="INPUT=1,3,224,224", help="An input's shape (repeatable).")
@click.option("--inputs", metavar="FILE.npz", help="Inputs by name. memprof makes those that it lacks.")
@click.option("--name", metavar="NAME", help="The model's name in tables.")
@click.option("--suite", "suite_file", metavar="FILE.toml", help="Models, variants and defaults from a file. Options given here win.")
@click.option("--shard", metavar="K/N", help="Measure only the K-th of N parts of the suite; `memprof merge` puts their runs together.")
@place_or_fleet_options
@machines_option
@click.option("--each", metavar="LABEL", help="With --on dask: measure everything once on every kind of machine, by this label.")
@click.option("--spread", is_flag=True, help="With --on dask: machines that fit are interchangeable, and repeats are divided among them.")
@cooling_option
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Where the runs go.  [default: memprof-DATE-TIME.jsonl]")
@click.option("--append", is_flag=True, help="Add to an existing file. If it holds a part of these runs, measure only the others.")
@click.option("--above-baseline", is_flag=True, help="Show memory above the baseline: the runtime with no model loaded.")
@click.option("--all", "everything", is_flag=True, help="Print every table, not only the peak, the latency and what is kept after release.")
@recording_option
@VERBOSE
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables: one row per run and phase.")
def command(
    on: str | None,
    remote_dir: str | None,
    output: str | None,
    append: bool,
    above_baseline: bool,
    everything: bool,
    as_json: bool,
    keep_recording: bool,
    verbose: bool,
    shard: str | None,
    machines: str | None,
    each: str | None,
    spread: bool,
    **words: Any,
) -> int:
    """Measure models in runtimes: the memory and time of each phase.

    Each repeat is a fresh process, and variants take turns. Tables go to standard output as Markdown, all else to standard error. Each run is added
    to the runs file as soon as it ends.
    """
    from ..subjects.configuration import with_defaults
    from . import talk
    from .fleet import Fleet, measure_on_fleet

    fleet = Fleet.given(on, remote_dir, machines, each, spread)
    if fleet is not None:
        suite = with_defaults(_suite(**words), talk, on_fleet=True)
        if shard is not None:
            suite = _shard(suite, shard)
        return (
            EXIT_OK if suite is None else measure_on_fleet(suite, fleet, output, append, above_baseline, as_json, verbose, not everything)
        )
    with reaching(on, remote_dir, words["python"]) as place:
        suite = with_defaults(_suite(place=place, **words), talk)
        if shard is not None:
            suite = _shard(suite, shard)
            if suite is None:
                return EXIT_OK
        recordings = recordings_of(output, keep_recording)
        return measure_suite(suite, output, append, above_baseline, as_json, verbose, brief=not everything, recordings=recordings)


def _shard(suite: Any, text: str) -> Any:
    """The suite's shard; None, and a sentence about it, if that has nothing to measure."""
    from ..subjects import shards
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
    phases: tuple[str, ...],
    phase_regexes: tuple[str, ...],
    settings: tuple[str, ...],
    environment: tuple[str, ...],
    shapes: tuple[str, ...],
    threads: str | None,
    interval: str | None,
    timeout: str | None,
    cpus: str | None,
    max_temperature: str | None,
    suite_file: str | None,
    drive: str | None,
    prompts: int | None,
    generate: int | None,
    parallel: int | None,
    distinct: int | None,
    **fields: Any,
) -> Any:
    from ..programs.commands import parse_regexes
    from ..programs.runtimes import split_setting
    from ..subjects.drive import parse
    from ..subjects.suite import Suite, canonical_cpus, parse_cmd, parse_phases, parse_shape, parse_threads, parse_variant, read

    load = {"--prompts": prompts, "--generate": generate, "--parallel": parallel, "--distinct": distinct}
    if drive is None and any(number is not None for number in load.values()):
        raise UsageError(
            f"{', '.join(name for name, number in load.items() if number is not None)}: that is for --drive, which is not given"
        )
    flags = Suite(
        models=models,
        runtimes=runtimes,
        variants=(*map(parse_variant, variants), *map(parse_cmd, cmds)),
        phases=parse_phases(phases),
        phase_regexes=parse_regexes(phase_regexes),
        set=dict(split_setting(text) for text in settings),
        env=dict(split_setting(text) for text in environment),
        shapes=dict(parse_shape(text) for text in shapes),
        threads=parse_threads(threads) if threads else (),
        interval_ns=parse_duration_ns(interval) if interval else None,
        timeout_ns=parse_duration_ns(timeout) if timeout else None,
        cpus=canonical_cpus(cpus) if cpus is not None else None,
        drive=parse(drive, prompts, generate, parallel, distinct) if drive is not None else None,
        max_celsius=parse_celsius(max_temperature) if max_temperature else None,
        **fields,
    )
    return flags.over(read(Path(suite_file))) if suite_file else flags
