"""A place in which memprof is attacked: folders for its home, caches and temporary files, a mark on every process, and a look at leftovers."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

from memprof.base import control_groups

FOLDER = "MEMPROF_ATTACK"  # in the environment of all that is started: the place's folder
MODEL = "quick.json"
_SCENARIO = {"load": [{"allocate": "weights", "bytes": 4 << 20}]}
# The temporary and cached files that only a running memprof may have, as patterns in the place's folder.
_LEFTOVERS = ("tmp/*", "cache/memprof/running/*", "cache/memprof/built/*.*")
LONGEST_S = 300.0

Value = TypeVar("Value")


@dataclass(frozen=True)
class Place:
    """The folders of an attack. Commands run in `work`."""

    folder: Path

    @property
    def work(self) -> Path:
        """The working folder. It holds a small model for the synthetic runtime."""
        return self.folder / "work"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of everything that is started here."""
        folders = {"HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state"}
        return {**os.environ, FOLDER: str(self.folder), **{name: str(self.folder / folder) for name, folder in folders.items()}}

    def start(self, *words: str | Path, before: Sequence[str] = (), **options: Any) -> subprocess.Popen[bytes]:
        """Start `memprof WORDS`, or a program that takes this command as its last words. Its output goes to files, so that no process that
        outlives it holds a pipe; see `output`."""
        command = [*before, sys.executable, "-m", "memprof", *map(str, words)]
        with open(self.folder / "stdout", "wb") as out, open(self.folder / "stderr", "wb") as err:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "env": self.environment, "cwd": self.work, **options}
            return subprocess.Popen(command, start_new_session=True, **streams)

    def run(self, *words: str | Path, **options: Any) -> int:
        """Run `memprof WORDS` to its end, see `start`; its exit code. Raises subprocess.TimeoutExpired: it is killed."""
        process = self.start(*words, **options)
        try:
            return process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def output(self, stream: str) -> str:
        """The `stdout` or `stderr` of the last command."""
        return (self.folder / stream).read_text(encoding="utf-8", errors="replace")

    def processes(self, *words: str) -> list[psutil.Process]:
        """The processes that were started here and have all these words, or files of these names, in their command line."""
        running = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(FOLDER) == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE:
                    line = [word.rpartition("/")[2] for word in process.cmdline()]
                    running += [process] if all(word in line for word in words) else []
            except psutil.Error:
                continue
        return running

    def leftovers(self) -> list[str]:
        """The processes, files and control groups that a memprof left here."""
        files = [str(path.relative_to(self.folder)) for pattern in _LEFTOVERS for path in self.folder.glob(pattern)]
        return [f"process {process.pid}" for process in self.processes()] + files + self._groups()

    def _groups(self) -> list[str]:
        """The control groups of memprofs that are gone, where a memprof of this place made some: it notes that in its cache. Elsewhere they are
        those of memprofs that others kill meanwhile."""
        notes = (path for path in (self.folder / "cache/memprof/groups").glob("*") if not path.name.startswith("."))
        folders = [Path(os.fsdecode(note.read_bytes().partition(b"\n")[2])) for note in notes]
        groups = [group for folder in folders for group in folder.glob(f"{control_groups.PREFIX}-*-*-*-*")]
        return [str(group) for group in groups if not psutil.pid_exists(int(group.name.split("-")[2]))]


@contextmanager
def place() -> Iterator[Place]:
    """A new place, in a folder with a space and a letter outside ASCII. At the end its processes are killed and its folders removed."""
    with tempfile.TemporaryDirectory(prefix=f"attack é-{secrets.token_hex(4)}-") as name:
        here = Place(Path(name))
        for folder in ("home", "tmp", "cache", "state", "work"):
            (here.folder / folder).mkdir()
        (here.work / MODEL).write_text(json.dumps(_SCENARIO))
        try:
            yield here
        finally:
            while running := here.processes():
                for process in running:
                    with suppress(psutil.NoSuchProcess):  # it has just ended
                        process.kill()
                psutil.wait_procs(running, timeout=1)


def wait_for(value: Callable[[], Value], seconds: float = LONGEST_S) -> Value:
    """The first value that is true, or the last one when the time is over."""
    end = time.monotonic() + seconds
    while not (now := value()) and time.monotonic() < end:
        time.sleep(0.02)
    return now
