"""From the hits of a scan to copies of weights: which tensor, in which order of elements, where.

Each snippet (snippets.py) that was found in memory (scan.py) says where its tensor would begin in a given layout. Where at least half of a
layout's snippets agree on a beginning, there is a copy. Snippets that agree on no beginning of a known layout, but have kept their neighbours,
are a copy in another order. A tensor that the model itself holds n times is one tensor, and n copies of it are due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..base.mappings import Mapping
from .hashing import Places, Words
from .memory_map import PAGE, Pages
from .scan import Hits
from .snippets import LEAST_SNIPPETS, Index, SnippetGroup, snippet_count

_BLOCKS = (8, 16, 4, 32, 64)
# Neighbours that an unknown order keeps: between the 7/8 of blocks of 8 and the 15/16 of blocks of 16.
_KEPT = 0.92


class Copy(Struct, frozen=True):
    """One copy. layout: the order of its elements. converted: to which type, or empty. bytes: how much of it is resident."""

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
BEHIND_BIAS = "each behind its bias"  # of the panels that XNNPACK packs


def resolve(index: Index, hits: Hits, pages: Pages, mappings: Sequence[Mapping]) -> list[Copy]:
    """The copies that a scan's hits stand for, by address."""
    order = np.argsort(index.key_group[hits.keys], kind="stable")
    groups = index.key_group[hits.keys][order]
    bounds = np.searchsorted(groups, np.arange(len(index.groups) + 1))
    starts = np.array([mapping.start for mapping in mappings], np.uint64)
    copies: list[Copy] = []
    for number, group in enumerate(index.groups):
        members = order[bounds[number] : bounds[number + 1]]
        if len(members) >= LEAST_SNIPPETS // 4:
            places = index.key_place[hits.keys[members]].astype(np.int64)
            copies += _Resolver(group, places, hits.addresses[members].astype(np.int64), pages, starts, mappings).copies()
    return sorted(copies, key=lambda copy: copy.start)


