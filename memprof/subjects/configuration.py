"""The defaults of memprof's configuration, `[defaults]`: settings by the names of SETTINGS, as suite files write them.

    timeout = "2min"
    cpus = 0
    no-swap = true
    threads = [1, 2]
    env = { A = "1" }

Paths are relative to the file. What a subject does not heed is not used for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from ..base import configuration_file
from ..base.errors import InputError, UsageError, near_or_all
from ..places.place import HERE
from .settings import SETTINGS, Setting, relative
from .suite import Suite, variants_of

_BY_NAME = {setting.name: setting for setting in SETTINGS if setting.name != "drive"}  # a load is of one server


def with_defaults(suite: Suite, say: Callable[[str], None], on_fleet: bool = False, varied: Collection[str] = ()) -> Suite:
    """The suite with the defaults for what it lacks.

    say: hears which those are. on_fleet: it is measured there, and not at its place. varied: what takes values of its own, by the names of
    dimensions. Raises InputError.
    """
    file = configuration_file.read()
    if file.path is None:
        return suite
    path, here = file.path, suite.place is HERE and not on_fleet
    values = {name: _value(path, name, given) for name, given in file.defaults.items()}
    values = {name: value for name, value in values.items() if name not in varied and _heeds(suite, _BY_NAME[name], here)}
    if "set" in values:
        values["set"] = {knob: value for knob, value in values["set"].items() if knob not in varied}
    full = suite.over(Suite(**{_BY_NAME[name].field: value for name, value in values.items()}))
    names = [name for name in values if getattr(full, _BY_NAME[name].field) != getattr(suite, _BY_NAME[name].field)]
    if names:
        say(f"defaults from {path}: {', '.join(names)}")
    return full


def _heeds(suite: Suite, setting: Setting, here: bool) -> bool:
    """Whether all that would get the setting can heed it. here: it is measured on this machine."""
    commands = [variant.command for variant in variants_of(suite) if variant.command is not None]
    runtimes = [variant.runtime for variant in variants_of(suite) if variant.command is None]
    if setting.only and not (runtimes if setting.only == "runtime" else commands):
        return False
    match setting.name:
        case "python":  # the interpreter of one machine, with one version
            return here and not any("@" in runtime for runtime in runtimes)
        case "phase":  # gdb follows a program here alone
            return here and suite.drive is None
        case "phase-regex":
            return suite.drive is None
        case "threads":
            return all(command.has("threads") for command in commands)
        case "warmup" | "runs":
            return bool(runtimes) or suite.drive is not None or any(command.has(setting.name) for command in commands)
    return True


def _value(path: Path, name: str, given: Any) -> Any:
    """The field's value of a default, read as the option's word would be."""
    if name not in _BY_NAME:
        raise InputError(f"{path}: there is no default {name!r}{near_or_all(name, _BY_NAME)}")
    setting = _BY_NAME[name]
    try:
        word = _word(setting, given)
        if setting.path or (name == "python" and os.sep in word):  # python3.12 is looked for on PATH
            word = relative(path.parent, word)
        return setting.value(word)
    except UsageError as error:
        raise InputError(f"{path}: default {name}: {error}") from None


def _word(setting: Setting, given: Any) -> Any:
    """What click makes of the option. Raises UsageError."""
    if setting.many:
        if not isinstance(given, dict):
            raise UsageError("write a table")
        switches = {True: "on", False: "off"} if setting.name == "set" else {}
        return [f"{key}={switches[value] if isinstance(value, bool) and switches else _text(value)}" for key, value in given.items()]
    if setting.kind is not str:
        if type(given) is not setting.kind:
            raise UsageError("write true or false" if setting.kind is bool else "write a whole number")
        return given
    text = _text(given)
    if not text or (setting.choices and text not in setting.choices):
        raise UsageError(f"write {' or '.join(setting.choices) or 'a text'}")
    return text


def _text(given: Any) -> str:
    """A text, a whole number or a list of these as an option has it."""
    if isinstance(given, list):
        return ",".join(map(_text, given))
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise UsageError("write a text")
    return str(given)
