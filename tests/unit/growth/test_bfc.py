"""ONNX Runtime's arena, simulated: by hand, and beside the runtime's own log."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_runs import MIB

from memprof.growth.laws.arena import ArenaLaw
from memprof.growth.scale import arena_requests, predictions, requests
from memprof.growth.scale.arena_requests import Resident
from memprof.growth.scale.bfc import BfcArena, planned_block
from memprof.growth.scale.heap import Heap
from memprof.growth.scale.requests import Recording
from memprof.records.types import MODEL_LOAD, PEAK
from memprof.subjects.dimensions import parse

KIB = 1 << 10


def asked(*sizes, heap=None):
    arena = BfcArena(heap or Heap())
    for key, size in enumerate(sizes):
        arena.allocate(key, size)
    return arena


def recorded(*places, second=(3, 4, ~4, ~3), tensor=lambda b, s: 4096 * b * s, block=None):
    """A model with two tensors, a kernel's scratch memory, and the block of the second run."""
    every = []
    for b, s in places:
        sizes = (tensor(b, s), 12 * b * s * s + 512, 100 * s, 0, 100 * s)
        whole = planned_block((0, 1, ~0, 2, ~2), sizes, (0, 1)) if block is None else block
        sizes = (*sizes[:3], whole, sizes[4])
        every.append(({"b": b, "s": s}, Recording((0, 1, ~0, 2, ~2), second, sizes, ("t", "t", "k", "block", "k"), (8 * b * s,))))
    return every


@pytest.mark.parametrize(
    ("sizes", "regions"),
    [
        ([1], [1]),
        ([MIB, MIB, MIB], [1, 2]),  # the second region holds two
        ([MIB, 3 * MIB, MIB], [1, 4, 4]),  # 3 MiB get a chunk of 4 whole: what is left is less than the request
        ([MIB, 2 * MIB, 2 * MIB], [1, 2, 4]),
        ([5 * MIB], [8]),
        ([5 * MIB, 5 * MIB], [8, 8]),  # the region was grown to this size for a request, so the next has it too
        ([5 * MIB, 5 * MIB, MIB], [8, 8, 16]),
        ([200 * MIB, 100 * MIB], [256, 256]),
        ([100 * MIB, MIB], [128, 128]),
        ([514 * MIB, 514 * MIB, 514 * MIB], [1024, 1024, 1024]),  # as the runtime's log has it
        ([1229 * MIB, 3 * MIB], [2048]),
        ([300 * MIB, MIB], [512]),  # 212 MiB are too much to waste, though less than the request
        ([], []),
        ([0, 0], []),
    ],
)
def test_regions_double(sizes, regions):
    assert [region / MIB for region in asked(*(int(size) for size in sizes)).regions] == regions


def test_written_memory_counted_once():
    arena = asked(300 * KIB)
    table = MIB // 32
    assert arena.resident_bytes == 300 * KIB + table
    arena.release(0)
    arena.allocate("again", 200 * KIB)
    assert arena.resident_bytes == 300 * KIB + table
    arena.allocate("more", 400 * KIB)
    assert arena.resident_bytes == 600 * KIB + table and len(arena.regions) == 1


def test_free_neighbours_merge():
    arena = asked(256 * KIB, 256 * KIB, 256 * KIB, 256 * KIB)
    for key in (1, 3, 2):
        arena.release(key)
    arena.allocate("large", 768 * KIB)
    assert len(arena.regions) == 1


def test_chunk_smallest_then_lowest_taken():
    arena = asked(512 * KIB, 256 * KIB, 128 * KIB, 128 * KIB)
    arena.release(0)
    arena.release(2)
    arena.allocate("small", 100 * KIB)  # into the hole of 128 KiB
    arena.allocate("large", 512 * KIB)  # so that the other is left whole
    assert len(arena.regions) == 1
    # Of two regions that are free, the later has the lower address if both have mappings of their own.
    assert [asked_twice(size).resident_bytes - 2 * size - size // 16 for size in (8 * MIB, 64 * MIB)] == [0, 0]
    first = [written_again(size) for size in (8 * MIB, 64 * MIB)]
    assert first == [0, MIB]


def asked_twice(size):
    arena = asked(size, size)
    arena.release(0)
    arena.release(1)
    return arena


def written_again(size):
    """How much more becomes resident where the first of two regions was written whole, the second but for a MiB, and both are asked for whole."""
    arena = asked(size, size - MIB)
    before = arena.resident_bytes
    arena.release(0)
    arena.release(1)
    arena.allocate("again", size)
    return arena.resident_bytes - before


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), max_size=20))
def test_resident_between_used_and_regions(steps):
    arena, used = BfcArena(Heap()), {}
    for number, (size, release) in enumerate(steps):
        arena.allocate(number, size)
        used[number] = size
        if release and len(used) > 1:
            oldest = min(used)
            arena.release(oldest)
            del used[oldest]
        assert sum(used.values()) <= arena.resident_bytes <= sum(arena.regions) + sum(arena.regions) // 32


def test_heap_reuses_freed_memory():
    heap = Heap([2 * MIB, 5 * MIB], mapped_from=4 * MIB)
    assert not heap.allocate(MIB)[1]  # of the chunk of 2 MiB
    assert not heap.allocate(3 * MIB)[1]
    assert not heap.allocate(MIB)[1]  # of what is left of 5 MiB
    grown, mapped, below = heap.allocate(3 * MIB), heap.allocate(4 * MIB), heap.allocate(4 * MIB)
    assert grown[1] and mapped[1] and below[1]
    assert grown[0] < below[0] < mapped[0]


