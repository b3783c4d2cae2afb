"""Where a file may be written, and files that appear whole or not at all: written beside their place under another name, then renamed.
Files mapped to be read, and the SHA-256 of their content."""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import InputError, os_reason

_HEAD = 256
_MOST_OF_A_STREAM = 128 << 20
FORCE = "--force replaces it"  # the advice of commands that write models and plans

Data = mmap.mmap | bytes  # of a file that is mapped, or was read


class Torn(Exception):
    """The bytes of a file are not as its format says, or end too early."""


def check_target(path: Path, may_replace: Callable[[bytes], bool] | None = None, what: str = "") -> None:
    """Raises InputError if it is known beforehand that no file can be written at this path.

    may_replace: whether a file that begins with these bytes may be replaced, None for any file. what: such a file in words, `a PNG picture`.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} cannot be written: it is a folder")
        if not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
        if _in_place(path):
            return
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InputError(f"{path} cannot be written: no permission to write in {path.parent}")
        if path.exists():
            if not os.access(path, os.W_OK):
                raise InputError(f"{path} cannot be written: no permission to replace it")
            if may_replace is not None:
                with path.open("rb") as file:
                    head = file.read(_HEAD)
                if head and not may_replace(head.lstrip()):
                    raise InputError(f"{path} exists and is not {what}; it was left as it is")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


def check_new(*paths: Path, instead: str, overwrite: bool = False) -> None:
    """`check_target` for each path. Without `overwrite` a file that exists raises InputError too; instead: advice for its message."""
    for path in paths:
        check_target(path)
        if not overwrite and os.path.lexists(path):
            raise InputError(f"{path} exists; {instead}")


@contextmanager
def drafts(*paths: Path) -> Iterator[list[Path]]:
    """A draft beside each path, to be written to. The drafts take the paths' names together when the block ends well, and vanish when it fails.

    The first path names the file by which the others are found. If there are several, its old file goes first and its draft takes the name
    last, so that no model ever stands beside another's data. A link is followed. A device or a pipe cannot be replaced: it is its own draft.
    Raises OSError.
    """
    targets = [path if _in_place(path) else path.resolve() for path in paths]
    beside = [target if _in_place(target) else _beside(target) for target in targets]
    pairs = [(draft, target) for draft, target in zip(beside, targets, strict=True) if draft != target]
    try:
        yield beside
        for draft, target in pairs:
            with suppress(FileNotFoundError):
                shutil.copymode(target, draft)
        if len(pairs) > 1:
            targets[0].unlink(missing_ok=True)
        for draft, target in reversed(pairs):
            os.replace(draft, target)
    finally:
        for draft, _ in pairs:
            draft.unlink(missing_ok=True)


@contextmanager
def replacing(*paths: Path) -> Iterator[list[BinaryIO]]:
    """`drafts`, opened. Where the file system can, they have no names while they are written: of a process that is killed nothing stays. Raises
    OSError."""
    with drafts(*paths) as beside, ExitStack() as stack:
        written: list[BinaryIO] = []
        unnamed: list[tuple[BinaryIO, Path]] = []
        for draft in beside:
            file = _nameless(draft)
            written.append(stack.enter_context(file or draft.open("wb")))
            if file is not None:
                unnamed.append((file, draft))
        yield written
        for file, draft in unnamed:
            _give_name(file, draft)


def _nameless(draft: Path) -> BinaryIO | None:
    """A new file in the folder of a draft, which is gone with its last descriptor unless it gets a name. None where there are no such files (NFS,
    macOS), or where the draft is a device or a pipe."""
    if not hasattr(os, "O_TMPFILE") or draft.exists():
        return None
    try:
        return os.fdopen(os.open(draft.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), "w+b")
    except OSError:
        return None  # opening by name gives any other reason


def _give_name(file: BinaryIO, draft: Path) -> None:
    """Raises OSError."""
    file.flush()
    folder = os.open(draft.parent, os.O_PATH | os.O_CLOEXEC)
    try:
        # open(2). Without a descriptor of a folder Python calls link(2), which would link the link in /proc.
        os.link(f"/proc/self/fd/{file.fileno()}", draft.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
    except OSError:  # no /proc, or a file system that makes such files and does not name them
        file.seek(0)
        with draft.open("wb") as named:
            shutil.copyfileobj(file, named, 1 << 20)
    finally:
        os.close(folder)


def write(path: Path, data: bytes) -> None:
    """Write a file in one step; an earlier file is replaced. Raises InputError."""
    try:
        with replacing(path) as (file,):
            file.write(data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


def _beside(path: Path) -> Path:
    # The name may be as long as names can be.
    return path.with_name(f".{os.fsdecode(os.fsencode(path.name)[:200])}.{secrets.token_hex(8)}.tmp")


def _in_place(path: Path) -> bool:
    """Whether it is a device, a pipe, or a descriptor of this process: `/dev/stdout`, a FIFO."""
    if not path.exists() or path.is_dir():
        return False
    return not path.is_file() or str(path).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def opened(path: Path) -> BinaryIO:
    """A file to be read. Raises OSError, also for a pipe or a device that goes on for longer than any file of memprof's."""
    file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        data = file.read(_MOST_OF_A_STREAM + 1)
    if len(data) > _MOST_OF_A_STREAM:
        raise OSError(f"it is not a file, and it goes on after {_MOST_OF_A_STREAM >> 20} MiB")
    return io.BytesIO(data)


def content(path: Path) -> bytes:
    """All of a file. Raises OSError, see `opened`."""
    with opened(path) as file:
        return file.read()


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap]:
    """A file's bytes, mapped to be read. Raises OSError, and ValueError for an empty file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def sha256_of(*paths: Path, offset: int = 0, length: int | None = None) -> tuple[str, int]:
    """The SHA-256 of files one after another, and their size together; of `length` bytes of each from `offset` on. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    for path in paths:
        with path.open("rb") as file:
            file.seek(offset)
            left = length
            while chunk := file.read(1 << 20 if left is None else min(left, 1 << 20)):
                digest.update(chunk)
                size += len(chunk)
                left = None if left is None else left - len(chunk)
    return digest.hexdigest(), size
