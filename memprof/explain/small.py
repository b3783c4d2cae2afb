"""Weights too small for their copies to be told by snippets: looked for whole, as they are stored, so that blocks that hold them are not taken
for activations.

Of each such tensor eight bytes are chosen that no other tensor has. Anonymous memory is looked through at every multiple of 16 bytes, where
allocators place their blocks. Where the eight bytes lie, the whole tensor is compared. Tensors of less than 64 bytes, those without four
different bytes side by side, and copies in another order are not found.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..models.tensors import Files, StoredTensor
from .look import Memory, Pages, open_memory
from .snippets import LARGE, TABLE_BITS, Bytes, Places, Words, hashed

_LEAST = 64
_STEP = 16
_LOOKED_AT = 64  # places of a tensor that are tried for its eight bytes
_DISTINCT = 4
_MOST_PLACES = 256  # of one tensor that are compared


@dataclass(frozen=True)
class Small:
    """The tensors that are looked for: their bytes, how often the model has each, and their keys, sorted, with the owner and the offset in it.

    unseen_bytes: the bytes of weights that cannot be found.
    """

    contents: tuple[Bytes, ...]
    instances: tuple[int, ...]
    keys: Words
    owners: NDArray[np.int64]
    offsets: NDArray[np.int64]
    table: NDArray[np.bool_] = field(repr=False)
    unseen_bytes: int = 0


@dataclass(frozen=True)
class Whole:
    """A small tensor that lies in memory: which, and where."""

    tensor: int
    start: int
    end: int


def choose(tensors: Sequence[StoredTensor]) -> Small:
    """The small tensors that can be found among these. Raises Unparsed if a file is too short, InputError if it cannot be read."""
    contents: list[Bytes] = []
    instances: list[int] = []
    chosen: dict[int, tuple[int, int]] = {}
    known: dict[bytes, int] = {}
    unseen = 0
    with Files() as files:
        for tensor in tensors:
            if tensor.bytes >= LARGE:  # constant or of low entropy: it would be compared at too many places
                unseen += tensor.bytes
                continue
            data = files.data(tensor) if tensor.bytes >= _LEAST else np.zeros(0, np.uint8)
            digest = hashlib.blake2b(data.tobytes()).digest()
            if len(data) and digest in known:
                instances[known[digest]] += 1
                continue
            place = _place(data, chosen)
            if place is None:
                unseen += tensor.bytes
                continue
            known[digest] = len(contents)
            chosen[place[0]] = len(contents), place[1]
            contents.append(data)
            instances.append(1)
    keys = np.array(sorted(chosen), np.uint64)
    table = np.zeros(1 << TABLE_BITS, bool)
    table[hashed(keys)] = True
    locations = np.array([chosen[key] for key in keys.tolist()], np.int64).reshape(-1, 2)
    return Small(tuple(contents), tuple(instances), keys, locations[:, 0], locations[:, 1], table, unseen)


def _place(data: Bytes, chosen: dict[int, tuple[int, int]]) -> tuple[int, int] | None:
    """(eight bytes as a number, their offset) that tell a tensor from those before it; None if it has no such bytes."""
    words = data[: len(data) // _STEP * _STEP].reshape(-1, _STEP)[:_LOOKED_AT, :8]
    for number, word in enumerate(words):
        key = int.from_bytes(word.tobytes(), "little")
        if len(set(word.tolist())) >= _DISTINCT and key not in chosen:
            return key, number * _STEP
    return None


def find(tiny: Small, pid: int, pages: Pages) -> tuple[Whole, ...]:
    """Where these tensors lie whole in a process that stands still. Raises look.Gone or look.Unreadable."""
    if not len(tiny.keys):
        return ()
    addresses, owners = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for piece in Memory(pid).read(*pages.ranges(~pages.filed)):
        words = piece.data[: len(piece.data) // _STEP * _STEP].view(np.uint64)[::2]
        likely = np.flatnonzero(tiny.table[hashed(words)])
        place = np.minimum(np.searchsorted(tiny.keys, words[likely]), len(tiny.keys) - 1)
        sure = tiny.keys[place] == words[likely]
        addresses.append(piece.address_of(likely[sure] * _STEP) - tiny.offsets[place[sure]].astype(np.uint64))
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
