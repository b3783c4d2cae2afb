"""Tables in the model's mapped file of which only some rows were read, because the inputs that were fed indexed no others.

Which rows were indexed is known from what was fed: the arrays of a file, or integers that the runner makes (runners/inputs.py) and that are made
here again to be counted.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from math import prod
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..base.errors import InputError
from ..base.units import format_bytes
from ..models import inputs
from ..models.index_walk import IndexedTable
from ..models.indexed_tables import indexing
from ..models.tensors import StoredTensor, tensors
from ..records.types import COMMAND, Job
from . import waterfall
from .snapshot import ProcessSnapshot

_LEAST_BYTES = 1 << 16  # the kernel maps so much around a page that is read
_PERIOD = 1 << 24  # after so many integers, the same ones come again


class TableUse(Struct, frozen=True):
    """A table in the model's mapped file. indexed: how many different rows an input named; resident_bytes: how much of the table is present."""

    table: IndexedTable
    stored: StoredTensor
    indexed: int
    resident_bytes: int

    @property
    def sentence(self) -> str:
        """What was never touched, and why."""
        untouched, whole = format_bytes(self.stored.bytes - self.resident_bytes), format_bytes(self.stored.bytes)
        return (
            f"{untouched} of {self.table.tensor} ({whole}, mapped) were never touched: "
            f"{self.table.input} indexed {self.indexed:,} of {self.table.rows:,} rows"
        )


def partly_read(job: Job, look: ProcessSnapshot, model_files: Collection[tuple[int, int]]) -> tuple[TableUse, ...]:
    """The tables of a run's model that were read in part, by the look at its end. model_files: see waterfall.account."""
    if job.runtime == COMMAND or job.runtime.endswith(".py"):
        return ()  # nobody but them knows what they read
    path = Path(job.built or job.model.path)
    tables = indexing(path).tables
    try:
        stored = {tensor.name: tensor for tensor in tensors(path)} if tables else {}
        uses = tuple(_uses(job, path, tables, stored, look, model_files))
    except InputError:
        return ()
    return tuple(use for use in uses if use.stored.bytes - use.resident_bytes >= _LEAST_BYTES and use.indexed < use.table.rows)


def _uses(
    job: Job,
    path: Path,
    tables: Collection[IndexedTable],
    stored: dict[str, StoredTensor],
    look: ProcessSnapshot,
    model_files: Collection[tuple[int, int]],
) -> Iterator[TableUse]:
    for table in tables:
        tensor = stored.get(table.tensor)
        resident = _resident(tensor, look, model_files) if tensor is not None else None
        indexed = _indexed(job, path, table) if resident is not None else None
        if tensor is not None and resident is not None and indexed is not None:
            yield TableUse(table, tensor, indexed, resident)


def _resident(tensor: StoredTensor, look: ProcessSnapshot, model_files: Collection[tuple[int, int]]) -> int | None:
    """The bytes of a tensor that are present in mappings of its file; None where it is not mapped as a whole."""
    resident = covered = 0
    for mapping in look.mappings:
        low = max(tensor.offset, mapping.offset)
        high = min(tensor.offset + tensor.bytes, mapping.offset + mapping.end - mapping.start)
        if low < high and _is_of(mapping.path, tensor.path) and waterfall.kind_of(mapping, model_files) == waterfall.IN_FILE:
            covered += high - low
            resident += look.pages.resident(mapping.start + low - mapping.offset, mapping.start + high - mapping.offset)
    return resident if covered == tensor.bytes else None  # a file that is mapped twice is no question of what was fed


def _is_of(mapped: str, path: str) -> bool:
    return os.path.basename(mapped) == os.path.basename(path)  # on another machine the folder is another


def _indexed(job: Job, path: Path, table: IndexedTable) -> int | None:
    """How many different rows an input named; None where its content is not known."""
    names = [declared.name for declared in inputs.inputs(path)]
    shapes = inputs.shapes_that_run(path, job.shapes, job.inputs)
    if shapes is None or table.input not in shapes:
        return None
    if table.input in job.given:
        return _different(job.inputs, table)
    count = prod(shapes[table.input])
    rows = job.ranges.get(table.input)
    return len(np.unique(made(rows, count, names.index(table.input)))) if rows is not None else min(count, 1)


def _different(arrays: str | None, table: IndexedTable) -> int | None:
    try:
        with np.load(arrays or "") as file:
            return len(np.unique(file[table.input].astype(np.int64) % table.rows))  # -1 is the last row
    except (OSError, ValueError, LookupError, EOFError):
        return None


def made(rows: int, count: int, seed: int) -> NDArray[np.uint64]:
    """The integers that runners/inputs.py makes for input number `seed`, each round of them once."""
    steps = np.arange(1, min(count, _PERIOD) + 1, dtype=np.uint64) * np.uint64(2654435769) + np.uint64(seed * 97)
    return (steps & np.uint64(_PERIOD - 1)) * np.uint64(rows) >> np.uint64(24)
