"""The filter of memory, by C and by numpy: the same places, whatever lies there."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from conftest import need_tool
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from memprof.explain import filtering
from memprof.programs import native

MASKS = st.sampled_from([0xC3C3C3C3, 0x83838383, 0x81818181, 0xFFFFFFFF, 0])


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A cache of the test's own, and nothing compiled yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for known in (native.compiled, native.version, filtering.ready):
        known.cache_clear()
    yield tmp_path
    for known in (native.compiled, native.version, filtering.ready):
        known.cache_clear()


@pytest.fixture(scope="module")
def by_c():
    need_tool("cc")
    return filtering.ready()


@examples(200)
@given(st.lists(st.integers(0, 7), max_size=700), st.integers(0, 3), MASKS, st.integers(0, 7))
def test_filter_c_matches_numpy(by_c, values, offset, mask, constant):
    assert by_c is not filtering.by_numpy
    words = np.array(values, np.uint32)[offset:] * np.uint32(0x01010101)
    constant = constant * 0x01010101 & mask
    expected = [place for place, word in enumerate(words.tolist()) if word & mask == constant]

    assert by_c(words, mask, constant).tolist() == expected
    assert filtering.by_numpy(words, mask, constant).tolist() == expected


def test_filter_passes_every_word(by_c):
    words = np.zeros((1 << 19) + 77, np.uint32)
    for passing in (by_c, filtering.by_numpy):
        assert np.array_equal(passing(words, 0xFFFFFFFF, 0), np.arange(len(words)))
        assert not len(passing(words, 0xFFFFFFFF, 1))


def test_filter_without_compiler_uses_numpy(fresh, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert filtering.ready() is filtering.by_numpy


def test_filter_compiled_into_cache_once(fresh):
    need_tool("cc")
    assert filtering.ready() is not filtering.by_numpy
    assert [path.name.split("-")[0] for path in (fresh / "memprof" / "native").iterdir()] == ["filtering"]
