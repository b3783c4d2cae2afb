"""The process that measures at one place for a worker; its words are OFFER FOLDER PYTHON, and an empty word stands for the usual.

It holds the place's lease for as long as it lives, reads one Task per line from its standard input and writes one Event per line (see message.py). At
the end of its input it ends at once, with its processes. Measuring in a process beside the worker keeps Dask's work out of the figures, and a
comparison can be stopped at any moment.
"""

from __future__ import annotations

import fcntl
import os
import queue
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ..base.cache import cache_folder
from ..base.errors import InputError, MemprofError, UsageError, os_reason
from ..base.units import format_bytes
from ..campaign import campaign
from ..campaign.outputs import Outputs
from ..campaign.progress import Silent
from ..places.parse import reached
from ..places.place import HERE, Place
from ..places.recorder_bundle import recorder_command
from ..programs import runtimes
from ..records import store
from ..records.types import Job, Model
from ..subjects.order import Order
from ..subjects.orders import plan
from ..subjects.suite import Suite
from ..versions import installation, packages
from . import message, remote_builds
from .message import Event, Result, SearchRequest, Task
from .remote_builds import Unmade

_MOST_OUTPUTS = 64 << 20
_PIECE = 1 << 20
_LAST_S = 10  # for ending well, once the input has ended


def main() -> int:
    """See the module's text; the exit code. Raises KeyboardInterrupt at the end of its input."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    offer, folder, python = sys.argv[1:4]
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    try:
        with _held(offer, folder or None, python or None) as place:
            _prepare(place)
            machine = place.machine()
            _tell(facts={"machine": machine.name, "arch": machine.arch})
            result = Result()
            while result.how != "lost":  # a place that was lost is reached again
                result = _result(tasks.get(), place)
                _tell(end=result)
    except MemprofError as error:
        _tell(end=Result(0, "lost", str(error)))
    return 0


def _result(line: bytes, place: Place) -> Result:
    """Measure a Task; how that ended."""
    try:
        return Result(_measure(message.task(line), place))
    except UsageError as error:
        return Result(0, "usage", str(error))
    except Unmade as error:
        return Result(0, "unmade", "; ".join(error.reasons.values()), error.reasons)
    except _Lost as error:
        return Result(0, "lost", str(error))
    except (MemprofError, msgspec.DecodeError) as error:
        runtimes.forget()  # what was lacking may be installed before the next comparison comes
        return Result(0, "refused", str(error))
    except OSError as error:
        return Result(0, "refused", f"{error.filename or 'measuring'}: {os_reason(error)}")


def _prepare(place: Place) -> None:
    """Have what a first comparison would wait for: the recorder and, if the place is this machine, what its interpreter says of its runtimes."""
    with suppress(MemprofError):  # a comparison that needs it gets the reason
        recorder_command(place.recorder, place)
        if place is HERE:
            runtimes.describe(place.interpreter(None), None, place)


class _Lost(Exception):
    """The place was lost."""


def _read(tasks: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        tasks.put(line)
    threading.Timer(_LAST_S, os._exit, (1,)).start()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # a thread that waits hears nothing but a signal


def _tell(**words: Any) -> None:
    try:
        sys.stdout.buffer.write(message.encode(Event(**words)) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)  # the worker is gone


@contextmanager
def _held(offer: str, folder: str | None, python: str | None) -> Iterator[Place]:
    """The place, leased. This machine has a lease too: one worker at a time offers it. Raises InputError."""
    if offer != "here":
        with reached(offer, folder, python) as place:
            yield place
        return
    path = cache_folder("fleet") / "here.lease"
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError("here: another worker offers this machine") from None
        yield HERE


class _Teller(Silent):
    """Passes sentences on."""

    def say(self, sentence: str) -> None:
        _tell(remark=sentence)


def _measure(task: Task, place: Place) -> int:
    """How many Runs there are."""
    folder = message.folder_of(task)
    before = os.getcwd()
    try:
        for name in task.names.keys() - {file.name for file in task.files}:  # folders that commands run in
            (folder / name).mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        if task.sought is not None and task.sought.commits is not None:
            place.only_here("a commit, which is built first,")
            with remote_builds.built(task.sought.commits, task.sought.repeats, folder.resolve(), _remark) as orders:
                return _run(orders, task, folder)
        return _run(_planned(task, place), task, folder)
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def _remark(sentence: str) -> None:
    _tell(remark=sentence)


def _planned(task: Task, place: Place) -> list[Order]:
    """The orders of a suite's words."""
    suite = message.suite_of(task.suite, place)
    planned = plan(_with_versions(suite, task.sought, place) if task.sought is not None and task.sought.makes else suite)
    orders = [order for order in planned.orders if not task.repeats or order.job.repeat in task.repeats]
    if task.sought is not None:
        return _sought(orders, task.sought)
    for remark in planned.remarks:  # a search says its own
        _tell(remark=remark)
    return orders


