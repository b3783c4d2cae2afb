"""The folders that memprof keeps: its cache, and its state, which nobody else may read. Without a writable home it takes a temporary folder."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from .errors import InputError, os_reason


def cache_folder(name: str) -> Path:
    """A folder of memprof's in the user's cache, made if it is missing. Raises InputError if it cannot be made."""
    return _folder("XDG_CACHE_HOME", "~/.cache", name, 0o777)


def state_folder() -> Path:
    """The folder for files that memprof must not lose and nobody else may see, made if it is missing. Raises InputError if it cannot be made."""
    return _folder("XDG_STATE_HOME", "~/.local/state", "", 0o700)


def _folder(variable: str, usual: str, name: str, mode: int) -> Path:
    named = os.environ.get(variable)
    folder = Path(named or os.path.expanduser(usual)) / "memprof" / name
    try:
        return _made(folder, mode)
    except OSError as error:
        reason = f"{folder} cannot be made: {os_reason(error)}; {variable} can name another place"
        if named:
            raise InputError(reason) from None
    # The account of a service may have no home. Programs are started from this folder, so it must be nobody else's.
    own = Path(tempfile.gettempdir()) / f"memprof-{os.geteuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        facts = own.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise InputError(f"{reason}; {own} is not this user's alone")
        return _made(own / Path(usual).name / name, mode)
    except OSError:
        raise InputError(reason) from None


def _made(folder: Path, mode: int) -> Path:
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return folder
