"""One Order in, one Run out: a probe is started, given its line and listened to."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace

from ..errors import InputError
from ..programs import native
from ..runs import signing, store
from ..runs.records import SCHEMA, STARTUP, Job, Outcome, Run
from . import built, groups
from .bundle import probe_command
from .driving import Driving
from .leftovers import TOKEN, end_marked
from .message import Hold, Message, Start, encode
from .order import Order, intervals
from .places.place import HERE, Place, Probe, Started
from .suite import parse_cpus

HOLD_LIMIT_NS = 300 * 10**9
_LINE_BYTES = 4096
_SILENCES = 8  # beats that a probe may miss before it takes memprof for gone


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
    probe: Probe = "python",
    driving: Driving | None = None,
) -> tuple[Run, bytes]:
    """A probe's Run, and its line. A probe that ends without one, whoever killed it, makes a Run that says so.

    look: see `campaign.measure`. began: called with the probe as soon as it has its line. input_descriptor: the child's standard input, which
    the probe must inherit. say: called with each sentence that the child has for the user while it runs. so_far: called
    with the line of a Run that has not ended, as often as the message asks. driving: asks the child for work.
    """
    started_ns, phase, rss, answer = time.time_ns(), STARTUP, 0, b""
    if place.beat_ns:
        message = replace(message, silence_ns=_SILENCES * place.beat_ns)
    with _probe(place, probe, input_descriptor) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(encode(message))
            process.stdin.flush()
        began(process)
        if driving is not None:
            driving.start(process)
        for line in place.lines(process):
            word, _, content = line.rstrip(b"\n").partition(b" ")
            if word == b"run":
                answer = content
            elif word == b"live":
                name, _, size = content.rpartition(b" ")
                phase, rss = (phase if name == b"-" else name.decode()), int(size)
                live(name.decode(), rss)
            elif word == b"sofar":
                so_far(content + b"\n")
            elif word == b"say":
                say(content.decode("utf-8", "replace"))
            elif word == b"ended" and driving is not None:
                driving.heard()
            elif word == b"held":
                name, _, pid = content.rpartition(b" ")
                if look is not None:
                    look(job, name.decode(), int(pid))
                with suppress(BrokenPipeError):
                    process.stdin.write(b"go\n")
                    process.stdin.flush()
        if driving is not None:
            driving.end()
        errors = process.stderr.read().decode("utf-8", "replace").strip()
    try:
        return store.decode(answer, "its answer"), answer + b"\n"
    except InputError as error:
        end_marked({token})  # the child ended with its probe, but not the processes that it had started
        if message.start.group is not None and not place.broken(process):  # a probe there that lives removes it
            with suppress(InputError):
                groups.remove(place, str(message.start.group["path"]))
        reason = str(error) if answer else errors.splitlines()[-1] if errors else _exit(process.returncode or 0)
    words = _broke(place) if place.broken(process) else f"the probe ended without a result ({reason})"
    return without_probe(job, started_ns, Outcome("lost", phase, words, rss_last_bytes=rss or None), place)


def _broke(place: Place) -> str:
    return f"the connection to {place.name} broke"


def connection_broke(run: Run, place: Place) -> bool:
    """Whether a Run was lost with the way to its place."""
    return run.outcome.status == "lost" and run.outcome.message == _broke(place)


def signed(run: Run, line: bytes) -> tuple[Run, bytes]:
    """The Run and its line with this user's signature, where a key can be kept."""
    signature = signing.signature(run.job)
    if signature is None:
        return run, line
    body = line.rstrip(b"\n").removesuffix(b"}").removesuffix(b',"signature":null')  # the last field: the probe leaves it out
    return replace(run, signature=signature), body + b',"signature":"%s"}\n' % signature.encode()


def without_probe(job: Job, started_ns: int, outcome: Outcome, place: Place = HERE) -> tuple[Run, bytes]:
    """A failed Run that no probe has measured, and its line."""
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
def _probe(place: Place, kind: Probe, input_descriptor: int | None) -> Iterator[Started]:
    """A probe that waits for its line. At the end of the block it is gone, with all that it started. input_descriptor: see `ask`."""
    command = probe_command(kind, place)
    # An interruption inside Popen would leave a probe that nobody knows of. Inside the block the probe is known, and ended.
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
    """The probe's message for an order. dropped: the files that were dropped from the page cache before; this order's are added to it.
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
        argv=(*order.wrap, *(order.argv or native.argv(order.runtime, job) or (*_program(order), "run"))),
        env={**order.env, TOKEN: token},
        cwd=order.cwd,
        stdin="" if order.command is not None else _line(child),
        input=input_descriptor,
        deterministic=job.deterministic,
        grace_ns=order.grace_ns,
        group=order.group,
        rlimits=order.rlimits,
        command=order.command,
        cpus=parse_cpus(job.cpus) if job.cpus else (),
    )
    hold = Hold(HOLD_LIMIT_NS, order.hold_at, order.hold_units) if job.hold else None
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
    return built.files(order.job.built)
