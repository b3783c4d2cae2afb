"""`memprof table`: runs files in, tables out."""

from __future__ import annotations

from typing import Any

import click

from ...records.metrics import METRICS
from . import CliCommand

_EPILOG = """\b
Examples:
  memprof table runs.jsonl --metric rss_peak_bytes --metric time_ns
  memprof table runs.jsonl --style threads --stat min
  memprof table runs.jsonl --style swap --window execute
  memprof table runs.jsonl --style load
  memprof table runs.jsonl --format parquet -o runs.parquet
"""


@click.command(cls=CliCommand, epilog=_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option(
    "--style",
    type=click.Choice(["phases", "models", "threads", "swap", "load"]),
    default="phases",
    show_default=True,
    help="The form of the tables. phases: a column per phase. models: a row per model, a column per variant. threads: a column per thread count. "
    "swap: MIN, AVR and MAX of the whole run, a column per variant. load: memory, load time and prepare time.",
)
@click.option("--metric", "names", multiple=True, metavar="NAME", help=f"Only this metric (repeatable). One of {', '.join(METRICS)}.")
@click.option(
    "--window",
    metavar="WINDOW",
    help="For the style swap: a phase (execute), a span of time (2s..10s), or from a phase or value on (prepare..).  [default: all but STARTUP]",
)
@click.option("--phase", metavar="NAME", help="For the styles models and threads.  [default: PEAK for RSS peaks, else EXECUTE]")
@click.option(
    "--stat",
    type=click.Choice(["min", "mean", "median", "max", "geomean", "p90"]),
    default="median",
    show_default=True,
    help="The statistic over the repeats that a cell shows.",
)
@click.option("--unit", metavar="UNIT", help="KiB, MiB, GiB, kB or MB for all sizes.  [default: the unit that suits each table]")
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "html", "csv", "json", "parquet"]),
    help="csv, json and parquet have one row per run and phase.  [default: markdown]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--above-baseline",
    is_flag=True,
    help="Show memory above the baseline: the runtime with no model loaded, or a program before its phases.",
)
@click.option("-o", "--output", metavar="FILE", help="Write there instead of to standard output; needed for parquet.")
def command(files: tuple[str, ...], names: tuple[str, ...], form: str | None, as_json: bool, output: str | None, **words: Any) -> None:
    """Print tables from runs files: medians over repeats.

    There is one table per metric, with a row per variant and a column per phase. --style chooses other tables.
    """
    from ...records import metrics
    from . import answer_format, load_runs, report, write, write_text

    for name in names:
        metrics.metric(name)
    loaded = load_runs(*files)
    form = answer_format(as_json) if as_json or (form is None and output is None) else form or "markdown"
    if form == "parquet":
        write(output, lambda path: report("frame").write_parquet(loaded.runs, path))
        return
    text = report("tables.table").render(loaded.runs, names, format=form, **words)
    if output is None:
        click.echo(text)
    else:
        write_text(output, text)
