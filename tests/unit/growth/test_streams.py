"""A user's own stream of inputs, as a measured process takes it: the same memory for any number of entries."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest

from memprof.base.runners import runners_path


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The runner's module, which runs without memprof."""
    monkeypatch.syspath_prepend(str(runners_path()))
    names = ("feeds", "fresh_inputs", "streams", "inputs", "runtimes")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import streams  # type: ignore[import-not-found]

    yield streams
    for name in names:
        sys.modules.pop(name, None)


def stream(streams: Any, entries: list[dict[str, Any]], **made: Any) -> Any:
    return streams.InputStream(entries[0], iter(entries[1:]), made, lambda: None)


def test_entries_share_memory(streams):
    entries = [{"x": numpy.full((2, 3), number, "float32")} for number in range(3)]
    fed = stream(streams, entries, y=numpy.ones(4))

    held = None
    for number, (name, arrays) in enumerate(fed):
        assert name is None and (arrays["x"] == number).all() and list(arrays["y"]) == [1] * 4
        assert held is None or arrays["x"] is held
        held = arrays["x"]
    assert number == 2 and fed.notes == []


def test_other_shape_gets_its_own_array(streams):
    shapes = [arrays["x"].shape for _, arrays in stream(streams, [{"x": numpy.zeros(size)} for size in (2, 3, 2)])]

    assert shapes == [(2,), (3,), (2,)]


@pytest.mark.parametrize(
    ("contents", "repeated"),
    [
        ([numpy.array([number / 7], "float32") for number in range(500)], 0),
        ([numpy.array([number % 10], "int64") for number in range(50)], 40),
        ([numpy.array([f"text {number % 5}"], dtype=object) for number in range(20)], 15),
        ([numpy.array(["a", "b"]), numpy.array(["ab", ""]), numpy.array(["a", "b"])], 1),
        ([numpy.zeros((0, 3)), numpy.zeros((0, 3))], 1),
        ([numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)), numpy.arange(6.0).reshape(2, 3)], 1),
    ],
    ids=["floats", "integers", "objects", "texts", "empty", "orders"],
)
def test_repeated_contents_counted(streams, contents, repeated):
    fed = stream(streams, [{"x": content} for content in contents])
    list(fed)

    assert fed.notes == ([f"{repeated} of the {len(contents)} inputs of the stream repeat an earlier one"] if repeated else [])


def test_stream_holds_no_more_with_time(streams):
    stack = numpy.arange(3000 * 50, dtype="float32").reshape(3000, 50)
    fed = streams.InputStream({"x": stack[0]}, ({"x": row} for row in stack[1:]), {}, lambda: None)
    next(fed)
    tracemalloc.start()
    next(fed)
    before = tracemalloc.get_traced_memory()[0]
    for _ in fed:
        pass
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert after - before < 3000 * 4  # less than a number an entry


def test_stack_needs_one_axis_more(streams):
    signature = [("x", (1, 3), "float32"), ("y", (2,), "float32")]
    arrays = {"x": numpy.zeros((4, 1, 3)), "y": numpy.ones(2)}
    entries = list(streams._of_stacks(signature, arrays, "in.npz"))

    assert [entry["x"].shape for entry in entries] == [(1, 3)] * 4 and entries[3]["y"] is arrays["y"]
    assert streams._of_stacks(signature, {"x": numpy.zeros((1, 3))}, "in.npz") is None


def test_inputs_beside_stream_stay_in_their_ranges(streams, tmp_path):
    import feeds  # type: ignore[import-not-found]

    path = tmp_path / "stack.npz"
    numpy.savez(path, x=numpy.zeros((3, 2), "float32"))
    options = SimpleNamespace(inputs=str(path), shapes={}, values={}, ranges={"ids": 50})
    runtime = SimpleNamespace(signature=lambda: [("x", (2,), "float32"), ("ids", (400,), "int64")])
    feed = feeds.feed_of(runtime, options, {"folder": None, "feeder": [], "fresh": True, "shapes": [], "seed": None})

    _, arrays = next(feed)
    assert (arrays["ids"].min(), arrays["ids"].max()) == (0, 49)
