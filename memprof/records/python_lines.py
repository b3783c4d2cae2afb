"""Lines of Python code and how much their objects grew, as the measured side writes them (runners/tracing.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace


class GrowthLine(Struct, frozen=True):
    """A line of Python code whose objects grew: file, number, by how many bytes and by how many blocks. library_file, library_number: where a library
    that the line called allocated most of them, by the path inside the library's folder; None if the line did. holder: the
    container that holds most of the objects, in words; empty if none with a name was found, None if no object of the line was seen."""

    file: str
    number: int
    bytes: int
    blocks: int
    library_file: str | None = None
    library_number: int | None = None
    holder: str | None = None

    @property
    def holder_words(self) -> str:
        """What follows the line in a sentence."""
        if self.holder is None:
            return ""
        return f", held by {self.holder}" if self.holder else "; what holds them was not found"


def read_lines(path: Path) -> tuple[GrowthLine, ...]:
    """The answer of runners/tracing.py, the line that grew most first."""
    return tuple(GrowthLine(*row) for row in json.loads(path.read_text(encoding="utf-8")))


def within(lines: Sequence[GrowthLine], most_bytes: float) -> Iterator[GrowthLine]:
    """The lines in their order, which together have no more than the growth that was measured: under tracemalloc a process may keep a little more."""
    left = max(int(most_bytes), 0)
    for line in lines:
        if left:
            yield replace(line, bytes=min(line.bytes, left))
        left -= min(line.bytes, left)
