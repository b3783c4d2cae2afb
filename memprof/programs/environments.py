"""Environments of memprof's own: in its cache, a folder each (see cache_folders.py), with one package at one version and those that it needs.

Here they are found, held and removed; memprof.versions makes them, by `python -m venv` and pip, or by npm.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ..base import cache_folders
from ..base.cache import cache_folder


class Environment(Struct, frozen=True):
    """A whole environment. runtime: the name of what it is for: a runtime, a package, or `npm:` and a package. python: the version of its
    interpreter. packages: their versions by name. bytes: what it takes on the disk.

    kept: a person asked for it; others were made by a search, and go when room is needed. requirements: the other requirements of the request,
    sorted.
    """

    runtime: str
    version: str
    python: str
    interpreter: str
    bytes: int
    kept: bool
    packages: dict[str, str]
    requirements: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Its folder."""
        return Path(self.interpreter).parent.parent

    @property
    def last_used(self) -> float:
        """When it was last used, in seconds since 1970."""
        return cache_folders.last_used(self.folder)


def version_key(version: str) -> tuple[object, ...]:
    """A key that sorts versions as PEP 440 does, for releases, pre-releases and development releases; a local part (`+cpu`) does not count."""
    public = version.lower().partition("+")[0]
    release, rest = re.match(r"v?([\d.]*)(.*)", public, re.DOTALL).groups()  # type: ignore[union-attr]
    numbers = [int(part) for part in release.split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    before = re.match(r"[._-]?(dev|a|b|rc|c)[a-z]*[._-]?(\d*)", rest)
    kind = ("dev", "a", "b", "c", "rc").index(before[1]) if before else 5
    return tuple(numbers), kind, int(before[2] or 0) if before else 0, "" if before else rest


def is_of(version: str, wanted: str) -> bool:
    """Whether a version is the wanted one, or, if that has fewer than three numbers, a release of its line: 1.17.3 is of 1.17."""
    if version_key(version) == version_key(wanted) and ("+" not in wanted or version == wanted):
        return True
    return is_line(wanted) and version.startswith(f"{wanted}.")


def is_line(wanted: str) -> bool:
    """Whether the text names a line of releases, as 1 and 1.17 do, and not one release."""
    return re.fullmatch(r"\d+(\.\d+)?", wanted) is not None


def activated(folder: Path) -> dict[str, str]:
    """The variables by which the `activate` of a virtual environment in this folder puts its programs first."""
    return {"VIRTUAL_ENV": str(folder), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def every() -> list[Environment]:
    """All whole environments, the newest version of each runtime first."""
    environments = []
    for stamp in place().glob(f"*/{cache_folders.STAMP}"):
        with suppress(OSError, msgspec.DecodeError):
            environment = msgspec.json.decode(stamp.read_bytes(), type=Environment)
            # A cache that was moved or copied has stamps of environments that do not work there.
            if environment.folder.samefile(stamp.parent) and os.access(environment.interpreter, os.X_OK):
                environments.append(environment)
    environments.sort(key=lambda environment: (version_key(environment.version), environment.last_used), reverse=True)
    return sorted(environments, key=lambda environment: environment.runtime)


def of(runtime: str, version: str | None = None) -> list[Environment]:
    """The environments of a runtime, or those at a version as `is_of` means it, the newest first."""
    return [each for each in every() if each.runtime == runtime and (version is None or is_of(each.version, version))]


# -- use

_held: dict[Path, int] = {}  # the descriptors of the locks


def use(environment: Environment) -> str:
    """The interpreter of an environment, which nobody removes from now on until this memprof ends. Raises InputError if it is gone."""
    folder = environment.folder
    if folder in _held:
        cache_folders.touch(folder)
    else:
        _held[folder] = cache_folders.hold(folder)
    return environment.interpreter


def remove(environment: Environment) -> bool:
    """Remove an environment; False, and nothing is removed, if another memprof uses it. Raises InputError."""
    held = _held.pop(environment.folder, None)
    if held is not None:
        os.close(held)
    return cache_folders.remove(environment.folder)


# -- making


def finish(environment: Environment) -> None:
    """From now on the environment is whole. Raises InputError."""
    cache_folders.finish(environment.folder, msgspec.json.encode(environment))


@contextmanager
def locked(runtime: str, say: Callable[[str], None]) -> Iterator[None]:
    """The block in which environments of a runtime are made, for one memprof at a time: the second prints a message and waits. Raises InputError."""
    with cache_folders.locked(place() / f"{file_name(runtime)}.lock", f"another memprof installs {runtime}", say):
        yield


def file_name(name: str) -> str:
    """The name as one of a file, which can stand on PATH: npm's names have a colon, and may have a slash."""
    return re.sub("[:/]", "+", name)


def place() -> Path:
    """The folder of all environments. Raises InputError if it cannot be made."""
    return cache_folder(cache_folders.ENVIRONMENTS)
