"""Files that appear whole or not at all: written under another name in the same folder, then renamed. And what a file holds, as a hash."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from .errors import InputError, os_reason


def make_way(overwrite: bool, *paths: Path) -> None:
    """Raises InputError where a file cannot be written to each path, or would replace one that it was not meant to."""
    for path in paths:
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder")
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists; --force replaces it")


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Opens a file for each path; they take their names together when the block ends well, and vanish when it fails.

    The first path is the one by which others are found. It takes its name last, and an old file of that name goes first
    where there are several, so that no model ever stands beside another's data. Raises OSError.
    """
    # Not from tempfile, whose files nobody else may read.
    drafts = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(draft.open("wb")) for draft in drafts]
        if len(paths) > 1:
            paths[0].unlink(missing_ok=True)
        for draft, path in reversed(list(zip(drafts, paths, strict=True))):
            os.replace(draft, path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def check_target(path: Path) -> None:
    """Raises InputError where it is known before anything is measured that no file can be written at this path."""
    if path.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder")
    if not path.exists() and not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: {os.strerror(errno.EACCES)}")


def write_whole(path: Path, data: bytes) -> None:
    """Put the file in place whole: an interrupted update leaves the old one."""
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)


def check_replaceable(path: Path, ours: Callable[[bytes], bool], what: str) -> None:
    """Say what stands against writing a file. Raises InputError where its folder cannot take it or something else lies there."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder")
        if not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InputError(f"{path} cannot be written: no permission to write in {path.parent}")
        if path.exists():
            with path.open("rb") as file:
                head = file.read(256)
            if head and not ours(head.lstrip()):
                raise InputError(f"{path} exists and is not {what}; it was left as it is")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


def write(path: Path, data: bytes) -> None:
    """Replace a file in one step. Raises InputError."""
    target = path.resolve()
    try:
        descriptor, name = tempfile.mkstemp(prefix=".memprof-", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


def sha256_of(*paths: Path, offset: int = 0, length: int | None = None) -> tuple[str, int]:
    """The SHA-256 of files one after another, and how many bytes they are together; of so many bytes of each from an offset. Raises OSError."""
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
