"""`memprof table`: runs files in, tables out."""

from __future__ import annotations

import click

from ..metrics import METRICS


@click.command(epilog="Example: memprof table runs.jsonl --metric rss_peak_bytes --metric time_ns")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option("--metric", "names", multiple=True, metavar="NAME", help=f"Only this metric (repeatable). One of {', '.join(METRICS)}.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "csv", "json"]),
    default="markdown",
    show_default=True,
    help="csv and json have one row a run and phase.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--above-baseline", is_flag=True, help="Show memory above what the runtime takes with no model loaded.")
def command(files: tuple[str, ...], names: tuple[str, ...], form: str, as_json: bool, above_baseline: bool) -> None:
    """Print tables from runs files: medians over repeats, one table a metric, a row a variant, a column a phase."""
    from .. import metrics, store
    from . import report

    for name in names:
        metrics.metric(name)
    loaded = store.load(files)
    for warning in loaded.warnings:
        click.echo(f"memprof: {warning}", err=True)
    click.echo(report("table").render(loaded.runs, names, format="json" if as_json else form, above_baseline=above_baseline))
