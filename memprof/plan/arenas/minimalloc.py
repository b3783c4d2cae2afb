"""Offset problems as files, in the format of MiniMalloc (github.com/google/minimalloc): CSV with the columns id, lower, upper, size.

A buffer is alive from `lower` to before `upper`. Files that MiniMalloc wrote have a column `offset` too, which is ignored. An `alignment` of 1 is
understood, buffers with gaps are not.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from ...base import files
from ...base.errors import InputError, os_reason
from ..orders.problem import Buffer

_COLUMNS = ("id", "lower", "upper", "size")
_LARGEST = 1 << 62
# The time of placing grows with the square of their number: seconds for this many.
_MOST_BUFFERS = 30_000


class Instance(Struct, frozen=True):
    """A file's buffers, numbered from 0, and their names in the file."""

    names: tuple[str, ...]
    buffers: tuple[Buffer, ...]


def read(path: Path) -> Instance:
    """The buffers of a file. Raises InputError, which names the line that is not understood."""
    try:
        text = files.content(path).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {os_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a CSV file of buffers: it is not text") from error
    try:
        return _parse(csv.reader(io.StringIO(text, newline="")), path)
    except csv.Error as error:
        raise InputError(f"{path} is not a CSV file of buffers: {error}") from error


def _parse(rows: Iterable[list[str]], path: Path) -> Instance:
    lines = [(number, [cell.strip() for cell in row]) for number, row in enumerate(rows, 1) if row]
    header = [cell.lower() for cell in lines[0][1]] if lines else []
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise InputError(f"{path} has no column {' and none '.join(missing)}: a file of buffers begins with id,lower,upper,size")
    column = {name: number for number, name in reversed(list(enumerate(header)))}
    names: dict[str, None] = {}
    buffers: list[Buffer] = []
    for number, row in lines[1:]:
        if not any(row):
            continue
        where = f"line {number} of {path}"
        if len(row) < len(header):
            raise InputError(f"{where} has {len(row)} of {len(header)} columns")
        lower, upper, size = (_number(row[column[name]], name, where) for name in _COLUMNS[1:])
        if upper <= lower:
            raise InputError(f"{where}: a buffer that ends at {upper} cannot begin at {lower}; lifetimes are half-open")
        if "alignment" in column and row[column["alignment"]] not in ("", "1"):
            raise InputError(f"{where}: alignment {row[column['alignment']]} is not understood, only 1 is")
        if "gaps" in column and row[column["gaps"]]:
            raise InputError(f"{where}: buffers with gaps are not understood")
        name = row[column["id"]]
        if name in names:
            raise InputError(f"{where}: there is a buffer {name} already")
        names[name] = None
        buffers.append(Buffer(len(buffers), lower, upper, size))
    if len(buffers) > _MOST_BUFFERS:
        raise InputError(f"{path} has {len(buffers):,} buffers: more than {_MOST_BUFFERS:,} are not packed")
    if sum(buffer.size for buffer in buffers) > _LARGEST:
        raise InputError(f"{path}: its buffers are larger together than any memory")
    return Instance(tuple(names), tuple(buffers))


def _number(text: str, name: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _LARGEST:
        raise InputError(f"{where}: {name} is {text[:40] or 'empty'} where a whole number is wanted")
    return int(text)


def write(instance: Instance, offsets: Sequence[int]) -> str:
    """The text of a file with one more column, the offsets, as MiniMalloc writes its solutions."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*_COLUMNS, "offset"])
    for name, buffer, offset in zip(instance.names, instance.buffers, offsets, strict=True):
        rows.writerow([name, buffer.lower, buffer.upper, buffer.size, offset])
    return text.getvalue()
