"""Leftovers of a memprof that was killed: its processes, marked by a token in their environment, are ended, and its temporary folders and control
groups are removed.

A memprof that starts something notes its token, itself and its temporary folder in a file of the cache's `running`, and removes the note at the
end. A note whose memprof is gone tells the next memprof what to clean up:

    PID STARTED PLACE        the memprof: its process, when that started (proc_pid_stat(5)), its host and pid namespace
    FOLDER                   its temporary folder, if it has one
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from msgspec import Struct

from . import cache_folders, control_groups, files, processes
from .cache import cache_folder
from .errors import InputError, os_reason

TOKEN = "MEMPROF_TOKEN"

_ENDING_ROUNDS = 10
_YOUNG_S, _STARTING_S = 10, 0.1  # a process that starts; the time it is given before the next look
_FOLDER = "memprof-"


@contextmanager
def new_token() -> Iterator[str]:
    """A token for the environments of this process's children, noted in a file until the block ends. Raises InputError."""
    token = secrets.token_hex(8)
    with _noted(token, None):
        yield token


class Scratch(Struct, frozen=True):
    """A folder, and the variables that mark a process as working for it."""

    folder: Path
    variables: Mapping[str, str]


@contextmanager
def scratch(purpose: str) -> Iterator[Scratch]:
    """A temporary folder of this process, gone when the block ends. If the block fails or is interrupted, the processes that its variables mark
    end too: one that was just being started is known to nobody else. If memprof is killed, the next memprof does both. Raises InputError."""
    token = secrets.token_hex(8)
    folder = Path(tempfile.gettempdir()) / f"{_FOLDER}{purpose}-{token}"
    with _noted(token, folder):
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {os_reason(error)}; TMPDIR can name another place") from None
        try:
            yield Scratch(folder, {TOKEN: token})
        except BaseException:
            end_marked({token})
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def half_made(place: Path, name: str, subject: str) -> Iterator[Scratch]:
    """A folder PLACE/NAME.TOKEN that is about to be made and to stay (see memprof.base.cache_folders). If it is not finished when the block ends,
    it is removed, and if the block fails or is interrupted, the processes that its variables mark end. If memprof is killed, the next memprof does
    both. subject: what is made. Raises InputError, also for an OSError of the block."""
    with new_token() as token:
        folder = place / f"{name}.{token}"
        try:
            yield Scratch(folder, {TOKEN: token})
        except OSError as error:
            raise InputError(f"{subject}: {error.filename or folder}: {os_reason(error)}") from None
        except BaseException:
            end_marked({token})
            raise
        finally:
            cache_folders.remove_unless_finished(folder)


@contextmanager
def _noted(token: str, folder: Path | None) -> Iterator[None]:
    note = cache_folder("running") / token
    pid = os.getpid()
    words = f"{pid} {processes.started(pid)} {processes.pid_namespace()}" + (f"\n{folder}" if folder is not None else "")
    try:
        # Whole from the first moment on: another memprof that starts now takes a note without an owner for a dead memprof's.
        with files.replacing(note) as (file,):
            file.write(os.fsencode(words))
    except OSError as error:
        raise InputError(f"{note} cannot be written: {os_reason(error)}; XDG_CACHE_HOME can name another place") from None
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def end_leftovers() -> int:
    """End the processes of memprofs that were killed, remove their folders, control groups, half-converted models, half-made environments, builds
    and inputs.

    Returns the number of processes ended.
    """
    orphaned = [note for note in cache_folder("running").iterdir() if not note.name.startswith(".") and not _owner_lives(note)]
    ended = end_marked({note.name for note in orphaned}) if orphaned else 0
    for note in orphaned:
        for work in cache_folder("built").glob(f"*.{note.name}"):
            shutil.rmtree(work, ignore_errors=True)
        _remove_folder(note)
        note.unlink(missing_ok=True)
    control_groups.remove_noted_orphans()
    cache_folders.remove_unfinished(lambda token: (cache_folder("running") / token).exists())
    cache_folders.remove_half_made_inputs()
    return ended


def end_marked(tokens: set[str]) -> int:
    """End every process that has any of these tokens in its environment, and those they start meanwhile; the number of processes ended."""
    ended: set[psutil.Process] = set()  # one that takes its time is killed more than once
    awaited: set[psutil.Process] | None = None  # those that were starting when this began: each has its time
    rounds = _ENDING_ROUNDS
    while rounds:
        seen = {process: _environment(process) for process in psutil.process_iter() if process.pid != os.getpid()}
        marked = [process for process, variables in seen.items() if variables and variables.get(TOKEN) in tokens]
        starting = {process for process, variables in seen.items() if variables == {} and _is_starting(process)}
        awaited = starting if awaited is None else awaited & starting
        if not marked and not starting:
            break
        rounds -= not awaited
        for process in marked:
            with suppress(psutil.Error):
                process.kill()
                ended.add(process)
        psutil.wait_procs(marked, timeout=1)
        if starting:
            time.sleep(_STARTING_S)
    return len(ended)


def _environment(process: psutil.Process) -> dict[str, str] | None:
    """None for one that may not be read, has ended or has none; empty for one that may be in the midst of its exec, with no command line either."""
    try:
        variables = process.environ()
        if not variables and process.cmdline():  # its exec has just ended, or it wrote its title over both, as sshd does
            return process.environ() or None
        return variables
    except (psutil.Error, OSError):
        return None


def _is_starting(process: psutil.Process) -> bool:
    """Whether a process without an environment and a command line may be in the midst of its exec. There it has none for a moment, which is long on a
    busy machine, and who started it may go on as soon as it has left the memory of that process (vfork(2))."""
    try:
        of_this_user = process.uids().effective == os.geteuid() and process.ppid() != 2  # the kernel's threads; an orphan has 1
        return of_this_user and process.status() != psutil.STATUS_ZOMBIE and time.time() - process.create_time() < _YOUNG_S
    except psutil.Error:
        return False


def _owner_lives(note: Path) -> bool:
    """Whether the memprof that wrote a note still runs. A memprof on another machine or in another container is taken to run."""
    try:
        pid, started, place = note.read_bytes().split(b"\n", 1)[0].decode().split()
        return place != processes.pid_namespace() or str(processes.started(int(pid))) == started
    except OSError:
        return True  # it has just ended
    except ValueError:
        return True  # written by another version of memprof, which cleans up itself


def _remove_folder(note: Path) -> None:
    """Remove the folder that a note names, if it is memprof's by its name, and this user's."""
    with suppress(OSError):
        _, _, named = note.read_bytes().partition(b"\n")
        folder = Path(os.fsdecode(named))
        facts = folder.lstat()
        own = folder.name.startswith(_FOLDER) and folder.name.endswith(f"-{note.name}") and facts.st_uid == os.geteuid()
        if named and own and stat.S_ISDIR(facts.st_mode):
            _forget_worktrees(folder)
            shutil.rmtree(folder, ignore_errors=True)


def _forget_worktrees(folder: Path) -> None:
    """Remove git's worktrees in a folder (see versions.worktrees), which the list of their repository would still have without it."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    }  # inside a hook they name another repository
    for tree in folder.glob("*/.git"):
        if tree.is_file():
            words = ["git", "-C", str(tree.parent), "worktree", "remove", "--force", str(tree.parent)]
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=variables, check=False)
