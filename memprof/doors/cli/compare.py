"""`memprof compare`: two runs files, or two variants of a single file, in; a table of differences out."""

from __future__ import annotations

import shlex
from collections.abc import Collection

import click

from . import CliCommand

_EPILOG = """\b
Examples:
  memprof compare before.jsonl after.jsonl
  memprof compare runs.jsonl --variant copied --variant mapped --all
"""


@click.command(cls=CliCommand, epilog=_EPILOG)
@click.argument("base", metavar="BASE.jsonl")
@click.argument("head", metavar="[HEAD.jsonl]", required=False)
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="With one file: the base variant, then the head variant.")
@click.option("--metric", "names", multiple=True, metavar="NAME", help="Only this metric (repeatable).")
@click.option(
    "--across-machines",
    is_flag=True,
    help="Compare although the sides come from machines of another architecture, kernel version, number of CPUs or size of memory.",
)
@click.option("--unit", metavar="UNIT", help="KiB, MiB, GiB, kB or MB for all sizes.  [default: the unit that suits each table]")
@click.option("--all", "all_rows", is_flag=True, help="Also show rows that are within noise.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, with all rows.")
def command(
    base: str,
    head: str | None,
    variants: tuple[str, ...],
    names: tuple[str, ...],
    across_machines: bool,
    unit: str | None,
    all_rows: bool,
    as_json: bool,
) -> None:
    """Compare two sets of runs: medians, difference, ratio, interval, and whether the difference is beyond noise."""
    from ...base.errors import UsageError
    from ...records import metrics
    from ...verdicts import compare
    from . import answer_format, load_runs, report

    if head is not None and variants:
        raise UsageError("--variant goes with one file; of two files the variants of one name are compared")
    sides = [load_runs(path) for path in (base, head) if path is not None]
    if head is None and len(variants) != 2:
        raise UsageError(_pair(base, dict.fromkeys(run.job.heading for run in sides[0].runs)))
    metric_names = [metrics.metric(name).name for name in names] or metrics.DEFAULT_METRICS
    if head is None:
        comparison = compare.compare_variants(sides[0].runs, variants[0], variants[1], metric_names, across_machines)
    else:
        comparison = compare.compare(sides[0].runs, sides[1].runs, metric_names, across_machines)
    click.echo(report("tables.comparison").render(comparison, all_rows=all_rows, unit=unit, format=answer_format(as_json)))


def _pair(path: str, names: Collection[str]) -> str:
    """How one file is compared, with its variants and a whole command."""
    if len(names) < 2:
        return f"{path} has one variant, {next(iter(names), 'none')}: give two files, or one file with two variants"
    pair = [word for name in (*names,)[:2] for word in ("--variant", name)]
    return f"{path} has the variants {'; '.join(names)}: name two of them, base first: {shlex.join(['memprof', 'compare', path, *pair])}"