def _run(orders: list[Order], task: Task, folder: Path) -> int:
    sought = task.sought or SearchRequest()
    _tell(plan=len(orders))
    outputs = Outputs(folder / "outputs.npz", folder / (sought.reference or "default.npz"))
    if sought.outputs:
        orders = outputs.asked(orders)
    for run in campaign.measure(orders, _Teller(), lambda line: None):
        if run.outcome.cut == "connection":
            raise _Lost(run.outcome.message)
        if sought.outputs:
            run = outputs.compared(run, run.job.variant == orders[0].job.variant)
        _tell(run=store.encode(replace(run, job=_named(run.job, task, folder))).decode())
    if sought.outputs == "sent":
        _send(outputs.reference)
    return len(orders)


def _sought(orders: Sequence[Order], sought: SearchRequest) -> list[Order]:
    """The orders that a search asks for, of those of the suite."""
    return [
        replace(order, job=_asked(order.job, sought))
        for order in orders
        if order.job.repeat in sought.repeats.get(order.job.variant, (order.job.repeat,))
    ]


def _asked(job: Job, sought: SearchRequest) -> Job:
    if sought.variant:
        job = replace(job, variant=sought.variant, version=job.variant)
    return replace(job, at=dict(sought.at), sessions=sought.sessions, verifies=sought.verifies, planned_bytes=sought.planned_bytes)


def _with_versions(suite: Suite, sought: SearchRequest, place: Place) -> Suite:
    """The suite with the environment of each variant, which is made if it is missing. Raises UsageError and InputError."""
    variants = []
    for variant in suite.variants:
        if sought.package:
            place.only_here(f"{sought.package} {variant.name}, which is installed first,")
            runtime = variant.runtime if variant.command is None else None
            package = packages.parse(sought.package, runtime, sought.beside, suite.python)
            variant = packages.inside(variant, package, package.ensure(variant.name, _remark))
        else:
            name, version = installation.parse(variant.runtime)
            if version is not None:
                place.only_here(f"{variant.runtime}, which is installed first,")
                known = installation.PipPackage.of(installation.known(name))
                made = installation.ensure(known, version, _remark)
                variant = replace(variant, runtime=name, python=made.interpreter)
        variants.append(variant)
    return replace(suite, variants=tuple(variants))


def _send(outputs: Path) -> None:
    """Hand the default's outputs to the desk, if they are there and not too large for it."""
    size = outputs.stat().st_size if outputs.exists() else 0
    if size > _MOST_OUTPUTS:
        _remark(
            f"the model's outputs have {format_bytes(size)}, more than the {format_bytes(_MOST_OUTPUTS)} that travel: they are compared "
            "only when the proposals are verified"
        )
    elif size:
        with outputs.open("rb") as file:
            while piece := file.read(_PIECE):
                _tell(outputs=piece)


def _named(job: Job, task: Task, folder: Path) -> Job:
    names = {str(folder.resolve() / name): name_there for name, name_there in task.names.items()}

    def name(path: str) -> str:
        return names.get(os.path.abspath(path), path) if os.sep in path else path

    return replace(
        job,
        model=task.model if task.model is not None else _renamed(job.model, names),
        runtime=name(job.runtime),
        inputs=name(job.inputs) if job.inputs else None,
        cwd=name(job.cwd) if job.cwd else None,
        argv=tuple(map(name, job.argv)),
        program=replace(job.program, path=name(job.program.path)) if job.program else None,
    )


def _renamed(model: Model, names: Mapping[str, str]) -> Model:
    """The model that a command names, by the desk's paths."""
    files = tuple(replace(file, path=names.get(file.path, file.path)) for file in model.files)
    return replace(model, path=names.get(model.path, model.path), files=files)


def run() -> None:
    """`main`, and the end of the process. The end of the input interrupts it wherever it is, also while it ends by itself."""
    code = 0
    with suppress(KeyboardInterrupt):
        code = main()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    os._exit(code)  # the thread that reads would hold its buffer while the interpreter ends
