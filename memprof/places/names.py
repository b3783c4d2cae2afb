"""Names that the user gives to places in memprof's configuration: `--on board` for `--on ssh:pi@board`, with its folder and its interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..base import configuration_file
from ..base.errors import InputError, near, near_or_all

KINDS = ("here", "ssh", "adb", "labgrid", "dask")
# Why the other commands refuse one.
ON_A_FLEET = "only `memprof run`, `scale`, `tune` and `bisect` measure on a fleet; name one machine, such as --on ssh:BOARD"
_KEYS = ("on", "remote_dir", "python")


class NamedPlace(Struct, frozen=True):
    """A place in the words of --on, --remote-dir and --python, the last two None for the usual."""

    on: str
    remote_dir: str | None = None
    python: str | None = None


def meant(on: str) -> NamedPlace:
    """The place that the word of --on means: that of this name in the configuration, or else the word itself. Raises InputError."""
    return NamedPlace(on) if _is_of_kind(on) else known().get(on, NamedPlace(on))


def known() -> Mapping[str, NamedPlace]:
    """The places of the configuration by their names. Raises InputError."""
    file = configuration_file.read()
    return {name: _place(f"{file.path}: place {name}", name, words) for name, words in file.places.items()}


def _is_of_kind(on: str) -> bool:
    return ":" in on or on == "here"


def _place(where: str, name: str, words: Any) -> NamedPlace:
    if _is_of_kind(name) or not name:
        raise InputError(f"{where}: a name is no kind of place and has no colon")
    table = {"on": words} if isinstance(words, str) else words
    if not isinstance(table, dict) or "on" not in table or not all(isinstance(word, str) for word in table.values()):
        raise InputError(f'{where}: write "ssh:pi@board", or {{ on = "ssh:pi@board", remote_dir = "FOLDER", python = "PATH" }}')
    for key in table:
        if key not in _KEYS:
            raise InputError(f"{where}: there is no {key!r}{near_or_all(key, _KEYS)}")
    kind = table["on"].partition(":")[0]
    if kind not in KINDS or not _is_of_kind(table["on"]):
        raise InputError(f"{where}: there is no such kind of place as {table['on']!r}{near(kind, KINDS)}")
    if kind in ("here", "dask") and len(table) > 1:
        raise InputError(f"{where}: {' and '.join(key for key in table if key != 'on')} cannot be said of {table['on']}")
    return NamedPlace(table["on"], table.get("remote_dir"), table.get("python"))
