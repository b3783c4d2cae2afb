"""How many copies of a model's weights lie in a process, in which order of elements, and where.

The method. From every large tensor snippets of eight bytes are taken: some of its bytes as they are stored, and, for each of its dimensions, of
neighbours along that dimension, since that is what another order of the elements keeps next to each other: a transposed weight, one packed in
blocks of 8 or 16, one with padded rows. The same from its values converted to float16, bfloat16 or float32. Snippets are chosen by content:
those whose first four bytes, under a mask, equal one constant. So memory is filtered by one masked compare of 32-bit words, and only the few
words that pass are looked up. A hit says where its tensor would begin in a given layout; where at least half of a layout's snippets agree on a
beginning, there is a copy. What agrees on no beginning of a known layout, but has the neighbours, is a copy in another order.

The mask takes bits from every byte of a word that differ even where a type's exponent lies there, so that a copy is found at any alignment.

The rule for what is not counted: a tensor is counted from 64 KiB on, and if it has at least 8 snippets that have 4 different bytes or
more, and that no other snippet of the model equals. Constant, tiny and low-entropy tensors have none: their bytes are summed up apart, and
never called copies. A tensor that the model itself holds n times is one tensor of which n copies are its due.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from ..models.tensors import Files, Tensor
from . import filtering
from .look import PAGE, Mapping, Memory, Pages

LARGE = 64 << 10
_LEAST_SNIPPETS = 8
_STORED_SNIPPETS, _RUN_SNIPPETS, _CONVERTED_SNIPPETS = 24, 32, 24
_LEAST_DISTINCT = 4
_ALIGNMENTS = 4
_SAMPLES, _SAMPLE = 48, 16384  # places of a tensor that are looked at for snippets, and bytes at each
_MASKS = ((16, 0xC3C3C3C3), (12, 0x83838383), (10, 0x83838181), (8, 0x81818181))
_BLOCKS = (8, 16, 4, 32, 64)
_TABLE_BITS = 22
_MIX = np.uint64(0x9E3779B97F4A7C15)
# Neighbours that an unknown order keeps: between the 7/8 of blocks of 8 and the 15/16 of blocks of 16.
_KEPT = 0.92

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Weight:
    """A tensor that is looked for. instances: how often the model holds these bytes. why_not: why it is not counted, or empty."""

    tensor: Tensor
    instances: int = 1
    why_not: str = ""


@dataclass(frozen=True)
class Group:
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


@dataclass(frozen=True)
class Index:
    """The snippets of all tensors, ready to be looked up."""

    weights: tuple[Weight, ...]
    groups: tuple[Group, ...]
    keys: Words
    key_group: NDArray[np.int32]
    key_place: NDArray[np.int32]
    mask: int
    constant: int
    table: NDArray[np.bool_] = field(repr=False)


@dataclass(frozen=True)
class Copy:
    """One copy. layout: how it is ordered. converted: to which type, or empty. bytes: how much of it is resident."""

    weight: int
    layout: str
    converted: str
    start: int
    end: int
    bytes: int
    mapping: int

    @property
    def stored(self) -> bool:
        """Whether it is as the model's file has it."""
        return self.layout == STORED and not self.converted


@dataclass(frozen=True)
class Hits:
    """What a scan found: addresses, and the snippet at each; how much it read, and how long that took."""

    addresses: Words
    keys: Places
    bytes: int
    skipped: int
    time_ns: int


STORED, PADDED, ANOTHER = "as stored", "rows padded", "another order"


# -- the index


def index(tensors: Sequence[Tensor], least: int = LARGE) -> Index:
    """Choose the snippets of these tensors. Reads a sample of each tensor: at most 768 KiB. Raises Unparsed where a file is too short."""
    filtering.ready()  # a compiler may be needed, which should not run while a process stands still
    with Files() as files:
        large = [tensor for tensor in tensors if tensor.bytes >= least and _plain(tensor)]
        bits, mask, constant = _filter(large, files)
        weights: list[Weight] = []
        groups: list[Group] = []
        keys: list[Words] = []
        known: dict[bytes, int] = {}
        for tensor in tensors:
            if tensor.bytes < least or not _plain(tensor):
                weights.append(Weight(tensor, why_not="tiny" if tensor.bytes < least else "of a type that is not looked for"))
                continue
            data = files.data(tensor)
            print_of = _fingerprint(tensor, data)
            if print_of in known:  # the same bytes once more
                first = known[print_of]
                weights[first] = Weight(weights[first].tensor, weights[first].instances + 1, weights[first].why_not)
                continue
            known[print_of] = len(weights)
            found = list(_snippets(len(weights), tensor, data, bits, mask, constant))
            weights.append(Weight(tensor))
            groups += [group for group, _ in found]
            keys += [key for _, key in found]
    return _assembled(weights, groups, keys, mask, constant)


