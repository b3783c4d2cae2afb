"""Code of a checkout that a program of Python's runs although it starts in the tree of another commit: both sides of a gate then run the same.

It comes from a package that was installed from the checkout (PEP 610's direct_url.json names the folder), or from a folder of the checkout on the
interpreter's path, by a line of a .pth file or by PYTHONPATH. The folders that Python and pytest put before these lie in each side's tree: that of
the script, that of `python -m`, a relative one in PYTHONPATH, `pythonpath` in pytest's ini file. What is found there is each side's own.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct, field

from ..base import toml
from ..programs import commands
from ..programs.commands import Command
from . import side_environments
from .worktrees import Repository

_PATHS = "import json, sys; print(json.dumps({'path': sys.path, 'prefixes': [sys.prefix, sys.base_prefix]}))"
_TIMEOUT_S = 30
_PYTEST = ("pytest", "py.test")
_INI_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")  # in the order in which pytest looks for its ini file
_WITH_VALUE = ("-W", "-X")


class Shared(Struct, frozen=True):
    """Code that both sides run. reason: where it comes from, as the beginning of a sentence. mend: how each side gets its own."""

    reason: str
    mend: str


class _Origin(Struct, frozen=True):
    """What of direct_url.json is read. dir_info: there if it was a folder, and no wheel."""

    url: str
    dir_info: dict[str, object] | None = None


class _Paths(Struct, frozen=True):
    """Of an interpreter: sys.path, and where it is installed."""

    path: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()


class _PythonProgram(Struct, frozen=True):
    """A program of Python's: its words, its interpreter, and the folder in which it starts. python_path: its PYTHONPATH."""

    words: Sequence[str]
    python: str
    folder: Path
    python_path: tuple[str, ...] = field(default=())


def of_python(repository: Repository, command: Command, env: Mapping[str, str], folder: Path) -> list[Shared]:
    """The code that the programs of a command share, as far as they are Python's. env: variables besides the command's. folder: where it starts."""
    if os.path.basename(command.argv[0]) == "uv":
        return []  # `uv run` makes an environment in each tree
    found: list[Shared] = []
    python_path = _python_path({**env, **command.env}, command.argv)
    for words in commands.programs(command.argv):
        python = side_environments.interpreter_of(command, words)
        if python is not None:
            found += _shared(repository, _PythonProgram(words, python, folder, python_path))
    return list(dict.fromkeys(found))


def of_shell(repository: Repository, command: Command) -> list[Shared]:
    """What a program that is not Python's shares if it starts the Python that PATH finds."""
    if any(side_environments.interpreter_of(command, words) for words in commands.programs(command.argv)):
        return []
    return [
        Shared(f"{about} was installed from this checkout", _installing(command.name))
        for about, _ in _installed(repository, side_environments.metadata(command))
    ]


def _shared(repository: Repository, program: _PythonProgram) -> Iterator[Shared]:
    root = repository.root.resolve()
    first = list(_first_folders(program, root))
    origins = []
    for about, origin in _installed(repository, side_environments.metadata_of(program.python)):
        origins.append(origin)
        if not any(_has(folder, name) for folder in first for name in _modules(about)):
            yield Shared(f"{about} was installed from this checkout", _installing(_installable(program, about)))
    for name in program.python_path:
        if os.path.isabs(name) and Path(name).resolve().is_relative_to(root):
            yield Shared(f"PYTHONPATH names {name} in this checkout", _relative(name, program.folder))
    for path in _of_checkout(program.python, root):
        if path not in first and not any(path.is_relative_to(origin) for origin in origins):
            yield Shared(f"{path} in this checkout is on the path of {program.python}", _relative(path, program.folder))


def _installing(program: str) -> str:
    return f"--build '{' '.join(filter(None, ['pip install .', program]))}' installs each side's code for that side"


def _relative(path: str | Path, folder: Path) -> str:
    return f"--env PYTHONPATH={os.path.relpath(os.path.realpath(path), folder.resolve())} gives each side the folder of its tree"


def _installable(program: _PythonProgram, about: Path) -> str:
    """The name under which pip installs a program, empty for one that comes with Python or with the package itself."""
    name = commands.subject(program.words)
    own = about / "entry_points.txt"
    if side_environments.is_python(program.words[0]):
        return name if "-m" in program.words else ""
    return "" if own.exists() and re.search(rf"(?m)^{re.escape(name)}\s*=", own.read_text("utf-8", "replace")) else name


# -- what is installed from the checkout, or on the path


