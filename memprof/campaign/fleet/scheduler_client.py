"""The desk: the comparisons of a campaign are tasks of Dask's scheduler, and every Run comes back as soon as it exists.

Dask queues the tasks, gives each to a machine that offers what it asks for, and gives it to another when that machine is lost. The desk keeps what
Dask cannot know: a Run counts once, a comparison never mixes machines, and what one machine refuses is tried on another. A desk that ends, however
it ends, leaves nothing running: the scheduler releases its tasks, and the workers stop what they measure.

Of two comparisons that wait for a machine, Dask begins the one with the higher priority. The first comparison of each desk has the highest, its
longest one, because what begins last decides when all end (Graham 1969). So a desk that joins later goes first until it has had as many.
"""

from __future__ import annotations

import asyncio
import pickle
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ...base.errors import InputError
from ...base.units import counted
from ...records import attempts, store
from ...records.types import Attempt, Machine, Run
from ..progress import Keep, Progress
from . import message, monitor, worker
from .message import ComparisonTask, Event, Labels, Result
from .monitor import Waiting
from .scheduler import AWAY, FleetPlace, described, offered_words, places

_LOOK_S = 1.0  # between two looks at which machines are there
_ABSENT_S = 300.0  # how long all machines may be away that a campaign needs
_PIECE = 8 << 20
MOST_FAILURES = 3  # of a comparison, after which it is given up, and of a place in a row, after which it gets nothing more


class _Open(Struct):
    """A comparison that is not done. rank: its place among all, the first begins first. attempt: the number of the last that began.

    future: of its Dask task. workers: the addresses of those that Dask may give it to, None for all that offer what it asks for. place: where it is
    measured now. arrived: which Runs of that are here, of so many in its plan. failures: the names of places, and the reasons. refused_by: addresses.
    """

    comparison: ComparisonTask
    rank: int
    attempt: int = 0
    future: Any = None
    workers: tuple[str, ...] | None = None
    place: FleetPlace | None = None
    plan: int = 0
    arrived: set[str] = field(default_factory=set)
    failures: list[tuple[str, str]] = field(default_factory=list)
    refused_by: set[str] = field(default_factory=set)


class _Call:
    """A call of a function, which is made where this is unpickled. A scheduler unpickles the functions of tasks, but no bytes: so it needs no
    memprof."""

    def __init__(self, function: Callable[..., None], *words: object) -> None:
        self._call = function, words

    def __reduce__(self) -> tuple[Callable[..., None], tuple[object, ...]]:
        return self._call


