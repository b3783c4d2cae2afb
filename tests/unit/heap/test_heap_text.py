"""The text profiles of tcmalloc, jemalloc and Go: real ones as pprof and jeprof read them, every form, and what is wrong with one."""

from __future__ import annotations

import gzip
import io
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.sample_profiles import stacks, totals_by_function

from memprof.base.errors import InputError, MemprofError, UsageError
from memprof.heap import heap_text, load, one_moment
from memprof.heap.profile import HeapProfile
from memprof.heap.shape import sums

DATA = Path(__file__).parents[2] / "data" / "heap"
MAPS = """MAPPED_LIBRARIES:
00001000-00003000 r-xp 00000200 08:01 17      /lib/liba.so
00005000-00006000 r-xp 00000000 08:01 18      /a folder/app
"""


def read(text: str, value: str | None = None) -> HeapProfile:
    return heap_text.read(io.BytesIO(text.encode()), "made", value)


@pytest.mark.parametrize(
    ("file", "value", "total", "of_load"),
    [
        # go tool pprof -top -unit=bytes [-sample_index=alloc_space] ./alloc tcmalloc.heap: every block is counted.
        ("tcmalloc.heap.gz", None, 37975616, 15000000),
        ("tcmalloc.heap.gz", "alloc_space", 52975616, 30000000),
        # perl jeprof --text --show_bytes [--alloc_space] ./alloc jemalloc.heap: scaled from samples; the program held 36000000.
        ("jemalloc_symbols.heap.gz", None, 38788343, 15607806),
        ("jemalloc_symbols.heap.gz", "alloc_space", 53960597, 30780060),
        ("jemalloc.heap.gz", None, 38788343, None),
    ],
)
def test_totals_as_other_readers_have_them(file, value, total, of_load):
    profile = load(DATA / file, value)

    assert profile.peak.total_bytes == total
    assert profile.values == ("inuse_space", "alloc_space")
    if of_load is not None:
        totals = totals_by_function(profile)
        # The symbols of tcmalloc's file are not in it: `load` is the call at this offset.
        assert totals["load" if "symbols" in file else "alloc+0x1196"] == of_load


def test_sampled_tcmalloc_scaled_row_by_row():
    # go tool pprof -top -unit=bytes ./sampled tcmalloc_sampled.heap: 29738825B, with each row cut to whole bytes; 421 rows.
    profile = load(DATA / "tcmalloc_sampled.heap.gz")

    assert 29738825 <= profile.peak.total_bytes <= 29738825 + 421
    assert profile.values == ("inuse_space",)
    assert "about every 16.0 KiB" in profile.counts


def test_go_text_agrees_with_its_protobuf():
    text, message = load(DATA / "go_debug1.txt.gz"), load(DATA / "go.pb.gz")

    assert text.tool == "Go" and text.partial is None
    of_text = totals_by_function(text)
    for name, size in totals_by_function(message).items():
        assert of_text[name] == pytest.approx(size, abs=8)
    assert {frame.file for frame in text.frames if frame.function == "main.load"} == {"./main.go"}


def test_frames_of_allocator_libraries_folded():
    profile = load(DATA / "jemalloc.heap.gz")
    tree = profile.snapshots[0].tree
    assert tree is not None

    assert any(frame.module is not None and frame.module.endswith("libjemalloc.so.2") for frame in profile.frames)
    assert sums(profile, tree)[0][1] == "alloc+0x1176"
    assert sums(profile, tree, fold=False)[0][1].startswith("libjemalloc.so.2+0x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # tcmalloc: the site is a return address less one, in a mapping, in none, and in a path with a space.
        (
            "heap profile:   3: 300 [ 3: 300] @ heapprofile\n  1: 100 [ 1: 100] @ 0x1001 0x5002\n  2: 200 [ 2: 200] @ 0x9001\n\n" + MAPS,
            {"liba.so+0x200;app+0x1": 100, "0x9000": 200},
        ),
        ("heap profile: 1: 5 [ 1: 5] @ growthz\n 1: 5 [ 1: 5] @ 0x1001\n" + MAPS, {"liba.so+0x200": 5}),
        (
            "heap_v2/1\n  t*: 1: 100 [0: 0]\n@ 0x1001 0x5002\n  t*: 1: 100 [0: 0]\n  t3: 1: 100 [0: 0]\n\n" + MAPS,
            {"liba.so+0x200;app+0x1": 100},
        ),
        (
            "--- symbol\nbinary=/app\n0x0000000000001000 outer--inner\n0x5001 main<0000000000005000>\n---\n--- heap\n"
            "heap_v2/1\n  t*: 1: 9 [0: 0]\n@ 0x1001 0x5002\n  t*: 1: 9 [0: 0]\n" + MAPS,
            {"inner;outer;main": 9},
        ),
        ("heap profile: 0: 0 [ 0: 0] @ heap_v2/524288\n\n" + MAPS, {}),
    ],
)
def test_every_form_read(text, expected):
    assert stacks(read(text)) == expected


