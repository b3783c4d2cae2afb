"""Files on a worker's side: the pieces that a desk sends, kept by content, and the folder of a comparison made of them.

fleet/files/SHA256          its time is that of its last use; a comparison that uses it has a second link to it
fleet/files/SHA256.*.part   on its way
fleet/comparison-*          see message.folder_of
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
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


@dataclass
class _Transfers:
    """Files on their way to this process. lock: of the only comparison that fetches. changed: a piece came, or a file was refused, at `last_s`.
    refused: why a file cannot be kept, by its hash."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Event = field(default_factory=threading.Event)
    last_s: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)


_TRANSFERS = _Transfers()


def _kept(sha256: str) -> Path:
    return cache_folder("fleet") / "files" / sha256


def keep(execution: str, sha256: str, offset: int, size: int, data: bytes) -> str:
    """A piece of a file, from a desk. The reason if it cannot be kept, else nothing."""
    reason = ""
    try:
        if not _kept(sha256).exists():
            _add(_kept(sha256).with_name(f"{sha256}.{execution}.part"), sha256, offset, size, data)
    except (OSError, InputError) as error:
        reason = _TRANSFERS.refused[sha256] = os_reason(error) if isinstance(error, OSError) else str(error)
    _TRANSFERS.last_s = time.monotonic()
    _TRANSFERS.changed.set()
    return reason


def _add(part: Path, sha256: str, offset: int, size: int, data: bytes) -> None:
    try:
        if offset == 0:
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(b"")
            free = shutil.disk_usage(part.parent).free
            if free < size:
                raise InputError(f"{format_bytes(size)} are to be sent and {format_bytes(free)} are free")
        with part.open("r+b") as file:
            file.seek(offset)
            file.write(data)
        if offset + len(data) >= size:
            if sha256_of(part)[0] != sha256:
                raise InputError("it was damaged or changed on its way")
            part.chmod(0o700)
            part.rename(_kept(sha256))
    except (OSError, InputError):
        part.unlink(missing_ok=True)
        raise


def fetch(task: Task, report: Callable[..., None], cancelled: Callable[[], bool]) -> None:
    """All files of a comparison in its folder, the missing ones asked for first. Raises InputError and Cancelled."""
    folder = message.folder_of(task)
    for file in task.files:
        if not (folder / file.name).resolve().is_relative_to(folder.resolve()):
            raise InputError(f"the desk named a file outside of its folder: {file.name}")
    while not _TRANSFERS.lock.acquire(timeout=_LOOK_S):  # another place of this worker may be fetching the same file
        if cancelled():
            raise Cancelled
    try:
        missing = first = _unlinked(task.files, folder)
        while missing:
            _wait(missing, report, cancelled)
            missing = _unlinked(missing, folder)
        if first:
            _bound()
    finally:
        _TRANSFERS.lock.release()


def _unlinked(files: tuple[Sent, ...], folder: Path) -> tuple[Sent, ...]:
    """Those of the files that are not kept. The others are in their comparison's folder now, where nobody can remove them any more."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(file for file in files if not _linked(_kept(file.sha256), folder / file.name))
    except OSError as error:
        raise InputError(f"{error.filename or folder} on {os.uname().nodename}: {os_reason(error)}") from None


def _linked(kept: Path, target: Path) -> bool:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.utime(kept)
        os.link(kept, target)
    except FileNotFoundError:
        return False
    return True


def _wait(missing: tuple[Sent, ...], report: Callable[..., None], cancelled: Callable[[], bool]) -> None:
    """Ask for files, and wait until all are kept. Raises InputError if one cannot be, or does not come, and Cancelled."""
    for file in missing:
        _TRANSFERS.refused.pop(file.sha256, None)
    _TRANSFERS.last_s = time.monotonic()
    report(needs=tuple(dict.fromkeys(file.sha256 for file in missing)))
    while not all(_kept(file.sha256).exists() for file in missing):
        for file in missing:
            if reason := _TRANSFERS.refused.get(file.sha256):
                name, where = os.path.basename(file.name), f"{os.uname().nodename}, in {_kept(file.sha256).parent}"
                raise InputError(f"{name} cannot be kept on {where}: {reason}; XDG_CACHE_HOME of its worker can name another place")
        if cancelled():
            raise Cancelled
        if time.monotonic() - _TRANSFERS.last_s > _SILENCE_S:
            raise InputError(f"the desk sent nothing of a file for {_SILENCE_S:.0f} s")
        _TRANSFERS.changed.wait(_LOOK_S)
        _TRANSFERS.changed.clear()


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
