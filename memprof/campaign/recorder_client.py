"""One Order in, one Run out: a recorder is started, given its order and listened to; what it writes is folded as it comes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..base.errors import InputError
from ..base.leftovers import TOKEN, end_marked
from ..places import remote_groups
from ..places.place import HERE, Place, RecorderKind, Started
from ..places.recorder_start import recorder_command
from ..programs import conversion_cache, native
from ..recording import order as recorder_order
from ..recording.fold import Fold, Notice
from ..records import store
from ..records.recorder_order import Header, Hold, Message, Start
from ..records.types import SCHEMA, STARTUP, Job, Outcome, Run
from ..subjects.order import Order, intervals
from ..subjects.values import parse_cpus
from . import nvidia
from .load_generator import Driving
from .recordings import Spool

HOLD_LIMIT_NS = 300 * 10**9
_LINE_BYTES = 4096
_SILENCES = 8  # beats that a recorder may miss before it takes memprof for gone
_LIVE_S = 0.1


class Listeners(Struct, frozen=True):
    """Who hears of a run while it goes on.

    live: the phase and what is resident in bytes, ten times a second at most. look: see `campaign.measure`. began: the recorder, as soon as it has
    its order. say: each sentence that the child has for the user. so_far: the line of a Run that has not ended, as often as the message wants it.
    """

    live: Callable[[str, int], None] = lambda phase, rss: None
    look: Callable[[Job, str, int], None] | None = None
    began: Callable[[Started], None] = lambda process: None
    say: Callable[[str], None] = lambda sentence: None
    so_far: Callable[[bytes], None] = lambda line: None


def ask(
    job: Job,
    message: Message,
    token: str,
    live: Callable[[str, int], None],
    look: Callable[[Job, str, int], None] | None = None,
    began: Callable[[Started], None] = lambda process: None,
    input_descriptor: int | None = None,
    say: Callable[[str], None] = lambda sentence: None,
    so_far: Callable[[bytes], None] = lambda line: None,
    place: Place = HERE,
    recorder: RecorderKind = "python",
    driving: Driving | None = None,
    recordings: Path | None = None,
) -> tuple[Run, bytes]:
    """The Run of a message, and its line. A recorder that ends before its recording does, whoever killed it, makes a Run with that outcome.

    look, so_far, ...: see `Listeners`. input_descriptor: the child's standard input, which the recorder must inherit. driving: asks the child for
    work. recordings: the folder where the recording is kept, None for the cache, if the run goes wrong.
    """
    started_ns = time.time_ns()
    if place.beat_ns:
        message = replace(message, silence_ns=_SILENCES * place.beat_ns)
    try:
        machine = place.machine()
        lines = recorder_order.lines(message, machine)
    except ValueError as error:
        return without_recorder(job, started_ns, Outcome("start", STARTUP, f"{next(iter(message.start.argv), '')}: {error}"), place)
    listeners = Listeners(live, look, began, say, so_far)
    follower = _Follower(job, message, Header(message, machine, started_ns), listeners, driving, nvidia.reader() if place is HERE else None)
    with Spool(recordings) as spool:
        with _recorder(place, recorder, input_descriptor) as process:
            _tell(process, lines)
            began(process)
            if driving is not None:
                driving.start(process)
            for line in place.lines(process):
                follower.take(process, line, spool)
            if driving is not None:
                driving.end()
            errors = process.stderr.read().decode("utf-8", "replace").strip()
        if follower.fold.over:
            run = follower.fold.run()
        else:
            end_marked({token})  # the child ended with its recorder, but not the processes that it had started
            if message.start.group is not None and not place.broken(process):  # a recorder there that lives removes it
                with suppress(InputError):
                    remote_groups.remove(place, message.start.group.path)
            run = follower.cut_off(place, process, errors.splitlines()[-1] if errors else _exit(process.returncode or 0))
        spool.keep_if_wanted(run)
    return run, store.encode(run)


class _Follower:
    """Folds a recording line by line, and does what is to be done while the run goes on."""

    def __init__(
        self, job: Job, message: Message, header: Header, listeners: Listeners, driving: Driving | None, gpus: nvidia.NvidiaMemory | None
    ) -> None:
        self.fold = Fold("the recording")
        self._job, self._message, self._header = job, message, header
        self._listeners, self._driving, self._gpus = listeners, driving, gpus
        self._live_s = self._report_s = time.monotonic()

    def take(self, process: Started, line: bytes, spool: Spool) -> None:
        """Take a line of the recorder's output."""
        fold = self.fold
        if self._gpus is not None and fold.started and (found := self._gpus.line(line.startswith(b"mark "))) is not None:
            spool.write(found)
            fold.take(found)
        spool.write(line)
        fold.take(line)
        if not fold.started:
            header = b"order %d %s" % (time.monotonic_ns(), recorder_order.encode(self._header))
            spool.write(header)
            fold.take(header)
        while fold.notices:
            self._heed(process, fold.notices.popleft())
        now_s = time.monotonic()
        if now_s - self._live_s >= _LIVE_S:
            self._live_s = now_s
            self._listeners.live(fold.phase or "-", fold.rss)
        if self._message.report_ns and now_s - self._report_s > self._message.report_ns / 1e9:
            self._report_s = now_s
            self._listeners.so_far(store.encode(fold.run()))

    def cut_off(self, place: Place, process: Started, reason: str) -> Run:
        """The Run of a recording that has no end; reason: what its recorder said last, or how that ended."""
        broke = place.broken(process)
        words = f"the connection to {place.name} broke" if broke else f"the recorder ended before its recording did ({reason})"
        phase, rss = self.fold.phase or STARTUP, self.fold.rss or None
        outcome = Outcome("lost", phase, words, rss_last_bytes=rss, cut="connection" if broke else "recorder")
        if not self.fold.started:
            return without_recorder(self._job, self._header.started_ns, outcome, place)[0]
        return replace(self.fold.run(), outcome=outcome)

    def _heed(self, process: Started, notice: Notice) -> None:
        if notice.kind == "say":
            self._listeners.say(notice.text)
        elif notice.kind == "stop":
            _tell(process, b"stop %d\n" % notice.pid)
        elif notice.kind == "ended" and self._driving is not None:
            self._driving.heard()
        elif notice.kind == "done" and self._message.start.grace_ns:
            _tell(process, b"leave %d\n" % self._message.start.grace_ns)
        elif notice.kind == "held":
            if self._listeners.look is not None:
                self._listeners.look(self._job, notice.text, notice.pid)
            _tell(process, b"continue %d\n" % notice.pid)