@pytest.mark.parametrize(
    ("kind", "period"), [("heap_v2/1000", 1000), ("heap/2000", 1000), ("heapprofile", 1), ("heapz_v2/1000", 1000), ("growthz", 1)]
)
def test_period_by_kind(kind, period):
    profile = read(f"heap profile: 2: 1000 [ 2: 1000] @ {kind}\n 2: 1000 [ 2: 1000] @ 0x1001\n" + MAPS)

    assert profile.peak.total_bytes == round(1000 if period == 1 else 1000 / (1 - math.exp(-500 / period)))


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 40), st.integers(0, 1 << 30))
@examples(200)
def test_scaling_never_shrinks(blocks, size, period):
    more_bytes = one_moment.scaled(blocks, size, period)

    assert more_bytes >= size * (1 - 1e-9)
    if size / blocks > 40 * period or period <= 1:
        assert more_bytes == pytest.approx(size)


def test_torn_file_is_partial():
    whole = gzip.decompress((DATA / "jemalloc.heap.gz").read_bytes())
    torn = heap_text.read(io.BytesIO(whole[: whole.index(b"MAPPED")]), "made")

    assert torn.partial == "the file ends before its MAPPED_LIBRARIES"
    assert torn.peak.total_bytes == load(DATA / "jemalloc.heap.gz").peak.total_bytes


@pytest.mark.parametrize("file", ["jemalloc_symbols.heap.gz", "tcmalloc.heap.gz"])
def test_torn_anywhere_is_sentence(file):
    whole = gzip.decompress((DATA / file).read_bytes())
    for end in range(0, len(whole), 7):
        try:
            heap_text.read(io.BytesIO(whole[:end]), "torn")
        except MemprofError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("heap profile: what\n", "made, line 1: no heap profile of tcmalloc, jemalloc or Go begins so"),
        ("heap_v2/16384\n  t*: 1: 1 [0: 0]\nhello\n", "made, line 3: this is not a line of a heap profile"),
        ("heap profile: 1: 1 [ 1: 1] @ heapprofile\nhello\n", "made, line 2: this is not a line of a heap profile"),
        ("--- symbol\nbinary=/app\n", "made, line 2: the file ends within its symbols"),
        ("--- symbol\n---\n--- heap\n", "no profile follows the symbols"),
        ("--- symbol\n---\n--- profile\n\0\0\0\0\3\n", "in pprof's old binary form, which is not read"),
        ("heap_v2/1\n@ 0x1\n  t*: 9: 9223372036854775807 [0: 0]\n", "more than any memory"),
        ("heap_v2/" + "9" * 30 + "\n", "no heap profile of tcmalloc, jemalloc or Go begins so"),
        ("heap_v2/1\n" + "@ 0x1" * (1 << 20), "a line of more than 4 MiB"),
    ],
)
def test_wrong_text_refused(text, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        read(text)

    assert "\n" not in str(error.value)


def test_allocated_only_where_counted():
    with pytest.raises(UsageError, match="made has no value 'alloc_space'; did you mean inuse_space"):
        read("heap_v2/1\n@ 0x1\n  t*: 1: 9 [0: 0]\n" + MAPS, "alloc_space")
