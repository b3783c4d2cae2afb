"""The account of one look at a stopped process (snapshot.py): the slice of the resident set that every page belongs to, byte by byte where pages
are shared.

Slices are taken one after another from the bytes that are left of each page, so that they never overlap and their sum is the resident set:
stacks, memory that the allocator kept, the model file's pages, copies of weights, libraries and memory from before the model, and the blocks in
use. "The rest" is all that no rule takes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..base.mappings import Mapping
from ..base.units import format_bytes
from ..models.tensors import StoredTensor
from . import copies, snippets
from .copies import Copy
from .glibc import Ranges, common, ranges
from .memory_map import PAGE, Pages
from .records import AGAIN, FILES, IN_USE, KEPT, LIBRARIES, MAPPED, MODEL_FILE, ONCE, REPACKED, REST, SLICES, STACKS, Held, PhaseLook, Slice
from .snapshot import ProcessSnapshot
from .snippets import Index
from .whole_weights import Small, Whole

IN_FILE, IN_LIBRARY, IN_OTHER_FILE, ANONYMOUS, SHARED = (
    "the model's file",
    "a mapped library",
    "another mapped file",
    "private anonymous",
    "shared",
)
# A copy is freed if more than this share of it lies in free blocks. Of one that was partly overwritten since, about half is left: else too few of its
# snippets are found. The end of one that is held is known to a third of it.
_FREED = 0.4
_MOVED_LEAST = 8 << 20
_UNSEEN_LEAST = 1 << 20


class PhaseAccount(Struct, frozen=True):
    """The account of a look: the phase as it is kept, the copies held in it, and how many of each tensor by layout."""

    phase: PhaseLook
    held: tuple[Copy, ...]
    copies: dict[int, dict[str, int]]


def unlooked(current: ProcessSnapshot) -> ProcessSnapshot:
    """The look before that was not taken: no page of `current` was there then."""
    return current._replace(pages=Pages(np.zeros(0, np.uint64), np.zeros(0, np.int32), np.zeros(0, bool)))


class _Left:
    """The bytes that are left of each page after the slices taken so far."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._left = np.full(len(pages.address), PAGE, np.int64)

    def take(self, area: Ranges) -> int:
        """Take the remainder of these ranges; the bytes taken."""
        begin = self._pages.address
        covered = area.covered(begin, begin + np.uint64(PAGE)).astype(np.int64)
        amount = np.minimum(covered, self._left)
        self._left -= amount
        return int(amount.sum())

    def take_pages(self, which: NDArray[np.bool_]) -> int:
        """Take the remainder of these pages; the bytes taken."""
        amount = int(self._left[which].sum())
        self._left[which] = 0
        return amount

    @property
    def bytes(self) -> int:
        """The bytes that are left of all pages."""
        return int(self._left.sum())


