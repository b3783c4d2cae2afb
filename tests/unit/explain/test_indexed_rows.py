"""Which tables of a mapped model were read in part, by looks that a test writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from support import sample_runs

from memprof.base.mappings import Mapping
from memprof.explain import indexed_rows
from memprof.explain.glibc import GlibcHeap, ranges
from memprof.explain.memory_map import PAGE, Pages
from memprof.explain.snapshot import ProcessSnapshot
from memprof.models.tensors import tensors
from memprof.records.types import Job

onnx = pytest.importorskip("onnx")
helper: Any = onnx.helper

ROWS, WIDTH = 20_000, 64
START = 0x7F00_0000_0000


def model(folder: Path) -> Path:
    """`words`, indexed by `ids`, in the model's file."""
    words = onnx.numpy_helper.from_array(np.random.default_rng(2).random((ROWS, WIDTH), np.float32), "words")
    ids = helper.make_tensor_value_info("ids", 7, [1, "n"])
    out = helper.make_tensor_value_info("out", 1, None)
    graph = helper.make_graph([helper.make_node("Gather", ["words", "ids"], ["out"])], "g", [ids], [out], [words])
    onnx.save(helper.make_model(graph), folder / "net.onnx")
    return folder / "net.onnx"


def job(path: Path, **changes: Any) -> Job:
    plain = sample_runs.job()
    return replace(plain, model=replace(plain.model, path=str(path)), runtime="onnxruntime", **changes)


def look(path: Path, present: Sequence[int], name: str | None = None, length: int | None = None) -> ProcessSnapshot:
    """The file mapped from its begin on, with these pages of it present."""
    size = -(-(length or path.stat().st_size) // PAGE) * PAGE
    mapping = Mapping(START, START + size, "r--p", 0, "08:01", 7, str(path.parent / (name or path.name)))
    address = np.array([START + page * PAGE for page in present], np.uint64)
    pages = Pages(address, np.zeros(len(present), np.int32), np.ones(len(present), bool))
    none = ranges([])
    heap = GlibcHeap(used=none, free=none, mapped=none, arenas=0, arenas_free=none, complete=True)
    return ProcessSnapshot("EXECUTE", (mapping,), pages, heap, (), None, 0, 0)


FILES = {(0x801, 7)}


def told(job: Job, seen: ProcessSnapshot) -> list[str]:
    return [use.sentence for use in indexed_rows.partly_read(job, seen, FILES)]


def test_untouched_part_told(tmp_path: Path) -> None:
    path = model(tmp_path)
    made = job(path, shapes={"ids": (1, 300)}, ranges={"ids": ROWS})
    distinct = len(set(indexed_rows.made(ROWS, 300, 0).tolist()))
    (use,) = indexed_rows.partly_read(made, look(path, range(100)), FILES)
    (words,) = tensors(path)
    assert use.indexed == distinct > 250
    assert use.resident_bytes == 100 * PAGE - words.offset
    assert use.sentence.endswith(f" of words (4.9 MiB, mapped) were never touched: ids indexed {distinct} of 20,000 rows")


@pytest.mark.parametrize(
    ("changes", "indexed"),
    [
        ({"ranges": {"ids": ROWS}}, 1),
        ({}, 1),
        ({"shapes": {"ids": (1, 9)}}, 1),
        ({"shapes": {"ids": (1, 0)}}, 0),
        ({"ranges": {"ids": 2}, "shapes": {"ids": (1, 50)}}, 2),
    ],
)
def test_indexed_rows_counted(tmp_path: Path, changes: dict[str, Any], indexed: int) -> None:
    path = model(tmp_path)
    (use,) = indexed_rows.partly_read(job(path, **changes), look(path, range(16)), FILES)
    assert use.indexed == indexed


def test_rows_of_input_file_counted(tmp_path: Path) -> None:
    path, arrays = model(tmp_path), tmp_path / "in.npz"
    np.savez(arrays, ids=np.array([[5, 5, -1, ROWS - 1, 0]]))
    given = job(path, inputs=str(arrays), given={"ids": (1, 5)})
    assert [use.indexed for use in indexed_rows.partly_read(given, look(path, range(16)), FILES)] == [3]
    arrays.unlink()
    assert told(given, look(path, range(16))) == []


def test_nothing_told_without_cause(tmp_path: Path) -> None:
    path = model(tmp_path)
    made = job(path, shapes={"ids": (1, 300)}, ranges={"ids": ROWS})
    every = range(path.stat().st_size // PAGE + 1)
    assert told(made, look(path, range(100)))
    assert told(made, look(path, every)) == [], "all of it is resident"
    assert told(made, look(path, every[:-10])) == [], "the kernel maps more around what is read"
    assert told(made, look(path, range(100), "other.bin")) == [], "another file is mapped"
    assert told(made, look(path, range(100), length=PAGE * 200)) == [], "only a part of it is mapped"
    assert indexed_rows.partly_read(made, look(path, range(100)), {(0x801, 8)}) == (), "a file of the same name"
    assert told(replace(made, runtime="./mine.py"), look(path, range(100))) == []
    assert told(replace(made, shapes={"ids": (1, 2_000_000)}), look(path, range(100))) == [], "all rows were indexed"
    path.write_bytes(b"torn")
    assert told(made, look(path, range(1))) == []
