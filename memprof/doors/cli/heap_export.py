"""`memprof heap export`: a profile in, a file for another tool out."""

from __future__ import annotations

from pathlib import Path

import click

from . import CliCommand
from .heap_files import opened, profile_options

_EPILOG = """\b
Examples:
  memprof heap export massif.out.4711 --format collapsed -o peak.txt
  memprof heap export capture.memray --format speedscope --at-phase prepare -o prepare.json
  memprof heap export heaptrack.app.zst --format massif -o app.massif
"""


@click.command(cls=CliCommand, epilog=_EPILOG)
@click.argument("file", metavar="FILE")
@profile_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["collapsed", "speedscope", "massif"]),
    required=True,
    help="collapsed stacks (flamegraph.pl, inferno); speedscope; massif (massif-visualizer, ms_print): all snapshots.",
)
@click.option("--snapshot", type=int, metavar="N", help="This snapshot; not for massif.  [default: the largest tree]")
@click.option("--at-phase", "phase", metavar="PHASE", help="The largest tree of this phase; not for massif.")
@click.option("-o", "--output", metavar="OUT", help="A new file.  [default: standard output]")
@click.option("--json", "as_json", is_flag=True, help="Print the name and size of the file as JSON.")
def command(
    file: str, value: str | None, yes: bool, form: str, snapshot: int | None, phase: str | None, output: str | None, as_json: bool
) -> None:
    """Write a profile as collapsed stacks, for speedscope, or as a massif file."""
    import json

    from ...base import files
    from ...base.errors import UsageError
    from ...heap import export, phrases
    from . import talk, write

    if form == "massif" and (snapshot is not None or phase is not None):
        raise UsageError("a massif file holds all snapshots: --snapshot and --at-phase are for the other formats")
    if as_json and output is None:
        raise UsageError("--json prints the name and size of a file: name it with -o")
    profile = opened(file, value, yes)
    if form == "massif":
        pieces = export.massif(profile)
    else:
        written_as = export.collapsed if form == "collapsed" else export.speedscope
        pieces = written_as(profile, phrases.chosen(profile, snapshot, phase))
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    path = Path(output)
    files.check_new(path, instead="it was left as it is")

    def save(draft: Path) -> None:
        with draft.open("w", encoding="utf-8", errors="backslashreplace") as out:
            out.writelines(pieces)

    write(output, save)
    if as_json:
        click.echo(json.dumps({"file": output, "format": form, "bytes": path.stat().st_size}))
    talk(f"{output} is written")
