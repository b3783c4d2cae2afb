"""The defaults of memprof's configuration, `[defaults]`: the settings of SETTINGS, with the keys and values of a suite's file.

    timeout = "2min"
    cpus = 0
    no_swap = true
    threads = [1, 2]
    env = { A = "1" }

Paths are relative to the file. What a subject does not heed is not used for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from ..base import configuration_file
from ..base.errors import InputError, UsageError, near_or_all
from ..places.place import HERE
from .settings import SETTINGS, Setting
from .suite import Suite, variants_of

_BY_KEY = {setting.parameter: setting for setting in SETTINGS if setting.name != "drive"}  # a load is of one server


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
    values = {name: value for name, value in values.items() if name not in varied and _heeds(suite, _BY_KEY[name], here)}
    if "set" in values:
        values["set"] = {knob: value for knob, value in values["set"].items() if knob not in varied}
    full = suite.over(Suite(**{_BY_KEY[name].field: value for name, value in values.items()}))
    names = [name for name in values if getattr(full, _BY_KEY[name].field) != getattr(suite, _BY_KEY[name].field)]
    if names:
        say(f"defaults from {path}: {', '.join(names)}")
    return full


def _heeds(suite: Suite, setting: Setting, here: bool) -> bool:
    """Whether all that would get the setting can heed it. here: it is measured on this machine."""
    commands = [variant.command for variant in variants_of(suite) if variant.command is not None]
    runtimes = [variant.runtime for variant in variants_of(suite) if variant.command is None]
    if setting.only and not (runtimes if setting.only == "runtime" else commands):
        return False
    match setting.parameter:
        case "python":  # the interpreter of one machine, with one version
            return here and not any("@" in runtime for runtime in runtimes)
        case "phase":  # gdb follows a program here alone
            return here and suite.drive is None
        case "phase_regex":
            return suite.drive is None
        case "threads":
            return all(command.has("threads") for command in commands)
        case "warmup" | "runs":
            return bool(runtimes) or suite.drive is not None or any(command.has(setting.name) for command in commands)
    return True


def _value(path: Path, name: str, given: Any) -> Any:
    """The field's value of a default, read as a suite's file would be."""
    if name not in _BY_KEY:
        raise InputError(f"{path}: there is no default {name!r}{near_or_all(name, _BY_KEY)}")
    setting = _BY_KEY[name]
    try:
        return setting.value_in(path.parent, msgspec.convert(given, setting.file_type))
    except (UsageError, msgspec.ValidationError) as error:
        raise InputError(f"{path}: default {name}: {error}") from None
