"""Phases by the names of functions, for a program nobody has changed: the checks beforehand, and the command that starts it under gdb.

runners/native/symbols.py is the part that runs inside gdb. Here a function's name as written in the source (`nnfw_run`, `ml::Model::load`,
`ml::Model::load(int)`, `ml::prepare<float>`) is looked for in the symbol tables of the program and of the libraries it is linked to, so that
a misspelt name is reported before anything runs. A program that opens libraries itself (dlopen), or is linked to a library that is not found
here, may get the function from such a library: gdb then waits for it, and says at the end if it never came. A pure virtual function is in no
file: it stands for its overrides, which the classes' type information leads to.

ELF as in elf(5); names are demangled by the C++ library's own __cxa_demangle, if there is one.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ..base.errors import InputError, UsageError, os_reason
from ..base.runners import runners_path
from ..records.phases import WORDS, own
from . import elf

_OTHERS = "marks (memprof.h) or --phase-regex give phases without it"
_WISH = "a phase by a function (--phase, or [phase] in a suite) needs"
_PHASE = re.compile(r"[A-Za-z0-9_.:-]+")


def parse_phase(text: str) -> tuple[str, str]:
    """`load=nnfw_load_model_from_file` as (phase, function); load, prepare, warmup and execute are memprof's own phases. Raises UsageError."""
    name, equals, function = text.partition("=")
    if not equals or not _PHASE.fullmatch(name) or not function.strip():
        raise UsageError(f"--phase {text!r}: write NAME=FUNCTION, such as load=nnfw_load_model_from_file")
    return own(WORDS.get(name, name)), " ".join(function.split())


def wrap(
    argv: Sequence[str],
    phases: Mapping[str, str] | Sequence[tuple[str, str]],
    *,
    cwd: str | None = None,
    env: Mapping[str, str | None] | None = None,
) -> tuple[str, ...]:
    """The command that runs `argv` under gdb, which says when these functions are entered and left.

    phases: function by phase; a phase may have several. env: the command's own variables; those that are None are removed.
    Raises InputError if gdb is missing or may not trace, or if the command cannot be found, UsageError if it is known to have no such function.
    """
    functions = list(phases.items()) if isinstance(phases, Mapping) else list(phases)
    gdb = check()
    variables = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    command = _command(argv, cwd, variables)
    program = _runs_here(command[0])
    files = _ProgramFiles(program, variables, cwd)
    targets = [(phase, function, files.symbols(function)) for phase, function in functions]
    text = json.dumps({"phases": targets, "elf": elf.__file__})
    script = runners_path() / "native" / "symbols.py"
    return (gdb, "-nx", "-batch", "-ex", f"python MEMPROF = {text!r}", "-x", str(script), "--args", *command)


# -- what must be there


def check() -> str:
    """The path of gdb, which can follow programs here. Raises InputError if it is missing or may not trace."""
    gdb = _gdb()
    _may_trace()
    return gdb


def _gdb() -> str:
    path = shutil.which("gdb")
    if path is None:
        raise InputError(f"{_WISH} gdb, which is not installed; {_OTHERS}")
    if not _has_python(path):
        raise InputError(f"{_WISH} a gdb with Python, and {path} has none; {_OTHERS}")
    return path


@cache
def _has_python(gdb: str) -> bool:
    try:
        command = [gdb, "-nx", "-batch", "-ex", "python print('py' + 'thon')"]
        process = subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"python" in process.stdout


def _may_trace() -> None:
    """Raises InputError if one process may not trace another: Yama's setting, or a container's filter of system calls."""
    try:
        trace = ctypes.CDLL(None, use_errno=True).ptrace
    except (OSError, AttributeError):
        return
    child = os.fork()
    if child == 0:
        os._exit(0 if trace(0, 0, None, None) == 0 else min(ctypes.get_errno(), 255) or 1)  # PTRACE_TRACEME
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        try:
            scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
        except OSError:
            scope = ""
        why = f"kernel.yama.ptrace_scope is {scope}" if scope in ("2", "3") else f"ptrace: {os.strerror(code)}"
        raise InputError(f"{_WISH} gdb, which may not trace a program here ({why}); {_OTHERS}")


def _command(argv: Sequence[str], cwd: str | None, env: Mapping[str, str]) -> list[str]:
    """The command as the kernel would run it: the program's path in full, and a script's interpreter before it. Raises InputError."""
    name = argv[0]
    path = os.path.join(cwd or "", name) if os.sep in name else shutil.which(name, path=env.get("PATH"))
    if path is None or not os.path.exists(path):
        raise InputError(f"{name}: no such command")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise InputError(f"{name} is not executable")
    mode = os.stat(path).st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise InputError(f"{name} is setuid or setgid, and under gdb the kernel starts it without that right; {_OTHERS}")
    path = os.path.abspath(path)
    try:
        with open(path, "rb") as file:
            first = file.readline(4096)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {os_reason(error)}") from None
    if first.startswith(b"#!"):
        words = os.fsdecode(first[2:]).strip().split(None, 1)
        if words and words[0] != path:
            return _command([*words, path, *argv[1:]], None, env)
    return [path, *argv[1:]]


