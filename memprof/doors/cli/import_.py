"""`memprof import`: logs of other tools in, a runs file and tables out."""

from __future__ import annotations

from pathlib import Path

import click

from . import CliCommand

_EPILOG = """\b
Examples:
  memprof import master=master.log option1=option1.log -o runs.jsonl
  memprof import mprofile_*.dat --name train.py -o runs.jsonl
  memprof import nnpackage_run-net-cpu.csv --append -o runs.jsonl

It reads the output of onert_run, nnpackage_run and benchmark_model, onert's CSV, onnxruntime's profile, mprof's .dat,
psrecord's log, dumpsys meminfo, llama.cpp's memory breakdown, and copies of /proc/PID/status and smaps.
"""


@click.command("import", cls=CliCommand, epilog=_EPILOG)
@click.argument("files", nargs=-1, required=True, metavar="[NAME=]FILE...")
@click.option("--name", metavar="NAME", help="The model's name.  [default: the name in the log]")
@click.option("--machine", metavar="NAME", help="The machine's name.  [default: imported]")
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Where the runs go.  [default: memprof-DATE-TIME.jsonl]")
@click.option("--append", is_flag=True, help="Add to an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables: one row per run and phase.")
def command(files: tuple[str, ...], name: str | None, machine: str | None, output: str | None, append: bool, as_json: bool) -> None:
    """Turn logs that other tools have written into runs, for every table, picture and comparison.

    NAME is the variant, which is the row in tables. Without it, the file's name is taken. A figure that a log lacks is shown as -.
    """
    from ...campaign.runs_writer import keeping
    from ...recording import importing
    from ...records import store
    from . import answer_format, report, talk
    from .subject import unused_path

    runs = importing.runs([importing.words(text) for text in files], name=name, machine=machine)
    with keeping(Path(output) if output else unused_path(), talk, append=append) as keep:
        for run in runs:
            keep(store.encode(run))
        click.echo(report("tables.table").render(runs, format=answer_format(as_json)))
