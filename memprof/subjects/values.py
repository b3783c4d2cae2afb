"""The values of settings as text: thread counts, CPUs, shapes, pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..base.errors import UsageError

_MOST_CPUS = 8192  # CONFIG_NR_CPUS of the largest kernels


def parse_threads(text: str) -> tuple[int, ...]:
    """Thread counts in `1,2,4`. Raises UsageError."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise UsageError(f"--threads {text!r}: write whole numbers from 1 on, such as 1,2,4")
    return counts


def parse_cpus(text: str) -> tuple[int, ...]:
    """CPU numbers in `0-3,6`, ascending. Raises UsageError."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(end.isdecimal() and end.isascii() and int(end) < _MOST_CPUS for end in ends) or int(ends[0]) > int(ends[1]):
            raise UsageError(f"--cpus {text!r}: write numbers and ranges such as 0-3,6")
        numbers.update(range(int(ends[0]), int(ends[1]) + 1))
    return tuple(sorted(numbers))


def canonical_cpus(text: str) -> str:
    """The same CPUs in the shortest form: `3,0,1` is `0-1,3`. Raises UsageError."""
    parts: list[list[int]] = []
    for number in parse_cpus(text):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`INPUT=1,3,224,224` (or `INPUT=` for a scalar). Raises UsageError."""
    name, equals, sizes = text.rpartition("=")
    refusal = f"--shape {text!r}: write INPUT=1,3,224,224"
    if not equals or not name:
        raise UsageError(refusal)
    return name, parse_sizes(sizes, refusal)


def check_arrays(shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, tuple[int, ...]], file: str, option: str = "--shape") -> None:
    """Raises UsageError for the shape of an input whose array in the .npz file has another: the array alone would be fed. An array of a stream has
    one axis more. arrays: their shapes by input name. option: what gave the shapes."""
    for name in (name for name in shapes if name in arrays):
        if shapes[name] not in (arrays[name], arrays[name][1:]):
            sizes, array = ",".join(map(str, shapes[name])), "x".join(map(str, arrays[name])) or "scalar"
            raise UsageError(f"{option} {name}={sizes}: {Path(file).name} has {name} as {array}; leave one of the two out")


def parse_sizes(text: str, refusal: str) -> tuple[int, ...]:
    """The sizes in `1,3,224,224` or `1x3x224x224`. Raises UsageError with the refusal."""
    try:
        sizes = tuple(int(part) for part in text.replace("x", ",").split(",") if part)
    except ValueError:
        raise UsageError(refusal) from None
    if min(sizes, default=0) < 0:
        raise UsageError(refusal)
    return sizes


def parse_value(text: str) -> tuple[str, str]:
    """`INPUT=VALUE`, where VALUE is the rest of the text. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--input {text!r}: write NAME=VALUE, such as sr=16000")
    return name, value


def parse_pair(text: str) -> tuple[str, str]:
    """KEY and VALUE of `KEY=VALUE`. Raises UsageError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r} is not a setting: write KEY=VALUE")
    return key, value
