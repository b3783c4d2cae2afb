"""`memprof attach`: a process that already runs, or a container, polled for a while; a runs file and tables out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ...base.errors import MeasurementError, UsageError
from ...base.pairs import by_name
from ...base.units import parse_duration_ns
from ...records.types import Run
from ...subjects.settings import SETTINGS
from . import CliCommand, report
from .grow import EXIT_CODES
from .subject import RunsOptions, keep_runs, place_options, reaching, recorder_option, recording_option, refused_option, say_compiling

if TYPE_CHECKING:
    from ...campaign.progress import Keep, Progress
    from ...places.place import RecorderKind

_EPILOG = """\b
Examples:
  memprof attach 4711 --for 30s
  memprof attach "$(pidof onert_run)" --for 1min --interval 10ms -o runs.jsonl
  memprof attach --container web --for 5min -o web.jsonl
  memprof attach --cgroup /system.slice/nginx.service
  memprof attach --grow 4711 --for 1h --interval 100ms
  memprof attach --grow 4711 --for 10min --log server.log --phase-regex request='^served'

With --grow the exit code is that of memprof grow: 0 steady or bounded, 1 grows, 3 undecided.
"""


_OWN = ("phase-regex", "interval", "recorder", "name")


def _pid(context: click.Context, argument: click.Parameter, word: str | None) -> int | None:
    try:
        return None if word is None else int(word)
    except ValueError:
        raise UsageError(
            f"{word} is not the number of a process: attach polls one that already runs; memprof run measures a model, memprof exec a program"
        ) from None


def _without_subject(function: Any) -> Any:
    """The words for what memprof starts, which say here that it starts nothing."""

    def refused(option: str, is_flag: bool = False) -> Any:
        sentence = f"{option}: attach polls a process that already runs, and starts none"
        return refused_option(option, sentence=lambda _: sentence, is_flag=is_flag)

    for setting in SETTINGS:
        if setting.name not in _OWN:
            function = refused(f"--{setting.name}", setting.kind is bool)(function)
    return refused("-r")(function)


@click.command(cls=CliCommand, epilog=_EPILOG)
@click.argument("pid", required=False, callback=_pid)
@click.option(
    "--container", metavar="NAME|ID", help="All processes of a container of docker, podman or Kubernetes, and what it is charged."
)
@click.option("--cgroup", metavar="PATH", help="All processes of a control group, and what it is charged.")
@click.option("--for", "duration", default="10s", show_default=True, metavar="TIME", help="How long to poll; Ctrl-C ends it earlier.")
@click.option("--grow", is_flag=True, help="Say too whether its memory rises with time, or with its work.")
@click.option(
    "--log", metavar="FILE", help="With --grow: the file, or the FIFO, to which the process writes a line after each unit of its work."
)
@click.option(
    "--phase-regex",
    "phase_regexes",
    multiple=True,
    metavar="UNIT=REGEX",
    help="Each line that is added to the log and matches ends a unit of its work (repeatable).",
)
@click.option("--interval", default="1ms", show_default=True, metavar="TIME", help="The polling period.")
@recorder_option
@click.option("--name", metavar="NAME", help="The name in tables.  [default: that of the program, beside that of its container]")
@_without_subject
@place_options
@click.option("-o", "--output", metavar="RUNS.jsonl", help="Where the run goes.  [default: memprof-DATE-TIME.jsonl]")
@click.option("--append", is_flag=True, help="Add to an existing file.")
@recording_option
@click.option("--json", "as_json", is_flag=True, help="Print one row as JSON instead of tables.")
def command(
    pid: int | None,
    container: str | None,
    cgroup: str | None,
    duration: str,
    grow: bool,
    log: str | None,
    phase_regexes: tuple[str, ...],
    interval: str,
    recorder: RecorderKind | None,
    name: str | None,
    on: str | None,
    remote_dir: str | None,
    **kept: Any,
) -> int:
    """Poll a running process, and the processes that it starts, without touching them. There is one phase, RUN.

    Of a container or a control group all processes are polled. The figures beside them are the kernel's: the working set as kubelet counts it,
    how near the peak came to the limit, and the processes that were killed for lack of memory.
    """
    from ...campaign import attach
    from ...places import containers
    from ...programs import commands

    if [pid, container, cgroup].count(None) != 2:
        raise UsageError("attach takes one of these: the number of a process, --container NAME, --cgroup PATH")

    if (log is None) != (not phase_regexes) or (log is not None and not grow):
        raise UsageError("--log and --phase-regex go together, and with --grow: the file, and which of its lines end a unit of the work")
    with reaching(on, remote_dir) as place:
        followed = group = None
        if pid is not None:
            process = attach.running(pid, place)
        else:
            place.only_here("--container" if container is not None else "--cgroup")
            group = containers.of_container(container) if container is not None else containers.of_path(cgroup or "")
            process = attach.first_of(group)
        if log is not None:
            followed = attach.WorkLog(
                attach.log_path(log, process.pid, place), by_name(map(commands.parse_regex, phase_regexes), "--phase-regex")
            )
        say_compiling(place, recorder)
        job = attach.job(process, parse_duration_ns(duration), parse_duration_ns(interval), name)
        if group is not None and name is None:
            job = replace(job, model=replace(job.model, name=group.name))
        measured: list[Run] = []
        wanted = RunsOptions(**kept)

        def measure(progress: Progress, keep: Keep) -> Iterator[Run]:
            for run in attach.measure(job, process, progress, keep, recorder or place.recorder, place, followed, wanted.recordings, group):
                measured.append(run)
                yield run

        code = keep_runs(measure, wanted, silent=grow and wanted.as_json)
    return _growth(measured[0], log, wanted.as_json) if grow and measured and code == 0 else code


def _growth(run: Run, log: str | None, as_json: bool) -> int:
    """Print whether the memory of a polled process rises with time, or with the work that its log tells of; the exit code."""
    from ...base.thread_limits import load_numpy

    load_numpy()
    from ...records import work
    from ...records.store import unpack
    from ...verdicts import growth

    if not run.timeline.samples:
        raise MeasurementError(f"{run.job.model.name}: nothing was polled")
    if log is None:
        verdict = growth.by_time(unpack(run.timeline), run.machine.page_bytes)
    elif run.work:
        verdict = growth.judge_one(growth.series(work.unpack(run.work[0]), run.machine.page_bytes))
    else:
        raise MeasurementError(
            f"{run.job.model.name}: no two lines that were added to {log} meanwhile match --phase-regex, so that no unit was counted"
        )
    click.echo(report("tables.growth").polled(run, verdict, "json" if as_json else "text"))
    return EXIT_CODES[verdict.word]
