"""memprof's configuration: `memprof.toml`, or the table `[tool.memprof]` of `pyproject.toml`.

    insecure_fleet = true                  # reach a fleet's scheduler on another machine without TLS
    [defaults]                             # settings of what is measured: see memprof.subjects.configuration
    timeout = "2min"
    [places]                               # names for --on: see memprof.places.names
    board = "ssh:pi@board"
    tv = { on = "ssh:root@tv", remote_dir = "/opt/memprof", python = "/opt/rt/bin/python" }

The nearest file counts, alone: that of the current folder or of a folder above it, up to the repository's root or the home folder; of two in one
folder it is memprof.toml. The rooms that a part is for check what it holds beyond its form.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from . import toml
from .errors import InputError, near_or_all, os_reason

NAMES = "memprof.toml or [tool.memprof] of pyproject.toml"
_FORMS: Mapping[str, tuple[type, str]] = {
    "defaults": (dict, "a table"),
    "places": (dict, "a table"),
    "insecure_fleet": (bool, "true or false"),
}


class ConfigurationFile(Struct, frozen=True):
    """What the file says; nothing if there is none, and path is None then."""

    path: Path | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Any] = field(default_factory=dict)
    insecure_fleet: bool = False


@cache
def read() -> ConfigurationFile:
    """The configuration for the current folder, as it is when this is first called. Raises InputError."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # it was removed
        return ConfigurationFile()
    return next((file for folder in _folders(here) for file in _of_folder(folder)), ConfigurationFile())


def _folders(here: Path) -> Iterator[Path]:
    home = Path(os.path.realpath(os.path.expanduser("~")))
    for folder in (here, *here.parents):
        yield folder
        if folder == home or (folder / ".git").exists():
            return


def _of_folder(folder: Path) -> Iterator[ConfigurationFile]:
    for path in (folder / "memprof.toml", folder / "pyproject.toml"):
        if path.is_file() and not _is_foreign(path) and (table := _table(path)) is not None:
            yield ConfigurationFile(path, table.get("defaults", {}), table.get("places", {}), table.get("insecure_fleet", False))


def _is_foreign(path: Path) -> bool:
    """Whether somebody else put the file into a folder that is open to all, such as /tmp: it may name programs, which would be run."""
    return bool(path.parent.stat().st_mode & 0o002) and path.stat().st_uid not in (0, os.geteuid())


def _table(path: Path) -> dict[str, Any] | None:
    """What a file says, checked; None for a pyproject.toml without memprof's table."""
    try:
        table = toml.read(path)
        if path.name == "pyproject.toml":
            tool = table.get("tool")
            table = tool.get("memprof") if isinstance(tool, dict) else None
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if table is None:
        return None
    if not isinstance(table, dict):
        raise InputError(f"{path}: tool.memprof is a table")
    for key, value in table.items():
        if key not in _FORMS:
            raise InputError(f"{path}: there is no {key!r}{near_or_all(key, _FORMS)}")
        kind, form = _FORMS[key]
        if not isinstance(value, kind):
            raise InputError(f"{path}: {key} is {form}")
    return table
