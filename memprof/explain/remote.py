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
from typing import Any, Protocol

import msgspec

from ..base.errors import InputError
from ..base.leftovers import scratch
from ..campaign.recorder_client import HOLD_LIMIT_NS
from ..places.connection import why_failed
from ..programs import source_zips
from ..records.types import Job
from ..subjects.order import Order
from . import remote_look, snapshot
from .glibc import GlibcHeap, Ranges
from .memory_map import PAGE, Mapping, Pages, ProcessEndError, Unreadable
from .scan import Hits, Keys
from .snapshot import ProcessSnapshot
from .whole_weights import Small, Whole

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


class Looker(Protocol):
    """Takes looks at the process of an order."""

    def take(self, pid: int, phase: str, weights: bool) -> ProcessSnapshot:
        """A look; weights: whether to look for them. Raises memory_map.Gone, memory_map.Unreadable, and InputError where a place cannot be asked."""

    def model_files(self, job: Job) -> Identities:
        """Device and inode of every file that holds the model, as given or as converted."""


def looker(order: Order, index: Keys | None, tiny: Small | None) -> Looker:
    """The Looker for an order's place. index, tiny: what to look for. Raises InputError if nothing can be looked at there."""
    return _Beside(index, tiny) if order.place.beside else _There(order, index, tiny)


class _Beside:
    def __init__(self, index: Keys | None, tiny: Small | None) -> None:
        self._weights = index, tiny

    def take(self, pid: int, phase: str, weights: bool) -> ProcessSnapshot:
        return snapshot.take(pid, phase, *(self._weights if weights else (None, None)))

    def model_files(self, job: Job) -> Identities:
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
    def __init__(self, order: Order, index: Keys | None, tiny: Small | None) -> None:
        python = order.python or order.place.python or _PYTHON  # of a program, the recorder's
        self._place, self._name = order.place, f"{python} on {order.place.name}"
        # A runtime's interpreter has numpy for the runtime, so it is started with the runtime's variables. A program has none, nor shall its
        # variables act on one.
        variables = [f"{name}={value}" for name, value in order.env.items() if value is not None] if order.python else []
        self._start = ["env", *variables, python, "-c", _START, order.place.sources(_sources())]
        self._answered(self._run(_SHORT_S, "files"))  # before anything is measured
        with scratch("looker") as work:
            path = work.folder / "sought"
            path.write_bytes(remote_look.sought(index, tiny))
            self._sought = order.place.file(str(path))

    def take(self, pid: int, phase: str, weights: bool) -> ProcessSnapshot:
        done = self._run(_WITHIN_S, "look", self._sought if weights else "", str(pid))
        if done.returncode == remote_look.GONE:
            raise ProcessEndError(why_failed(done))
        if done.returncode:
            raise Unreadable(f"{self._name}: {why_failed(done)}")
        try:
            return _look(phase, *remote_look.unpacked(done.stdout))
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


class _RemoteFiles(msgspec.Struct):
    page: int
    files: list[tuple[int, int]]


class _Hits(msgspec.Struct):
    bytes: int
    skipped: int
    time_ns: int


class _Facts(msgspec.Struct):
    """See remote_look.told."""

    mappings: tuple[Mapping, ...]
    arenas: int
    complete: bool
    stack_pointers: tuple[int, ...]
    hits: _Hits | None
    empty_huge_bytes: int
    stood_still_ns: int
    whole: tuple[Whole, ...]


def _look(phase: str, facts: Any, arrays: remote_look.Arrays) -> ProcessSnapshot:
    known = msgspec.convert(facts, _Facts)
    used, free, mapped, arenas_free = (Ranges(*arrays[name]) for name in ("used", "free", "mapped", "arenas_free"))
    hits = known.hits
    return ProcessSnapshot(
        phase,
        known.mappings,
        Pages(arrays["address"], arrays["mapping"], arrays["filed"]),
        GlibcHeap(used, free, mapped, known.arenas, arenas_free, known.complete),
        known.stack_pointers,
        Hits(arrays["hit_addresses"], arrays["hit_keys"], hits.bytes, hits.skipped, hits.time_ns) if hits is not None else None,
        known.empty_huge_bytes,
        known.stood_still_ns,
        known.whole,
    )


@lru_cache(maxsize=1)
def _sources() -> Path:
    """The zip file of remote_look.py and what it imports."""
    top = Path(__file__).parent
    paths: Iterable[tuple[str, Path]] = (
        *((f"memprof/base/{name}.py", top.parent / f"base/{name}.py") for name in ("__init__", "errors")),
        *((f"memprof/explain/{name}.py", top / f"{name}.py") for name in _MODULES),
    )
    return source_zips.zipped("looker", {"memprof/__init__.py": b"", **{name: path.read_bytes() for name, path in paths}})
