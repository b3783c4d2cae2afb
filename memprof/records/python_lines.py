"""Lines of Python code and how much their objects grew, as the measured side writes them (runners/tracing.py)."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import Struct


class GrowthLine(Struct, frozen=True):
    """A line of Python code whose objects grew: file, number, by how many bytes and by how many blocks. library_file, library_number: where a library
    that the line called allocated most of them, by the path inside the library's folder; None if the line did."""

    file: str
    number: int
    bytes: int
    blocks: int
    library_file: str | None = None
    library_number: int | None = None


def read_lines(path: Path) -> tuple[GrowthLine, ...]:
    """The answer of runners/tracing.py, the line that grew most first."""
    return tuple(GrowthLine(*row) for row in json.loads(path.read_text(encoding="utf-8")))
