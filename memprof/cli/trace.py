"""`memprof trace`: runs files in, a trace for Perfetto out."""

from __future__ import annotations

import click


@click.command(epilog="Example: memprof trace runs.jsonl -o trace.json, then open trace.json in ui.perfetto.dev")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option("-o", "--output", required=True, metavar="FILE", help="The trace. It replaces an earlier trace, but never a runs file.")
@click.option("--all-repeats", is_flag=True, help="All repeats.  [default: of each variant the one with the median PEAK]")
def command(files: tuple[str, ...], output: str, all_repeats: bool) -> None:
    """Write runs as a trace that Perfetto opens: phases, iterations, memory as counters, and the places of the peaks."""
    from . import load_runs, report, talk, write_text

    loaded = load_runs(*files)
    text = report("trace").render(loaded.runs, all_repeats=all_repeats)
    write_text(output, text)
    talk(f"{output} is written: open it in ui.perfetto.dev")