def _tell(process: Started, text: bytes) -> None:
    """Write to a recorder, which may be gone."""
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        process.stdin.write(text)
        process.stdin.flush()


def without_recorder(job: Job, started_ns: int, outcome: Outcome, place: Place = HERE) -> tuple[Run, bytes]:
    """A failed Run that no recorder has measured, and its line."""
    run = Run(SCHEMA, job, place.machine(), started_ns, outcome, store.NOTHING_SEEN)
    return run, store.encode(run)


@contextmanager
def input_copy(order: Order, at: int | None) -> Iterator[int | None]:
    """A copy of memprof's standard input for an order that reads it, a file from `at` on. None for other orders, and if it was closed."""
    if not order.stdin or sys.stdin is None:
        yield None
        return
    if at is not None:
        os.lseek(0, at, os.SEEK_SET)  # an earlier repeat has read it
    copy = os.dup(0)
    try:
        yield copy
    finally:
        os.close(copy)


@contextmanager
def _recorder(place: Place, kind: RecorderKind, input_descriptor: int | None) -> Iterator[Started]:
    """A recorder that waits for its line. At the end of the block it is gone, with every process that it started. input_descriptor: see `ask`."""
    command = recorder_command(kind, place)
    # An interruption inside Popen would leave a recorder that nobody knows of. Inside the block the recorder is known, and ended.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        process = place.start(command, () if input_descriptor is None else (input_descriptor,))
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield process
        finally:
            place.end(process)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def message(order: Order, dropped: set[str], token: str, input_descriptor: int | None = None) -> Message:
    """The recorder's message for an order. dropped: the files that were dropped from the page cache before; this order's are added to it.
    input_descriptor: the child's standard input.
    """
    job, place = order.job, order.place
    child = {
        "runtime": place.file(os.path.abspath(job.runtime)) if job.runtime.endswith(".py") else job.runtime,
        "model": job.built or place.model(job.model),
        "threads": job.threads,
        "warmup": job.warmup,
        "runs": job.runs,
        "knobs": job.knobs,
        "shapes": job.shapes,
        "inputs": place.file(job.inputs) if job.inputs else None,
        "values": job.values,
        "ranges": job.ranges,
        "outputs": place.result(order.outputs) if order.outputs else None,
        "release": job.release,
    }
    if order.traced is not None:
        place.only_here("tracemalloc, whose answer is a file,")
        child["traced"] = order.traced
    if job.sessions > 1:
        child["sessions"] = job.sessions
    if job.use is not None:
        child["use"] = asdict(job.use)
    if order.until is not None or order.teardown:
        child.update(until=order.until, teardown=order.teardown)
    files = [*_files(order), *order.drop]
    drop = any(path not in dropped for path in files)
    dropped.update(files)
    start = Start(
        argv=(*order.wrap, *(order.argv or native.argv(order.runtime, job, order.until) or (*_program(order), "run"))),
        env={**order.env, TOKEN: token},
        cwd=order.cwd,
        stdin="" if order.command is not None else _line(child),
        input=input_descriptor,
        deterministic=job.deterministic,
        grace_ns=order.grace_ns,
        group=order.group,
        rlimits=order.rlimits,
        writers=order.writers or None,
        command=order.command,
        cpus=parse_cpus(job.cpus) if job.cpus else (),
    )
    ends = bool(job.phase_regexes) and not order.hold_units
    hold = Hold(HOLD_LIMIT_NS, order.hold_at, order.hold_units, ends) if job.hold else None
    return Message(job, start, job.timeout_ns, intervals(job), files, job.cache, drop, hold, report_ns=order.report_ns)


def _line(child: Mapping[str, object]) -> str:
    """A job as a line of so many whole pages. What the child allocates for it lies in front of the runtime's memory: a line as long as its model's
    path would move that, and ONNX Runtime's arena would fit into what is free there, or not.
    """
    text = json.dumps(child)
    return text.ljust(-(-(len(text) + 1) // _LINE_BYTES) * _LINE_BYTES - 1) + "\n"


def _program(order: Order) -> list[str]:
    path = order.place.runners()
    # A wrapper that is an interpreter itself may know nothing of programs that are folders.
    return [f"{path}/__main__.py"] if order.interprets else [order.python, path]


def _files(order: Order) -> list[str]:
    if order.job.built is None:
        return order.place.model_files(order.job.model)
    return conversion_cache.files(order.job.built)
