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
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..base.errors import InputError
from ..base.units import counted
from ..campaign.progress import Keep, Progress
from ..records import attempts, store
from ..records.types import Attempt, Machine, Run
from . import message, monitor, worker
from .message import Event, Labels, Result
from .monitor import Waiting
from .payload import ComparisonTask
from .scheduler import AWAY, FleetPlace, as_before, asked, described, offered_words, places_among

_LOOK_S = 1.0  # between two looks at which machines are there
_ABSENT_S = 300.0  # how long all machines may be away that a campaign needs
_PIECE = 8 << 20
_SENDERS = 4
MOST_FAILURES = 3  # of a comparison, after which it is given up, and of a place in a row, after which it gets nothing more


@dataclass
class _Open:
    """A comparison that is not done. rank: its place among all, the first begins first. attempt: the number of the last that began.

    task: the key of its Dask task. workers: those that Dask may give it to, None for all that offer what it asks for. execution: of the worker that
    measures it now, empty if none does. arrived: which Runs of that are here, of so many in its plan. most: how many a lost attempt had at most.
    """

    comparison: ComparisonTask
    rank: int
    attempt: int = 0
    task: str = ""
    future: Any = None
    workers: tuple[str, ...] | None = None
    execution: str = ""
    address: str = ""
    place: str = "a worker"
    plan: int = 0
    arrived: set[str] = field(default_factory=set)
    most: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)  # the place and the reason
    refused_by: set[str] = field(default_factory=set)  # addresses


def _none(unmatched: Sequence[Labels], more: str = "") -> str:
    """That no place has one of these labels, without more words about it."""
    named = [labels for labels in unmatched if labels]
    return f"no place of the fleet has {'; '.join(map(described, named))}{more}" if named else f"the fleet has no place{more}"


class _Call:
    """A call of a function, which is made where this is unpickled. A scheduler unpickles the functions of tasks, but no bytes: so it needs no
    memprof."""

    def __init__(self, function: Callable[..., None], *words: object) -> None:
        self._call = function, words

    def __reduce__(self) -> tuple[Callable[..., None], tuple[object, ...]]:
        return self._call


