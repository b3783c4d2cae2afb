"""Another machine as a Place, over a connection (connection.py).

All that memprof keeps there lies in one folder:

    lease            who uses the place
    files/HASH/NAME  a file by the hash of its content; NAME.part as long as it is not complete
    models/HASH/...  a model of several files, by the hash of their names and contents
    sources/HASH/    Python sources: the recorder, runners/
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from ..base import elf_machines
from ..base.counter_bounds import peak_bound
from ..base.errors import InputError, os_reason
from ..base.files import sha256_of
from ..programs import commands
from ..programs.commands import Command
from ..programs.source_zips import runners_zip
from ..records.types import Machine, Model, ModelFile
from . import sending
from .connection import Connection, why_failed
from .place import FREQUENCIES, HIDDEN, TEMPERATURES, MachineState, RecorderKind, RunningProcess, refuse_elsewhere, split_words, weather

_LEAST_PYTHON = (3, 8)

# Unpacked beside its place and compiled, then renamed: the folder is complete if it is there.
_UNPACK = """
import compileall, os, shutil, sys, zipfile
archive, folder = sys.argv[1:]
work = "%s.%d" % (folder, os.getpid())
with zipfile.ZipFile(archive) as file:
    file.extractall(work, [name for name in file.namelist() if not name.endswith(".pyc")])
compileall.compile_dir(work, ddir=folder, quiet=2)
try:
    os.rename(work, folder)
except OSError:
    shutil.rmtree(work)  # another memprof was quicker
