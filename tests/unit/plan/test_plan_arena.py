"""Arenas: TFLite's rule by hand-made cases, packing against brute force, capacities, and MiniMalloc's files."""

from __future__ import annotations

import importlib.util
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import buffers, dense_buffers, smallest_arena
from support.examples import examples, tried

from memprof.base.errors import InputError
from memprof.plan import Buffer, greedy, load, overlapping, pack
from memprof.plan.arenas import arena, minimalloc
from memprof.plan.arenas.skyline import fit, sections

# These do not fit into their load.
TIGHT = [
    (9, 13, 4),
    (5, 8, 2),
    (5, 11, 1),
    (7, 8, 1),
    (3, 7, 3),
    (10, 11, 1),
    (7, 12, 2),
    (0, 5, 3),
    (2, 6, 2),
    (7, 8, 1),
    (11, 13, 2),
    (6, 10, 1),
    (0, 2, 2),
]


def made(spans):
    return [Buffer(index, lower, upper, size) for index, (lower, upper, size) in enumerate(spans)]


def test_greedy_largest_then_earliest_first():
    some = made([(1, 3, 4), (2, 4, 8), (1, 2, 8), (3, 5, 8)])

    # By size: 2 before 1 before 3 (by start), then 0, which finds no gap below them.
    assert greedy(some).offsets == (8, 0, 0, 8)


def test_greedy_smallest_fitting_gap():
    # While the last one is alive there is a gap of 10 at 0 and one of 5 further up.
    some = made([(1, 2, 10), (1, 4, 40), (1, 2, 5), (3, 4, 30), (1, 3, 20), (2, 4, 4)])
    packed = greedy(some)

    assert overlapping(some, packed.offsets) is None
    assert packed.offsets == tuple(_by_hand(some))


def _by_hand(some):
    """The rule once more, byte by byte."""
    offsets = {}
    for buffer in sorted(some, key=lambda buffer: (-buffer.size, buffer.lower, buffer.id)):
        beside = [
            (offsets[other.id], offsets[other.id] + other.size)
            for other in some
            if other.id in offsets and other.lower < buffer.upper and buffer.lower < other.upper
        ]
        free = [True] * (1 + sum(other.size for other in some))
        for start, end in beside:
            free[start:end] = [False] * (end - start)
        gaps, start = [], None
        for byte in range(max((end for _, end in beside), default=0) + 1):
            if free[byte] and start is None:
                start = byte
            if not free[byte] and start is not None:
                gaps.append((byte - start, start))
                start = None
        fitting = [gap for gap in gaps if gap[0] >= buffer.size]
        offsets[buffer.id] = min(fitting)[1] if fitting else max((end for _, end in beside), default=0)
    return [offsets[buffer.id] for buffer in some]


@given(st.integers(0, 10**9))
@examples(100)
def test_greedy_matches_bytewise_rule(seed):
    rng = random.Random(seed)
    some = [Buffer(buffer.id, buffer.lower + 1, buffer.upper + 1, buffer.size) for buffer in buffers(rng, rng.randint(1, 14), 7)]

    assert list(greedy(some).offsets) == _by_hand(some)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arena, "_FEW", 0)  # as more buffers are placed
        assert list(greedy(some).offsets) == _by_hand(some)


def test_greedy_gapless_buffers_in_seconds():
    count = 40_000
    some = made([(step, count, 64) for step in range(count)])

    begin_s = time.process_time()
    placed = greedy(some)

    assert placed.size_bytes == 64 * count and placed.proven
    assert time.process_time() - begin_s < 4  # CPU time: 1.0 s; with a look at each other 6 s


def test_greedy_moments_far_apart():
    some = made([(0, 10**15, 5), (10**12, 10**15, 7)])
    assert greedy(some).offsets == (0, 5)


def test_greedy_permanent_buffers_first_and_aligned():
    some = made([(0, 3, 5), (1, 2, 100), (0, 3, 7)])

    assert greedy(some).offsets == (0, 12, 5)
    assert greedy(some, alignment=64).offsets == (0, 128, 64)


def test_pack_matches_brute_force():
    for seed in tried(range(350)):
        rng = random.Random(f"pack {seed}")
        some = buffers(rng, rng.randint(0, 6), rng.randint(1, 8))
        packed = pack(some, solver=False)

        assert packed.proven, seed
        assert packed.size_bytes == packed.lower_bound_bytes == smallest_arena(some), seed
        assert overlapping(some, packed.offsets) is None, seed


def test_fit_matches_brute_force():
    for seed in tried(range(400)):
        rng = random.Random(f"fit {seed}")
        some = buffers(rng, rng.randint(1, 6), rng.randint(1, 8))
        size = smallest_arena(some)
        enough, short = fit(some, size, 100_000, bool), fit(some, size - 1, 100_000, bool)

        assert enough.offsets is not None and overlapping(some, enough.offsets) is None, seed
        assert max(offset + buffer.size for offset, buffer in zip(enough.offsets, some, strict=True)) == size, seed
        assert short.impossible and short.offsets is None, seed


def test_pack_proves_more_than_load():
    some = made(TIGHT)
    packed = pack(some, solver=False)

    assert packed.proven
    assert packed.size_bytes == load(some) + 1
    assert "exact search" in packed.how
    assert pack(some, capacity=load(some), solver=False).verdict(load(some)) == "impossible"
    assert pack(some, capacity=load(some) + 1, solver=False).verdict(load(some) + 1) == "met"


