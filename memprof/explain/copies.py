"""From the hits of a scan to copies of weights: which tensor, in which order of elements, where.

Snippets (snippets.py) that were found in memory (scan.py) say each where its tensor would begin in a given layout. Where at least half of a
layout's snippets agree on a beginning, there is a copy. What agrees on no beginning of a known layout, but has kept the neighbours, is a copy in
another order. A tensor that the model itself holds n times is one tensor of which n copies are its due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from .look import PAGE, Mapping, Pages
from .scan import Hits
from .snippets import LEAST_SNIPPETS, Group, Index, Places, Words, snippet_count

_BLOCKS = (8, 16, 4, 32, 64)
# Neighbours that an unknown order keeps: between the 7/8 of blocks of 8 and the 15/16 of blocks of 16.
_KEPT = 0.92


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


STORED, PADDED, ANOTHER = "as stored", "rows padded", "another order"


def resolve(wanted: Index, hits: Hits, pages: Pages, mappings: Sequence[Mapping]) -> list[Copy]:
    """The copies that a scan's hits stand for, by address."""
    order = np.argsort(wanted.key_group[hits.keys], kind="stable")
    groups = wanted.key_group[hits.keys][order]
    bounds = np.searchsorted(groups, np.arange(len(wanted.groups) + 1))
    starts = np.array([mapping.start for mapping in mappings], np.uint64)
    found: list[Copy] = []
    for number, group in enumerate(wanted.groups):
        mine = order[bounds[number] : bounds[number + 1]]
        if len(mine) >= LEAST_SNIPPETS // 4:
            places = wanted.key_place[hits.keys[mine]].astype(np.int64)
            found += _Resolver(group, places, hits.addresses[mine].astype(np.int64), pages, starts, mappings).copies()
    return sorted(found, key=lambda copy: copy.start)


class _Resolver:
    """The hits of one group, and the copies they stand for. What is explained is taken out of them."""

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
            if len(self._addresses) < LEAST_SNIPPETS // 2:
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
        for begin in begins[counts >= LEAST_SNIPPETS // 2].tolist():
            could = self._could & ((begin + offsets) % 4 == 0)
            could &= self._pages.present((begin + offsets).astype(np.uint64))
            if valid is not None:
                could &= valid
            expected = int(np.count_nonzero(could))
            mine = self._addresses - offsets[self._places] == begin
            if int(np.count_nonzero(mine)) >= max(LEAST_SNIPPETS // 2, (expected + 1) // 2):
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
            if len(self._addresses) < LEAST_SNIPPETS // 2:
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
            found += [self._copy(PADDED, copy.start, copy.start + pitch * (snippet_count(group.shape) // length)) for copy in more]
        return found

    def _in_another_order(self) -> list[Copy]:
        group = self._group
        total = len(group.places) if group.dim != -1 else int(np.count_nonzero(group.places % group.item == 0))
        if total < LEAST_SNIPPETS // 2 or len(self._addresses) < total / 2:
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
    where = np.unravel_index(elements % max(1, snippet_count(shape)), shape)
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
            size = snippet_count([shape[axis] for axis in order])
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
                size = snippet_count([shape[axis] for axis in others])
                offsets = where[dim] // block * size * block + (middle * block + where[other] % block) * block + where[dim] % block
                yield f"in blocks of {block}x{block}", offsets, inside


def _offsets(where: Sequence[Places], shape: Sequence[int], axes: Sequence[int]) -> Places:
    offset = np.zeros(len(where[0]), np.int64)
    for axis in axes:
        offset = offset * shape[axis] + where[axis]
    return offset