def _plain(tensor: Tensor) -> bool:
    return tensor.item_bytes in (1, 2, 4, 8) and tensor.bytes == _count(tensor.shape) * tensor.item_bytes


def _count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


def _fingerprint(tensor: Tensor, data: Bytes) -> bytes:
    import hashlib

    digest = hashlib.blake2b(repr((tensor.dtype, tensor.bytes)).encode())
    for start, end in _sample_ranges(len(data)):
        digest.update(data[start:end].tobytes())
    return digest.digest()


def _sample_ranges(size: int) -> list[tuple[int, int]]:
    """Places of a tensor that are looked at: all of a small one, else spread evenly; each begins at a multiple of 16 bytes."""
    if size <= _SAMPLES * _SAMPLE:
        return [(0, size)]
    step = (size - _SAMPLE) / (_SAMPLES - 1)
    return [(start, start + _SAMPLE) for start in (int(step * number) & ~15 for number in range(_SAMPLES))]


def _filter(large: Sequence[Tensor], files: Files) -> tuple[int, int, int]:
    """The mask, as strict as the smallest tensor allows, and the constant that most tensors have often enough at all alignments."""
    smallest = min((tensor.bytes // tensor.item_bytes for tensor in large), default=1 << 20)
    looked_at = min(smallest, _SAMPLES * _SAMPLE // 4)
    bits, mask = next(((bits, mask) for bits, mask in _MASKS if looked_at >> bits >= 12), _MASKS[-1])
    step = max(1, len(large) // 48)
    score: dict[int, float] = {}
    for tensor in sorted(large, key=lambda one: one.bytes)[::step]:
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
    # Of the constants that do nearly as well: one with two high bits, since text and small numbers, of which memory is full, have none; for
    # weights of two bytes one that they can still have once they are widened to float32, whose lowest bits are then zero.
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


def _snippets(number: int, tensor: Tensor, data: Bytes, bits: int, mask: int, constant: int) -> Iterator[tuple[Group, Words]]:
    """The groups of one tensor, each with its keys."""
    shape = tuple(size for size in tensor.shape if size != 1) or (1,)
    ranges = _sample_ranges(len(data))
    places, keys = _stored(data, ranges, mask, constant)
    yield Group(number, -1, "", shape, tensor.item_bytes, places), keys
    elements = data.view(f"u{tensor.item_bytes}")
    few = _shortened(ranges, tensor.item_bytes * (_RUN_SNIPPETS * 3 // 2 << bits))
    for dim in range(len(shape) - 1):
        yield from _along(number, elements, "", shape, dim, few, mask, constant, _RUN_SNIPPETS)
    for converted in {"float32": ("float16", "bfloat16"), "float16": ("float32",), "bfloat16": ("float32",)}.get(tensor.dtype, ()):
        for dim in range(len(shape)):
            other = _Converted(elements, tensor.dtype, converted)
            yield from _along(number, other, converted, shape, dim, few, mask, constant, _CONVERTED_SNIPPETS)


def _shortened(ranges: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """As many ranges, each with its share of so many bytes; a single one is cut into pieces first."""
    if len(ranges) == 1 and ranges[0][1] > most:
        step = ranges[0][1] // 16 & ~15
        ranges = [(start, start + step) for start in range(0, ranges[0][1] - step + 1, step)]
    share = max(1 << 10, most // len(ranges) & ~15)
    return [(start, min(end, start + share)) for start, end in ranges]


class _Converted:
    """Elements of a tensor as bits of another type, converted where they are asked for; the tensor itself stays as it is."""

    def __init__(self, elements: NDArray[np.generic], origin: str, target: str) -> None:
        self._elements, self._origin, self._target = elements, origin, target
        self.dtype = np.dtype("u2" if target in ("float16", "bfloat16") else "u4")

    def __getitem__(self, places: Places) -> NDArray[np.generic]:
        taken = np.ascontiguousarray(self._elements[places])
        if self._target == "bfloat16":  # rounded to nearest even, as hardware does
            bits = taken.view("u4").astype(np.uint64)
            return ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype("u2")
        if self._origin == "bfloat16":
            return (taken.view("u2").astype("u4") << np.uint32(16)).astype("u4")
        with np.errstate(over="ignore"):
            return taken.view(self._origin).astype(self._target).view(self.dtype)


def _stored(data: Bytes, ranges: Sequence[tuple[int, int]], mask: int, constant: int) -> tuple[Places, Words]:
    places, keys = [], []
    for alignment in range(_ALIGNMENTS):
        found = []
        for start, end in ranges:
            words = _words(data[start:end], alignment)
            found.append(np.flatnonzero((words & np.uint32(mask)) == np.uint32(constant)) * 4 + (start + alignment))
        place = np.concatenate(found)
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
) -> Iterator[tuple[Group, Words]]:
    """Snippets of neighbours along a dimension."""
    item = elements.dtype.itemsize
    count = max(1, 8 // item)
    flat = bool(converted) and dim == len(shape) - 1  # as stored, but converted: neighbours may lie in the next row
    if (shape[dim] < count and not flat) or (item == 8 and not converted):
        return
    stored = 8 if not converted else {"float32": 2, "float16": 4, "bfloat16": 4}[converted]
    stored_item = item if not converted else stored
    stride = _count(shape[dim + 1 :])
    places = np.concatenate([np.arange(start // stored_item, end // stored_item) for start, end in ranges]).astype(np.int64)
    places = places[places <= _count(shape) - count] if flat else places[(places // stride) % shape[dim] <= shape[dim] - count]
    if not len(places):
        return
    own = (1 << 8 * min(item, 4)) - 1  # the part of the mask that the first of the neighbours alone decides
    first = np.asarray(elements[places]).view(f"u{item}").astype(np.uint64)
    places = places[(first & np.uint64(mask & own)) == np.uint64(constant & own)]
    runs = np.stack([elements[places + stride * step] for step in range(count)], axis=1)
    keys = np.ascontiguousarray(runs).view("<u8").reshape(-1)
    fitting = np.flatnonzero((keys & np.uint64(mask)) == np.uint64(constant))
    chosen = _spread(fitting, most)
    yield Group(number, dim, converted, shape, item, places[chosen]), keys[chosen]


def _spread(values: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of the values, evenly from all of them."""
    return values if len(values) <= most else values[np.linspace(0, len(values) - 1, most).astype(np.int64)]


def _assembled(weights: list[Weight], groups: list[Group], keys: list[Words], mask: int, constant: int) -> Index:
    """One sorted table of all snippets that are rich enough and occur once; tensors that are left with too few are not counted."""
    if not groups:
        nothing = np.zeros(0, np.int32)
        return Index(tuple(weights), (), np.zeros(0, np.uint64), nothing, nothing, mask, constant, np.zeros(1 << _TABLE_BITS, bool))
    key = np.concatenate(keys)
    owner = np.repeat(np.arange(len(groups), dtype=np.int32), [len(one) for one in keys])
    place = np.concatenate([np.arange(len(one), dtype=np.int32) for one in keys])
    ordered = np.sort(key.view(np.uint8).reshape(-1, 8), axis=1)
    rich = 1 + (np.diff(ordered, axis=1) != 0).sum(axis=1) >= _LEAST_DISTINCT
    _, first, counts = np.unique(key, return_inverse=True, return_counts=True)
    good = rich & (counts[first] == 1)
    enough = np.bincount(owner[good], minlength=len(groups)) >= _LEAST_SNIPPETS // 2
    countable = {
        group.weight
        for number, group in enumerate(groups)
        if group.dim == -1 and np.count_nonzero(good & (owner == number)) >= _LEAST_SNIPPETS
    }
    for number, weight in enumerate(weights):
        if not weight.why_not and number not in countable:
            weights[number] = Weight(weight.tensor, weight.instances, "constant or of low entropy")
    good &= enough[owner] & np.isin(owner, [number for number, group in enumerate(groups) if group.weight in countable])
    key, owner, place = key[good], owner[good], place[good]
    order = np.argsort(key, kind="stable")
    key, owner, place = key[order], owner[order], place[order]
    table = np.zeros(1 << _TABLE_BITS, bool)
    table[_hashed(key)] = True
    kept = _kept(groups, owner, place)
    return Index(tuple(weights), kept, key, owner, place, mask, constant, table)


def _kept(groups: list[Group], owner: NDArray[np.int32], place: NDArray[np.int32]) -> tuple[Group, ...]:
    """The groups with only those places whose snippets are in the table; `place` is renumbered with them."""
    order = np.lexsort((place, owner))
    bounds = np.searchsorted(owner[order], np.arange(len(groups) + 1))
    kept = []
    for number, group in enumerate(groups):
        mine = order[bounds[number] : bounds[number + 1]]
        kept.append(Group(group.weight, group.dim, group.converted, group.shape, group.item, group.places[place[mine]]))
        place[mine] = np.arange(len(mine), dtype=np.int32)
    return tuple(kept)


def _hashed(keys: Words) -> NDArray[np.int64]:
    return ((keys * _MIX) >> np.uint64(64 - _TABLE_BITS)).astype(np.int64)


# -- the scan


def scan(wanted: Index, pid: int, pages: Pages, workers: int = 0) -> Hits:
    """Look at every present page for every snippet, on two CPUs where there are two: the child stands still meanwhile.

    Raises look.Gone or look.Unreadable.
    """
    begin_ns = time.monotonic_ns()
    workers = workers or min(2, len(os.sched_getaffinity(0)))
    memories = [Memory(pid) for _ in range(workers)]
    if not len(wanted.keys):
        return Hits(np.zeros(0, np.uint64), np.zeros(0, np.int64), 0, 0, 0)
    with ThreadPoolExecutor(workers) as pool:
        parts = pool.map(lambda pair: _scan_part(wanted, *pair), zip(memories, _shares(*pages.ranges(), workers), strict=True))
        address, key = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((key, address))
    address, key = address[order], key[order]
    once = np.ones(len(address), bool)  # what lies in an overlap is seen twice
    once[1:] = (np.diff(address) != 0) | (np.diff(key) != 0)
    read, skipped = sum(memory.bytes for memory in memories), sum(memory.skipped for memory in memories)
    return Hits(address[once], key[once], read, skipped, time.monotonic_ns() - begin_ns)


def _scan_part(wanted: Index, memory: Memory, part: tuple[Words, Words]) -> tuple[Words, Places]:
    """(addresses, snippets) of the words in these ranges that are snippets."""
    passing = filtering.ready()
    values, addresses = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for piece in memory.read(*part):
        words = piece.data[: len(piece.data) // 4 * 4].view(np.uint32)
        passed = passing(words[:-1], wanted.mask, wanted.constant)
        value = words[passed + 1].astype(np.uint64) << np.uint64(32) | words[passed]
        likely = np.flatnonzero(wanted.table[_hashed(value)])
        if len(likely):
            values.append(value[likely])
            addresses.append(piece.address_of(passed[likely] * 4))
    value, address = np.concatenate(values), np.concatenate(addresses)
    order = np.argsort(value)  # neighbours are looked up in neighbouring memory
    value, address = value[order], address[order]
    place = np.minimum(np.searchsorted(wanted.keys, value), len(wanted.keys) - 1)
    sure = wanted.keys[place] == value
    return address[sure], place[sure]


def _shares(starts: Words, ends: Words, workers: int) -> list[tuple[Words, Words]]:
    """Ranges in as many parts of about the same size; a range that would lie in two parts is cut at a page."""
    sums = np.concatenate(([0], np.cumsum((ends - starts).astype(np.int64))))
    shares = []
    for number in range(workers):
        low, high = (int(sums[-1]) * part // workers // PAGE * PAGE for part in (number, number + 1))
        if number == workers - 1:
            high = int(sums[-1])
        first, last = int(np.searchsorted(sums, low, side="right")) - 1, int(np.searchsorted(sums, high, side="left"))
        some_starts, some_ends = starts[first:last].copy(), ends[first:last].copy()
        if len(some_starts):
            some_starts[0] += np.uint64(low - int(sums[first]))
            some_ends[-1] -= np.uint64(int(sums[last]) - high)
        shares.append((some_starts, some_ends))
    return shares


# -- from hits to copies


def resolve(wanted: Index, hits: Hits, pages: Pages, mappings: Sequence[Mapping]) -> list[Copy]:
    """The copies that a scan's hits stand for, by address."""
    order = np.argsort(wanted.key_group[hits.keys], kind="stable")
    groups = wanted.key_group[hits.keys][order]
    bounds = np.searchsorted(groups, np.arange(len(wanted.groups) + 1))
    starts = np.array([mapping.start for mapping in mappings], np.uint64)
    found: list[Copy] = []
    for number, group in enumerate(wanted.groups):
        mine = order[bounds[number] : bounds[number + 1]]
        if len(mine) >= _LEAST_SNIPPETS // 4:
            places = wanted.key_place[hits.keys[mine]].astype(np.int64)
            found += _Resolver(group, places, hits.addresses[mine].astype(np.int64), pages, starts, mappings).copies()
    return sorted(found, key=lambda copy: copy.start)


class _Resolver:
    """The hits of one group, and the copies they stand for. what is explained is taken out of them."""

    def __init__(self, group: Group, places: Places, addresses: Places, pages: Pages, starts: Words, mappings: Sequence[Mapping]) -> None:
        self._group, self._places, self._addresses = group, places, addresses
        self._pages, self._starts, self._mappings = pages, starts, mappings
        self._could = np.ones(len(group.places), bool)  # which snippets can be found in the layouts that are tried

    def copies(self) -> list[Copy]:
        group = self._group
        found: list[Copy] = []
        if group.dim == -1:
            found += self._agreeing(STORED, group.places)
            if group.item <= 8:
                self._only_whole_elements()
        for name, offsets, valid in _layouts(group):
            if len(self._addresses) < _LEAST_SNIPPETS // 2:
                break
            found += self._agreeing(name, offsets * group.item, valid)
        found += self._padded()
        return found + self._in_another_order()

    def _only_whole_elements(self) -> None:
        self._could = self._group.places % self._group.item == 0
        whole = self._could[self._places]
        self._places, self._addresses = self._places[whole], self._addresses[whole]

    def _agreeing(self, name: str, offsets: Places, valid: NDArray[np.bool_] | None = None) -> list[Copy]:
        """The copies on whose beginning at least half of the snippets agree that can be seen there. offsets in bytes, of each snippet."""
        found = []
        begins, counts = np.unique(self._addresses - offsets[self._places], return_counts=True)
        for begin in begins[counts >= _LEAST_SNIPPETS // 2].tolist():
            could = self._could & ((begin + offsets) % 4 == 0)
            could &= self._pages.present((begin + offsets).astype(np.uint64))
            if valid is not None:
                could &= valid
            expected = int(np.count_nonzero(could))
            mine = self._addresses - offsets[self._places] == begin
            if int(np.count_nonzero(mine)) >= max(_LEAST_SNIPPETS // 2, (expected + 1) // 2):
                found.append(self._copy(name, begin, begin + self._group.bytes))
                self._places, self._addresses = self._places[~mine], self._addresses[~mine]
        return found

    def _padded(self) -> list[Copy]:
        """Copies whose rows lie at a distance of their own: two snippets of different rows give it."""
        group = self._group
        if (group.converted and group.dim != len(group.shape) - 1) or group.dim not in (-1, len(group.shape) - 1) or len(group.shape) < 2:
            return []
        found = []
        elements = group.places // group.item if group.dim == -1 else group.places
        length = group.shape[-1]
        for _ in range(4):
            if len(self._addresses) < _LEAST_SNIPPETS // 2:
                break
            row, column = elements[self._places] // length, elements[self._places] % length
            begins = self._addresses - column * group.item
            order = np.argsort(begins, kind="stable")
            rows, steps = np.diff(row[order]), np.diff(begins[order])
            fits = (rows > 0) & (steps > 0)
            pitches, counts = np.unique(steps[fits] // np.maximum(rows[fits], 1), return_counts=True)
            pitches, counts = pitches[pitches > length * group.item], counts[pitches > length * group.item]
            if not len(pitches):
                break
            pitch = int(pitches[np.argmax(counts)])
            if pitch > 2 * length * group.item + PAGE:
                break
            offsets = elements // length * pitch + elements % length * group.item
            inside = elements % length <= length - max(1, 8 // group.item)
            more = self._agreeing(PADDED, offsets, inside)
            if not more:
                break
            found += [self._copy(PADDED, copy.start, copy.start + pitch * (_count(group.shape) // length)) for copy in more]
        return found

    def _in_another_order(self) -> list[Copy]:
        group = self._group
        total = len(group.places) if group.dim != -1 else int(np.count_nonzero(group.places % group.item == 0))
        if total < _LEAST_SNIPPETS // 2 or len(self._addresses) < total / 2:
            return []
        share = 4 // min(4, group.item)  # of the elements only those at a multiple of four bytes are seen
        count = round(len(self._addresses) / total / _KEPT * share)
        seen = len(np.unique(self._places)) / total * share
        if not count or seen < 0.5:
            return []
        order = np.sort(self._addresses)
        found = []
        for part in _clusters(order, count):
            # The first and last snippet lie somewhere inside it: it reaches beyond them by what is missing to its size.
            start, end = int(part[0]), min(int(part[-1]) + 8, int(part[0]) + 2 * group.bytes)
            beyond = max(0, group.bytes - (end - start)) // 2
            mapping = self._mappings[self._place(start)]
            end = min(mapping.end, max(mapping.start, start - beyond) + max(group.bytes, end - start))
            start = max(mapping.start, min(start, end - group.bytes))
            found.append(self._copy(ANOTHER, start, end, most=group.bytes))
        return found

    def _copy(self, name: str, start: int, end: int, most: int | None = None) -> Copy:
        resident = self._pages.resident(start, end)
        return Copy(self._group.weight, name, self._group.converted, start, end, min(resident, most or resident), self._place(start))

    def _place(self, address: int) -> int:
        return max(0, int(np.searchsorted(self._starts, np.uint64(max(address, 0)), side="right")) - 1)


def _clusters(addresses: Places, count: int) -> list[Places]:
    """The addresses in so many parts, cut at the widest gaps."""
    if count < 2 or len(addresses) < 2 * count:
        return [addresses]
    cuts = np.sort(np.argsort(np.diff(addresses))[-(count - 1) :]) + 1
    return [part for part in np.split(addresses, cuts) if len(part)]


def _layouts(group: Group) -> Iterator[tuple[str, Places, NDArray[np.bool_] | None]]:
    """Known orders in which neighbours along the group's dimension stay neighbours: (name, each snippet's offset in elements, where it is whole).

    Transposed: the dimension last, the others in any order. In blocks of B: the dimension cut into pieces of B, each of which goes through all
    the others (the panels of GEMM packing: MLAS, XNNPACK, ruy); or two dimensions cut, as in NCHWc.
    """
    shape, rank = group.shape, len(group.shape)
    dim = group.dim if group.dim >= 0 else rank - 1
    elements = group.places if group.dim >= 0 else group.places // group.item
    where = np.unravel_index(elements % max(1, _count(shape)), shape)
    others = [axis for axis in range(rank) if axis != dim]
    run = max(1, 8 // group.item)
    orders = list(permutations(others)) if rank <= 4 else [tuple(others)]
    for order in orders:
        axes = (*order, dim)
        if axes == tuple(range(rank)) and group.dim == -1:
            continue
        name = STORED if axes == tuple(range(rank)) else "transposed" if rank == 2 else f"transposed to ({', '.join(map(str, axes))})"
        yield name, _offsets(where, shape, axes), None if name == STORED else where[dim] <= shape[dim] - run
    for block in _BLOCKS:
        if shape[dim] < block:
            continue
        inside = where[dim] % block <= block - run
        for order in orders:
            rest = _offsets(where, shape, order) if order else np.zeros(len(elements), np.int64)
            size = _count([shape[axis] for axis in order])
            panel = where[dim] // block
            offsets = panel * (size * block) + rest * block + where[dim] % block
            yield f"in blocks of {block}", offsets, inside
            yield f"in blocks of {block}, each behind its bias", offsets + (panel + 1) * block, inside
        for other in others:
            if shape[other] % block == 0:
                outer = [axis for axis in others if axis != other]
                middle = where[other] // block
                for axis in outer:
                    middle = middle * shape[axis] + where[axis]
                size = _count([shape[axis] for axis in others])
                offsets = where[dim] // block * size * block + (middle * block + where[other] % block) * block + where[dim] % block
                yield f"in blocks of {block}x{block}", offsets, inside


def _offsets(where: Sequence[Places], shape: Sequence[int], axes: Sequence[int]) -> Places:
    offset = np.zeros(len(where[0]), np.int64)
    for axis in axes:
        offset = offset * shape[axis] + where[axis]
    return offset
