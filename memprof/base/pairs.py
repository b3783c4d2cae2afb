"""Pairs of a name and a value, as a user gives them one after another: each name has one value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .errors import UsageError

Value = TypeVar("Value")
LEAVE_ONE_OUT = "leave one out"
WITH_COMMAS = "its values stand together, with commas"


def by_name(pairs: Iterable[tuple[str, Value]], option: str, recipe: str = LEAVE_ONE_OUT) -> dict[str, Value]:
    """The values by name. option: what takes them, as a refusal names it; recipe: the advice in it.

    Raises UsageError for a name that comes twice, whatever its values: the last would win in silence.
    """
    values: dict[str, Value] = {}
    for name, value in pairs:
        if name in values:
            raise UsageError(f"{option} {name} takes one value, and two are given: {recipe}")
        values[name] = value
    return values
