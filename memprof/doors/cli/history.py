"""`memprof history`: a project's memory, commit by commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...base.errors import EXIT_OK, EXIT_REGRESSION, InputError, MeasurementError, UndecidedError, UsageError
from . import CliGroup

if TYPE_CHECKING:
    from ...versions.history_file import History

_EPILOG = """\b
Examples:
  memprof history add runs.jsonl --commit HEAD
  memprof history show
  memprof history check
  memprof history page -o site/
  memprof history prune --keep 1000
"""
_folder = click.option("--folder", default="memprof-history", show_default=True, metavar="FOLDER", help="The history.")
_metrics = click.option("--metric", "names", multiple=True, metavar="NAME", help="Only this metric (repeatable).  [default: all it has]")
_json = click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")


@click.group(cls=CliGroup, epilog=_EPILOG)
def command() -> None:
    """Keep a project's memory commit by commit, and find its steps.

    A history is a folder of small files, one per commit and machine, that are only ever added: keep it in git, on a branch, or as an artefact
    of CI. Commits stand in the order of the repository in which the command is called, else in that of their dates.
    """


@command.command("add", epilog="Example: memprof history add runs.jsonl --commit HEAD")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option("--commit", "ref", default="HEAD", show_default=True, metavar="REF", help="The commit that was measured.")
@click.option(
    "--metric", "names", multiple=True, metavar="NAME", help="Keep this metric (repeatable).  [default: the metrics that the gate compares]"
)
@_folder
@click.option("--json", "as_json", is_flag=True, help="Print the files that were added as JSON.")
def add(files: tuple[str, ...], ref: str, names: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Add what runs files hold as measurements of a commit. A run that is in the history already is not added again."""
    import json

    from ...records import metrics
    from ...versions import commits
    from ...versions import history_folder as kept
    from . import talk

    root = commits.here(Path.cwd())
    if root is None:
        raise InputError("this folder lies in no git repository: call memprof where the commit is known")
    commit = commits.named(root, ref, Path(folder))
    wanted = tuple(metrics.metric(name).name for name in names)
    written, known, warnings = kept.add(Path(folder), commit, files, wanted)
    for warning in warnings:
        talk(warning)
    for path in known:
        talk(f"{path} is there already")
    if as_json:
        click.echo(
            json.dumps({"commit": commit.hash, "added": [str(path) for path in written], "known": [str(path) for path in known]}, indent=1)
        )
    else:
        for path in written:
            click.echo(str(path))


@command.command(
    "show", short_help="Print the newest commits, and each step.", epilog="Example: memprof history show --last 30 --phase PREPARE"
)
@click.option("--last", default=20, show_default=True, type=click.IntRange(1), metavar="N", help="The newest commits in the table.")
@click.option("--phase", metavar="PHASE", help="The phase in the table.  [default: PEAK, or the last phase of a metric without it]")
@_metrics
@_folder
@_json
def show(last: int, phase: str | None, names: tuple[str, ...], folder: str, as_json: bool) -> None:
    """Print the newest commits as a table, and all steps.

    Arrows stand at the steps.
    """
    from . import answer_format, report

    history = _read(folder, names)
    metric, phase = _shown(history, names, phase)
    click.echo(report("tables.history").render(history, last, metric, phase, answer_format(as_json)))


@command.command(
    "check", short_help="Say whether the newest commit brings a step to light.", epilog="Example: memprof history check || echo worse"
)
@_metrics
@_folder
@_json
def check(names: tuple[str, ...], folder: str, as_json: bool) -> int:
    """Say whether the newest commit shows a step.

    A step is reported once: with the first commit that shows it, which need not be the commit where it lies. Exit codes: 0 no step, or one
    for the better; 1 a step for the worse; 3 nothing to compare with; 4 a variant that fails now and did not before.
    """
    from ...versions import history_file
    from ...versions import history_folder as kept
    from . import answer_format, report

    checked = history_file.check(kept.load(Path(folder)), _root(), _known(names))
    click.echo(report("tables.history").render_check(checked, answer_format(as_json)))
    if checked.worse:
        return EXIT_REGRESSION
    if checked.failing:
        return MeasurementError.exit_code
    return EXIT_OK if checked.enough else UndecidedError.exit_code


