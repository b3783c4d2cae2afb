"""Processes that outlive a memprof that was killed: marked by a token in their environment, found and ended."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from ..cache import cache_folder
from ..errors import InputError, os_reason
from ..probe import procfs

TOKEN = "MEMPROF_TOKEN"

_ENDING_ROUNDS = 10


@contextmanager
def new_token() -> Iterator[str]:
    """A token for the environments of this process's children, noted in a file for as long as the process lives."""
    token = secrets.token_hex(8)
    note = cache_folder("running") / token
    try:
        fresh = note.with_name(f".{token}")
        fresh.write_text(f"{os.getpid()} {procfs.started(os.getpid())} {_place()}")
        fresh.rename(note)  # whole from the first moment on: another memprof that starts now takes a note without an owner for a dead one's
    except OSError as error:
        raise InputError(f"{note} cannot be written: {os_reason(error)}; XDG_CACHE_HOME can name another place") from None
    try:
        yield token
    finally:
        note.unlink(missing_ok=True)


def end_leftovers() -> int:
    """End processes whose memprof was killed together with its probe, and remove what it was converting; returns how many were ended."""
    orphaned = [note for note in cache_folder("running").iterdir() if not note.name.startswith(".") and not _owner_lives(note)]
    ended = end_marked({note.name for note in orphaned}) if orphaned else 0
    for note in orphaned:
        for work in cache_folder("built").glob(f"*.{note.name}"):
            shutil.rmtree(work, ignore_errors=True)
        note.unlink(missing_ok=True)
    return ended


def end_marked(tokens: set[str]) -> int:
    """End every process that has one of these tokens in its environment, and those they start meanwhile; returns how many."""
    ended = 0
    for _ in range(_ENDING_ROUNDS):
        found = [process for process in psutil.process_iter() if _token_of(process) in tokens]
        if not found:
            break
        for process in found:
            with suppress(psutil.Error):
                process.kill()
                ended += 1
        psutil.wait_procs(found, timeout=1)
    return ended


def _token_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(TOKEN) if process.pid != os.getpid() else None
    except (psutil.Error, OSError):
        return None


def _owner_lives(note: Path) -> bool:
    """Whether the memprof that wrote a note still runs; one on another machine or in another container is taken to."""
    try:
        pid, started, place = note.read_text().split()
        return place != _place() or str(procfs.started(int(pid))) == started
    except OSError:
        return True  # it has just ended
    except ValueError:
        return True  # in another memprof's words: its own to clean up


def _place() -> str:
    return f"{os.uname().nodename}/{os.stat('/proc/self/ns/pid').st_ino}"
