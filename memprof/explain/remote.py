"""Looks at a process wherever it stands still: from here, or on another machine by a program that is sent there (remote_look.py).

Reading the process's memory from here through a connection would send all of it, several times. There the program reads it in place, and sends
which pages there are and where the weights lie.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..base.errors import InputError
from ..base.leftovers import scratch
from ..campaign.recorder_client import HOLD_LIMIT_NS
from ..places.connection import why_failed
from ..programs import source_zips
from ..records.types import Job
from ..subjects.order import Order
from . import remote_look, snapshot
from .memory_map import PAGE, ProcessEndError, Unreadable
from .scan import Keys
from .snapshot import ProcessSnapshot
from .snippets import Index
from .whole_weights import Small

Identities = frozenset[tuple[int, int]]

_MODULES = ("__init__", "filtering", "glibc", "hashing", "memory_map", "remote_look", "scan", "snapshot", "whole_weights")
_START = """
import sys
sys.path[0] = sys.argv[1]
if sys.version_info < (3, 10):
    sys.exit("it is Python %d.%d, and looking at a process there needs 3.10 or later" % sys.version_info[:2])
try:
    import numpy
except ImportError:
    sys.exit("it has no numpy, which looking at a process there needs")
from memprof.explain.remote_look import main
sys.exit(main(sys.argv[2:]))
"""
_PYTHON = "python3"
_WITHIN_S = HOLD_LIMIT_NS // 10**9 - 10  # a recorder holds a process somewhat longer, or the end of a look would see it run again
_SHORT_S = 120


def looker(order: Order, index: Index | None, tiny: Small | None) -> Looker:
    """The Looker for an order's place. index, tiny: what to look for. Raises InputError if nothing can be looked at there."""
    keys = index.keys if index is not None else None
    return _Beside(keys, tiny) if order.place.beside else _There(order, keys, tiny)


class _Beside:
    def __init__(self, keys: Keys | None, tiny: Small | None) -> None:
        self._weights = keys, tiny

    def take(self, pid: int, phase: str, weights: bool) -> ProcessSnapshot:
        """A look; weights: whether to look for them. Raises memory_map.ProcessEndError and memory_map.Unreadable, and InputError where a place cannot
        be asked."""
        return snapshot.take(pid, phase, *(self._weights if weights else (None, None)))

    def model_files(self, job: Job) -> Identities:
        """Device and inode of every file that holds the model, as given or as converted."""
        paths = [Path(file.path) for file in job.model.files]
        if job.built is not None:
            paths += [path for path in Path(job.built).parent.iterdir() if path.is_file() and path.name != "built.json"]
        identities = set()
        for path in paths:
            try:
                facts = os.stat(path)
            except OSError:
                continue
            identities.add((facts.st_dev, facts.st_ino))
        return frozenset(identities)


class _There:
    def __init__(self, order: Order, keys: Keys | None, tiny: Small | None) -> None:
        python = order.python or order.place.python or _PYTHON  # of a program, the recorder's
        self._place, self._name = order.place, f"{python} on {order.place.name}"
        # A runtime's interpreter has numpy for the runtime, so it is started with the runtime's variables. A program has none, nor shall its
        # variables act on one.
        variables = [f"{name}={value}" for name, value in order.env.items() if value is not None] if order.python else []
        self._start = ["env", *variables, python, "-c", _START, order.place.sources(_sources())]
        self._answered(self._run(_SHORT_S, "files"))  # before anything is measured
        with scratch("looker") as work:
            path = work.folder / "sought"
            path.write_bytes(remote_look.packed((keys, tiny)))
            self._sought = order.place.file(str(path))

    def take(self, pid: int, phase: str, weights: bool) -> ProcessSnapshot:
        done = self._run(_WITHIN_S, "look", self._sought if weights else "", str(pid))
        if done.returncode == remote_look.GONE:
            raise ProcessEndError(why_failed(done))
        if done.returncode:
            raise Unreadable(f"{self._name}: {why_failed(done)}")
        try:
            return look(phase, done.stdout)
        except (msgspec.MsgspecError, ValueError, LookupError, TypeError, EOFError, zlib.error) as error:
            raise InputError(f"{self._name}: its answer cannot be read: {error}") from None

    def model_files(self, job: Job) -> Identities:
        return self._answered(self._run(_SHORT_S, "files", *self._place.model_files(job.model)))

    def _answered(self, done: subprocess.CompletedProcess[bytes]) -> Identities:
        if done.returncode:
            raise InputError(f"{self._name}: {why_failed(done)}")
        try:
            answer = msgspec.json.decode(done.stdout, type=_RemoteFiles)
        except (msgspec.MsgspecError, ValueError) as error:  # an interpreter may print as it starts
            raise InputError(f"{self._name}: its answer cannot be read: {error}") from None
        if answer.page != PAGE:
            raise InputError(
                f"{self._place.name} has pages of {answer.page >> 10} KiB, and this machine of {PAGE >> 10} KiB: "
                "a process there can only be explained by a memprof on a machine with the same"
            )
        return frozenset(answer.files)

    def _run(self, timeout_s: int, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return self._place.run([*self._start, *words], timeout_s)
        except subprocess.TimeoutExpired:
            raise InputError(f"{self._name}: the program that looks at a process took more than {timeout_s} s") from None


Looker = _Beside | _There


class _RemoteFiles(msgspec.Struct):
    page: int
    files: list[tuple[int, int]]


def look(phase: str, answer: bytes) -> ProcessSnapshot:
    """The look that remote_look.py sent. Raises as its `unpacked`, and MsgspecError or TypeError for something else."""
    return msgspec.convert(remote_look.unpacked(answer), ProcessSnapshot, dec_hook=_array)._replace(phase=phase)


def _array(kind: Any, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"an array is {type(value).__name__}")
    return value


@lru_cache(maxsize=1)
def _sources() -> Path:
    """The zip file of remote_look.py and what it imports."""
    top = Path(__file__).parent
    paths: Iterable[tuple[str, Path]] = (
        *((f"memprof/base/{name}.py", top.parent / f"base/{name}.py") for name in ("__init__", "errors", "mappings")),
        *((f"memprof/explain/{name}.py", top / f"{name}.py") for name in _MODULES),
    )
    return source_zips.zipped("looker", {"memprof/__init__.py": b"", **{name: path.read_bytes() for name, path in paths}})