def test_exact_search_agrees_with_cpsat():
    if importlib.util.find_spec("ortools") is None:
        pytest.skip("ortools is not installed")
    from memprof.plan.arenas import cpsat

    for seed in tried(range(60)):
        some = dense_buffers(random.Random(f"dense {seed}"))
        ours, theirs = fit(some, load(some), 200_000, bool), cpsat.fit(some, load(some), 20)

        assert (ours.offsets is None, ours.impossible) == (theirs.offsets is None, theirs.impossible), seed
        for offsets in (ours.offsets, theirs.offsets):
            assert offsets is None or overlapping(some, offsets) is None, seed
    tight = made(TIGHT)
    assert cpsat.fit(tight, load(tight), 20).impossible
    assert cpsat.smallest(tight, [0] * len(tight), load(tight), 60, 20).bound == load(tight) + 1


def test_pack_exact_rectangles_beyond_greedy():
    rng = random.Random(1)
    pieces = [(0, 60, 0, 1 << 16)]
    while len(pieces) < 80:
        sample = rng.sample(range(len(pieces)), min(3, len(pieces)))
        chosen = max(sample, key=lambda index: (pieces[index][1] - pieces[index][0]) * (pieces[index][3] - pieces[index][2]))
        lower, upper, low, high = pieces.pop(chosen)
        if rng.random() < 0.5 and upper - lower > 1:
            at = rng.randint(lower + 1, upper - 1)
            pieces += [(lower, at, low, high), (at, upper, low, high)]
        else:
            at = rng.randint(low + 1, high - 1)
            pieces += [(lower, upper, low, at), (lower, upper, at, high)]
    rng.shuffle(pieces)
    some = made([(lower, upper, high - low) for lower, upper, low, high in pieces])
    packed = pack(some, capacity=1 << 16, solver=False, time_limit_s=30)

    assert load(some) == 1 << 16
    assert greedy(some).size_bytes > 1 << 16
    assert packed.verdict(1 << 16) == "met"
    assert overlapping(some, packed.offsets) is None


def test_pack_without_time_states_gap():
    some = [buffer for part in range(30) for buffer in _moved(dense_buffers(random.Random(part)), 5)]
    packed = pack(some, time_limit_s=0)

    assert overlapping(some, packed.offsets) is None
    assert packed.lower_bound_bytes == load(some)
    assert packed.proven == (packed.size_bytes == load(some))
    assert packed.verdict(load(some) - 1) == "impossible"


def _moved(some, by):
    return [Buffer(buffer.id, buffer.lower + by, buffer.upper + by, buffer.size) for buffer in some]


@given(st.integers(0, 10**9))
@examples(100)
def test_sections_keep_overlaps(seed):
    rng = random.Random(seed)
    some = buffers(rng, rng.randint(1, 12), 9)
    spans = sections(some)
    for buffer, (first, last) in zip(some, spans, strict=True):
        assert first <= last
        for other, (other_first, other_last) in zip(some, spans, strict=True):
            assert (buffer.lower < other.upper and other.lower < buffer.upper) == (first <= other_last and other_first <= last)


def test_minimalloc_round_trip(tmp_path):
    path = tmp_path / "ein Ordner" / "b ä.csv"
    path.parent.mkdir()
    path.write_text("\ufeffsize, id ,lower,upper\n4,b1,0,3\n\n8,b2,3,9\n", encoding="utf-8")
    instance = minimalloc.read(path)

    assert instance.names == ("b1", "b2")
    assert instance.buffers == (Buffer(0, 0, 3, 4), Buffer(1, 3, 9, 8))
    assert minimalloc.write(instance, (0, 0)) == "id,lower,upper,size,offset\nb1,0,3,4,0\nb2,3,9,8,0\n"
    path.write_text(minimalloc.write(instance, (0, 0)))
    assert minimalloc.read(path) == instance


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column id"),
        ("id,lower,size\nx,1,2\n", "no column upper"),
        ("id,lower,upper,size\na,0,3\n", "line 2 .* 3 of 4 columns"),
        ("id,lower,upper,size\na,0,3,1\nb,4,4,1\n", "line 3 .*half-open"),
        ("id,lower,upper,size\na,0,3,-1\n", "size is -1"),
        ("id,lower,upper,size\na,0,3,1.5\n", r"size is 1\.5"),
        ("id,lower,upper,size\na,0,,1\n", "upper is empty"),
        ("id,lower,upper,size\na,0,3,99999999999999999999999\n", "size is 9999"),
        ("id,lower,upper,size\na,0,3,٣\n", "size is"),
        ("id,lower,upper,size\na,0,3,1\na,0,3,1\n", "buffer a already"),
        ("id,lower,upper,size,alignment\na,0,3,1,64\n", "alignment 64"),
        ("id,lower,upper,size,gaps\na,0,3,1,1-2\n", "gaps"),
    ],
)
def test_minimalloc_invalid_columns_and_values(tmp_path, text, message):
    path = tmp_path / "b.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        minimalloc.read(path)


def test_minimalloc_missing_or_binary_file(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        minimalloc.read(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00id")
    with pytest.raises(InputError, match="not text"):
        minimalloc.read(tmp_path / "b.csv")


@given(st.binary(max_size=80))
@examples(100)
def test_minimalloc_random_bytes(tmp_path_factory, some):
    path = tmp_path_factory.mktemp("fuzz") / "b.csv"
    path.write_bytes(b"id,lower,upper,size\n" + some)
    try:
        minimalloc.read(path)
    except InputError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("".join(f"{number},0,1,1\n" for number in range(30_001)), "has 30,001 buffers: more than 30,000 are not packed"),
        ("".join(f"{number},0,1,{1 << 62}\n" for number in range(2)), "larger together than any memory"),
    ],
)
def test_minimalloc_oversized_problems(tmp_path, rows, said):
    (tmp_path / "b.csv").write_text("id,lower,upper,size\n" + rows)
    with pytest.raises(InputError, match=said):
        minimalloc.read(tmp_path / "b.csv")
