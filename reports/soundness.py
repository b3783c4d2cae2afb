"""Figures that no machine has: a file can hold any number, and sums of the largest do not fit into 64 bits or a float."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from memprof.base.errors import InputError
from memprof.records.types import Run

_LARGEST = 2**62  # bytes or nanoseconds


def sound(runs: Iterable[Run]) -> None:
    """Raises InputError where a run has a figure that no machine has."""
    for run in runs:
        check(run, f"{run.job.heading}, repeat {run.job.repeat}")


def check(record: object, called: str) -> None:
    """Raises InputError where a record has a figure that no machine has; `called` names the record in it."""
    if _largest(record) > _LARGEST:
        raise InputError(f"{called}: it holds a figure larger than any machine has")


def _largest(value: object) -> int:
    # A float may be a value that a program printed, however large; it overflows nothing.
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0)
    if isinstance(value, (tuple, list)):
        return max(map(_largest, value), default=0)
    if isinstance(value, Struct):
        return max((_largest(getattr(value, name)) for name in value.__struct_fields__), default=0)
    return 0
