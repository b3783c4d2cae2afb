"""The desk: a campaign's comparisons go to the machines of a fleet, and every Run comes back as soon as it exists.

Dask's scheduler carries tasks, files and Runs. Which comparison goes where is decided here, by `planning`. A desk that ends, however it ends, leaves
nothing running: the scheduler releases its tasks, and the workers stop what they measure.
"""

from __future__ import annotations

import pickle
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from ..base.errors import InputError
from ..base.units import counted
from ..campaign.progress import Progress
from ..records import attempts, store
from ..records.types import Attempt, Run
from . import message, worker
from .message import RESOURCE, Said, Sent
from .payload import Packed
from .planner import Assignment, Labels, Offer, Planner
from .scheduler import AWAY, There, as_before, asked, described, offered_words, places_among

_LOOK_S = 1.0  # between two looks at who is there; meanwhile the desk waits for messages
_AGAIN_S = 0.2  # between two attempts to hear from a scheduler that is away
_PATIENCE_S = 20.0  # how long the scheduler may be away
_ABSENT_S = 300.0  # how long all machines may be away that a campaign needs
_PIECE = 8 << 20
_SMALL = 64 << 10  # files of a comparison that travel with it: asking for them would take longer
_SENDERS = 4


@dataclass
class _Running:
    """A comparison at a place. arrived: which of its Runs are here. plan: how many it has, 0 until that is known."""

    packed: Packed
    place: str
    attempt: int
    future: Any
    plan: int = 0
    arrived: set[str] = field(default_factory=set)


def _none(unmatched: Sequence[Labels], more: str = "") -> str:
    """That no place has one of these labels, without more words about it."""
    named = [labels for labels in unmatched if labels]
    return f"no place of the fleet has {'; '.join(map(described, named))}{more}" if named else f"the fleet has no place{more}"


async def _put_empty(incoming: Any) -> None:
    with suppress(Exception):  # the scheduler may be gone
        await incoming.put("")


class _Call:
    """A call of a function, which is made where this is unpickled. A scheduler unpickles the functions of tasks, but no bytes: so it needs no
    memprof."""

    def __init__(self, function: Callable[..., bytes], *words: object) -> None:
        self._call = function, words

    def __reduce__(self) -> tuple[Callable[..., bytes], tuple[object, ...]]:
        return self._call


