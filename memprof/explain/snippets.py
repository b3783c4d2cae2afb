"""The eight bytes of each weight that are looked for, in each layout in which a runtime may hold it.

Snippets are taken from every large tensor: some of its bytes as they are stored, and, for each of its dimensions, neighbours along that
dimension. Another order of the elements keeps these next to each other: a transposed weight, a weight packed in blocks of 8 or 16, or one with
padded rows. The same is taken from its values converted to float16, bfloat16 or float32.

Snippets are chosen by content: those whose first four bytes, under a mask, equal one constant. So memory is filtered by one masked compare of
32-bit words (filtering.py), and only the few words that pass are looked up. The mask takes bits from every byte of a word that differ even where
a type's exponent lies there, so that a copy is found at any alignment.

A tensor is counted from 64 KiB on, if it has at least 8 snippets that have 4 different bytes or more and that no other snippet of the model
equals. Constant, tiny and low-entropy tensors have no such snippets: their bytes are summed up apart, and never called copies (small_weights.py finds
the tiny tensors whole).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..models.tensors import Files, StoredTensor
from . import filtering
from .hashing import Bytes, Places, Words
from .scan import Keys

LARGE = 64 << 10
LEAST_SNIPPETS = 8
_STORED_SNIPPETS, _RUN_SNIPPETS, _CONVERTED_SNIPPETS = 24, 32, 24
_LEAST_DISTINCT = 4
_ALIGNMENTS = 4
_SAMPLES, _SAMPLE = 48, 16384  # places of a tensor that are looked at for snippets, and bytes at each
_MASKS = ((16, 0xC3C3C3C3), (12, 0x83838383), (10, 0x83838181), (8, 0x81818181))


class TensorQuery(Struct, frozen=True):
    """A tensor that is looked for. instances: how often the model holds these bytes. why_not: why it is not counted, or empty."""

    tensor: StoredTensor
    instances: int = 1
    why_not: str = ""


class SnippetGroup(Struct, frozen=True):
    """Snippets of one tensor that are neighbours in one way.

    dim: the dimension (of `shape`, the tensor's without ones) along which they are neighbours; -1 for as stored. converted: to which type, or
    empty. item: bytes of an element there. places: of each snippet, in elements; for dim -1 in bytes.
    """

    weight: int
    dim: int
    converted: str
    shape: tuple[int, ...]
    item: int
    places: Places

    @property
    def bytes(self) -> int:
        """The size of a whole copy."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.item


class Index(Struct, frozen=True):
    """The snippets of all tensors, ready to be looked up. of_pieces: they are pieces of a file whose tensors are not known."""

    weights: tuple[TensorQuery, ...]
    groups: tuple[SnippetGroup, ...]
    keys: Keys
    key_group: NDArray[np.int32]
    key_place: NDArray[np.int32]
    of_pieces: bool = False


def index(tensors: Sequence[StoredTensor], least: int = LARGE) -> Index:
    """Choose the snippets of these tensors. Reads a sample of each tensor: at most 768 KiB. Raises Unparsed where a file is too short."""
    filtering.ready()  # a compiler may be needed, and should not run while a process stands still
    with Files() as files:
        large = [tensor for tensor in tensors if tensor.bytes >= least and _plain(tensor)]
        bits, mask, constant = _filter(large, files)
        weights: list[TensorQuery] = []
        groups: list[SnippetGroup] = []
        keys: list[Words] = []
        known: dict[bytes, int] = {}
        for tensor in tensors:
            if tensor.bytes < least or not _plain(tensor):
                weights.append(TensorQuery(tensor, why_not="tiny" if tensor.bytes < least else "of a type that is not looked for"))
                continue
            data = files.data(tensor)
            fingerprint = _fingerprint(tensor, data)
            if fingerprint in known:  # the same bytes once more
                first = known[fingerprint]
                weights[first] = TensorQuery(weights[first].tensor, weights[first].instances + 1, weights[first].why_not)
                continue
            known[fingerprint] = len(weights)
            snippets = list(_snippets(len(weights), tensor, data, bits, mask, constant))
            weights.append(TensorQuery(tensor))
            groups += [group for group, _ in snippets]
            keys += [key for _, key in snippets]
    return _assembled(weights, groups, keys, mask, constant)


def _plain(tensor: StoredTensor) -> bool:
    return tensor.item_bytes in (1, 2, 4, 8) and tensor.bytes == snippet_count(tensor.shape) * tensor.item_bytes


def snippet_count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


def _fingerprint(tensor: StoredTensor, data: Bytes) -> bytes:
    import hashlib

    digest = hashlib.blake2b(repr((tensor.dtype, tensor.bytes)).encode())
    for start, end in _sample_ranges(len(data)):
        digest.update(data[start:end].tobytes())
    return digest.digest()


def _sample_ranges(size: int) -> list[tuple[int, int]]:
    """Places of a tensor that are looked at: all of a small tensor, else spread evenly. Each begins at a multiple of 16 bytes."""
    if size <= _SAMPLES * _SAMPLE:
        return [(0, size)]
    step = (size - _SAMPLE) / (_SAMPLES - 1)
    return [(start, start + _SAMPLE) for start in (int(step * number) & ~15 for number in range(_SAMPLES))]


def _filter(large: Sequence[StoredTensor], files: Files) -> tuple[int, int, int]:
    """The mask, as strict as the smallest tensor allows, and the constant that most tensors have often enough at all alignments."""
    smallest = min((tensor.bytes // tensor.item_bytes for tensor in large), default=1 << 20)
    looked_at = min(smallest, _SAMPLES * _SAMPLE // 4)
    bits, mask = next(((bits, mask) for bits, mask in _MASKS if looked_at >> bits >= 12), _MASKS[-1])
    step = max(1, len(large) // 48)
    score: dict[int, float] = {}
    for tensor in sorted(large, key=lambda tensor: tensor.bytes)[::step]:
        data = files.data(tensor)
        for alignment in range(_ALIGNMENTS):
            words = np.concatenate([_words(data[start:end], alignment)[: 1 << 14] for start, end in _sample_ranges(len(data))[:16]])
            values, counts = np.unique(words[: 1 << 15] & np.uint32(mask), return_counts=True)
            worth = 4.0 if alignment == 0 else 1.0
            for value, share in zip(
                values.tolist(), (np.minimum(counts * len(data) / max(1, 4 * len(words)), 24) * worth).tolist(), strict=True
            ):
                score[value] = score.get(value, 0) + share
    for common in (0, mask):
        score.pop(common, None)
    # Of the constants that do nearly as well, a constant with two high bits is taken: text and small numbers, of which memory is full, have
    # none. For weights of two bytes it is a constant that they still have once widened to float32, whose lowest bits are then zero.
    kinds = {tensor.dtype for tensor in large}
    zero = 0xFFFF if "bfloat16" in kinds else 0x1FFF if "float16" in kinds else 0
    best = max(score.values(), default=0.0)
    good = [value for value in score if score[value] >= (0.6 if zero else 0.85) * best]

    def fitness(value: int) -> tuple[bool, float, int]:
        return (value & zero == 0 if zero else value & 0x00800080 == 0x00800080), score[value], value

    return bits, mask, max(good, key=fitness) if good else mask & 0x81828384


def _words(data: Bytes, alignment: int) -> NDArray[np.uint32]:
    part = data[alignment:]
    return np.frombuffer(part[: len(part) // 4 * 4].tobytes(), "<u4")


def _snippets(number: int, tensor: StoredTensor, data: Bytes, bits: int, mask: int, constant: int) -> Iterator[tuple[SnippetGroup, Words]]:
    """The groups of one tensor, each with its keys."""
    shape = tuple(size for size in tensor.shape if size != 1) or (1,)
    ranges = _sample_ranges(len(data))
    places, keys = _stored(data, ranges, mask, constant)
    yield SnippetGroup(number, -1, "", shape, tensor.item_bytes, places), keys
    elements = data.view(f"u{tensor.item_bytes}")
    few = _shortened(ranges, tensor.item_bytes * (_RUN_SNIPPETS * 3 // 2 << bits))
    for dim in range(len(shape) - 1):
        yield from _along(number, elements, "", shape, dim, few, mask, constant, _RUN_SNIPPETS)
    for converted in {"float32": ("float16", "bfloat16"), "float16": ("float32",), "bfloat16": ("float32",)}.get(tensor.dtype, ()):
        for dim in range(len(shape)):
            other = _Converted(elements, tensor.dtype, converted)
            yield from _along(number, other, converted, shape, dim, few, mask, constant, _CONVERTED_SNIPPETS)


def _shortened(ranges: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """As many ranges, each with its share of so many bytes. A single range is cut into pieces first."""
    if len(ranges) == 1 and ranges[0][1] > most:
        step = ranges[0][1] // 16 & ~15
        ranges = [(start, start + step) for start in range(0, ranges[0][1] - step + 1, step)]
    share = max(1 << 10, most // len(ranges) & ~15)
    return [(start, min(end, start + share)) for start, end in ranges]


class _Converted:
    """Elements of a tensor as bits of another type, converted on demand; the tensor itself stays as it is."""

    def __init__(self, elements: NDArray[np.generic], origin: str, target: str) -> None:
        self._elements, self._origin, self._target = elements, origin, target
        self.dtype = np.dtype("u2" if target in ("float16", "bfloat16") else "u4")

    def __getitem__(self, places: Places) -> NDArray[np.generic]:
        values = np.ascontiguousarray(self._elements[places])
        if self._target == "bfloat16":  # rounded to nearest even, as hardware does
            bits = values.view("u4").astype(np.uint64)
            return ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype("u2")
        if self._origin == "bfloat16":
            return (values.view("u2").astype("u4") << np.uint32(16)).astype("u4")
        with np.errstate(over="ignore"):
            return values.view(self._origin).astype(self._target).view(self.dtype)


def _stored(data: Bytes, ranges: Sequence[tuple[int, int]], mask: int, constant: int) -> tuple[Places, Words]:
    places, keys = [], []
    for alignment in range(_ALIGNMENTS):
        matches = []
        for start, end in ranges:
            words = _words(data[start:end], alignment)
            matches.append(np.flatnonzero((words & np.uint32(mask)) == np.uint32(constant)) * 4 + (start + alignment))
        place = np.concatenate(matches)
        place = _spread(place[place <= len(data) - 8], 2 * _STORED_SNIPPETS if alignment == 0 else _STORED_SNIPPETS)
        places.append(place)
        keys.append(np.ascontiguousarray(data[place[:, None] + np.arange(8)]).view("<u8")[:, 0] if len(place) else np.zeros(0, np.uint64))
    return np.concatenate(places).astype(np.int64), np.concatenate(keys)


def _along(
    number: int,
    elements: NDArray[np.generic] | _Converted,
    converted: str,
    shape: tuple[int, ...],
    dim: int,
    ranges: Sequence[tuple[int, int]],
    mask: int,
    constant: int,
    most: int,
) -> Iterator[tuple[SnippetGroup, Words]]:
    """Snippets of neighbours along a dimension."""
    item = elements.dtype.itemsize
    count = max(1, 8 // item)
    flat = bool(converted) and dim == len(shape) - 1  # as stored, but converted: neighbours may lie in the next row
    if (shape[dim] < count and not flat) or (item == 8 and not converted):
        return
    stored = 8 if not converted else {"float32": 2, "float16": 4, "bfloat16": 4}[converted]
    stored_item = item if not converted else stored
    stride = snippet_count(shape[dim + 1 :])
    places = np.concatenate([np.arange(start // stored_item, end // stored_item) for start, end in ranges]).astype(np.int64)
    places = places[places <= snippet_count(shape) - count] if flat else places[(places // stride) % shape[dim] <= shape[dim] - count]
    if not len(places):
        return
    own = (1 << 8 * min(item, 4)) - 1  # the part of the mask that the first neighbour alone decides
    first = np.asarray(elements[places]).view(f"u{item}").astype(np.uint64)
    places = places[(first & np.uint64(mask & own)) == np.uint64(constant & own)]
    runs = np.stack([elements[places + stride * step] for step in range(count)], axis=1)
    keys = np.ascontiguousarray(runs).view("<u8").reshape(-1)
    fitting = np.flatnonzero((keys & np.uint64(mask)) == np.uint64(constant))
    chosen = _spread(fitting, most)
    yield SnippetGroup(number, dim, converted, shape, item, places[chosen]), keys[chosen]


def _spread(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of the values, evenly from all of them."""
    return values if len(values) <= most else values[np.linspace(0, len(values) - 1, most).astype(np.int64)]


def _assembled(weights: list[TensorQuery], groups: list[SnippetGroup], keys: list[Words], mask: int, constant: int) -> Index:
    """One sorted table of all snippets that are rich enough and occur once. Tensors with too few of them are not counted."""
    if not groups:
        nothing = np.zeros(0, np.int32)
        return Index(tuple(weights), (), Keys(np.zeros(0, np.uint64), mask, constant), nothing, nothing)
    key = np.concatenate(keys)
    owner = np.repeat(np.arange(len(groups), dtype=np.int32), [len(group_keys) for group_keys in keys])
    place = np.concatenate([np.arange(len(group_keys), dtype=np.int32) for group_keys in keys])
    ordered = np.sort(key.view(np.uint8).reshape(-1, 8), axis=1)
    rich = 1 + (np.diff(ordered, axis=1) != 0).sum(axis=1) >= _LEAST_DISTINCT
    _, first, counts = np.unique(key, return_inverse=True, return_counts=True)
    good = rich & (counts[first] == 1)
    enough = np.bincount(owner[good], minlength=len(groups)) >= LEAST_SNIPPETS // 2
    countable = {
        group.weight
        for number, group in enumerate(groups)
        if group.dim == -1 and np.count_nonzero(good & (owner == number)) >= LEAST_SNIPPETS
    }
    for number, weight in enumerate(weights):
        if not weight.why_not and number not in countable:
            weights[number] = TensorQuery(weight.tensor, weight.instances, "constant or of low entropy")
    good &= enough[owner] & np.isin(owner, [number for number, group in enumerate(groups) if group.weight in countable])
    key, owner, place = key[good], owner[good], place[good]
    order = np.argsort(key, kind="stable")
    key, owner, place = key[order], owner[order], place[order]
    kept = _kept(groups, owner, place)
    return Index(tuple(weights), kept, Keys(key, mask, constant), owner, place)


def _kept(groups: list[SnippetGroup], owner: NDArray[np.int32], place: NDArray[np.int32]) -> tuple[SnippetGroup, ...]:
    """The groups with only those places whose snippets are in the table; `place` is renumbered with them."""
    order = np.lexsort((place, owner))
    bounds = np.searchsorted(owner[order], np.arange(len(groups) + 1))
    kept = []
    for number, group in enumerate(groups):
        members = order[bounds[number] : bounds[number + 1]]
        kept.append(SnippetGroup(group.weight, group.dim, group.converted, group.shape, group.item, group.places[place[members]]))
        place[members] = np.arange(len(members), dtype=np.int32)
    return tuple(kept)
