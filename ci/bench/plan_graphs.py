"""Random graphs and offset problems for the bench of `memprof plan`. They hold only what memory depends on: sizes, readers, lifetimes."""

from __future__ import annotations

import random

from memprof.plan import Buffer, Problem


def windowed(seed: int, nodes: int, window: int) -> Problem:
    """A random graph: each operator reads one to three of the `window` results before its own; sizes from 1 to 100; unread results are kept."""
    rng = random.Random(f"windowed {nodes} {window} {seed}")
    sizes, reads = [rng.randint(1, 100)], []
    for node in range(nodes):
        recent = range(max(1, node + 1 - window), node + 1)
        reads.append(tuple(sorted(rng.sample(recent, min(len(recent), rng.choice((1, 1, 2, 2, 3)))))) or (0,))
        sizes.append(rng.randint(1, 100))
    read = {tensor for tensors in reads for tensor in tensors}
    writes = tuple((node + 1,) for node in range(nodes))
    return Problem(tuple(sizes), tuple(reads), writes, frozenset({0}), frozenset(range(nodes + 1)) - read)


def cut_rectangle(seed: int, count: int, grain: int = 1, dropped: float = 0.0, steps: int = 200, capacity: int = 1 << 20) -> list[Buffer]:
    """Buffers that fill a rectangle of `steps` by `capacity` bytes: it is cut again and again, in time or in memory, the largest of three
    pieces each time. So they fit exactly into their own load. grain: memory is cut at multiples of it; dropped: the share then taken out."""
    rng = random.Random(f"rectangle {count} {seed} {grain} {dropped}")
    pieces = [(0, steps, 0, capacity)]
    while len(pieces) < count:
        sample = rng.sample(range(len(pieces)), min(3, len(pieces)))
        chosen = max(sample, key=lambda index: (pieces[index][1] - pieces[index][0]) * (pieces[index][3] - pieces[index][2]))
        lower, upper, low, high = pieces[chosen]
        if rng.random() < 0.5:
            if upper - lower > 1:
                at = rng.randint(lower + 1, upper - 1)
                pieces[chosen : chosen + 1] = [(lower, at, low, high), (at, upper, low, high)]
        elif high - low > grain:
            at = low + grain * rng.randint(1, (high - low) // grain - 1)
            pieces[chosen : chosen + 1] = [(lower, upper, low, at), (lower, upper, at, high)]
    rng.shuffle(pieces)
    kept = [piece for piece in pieces if rng.random() >= dropped]
    return [Buffer(index, lower, upper, high - low) for index, (lower, upper, low, high) in enumerate(kept)]
