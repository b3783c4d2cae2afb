"""Small tensors looked for whole in a process that stands still: anonymous memory at every multiple of 16 bytes, where allocators place their
blocks. Where the eight bytes lie that small_weights.py chose of a tensor, the whole tensor is compared.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .hashing import Bytes, Places, Words, hashed, table
from .memory_map import Memory, Pages, open_memory

STEP = 16
_MOST_PLACES = 256  # of one tensor that are compared


class Small(NamedTuple):
    """The tensors that are looked for: their bytes, how often the model has each, and their keys, sorted, with the owner and the offset in it.

    unseen_bytes: the bytes of weights that cannot be found.
    """

    contents: tuple[Bytes, ...]
    instances: tuple[int, ...]
    keys: Words
    owners: NDArray[np.int64]
    offsets: NDArray[np.int64]
    unseen_bytes: int = 0


class Whole(NamedTuple):
    """A small tensor that lies in memory: which, and where."""

    tensor: int
    start: int
    end: int


def find(tiny: Small, pid: int, pages: Pages) -> tuple[Whole, ...]:
    """Where these tensors lie whole in a process that stands still. Raises memory_map.ProcessEndError or memory_map.Unreadable."""
    if not len(tiny.keys):
        return ()
    known = table(tiny.keys)
    addresses, owners = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for piece in Memory(pid).read(*pages.ranges(~pages.filed)):
        words = piece.data[: len(piece.data) // STEP * STEP].view(np.uint64)[::2]
        likely = np.flatnonzero(known[hashed(words)])
        place = np.minimum(np.searchsorted(tiny.keys, words[likely]), len(tiny.keys) - 1)
        sure = tiny.keys[place] == words[likely]
        addresses.append(piece.address_of(likely[sure] * STEP) - tiny.offsets[place[sure]].astype(np.uint64))
        owners.append(tiny.owners[place[sure]])
    return _compared(tiny, pid, pages, np.concatenate(addresses), np.concatenate(owners))


def _compared(tiny: Small, pid: int, pages: Pages, starts: Words, owners: Places) -> tuple[Whole, ...]:
    wholes: list[Whole] = []
    tried: dict[int, int] = defaultdict(int)
    memory = open_memory(pid)
    try:
        for start, owner in sorted(set(zip(starts.tolist(), owners.tolist(), strict=True))):
            content = tiny.contents[owner]
            tried[owner] += 1
            # Looking must not bring in a page that is not there.
            if tried[owner] > _MOST_PLACES or pages.resident(start, start + len(content)) < len(content):
                continue
            try:
                same = os.pread(memory, len(content), start) == content.tobytes()
            except OSError:
                continue
            if same:
                wholes.append(Whole(owner, start, start + len(content)))
    finally:
        os.close(memory)
    return tuple(wholes)
