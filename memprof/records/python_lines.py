"""Lines of Python code and how much their objects grew, as the measured side writes them (runners/tracing.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GrowthLine:
    """A line of Python code whose objects grew: file, number, by how many bytes and by how many blocks."""

    file: str
    number: int
    bytes: int
    blocks: int


def read_lines(path: Path) -> tuple[GrowthLine, ...]:
    """The answer of runners/tracing.py, the line that grew most first."""
    return tuple(GrowthLine(*row) for row in json.loads(path.read_text(encoding="utf-8")))
