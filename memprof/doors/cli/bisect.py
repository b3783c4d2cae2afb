"""`memprof bisect`: the version that changed a figure."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base.errors import UsageError
from .subject import QuestionCommand, Words, machines_option, subject

if TYPE_CHECKING:
    from ...regressions.bisect.version_range import Versions

_EPILOG = """\b
Examples:
  memprof bisect --suite suite.toml --good v1.2 --bad HEAD
  memprof bisect --suite suite.toml --good v1.2 --bad HEAD --path src/kernels
  memprof bisect net.onnx --package onnxruntime --from 1.17 --to 1.31
  memprof bisect net.onnx --package numpy --from 1.26 --to 2.3 -r onnxruntime@1.20.1
  memprof bisect --package faster-whisper --from 1.0.3 --to 1.2.1 --with onnxruntime==1.20.1 -- python vad.py 30
  memprof bisect --package tokenizers --from 0.19.1 --to 0.23.3 --metric growth_bytes -- python encode.py {runs}
  memprof bisect --package npm:sharp --from 0.32 --to 0.34 -- node resize.js
  memprof bisect net.onnx --package onnxruntime --from 1.22 --to 1.24 --metric law_bytes --vary batch=1..16
  memprof bisect net.onnx --package onnxruntime --from 1.17 --to 1.31 --on dask:tcp://127.0.0.1:8786 --machines kind=pi5
  memprof bisect --suite suite.toml --good v1.2 --on dask:tcp://127.0.0.1:8786 --machines kind=pi5