def test_region_in_freed_memory_uncounted():
    assert asked(700 * KIB, heap=Heap([2 * MIB])).resident_bytes == 0  # its table lies there too
    assert asked(700 * KIB, heap=Heap([MIB + KIB])).resident_bytes == MIB // 32


@pytest.mark.parametrize(
    ("steps", "sizes", "bytes"),
    [
        ([0, 1, ~0, 2], [1024, 1024, 1024], 2048),  # the third lies where the first was
        ([0, 1, ~0, 2], [1024, 1024, 1280], 3328),
        ([0, 1, 2, ~0, ~1, 3], [512, 256, 256, 700], 1024),  # 768 of the gap at the start
        ([0, 1, ~1, 2], [256, 2048, 256], 2304),  # behind the last in use, inside what the block has anyway
        ([0], [1], 256),
        ([0, 1], [0, 100], 256),
    ],
)
def test_planned_block_size(steps, sizes, bytes):
    assert planned_block(steps, sizes, range(len(sizes))) == bytes


def test_planned_block_excludes_unplanned():
    assert planned_block([0, 1], [1024, 512], {1}) == 512


TEXT = """a 5 0x10 64 early
a 11 0x20 1000 tensor
a 12 0x30 500 tensor
f 13 0x20
f 14 0x10
a 15 0x20 300 kernel
f 16 0x20
a 21 0x40 1536 block
a 22 0x20 300 kernel
f 23 0x20
f 24 0x40
f 30 0x30
"""


def test_recording_of_two_runs():
    recording = requests.parse(TEXT.splitlines(), (10, 20), (20, 25), (64,))
    assert recording == Recording(
        (0, 1, ~0, 2, ~2), (3, 4, ~4, ~3), (1000, 500, 300, 1536, 300), ("tensor", "tensor", "kernel", "block", "kernel"), (64,)
    )


@pytest.mark.parametrize("text", ["a 11 0x20 1000", "a 11 0x20 ten x", "f", "a b c d e"])
def test_recording_torn(text):
    with pytest.raises((ValueError, IndexError)):
        requests.parse([text], (10, 20), (20, 25), ())


PLACES = ((4, 136), (1, 16), (1, 256), (8, 16), (8, 256))


def test_requests_extrapolated_from_few_places():
    known = requests.requests(recorded(*PLACES))
    assert known.block == 3 and known.planned == {0, 1}
    sizes = [amount.at({"b": 13, "s": 400}) for amount in known.amounts]
    assert sizes == [4096 * 13 * 400, 12 * 13 * 400**2 + 512, 40000, 0, 40000, 8 * 13 * 400]

    at, heap = {"b": 1, "s": 64}, Heap()
    first, last = known.resident_bytes(at, 1, heap)
    # The run's tensors and its scratch memory, the table of a region of 1 MiB, and the inputs; then the block.
    pages = -(-(4096 * 64 + 12 * 64 * 64 + 512) // 4096) * 4096
    assert pages <= first - MIB // 32 - 512 <= pages + 12 * KIB
    assert first <= last <= 2 * first


@pytest.mark.parametrize(
    "every",
    [
        [*recorded(*PLACES[1:]), (recorded(PLACES[0])[0][0], recorded(PLACES[0], second=(3, ~3))[0][1])],  # other operators
        recorded(*PLACES, tensor=lambda b, s: 4096 * b * s + (40 * MIB if s == 136 else 0)),  # a size that follows nothing
        recorded(*PLACES, block=1 << 20),  # a block that no plan explains
        [({"b": b, "s": s}, Recording((), (), (), (), ())) for b, s in PLACES],  # nothing was seen
    ],
)
def test_requests_unpredictable_are_none(every):
    assert requests.requests(every) is None


def test_requests_of_rounded_size_approximated():
    known = requests.requests(recorded(*PLACES, tensor=lambda b, s: 4096 * b * s + s % 7))
    assert known.amounts[0].at({"b": 5, "s": 300}) == pytest.approx(4096 * 1500, rel=0.01)


def test_factors_as_fractions():
    places = [{"n": n} for n in (3, 6, 12, 24)]
    amount = requests.Basis(places).amount([1, 2, 4, 8])
    assert amount.terms == (((("n", 1),), Fraction(1, 3)),) and amount.at({"n": 300}) == 100


@pytest.mark.parametrize(
    ("ranges", "places"),
    [
        (["a=16..256"], [(16,), (33,), (65,), (129,)]),
        (["a=1..2"], [(1,), (2,)]),
        (["a=128..256:32"], [(128,), (160,), (192,), (224,)]),
        (["a=1..8", "b=128..256:32"], [(3, 160), (1, 128), (1, 192), (5, 128), (5, 192)]),
    ],
)
def test_places_few_low_and_odd(ranges, places):
    assert [tuple(at.values()) for at in arena_requests.places([parse(text) for text in ranges])] == places


def test_simulated_size_beyond_memory():
    def endless(at):
        return Resident(1 << 70, 1 << 70)

    assert predictions.simulated(ArenaLaw(), MODEL_LOAD, endless) is None
    assert isinstance(predictions.simulated(ArenaLaw(), PEAK, endless).size({"a": 1e12}), float)
