"""Things that are made once a session and shared by all workers of pytest-xdist: compiled programs, models, measured runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

USERS_CACHE = "MEMPROF_TEST_USERS_CACHE"  # in the environment: the cache of the user who runs the tests
SHARED = "MEMPROF_TEST_SHARED"  # in the environment: a folder that is there once a session; conftest.py makes it


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this thing, filled by `make` the first time it is asked for. Who asks meanwhile waits. Its files are not to be changed."""
    folder = Path(os.environ[SHARED]) / hashlib.sha256(name.encode()).hexdigest()[:16]
    made = folder.with_suffix(".made")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def own_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """memprof's cache from now on, in this folder: empty, but for the programs that take seconds to compile, which are the session's."""
    native = folder / "memprof" / "native"
    native.parent.mkdir(parents=True, exist_ok=True)
    if not native.is_symlink():
        native.symlink_to(Path(os.environ[SHARED]) / "native")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
