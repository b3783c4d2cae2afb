"""Control groups that memprof made, by their names, and the removal of those whose memprof is gone.

A group's name holds the process that made it: `memprof-BOOT-PID-STARTED-N`. The folder `groups` of the cache has one file for each folder in which
groups were made, with the host and the pid namespace, so that the next memprof knows where to look.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from . import files, processes
from .cache import cache_folder
from .errors import InputError

PREFIX = "memprof"


def note_groups_in(folder: Path) -> None:
    """Note for the next memprof where groups are made."""
    text = f"{processes.pid_namespace()}\n{folder}"
    # Without a cache the groups are still removed by the next memprof that makes some.
    with suppress(InputError, OSError):
        note = cache_folder("groups") / hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
        if not note.exists():
            with files.replacing(note) as (file,):
                file.write(os.fsencode(text))


def remove_noted_orphans() -> None:
    """`remove_orphans` wherever this user's memprofs made groups, on this machine and in this container. Raises InputError if there is no cache."""
    for note in cache_folder("groups").iterdir():
        with suppress(OSError):
            place, _, named = note.read_bytes().partition(b"\n")
            folder = Path(os.fsdecode(named))
            if note.name.startswith(".") or place.decode("utf-8", "replace") != processes.pid_namespace():
                continue
            if folder.is_dir():
                remove_orphans(folder)
            else:
                note.unlink(missing_ok=True)


def remove_orphans(folder: Path) -> None:
    """End and remove the groups of memprofs that are gone."""
    for group in folder.glob(f"{PREFIX}-*-*-*-*"):
        words = group.name.split("-")
        if not (len(words) == 5 and words[2].isdigit()):
            continue
        _, since, pid, started, _ = words
        if since != processes.boot() or str(processes.started(int(pid))) != started:
            remove(group)


def remove(group: Path) -> None:
    """End what is in a group, and remove it. The kernel lets go of its processes a moment after their end, on a busy machine seconds."""
    with suppress(OSError):
        for process in (group / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)
    for _ in range(500):
        try:
            group.rmdir()
            return
        except (FileNotFoundError, PermissionError):  # removed by another memprof, or another user's
            return
        except OSError:
            time.sleep(0.01)
