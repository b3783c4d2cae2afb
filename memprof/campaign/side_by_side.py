"""Several processes of one job at once, side by side: what all of them need together, and what the next one costs.

Each process has a recorder, and stands still at the end of each phase until all have come there; then all are looked at. Their shares of
anonymous and shared memory add up (Pss_Anon and Pss_Shmem of proc_pid_smaps(5)), and the page tables that the kernel keeps for each (VmPTE of
proc_pid_status(5)); the pages of files, which they have in common, count once, as many as the process with the most of them has. Their proportional
share is no measure of those: processes of others may map the same libraries. Where a control group can be made, all run in one group, whose charge is
the kernel's own sum. Its pages of files are left out: a group is charged only for those that no other process read first, so that a first run would
seem to need more than later ones.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError, MeasurementError
from ..base.leftovers import end_leftovers, new_token
from ..base.mappings import by_file, parse
from ..places import remote_groups
from ..places.cgroups import GROUP_FILES, GroupFiles, sizes_in
from ..places.place import Place, Started
from ..records.recorder_order import Message
from ..records.types import Run
from ..subjects.order import Order
from .campaign import cooled
from .conversion import converted
from .progress import Keep, Progress
from .recorder_client import ask, message

_PATIENCE_S = 600  # as long as a job may take by default
_MOST_FILES = 5
_WITHIN_S = 120
_JOIN = ("/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"')
_READ = 'for file; do cat "$file" 2>/dev/null; echo "$0"; done'
_MAKE = 'mkdir "$1" && if [ -n "$3" ]; then echo "$3" > "$1/$2"; fi && if [ -n "$4" ]; then echo 0 > "$1/$4"; fi'


class SharedFile(Struct, frozen=True):
    """A file whose pages several of the processes have in common, and how much of it."""

    path: str
    bytes: int


class PhaseSum(Struct, frozen=True):
    """All processes at the end of a phase: what they need together, and the charge of their group without pages of files, None without a group."""

    bytes: int
    charged_bytes: int | None


class Together(Struct, frozen=True):
    """What was seen of processes at once. phases: by the phase at whose end all stood still. shared: files, the largest first; only of two or more
    processes. charged_peak_bytes: the most that their group was charged at any time, None without a group."""

    runs: tuple[Run, ...]
    phases: Mapping[str, PhaseSum]
    shared: tuple[SharedFile, ...]
    charged_peak_bytes: int | None


class _Gone(Exception):
    """Another of the processes ended, so that this one waits for nothing."""


def measure(order: Order, count: int, progress: Progress, keep: Keep, limit: int | None = None) -> Together:
    """Measure `count` processes of an order at once, all on its place. Each Run is given to `keep`.

    limit: the most memory in bytes that all of them may have, if there is a control group. A process that fails ends the others: its Run says why,
    and it comes first. Raises as campaign.measure does, and InputError for a job without swap where no group can be made.
    """
    order = replace(order, job=replace(order.job, processes=count, hold=True))
    end_leftovers()
    with new_token() as token, _group(order.place, limit, order.job.no_swap) as group:
        ((ready, failed),) = converted([order], token, progress)
        if failed is not None:
            keep(failed[1])
            return Together((failed[0],), {}, (), None)
        cooled(ready, progress)
        if group is not None:
            ready = replace(ready, wrap=(*_JOIN, f"{group.folder}/cgroup.procs", *ready.wrap))
        side = _Side(ready, count, token, group, progress)
        runs = side.run()
        for run in runs:
            keep(run[1])
        peak = _number(_texts(order.place, [f"{group.folder}/{group.files.peak}"])[0]) if group is not None else None
        ordered = sorted((run for run, _ in runs), key=lambda run: run.outcome.ok)
        return Together(tuple(ordered), dict(side.sums), side.shared, peak)


class _Side:
    """The processes, each followed by a thread, and the place where they wait for one another."""

    def __init__(self, order: Order, count: int, token: str, group: _Group | None, progress: Progress) -> None:
        self._order, self._count, self._token, self._group, self._progress = order, count, token, group, progress
        self.sums: dict[str, PhaseSum] = {}
        self.shared: tuple[SharedFile, ...] = ()
        self._pids: dict[int, int] = {}
        self._phase = ""
        self._all_here = threading.Barrier(count, action=self._look)
        self._recorders: list[Started] = []
        self._results: list[tuple[Run, bytes] | None] = [None] * count
        self._errors: list[BaseException] = []

    def run(self) -> list[tuple[Run, bytes]]:
        """Their Runs, those that were ended because another had failed left out."""
        dropped: set[str] = set()
        messages = [message(self._order, dropped, self._token) for _ in range(self._count)]
        followers = [threading.Thread(target=self._follow, args=(number, text)) for number, text in enumerate(messages)]
        self._progress.started(self._order.job, 1, 1)
        for follower in followers:
            follower.start()
        try:
            for follower in followers:
                while follower.is_alive():
                    follower.join(0.2)
        except BaseException:
            self._end()
            for follower in followers:
                follower.join()
            raise
        if self._errors:
            raise self._errors[0]
        results = [result for result in self._results if result is not None]
        if not results:
            raise MeasurementError("none of the processes gave a result")
        return results

    def _follow(self, number: int, text: Message) -> None:
        try:
            result = ask(
                self._order.job,
                text,
                self._token,
                self._live,
                lambda job, phase, pid: self._held(number, phase, pid),
                began=self._recorders.append,
                place=self._order.place,
                recorder=self._order.recorder,
            )
            self._results[number] = result
            if not result[0].outcome.ok:
                self._all_here.abort()
        except _Gone:
            pass
        except BaseException as error:
            self._errors.append(error)
            self._end()

    def _live(self, phase: str, rss_bytes: int) -> None:
        self._progress.live(phase, rss_bytes)

    def _held(self, number: int, phase: str, pid: int) -> None:
        self._pids[number] = pid
        self._phase = phase
        try:
            self._all_here.wait(_PATIENCE_S)
        except threading.BrokenBarrierError:
            raise _Gone from None

    def _look(self) -> None:
        """All stand still: add them up."""
        group = self._group.counters if self._group is not None else ()
        each = [f"/proc/{pid}/{name}" for name in ("smaps_rollup", "status") for pid in self._pids.values()]
        texts = _texts(self._order.place, [*each, f"/proc/{self._pids[0]}/smaps", *group])
        mappings, *charges = texts[2 * self._count :]
        sums = [_rollup(text) for text in texts[: self._count]]
        tables = sum(sizes_in(text).get("VmPTE", 0) for text in texts[self._count : 2 * self._count])
        together = sum(own for own, _ in sums) + max(files for _, files in sums) + tables
        self.sums[self._phase] = PhaseSum(together, self._group.charged(*charges) if self._group is not None else None)
        if self._count > 1:
            self.shared = _shared_files(mappings)

    def _end(self) -> None:
        """End all recorders, and with them their children."""
        self._all_here.abort()
        for recorder in self._recorders:
            with suppress(OSError, ValueError):
                if recorder.stdin is not None:
                    recorder.stdin.close()


class _Group(Struct, frozen=True):
    folder: str
    version: int

    @property
    def files(self) -> GroupFiles:
        """The names of its files."""
        return GROUP_FILES[self.version]

    @property
    def counters(self) -> tuple[str, str]:
        """The files that tell what it is charged."""
        return f"{self.folder}/{self.files.now}", f"{self.folder}/memory.stat"

    def charged(self, now: str, stat: str) -> int | None:
        """What the group is charged by these files, in bytes, without pages of files; None where the kernel does not tell. See memory.stat in the
        kernel's documentation of control groups: both versions count shared memory among the pages of files."""
        total = _number(now)
        rows = dict(row.split()[:2] for row in stat.splitlines())
        if total is None or self.files.cached not in rows:
            return None
        return max(0, total - int(rows[self.files.cached]) + int(rows.get("shmem", 0)))


