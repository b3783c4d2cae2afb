"""`memprof merge`: the runs files of several shards or machines in, one runs file out."""

from __future__ import annotations

from pathlib import Path

import click

from ...base.units import counted
from . import CliCommand

_EPILOG = """\b
Examples:
  memprof run --suite suite.toml --shard 2/5 -o part2.jsonl
  memprof merge part*.jsonl -o runs.jsonl
"""


@click.command(cls=CliCommand, epilog=_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
@click.option("-o", "--output", required=True, metavar="RUNS.jsonl", help="Where the runs go: a new file.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def command(files: tuple[str, ...], output: str, as_json: bool) -> None:
    """Put runs files together: the parts of a suite that were measured with --shard, or by several machines.

    A run that two files hold is kept once. Different runs of the same job in two files are refused, and so are two models of one name. Each line is
    kept as it is.
    """
    import json

    from ...base import files as writing
    from ...base.errors import InputError, os_reason
    from ...records import merge
    from . import talk

    target = Path(output)
    writing.check_new(target, instead="name another file")
    try:
        with writing.replacing(target) as (file,):
            merged = merge.merge([Path(part) for part in files], file.write, talk)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {os_reason(error)}") from None
    if as_json:
        click.echo(json.dumps({"runs": merged.kept, "duplicates": merged.duplicates, "files": len(files)}))
    else:
        again = f"; {counted(merged.duplicates, 'line')} that another part has too" if merged.duplicates else ""
        click.echo(f"{counted(merged.kept, 'run')} of {counted(len(files), 'file')}{again}")