def _runs_here(path: str) -> elf.Elf:
    """The program's ELF file. Raises InputError if gdb could not start it on this machine."""
    program = elf.read(path)
    if program is None:
        raise InputError(f"{path} is not a program that gdb can start: it is not an ELF file")
    machine = platform.machine()
    if machine in _MACHINES and program.machine not in _MACHINES[machine]:
        built = next((name for name, numbers in _MACHINES.items() if program.machine in numbers), f"machine {program.machine}")
        raise InputError(f"{path} is built for {built}, and this is {machine}")
    return program


# e_machine of the programs that a kernel of that name runs: EM_386 3, EM_X86_64 62, EM_ARM 40, EM_AARCH64 183, EM_RISCV 243.
_MACHINES = {"x86_64": (62, 3), "aarch64": (183, 40), "armv7l": (40,), "i686": (3,), "riscv64": (243,)}


# -- finding functions

# With these a program gets functions that are not in its files: libraries it opens, programs it becomes or starts.
_MORE = frozenset({"dlopen", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp"})


class _ProgramFiles:
    """A program and the libraries it is linked to, as far as they are found where the loader would look (ld.so(8))."""

    def __init__(self, program: elf.Elf, env: Mapping[str, str], cwd: str | None) -> None:
        self._program = program
        self._given = [os.path.join(cwd or "", folder) for folder in re.split("[:;]", env.get("LD_LIBRARY_PATH", "")) if folder]
        self._all: dict[str, elf.Elf | None] = {}  # None for a library that was not found
        todo = [(program, (*re.split("[: ]", env.get("LD_PRELOAD", "")), *program.needed))]
        while todo:
            file, names = todo.pop()
            for name in names:
                if name and name not in self._all:
                    self._all[name] = library = self._library(file, os.path.join(cwd or "", name) if os.sep in name else name)
                    if library is not None:
                        todo.append((library, library.needed))
        self._files = [program, *(file for file in self._all.values() if file is not None)]

    def _library(self, file: elf.Elf, name: str) -> elf.Elf | None:
        before = () if file.runpath else (*file.rpath, *self._program.rpath)
        folders = [*before, *self._given, *file.runpath, *_system_folders()]
        paths = [name] if os.sep in name else [os.path.join(folder, name) for folder in folders if folder]
        read = (elf.read(path) for path in paths if os.path.isfile(path))
        return next((library for library in read if library is not None and library.machine == self._program.machine), None)

    def symbols(self, function: str) -> list[str]:
        """The linker's names of a function; none if it may come later. Raises UsageError if it is known that it cannot."""
        own = [file for file in self._files if not elf.is_system(file.path)]
        names = list(dict.fromkeys(symbol for file in self._files for symbol in elf.matching(function, file.functions)))
        names = names or self._overrides(function, own)
        if names or None in self._all.values() or any(_MORE & file.undefined for file in own):
            return names
        close = elf.suggestions(function, (name for file in own for name in file.functions))
        searched = f"{os.path.basename(self._program.path)} and the {len(self._files) - 1} libraries it is linked to"
        if close:
            raise UsageError(f"--phase: there is no function {function} in {searched}; did you mean {' or '.join(close)}?")
        if self._program.stripped:
            why = f"{self._program.path} is stripped, and only its exported functions have a name"
            raise UsageError(f"--phase: there is no function {function} in {searched}: {why}")
        why = f"the compiler may have inlined it everywhere: {elf.NOT_INLINED}"
        raise UsageError(f"--phase: there is no function {function} in {searched}; {why}")

    def _overrides(self, function: str, files: Sequence[elf.Elf]) -> list[str]:
        hierarchy: dict[str, tuple[str, ...]] = {}
        for file in files:
            hierarchy.update(elf.bases(file.path))
        return elf.overrides(function, hierarchy, (symbol for file in files for symbol in file.functions))


@cache
def _system_folders() -> tuple[str, ...]:
    folders = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
    for base in ("/lib", "/usr/lib"):
        folders += [str(path) for path in Path(base).glob("*-linux-*") if path.is_dir()]
    for note in sorted(Path("/etc/ld.so.conf.d").glob("*.conf")) if os.path.isdir("/etc/ld.so.conf.d") else []:
        try:
            folders += [line.strip() for line in note.read_text().splitlines() if line.strip().startswith("/")]
        except OSError:
            continue
    return tuple(dict.fromkeys(folders))
