"""`memprof run` on a fleet, and `memprof fleet`, which shows one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import EXIT_OK, MeasurementError, UsageError
from ...base.units import counted
from . import CliCommand
from .subject import RunsOptions, unused_path

if TYPE_CHECKING:
    from ...campaign.fleet.search_client import Machines
    from ...campaign.progress import Keep, Progress
    from ...records.types import Run
    from ...subjects.suite import Suite

_SHOWN = 2000  # runs whose tables are printed; the file has those of a larger campaign


class FleetOptions(Struct, frozen=True):
    """The options for a fleet, as they were written."""

    address: str
    machines: str | None = None
    each: str | None = None
    spread: bool = False

    @classmethod
    def given(cls, on: str | None, remote_dir: str | None, *options: Any) -> FleetOptions | None:
        """The fleet of --on with its options, None if that names none. Raises UsageError for options that go with the other kind of place."""
        from ...places.names import meant

        kind, _, address = meant(on).on.partition(":") if on is not None else ("", "", "")
        if kind != "dask":
            if any(options):
                raise UsageError("options for a fleet (--machines, and of run --each, --spread) go with --on dask:ADDRESS")
            return None
        if remote_dir is not None:
            raise UsageError("--remote-dir does not go with a fleet: its workers choose the folders")
        return cls(address, *options)

    @property
    def labels(self) -> frozenset[tuple[str, str]]:
        """Those that each machine must have. Raises UsageError."""
        from ...campaign.fleet.payload import parse_labels

        return frozenset(parse_labels(self.machines, "--machines").items()) if self.machines else frozenset()


@contextmanager
def searching(fleet: FleetOptions | None) -> Iterator[Machines | None]:
    """The machines of a fleet for a search, None for none."""
    if fleet is None:
        yield None
        return
    from ...campaign.fleet import scheduler, search_client
    from . import talk

    load_distributed()
    labels = fleet.labels
    with scheduler.connected(fleet.address, talk) as client:
        yield search_client.Machines(client, labels).pinned()


def load_distributed() -> None:
    """Raises InputError if Dask is not installed, or cannot read its configuration."""
    from ...base.errors import InputError

    try:
        import distributed  # noqa: F401
    except ImportError:
        raise InputError("a fleet needs Dask: pip install 'ml-memprof[fleet]'") from None
    except ValueError as error:  # of a file of its configuration
        raise InputError(" ".join(str(error).split())) from None


def measure_on_fleet(suite: Suite, fleet: FleetOptions, options: RunsOptions) -> int:
    """Measure a suite on a fleet, write its runs as they come and print their tables; the exit code. Raises UsageError for an option that a fleet
    does not heed."""
    from ...campaign.fleet import payload, scheduler
    from ...campaign.fleet.scheduler_client import SchedulerClient, comparisons_in
    from . import talk
    from .progress import showing_output
    from .subject import keep_runs

    if options.keep_recording:
        raise UsageError("--keep-recording does not go with a fleet: its workers send runs and no recordings; --on ssh:BOARD keeps them")
    load_distributed()
    wanted = payload.MachineChoice(fleet.labels, fleet.each, fleet.spread)
    output = options.output or str(unused_path())
    earlier = comparisons_in(Path(output), talk) if options.append and Path(output).exists() else {}
    failed: list[str] = []
    with scheduler.connected(fleet.address, talk) as client:
        there, sentences = scheduler.places(client)
        for sentence in sentences:
            talk(sentence)
        packed = payload.packed(suite, wanted, [dict(place.offered.labels) for place in there])

        def measure(progress: Progress, keep: Keep) -> Iterator[Run]:
            campaign = SchedulerClient(client, packed, progress, showing_output(keep, progress) if options.verbose else keep, earlier)
            try:
                yield from slim(campaign.runs())
            finally:
                failed.extend(campaign.failed.values())

        code = keep_runs(measure, replace(options, output=output))
    if failed and code == 0:
        were = "was" if len(failed) == 1 else "were"
        raise MeasurementError(f"{len(failed)} of {counted(len(packed), 'comparison')} {were} given up: {failed[0]}")
    return code


def slim(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs without their timelines, which tables do not need: the desk of a large campaign would fill its memory with them. Of a campaign
    of more runs than can be looked at in a table, only the first are handed on, and the first that failed; the file has all."""
    from ...records.store import NOTHING_SEEN
    from . import talk

    failed = 0
    for number, run in enumerate(runs, 1):
        failed += not run.outcome.ok
        if number <= _SHOWN or (not run.outcome.ok and failed <= _SHOWN):
            yield replace(run, timeline=NOTHING_SEEN)
        if number == _SHOWN + 1:
            talk(f"the tables at the end are of the first {_SHOWN} runs; `memprof table` shows those of the file")


@click.command("fleet", cls=CliCommand, epilog="Example: memprof fleet tcp://127.0.0.1:8786 --watch")
@click.argument("scheduler", metavar="ADDRESS")
@click.option("--watch", is_flag=True, help="Look again every few seconds, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table; with --watch, a line each time.")
def command(scheduler: str, watch: bool, as_json: bool) -> int:
    """Show a fleet: its machines, the work of each, and the queue."""
    from ...campaign.fleet import monitor
    from ...campaign.fleet.scheduler import connected
    from . import answer_format, report, talk

    load_distributed()
    form = "lines" if watch and as_json else answer_format(as_json)
    with connected(scheduler, talk) as client, _shown_on(watch and not as_json) as show:
        for fleet in monitor.look(client, scheduler):
            show(report("tables.fleet").render(fleet, format=form))
            if not watch:
                break
    return EXIT_OK


@contextmanager
def _shown_on(redraws: bool) -> Iterator[Callable[[str], None]]:
    """What shows a text: in the place of the one before, if that is wanted and standard output is a terminal, which is not scrolled then; else
    below it."""
    if not (redraws and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"):
        yield click.echo
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False) as live:
        yield lambda text: live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
