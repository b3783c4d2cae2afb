"""`memprof card`: runs files in, what a model card shows out."""

from __future__ import annotations

import click

from . import CliCommand


@click.command(cls=CliCommand, epilog="\b\nExample:\n  memprof card runs.jsonl > memory.md")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option("-o", "--output", metavar="FILE", help="The file to write.  [default: standard output]")
def command(files: tuple[str, ...], output: str | None) -> None:
    """Print what a model card shows of memory: the peak of each phase, the device, the versions and the exact command.

    YAML front matter has it for machines, a table in Markdown for people.
    """
    from . import load_runs, report, write_text

    text = report("tables.card").render(load_runs(*files).runs)
    if output is None:
        click.echo(text)
    else:
        write_text(output, text)