"""
_RUNNING = """
cd "/proc/$1" 2>/dev/null || { if grep -q '^[^ ]* /proc proc [^ ]*hidepid=[^0o]' /proc/mounts; then echo hidden; else echo none; fi; exit 0; }
if grep -q VmRSS status; then echo running; else echo empty; fi
read -r stat < stat; set -- ${stat##*) }; echo "${20}" # proc_pid_stat(5), field 22
cat comm; readlink exe || echo; echo $(wc -c < exe; sha256sum < exe) 2>/dev/null; cat cmdline
"""
# As exec looks for it: a shell knows programs besides, which have no file.
_WHICH = """
case $1 in */*) if [ -x "$1" ] && [ ! -d "$1" ]; then echo "$1"; fi; exit 0 ;; esac
set -f; IFS=:
for folder in $PATH; do if [ -x "$folder/$1" ] && [ ! -d "$folder/$1" ]; then echo "$folder/$1"; exit 0; fi; done
"""
_PROGRAM = (
    'if [ -x "$1" ] && [ ! -d "$1" ]; then echo yes; elif [ -d "$1" ]; then echo folder; elif [ -e "$1" ]; then echo no; else echo none; fi'
)
# What `uname -m` says, and e_machine of the programs that such a kernel may start (elf.h), a 64-bit kernel those of 32 bits too.
_MACHINES = {
    "x86_64": (62, 3),
    "i686": (3,),
    "aarch64": (183, 40),
    "armv8l": (183, 40),
    "armv7l": (40,),
    "armv6l": (40,),
    "riscv64": (243,),
}
# Whether a translator such as QEMU's user mode is registered for programs in ELF (Documentation/admin-guide/binfmt-misc.rst).
_TRANSLATES = "if grep -qs '^magic 7f454c46' /proc/sys/fs/binfmt_misc/*; then echo yes; fi"


@dataclass(eq=False)
class Remote(Connection):
    """Another machine. tell: called while a file is sent. sent: how many bytes of files were sent."""

    tell: Callable[[sending.Sending], None] = lambda _: None
    sent: int = field(default=0, init=False)
    inherits: bool = field(default=False, init=False)
    beside: bool = field(default=False, init=False)
    _there: dict[str, str] = field(default_factory=dict, init=False)

    # -- files

    def file(self, path: str) -> str:
        known = self._there.get(path)
        if known is None:
            try:
                sha256, size = sha256_of(Path(path))
            except OSError as error:
                raise InputError(f"{path}: {os_reason(error)}") from None
            known = self._there[path] = sending.put(self, path, sha256, size, self.path("files", sha256[:32], os.path.basename(path)))
        return known

    def executable(self, path: str) -> str:
        known = path in self._there
        there = self.file(path)
        if not known:
            self.sh('chmod 700 "$1"', there)
            sending.check_executable(self)
        return there

    def model(self, model: Model) -> str:
        if not model.files:
            return model.path  # a program that names no model
        folder, names = self._model_names(model)
        for file in model.files:
            if file.path not in self._there:
                self._there[file.path] = sending.put(self, file.path, file.sha256, file.bytes, f"{folder}/{names[file.path]}")
        return folder if os.path.isdir(model.path) else f"{folder}/{os.path.basename(model.path)}"

    def model_files(self, model: Model) -> list[str]:
        self.model(model)
        return [self._there[file.path] for file in model.files]

    def _model_names(self, model: Model) -> tuple[str, dict[str, str]]:
        """The folder there of a model, and the names of its files inside. Files that belong together keep their places to one another."""
        top = model.path if os.path.isdir(model.path) else os.path.dirname(model.path)
        names = {file.path: os.path.relpath(file.path, os.path.realpath(top)) for file in model.files}
        for path, name in names.items():
            if name.split(os.sep)[0] == os.pardir:
                raise InputError(f"{model.name} cannot be sent to {self.name}: its file {path} lies outside of {top}")
        if len(names) == 1 and top != model.path:
            return self.path("files", model.sha256[:32]), names
        facts = sorted((names[file.path], file.sha256) for file in model.files)
        return self.path("models", hashlib.sha256(repr(facts).encode()).hexdigest()[:32]), names

    def sources(self, archive: Path) -> str:
        folder = self.path("sources", archive.stem)
        python = self._usable_python()
        if str(archive) not in self._there:
            if self.sh('mkdir -p "${1%/*}"; if [ -d "$1" ]; then echo yes; fi', folder) != "yes":
                done = self.run([python, "-I", "-S", "-c", _UNPACK, self.file(str(archive)), folder])
                if done.returncode != 0:
                    raise InputError(f"{self.name}: {folder} cannot be written: {why_failed(done)}")
            self._there[str(archive)] = folder
        return folder

    def runners(self) -> str:
        return self.sources(runners_zip())

    def clean(self) -> int:
        """Remove all that memprof keeps there; the number of bytes that were removed."""
        text = self.sh('du -sk "$1" | cut -f1; rm -rf "$1/files" "$1/models" "$1/sources" "$1/built"; du -sk "$1" | cut -f1', self.path())
        before, after = (int(word) for word in text.split())
        self._there.clear()
        return (before - after) * 1024

    # -- files and processes there

    def only_here(self, subject: str) -> None:
        raise refuse_elsewhere(self.name, subject)

    def interpreter(self, path: str | None) -> str:
        if path is not None:
            program = self.sh(_WHICH, path)
            if not program:
                raise InputError(f"python {path}: there is no such interpreter on {self.name}")
            return program
        return self._usable_python()

    def _usable_python(self) -> str:
        """The place's own interpreter. Raises InputError if it has none that will do."""
        if self.python is None:
            raise InputError(
                f"{self.name} has no {self.wanted_python or 'python3'} on its PATH; python in a suite, or --python, names an interpreter there"
            )
        numbers = self._python_version()
        if not numbers:
            raise InputError(f"{self.name}: {self.python} does not start: {self._facts.get('version', '')}")
        if numbers < _LEAST_PYTHON:
            raise InputError(
                f"{self.name}: {self.python} is Python {numbers[0]}.{numbers[1]}; 3.8 is the oldest that will do "
                "(python in a suite, or --python, names another)"
            )
        return self.python

    def _python_version(self) -> tuple[int, ...]:
        """Of the place's own interpreter; empty if there is none, or if it does not start."""
        words = self._facts.get("version", "").split()
        return tuple(map(int, words)) if len(words) == 2 and all(word.isdigit() for word in words) else ()

    def program(self, command: Command, model: Model) -> tuple[tuple[str, ...], ModelFile]:
        """A program by a relative path is sent if it is here; by an absolute path, or by its name alone, it is there. The same holds for
        files."""
        name = command.argv[0]
        rest = tuple(self._with_file(word, command.cwd, model) for word in command.argv[1:])
        if "/" in name and not os.path.isabs(name) and os.path.exists(os.path.join(command.cwd or ".", name)):
            path = commands.program(command)
            self._check_architecture(path)
            return (self.executable(str(path)), *rest), commands.program_file(path)
        if "/" not in name:
            path_there = self.sh(_WHICH, name)
            if not path_there:
                hint = f"; ./{name} is in this folder" if os.access(name, os.X_OK) and not os.path.isdir(name) else ""
                raise InputError(f"there is no command {name} on {self.name}{hint}")
        else:
            path_there = os.path.join(self.folder_of(command) or "", name)
            state = self.sh(_PROGRAM, path_there)
            if state != "yes":
                reasons = {"folder": "is a folder", "no": "is not executable", "none": "does not exist"}
                if state == "none" and not os.path.isabs(name):
                    raise InputError(f"{name} does not exist, neither here nor on {self.name}")
                hint = "; it is here: a relative path is sent" if state == "none" and os.path.isfile(name) else ""
                raise InputError(f"{path_there} {reasons[state]} on {self.name}{hint}")
        size, sha256 = [*self.sh('wc -c < "$1"; ' + sending.HASH, path_there).split(), "", ""][:2]
        return (name, *rest), ModelFile(path_there, int(size or 0), sha256 if sha256 != "none" else "")

    def _check_architecture(self, path: Path) -> None:
        """Refuse a program for another architecture before it is sent, unless something there translates such programs. Raises InputError."""
        needed = _MACHINES.get(self._facts["arch"])
        with path.open("rb") as file:
            number = elf_machines.machine(file.read(elf_machines.HEAD))
        if needed is None or number is None or number in needed or self.sh(_TRANSLATES) == "yes":
            return
        raise InputError(
            f"{path.name} is a program for {elf_machines.name(number)}; {self.name} is {self._facts['arch']}, so it was not sent"
        )

    def _with_file(self, word: str, cwd: str | None, model: Model) -> str:
        option, equals, value = word.partition("=")
        for before, text in (("", word), (option + equals, value)):
            path = Path(cwd or ".", text)
            if not text or os.path.isabs(text):
                continue
            if commands.names_model(path, model):
                return before + self.model(model)
            if os.path.isfile(path):
                return before + self.file(str(path.absolute()))
        return word

    def words_here(self, command: Command) -> Command:
        first, *rest = command.argv
        return replace(command, argv=(first, *(word for word in rest if not os.path.isabs(word.partition("=")[2] or word))))

    def folder_of(self, command: Command) -> str | None:
        """A suite's commands run in the suite's folder unless they say more, and that folder is here."""
        if command.cwd is None or self.sh('if [ -d "$1" ]; then echo yes; fi', command.cwd) == "yes":
            return command.cwd
        if os.path.isdir(command.cwd):
            return None
        raise InputError(f"the folder {command.cwd} does not exist on {self.name}")

    def running(self, pid: int) -> RunningProcess:
        done = self.run(["sh", "-c", _RUNNING, "memprof", str(pid)])
        state, _, rest = done.stdout.partition(b"\n")
        if state in (b"none", b"hidden"):
            perhaps = HIDDEN if state == b"hidden" else ""
            raise InputError(f"there is no process {pid} on {self.name}{perhaps}")
        started, name, path, digest, cmdline = (rest.split(b"\n", 4) + [b""] * 5)[:5]
        called = name.decode("utf-8", "replace")
        if state == b"empty":
            raise InputError(f"process {pid} ({called}) has ended, or is one of the kernel's own: it has no memory to look at")
        size, sha256 = ([*digest.decode().split(), "", ""])[:2]
        program = ModelFile(path.decode("utf-8", "backslashreplace"), int(size), sha256) if len(sha256) == 64 else None
        return RunningProcess(pid, int(started) if started.isdigit() else None, called, split_words(cmdline), program)

    def result(self, path: str) -> str:
        return self.path(f"result-{os.path.basename(path)}")

    def bring(self, path: str) -> None:
        there = self.result(path)
        done = self.run(["cat", "--", there])
        if done.returncode == 0:
            Path(path).write_bytes(done.stdout)
            self.sh('rm -f "$1"', there)

    @property
    def recorder(self) -> RecorderKind:
        return "python" if self._python_version() >= _LEAST_PYTHON else "c"

    @property
    def cpus(self) -> int:
        return int(self._facts.get("usable") or self._facts.get("cpus") or 1)

    def machine(self) -> Machine:
        facts, sizes = self._facts, _sizes(self._facts)
        cpus = int(facts.get("cpus") or 1)
        return Machine(
            name=facts["name"],
            arch=facts["arch"],
            kernel=facts["kernel"],
            libc=facts.get("libc", ""),
            cpu=facts.get("cpu", ""),
            cpus=cpus,
            cpus_usable=self.cpus,
            memory_bytes=sizes.get("MemTotal", 0),
            swap_bytes=sizes.get("SwapTotal", 0),
            page_bytes=int(facts.get("page") or 4096),
            huge_pages=facts.get("huge", "").partition("[")[2].partition("]")[0],
            peak_bound_bytes=peak_bound(facts["kernel"], int(facts.get("page") or 4096), cpus, self.cpus),
        )

    def busy(self) -> tuple[float, int]:
        """/proc/stat, its first line in ticks (proc_stat(5)): user, nice, system, idle, iowait, ..."""
        text = self.sh("head -n 1 /proc/stat; sleep 1; head -n 1 /proc/stat; grep MemAvailable /proc/meminfo")
        before, after, memory = (line.split() for line in text.splitlines())
        ticks = [int(later) - int(earlier) for later, earlier in zip(after[1:9], before[1:9], strict=True)]
        share = 100 * (1 - (ticks[3] + ticks[4]) / sum(ticks)) if sum(ticks) else 0.0
        return share, int(memory[1]) * 1024

    def weather(self) -> MachineState:
        if "sensor" not in self._facts:
            return MachineState(None, None)  # a question takes some milliseconds of every run
        temperatures, _, frequencies = self.sh(f"cat {TEMPERATURES} 2>/dev/null; echo -; cat {FREQUENCIES} 2>/dev/null || :").partition(
            "-\n"
        )
        return weather(temperatures, frequencies)


def _sizes(facts: Mapping[str, str]) -> dict[str, int]:
    """The sizes of /proc/meminfo in bytes."""
    return {name: int(value.split()[0]) * 1024 for name, value in facts.items() if value.endswith("kB")}