def account(
    current: ProcessSnapshot,
    base: ProcessSnapshot | None,
    index: Index | None,
    model_files: Collection[tuple[int, int]],
    tiny: Small | None = None,
    mapped: bool = False,
) -> PhaseAccount:
    """The slices of a look's resident set, and the copies of weights in it.

    base: the look at the end of STARTUP, None if `current` is that look, `unlooked` if there was none. mapped: anonymous and shared memory that is no
    allocator's has a slice of its own. model_files: device and inode of the model's own files. tiny: the weights
    that were looked for whole.
    """
    kinds = [kind_of(mapping, model_files) for mapping in current.mappings]
    pages, left = current.pages, _Left(current.pages)
    page_kinds = (
        np.array([_KINDS.index(kind) for kind in kinds] or [0], np.int8)[pages.mapping] if len(pages.address) else np.zeros(0, np.int8)
    )
    all_copies = copies.resolve(index, current.hits, pages, current.mappings) if index is not None and current.hits is not None else []
    held = [copy for copy in all_copies if not _is_freed(copy, current.heap.free)]
    freed = ranges([(copy.start, copy.end) for copy in all_copies if _is_freed(copy, current.heap.free)])
    owned = _by_worth(held, kinds, index.weights if index is not None else ())
    size: dict[str, int] = {}
    size[STACKS] = left.take_pages(_stacks(current))
    size[KEPT] = left.take(current.heap.free)
    in_file = (page_kinds == _KINDS.index(IN_FILE)) & pages.filed
    size[MODEL_FILE] = left.take_pages(in_file)
    due, again = _due_and_again(current.whole, tiny)
    for name, wholes in ((ONCE, due), (REPACKED, ()), (AGAIN, again)):
        size[name] = left.take(ranges([(copy.start, copy.end) for copy in owned[name]] + [(whole.start, whole.end) for whole in wholes]))
    library = page_kinds == _KINDS.index(IN_LIBRARY)
    size[LIBRARIES] = left.take_pages(library)
    anonymous = (page_kinds == _KINDS.index(ANONYMOUS)) | ~pages.filed
    before = np.ones(len(pages.address), bool) if base is None else np.isin(pages.address, base.pages.address[~base.pages.filed])
    size[LIBRARIES] += left.take_pages(anonymous & before)
    size[IN_USE] = left.take(current.heap.used) + left.take(current.heap.mapped)
    size[FILES] = left.take_pages((page_kinds == _KINDS.index(IN_OTHER_FILE)) | (page_kinds == _KINDS.index(IN_FILE)))
    size[MAPPED] = left.take_pages(anonymous | (page_kinds == _KINDS.index(SHARED))) if mapped else 0
    rss = sum(mapping.rss for mapping in current.mappings)
    size[REST] = left.bytes + (rss - len(pages.address) * PAGE)
    beyond, droppable = _beyond_one(held, kinds, index)
    unplaced = _unplaced(held, index) if index is not None and current.hits is not None else None
    phase = PhaseLook(
        name=current.phase,
        rss_bytes=rss,
        slices=tuple(Slice(name, size[name], _how(name, current, base, tiny)) for name in SLICES if size[name] or name == REST),
        held=tuple(_kinds_of_copies(all_copies, current.heap.free, kinds)),
        beyond_one_bytes=beyond if current.hits is not None else None,
        droppable_bytes=droppable,
        huge_bytes=sum(mapping.huge for mapping in current.mappings),
        huge_empty_bytes=current.empty_huge_bytes,
        swap_bytes=sum(mapping.swap for mapping in current.mappings),
        # A part of a copy that was freed may be in use again.
        kept_weight_bytes=_resident(pages, common(freed, current.heap.free)),
        arenas=current.heap.arenas,
        arenas_kept_bytes=_resident(pages, current.heap.arenas_free),
        moved_files=_moved(current.mappings, kinds),
        unplaced_bytes=sum(tensor.bytes for tensor in unplaced) if unplaced is not None else None,
        unplaced_tensors=len(unplaced or ()),
    )
    return PhaseAccount(phase, tuple(held), _by_tensor(held))


_KINDS = (IN_FILE, IN_LIBRARY, IN_OTHER_FILE, ANONYMOUS, SHARED)


def kind_of(mapping: Mapping, model_files: Collection[tuple[int, int]]) -> str:
    """The kind of memory behind a mapping."""
    if not mapping.is_file:
        return SHARED if mapping.is_shared else ANONYMOUS
    major, minor = (int(part, 16) for part in mapping.device.split(":"))
    if (os.makedev(major, minor), mapping.inode) in model_files:
        return IN_LIBRARY if _is_library(mapping.path) else IN_FILE
    return IN_LIBRARY if _is_library(mapping.path) or "x" in mapping.perms or not _is_data(mapping) else IN_OTHER_FILE


