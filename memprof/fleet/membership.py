"""Files on a worker's side: the pieces that a desk sends, kept by content, and the folder of a comparison made of them.

fleet/files/SHA256          its time is that of its last use; a comparison that uses it has a second link to it
fleet/files/SHA256.*.part   on its way
fleet/comparison-*          see message.folder_of
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..base.cache import cache_folder
from ..base.errors import InputError, os_reason
from ..base.files import sha256_of
from ..base.units import format_bytes
from . import message
from .message import Sent, Task
from .worker_slots import Cancelled

_LOOK_S = 0.2  # how often a thread that waits looks whether its comparison was cancelled
LIMIT_BYTES = 20 << 30  # of all kept files together
_SILENCE_S = 60.0  # how long a desk may send nothing of a file that is needed


def keep(task: str, sha256: str, offset: int, size: int, data: bytes) -> str:
    """A piece of a file, from a desk. The reason if it cannot be kept, else nothing."""
    path = _kept(sha256)
    if path.exists():
        return ""
    part = path.with_name(f"{sha256}.{hashlib.sha256(task.encode()).hexdigest()[:8]}.part")
    try:
        if offset == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(b"")
            free = shutil.disk_usage(path.parent).free
            if free < size:
                raise InputError(f"{format_bytes(size)} are to be sent and {format_bytes(free)} are free")
        with part.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        if offset + len(data) >= size:
            if sha256_of(part)[0] != sha256:
                part.unlink()
                raise InputError("it was damaged or changed on its way")
            part.chmod(0o700)
            part.rename(path)
    except (OSError, InputError) as error:
        part.unlink(missing_ok=True)
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        with _ARRIVALS.came:
            _ARRIVALS.refused[sha256] = reason
            _ARRIVALS.noted()
        return f"{path.parent} on {os.uname().nodename}: {reason}"
    with _ARRIVALS.came:
        _ARRIVALS.noted()
    return ""


@dataclass
class _Arrivals:
    """Files on their way to this process: why one could not be kept, and when the last piece of any came, which wakes who waits for it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    came: threading.Condition = field(default_factory=threading.Condition)
    refused: dict[str, str] = field(default_factory=dict)
    last: float = 0.0

    def noted(self) -> None:
        """A piece came, or could not be kept. Called with `came` held."""
        self.last = time.monotonic()
        self.came.notify_all()


_ARRIVALS = _Arrivals()


def _kept(sha256: str) -> Path:
    return cache_folder("fleet") / "files" / sha256


def bring(task: Task, tell: Callable[..., None], cancelled: Callable[[], bool]) -> None:
    """All files of a comparison in its folder, the missing ones asked for first. Raises InputError and Cancelled."""
    folder = message.folder_of(task)
    shutil.rmtree(folder, ignore_errors=True)
    for file in task.files:
        if not (folder / file.name).resolve().is_relative_to(folder.resolve()):
            raise InputError(f"the desk named a file outside of its folder: {file.name}")
    folder.mkdir(parents=True)
    while not _ARRIVALS.lock.acquire(timeout=_LOOK_S):  # another place of this worker may be asking for the same file
        if cancelled():
            raise Cancelled
    try:
        for file in task.files:
            if file.content:  # what cannot be kept is asked for, and its reason is said then
                keep(task.comparison, file.sha256, 0, file.bytes, file.content)
        came = any(file.content for file in task.files)
        while missing := {file.sha256: file for file in task.files if not _linked(file, folder / file.name)}:
            _await(missing, tell, cancelled)
            came = True
        if came:
            _bound()
    finally:
        _ARRIVALS.lock.release()


def _linked(file: Sent, target: Path) -> bool:
    """Whether a file is in its comparison's folder now, where nobody can remove it any more."""
    kept = _kept(file.sha256)
    try:
        os.utime(kept)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(kept, target)
    except FileNotFoundError:
        return False
    except FileExistsError:  # linked before others were waited for
        pass
    return True


def _bound() -> None:
    """Remove the files that were used least recently until all together take no more than the limit; none that a comparison uses."""
    found = []
    for path in (cache_folder("fleet") / "files").iterdir():
        with suppress(FileNotFoundError):  # another worker of this cache removes too
            found.append((path.stat(), path))
    total = sum(facts.st_size for facts, _ in found)
    for facts, path in sorted(found, key=lambda item: item[0].st_mtime):
        if total <= LIMIT_BYTES:
            return
        if facts.st_nlink == 1:
            path.unlink(missing_ok=True)
            total -= facts.st_size


def tidy() -> None:
    """Remove the folders of comparisons that ended with the machine: they are older than its start, and hold files. Raises InputError."""
    started_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for folder in cache_folder("fleet").glob("comparison-*"):
        with suppress(OSError):
            if folder.stat().st_mtime < started_s:
                shutil.rmtree(folder)


def _await(missing: Mapping[str, Sent], tell: Callable[..., None], cancelled: Callable[[], bool]) -> None:
    for sha256 in missing:
        _ARRIVALS.refused.pop(sha256, None)
    _ARRIVALS.last = time.monotonic()
    tell(needs=tuple(missing))
    with _ARRIVALS.came:
        while any(not _kept(sha256).exists() for sha256 in missing):
            for sha256, file in missing.items():
                if sha256 in _ARRIVALS.refused:
                    name = os.path.basename(file.name)
                    raise InputError(
                        f"{name} cannot be kept on {os.uname().nodename}, in {_kept(sha256).parent}: {_ARRIVALS.refused[sha256]}; "
                        "XDG_CACHE_HOME of its worker can name another place"
                    )
            if cancelled():
                raise Cancelled
            if time.monotonic() - _ARRIVALS.last > _SILENCE_S:
                raise InputError(f"the desk sent nothing of a file for {_SILENCE_S:.0f} s")
            _ARRIVALS.came.wait(_LOOK_S)
