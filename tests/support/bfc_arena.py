"""What the tests of the simulated arena share."""

from __future__ import annotations

from memprof.growth.scale.bfc import BfcArena, planned_block
from memprof.growth.scale.heap import Heap
from memprof.growth.scale.requests import Recording


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
