"""TOML files that people write: read strictly, and within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

_MOST_BYTES = 1 << 20
# Python's own reader takes time and memory that grow with the square of a dotted key's length: seconds and gigabytes for 40 kB.
_MOST_DOTS = 500  # in a line, which a key cannot leave


def read(path: Path, type: type[Any] = dict) -> Any:
    """The content of a file as this type. Raises OSError if it cannot be read, ValueError with a sentence for other content."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("it is longer than 1 MiB")
    if any(line.count(b".") > _MOST_DOTS for line in data.splitlines()):
        raise ValueError("it is nested too deeply")
    try:
        return msgspec.toml.decode(data, type=type)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