@dataclass
class SchedulerClient:
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
    _name: str = field(default_factory=lambda: secrets.token_hex(4))
    _events: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _open: dict[str, _Open] = field(default_factory=dict)  # by the comparison's key
    _tasks: dict[str, _Open] = field(default_factory=dict)  # by the task's key
    _there: dict[str, FleetPlace] = field(default_factory=dict)  # by the worker's address
    _names: dict[str, str] = field(default_factory=dict)  # of places, by the same
    _in_a_row: Counter[str] = field(default_factory=Counter)  # failures by the same
    _benched: set[str] = field(default_factory=set)  # addresses of places that failed too often
    _parts: Counter[tuple[str, str]] = field(default_factory=Counter)  # those given to a place, by what they share it with and its address
    _sentences: set[str] = field(default_factory=set)  # about places: each is printed once
    _scheduler: str | None = None  # the identity of its process
    _began: bool = False
    _stands_still_s: float | None = None  # since when no place fits the queue
    _wanted: int = 0  # Runs of all comparisons
    _came: int = 0
    _kept: int = 0  # of the results so far, without those aside

    @property
    def aside(self) -> int:
        """How many Runs are of attempts that were lost, and that tables leave out. Of a comparison that was given up the best attempt stands."""
        return self._came - self._kept

    def runs(self) -> Iterator[Run]:
        """Measure all comparisons; each Run is given to `keep` as a line of a runs file, and yielded.

        Raises InputError if the scheduler is lost, or if no place fits. What was measured until then is kept.
        """
        from distributed import Queue

        self._take()
        messages = Queue(f"memprof-{self._name}", client=self.client)
        listening = asyncio.run_coroutine_threadsafe(self._listen(messages), self.client.loop.asyncio_loop)
        with ThreadPoolExecutor(_SENDERS) as senders:
            try:
                look_s = time.monotonic()
                while self._open:
                    if time.monotonic() >= look_s:
                        if self.stop():
                            return
                        self._look()
                        look_s = time.monotonic() + _LOOK_S
                    try:
                        event = self._events.get(timeout=max(0.0, look_s - time.monotonic()))
                    except queue.Empty:
                        continue
                    if isinstance(event, BaseException):
                        raise self._scheduler_lost(event) from None
                    yield from self._heard(event, senders)
            finally:
                futures = [one.future for one in self._open.values() if one.future is not None]
                self._tasks.clear()  # what sends files looks there
                senders.shutdown(wait=False, cancel_futures=True)
                listening.cancel()
                for desk in {one.task.desk for one in self.comparisons}:
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

    async def _listen(self, messages: Any) -> None:
        """Hand on what workers say, in its order. An error is the last: a scheduler that the client has lost has dropped its tasks too."""
        try:
            while True:
                for data in (await messages.get(), *await messages.get(batch=True)):
                    self._events.put(self._event(data))
        except AWAY as error:
            self._events.put(error)

    def _event(self, data: Any) -> Event:
        try:
            return message.event(data.encode())
        except (msgspec.DecodeError, AttributeError, UnicodeError) as error:
            return Event(remark=f"a worker sent what this memprof does not understand: {error}")

    # -- who is there

    def _look(self) -> None:
        """See which machines are there, and have Dask know which it may give each comparison to."""
        if not self._see():
            return
        for one in [one for one in self._open.values() if one.execution and one.address not in self._there]:
            self._fail(one, "vanished", f"{one.place} vanished")
        self._check_that_it_goes_on()
        for one in self._open.values():
            if not one.execution and (one.future is None or one.workers != self._workers_for(one)):
                self._submit(one)
        if self._open:
            last = next(reversed(self._open.values()))
            running, desk = sum(bool(one.execution) for one in self._open.values()), last.comparison.task.desk
            counts = running, len(self._open) - running, len(self.comparisons) - len(self._open)
            monitor.tell(self.client, desk, Waiting(desk, *counts, last.task))

    def _see(self) -> bool:
        """Ask which machines are there; whether that was answered. Raises InputError if the scheduler is another, or if none can be used."""
        try:
            info = asked(self.client)
        except AWAY:
            return False  # who listens notices if that lasts
        if self._scheduler not in (None, info.get("id")):
            raise InputError("the scheduler restarted and does not know this campaign; its runs so far are kept, and --append goes on")
        self._scheduler = info.get("id")
        places, sentences = places_among(info["workers"])
        if not places and self.client.status != "running":
            return False  # a client that lost its scheduler tells of no worker
        for sentence in sentences:
            self._say_once(sentence)
        if not places and sentences and not any(one.execution for one in self._open.values()):
            raise InputError(sentences[0])
        named = as_before(places, self._names)
        self._there = {place.address: place for place in named if self.kind in (None, place.offered.labels_of_kind)}
        return True

    def _workers_for(self, one: _Open) -> tuple[str, ...] | None:
        """The workers that Dask may give a comparison to: None for all that offer what it asks for, none while all of these failed too often."""
        apart = one.comparison.apart
        if not (apart or one.refused_by or self._benched):
            return None
        fitting = [address for address, place in self._there.items() if one.comparison.needs <= place.offered.labels.items()]
        usable = [address for address in fitting if address not in self._benched]
        others = [address for address in usable if address not in one.refused_by] or usable
        if others and apart:
            own = [address for address in one.workers or () if address in others]
            return tuple(own) or (min(others, key=lambda address: self._parts[apart, address]),)
        return None if len(others) == len(fitting) else tuple(sorted(others))

    def _check_that_it_goes_on(self) -> None:
        """Raises InputError if nothing runs and no place fits the queue. A lost place may come back: its worker tries that."""
        wanted = {one.comparison.needs for one in self._open.values()}
        fitting = {needs: [place for place in self._there.values() if needs <= place.offered.labels.items()] for needs in wanted}
        unmatched = [needs for needs, places in fitting.items() if all(place.address in self._benched for place in places)]
        words = offered_words([*self._there.values()])
        if not unmatched or any(one.execution for one in self._open.values()):
            self._stands_still_s = None
        elif failing := sorted({place.name for needs in unmatched for place in fitting[needs]}):
            raise InputError(f"{', '.join(failing)} failed too often, and no other place fits the rest of the queue: {words}")
        else:
            self._stands_still_s = self._stands_still_s or time.monotonic()
            if not self._began or time.monotonic() - self._stands_still_s > _ABSENT_S:
                raise InputError(f"{_none(unmatched, f' any more, for {_ABSENT_S:.0f} s' if self._began else '')}: {words}")
        for needs in unmatched:
            self._say_once(f"{_none([needs], ' any more')}: what needs it waits")

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
        if one.workers and one.comparison.apart:
            self._parts[one.comparison.apart, one.workers[0]] += 1
        one.task = f"memprof-{self._name}-{one.comparison.key}-{secrets.token_hex(4)}"
        self._tasks[one.task] = one
        one.future = self.client.submit(
            pickle.loads,
            pickle.dumps(_Call(worker.measure, message.encode(self._task_of(one.comparison)), f"memprof-{self._name}")),
            key=one.task,
            workers=one.workers and [*one.workers],
            resources=message.resources(one.comparison.needs, self.kind),
            priority=-one.rank,
            pure=False,
        )
        one.future.add_done_callback(lambda future, task=one.task: self._events.put((task, future)))

    def _withdraw(self, one: _Open) -> None:
        """Take a comparison back from Dask."""
        self._tasks.pop(one.task, None)
        if one.future is not None:
            with suppress(Exception):
                self.client.cancel([one.future], force=True)
        one.future, one.execution = None, ""

    def _task_of(self, comparison: ComparisonTask) -> message.Task:
        """What a worker is asked. A search may ask less of a place that has measured something of it."""
        there, sought = comparison.there, comparison.task.sought
        if there is None or sought is None:
            return comparison.task
        repeats = {address: there(place.name).repeats for address, place in self._there.items()}
        return replace(comparison.task, repeats_at={address: some for address, some in repeats.items() if some != sought.repeats})

    def _heard(self, event: Event | tuple[str, Any], senders: ThreadPoolExecutor) -> Iterator[Run]:
        if not isinstance(event, Event):
            self._ended(*event)
            return
        one = self._tasks.get(event.task)
        if one is None:
            if not event.task and event.remark:
                self._say_once(event.remark)
            return  # of a task that was taken back
        if event.place:
            self._begin(one, event)
        if event.execution != one.execution:
            return  # of a worker that Dask has lost
        if event.plan:
            self._wanted += event.plan - one.plan
            one.plan = event.plan
        if event.remark:
            self._say_once(f"{one.place}: {event.remark}")
        if event.outputs:
            key = one.comparison.key
            self.outputs[key] = self.outputs.get(key, b"") + event.outputs
        if event.needs:
            senders.submit(self._send, one.comparison, one.address, event)
        if event.run:
            yield from self._arrived(one, event.run)
        if event.end is not None and one.execution:
            self._settle(one, event.end)

    def _begin(self, one: _Open, event: Event) -> None:
        """A worker begins. If another had begun, Dask has lost that one."""
        if one.execution:
            self._fail(one, "vanished", f"{one.place} vanished")
        if event.task not in self._tasks:
            return  # that was once too often
        if event.place not in self._there:
            self._see()
        self.outputs.pop(one.comparison.key, None)  # of an attempt that was lost
        self._began = True
        one.execution, one.address, one.place = event.execution, event.place, self._names.get(event.place, event.place)
        one.attempt += 1

    def _arrived(self, one: _Open, line: str) -> Iterator[Run]:
        try:
            run = store.decode(line.encode(), f"a run of {one.place}")
        except InputError as error:
            self._fail(one, "refused", str(error))
            return
        identity = attempts.identity(run)
        if identity in one.arrived:
            return
        one.arrived.add(identity)
        place = self._there.get(one.address)
        labels = place.offered.labels if place else {}
        attempt = Attempt(one.comparison.key, one.attempt, one.plan, one.place, labels, one.comparison.kind)
        run = replace(run, attempt=attempt, machine=self._told_apart(run, one))
        self._came += 1
        self._kept += 1
        self.progress.started(run.job, self._kept, self._wanted)
        try:
            self.keep(store.encode(run))
        finally:
            self.progress.finished(run)
        yield run

    def _told_apart(self, run: Run, one: _Open) -> Machine:
        """The Run's machine. Two machines of one name are two machines all the same."""
        others = [place for place in self._there.values() if place.address != one.address and place.offered.machine == run.machine.name]
        return replace(run.machine, name=f"{run.machine.name} ({one.place})") if others else run.machine

    def _ended(self, task: str, future: Any) -> None:
        """Dask is done with a task. Of one that ended well its last event tells all, also if Dask has lost the result since then."""
        from distributed import KilledWorker

        one = self._tasks.get(task)
        if one is None or future.status not in ("error", "cancelled"):
            return
        if future.status == "cancelled":
            raise self._scheduler_lost(CancelledError())
        error = future.exception()
        if not isinstance(error, KilledWorker):
            self._fail(one, "refused", f"its worker failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        elif one.execution:
            self._fail(one, "lost", f"{one.place} vanished")
        else:
            self._submit(one)  # it waited at each worker that died, and was begun at none

    def _settle(self, one: _Open, result: Result) -> None:
        """An attempt ended by itself."""
        if result.how is None and len(one.arrived) == result.runs == one.plan:
            self._in_a_row[one.address] = 0
            self._close(one)
        elif result.how == "unmade":
            self.unmade[one.comparison.key] = {label: f"{one.place}: {why}" for label, why in result.unmade.items()}
            self._give_up(one, f"{one.place}: {result.why}")
        else:
            self._fail(one, result.how or "refused", result.why or f"{len(one.arrived)} of {one.plan} runs came back")

    def _fail(self, one: _Open, how: message.How | Literal["vanished"], why: str) -> None:
        """An attempt is lost; its comparison begins again, whole, or is given up. vanished: the worker is gone, and Dask gives its tasks away by
        itself."""
        one.failures.append((one.place, why))
        one.refused_by.add(one.address)
        self._in_a_row[one.address] += how == "refused"
        if self._in_a_row[one.address] == MOST_FAILURES:
            self._benched.add(one.address)
        title, count = one.comparison.task.title, len(one.arrived)
        if how != "usage" and len(one.failures) < MOST_FAILURES:
            stays = f"; its {counted(count, 'run')} {'stays' if count == 1 else 'stay'} aside" if count else ""
            self.progress.say(f"{title} begins again elsewhere, whole: {one.place}: {why}{stays}")
            self._put_aside(one)
            if how != "vanished":
                self._submit(one)
        else:
            places = dict.fromkeys(place for place, _ in one.failures)
            times = f"{counted(len(one.failures), 'time')}, " if len(one.failures) > 1 else ""
            where = counted(len(places), "machine") if len(places) > 1 else one.place
            reasons = dict.fromkeys(f"{place}: {why}" for place, why in one.failures)
            self._give_up(one, f"{title} failed {times}on {where} and is given up: {'; '.join(reasons)}")
        if how == "refused" and one.address in self._benched:
            self._say_once(f"{one.place} failed three times in a row and gets nothing more")

    def _give_up(self, one: _Open, sentence: str) -> None:
        self._put_aside(one)
        self._kept += one.most  # the Runs of its best attempt count
        self.failed[one.comparison.key] = sentence
        self.progress.say(sentence)
        self._close(one)

    def _put_aside(self, one: _Open) -> None:
        """Count the Runs of an attempt that is lost no more."""
        self._kept -= len(one.arrived)
        one.most = max(one.most, len(one.arrived))
        one.arrived, one.execution = set(), ""

    def _close(self, one: _Open) -> None:
        self._withdraw(one)
        del self._open[one.comparison.key]

    # -- files

    def _send(self, comparison: ComparisonTask, address: str, event: Event) -> None:
        """The files that a worker lacks, in pieces."""
        for sent in {sent.sha256: sent for sent in comparison.task.files if sent.sha256 in event.needs}.values():
            try:
                with Path(sent.path).open("rb") as file:
                    offset = 0
                    while event.task in self._tasks:
                        piece = file.read(_PIECE)
                        words = event.execution, sent.sha256, offset, sent.bytes, piece
                        answers = self.client.run(worker.receive, *words, workers=[address], on_error="return")
                        offset += len(piece)
                        if any(answers.values()) or offset >= sent.bytes or not piece:
                            break
            except Exception:  # the worker or the scheduler is gone, or the file: its worker waits a while and reports it
                return

    def _scheduler_lost(self, error: BaseException) -> InputError:
        return InputError(
            f"the connection to the scheduler broke ({type(error).__name__}); what was measured is kept, and --append goes on once it is back"
        )


def comparisons_in(path: Path, say: Callable[[str], None]) -> dict[str, tuple[int, bool]]:
    """The comparisons in a runs file: by their key, the number of the last attempt, and whether one of them is complete.

    The file is read a line at a time. Raises InputError.
    """
    counts: Counter[tuple[str, int]] = Counter()
    wanted: dict[tuple[str, int], int] = {}
    try:
        for where, line in store.lines(path, say):
            run = store.decode(line, where)
            if run.attempt is not None:
                counts[run.attempt.comparison, run.attempt.number] += 1
                wanted[run.attempt.comparison, run.attempt.number] = run.attempt.runs
    except InputError:
        if counts:
            raise
        return {}  # an empty file, or a torn line: whoever adds to it looks at that
    known: dict[str, tuple[int, bool]] = {}
    for (comparison, number), count in counts.items():
        before, complete = known.get(comparison, (0, False))
        known[comparison] = max(before, number), complete or count >= wanted[comparison, number] > 0
    return known
