"""Which Python packages a side of a gate of a program sees: those that its own build installed, and not those of the other side.

A build that installs packages by name (`pip install .`) gets a virtual environment for each side, and the program must come from there. Any other
build may install into an environment that both sides see (`make install`). The build of base must then leave it as the build of head did, because
otherwise both sides run what base installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from ..base import processes
from ..base.errors import InputError, UsageError
from ..programs import commands, environments
from ..programs.commands import Command
from ..subjects.suite import Build

# An installer that PATH finds; `.v/bin/pip` installs into an environment that the build has chosen itself.
_INSTALLER = re.compile(
    r"(?<![\w./-])(?<!-m )(?:python[0-9.]*\s+-m\s+)?(?:pip[0-9.]*|uv\s+pip|poetry|pdm|flit|maturin)\s(?:[^;&|\n]*\s)?(?:install|develop|sync)\b"
)
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_METADATA = (".dist-info", ".egg-info", ".egg-link", ".pth")
_OF_VENV = ("pip-", "setuptools-", "distutils-precedence")  # what a new environment has
_FOLDERS = "import site; print(*site.getsitepackages(), site.getusersitepackages(), sep='\\n')"
_TIMEOUT_S = 30


def installs(build: Build) -> bool:
    """Whether a build's command calls an installer of Python packages that writes into the environment in use."""
    return _INSTALLER.search(build.command) is not None


def with_path_python(build: Build) -> Build:
    """The build with the Python of PATH for its environment, as its command would use it, where it names none."""
    return replace(build, python=build.python or shutil.which("python3"))


def is_empty(python: str) -> bool:
    """Whether nothing was installed into an environment, whose interpreter is `python`: a program that needs packages would not find any."""
    found = Path(python).parent.parent.glob("lib/python*/site-packages/*")
    return not any(path.name.endswith(_METADATA) and not path.name.startswith(_OF_VENV) for path in found)


def inside(command: Command, tree: Path, python: str, build: Build) -> Command:
    """A command with the programs of an environment first on its PATH. tree: of its side. python: the environment's interpreter.

    Raises UsageError if the build installs packages, and a program of Python's comes neither from the tree nor from the environment: it would not
    see what was installed.
    """
    command = replace(command, surroundings={**command.surroundings, **environments.activated(Path(python).parent.parent)})
    if installs(build):
        _check_programs(command, commands.programs(command.argv), (Path(python).parent.parent, tree), build)
    return command


def check_paths(command: Command, tree: Path, build: Build) -> None:
    """As `inside` does, for the programs that the command names by a path: these are known before the build. Raises UsageError."""
    if installs(build):
        named = [words for words in commands.programs(command.argv) if os.sep in words[0]]
        _check_programs(command, named, (tree,), build)


def _check_programs(command: Command, programs: Iterable[Sequence[str]], own: Sequence[Path], build: Build) -> None:
    """own: the folders in which a side finds its own code."""
    for words in programs:
        path = _file(command, words)
        if path is None or any(map(path.is_relative_to, own)) or _interpreter(path) is None:
            continue
        if os.sep in words[0] or is_python(path.name):
            mend = "name the program without a folder, and let the build install it too"
        else:
            mend = f"let the build install {path.name} too, `{build.command} {path.name}`"
        raise UsageError(f"`{build.command}` installs into an environment for each side, and {path} does not see that: {mend}")


def installed(command: Command) -> dict[str, int]:
    """When what the Pythons of this shell and of a command's program have installed was last changed, by path, and so the program's file."""
    paths = [entry.path for entry in metadata(command)]
    program = _program(command)
    times: dict[str, int] = {}
    for path in (*paths, *([str(program)] if program is not None else [])):
        with suppress(OSError):
            times[path] = os.stat(path).st_mtime_ns
    return times


def check_shared(after_head: dict[str, int], after_base: dict[str, int], build: Build) -> None:
    """Raises InputError if base's build has changed what head's build had left for both sides."""
    changed = sorted(path for path, _ in after_head.items() ^ after_base.items())
    if changed:
        raise InputError(
            f"both builds install into one place, so that both sides would run what the last one installed: `{build.command}` changed "
            f"{changed[0]} again for base. Install into each tree: --build 'python3 -m venv .v && .v/bin/pip install . pytest' -- .v/bin/pytest"
        )


def _program(command: Command) -> Path | None:
    return _file(command, commands.launched(command.argv))


def _file(command: Command, words: Sequence[str]) -> Path | None:
    """The file of a program that a command starts. None if it is not there yet, or not at all."""
    with suppress(InputError):
        # A virtual environment's interpreter is a link, which must not be followed.
        return Path(os.path.abspath(commands.program(replace(command, argv=tuple(words)))))
    return None


def metadata(command: Command) -> Iterator[os.DirEntry[str]]:
    """The entries that say what is installed for the Python of a command's program; for another program, for the Pythons that its shell finds."""
    own = interpreter_of(command, commands.launched(command.argv))
    pythons = [own] if own is not None else [shutil.which("python"), shutil.which("python3")]
    return metadata_of(*(python for python in pythons if python is not None))


def metadata_of(*pythons: str) -> Iterator[os.DirEntry[str]]:
    """The same for interpreters."""
    folders = {folder: None for python in dict.fromkeys(pythons) for folder in _site_folders(python)}
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            yield from (entry for entry in entries if entry.name.endswith(_METADATA))


def interpreter_of(command: Command, words: Sequence[str]) -> str | None:
    """The interpreter of a program that a command starts with these words; None if it is none of Python's, or not there."""
    path = _file(command, words)
    return _interpreter(path) if path is not None else None


def is_python(program: str) -> bool:
    """Whether a program is the interpreter itself, by its name."""
    return _PYTHON.fullmatch(os.path.basename(program)) is not None


def _site_folders(python: str) -> list[str]:
    try:
        done = subprocess.run(
            [python, "-c", _FOLDERS], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []  # it runs no program either
    return done.stdout.splitlines()


def _interpreter(program: Path) -> str | None:
    """The interpreter that runs a program of Python's: itself, or that of a script's first line. None for any other program."""
    if is_python(program.name):
        return str(program)
    words = processes.interpreter_words(str(program))
    if words and os.path.basename(words[0]) == "env":
        words = [found for word in words[1:] if _PYTHON.fullmatch(word) and (found := shutil.which(word))]
    return words[0] if words and is_python(words[0]) else None
