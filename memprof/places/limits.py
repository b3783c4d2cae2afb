"""Ways to limit memory on this machine: a control group of version 1 or 2, or as second best a limit of the process itself.

Groups are named, noted and removed as memprof.base.control_groups says.
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ..base.control_groups import PREFIX, note_groups_in, remove_orphans
from ..base.errors import InputError
from ..records.recorder_order import GroupOrder
from .cgroups import GROUP_FILES, Hierarchy, hierarchies
from .place import HERE

By = Literal["auto", "cgroup", "data", "address-space"]
_RLIMITS = {"data": "RLIMIT_DATA", "address-space": "RLIMIT_AS"}
_TRIES = 5


class LimitRefusal(Exception):
    """The kernel does not lower the limit: the memory in use does not fit into it."""


class Limiter(Protocol):
    """A way to limit a child's memory. words: its name for people; exact: whether it counts resident memory."""

    words: str
    exact: bool

    def start(self, limit: int | None) -> dict[str, object]:
        """The fields of an Order (group, rlimits, wrap) that start it under a limit in bytes, None for no limit."""

    def change(self, pid: int, limit: int | None) -> None:
        """Set another limit for the child that was started last. Raises LimitRefusal."""


@dataclass
class Groups:
    """Control groups under a folder that this process may write to."""

    folder: Path
    version: int
    exact: bool = True

    def __post_init__(self) -> None:
        self.words = f"a control group (version {self.version})"
        self._numbers = itertools.count(1)
        self._last = ""

    def start(self, limit: int | None) -> dict[str, object]:
        self._last = str(self.new_folder())
        return group(self._last, self.version, limit)

    def new_folder(self) -> Path:
        """The path of a new group."""
        return self.folder / f"{PREFIX}-{HERE.owner()}-{next(self._numbers)}"

    def change(self, pid: int, limit: int | None) -> None:
        files = GROUP_FILES[self.version]
        for attempt in range(_TRIES):
            try:
                (Path(self._last) / files.limit).write_text(files.none if limit is None else str(limit))
                return
            except FileNotFoundError:
                return  # the child has just ended
            except OSError as error:  # EBUSY: version 1 could not make room
                if attempt == _TRIES - 1:
                    raise LimitRefusal(os.strerror(error.errno or 0)) from None
                time.sleep(0.01)


@dataclass
class Scopes:
    """Transient scopes of the user's systemd, if systemd hands out groups: systemd-run makes a scope, moves itself into it, and becomes the child."""

    mount: Path
    words: str = "the control group of a systemd scope"
    exact: bool = True

    def start(self, limit: int | None) -> dict[str, object]:
        return scope(limit)

    def change(self, pid: int, limit: int | None) -> None:
        with suppress(FileNotFoundError, ProcessLookupError):
            (line,) = (row for row in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if row.startswith("0::"))
            (self.mount / line[3:].lstrip("/") / GROUP_FILES[2].limit).write_text(GROUP_FILES[2].none if limit is None else str(limit))


_SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--collect")


def group(path: str, version: int, limit: int | None) -> dict[str, object]:
    """The fields of an Order whose child gets a group of this path, without swap: it would only hide the memory that does not fit."""
    files = GROUP_FILES[version]
    return {"group": GroupOrder(path, ((files.swap, "0"), (files.limit, files.none if limit is None else str(limit))))}


def scope(limit: int | None) -> dict[str, object]:
    """As `group`, for a scope of the user's systemd."""
    bounds = ("-p", f"MemoryMax={'infinity' if limit is None else limit}", "-p", "MemorySwapMax=0")
    return {"wrap": (*_SCOPE, *bounds, "--")}


@dataclass
class Rlimits:
    """A limit of the process: on the memory that it allocates, touched or not, rather than on resident memory."""

    kind: str
    exact: bool = False

    def __post_init__(self) -> None:
        self.words = f"{self.kind}, which counts allocated and not resident memory"

    def start(self, limit: int | None) -> dict[str, object]:
        return {"rlimits": None if limit is None else {self.kind: limit}}

    def change(self, pid: int, limit: int | None) -> None:
        number = getattr(resource, self.kind)
        with suppress(ProcessLookupError):
            hard = resource.prlimit(pid, number)[1]
            resource.prlimit(pid, number, (hard if limit is None else limit, hard))


def find(by: By = "auto") -> Limiter:
    """The best limiter there is, or the kind that `by` names. Raises InputError if that kind cannot be had."""
    if by in _RLIMITS:
        return Rlimits(_RLIMITS[by])
    try:
        mounted = hierarchies()
    except OSError:
        mounted = []
    groups = _groups(mounted)
    if groups is not None:
        remove_orphans(groups.folder)
        return groups
    scopes = _scopes(mounted)
    if scopes is not None:
        return scopes
    if by == "cgroup":
        raise InputError("no control group with a memory limit can be made here (try as root, or --by data)")
    return Rlimits(_RLIMITS["data"])


def _groups(mounted: Sequence[Hierarchy]) -> Groups | None:
    for version, mount, own in mounted:
        for folder in (own, *own.parents):
            if not str(folder).startswith(str(mount)):
                break
            if _usable(folder, version):
                return Groups(folder, version)
    return None


def _scopes(mounted: Sequence[Hierarchy]) -> Scopes | None:
    mount = next((mount for version, mount, _ in mounted if version == 2), None)
    if mount is None or shutil.which(_SCOPE[0]) is None:
        return None
    try:
        trial = [*_SCOPE, "-p", "MemoryMax=1G", "--", "true"]
        process = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Scopes(mount) if process.returncode == 0 else None


def _usable(folder: Path, version: int) -> bool:
    """Whether a group with a memory limit can be made in this folder, found by making a group."""
    trial = folder / f"{PREFIX}-{HERE.owner()}-0"
    try:
        trial.mkdir()
    except OSError:
        return False
    try:
        note_groups_in(folder)
        name = GROUP_FILES[version].limit
        return os.access(trial / name, os.W_OK) and os.access(trial / "cgroup.procs", os.W_OK) and _may_join(trial)
    finally:
        with suppress(OSError):
            trial.rmdir()


def _may_join(group: Path) -> bool:
    """Whether a process can be moved into the group: version 2 refuses groups that are not delegated."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(writing)
            (group / "cgroup.procs").write_text("0")
            code = 0
        finally:
            os._exit(code)
    os.close(reading)
    os.close(writing)
    joined = os.waitpid(pid, 0)[1] == 0
    end = time.monotonic() + 1
    while joined and (group / "cgroup.procs").read_text() and time.monotonic() < end:
        time.sleep(0.005)
    return joined