class _Resolver:
    """The hits of one group, and the copies they stand for. Hits that a copy explains are taken out."""

    def __init__(
        self, group: SnippetGroup, places: Places, addresses: Places, pages: Pages, starts: Words, mappings: Sequence[Mapping]
    ) -> None:
        self._group, self._places, self._addresses = group, places, addresses
        self._pages, self._starts, self._mappings = pages, starts, mappings
        self._findable = np.ones(len(group.places), bool)  # which snippets can be found in the layouts that are tried

    def copies(self) -> list[Copy]:
        group = self._group
        copies: list[Copy] = []
        if group.dim == -1:
            copies += self._agreeing(STORED, group.places)
            if group.item <= 8:
                self._only_whole_elements()
        for name, offsets, valid in _layouts(group):
            if len(self._addresses) < LEAST_SNIPPETS // 2:
                break
            copies += self._agreeing(name, offsets * group.item, valid)
        copies += self._padded()
        return copies + self._in_another_order()

    def _only_whole_elements(self) -> None:
        self._findable = self._group.places % self._group.item == 0
        at_element = self._findable[self._places]
        self._places, self._addresses = self._places[at_element], self._addresses[at_element]

    def _agreeing(self, name: str, offsets: Places, valid: NDArray[np.bool_] | None = None) -> list[Copy]:
        """The copies on whose beginning at least half of the snippets agree that can be seen there. offsets in bytes, of each snippet."""
        copies = []
        begins, counts = np.unique(self._addresses - offsets[self._places], return_counts=True)
        for begin in begins[counts >= LEAST_SNIPPETS // 2].tolist():
            visible = self._findable & ((begin + offsets) % 4 == 0)
            visible &= self._pages.present((begin + offsets).astype(np.uint64))
            if valid is not None:
                visible &= valid
            expected = int(np.count_nonzero(visible))
            agreeing = self._addresses - offsets[self._places] == begin
            if int(np.count_nonzero(agreeing)) >= max(LEAST_SNIPPETS // 2, (expected + 1) // 2):
                copies.append(self._copy(name, begin, begin + self._group.bytes))
                self._places, self._addresses = self._places[~agreeing], self._addresses[~agreeing]
        return copies

    def _padded(self) -> list[Copy]:
        """Copies whose rows are padded: two snippets of different rows give the distance of rows."""
        group = self._group
        if (group.converted and group.dim != len(group.shape) - 1) or group.dim not in (-1, len(group.shape) - 1) or len(group.shape) < 2:
            return []
        copies = []
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
            padded = self._agreeing(PADDED, offsets, inside)
            if not padded:
                break
            copies += [self._copy(PADDED, copy.start, copy.start + pitch * (snippet_count(group.shape) // length)) for copy in padded]
        return copies

    def _in_another_order(self) -> list[Copy]:
        group = self._group
        total = len(group.places) if group.dim != -1 else int(np.count_nonzero(group.places % group.item == 0))
        if total < LEAST_SNIPPETS // 2 or len(self._addresses) < total / 2:
            return []
        share = 4 // min(4, group.item)  # of the elements only those at a multiple of four bytes are seen
        count = round(len(self._addresses) / total / _KEPT * share)
        coverage = len(np.unique(self._places)) / total * share
        if not count or coverage < 0.5:
            return []
        order = np.sort(self._addresses)
        copies = []
        for part in _clusters(order, count):
            # The first and last snippet lie somewhere inside the copy: it reaches beyond them by the bytes that are missing to its size.
            start, end = int(part[0]), min(int(part[-1]) + 8, int(part[0]) + 2 * group.bytes)
            beyond = max(0, group.bytes - (end - start)) // 2
            mapping = self._mappings[self._place(start)]
            end = min(mapping.end, max(mapping.start, start - beyond) + max(group.bytes, end - start))
            start = max(mapping.start, min(start, end - group.bytes))
            copies.append(self._copy(ANOTHER, start, end, most_bytes=group.bytes))
        return copies

    def _copy(self, name: str, start: int, end: int, most_bytes: int | None = None) -> Copy:
        resident = self._pages.resident(start, end)
        return Copy(self._group.weight, name, self._group.converted, start, end, min(resident, most_bytes or resident), self._place(start))

    def _place(self, address: int) -> int:
        return max(0, int(np.searchsorted(self._starts, np.uint64(max(address, 0)), side="right")) - 1)


def _clusters(addresses: Places, count: int) -> list[Places]:
    """The addresses in so many parts, cut at the widest gaps."""
    if count < 2 or len(addresses) < 2 * count:
        return [addresses]
    cuts = np.sort(np.argsort(np.diff(addresses))[-(count - 1) :]) + 1
    return [part for part in np.split(addresses, cuts) if len(part)]


def _layouts(group: SnippetGroup) -> Iterator[tuple[str, Places, NDArray[np.bool_] | None]]:
    """Known orders in which neighbours along the group's dimension stay neighbours: (name, each snippet's offset in elements, which are whole).

    Transposed: the dimension last, the others in any order. In blocks of B: the dimension cut into pieces of B, each of which goes through all
    the others (the panels of GEMM packing: MLAS, XNNPACK, ruy); or two dimensions cut, as in NCHWc.
    """
    shape, rank = group.shape, len(group.shape)
    dim = group.dim if group.dim >= 0 else rank - 1
    elements = group.places if group.dim >= 0 else group.places // group.item
    coordinates = np.unravel_index(elements % max(1, snippet_count(shape)), shape)
    other_axes = [axis for axis in range(rank) if axis != dim]
    run = max(1, 8 // group.item)
    orders = list(permutations(other_axes)) if rank <= 4 else [tuple(other_axes)]
    for order in orders:
        axes = (*order, dim)
        if axes == tuple(range(rank)) and group.dim == -1:
            continue
        name = STORED if axes == tuple(range(rank)) else "transposed" if rank == 2 else f"transposed to ({', '.join(map(str, axes))})"
        yield name, _offsets(coordinates, shape, axes), None if name == STORED else coordinates[dim] <= shape[dim] - run
    for block in _BLOCKS:
        if shape[dim] < block:
            continue
        inside = coordinates[dim] % block <= block - run
        for order in orders:
            in_panel = _offsets(coordinates, shape, order) if order else np.zeros(len(elements), np.int64)
            size = snippet_count([shape[axis] for axis in order])
            panel = coordinates[dim] // block
            offsets = panel * (size * block) + in_panel * block + coordinates[dim] % block
            yield f"in blocks of {block}", offsets, inside
            yield f"in blocks of {block}, {BEHIND_BIAS}", offsets + (panel + 1) * block, inside
        for other in other_axes:
            if shape[other] % block == 0:
                outer = [axis for axis in other_axes if axis != other]
                middle = coordinates[other] // block
                for axis in outer:
                    middle = middle * shape[axis] + coordinates[axis]
                size = snippet_count([shape[axis] for axis in other_axes])
                offsets = (
                    coordinates[dim] // block * size * block
                    + (middle * block + coordinates[other] % block) * block
                    + coordinates[dim] % block
                )
                yield f"in blocks of {block}x{block}", offsets, inside


def _offsets(coordinates: Sequence[Places], shape: Sequence[int], axes: Sequence[int]) -> Places:
    offset = np.zeros(len(coordinates[0]), np.int64)
    for axis in axes:
        offset = offset * shape[axis] + coordinates[axis]
    return offset