@contextmanager
def _group(place: Place, limit: int | None, no_swap: bool = False) -> Iterator[_Group | None]:
    """A control group there for all, None where none can be made. It is removed when the block ends. no_swap: it keeps its processes out of swap.
    Raises InputError if that is wanted and there is no group."""
    made = remote_groups.common(place)
    if made is None:
        if no_swap:
            raise _no_group(place)
        yield None
        return
    group = _Group(*made)
    try:
        settings = group.files.limit, "" if limit is None else str(limit), group.files.swap if no_swap else ""
        is_made = place.run(["sh", "-c", _MAKE, "memprof", group.folder, *settings], _WITHIN_S).returncode == 0
        if no_swap and not is_made:
            raise _no_group(place)
        yield group if is_made else None
    finally:
        with suppress(InputError):  # the way there broke: the next memprof that makes groups there removes it
            remote_groups.remove(place, group.folder)


def _no_group(place: Place) -> InputError:
    return InputError(f"--no-swap needs a control group for all processes together, and none can be made on {place.name}")


def _texts(place: Place, paths: Sequence[str]) -> list[str]:
    """The texts of files there, empty for one that is not there: the files of a process that has just ended."""
    mark = f"memprof-{secrets.token_hex(8)}"
    done = place.run(["sh", "-c", _READ, mark, *paths], _WITHIN_S)
    return done.stdout.decode("utf-8", "replace").split(f"{mark}\n")[: len(paths)]


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _rollup(text: str) -> tuple[int, int]:
    """A process's share of memory without a file, and its resident pages of files, in bytes, from its smaps_rollup; 0 for one that has ended."""
    sizes = sizes_in(text)
    files = sizes.get("Rss", 0) - sizes.get("Anonymous", 0)
    if "Pss_Anon" not in sizes:  # before 5.4
        return sizes.get("Anonymous", 0), files
    return sizes["Pss_Anon"] + sizes.get("Pss_Shmem", 0), files - (sizes.get("Pss_Shmem", 0))


def _shared_files(text: str) -> tuple[SharedFile, ...]:
    """The files of which a process has the most pages in common with others, from its smaps."""
    sizes = by_file(parse(text), lambda each: each.shared_clean + each.shared_dirty)
    largest: Sequence[tuple[str, int]] = sorted(sizes.items(), key=lambda pair: -pair[1])
    return tuple(SharedFile(path, size) for path, size in largest[:_MOST_FILES] if size)
