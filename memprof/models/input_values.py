"""The values of a model's inputs: what a user gives for them, checked against the model's file, and what memprof chooses where nobody gave any."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ..base.errors import UsageError
from ..records.types import Job
from . import inputs
from .inputs import Input

_WHOLE = re.compile(r"(u?)int(\d+)")
_WIDE = ("int32", "int64", "uint32", "uint64")  # smaller ones are content, such as an image's
_MOST = 6  # inputs in a sentence


def check(path: Path, values: Mapping[str, str], in_file: Collection[str]) -> None:
    """Raises UsageError for a value that is none of its input's type, as far as the model's file tells that.

    in_file: the inputs that a file gives; a value for one of these is refused too.
    """
    types = {declared.name: declared.dtype for declared in inputs.inputs(path)}
    for name, value in values.items():
        if name in in_file:
            raise UsageError(f"--input {name}={value}: the file of --inputs has {name} too; leave one of the two out")
        if expected := _refusal(types.get(name, ""), value):
            raise UsageError(f"--input {name}={value}: {name} is {types[name]}, which takes {expected}")


def _refusal(dtype: str, value: str) -> str:
    """What a type takes, if it does not take the value; else empty."""
    if dtype == "bool":
        return "" if value in ("on", "off") else "on or off"
    whole = _WHOLE.fullmatch(dtype)
    if whole is not None:
        unsigned, bits = bool(whole[1]), int(whole[2])
        least, most = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return "" if _within(value, least, most) else f"a whole number from {least} to {most}"
    if dtype.startswith(("float", "bfloat")):
        return "" if _is_number(value) else "a number"
    return ""


def _within(value: str, least: int, most: int) -> bool:
    try:
        return least <= int(value) <= most
    except ValueError:
        return False


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def made(path: Path, given: Collection[str]) -> dict[str, str]:
    """The scalars, and the tensors of whole numbers, that memprof chooses, with what they are in words. given: the inputs that are not its choice."""
    chosen = {declared.name: _made(declared) for declared in inputs.inputs(path) if declared.name not in given}
    return {name: words for name, words in chosen.items() if words}


def _made(declared: Input) -> str:
    if declared.dtype == "bool" or _WHOLE.fullmatch(declared.dtype):
        if not declared.shape:
            return "off" if declared.dtype == "bool" else "0"
        return "all 0" if declared.dtype in _WIDE else ""
    return "a number from 0 to 1" if not declared.shape and "float" in declared.dtype else ""


def invented(job: Job, message: str) -> str:
    """What memprof chose of a failed job's inputs, as a piece of a sentence; empty for none. It is no cause: no other value was tried. Only where the
    runtime's message names such an input, the sentence says so."""
    parts = list(_choices(job))
    if not parts:
        return ""
    more = f" and {len(parts) - _MOST} more" if len(parts) > _MOST else ""
    listed = ", ".join(f"{name} {words}" for name, words in parts[:_MOST]) + more
    named = [name for name in dict.fromkeys(name for name, _ in parts) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message)]
    cause = f"the runtime names {', '.join(named)}" if named else "whether others would run is not known"
    return f"memprof chose these inputs: {listed}; {cause} (--shape, --input and --inputs give your own)"


def _choices(job: Job) -> Iterator[tuple[str, str]]:
    for name, shape in job.assumed.items():
        yield name, f"of shape {'x'.join(map(str, shape))} (open dimensions taken as 1)"
    for name, words in job.made.items():
        yield name, f"= {words}"
    for name, rows in job.ranges.items():
        yield name, f"= integers from 0 to {rows - 1:,}"
