"""`memprof doctor`: what can be measured here, and how exactly."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from . import CliCommand
from .subject import place_options, reaching, say_compiling

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ...campaign.progress import Silent
    from ...doctor.checks import Check
    from ...doctor.known_allocations import Transient
    from ...doctor.report import DoctorReport
    from .progress import ProgressBar


@click.command(cls=CliCommand, epilog="Example: memprof doctor --python ~/runtimes/bin/python")
@click.option("--python", metavar="PATH", help="The interpreter of the measured processes.  [default: memprof's own]")
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")
def command(python: str | None, on: str | None, remote_dir: str | None, as_json: bool) -> int:
    """Say what can be measured on this machine and how exactly, and what limits it.

    Measures allocations of known size for a few seconds, up to 120 MiB at once, and prints by how much each source of a peak misses them.
    """
    import msgspec

    from ...base.errors import MeasurementError
    from ...doctor.report import examine

    with reaching(on, remote_dir, python) as place, closing(_progress()) as progress:
        say_compiling(place)
        report = examine(python, progress, place)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=1))
    else:
        _print(report)
    return MeasurementError.exit_code if report.failure else 0


def _progress() -> ProgressBar | Silent:
    from ...campaign.progress import Silent
    from .progress import ProgressBar, chosen

    progress = chosen()
    return progress if isinstance(progress, ProgressBar) else Silent()  # nobody wants one line per run of these in a log


# -- for people

_STYLES = {"ok": "green", "limited": "yellow", "missing": "red", "unknown": "magenta"}
_COLUMNS = (7, 16)
_BETWEEN = " - "


def _print(report: DoctorReport) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    machine = report.machine
    facts = (f"Linux {machine.kernel}", machine.arch, machine.libc, machine.cpu)
    with console.capture() as captured:
        console.print(Text(f"{machine.name}: {', '.join(fact for fact in facts if fact)}"))
        for topic in dict.fromkeys(check.topic for check in report.checks):
            console.print(Text(f"\n{topic}", style="bold"))
            console.print(_checks([check for check in report.checks if check.topic == topic], console.width))
        if report.transients:
            _transients(report, console)
        console.print(Text(f"\n{report.verdict}", style="bold"))
    # Padding at a line's end is of no use to anyone who copies it.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=True)


def _checks(checks: list[Check], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for column in (*_COLUMNS, None):
        table.add_column(width=column)
    for check in checks:
        finding, meaning = Text(check.found), Text(check.meaning, style="dim")
        fits = len(finding) + len(_BETWEEN) + len(meaning) <= width - sum(column + 2 for column in _COLUMNS)
        table.add_row(
            Text(check.state, style=_STYLES[check.state]),
            Text(check.name),
            Text(_BETWEEN if fits else "\n").join([finding, meaning]) if check.meaning else finding,
        )
    return table


# field of Transient: heading
_SOURCES = {
    "peak_error_bytes": "memprof",
    "hwm_error_bytes": "VmHWM,\nnever reset",
    "polled_1ms_error_bytes": "polled\nat 1 ms",
    "polled_50ms_error_bytes": "polled\nat 50 ms",
}


def _transients(report: DoctorReport, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    from ...base.units import format_bytes, format_duration

    size, repeats = format_bytes(report.transients[0].bytes), max(transient.repeats for transient in report.transients)
    console.print(Text(f"\nerror of a peak in MiB: {size} touched, held and freed, the worst of {repeats}", style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for heading in ("threads", "held", "took", *_SOURCES.values()):
        table.add_column(heading, justify="right", vertical="bottom", no_wrap=True)
    for transient in report.transients:
        table.add_row(
            str(transient.threads),
            format_duration(transient.held_ns),
            format_duration(transient.took_ns),
            *(_error(transient, name) for name in _SOURCES),
        )
    console.print(table)
    console.print(Text("at 50 ms: reckoned from the samples, for the worst moment to begin polling", style="dim"))


def _error(transient: Transient, source: str) -> str:
    error = getattr(transient, source)
    return "-" if error is None else f"{error / (1 << 20):+.2f}"
