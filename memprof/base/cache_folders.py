"""Folders of the cache that take long to make and are used again: environments with a runtime, builds of commits, and the inputs of programs in C.

    PLACE/NAME.TOKEN/
        environment.json         written last: without it the folder is half made, and nobody uses it
        used                     locked, shared, by every memprof that measures with it; its time is that of the last use

Such a folder has its own path inside, so it works only where it was made and is never renamed. Inputs have not: theirs is made under another name,

    inputs/
        HASH/                    the arrays of the .npz file of this content
        .making                  locked by whoever makes one
        HASH.half                half made; of a killed memprof, if nobody has the lock
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import files
from .cache import cache_folder
from .errors import InputError, os_reason

ENVIRONMENTS = "environments"
COMMITS = "commits"
STAMP = "environment.json"
INPUTS = "inputs"
_USED = "used"
_MAKING = ".making"
_HALF = ".half"


def hold(folder: Path) -> int:
    """A descriptor: until it is closed, nobody removes the folder. Raises InputError if it is gone."""
    try:
        descriptor = os.open(folder / _USED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        raise InputError(f"the environment {folder} cannot be used: {os_reason(error)}") from None
    if not (folder / STAMP).exists():
        os.close(descriptor)
        raise InputError(f"the environment {folder} was removed just now")
    touch(folder)
    return descriptor


def touch(folder: Path) -> None:
    """Note that the folder is used now."""
    os.utime(folder / _USED)


def last_used(folder: Path) -> float:
    """When it was last used, in seconds since 1970."""
    try:
        return (folder / _USED).stat().st_mtime
    except OSError:
        return 0.0


def remove(folder: Path) -> bool:
    """Remove it; False, and nothing is removed, if somebody holds it. Raises InputError."""
    try:
        with (folder / _USED).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            (folder / STAMP).unlink(missing_ok=True)
            with suppress(FileNotFoundError):  # another memprof that starts now removes the rest of it too
                shutil.rmtree(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be removed: {os_reason(error)}") from None
    return True


# -- making


def finish(folder: Path, stamp: bytes) -> None:
    """From now on the folder is whole. Raises InputError."""
    (folder / _USED).touch()
    files.write(folder / STAMP, stamp)


def remove_unless_finished(folder: Path) -> None:
    """Remove what is left of a folder that was not finished."""
    if not (folder / STAMP).exists():
        shutil.rmtree(folder, ignore_errors=True)


def remove_unfinished(is_being_made: Callable[[str], bool]) -> None:
    """Remove what is left of folders that were never finished, or not wholly removed. is_being_made: whether a token's memprof runs."""
    for place in (ENVIRONMENTS, COMMITS):
        for folder in cache_folder(place).iterdir():
            # In this order: a memprof that no longer makes it may have finished it.
            if folder.is_dir() and not is_being_made(folder.name.rpartition(".")[2]) and not (folder / STAMP).exists():
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A new folder that takes the name of `folder` when the block ends well. Another memprof that makes one beside it is waited for.

    Raises OSError.
    """
    with (folder.parent / _MAKING).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        work = folder.with_name(folder.name + _HALF)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        try:
            yield work
            with suppress(OSError):  # another memprof has made it meanwhile
                work.rename(folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def remove_half_made_inputs() -> None:
    """Remove what a killed memprof left in `whole`, unless somebody is making one now."""
    inputs = cache_folder(INPUTS)
    halves = list(inputs.glob(f"*{_HALF}"))
    if not halves:
        return
    with suppress(OSError), (inputs / _MAKING).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for work in halves:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def locked(path: Path, taken: str, say: Callable[[str], None]) -> Iterator[None]:
    """The block in which folders are made, for one memprof at a time: the second says that it is `taken` and waits. Raises InputError."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{taken}: waiting until it is done")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