def _is_library(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith(".so") or ".so." in name


def _is_data(mapping: Mapping) -> bool:
    """Whether the program itself works on this file: it is written to, or lies outside the system's folders."""
    return (mapping.is_shared and "w" in mapping.perms) or not mapping.path.startswith(("/usr/", "/lib", "/bin/", "/opt/"))


def _stacks(current: ProcessSnapshot) -> NDArray[np.bool_]:
    starts = [mapping.start for mapping in current.mappings]
    owners = {int(np.searchsorted(starts, pointer, side="right")) - 1 for pointer in current.stack_pointers}
    # A thread's stack is a separate mapping between guard pages. A stack that has grown together with other memory is left to the other rules.
    unnamed = {
        owner
        for owner in owners
        if owner >= 0 and not current.mappings[owner].path and current.mappings[owner].end - starts[owner] <= 64 << 20
    }
    named = {number for number, mapping in enumerate(current.mappings) if mapping.path == "[stack]"}
    return np.isin(current.pages.mapping, list(unnamed | named))


def _is_freed(copy: Copy, free: Ranges) -> bool:
    start, end = np.array([copy.start], np.uint64), np.array([copy.end], np.uint64)
    return int(free.covered(start, end)[0]) > _FREED * (copy.end - copy.start)


def _by_worth(held: Sequence[Copy], kinds: Sequence[str], weights: Sequence[snippets.TensorQuery]) -> dict[str, list[Copy]]:
    """Copies outside the model's file, by slice: those that are due, more of the same, and repacked ones. The largest are due, as in
    `_beyond_one`."""
    owned: dict[str, list[Copy]] = {ONCE: [], AGAIN: [], REPACKED: []}
    due = defaultdict(int, {number: weight.instances for number, weight in enumerate(weights)})
    for copy in sorted(held, key=lambda copy: (kinds[copy.mapping] != ANONYMOUS, -copy.bytes, copy.start)):
        if kinds[copy.mapping] == IN_FILE:
            continue
        if not copy.stored:
            owned[REPACKED].append(copy)
        elif due[copy.weight] > 0:
            due[copy.weight] -= 1
            owned[ONCE].append(copy)
        else:
            owned[AGAIN].append(copy)
    return owned


def _due_and_again(wholes: Sequence[Whole], tiny: Small | None) -> tuple[list[Whole], list[Whole]]:
    """Small weights in memory: those that are due, and more of the same."""
    left = dict(enumerate(tiny.instances)) if tiny is not None else {}
    due: list[Whole] = []
    again: list[Whole] = []
    for whole in wholes:
        (due if left[whole.tensor] > 0 else again).append(whole)
        left[whole.tensor] -= 1
    return due, again


def _beyond_one(held: Sequence[Copy], kinds: Sequence[str], index: Index | None) -> tuple[int, int]:
    """Resident bytes of all copies beyond those that are due, and how many of these bytes are a file's clean pages.

    The copies that are due are the largest outside files, so that a file's pages count as bytes that could be dropped.
    """
    if index is None:
        return 0, 0
    beyond = droppable = 0
    by_tensor: dict[int, list[Copy]] = defaultdict(list)
    for copy in held:
        by_tensor[copy.weight].append(copy)
    for number, tensor_copies in by_tensor.items():
        filed = (IN_FILE, IN_LIBRARY, IN_OTHER_FILE)
        tensor_copies.sort(key=lambda copy: (kinds[copy.mapping] in filed, -copy.bytes))
        for copy in tensor_copies[index.weights[number].instances :]:
            beyond += copy.bytes
            droppable += copy.bytes if kinds[copy.mapping] in filed else 0
    return beyond, droppable


def _unplaced(held: Sequence[Copy], index: Index) -> list[StoredTensor]:
    """The counted tensors of which there is no copy: not yet read, or held in values that are no order of the stored ones."""
    placed = {copy.weight for copy in held}
    return [weight.tensor for number, weight in enumerate(index.weights) if not weight.why_not and number not in placed]


def _kinds_of_copies(copies: Sequence[Copy], free: Ranges, kinds: Sequence[str]) -> list[Held]:
    grouped: dict[tuple[str, str, str, bool], list[Copy]] = defaultdict(list)
    for copy in copies:
        grouped[copy.layout, copy.converted, kinds[copy.mapping], _is_freed(copy, free)].append(copy)
    held = [
        Held(layout, converted, where, len({copy.weight for copy in alike}), len(alike), sum(copy.bytes for copy in alike), freed)
        for (layout, converted, where, freed), alike in grouped.items()
    ]
    return sorted(held, key=lambda kind: (kind.freed, -kind.bytes))


def _by_tensor(held: Sequence[Copy]) -> dict[int, dict[str, int]]:
    by_tensor: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for copy in held:
        by_tensor[copy.weight][f"{copy.layout}, {copy.converted}" if copy.converted else copy.layout] += 1
    return {number: dict(layouts) for number, layouts in by_tensor.items()}


def _resident(pages: Pages, area: Ranges) -> int:
    return int(area.covered(pages.address, pages.address + np.uint64(PAGE)).sum()) if len(pages.address) else 0


def _moved(mappings: Sequence[Mapping], kinds: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Files that are written through shared mappings: anonymous memory under another name."""
    sizes: dict[str, int] = defaultdict(int)
    for mapping, kind in zip(mappings, kinds, strict=True):
        if mapping.is_file and mapping.is_shared and "w" in mapping.perms and kind == IN_OTHER_FILE:
            sizes[mapping.path] += mapping.rss
    return tuple((path, size) for path, size in sizes.items() if size >= _MOVED_LEAST)


def _how(name: str, current: ProcessSnapshot, base: ProcessSnapshot | None, tiny: Small | None) -> str:
    walked = "glibc's blocks, walked one by one" + ("" if current.heap.complete else " (the main arena's chain could not be followed)")
    before = "this is the baseline" if base is None else "the pages that were there at the end of STARTUP"
    in_use = "blocks in use in which no weights were found and that were not there at the end of STARTUP"
    if base is not None and not len(base.pages.address):
        before, in_use = "none, for nothing was looked at before", "blocks in use in which no weights were found"
    return {
        STACKS: "mappings that hold a thread's stack pointer",
        LIBRARIES: f"mapped libraries, from smaps; anonymous memory: {before}",
        MODEL_FILE: "present pages of the model's own files, from smaps and pagemap: clean, the kernel can drop them and read them again",
        ONCE: "found by content outside the model's file: the first copy of each tensor as stored",
        AGAIN: "found by content: further copies as stored",
        REPACKED: "found by content: copies in another order or type",
        IN_USE: f"{in_use}, such as activations, arenas, and copies of weights that are being made: {walked}{_unseen(tiny)}",
        KEPT: f"resident pages of blocks that were freed, and the top of each arena: {walked}",
        FILES: "other mapped files, from smaps",
        MAPPED: "anonymous and shared memory in no block of glibc's allocator: the program's own mappings, or another allocator's",
        REST: "all that no rule takes: small mappings of the interpreter and the runtime, shared memory",
    }[name]


def _unseen(tiny: Small | None) -> str:
    size = tiny.unseen_bytes if tiny is not None else 0
    return f"; up to {format_bytes(size)} of weights that look like other memory may be among them" if size >= _UNSEEN_LEAST else ""


def counted(index: Index) -> tuple[int, int, dict[str, int]]:
    """(bytes, tensors) of the weights whose copies are counted, and the bytes of all others, by the reason."""
    size, count = 0, 0
    not_counted: dict[str, int] = defaultdict(int)
    for weight in index.weights:
        if weight.why_not:
            not_counted[weight.why_not] += weight.tensor.bytes
        else:
            size += weight.tensor.bytes * weight.instances
            count += weight.instances
    return size, count, dict(not_counted)
