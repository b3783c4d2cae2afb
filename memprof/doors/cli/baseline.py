"""`memprof baseline`: the file that a gate compares with."""

from __future__ import annotations

from pathlib import Path

import click

from . import CliGroup

_EPILOG = """\b
Examples:
  memprof baseline update runs.jsonl -o baseline.json
  memprof baseline update runs.jsonl -o baseline.json --metric rss_peak_bytes --metric time_ns
"""


@click.group(
    "baseline",
    cls=CliGroup,
    epilog="Example: memprof baseline update runs.jsonl -o baseline.json",
    short_help="Keep the samples that a gate compares with.",
)
def command() -> None:
    """Keep the samples that a gate compares with: a small file to commit, with a row per line."""


@command.command("update", epilog=_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option("-o", "--output", required=True, metavar="BASELINE.json", help="The baseline. Variants that the runs lack stay in it.")
@click.option(
    "--metric", "names", multiple=True, metavar="NAME", help="Keep this metric (repeatable).  [default: the metrics that the gate compares]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the rows that changed as JSON.")
def update(files: tuple[str, ...], output: str, names: tuple[str, ...], as_json: bool) -> None:
    """Write or update a baseline, and say which medians changed.

    The baseline keeps the samples of each row, with the machine and the versions that they come from.
    """
    from ...base.errors import UsageError
    from ...base.units import counted
    from ...records import metrics
    from ...verdicts import baseline
    from . import answer_format, report, talk

    metric_names = tuple(metrics.metric(name).name for name in names) or baseline.DEFAULT_METRICS
    side = baseline.load(files, metric_names)
    if not side.from_runs:
        raise UsageError(f"{files[0]} is a baseline itself: name runs files")
    updated = baseline.update(Path(output), side.entries)
    for warning in side.warnings:
        talk(warning)
    for entry in updated.kept:
        talk(f"{entry.label}: not in these runs, left as it was")
    click.echo(report("tables.gate").render_update(updated, answer_format(as_json)))
    talk(f"{output} is written: {counted(len(side.entries), 'variant')}")
