"""New content for the inputs of a model: in the same memory, different in each turn, and of the kind that the model takes."""

from __future__ import annotations

import sys
import tracemalloc
from types import ModuleType
from typing import Any

import numpy
import pytest

from memprof.base.runners import runners_path


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The runner's module, which runs without memprof."""
    monkeypatch.syspath_prepend(str(runners_path()))
    monkeypatch.delitem(sys.modules, "fresh_inputs", raising=False)
    import fresh_inputs  # type: ignore[import-not-found]

    return fresh_inputs  # type: ignore[no-any-return]


def contents(fresh: Any, array: Any, turns: int, **rest: Any) -> list[Any]:
    made = fresh.FreshInputs({"x": array}, **rest)
    held = made.arrays["x"]
    seen = []
    for _ in range(turns):
        made.renew()
        assert made.arrays["x"] is held
        seen.append(held.copy())
    return seen


@pytest.mark.parametrize(
    "array",
    [
        numpy.zeros((3, 70_000), "float32"),
        numpy.zeros((), "float64"),
        numpy.zeros((2, 300), "float16"),
        numpy.zeros((4, 40), "int64"),
        numpy.zeros((4, 40), "uint8"),
        numpy.zeros(200, "bool"),
        numpy.full((2, 2), "abc", dtype=object),
    ],
    ids=str,
)
def test_content_differs_each_turn(fresh, array):
    seen = contents(fresh, array, 100)

    assert len({content.tobytes() if content.dtype != object else str(content) for content in seen}) == 100
    assert all(content.shape == array.shape and content.dtype == array.dtype for content in seen)


def test_content_same_in_every_process(fresh):
    first, again = (contents(fresh, numpy.zeros((5, 90_000), "float32"), 3) for _ in range(2))

    assert all(numpy.array_equal(one, other) for one, other in zip(first, again, strict=True))


def test_floats_fill_unit_interval_evenly(fresh):
    (content,) = contents(fresh, numpy.zeros(200_000, "float32"), 1)

    counts, _ = numpy.histogram(content, 10, (0, 1))
    assert content.min() >= 0 and content.max() < 1
    assert counts.min() > 19_000 and counts.max() < 21_000
    assert abs(float(numpy.corrcoef(content[:-1], content[1:])[0, 1])) < 0.02


@pytest.mark.parametrize("limit", [2, 7, 30_000])
def test_integers_fill_their_range(fresh, limit):
    (content,) = contents(fresh, numpy.zeros(400_000, "int64"), 1, ranges={"x": limit})

    assert (content.min(), content.max()) == (0, limit - 1)


@pytest.mark.parametrize(("kind", "most"), [("float32", 29_999), ("int8", 127), ("float16", 1023)])
def test_rows_fit_their_type(fresh, kind, most):
    (content,) = contents(fresh, numpy.zeros(400_000, kind), 1, ranges={"x": 30_000})

    assert (content.min(), content.max()) == (0, most)
    assert (content == numpy.floor(content)).all()


def test_user_spans_and_lengths_kept(fresh):
    def one(array: Any) -> Any:
        return contents(fresh, array, 1, given=("x",))[0]

    floats = one(numpy.array([-3.0, 5.0, numpy.nan] * 1000))
    assert -3 <= floats.min() < -2.9 and 4.9 < floats.max() <= 5
    integers = one(numpy.array([-3, 5] * 1000, "int8"))
    assert set(integers.tolist()) == set(range(-3, 6))
    texts = one(numpy.array(["a" * 3, "b" * 40]))
    assert [len(text) for text in texts] == [3, 40] and texts.dtype.kind == "U"
    assert [len(text) for text in one(numpy.array([b"a" * 3, b"b" * 40]))] == [3, 40]


def test_made_strings_have_sixteen_letters(fresh):
    (content,) = contents(fresh, numpy.full(3, "", dtype=object), 1)

    assert [len(text) for text in content] == [16, 16, 16] and len(set(content)) == 3


def test_arrays_share_no_content(fresh):
    made = fresh.FreshInputs({"x": numpy.zeros(100, "float32"), "y": numpy.zeros(100, "float32")})
    made.renew()

    assert not set(made.arrays["x"].tolist()) & set(made.arrays["y"].tolist())


def test_renewing_holds_no_memory(fresh):
    made = fresh.FreshInputs({"x": numpy.zeros(100_000, "float32"), "y": numpy.full(20, "", dtype=object)})
    made.renew()
    tracemalloc.start()
    made.renew()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(50):
        made.renew()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert after - before < 512


@pytest.mark.parametrize(
    ("array", "given", "expected"),
    [
        (numpy.zeros(10, "int64"), (), 10.0),
        (numpy.zeros(10, "bool"), (), 10.0),
        (numpy.zeros(2, "float32"), (), 46.0),
        (numpy.full(3, 7, "int64"), ("x",), 0.0),
        (numpy.zeros(0, "float32"), (), 0.0),
    ],
)
def test_contents_counted(fresh, array, given, expected):
    assert fresh.FreshInputs({"x": array}, given).contents_log2 == expected
