"""Weights too small for their copies to be told by snippets: looked for whole, as they are stored, so that blocks that hold them are not taken
for activations.

Of each such tensor eight bytes are chosen that no other tensor has, and whole_weights.py looks for them. Tensors of less than 64 bytes, those without
four different bytes side by side, and copies in another order are not found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ..models.tensors import Files, StoredTensor
from .hashing import Bytes
from .snippets import LARGE
from .whole_weights import STEP, Small

_LEAST = 64
_LOOKED_AT = 64  # places of a tensor that are tried for its eight bytes
_DISTINCT = 4


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
    locations = np.array([chosen[key] for key in keys.tolist()], np.int64).reshape(-1, 2)
    return Small(tuple(contents), tuple(instances), keys, locations[:, 0], locations[:, 1], unseen)


def _place(data: Bytes, chosen: dict[int, tuple[int, int]]) -> tuple[int, int] | None:
    """(eight bytes as a number, their offset) that tell a tensor from those before it; None if it has no such bytes."""
    words = data[: len(data) // STEP * STEP].reshape(-1, STEP)[:_LOOKED_AT, :8]
    for number, word in enumerate(words):
        key = int.from_bytes(word.tobytes(), "little")
        if len(set(word.tolist())) >= _DISTINCT and key not in chosen:
            return key, number * STEP
    return None
