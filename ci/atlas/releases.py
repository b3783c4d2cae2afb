"""Releases as the commits of a history: which of them are measured, and how they stand in order.

A history sorts commits by time and then by hash, and asks for no more than 40 or 64 hexadecimal digits. A release's hash here is its runtime's place
and the numbers of its version, and its time is 0: so the releases of a runtime stand beside each other, the oldest first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from memprof.programs import environments
from memprof.versions.commits import Commit

_MOST = 4  # numbers of a version: 2026.4.8672.1
_DIGITS = 14  # hexadecimal, of a number, which may be a date and a time


def chosen(versions: Sequence[str], count: int) -> list[str]:
    """The releases to measure, the oldest first: the newest of each of the last `count` lines, such as 1.31, or the last releases of a
    runtime that has fewer lines."""
    ordered = sorted(versions, key=environments.version_key)
    lines = {".".join(version.split(".")[:2]): version for version in ordered}
    return (list(lines.values()) if len(lines) >= count else ordered)[-count:]


def commit(place: int, runtime: str, version: str) -> Commit:
    """The release as a commit. place: of the runtime among all, below 256."""
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])][:_MOST]
    digits = "".join(f"{number:0{_DIGITS}x}" for number in numbers + [0] * (_MOST - len(numbers)))
    return Commit(f"{place:02x}{digits}".ljust(64, "0"), 0, (), f"{runtime} {version}", (version,))
