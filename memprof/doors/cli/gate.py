"""`memprof gate`: runs and their base or budgets in; a report and an exit code out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base.errors import EXIT_OK
from ...subjects.settings import OF_A_PROGRAM
from .subject import QuestionCommand, place_options, program_variant, reaching, refuse_program, settings_options, words_of_program

if TYPE_CHECKING:
    from ...places.place import Place
    from ...regressions.gate.request import GateRequest
    from ...subjects.suite import Suite

_EPILOG = """\b
Examples:
  memprof gate --budget 900MiB -- pnpm test
  memprof gate --against main --build 'make -s app' -- ./test.sh
  memprof gate --baseline memprof.json --report-only --env OMP_NUM_THREADS=2 -- ./app --model m.tflite
  memprof gate head.jsonl --baseline baseline.json
  memprof gate head.jsonl --budgets budgets.toml
  memprof gate --run suite.toml --base-ref origin/main --confirm --prove
  memprof gate --run suite.toml --baseline baseline.json --also junit=gate.xml --also json=gate.json
\b
Peaks of two or three modes can be undecided (3): deterministic = true in the
suite, or more repeats, help.
\b
Exit codes: 0 fine; 1 a regression, a run that fails now or a row over its budget; 3 could not decide; 4 a measurement failed;
2 wrong usage; 5 a file or an environment that cannot be used.
"""

_FORMATS = ("markdown", "json", "junit", "github", "bencher", "github-benchmark", "openmetrics")


@click.command(cls=QuestionCommand, epilog=_EPILOG)
@click.argument("heads", nargs=-1, metavar="[HEAD.jsonl]... [-- PROGRAM WORD...]")
@click.option("-r", "--runtime", hidden=True)  # of a suite: the refusal has one
@click.option("--budget", metavar="SIZE", help="No repeat's peak may exceed this, such as 900MiB.")
@click.option(
    "--baseline",
    "base",
    metavar="FILE",
    help="The file to compare with: a baseline, or a runs file. The first gate of a program makes the baseline if it does not exist.",
)
@click.option(
    "--against",
    metavar="REF",
    help="With a program: measure it also in a worktree of this git ref, alternating with this checkout.",
)
@click.option(
    "--build",
    metavar="COMMAND",
    help="With a program: run this line of shell before the measurements; with --against in both trees.",
)
@click.option("--run", "suite", metavar="SUITE.toml", help="Measure this suite now instead of reading runs.")
@click.option(
    "--base-ref",
    metavar="REF",
    help="With --run: measure the build of this git ref beside that of the checkout, interleaved, each in a separate environment.",
)
@click.option("--budgets", metavar="FILE.toml", help="Absolute limits.")
@click.option("--acknowledged", metavar="FILE.toml", help="Regressions that are accepted, each with a reason and its last day.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Compare this metric (repeatable).  [default: rss_peak_bytes, anon_end_bytes]",
)
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="2%|1MiB",
    help="The smallest difference that counts, as a share or as bytes (repeatable). The largest threshold holds; the error bound of peaks and "
    "three standard deviations are thresholds too.  [default: 1% and 512KiB]",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    metavar="N",
    help="Fresh processes per variant and side, instead of the suite's number, or of 5 for a program.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse a baseline from another machine, kernel or C library, or with other versions of Python, the runtime or packages.",
)
@click.option(
    "--across-machines",
    is_flag=True,
    help="Judge although the baseline comes from a machine of another architecture, kernel version, number of CPUs or size of memory.",
)
@click.option("--allow-gone", is_flag=True, help="Pass although the base has models, variants or rows that are gone; they are still named.")
@click.option(
    "--confirm",
    is_flag=True,
    help="Call a regression only if a fresh measurement of that row agrees. For runs from a file, the build that is here now is measured.",
)
@click.option(
    "--prove",
    is_flag=True,
    help="Measure a variant with a known 5% more, and unchanged: the gate must see the first and stay silent on the second.",
)
@click.option("--report-only", is_flag=True, help="Always exit with 0, and say what the exit code would have been.")
@click.option("--trust-runs", is_flag=True, help="With --confirm or --prove: execute what the runs file names, to measure it again.")
@settings_options(*OF_A_PROGRAM)
@place_options
@click.option(
    "-o",
    "--output",
    metavar="NAME.jsonl",
    help="The file for head's runs that are measured now. Beside NAME.jsonl, NAME.base.jsonl has base's runs, NAME.checks.jsonl those of "
    "--confirm and --prove, NAME.growth.jsonl and NAME.law.jsonl those of the suite's limits.  [default: memprof-DATE-TIME.jsonl]",
)
@click.option("--format", "form", type=click.Choice(_FORMATS), help="The form of the report.  [default: markdown]")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--also", "others", multiple=True, metavar="FORMAT=FILE", help="Write the report in this format too (repeatable).")
def command(
    form: str | None, as_json: bool, others: tuple[str, ...], on: str | None, remote_dir: str | None, runtime: str | None, **words: Any
) -> int:
    """Decide for every model, variant, phase and metric whether it got worse. The exit code is the result.

    A program behind -- is measured five times. Without a budget, a baseline or a ref, the report names a budget that would hold. Options set
    what is measured and how for a program, and a suite's file otherwise.

    A regression must lie beyond a threshold, and a one-sided rank test at 0.01 must agree. That takes at least five repeats per side.
    """
    from ...base import files
    from ...base.errors import MemprofError, UsageError
    from ...regressions.gate import decide
    from . import report, talk, write_text
    from .progress import chosen

    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form}: only one of them can be printed; --also {form}=FILE writes the other")
    refuse_program(words["heads"])
    _refuse_model(words["heads"], runtime, words["settings"], words["budget"])
    targets = [_target(text) for text in others]
    for _, path in targets:
        files.check_target(Path(path))
    try:
        with reaching(on, remote_dir) as place, closing(chosen()) as progress:
            decision = decide.judge(_request(on=place, **words), progress)
    except UsageError:
        raise
    except MemprofError as error:
        if not words["report_only"]:
            raise
        talk(str(error))
        talk(f"report only: without --report-only the exit code would be {error.exit_code}")
        return EXIT_OK
    renderer = report("tables.gate")
    click.echo(renderer.render(decision, "json" if as_json else form or "markdown"))
    for name, path in targets:
        write_text(path, renderer.render(decision, name))
    return EXIT_OK if words["report_only"] else decision.exit_code


def _refuse_model(heads: tuple[str, ...], runtime: str | None, settings: Mapping[str, Any], budget: str | None) -> None:
    """Raises UsageError for a model or a runtime in place of a suite, with a suite for it and the gate that measures and judges it."""
    from ...base.errors import UsageError
    from ...programs.runtimes import describe, interpreter
    from ...subjects.suite import gate_line, models_among, of_words

    models = models_among(heads)
    if not models and runtime is None:
        return
    model = models[0] if models else "model.onnx"
    taking = (each.name for each in describe(interpreter(None)) if each.installed and each.takes(model))
    suite = of_words(settings, "", models=(model,), runtimes=(runtime or next(taking, "NAME"),))
    given = f"{model} is a model" if models else f"-r {runtime}"
    raise UsageError(f"{given}, and a gate takes a model in the file of a suite: {gate_line(suite)} {budget or 'SIZE'}")


def _request(
    heads: tuple[str, ...],
    output: str | None,
    budget: str | None,
    thresholds: tuple[str, ...],
    settings: Mapping[str, Any],
    on: Place,
    build: str | None,
    **words: Any,
) -> GateRequest:
    from ...regressions.gate.request import GateRequest
    from ...verdicts.budgets import of_peak
    from ...verdicts.verdicts import parse_limits
    from .subject import unused_path

    files: dict[str, Any] = {
        name: Path(path) if (path := words.pop(name)) else None for name in ("base", "suite", "budgets", "acknowledged")
    }
    return GateRequest(
        heads=tuple(map(Path, heads)),
        command=_program(settings, on, build),
        on=on,
        budget=of_peak(budget) if budget is not None else None,
        limits=parse_limits(thresholds),
        output=Path(output) if output else unused_path(),
        in_ci=os.environ.get("CI", "").lower() in ("true", "1"),  # as GitHub, GitLab and most others set it
        **files,
        **words,
    )


def _program(settings: Mapping[str, Any], place: Place, build: str | None) -> Suite | None:
    """The suite of the program behind `--`, if there is one. settings: by parameter."""
    from ...base.errors import UsageError
    from ...subjects.suite import Build, of_words

    if build is not None and not build.strip():
        raise UsageError("--build is empty: write a line of shell, such as --build 'make -s app'")
    words = words_of_program()
    if not words:
        if build is not None:
            raise UsageError("--build goes with -- PROGRAM WORD...; a suite's file has [build]")
        given = next((setting.name for setting in OF_A_PROGRAM if settings[setting.parameter] not in (None, ())), None)
        if given is not None:
            raise UsageError(f"--{given} goes with -- PROGRAM WORD...; a suite's file has its own settings")
        return None
    built = Build(build) if build is not None else None
    return of_words(settings, "program", place, variants=(program_variant(words, settings),), build=built)


def _target(text: str) -> tuple[str, str]:
    from ...base.errors import UsageError

    name, equals, path = text.partition("=")
    if name not in _FORMATS or not equals or path in ("", "-"):
        raise UsageError(f"--also {text!r}: write FORMAT=FILE, the format one of {', '.join(_FORMATS)}")
    return name, path