@dataclass
class Desk:
    """A campaign. See `runs`. earlier: what an existing runs file holds, see memprof.fleet.earlier_runs. told: called every second with how many
    comparisons run, wait and are done. failed: a sentence for each comparison that was given up, by its key.
    outputs: by the same, what a search had sent. unmade: by the same, why commits cannot be built, by their labels. kind: the labels of the only kind
    of machine that may be used, None for all that fit.
    """

    client: Any
    packed: Sequence[Packed]
    progress: Progress
    keep: Callable[[bytes], None]
    earlier: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    told: Callable[[int, int, int], None] = lambda running, waiting, done: None
    failed: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, bytes] = field(default_factory=dict)
    unmade: dict[str, Mapping[str, str]] = field(default_factory=dict)
    kind: Labels | None = None
    _planner: Planner = field(default_factory=Planner)
    _there: dict[str, There] = field(default_factory=dict)
    _running: dict[str, _Running] = field(default_factory=dict)  # by the task's key
    _ended: deque[str] = field(default_factory=deque)
    _refused: dict[str, str] = field(default_factory=dict)  # sentences about places, so that each is said once
    _why: dict[str, list[str]] = field(default_factory=dict)
    _name: str = field(default_factory=lambda: secrets.token_hex(4))
    _scheduler: str | None = None  # the identity of its process
    _names: dict[str, str] = field(default_factory=dict)  # of places, by their workers' addresses
    _gave: set[tuple[str, str]] = field(default_factory=set)  # small files by their worker and their hash
    _began: bool = False
    _look_is_due: bool = True
    _stands_still_s: float | None = None  # since when no place fits what waits
    _runs_of: dict[str, int] = field(default_factory=dict)  # how many each comparison has: as its suite says, then as its worker does
    _wanted: int = 0  # the sum of these
    _came: int = 0
    _kept: int = 0  # of what came, without what is aside
    _best: dict[str, int] = field(default_factory=dict)  # the most Runs of an attempt at a comparison that was lost

    @property
    def aside(self) -> int:
        """How many Runs are of attempts that were lost, and that tables leave out. Of a comparison that was given up the best attempt stands."""
        return self._came - self._kept

    def runs(self) -> Iterator[Run]:
        """Measure all comparisons; each Run is given to `keep` as a line of a runs file, and yielded.

        Raises InputError if the scheduler is lost, or if no place fits. What was measured until then is kept.
        """
        from distributed import Queue
        from tornado.ioloop import PeriodicCallback

        by_key = {packed.request.key: packed for packed in self.packed}
        for key, (number, complete) in self.earlier.items():
            if key in by_key:
                self._planner.attempts[key] = number
                if complete:
                    del by_key[key]
        done = len(self.packed) - len(by_key)
        if done:
            self.progress.say(f"{counted(done, 'comparison')} of {len(self.packed)} {'is' if done == 1 else 'are'} in the file already")
        self._want(by_key)
        incoming = Queue(f"memprof-{self._name}", client=self.client)
        alarm = PeriodicCallback(lambda: self._ring(incoming), 1000 * _LOOK_S)
        self.client.loop.add_callback(alarm.start)
        seen = time.monotonic()
        with ThreadPoolExecutor(_SENDERS) as senders:
            try:
                while self._planner.waiting or self._running:
                    if self._look_is_due:
                        self._look_is_due = False
                        self._look()
                    for assignment in self._planner.next():
                        self._start(by_key[assignment.key], assignment, incoming)
                    ended = list(self._ended)  # their last messages were put into the queue before they ended
                    try:
                        for said in self._messages(incoming):
                            yield from self._heard(said, senders)
                        seen = time.monotonic()
                    except AWAY as error:
                        if time.monotonic() - seen > _PATIENCE_S or self.client.status not in ("running", "connecting"):
                            raise self._scheduler_lost(error) from None
                        time.sleep(_AGAIN_S)
                        self._look_is_due = True  # another scheduler logs each question for a queue that it does not know as an error
                        continue
                    for key in ended:
                        self._ended.popleft()
                        self._finish(key)
            finally:
                futures = [running.future for running in self._running.values()]
                self._running.clear()  # what sends files looks there
                senders.shutdown(wait=False, cancel_futures=True)
                with suppress(Exception):  # the scheduler may be gone
                    self.client.loop.add_callback(alarm.stop)
                    self.client.cancel(futures, force=True)

    def _want(self, by_key: Mapping[str, Packed]) -> None:
        self._planner.want(packed.request for packed in by_key.values())
        self._runs_of = {key: packed.runs for key, packed in by_key.items()}
        self._wanted = sum(self._runs_of.values())

    # -- who is there

    def _look(self) -> None:
        try:
            info = asked(self.client)
            there, sentences, scheduler = *places_among(info["workers"]), info.get("id")
        except AWAY:
            return  # the loop notices by itself when that lasts
        if self._scheduler not in (None, scheduler):
            raise InputError("the scheduler began anew and knows nothing of this campaign; what was measured is kept, and --append goes on")
        self._scheduler = scheduler
        if not there and self.client.status != "running":
            return  # a client that lost its scheduler tells of no worker
        for sentence in sentences:
            self._say_once(sentence)
        if not there and sentences and not self._running:
            raise InputError(sentences[0])
        there = [place for place in as_before(there, self._names) if self.kind in (None, place.labels_of_kind)]
        now = {place.name: place for place in there}
        for name in self._there.keys() - now.keys():
            self._gone(name)
        for name, place in now.items():
            before = self._there.get(name)
            if before is not None and before.address != place.address:
                self._gone(name)  # its worker ended and another offers it
            busy = bool(place.doing.title) and not any(running.place == name for running in self._running.values())
            self._planner.offer(Offer(name, place.kind, frozenset(place.offered.labels.items()), busy))
        self._there = now
        running, left = self._planner.running, len(self._running) + self._planner.waiting
        self.told(running, left - running, len(self.packed) - left)
        self._check_that_it_goes_on(there)

    def _check_that_it_goes_on(self, there: Sequence[There]) -> None:
        """Raises InputError if nothing runs and no place fits what waits. One that was there may come back: its worker tries that."""
        unmatched = self._planner.unmatched()
        if not unmatched or self._running:
            self._stands_still_s = None
        elif benched := [place.name for place in there if any(labels <= place.offered.labels.items() for labels in unmatched)]:
            raise InputError(f"{', '.join(benched)} failed too often, and no other place fits what waits: {offered_words(there)}")
        else:
            self._stands_still_s = self._stands_still_s or time.monotonic()
            if not self._began or time.monotonic() - self._stands_still_s > _ABSENT_S:
                raise InputError(f"{_none(unmatched, f' any more, for {_ABSENT_S:.0f} s' if self._began else '')}: {offered_words(there)}")
        for labels in unmatched:
            self._say_once(f"{_none([labels], ' any more')}: what needs it waits")

    def _gone(self, name: str) -> None:
        self._planner.withdraw(name)
        for key, running in list(self._running.items()):
            if running.place == name:
                self._give_up(key, f"{name} vanished")

    def _give_up(self, key: str, why: str) -> None:
        """End a comparison whose place is of no more use to it. It begins again elsewhere."""
        running = self._running.pop(key)
        with suppress(Exception):
            self.client.cancel([running.future], force=True)
        if self._is_at_its_place(running):
            self._lost(running, why)

    def _is_at_its_place(self, running: _Running) -> bool:
        """Whether a comparison was not only sent ahead to its place."""
        return self._planner.at(running.place) == running.packed.request.key

    def _say_once(self, sentence: str) -> None:
        if self._refused.setdefault(sentence, sentence) is sentence:
            self.progress.say(sentence)

    # -- comparisons

    def _start(self, packed: Packed, assignment: Assignment, incoming: Any) -> None:
        place = self._there[assignment.place]
        self.outputs.pop(assignment.key, None)  # of an attempt that was lost
        task = replace(
            packed.task_at(assignment.place), attempt=assignment.attempt, files=self._with_small(packed.task.files, place.address)
        )
        key = f"memprof-{self._name}-{assignment.key}-{assignment.attempt}"
        future = self.client.submit(
            pickle.loads,
            pickle.dumps(_Call(worker.measure, message.encode(task), incoming.name)),
            key=key,
            workers=[place.address],
            allow_other_workers=False,
            resources={RESOURCE: 1},
            retries=0,
            pure=False,
        )
        self._began = True
        self._running[key] = _Running(packed, assignment.place, assignment.attempt, future)
        future.add_done_callback(lambda _: self._wake(key, incoming))

    def _wake(self, key: str, incoming: Any) -> None:
        """A task ended, and its worker did not say so, or is dead: the desk, which waits for messages, is sent an empty one."""
        if key in self._running:
            self._ended.append(key)
            with suppress(Exception):  # the client may be closed
                self.client.loop.add_callback(_put_empty, incoming)

    async def _ring(self, incoming: Any) -> None:
        """It is time for a look. The empty message ends the desk's wait: a wait with a time limit is an error in the scheduler's log each time that
        nothing comes (distributed 2026.8)."""
        self._look_is_due = True
        await _put_empty(incoming)

    def _messages(self, incoming: Any) -> Iterator[Said]:
        """What the workers have said. If that is nothing yet, the next message is waited for; it may be an empty one."""
        first = "" if self._ended else incoming.get()
        for data in filter(None, [first, *incoming.get(batch=True)]):
            try:
                yield message.said(data.encode())
            except (msgspec.DecodeError, AttributeError, UnicodeError) as error:  # the others of the batch count all the same
                self._say_once(f"a worker sent what this memprof does not understand: {error}")

    def _heard(self, said: Said, senders: ThreadPoolExecutor) -> Iterator[Run]:
        running = self._running.get(said.task)
        if running is None:
            return  # of a comparison that was lost meanwhile
        if said.began and self._is_at_its_place(running):
            self._planner.began(running.place, time.monotonic())
        if said.plan:
            running.plan = said.plan
            key = running.packed.request.key
            self._wanted += said.plan - self._runs_of[key]
            self._runs_of[key] = said.plan
        if said.say:
            self._say_once(f"{running.place}: {said.say}")
        if said.outputs:
            key = running.packed.request.key
            self.outputs[key] = self.outputs.get(key, b"") + said.outputs
        if said.needs:
            senders.submit(self._send, running, said)
        if said.run:
            try:
                run = store.decode(said.run.encode(), f"a run of {running.place}")
                if run.attempt is None:
                    raise InputError(f"a run of {running.place}: it is of no attempt")
            except InputError as error:
                self._give_up(said.task, str(error))
                return
            yield from self._arrived(running, run, run.attempt)
        if running.plan - len(running.arrived) == 1:
            self._planner.ending(running.place)
        if said.ended is not None:
            del self._running[said.task]
            self._settle(running, said.ended)

    def _arrived(self, running: _Running, run: Run, attempt: Attempt) -> Iterator[Run]:
        identity = attempts.identity(run)
        if identity in running.arrived:
            return
        running.arrived.add(identity)
        place = self._there.get(running.place)
        labels = place.offered.labels if place else {}
        run = replace(run, attempt=replace(attempt, place=running.place, labels=labels), machine=self._told_apart(run, running.place))
        self._came += 1
        self._kept += 1
        self.progress.started(run.job, self._kept, self._wanted)
        try:
            self.keep(store.encode(run))
        finally:
            self.progress.finished(run)
        yield run

    def _told_apart(self, run: Run, place: str) -> Any:
        """The Run's machine. Two machines of one name are two machines all the same."""
        same = [name for name, there in self._there.items() if there.offered.machine == run.machine.name]
        return replace(run.machine, name=f"{run.machine.name} ({place})") if len(same) > 1 else run.machine

    def _finish(self, key: str) -> None:
        running = self._running.pop(key, None)
        if running is None:
            return
        try:
            result = message.result(running.future.result(timeout=_PATIENCE_S))
        except Exception as error:  # of Dask, whose worker may have died; or a defect there
            self._lost(running, f"its worker failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
            return
        self._settle(running, result)

    def _settle(self, running: _Running, result: message.Result) -> None:
        if result.how is None and len(running.arrived) == result.runs == running.plan and self._is_at_its_place(running):
            self._planner.finished(running.place, time.monotonic())
        elif result.how is None:
            self._lost(running, f"{len(running.arrived)} of {running.plan} runs came back")
        elif result.how == "lost":
            self._gone(running.place)
            self._there.pop(running.place, None)
            self._lost(running, result.why)
        elif result.how == "unmade":
            self._planner.failed(running.place, again=False)
            self._put_aside(running, again=False)
            self.unmade[running.packed.request.key] = {label: f"{running.place}: {why}" for label, why in result.unmade.items()}
            self.failed[running.packed.request.key] = f"{running.place}: {result.why}"
            self.progress.say(f"{running.place}: {result.why}")
        else:
            self._failed(running, result.why, again=result.how != "usage")

    def _lost(self, running: _Running, why: str) -> None:
        self._failed(running, why, again=True)

    def _failed(self, running: _Running, why: str, again: bool) -> None:
        title = running.packed.task.title
        reasons = self._why.setdefault(running.packed.request.key, [])
        reasons.append(f"{running.place}: {why}")
        benched = set(self._planner.benched)
        count = len(running.arrived)
        kept = f"; its {counted(count, 'run')} {'stays' if count == 1 else 'stay'} aside" if count else ""
        begins_again = self._planner.failed(running.place, again, ahead=not self._is_at_its_place(running))
        self._put_aside(running, begins_again)
        if begins_again:
            self.progress.say(f"{title} begins again elsewhere, whole: {reasons[-1]}{kept}")
        else:
            places = set(self._planner.failures(running.packed.request.key))
            times = f"{counted(len(reasons), 'time')}, " if len(reasons) > 1 else ""
            where = counted(len(places), "machine") if len(places) > 1 else running.place
            sentence = f"{title} failed {times}on {where} and is given up: {'; '.join(dict.fromkeys(reasons))}"
            self.failed[running.packed.request.key] = sentence
            self.progress.say(sentence)
        for place in self._planner.benched - benched:
            self.progress.say(f"{place} failed three times in a row and gets nothing more")

    def _put_aside(self, running: _Running, again: bool) -> None:
        """Count the Runs of an attempt that was lost no more. If the comparison is given up, those of its best attempt count."""
        key = running.packed.request.key
        self._best[key] = max(self._best.get(key, 0), len(running.arrived))
        self._kept += (0 if again else self._best[key]) - len(running.arrived)

    # -- files

    def _with_small(self, files: tuple[Sent, ...], worker_address: str) -> tuple[Sent, ...]:
        """The files, with the content of small ones that the worker was not given yet."""
        room, given = _SMALL, []
        for sent in files:
            if sent.bytes <= room and (worker_address, sent.sha256) not in self._gave:
                with suppress(OSError):  # its worker asks for it, and is told why it cannot be had
                    sent = replace(sent, content=Path(sent.path).read_bytes())
                    room -= sent.bytes
                    self._gave.add((worker_address, sent.sha256))
            given.append(sent)
        return tuple(given)

    def _send(self, running: _Running, said: Said) -> None:
        """The files that a worker lacks, in pieces."""
        place = self._there.get(running.place)
        for sent in running.packed.task.files if place is not None else ():
            if sent.sha256 not in said.needs:
                continue
            try:
                with Path(sent.path).open("rb") as file:
                    offset = 0
                    while said.task in self._running:
                        piece = file.read(_PIECE)
                        assert place is not None
                        answers = self.client.run(
                            worker.receive, said.task, sent.sha256, offset, sent.bytes, piece, workers=[place.address], on_error="return"
                        )
                        offset += len(piece)
                        if any(answers.values()) or offset >= sent.bytes or not piece:
                            break
            except Exception:  # the worker or the scheduler is gone, or the file: its worker waits a while and says so
                return

    # -- the end

    def _scheduler_lost(self, error: BaseException) -> InputError:
        return InputError(
            f"the connection to the scheduler broke ({type(error).__name__}); what was measured is kept, and --append goes on once it is back"
        )