class SchedulerClient(Struct):
    """A campaign. See `runs`. earlier: what an existing runs file holds, see `comparisons_in`. stop: asked every second whether the rest is wanted no
    more. failed: a sentence for each comparison that was given up, by its key. outputs: by the same, what a search had sent. unmade: by the same, why
    commits cannot be built, by their labels. kind: the labels of the only kind of machine that may be used, None for all that fit.
    """

    client: Any
    comparisons: Sequence[ComparisonTask]
    progress: Progress
    keep: Keep
    earlier: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    stop: Callable[[], bool] = lambda: False
    failed: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, bytes] = field(default_factory=dict)
    unmade: dict[str, Mapping[str, str]] = field(default_factory=dict)
    kind: Labels | None = None
    _name: str = field(default_factory=lambda: f"memprof-{secrets.token_hex(4)}")
    _news: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _open: dict[str, _Open] = field(default_factory=dict)  # by the comparison's key
    _there: dict[str, FleetPlace] = field(default_factory=dict)  # by the worker's address
    _in_a_row: Counter[str] = field(default_factory=Counter)  # refusals by the same
    _sentences: set[str] = field(default_factory=set)  # about places: each is printed once
    _began: bool = False
    _stands_still_s: float | None = None  # since when no place fits the queue
    _wanted: int = 0  # Runs of all comparisons
    _kept: int = 0  # Runs that came, without those of attempts that were lost

    def runs(self) -> Iterator[Run]:
        """Measure all comparisons; each Run is given to `keep` as a line of a runs file, and yielded.

        Raises InputError if the scheduler is lost, or if no place fits. What was measured until then is kept.
        """
        from distributed import Queue

        self._take()
        events = Queue(self._name, client=self.client)
        listening = asyncio.run_coroutine_threadsafe(self._listen(events), self.client.loop.asyncio_loop)
        try:
            look_s = time.monotonic()
            while self._open:
                if time.monotonic() >= look_s:
                    if self.stop():
                        return
                    self._look()
                    look_s = time.monotonic() + _LOOK_S
                with suppress(queue.Empty):
                    yield from self._heard(self._news.get(timeout=max(0.0, look_s - time.monotonic())))
        finally:
            futures = [one.future for one in self._open.values() if one.future is not None]
            self._open.clear()  # what sends files looks there
            listening.cancel()
            for desk in {one.desk for one in self.comparisons}:
                monitor.tell(self.client, desk, None)
            with suppress(Exception):  # the scheduler may be gone
                self.client.cancel(futures, force=True)

    def _take(self) -> None:
        """All comparisons but those that are in the file."""
        complete = {key for key, (_, complete) in self.earlier.items() if complete}
        left = [one for one in self.comparisons if one.key not in complete]
        for rank, comparison in enumerate(sorted(left, key=lambda one: -one.cost)):
            number, _ = self.earlier.get(comparison.key, (0, False))
            self._open[comparison.key] = _Open(comparison, rank, number, plan=comparison.runs)
        self._wanted = sum(one.runs for one in left)
        if done := len(self.comparisons) - len(left):
            self.progress.say(
                f"{counted(done, 'comparison')} of {len(self.comparisons)} {'is' if done == 1 else 'are'} in the file already"
            )

    async def _listen(self, events: Any) -> None:
        """Hand on what workers say, in its order."""
        try:
            while True:
                for data in (await events.get(), *await events.get(batch=True)):
                    self._news.put(pickle.loads(data))
        except AWAY as error:
            self._news.put(error)

    # -- who is there

    def _look(self) -> None:
        """See which machines are there, and have Dask know which it may give each comparison to."""
        with suppress(InputError):  # who listens notices if that lasts
            there, sentences = places(self.client)
            if not there and self.client.status != "running":
                return  # a client that lost its scheduler tells of no worker
            self._there = {place.address: place for place in there if self.kind in (None, place.offered.labels_of_kind)}
            for sentence in sentences:
                self._say_once(sentence)
        for one in [one for one in self._open.values() if one.place is not None and one.place.address not in self._there]:
            self._fail(one, "it vanished", submits=False)
        self._check_that_it_goes_on()
        for one in self._open.values():
            if one.place is None and (one.future is None or one.workers != self._workers_for(one)):
                self._submit(one)
        self._tell_counts()

    def _tell_counts(self) -> None:
        if self._open:
            last = next(reversed(self._open.values()))
            running = sum(one.place is not None for one in self._open.values())
            counts = running, len(self._open) - running, len(self.comparisons) - len(self._open)
            monitor.tell(self.client, last.comparison.desk, Waiting(last.comparison.desk, *counts, last.future.key if last.future else ""))

    def _usable(self, needs: Labels) -> list[str]:
        """The addresses of places with these labels, but for those that failed too often."""
        fitting = sorted(address for address, place in self._there.items() if needs <= place.offered.labels.items())
        return [address for address in fitting if self._in_a_row[address] < MOST_FAILURES]

    def _workers_for(self, one: _Open) -> tuple[str, ...] | None:
        """The workers that Dask may give a comparison to: None for all that offer what it asks for, none while all of these failed too often."""
        part = one.comparison.part
        if part is None and not one.refused_by and max(self._in_a_row.values(), default=0) < MOST_FAILURES:
            return None
        usable = self._usable(one.comparison.needs)
        others = [address for address in usable if address not in one.refused_by] or usable
        if part is None or not others:
            return tuple(others)
        own = [address for address in one.workers or () if address in others]
        return (own[0] if own else others[part % len(others)],)

    def _check_that_it_goes_on(self) -> None:
        """Raises InputError if nothing runs and no place fits the queue. A lost place may come back: its worker tries that."""
        unmatched = [needs for needs in {one.comparison.needs for one in self._open.values()} if not self._usable(needs)]
        if not unmatched or any(one.place for one in self._open.values()):
            self._stands_still_s = None
            return
        self._stands_still_s = self._stands_still_s or time.monotonic()
        named = "; ".join(described(needs) for needs in unmatched if needs)
        none = f"no place of the fleet has {named}" if named else "the fleet has no place"
        words = offered_words([*self._there.values()])
        failing = {place.name for place in self._there.values() for needs in unmatched if needs <= place.offered.labels.items()}
        if failing:
            raise InputError(f"{', '.join(sorted(failing))} failed too often, and no other place fits the rest of the queue: {words}")
        if not self._began:
            raise InputError(f"{none}: {words}")
        if time.monotonic() - self._stands_still_s > _ABSENT_S:
            raise InputError(f"{none} any more, for {_ABSENT_S:.0f} s: {words}")
        self._say_once(f"{none} any more: what needs it waits")

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._sentences:
            self._sentences.add(sentence)
            self.progress.say(sentence)

    # -- comparisons

    def _submit(self, one: _Open) -> None:
        """Give a comparison to Dask, in place of what Dask had of it."""
        self._withdraw(one)
        one.workers = self._workers_for(one)
        if one.workers == ():
            return
        key = f"{self._name}-{one.comparison.key}-{secrets.token_hex(4)}"
        one.future = self.client.submit(
            pickle.loads,
            pickle.dumps(_Call(worker.measure, one.comparison, key, self._name)),
            key=key,
            workers=one.workers and [*one.workers],
            resources=message.resources(one.comparison.needs, self.kind),
            priority=-one.rank,
            pure=False,
        )
        one.future.add_done_callback(self._news.put)

    def _withdraw(self, one: _Open) -> None:
        """Take a comparison back from Dask."""
        if one.future is not None:
            with suppress(Exception):
                self.client.cancel([one.future], force=True)
        one.future = one.place = None

    def _heard(self, news: Any) -> Iterator[Run]:
        """Take an Event, a future that is done, or an error."""
        if isinstance(news, BaseException):
            raise _scheduler_lost(news)
        if not isinstance(news, Event):
            self._ended(news)
            return
        one = self._open.get(news.comparison)
        if one is None or one.future is None or one.future.key != news.task:
            return  # of a task that was taken back
        if news.begins:
            self._begin(one, news.address)
        if one.place is None or one.place.address != news.address:
            return  # of a worker that Dask has lost
        if news.plan:
            self._wanted += news.plan - one.plan
            one.plan = news.plan
        if news.remark:
            self._say_once(f"{one.place.name}: {news.remark}")
        if news.outputs:
            self.outputs[news.comparison] = news.outputs
        if news.needs:
            threading.Thread(target=self._send, args=(one.comparison, news), daemon=True).start()
        if news.run:
            yield from self._arrived(one, one.place, news.run)
        if news.end is not None:
            self._settle(one, one.place, news.end)

    def _begin(self, one: _Open, address: str) -> None:
        """A worker begins. If another had begun, Dask has lost that one."""
        if one.place is not None:
            self._fail(one, "it vanished", submits=False)
        if one.comparison.key not in self._open:
            return  # that was once too often
        if address not in self._there:
            self._look()
        if address in self._there:  # else it is gone again
            one.place, self._began = self._there[address], True
            one.attempt += 1

    def _arrived(self, one: _Open, place: FleetPlace, line: bytes) -> Iterator[Run]:
        run = store.decode(line, f"a run of {place.name}")
        identity = attempts.identity(run)
        if identity in one.arrived:
            return
        one.arrived.add(identity)
        attempt = Attempt(one.comparison.key, one.attempt, one.plan, place.name, place.offered.labels, one.comparison.kind)
        run = replace(run, attempt=attempt, machine=self._told_apart(run, place))
        self._kept += 1
        self.progress.started(run.job, self._kept, self._wanted)
        try:
            self.keep(store.encode(run))
        finally:
            self.progress.finished(run)
        yield run

    def _told_apart(self, run: Run, place: FleetPlace) -> Machine:
        """The Run's machine. Two machines of one name are two machines all the same."""
        others = [other for other in self._there.values() if other.address != place.address and other.offered.machine == run.machine.name]
        return replace(run.machine, name=f"{run.machine.name} ({place.name})") if others else run.machine

    def _ended(self, future: Any) -> None:
        """Dask is done with a task. Of one that ended well its last event tells all, also if Dask has lost the result since then."""
        from distributed import KilledWorker

        one = next((one for one in self._open.values() if one.future is future), None)
        if one is None or future.status not in ("error", "cancelled"):
            return
        if future.status == "cancelled":
            raise _scheduler_lost(CancelledError())
        error = future.exception()
        if not isinstance(error, KilledWorker):
            self._refused(one, f"its worker failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        elif one.place is not None:
            self._fail(one, "it vanished")
        else:
            self._submit(one)  # it waited at each worker that died, and was begun at none

    def _settle(self, one: _Open, place: FleetPlace, result: Result) -> None:
        """An attempt ended by itself."""
        title, why = one.comparison.title, f"{place.name}: {result.why}"
        if result.how is None and len(one.arrived) == one.plan:
            self._in_a_row[place.address] = 0
            self._close(one)
        elif result.how == "unmade":
            self.unmade[one.comparison.key] = {label: f"{place.name}: {why}" for label, why in result.unmade.items()}
            self._give_up(one, why)
        elif result.how == "usage":
            self._give_up(one, f"{title} failed on {place.name} and is given up: {why}")
        else:
            self._refused(one, result.why or f"{len(one.arrived)} of {counted(one.plan, 'run')} came back")

    def _refused(self, one: _Open, why: str) -> None:
        """An attempt failed, for which its place is to blame."""
        place = one.place
        if place is not None:
            one.refused_by.add(place.address)
            self._in_a_row[place.address] += 1
        self._fail(one, why)
        if place is not None and self._in_a_row[place.address] == MOST_FAILURES:
            self._say_once(f"{place.name} failed three times in a row and gets nothing more")

    def _fail(self, one: _Open, why: str, submits: bool = True) -> None:
        """An attempt is lost; its comparison begins again, whole, or is given up. submits: not if Dask gives its task away by itself."""
        title, count, place = one.comparison.title, len(one.arrived), one.place.name if one.place else "a worker"
        one.failures.append((place, why))
        if len(one.failures) < MOST_FAILURES:
            stays = f"; its {counted(count, 'run')} {'stays' if count == 1 else 'stay'} aside" if count else ""
            self.progress.say(f"{title} begins again elsewhere, whole: {place}: {why}{stays}")
            self._put_aside(one)
            if submits:
                self._submit(one)
        else:
            machines = {name for name, _ in one.failures}
            where = counted(len(machines), "machine") if len(machines) > 1 else place
            reasons = dict.fromkeys(f"{name}: {why}" for name, why in one.failures)
            self._give_up(one, f"{title} failed {len(one.failures)} times, on {where} and is given up: {'; '.join(reasons)}")

    def _give_up(self, one: _Open, sentence: str) -> None:
        self._put_aside(one)
        self.failed[one.comparison.key] = sentence
        self.progress.say(sentence)
        self._close(one)

    def _put_aside(self, one: _Open) -> None:
        """Count the Runs of an attempt that is lost no more."""
        self._kept -= len(one.arrived)
        one.arrived, one.place = set(), None

    def _close(self, one: _Open) -> None:
        self._withdraw(one)
        del self._open[one.comparison.key]

    def _send(self, comparison: ComparisonTask, event: Event) -> None:
        """The files that a worker lacks, in pieces, and nothing at the end of each."""
        by_hash = {sent.sha256: sent.path for sent in comparison.files}
        with suppress(Exception):  # the worker or the scheduler is gone, or the file: its worker waits a while and reports it
            for path in map(by_hash.__getitem__, event.needs):
                with Path(path).open("rb") as file:
                    piece = b"-"
                    while piece:
                        piece = file.read(_PIECE)
                        (goes_on,) = self.client.run(worker.receive, event.task, piece, workers=[event.address]).values()
                        if not goes_on or comparison.key not in self._open:
                            return


def _scheduler_lost(error: BaseException) -> InputError:
    return InputError(
        f"the connection to the scheduler broke ({type(error).__name__}); what was measured is kept, and --append goes on once it is back"
    )


def comparisons_in(path: Path, say: Callable[[str], None]) -> dict[str, tuple[int, bool]]:
    """The comparisons in a runs file: by their key, the number of the last attempt, and whether one of them is complete.

    The file is read a line at a time. Raises InputError.
    """
    counts: Counter[tuple[str, int]] = Counter()
    known: dict[str, tuple[int, bool]] = {}
    try:
        for where, line in store.lines(path, say):
            attempt = store.decode(line, where).attempt
            if attempt is not None:
                last, complete = known.get(attempt.comparison, (0, False))
                counts[attempt.comparison, attempt.number] += 1
                whole = counts[attempt.comparison, attempt.number] >= attempt.runs > 0
                known[attempt.comparison] = max(last, attempt.number), complete or whole
    except InputError:
        if known:
            raise  # else it is empty, or has a torn line: whoever adds to it looks at that
    return known