def _installed(repository: Repository, entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[Path, Path]]:
    """The folders of packages that came from a checkout, each with its origin, a folder or a wheel. A wheel that git tracks is no build of it."""
    root = repository.root.resolve()
    for entry in sorted(entries, key=lambda entry: entry.path):
        with suppress(OSError, msgspec.DecodeError):
            origin = msgspec.json.decode(Path(entry.path, "direct_url.json").read_bytes(), type=_Origin)
            parts = urlsplit(origin.url)
            path = Path(unquote(parts.path)).resolve()
            if parts.scheme == "file" and path.is_relative_to(root) and (origin.dir_info is not None or not repository.tracks(path)):
                yield Path(entry.path), path


def _modules(about: Path) -> list[str]:
    """The names by which a package is imported, by its top_level.txt; else its own name."""
    with suppress(OSError):
        if names := (about / "top_level.txt").read_text("utf-8").split():
            return names
    return [re.sub(r"[-.]", "_", about.name.partition("-")[0])]


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_dir() or (folder / f"{name}.py").exists()


def _of_checkout(python: str, root: Path) -> list[Path]:
    """The folders of a checkout on an interpreter's path, without those of an environment in it and of `pip install --target`."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it reaches neither side
    try:
        done = subprocess.run(
            [python, "-c", _PATHS],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=variables,
            cwd=os.path.abspath(os.sep),
            timeout=_TIMEOUT_S,
            check=False,
        )
        paths = msgspec.json.decode(done.stdout, type=_Paths)
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return []  # it runs no program either
    libraries = [Path(prefix, name).resolve() for prefix in paths.prefixes for name in ("lib", "lib64")]
    folders = [Path(path).resolve() for path in paths.path if path]
    return [
        folder
        for folder in dict.fromkeys(folders)
        if folder.is_relative_to(root)
        and folder.is_dir()
        and not any(map(folder.is_relative_to, libraries))
        and next(folder.glob("*.dist-info"), None) is None
    ]


# -- folders of each side


def _python_path(env: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """The folders of PYTHONPATH, by variables or by words such as those of `env PYTHONPATH=src`."""
    values = [env.get("PYTHONPATH", ""), *(word.partition("=")[2] for word in argv if word.startswith("PYTHONPATH="))]
    return tuple(path for value in values for path in value.split(os.pathsep) if path)


def _first_folders(program: _PythonProgram, root: Path) -> Iterator[Path]:
    """The folders of the checkout whose counterparts in each tree come before what is installed."""
    folder = program.folder.resolve()
    yield from ((folder / path).resolve() for path in program.python_path if not os.path.isabs(path))
    if side_environments.is_python(program.words[0]):
        words = iter(program.words[1:])
        for word in words:
            if word in _WITH_VALUE:
                next(words, None)
            elif word in ("-m", "-c"):
                yield folder
                break
            elif not word.startswith("-"):
                yield (folder / word).resolve().parent
                break
    if commands.subject(program.words) in _PYTEST:
        yield from _first_of_pytest(program.words, folder, root)


def _first_of_pytest(words: Sequence[str], folder: Path, root: Path) -> Iterator[Path]:
    """`pythonpath`, and the folder above tests that are a package or beside conftest.py, which the import mode `prepend` inserts."""
    ini_folder, settings = _pytest_settings(folder, root)
    for word in words:
        name, equals, value = word.removeprefix("-o").removeprefix("--override-ini=").partition("=")
        if equals and name == "pythonpath":
            settings = {**settings, name: value.split()}
    yield from ((ini_folder / path).resolve() for path in settings.get("pythonpath", ()))
    if "importlib" in " ".join([*words, *settings.get("addopts", ())]):
        return
    for place in dict.fromkeys((folder, ini_folder)):
        tests = any((place / name / "__init__.py").exists() for name in ("tests", "test"))
        if (tests or (place / "conftest.py").exists()) and not (place / "__init__.py").exists():
            yield place


def _pytest_settings(folder: Path, root: Path) -> tuple[Path, dict[str, list[str]]]:
    """The folder of pytest's ini file, and the words of its settings; where it has none, the folder itself."""
    for place in (folder, *folder.parents):
        for name in _INI_FILES:
            with suppress(OSError, ValueError, configparser.Error):  # a file that pytest itself will refuse
                settings = _ini(place / name)
                if settings is not None:
                    return place, settings
        if place == root:
            break
    return folder, {}


def _ini(path: Path) -> dict[str, list[str]] | None:
    """Pytest's settings in a file, None if it is not pytest's."""
    if path.suffix == ".toml":
        table = toml.read(path).get("tool", {}).get("pytest", {}).get("ini_options")
        return None if table is None else {key: value.split() if isinstance(value, str) else _texts(value) for key, value in table.items()}
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(path.read_text("utf-8"))
    section = "tool:pytest" if path.name == "setup.cfg" else "pytest"
    return {key: value.split() for key, value in parser[section].items()} if parser.has_section(section) else None


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]