"""


@click.command(epilog=_EPILOG, cls=QuestionCommand)
@click.option("--suite", metavar="SUITE.toml", help="Search commits: each is built and measured as this suite says.")
@click.option("--good", metavar="REF", help="With --suite: the older commit.")
@click.option("--bad", metavar="REF", help="With --suite: the newer commit.  [default: HEAD]")
@click.option("--path", metavar="FOLDER", help="With --suite: only commits that touch this folder or file.")
@click.option(
    "--package", metavar="NAME|npm:NAME", help="Search releases of this package, each in an environment that memprof makes by pip or npm."
)
@click.option("--from", "first", metavar="VERSION", help="With --package: the older release.")
@click.option("--to", "last", metavar="VERSION", help="With --package: the newer release.")
@click.option("--pre", is_flag=True, help="With --package: pre-releases too.")
@click.option(
    "--with",
    "beside",
    multiple=True,
    metavar="REQUIREMENT",
    help="With --package: a package that each environment has too, as pip or npm takes it: torch==2.13.0 (repeatable).",
)
@click.option(
    "--metric", default="rss_peak_bytes", show_default=True, metavar="NAME", help="The figure that changed; growth_bytes and law_bytes too."
)
@click.option(
    "--vary",
    multiple=True,
    metavar="NAME=LOW..HIGH",
    help="With law_bytes: a dimension as in memprof scale, of a program too (repeatable).",
)
@click.option(
    "--per",
    metavar="UNIT|TERM",
    help="With growth_bytes of a model: iteration or reload. With law_bytes: the term, such as 'batch x height'.",
)
@click.option(
    "--at-phase", metavar="PHASE", help="The phase in which it changed.  [default: PEAK, or the last phase of a metric without it]"
)
@click.option("--model", "wanted_model", metavar="NAME", help="With --suite: the model to follow.  [default: that which differs most]")
@click.option("--variant", metavar="NAME", help="With --suite: the variant to follow.  [default: that which differs most]")
@click.option(
    "--threshold", "thresholds", multiple=True, metavar="2%|1MiB", help="The smallest difference that counts.  [default: 1% and 512KiB]"
)
@click.option("--all", "every", is_flag=True, help="Find each step, and not only the first.")
@click.option("--no-explain", is_flag=True, help="Do not explain the step, nor look for a setting that undoes it.")
@click.option("--on", metavar="dask:ADDRESS", help="Make and measure the versions on the machines of a fleet, several at once.")
@machines_option
@subject
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Keep every run here.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def command(
    subject: Words,
    suite: str | None,
    package: str | None,
    metric: str,
    at_phase: str | None,
    wanted_model: str | None,
    variant: str | None,
    vary: tuple[str, ...],
    per: str | None,
    thresholds: tuple[str, ...],
    every: bool,
    no_explain: bool,
    on: str | None,
    machines: str | None,
    output: str | None,
    as_json: bool,
    **words: Any,
) -> None:
    """Find the commit or the release that changed the memory of a model or a program.

    The ends are measured first, then the middle of what is left. A version that cannot be built or run is skipped, and the answer may be a
    range. A turn asks for more repeats until it is certain; at most 1 search in 100 takes a wrong one. An interrupted search continues
    when the same words start it again. With --package, the program behind `--` runs inside each release's environment: its python is the
    environment's. On a fleet the workers install the releases or build the commits. A turn then measures as many versions as there are
    machines of the kind, each beside both ends.
    """
    from ...base.files import check_new
    from ...records import metrics
    from ...regressions.bisect import bisect, bisect_request
    from ...verdicts.verdicts import parse_limits
    from . import answer_format, report, talk
    from .fleet import FleetOptions, searching
    from .progress import chosen

    if (suite is None) == (package is None):
        raise UsageError(
            "say what to search: --suite SUITE.toml --good REF, or --package NAME --from VERSION --to VERSION and a MODEL or -- PROGRAM"
        )
    for text in subject.settings["phase"]:
        if "=" not in text:
            raise UsageError(f"--phase names a function of a program as a phase; the phase in which it changed is --at-phase {text}")
    name, limits = metric if metric in metrics.OF_SEVERAL else metrics.metric(metric).name, parse_limits(thresholds)
    if name not in metrics.OF_SEVERAL and (vary or per):
        raise UsageError(f"--vary and --per are for --metric {' and '.join(metrics.OF_SEVERAL)}")
    if name in metrics.OF_SEVERAL and at_phase:
        raise UsageError(f"--at-phase does not go with --metric {name}: it is of all phases together")
    if output is not None:
        check_new(Path(output), instead="-o names another")
    fleet = FleetOptions.given(on, None, machines)
    if on is not None and fleet is None:
        raise UsageError(f"--on {on}: bisect makes its versions here, or on the workers of a fleet (--on dask:ADDRESS)")
    versions = _commits(suite, subject, **words) if suite is not None else _releases(str(package), subject, **words)
    with searching(fleet) as several, closing(chosen()) as progress:
        request = bisect_request.BisectRequest(
            versions, name, at_phase, wanted_model, variant, limits, every, not no_explain, vary, per, several
        )
        answer = bisect.bisect_versions(request, progress, Path(output) if output else None, talk)
    click.echo(report("tables.bisect").render(answer, answer_format(as_json)))


def _commits(suite: str, subject: Words, good: str | None, bad: str | None, path: str | None, **others: Any) -> Versions:
    from ...regressions.bisect import version_range
    from . import talk

    given = {name.replace("_", "-"): value for name, value in subject.settings.items()}
    _unused(
        {"a MODEL": subject.models, "-r": subject.runtimes, "-- PROGRAM": subject.program, **given, **others},
        "--suite",
        "the suite says it",
    )
    if good is None:
        raise UsageError("--suite takes --good REF: the older commit")
    return version_range.of_commits(Path(suite), good, bad or "HEAD", path, talk)


def _releases(
    package: str, subject: Words, first: str | None, last: str | None, pre: bool, beside: tuple[str, ...], **others: Any
) -> Versions:
    from ...regressions.bisect import version_range
    from . import talk

    _unused(others, "--package", "that is of commits")
    if first is None or last is None:
        raise UsageError("--package takes --from VERSION and --to VERSION, and a MODEL or -- PROGRAM WORD...")
    return version_range.of_releases(subject.suite(), package, first, last, pre, talk, beside)


_NAMES = {"first": "--from", "last": "--to", "beside": "--with"}


def _unused(others: dict[str, Any], option: str, reason: str) -> None:
    for name, value in others.items():
        if value not in (None, False, ()):
            word = _NAMES.get(name, name if name.startswith(("-", "a ")) else f"--{name}")
            raise UsageError(f"{word} does not go with {option}: {reason}")
