"""`memprof attach`: a process that already runs, polled for a while; a runs file and tables out."""

from __future__ import annotations

from typing import Any

import click

from ..units import parse_duration_ns
from .measuring import keep_runs, place_options, probe_option, reaching

_EPILOG = """\b
Examples:
  memprof attach 4711 --for 30s
  memprof attach "$(pidof onert_run)" --for 1min --interval 10ms -o runs.jsonl
"""


@click.command(epilog=_EPILOG)
@click.argument("pid", type=int)
@click.option("--for", "duration", default="10s", show_default=True, metavar="TIME", help="How long to poll; Ctrl-C ends it earlier.")
@click.option("--interval", default="1ms", show_default=True, metavar="TIME", help="The polling period.")
@probe_option
@click.option("--name", metavar="NAME", help="The model's name in tables.  [default: the program's name]")
@place_options
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Where the run goes.  [default: memprof-DATE-TIME.jsonl]")
@click.option("--append", is_flag=True, help="Add to an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print one row as JSON instead of tables.")
def command(
    pid: int,
    duration: str,
    interval: str,
    probe: Any,
    name: str | None,
    on: str | None,
    remote_dir: str | None,
    output: str | None,
    append: bool,
    as_json: bool,
) -> int:
    """Poll a running process, and the processes that it starts, without touching them. There is one phase, RUN."""
    from ..measuring import attach

    with reaching(on, remote_dir) as place:
        job = attach.job(pid, parse_duration_ns(duration), parse_duration_ns(interval), name, place)
        return keep_runs(
            lambda progress, keep: attach.measure(job, pid, progress, keep, probe or place.probe, place), output, append, as_json
        )
