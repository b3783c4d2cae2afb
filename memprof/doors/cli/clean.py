"""`memprof clean`: what measuring on another machine has left there is removed."""

from __future__ import annotations

import click

from ...base.units import format_bytes
from . import CliCommand


@click.command(cls=CliCommand, epilog="Example: memprof clean --on ssh:pi@board")
@click.option("--on", metavar="PLACE", required=True, help="The machine, as for other commands.")
@click.option("--remote-dir", metavar="FOLDER", help="Memprof's folder there, if it is not the usual one.")
def command(on: str, remote_dir: str | None) -> None:
    """Remove the models, programs and sources that memprof has sent to another machine."""
    from ...places.parse import remote

    with remote(on, remote_dir) as place:
        removed = place.clean()
    click.echo(f"{format_bytes(removed)} were removed on {on}")