@command.command("prune", epilog="Example: memprof history prune --gone --keep 1000")
@click.option("--gone", is_flag=True, help="Remove commits that the repository has no more, after a rebase.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Remove all but the newest N commits.")
@_folder
def prune(gone: bool, keep: int | None, folder: str) -> None:
    """Remove files from a history."""
    from ...base.units import counted
    from ...versions import history_file, worktrees
    from ...versions import history_folder as kept

    if not gone and keep is None:
        raise UsageError("say what to remove: --gone, --keep N, or both")
    root = _root()
    if gone and root is None:
        raise InputError("--gone: this folder lies in no git repository, so no commit can be told to be gone")
    if gone and root is not None and worktrees.shallow(root):
        raise InputError("--gone: this clone is shallow, so commits that it lacks need not be gone; git fetch --unshallow brings them")
    loaded = kept.load(Path(folder))
    paths = history_file.surplus(loaded, root, gone, keep)
    kept.remove(paths)
    click.echo(f"{counted(len(paths), 'file')} of {len(loaded.points)} removed")


def _read(folder: str, names: tuple[str, ...]) -> History:
    from ...versions import history_file
    from ...versions import history_folder as kept

    return history_file.read(kept.load(Path(folder)), _root(), _known(names))


def _root() -> Path | None:
    from ...versions import commits

    return commits.here(Path.cwd())


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    from ...records import metrics

    return tuple(metrics.metric(name).name for name in names)


def _shown(history: History, names: tuple[str, ...], phase: str | None) -> tuple[str, str]:
    """The metric and phase of the table."""
    from ...base.errors import near_or_all
    from ...records.types import PEAK

    if not history.lines:
        raise InputError("no run of this history ended well: there is nothing to show")
    has: dict[str, list[str]] = {}
    for line in history.lines:
        has.setdefault(line.metric, []).append(line.phase)
    metric = names[0] if names else "rss_peak_bytes" if "rss_peak_bytes" in has else next(iter(has))
    phases = list(dict.fromkeys(has[metric]))
    if phase is None:
        return metric, PEAK if PEAK in phases else phases[-1]
    if phase not in phases:
        raise UsageError(f"--phase {phase}: {metric} has no such phase{near_or_all(phase, phases)}")
    return metric, phase


@command.command("page", short_help="Write the history as a static site.", epilog="Example: memprof history page -o site/")
@click.option(
    "-o", "--output", required=True, metavar="FOLDER", help="The folder of the site; index.html and badge.svg are replaced in it."
)
@click.option("--title", metavar="TEXT", help="The page's title.  [default: the repository's name]")
@click.option(
    "--commit-url",
    metavar="URL",
    help="A commit's address, {commit} for its hash.  [default: by the remote origin, if that is GitHub or GitLab]",
)
@click.option(
    "--run-url",
    metavar="URL",
    help="The address of a commit's own page, {commit} for its hash: clicks open it. A path in the site counts if the file is there.",
)
@_metrics
@_folder
def page(output: str, title: str | None, commit_url: str | None, run_url: str | None, names: tuple[str, ...], folder: str) -> None:
    """Write a page of the project's memory over time, which needs no server, and a badge with the newest peak."""
    from ...base import files
    from ...base.errors import os_reason
    from ...base.units import format_bytes
    from ...versions import commits
    from . import report, talk, write_html, write_text

    for name, url in (("--commit-url", commit_url), ("--run-url", run_url)):
        if url and (not url.startswith(("https://", "http://", "./", "../", "runs/")) or "{commit}" not in url):
            raise UsageError(f"{name} {url!r}: write an address with {{commit}} in it, such as https://example.org/commit/{{commit}}")
    site, renderer = Path(output), report("history")
    if not site.exists():
        try:
            site.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"{site} cannot be made: {os_reason(error)}") from None
    renderer.check(site / "index.html")
    files.check_target(site / "badge.svg", lambda head: renderer.BADGE in head, "a badge of memprof's")
    root = _root()
    history = _read(folder, names)
    if commit_url is None:
        commit_url = commits.web_address(root) if root is not None else ""
    with_run = None
    if run_url and "://" not in run_url:  # a page beside this one
        with_run = {commit.hash for commit in history.commits if (site / run_url.replace("{commit}", commit.hash)).is_file()}
    title = title or (root.name if root is not None else "Memory by commit")
    html = renderer.render(history, title, commit_url, run_url or "", with_run=with_run)
    size = write_html(str(site / "index.html"), html)
    write_text(str(site / "badge.svg"), renderer.badge(history))
    talk(f"{site / 'index.html'} holds the page ({format_bytes(size)})")
