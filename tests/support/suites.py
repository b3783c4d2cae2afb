"""Suites of one thing, as questions take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import fields

from memprof.programs import commands
from memprof.records.types import COMMAND
from memprof.subjects.suite import Suite, Variant

_FIELDS = {field.name for field in fields(Suite)}


def one(model: str | Path, runtime: str = "synthetic", **settings: Any) -> Suite:
    """A model in a runtime."""
    return Suite(models=(str(model),), variants=(Variant(runtime),), **settings)


def program(text: str, models: Sequence[str] = (), **settings: Any) -> Suite:
    """A program, in the words of a shell."""
    command = commands.parse(text)
    return Suite(models=tuple(models), variants=(Variant(COMMAND, command.name, command=command),), **settings)


def apart(words: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The words that are settings of a suite, and the others."""
    return {name: value for name, value in words.items() if name in _FIELDS}, {
        name: value for name, value in words.items() if name not in _FIELDS
    }
