"""`memprof trace`: runs files in, a trace for Perfetto out."""

from __future__ import annotations

import click

from . import CliCommand


@click.command(cls=CliCommand, epilog="\b\nExample:\n  memprof trace runs.jsonl -o trace.json")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option("-o", "--output", required=True, metavar="FILE", help="The trace. It replaces an earlier file, but never a runs file.")
@click.option("--all-repeats", is_flag=True, help="Write all repeats.  [default: of each variant, the repeat with the median PEAK]")
def command(files: tuple[str, ...], output: str, all_repeats: bool) -> None:
    """Write runs as a trace for Perfetto: open the file in ui.perfetto.dev.

    It shows phases, iterations, memory as counters, and where the peaks are.
    """
    from . import load_runs, report, talk, write_text

    loaded = load_runs(*files)
    text = report("trace").render(loaded.runs, all_repeats=all_repeats)
    write_text(output, text)
    talk(f"{output} is written: open it in ui.perfetto.dev")
