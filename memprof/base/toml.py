"""TOML files that people write: read strictly, and within bounds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from .errors import InputError, UsageError, os_reason

_MOST_BYTES = 1 << 20
# Python's own reader takes time and memory that grow with the square of a dotted key's length: seconds and gigabytes for 40 kB.
_MOST_DOTS = 500  # in a line, which a key cannot leave
_STRING = re.compile(rb'"(?:[^"\\]|\\.?)*(?:"|$)|\'[^\']*(?:\'|$)')


def read(path: Path, type: type[Any] = dict) -> Any:
    """The content of a file as this type. Raises OSError if it cannot be read, ValueError with a sentence for other content."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("it is longer than 1 MiB")
    if any(_dots(line) > _MOST_DOTS for line in data.splitlines()):
        raise ValueError("it is nested too deeply")
    try:
        return msgspec.toml.decode(data, type=type)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _dots(line: bytes) -> int:
    """How many dots may be a key's: those in strings are not, such as a list of files has. Where a string may go over several lines, all count."""
    return (line if b'"""' in line or b"'''" in line else _STRING.sub(b"", line)).count(b".")


def read_named(kind: str, path: Path, type: type[Any] = dict) -> Any:
    """As `read`, with `kind` and path before each sentence. Raises InputError if the file cannot be read, UsageError if its content is wrong."""
    try:
        return read(path, type)
    except OSError as error:
        raise InputError(f"{kind} {path}: {os_reason(error)}") from None
    except ValueError as error:
        raise UsageError(f"{kind} {path}: {error}") from None
