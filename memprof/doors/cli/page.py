"""`memprof page`: runs files in, one HTML page out."""

from __future__ import annotations

from pathlib import Path

import click

from . import CliCommand

_OUTPUT = click.option(
    "-o", "--output", required=True, metavar="FILE.html", help="The page. It replaces an earlier page, but no other file."
)


@click.command(cls=CliCommand, epilog="Example: memprof page runs.jsonl -o report.html")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@_OUTPUT
@click.option(
    "--explain", "explained", multiple=True, metavar="FILE.json", help="A result that `memprof explain -o` kept, as a section (repeatable)."
)
def command(files: tuple[str, ...], output: str, explained: tuple[str, ...]) -> None:
    """Write a self-contained interactive page: the finding, tables, peaks, timelines, latencies, failures, conditions.

    It opens from disk and loads nothing. Several files, models and machines are shown on one page, each for itself.
    """
    from . import report, talk

    report("page").check(Path(output))
    size = write_page(files, output, explained)
    talk(f"{output} holds the page ({size})")


def write_page(files: tuple[str, ...], output: str, explained: tuple[str, ...] = ()) -> str:
    """Write the page of these runs files, say their warnings, and return the page's size for people."""
    from ...base.units import format_bytes
    from ...explain import records
    from ...plan.measured import by_model
    from . import load_runs, report, write_html

    loaded = load_runs(*files)
    explanations = [records.load(Path(path)) for path in explained]
    plans = by_model(loaded.runs)
    page = report("page").render(
        loaded.runs, warnings=loaded.warnings, sources=(*files, *explained), explanations=explanations, plans=plans
    )
    return format_bytes(write_html(output, page))
