"""`memprof worker`: this machine, or boards beside it, for a fleet."""

from __future__ import annotations

import click

from . import CliCommand

_EPILOG = """\b
Examples:
  memprof worker tcp://127.0.0.1:8786
  memprof worker tls://lab:8786 --offer ssh:pi@board1 --offer adb:SERIAL --labels kind=pi5

A worker runs what the clients of its scheduler send.
"""


@click.command(cls=CliCommand, epilog=_EPILOG)
@click.argument("scheduler", metavar="ADDRESS")
@click.option(
    "--offer", "offers", multiple=True, metavar="PLACE", help="A machine to offer, as for --on (repeatable).  [default: here, this one]"
)
@click.option("--labels", metavar="LABEL=VALUE,...", help="Words by which `--machines` chooses. arch, host, machine and place are there.")
@click.option("--python", metavar="PATH", help="The interpreter on the boards that has the runtimes.")
@click.option("--remote-dir", metavar="FOLDER", help="Memprof's folder on the boards.")
def command(
    scheduler: str,
    offers: tuple[str, ...],
    labels: str | None,
    python: str | None,
    remote_dir: str | None,
) -> int:
    """Offer machines to the fleet of the Dask scheduler at ADDRESS, until it is ended.

    Each machine measures one comparison at a time. Nothing but the recorder and what it measures runs on a board.
    """
    from ...base.errors import EXIT_OK, UsageError
    from ...campaign.fleet import worker
    from ...campaign.fleet.payload import parse_labels
    from . import talk
    from .fleet import load_distributed

    load_distributed()
    given = parse_labels(labels, "--labels") if labels else {}
    named = offers or ("here",)
    if len(set(named)) < len(named):
        raise UsageError("--offer names a machine twice, and it can measure one comparison at a time")
    try:
        if len(named) > 1:
            options = {"--labels": labels, "--python": python, "--remote-dir": remote_dir}
            worker.serve_each(named, [scheduler, *(word for name, value in options.items() if value is not None for word in (name, value))])
        worker.serve(scheduler, named[0], remote_dir, python, given, talk)
    except KeyboardInterrupt:
        talk(f"no longer offered: {', '.join(named)}")
    return EXIT_OK
