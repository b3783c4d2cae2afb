"""One look at a stopped process, and its sum: which slice of the resident set every page belongs to, byte by byte where a page is shared.

Slices are taken one after another from what is left of each page, so that they never overlap and their sum is the resident set: stacks, what
the allocator kept, the model file's own pages, copies of weights, libraries and what was there before the model, and what the program's blocks
hold. What no rule takes is "the rest".
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..units import format_bytes
from . import copies, glibc, look, scan, small, snippets
from .copies import Copy
from .glibc import Heap, Ranges, common, ranges
from .look import PAGE, Mapping, Pages
from .records import AGAIN, FILES, IN_USE, KEPT, LIBRARIES, MODEL_FILE, ONCE, REPACKED, REST, SLICES, STACKS, Held, Phase, Slice
from .scan import Hits
from .small import Small, Whole
from .snippets import Index

IN_FILE, IN_LIBRARY, IN_OTHER_FILE, ANONYMOUS, SHARED = (
    "the model's file",
    "a mapped library",
    "another mapped file",
    "private anonymous",
    "shared",
)
_FREED = 0.5  # a copy is freed where more than this share of it lies in free blocks
_MOVED_LEAST = 8 << 20
_UNSEEN_LEAST = 1 << 20


@dataclass(frozen=True)
class Look:
    """What was read of a process while it stood still. hits: None where weights were not looked for. whole: the small ones that were found."""

    phase: str
    mappings: tuple[Mapping, ...]
    pages: Pages
    heap: Heap
    stack_pointers: tuple[int, ...]
    hits: Hits | None
    empty_huge_bytes: int
    stood_still_ns: int
    whole: tuple[Whole, ...] = ()


@dataclass(frozen=True)
class Seen:
    """What a look came to: the phase as it is kept, and the copies held in it, with how many of each tensor by layout."""

    phase: Phase
    held: tuple[Copy, ...]
    copies: dict[int, dict[str, int]]


def take(pid: int, phase: str, wanted: Index | None, tiny: Small | None = None) -> Look:
    """Look at a process that stands still. wanted: the weights to look for, or None; tiny: those too small for that.

    Raises look.Gone or look.Unreadable.
    """
    begin_ns = time.monotonic_ns()
    mappings = look.mappings(pid)
    pages = look.present_pages(pid, mappings)
    blocks = glibc.walk(pid, mappings, pages)
    pointers = tuple(look.threads_stack_pointers(pid))
    hits = scan.scan(wanted, pid, pages) if wanted is not None else None
    whole = small.find(tiny, pid, pages) if tiny is not None else ()
    empty = _empty_huge_pages(pid, mappings, pages)
    return Look(phase, tuple(mappings), pages, blocks, pointers, hits, empty, time.monotonic_ns() - begin_ns, whole)


def _empty_huge_pages(pid: int, mappings: Sequence[Mapping], pages: Pages) -> int:
    """Bytes of pages that hold nothing but zeros, in mappings that transparent huge pages were given to."""
    having = [number for number, mapping in enumerate(mappings) if mapping.huge]
    if not having:
        return 0
    empty = 0
    for piece in look.Memory(pid).read(*pages.ranges(np.isin(pages.mapping, having))):
        whole = len(piece.data) // PAGE * PAGE
        empty += int(np.count_nonzero(~piece.data[:whole].reshape(-1, PAGE).any(axis=1))) * PAGE
    return min(empty, sum(mapping.huge for mapping in mappings))


class _Left:
    """What is left of each page after the slices taken so far."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._left = np.full(len(pages.address), PAGE, np.int64)

    def take(self, wanted: Ranges) -> int:
        """What these ranges have of what is left, which is then taken."""
        begin = self._pages.address
        covered = wanted.covered(begin, begin + np.uint64(PAGE)).astype(np.int64)
        amount = np.minimum(covered, self._left)
        self._left -= amount
        return int(amount.sum())

    def take_pages(self, which: NDArray[np.bool_]) -> int:
        """All that is left of these pages."""
        amount = int(self._left[which].sum())
        self._left[which] = 0
        return amount

    @property
    def bytes(self) -> int:
        """The sum of what is left."""
        return int(self._left.sum())


def account(
    seen: Look, base: Look | None, wanted: Index | None, model_files: Collection[tuple[int, int]], tiny: Small | None = None
) -> Seen:
    """What a look's resident set consists of.

    base: the look at the end of STARTUP, None for that one itself. model_files: device and inode of the model's own files. tiny: the weights
    that were looked for whole.
    """
    kinds = [kind_of(mapping, model_files) for mapping in seen.mappings]
    pages, left = seen.pages, _Left(seen.pages)
    kind = np.array([_KINDS.index(one) for one in kinds] or [0], np.int8)[pages.mapping] if len(pages.address) else np.zeros(0, np.int8)
    found = copies.resolve(wanted, seen.hits, pages, seen.mappings) if wanted is not None and seen.hits is not None else []
    held = [copy for copy in found if not _is_freed(copy, seen.heap.free)]
    freed = ranges([(copy.start, copy.end) for copy in found if _is_freed(copy, seen.heap.free)])
    owned = _by_worth(held, kinds, wanted.weights if wanted is not None else ())
    size: dict[str, int] = {}
    size[STACKS] = left.take_pages(_stacks(seen))
    size[KEPT] = left.take(seen.heap.free)
    in_file = (kind == _KINDS.index(IN_FILE)) & pages.filed
    size[MODEL_FILE] = left.take_pages(in_file)
    due, more = _small(seen.whole, tiny)
    for name, whole in ((ONCE, due), (REPACKED, ()), (AGAIN, more)):
        size[name] = left.take(ranges([(copy.start, copy.end) for copy in owned[name]] + [(one.start, one.end) for one in whole]))
    library = kind == _KINDS.index(IN_LIBRARY)
    size[LIBRARIES] = left.take_pages(library)
    anonymous = (kind == _KINDS.index(ANONYMOUS)) | ~pages.filed
    before = np.ones(len(pages.address), bool) if base is None else np.isin(pages.address, base.pages.address[_anonymous(base)])
    size[LIBRARIES] += left.take_pages(anonymous & before)
    size[IN_USE] = left.take(seen.heap.used) + left.take(seen.heap.mapped)
    size[FILES] = left.take_pages((kind == _KINDS.index(IN_OTHER_FILE)) | (kind == _KINDS.index(IN_FILE)))
    rss = sum(mapping.rss for mapping in seen.mappings)
    size[REST] = left.bytes + (rss - len(pages.address) * PAGE)
    beyond, droppable = _beyond_one(held, kinds, wanted)
    phase = Phase(
        name=seen.phase,
        rss_bytes=rss,
        slices=tuple(Slice(name, size[name], _how(name, seen, base, tiny)) for name in SLICES if size[name] or name == REST),
        held=tuple(_kinds_of_copies(found, seen.heap.free, kinds)),
        beyond_one_bytes=beyond if seen.hits is not None else None,
        droppable_bytes=droppable,
        huge_bytes=sum(mapping.huge for mapping in seen.mappings),
        huge_empty_bytes=seen.empty_huge_bytes,
        swap_bytes=sum(mapping.swap for mapping in seen.mappings),
        # A part of a copy that was freed may be in use again.
        kept_weight_bytes=_resident(pages, common(freed, seen.heap.free)),
        arenas=seen.heap.arenas,
        arenas_kept_bytes=_resident(pages, seen.heap.arenas_free),
        moved_files=_moved(seen.mappings, kinds),
        scan_bytes=seen.hits.bytes if seen.hits is not None else 0,
        scan_ns=seen.hits.time_ns if seen.hits is not None else 0,
        stood_still_ns=seen.stood_still_ns,
    )
    return Seen(phase, tuple(held), _by_tensor(held))


_KINDS = (IN_FILE, IN_LIBRARY, IN_OTHER_FILE, ANONYMOUS, SHARED)


def kind_of(mapping: Mapping, model_files: Collection[tuple[int, int]]) -> str:
    """What lies behind a mapping."""
    if mapping.is_shared_memory:
        return SHARED if mapping.is_shared else ANONYMOUS
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
    """Whether it is a file that the program itself works on: one that is written to, or large and no part of the system's own."""
    return (mapping.is_shared and "w" in mapping.perms) or not mapping.path.startswith(("/usr/", "/lib", "/bin/", "/opt/"))


def _anonymous(seen: Look) -> NDArray[np.bool_]:
    return ~seen.pages.filed


def _stacks(seen: Look) -> NDArray[np.bool_]:
    starts = [mapping.start for mapping in seen.mappings]
    owners = {int(np.searchsorted(starts, pointer, side="right")) - 1 for pointer in seen.stack_pointers}
    # A thread's stack is a mapping of its own between guard pages; one that has grown together with other memory is left to the other rules.
    small = {
        owner for owner in owners if owner >= 0 and not seen.mappings[owner].path and seen.mappings[owner].end - starts[owner] <= 64 << 20
    }
    named = {number for number, mapping in enumerate(seen.mappings) if mapping.path == "[stack]"}
    return np.isin(seen.pages.mapping, list(small | named))


def _is_freed(copy: Copy, free: Ranges) -> bool:
    start, end = np.array([copy.start], np.uint64), np.array([copy.end], np.uint64)
    return int(free.covered(start, end)[0]) > _FREED * (copy.end - copy.start)


def _by_worth(held: Sequence[Copy], kinds: Sequence[str], weights: Sequence[snippets.Sought]) -> dict[str, list[Copy]]:
    """Which copies are the one that is due (outside the model's file), which are more of the same, and which are repacked."""
    owned: dict[str, list[Copy]] = {ONCE: [], AGAIN: [], REPACKED: []}
    due = defaultdict(int, {number: weight.instances for number, weight in enumerate(weights)})
    for copy in sorted(held, key=lambda one: (kinds[one.mapping] != ANONYMOUS, one.start)):
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


def _small(whole: Sequence[Whole], tiny: Small | None) -> tuple[list[Whole], list[Whole]]:
    """Small weights that lie in memory: those that are due, and more of the same."""
    left = dict(enumerate(tiny.instances)) if tiny is not None else {}
    due: list[Whole] = []
    more: list[Whole] = []
    for one in whole:
        (due if left[one.tensor] > 0 else more).append(one)
        left[one.tensor] -= 1
    return due, more


def _beyond_one(held: Sequence[Copy], kinds: Sequence[str], wanted: Index | None) -> tuple[int, int]:
    """Resident bytes of all copies but one (of each time the model has them), and how many of those are a file's clean pages.

    The copy that is due is the largest outside files, so that what a file's pages hold counts as what could be dropped.
    """
    if wanted is None:
        return 0, 0
    beyond = droppable = 0
    per: dict[int, list[Copy]] = defaultdict(list)
    for copy in held:
        per[copy.weight].append(copy)
    for number, mine in per.items():
        filed = (IN_FILE, IN_LIBRARY, IN_OTHER_FILE)
        mine.sort(key=lambda copy: (kinds[copy.mapping] in filed, -copy.bytes))
        for copy in mine[wanted.weights[number].instances :]:
            beyond += copy.bytes
            droppable += copy.bytes if kinds[copy.mapping] in filed else 0
    return beyond, droppable


def _kinds_of_copies(found: Sequence[Copy], free: Ranges, kinds: Sequence[str]) -> list[Held]:
    grouped: dict[tuple[str, str, str, bool], list[Copy]] = defaultdict(list)
    for copy in found:
        grouped[copy.layout, copy.converted, kinds[copy.mapping], _is_freed(copy, free)].append(copy)
    made = [
        Held(layout, converted, where, len({copy.weight for copy in mine}), len(mine), sum(copy.bytes for copy in mine), freed)
        for (layout, converted, where, freed), mine in grouped.items()
    ]
    return sorted(made, key=lambda one: (one.freed, -one.bytes))


def _by_tensor(held: Sequence[Copy]) -> dict[int, dict[str, int]]:
    per: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for copy in held:
        per[copy.weight][f"{copy.layout}, {copy.converted}" if copy.converted else copy.layout] += 1
    return {number: dict(layouts) for number, layouts in per.items()}


def _resident(pages: Pages, wanted: Ranges) -> int:
    return int(wanted.covered(pages.address, pages.address + np.uint64(PAGE)).sum()) if len(pages.address) else 0


def _moved(mappings: Sequence[Mapping], kinds: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Files that are written through shared mappings: anonymous memory under another name."""
    sizes: dict[str, int] = defaultdict(int)
    for mapping, kind in zip(mappings, kinds, strict=True):
        if mapping.is_file and mapping.is_shared and "w" in mapping.perms and kind == IN_OTHER_FILE:
            sizes[mapping.path] += mapping.rss
    return tuple((path, size) for path, size in sizes.items() if size >= _MOVED_LEAST)


def _how(name: str, seen: Look, base: Look | None, tiny: Small | None) -> str:
    walked = "glibc's blocks, walked one by one" + ("" if seen.heap.complete else " (the main arena's chain could not be followed)")
    before = "this is the baseline" if base is None else "the pages that were there at the end of STARTUP"
    return {
        STACKS: "mappings that hold a thread's stack pointer",
        LIBRARIES: f"mapped libraries, from smaps; anonymous memory: {before}",
        MODEL_FILE: "present pages of the model's own files, from smaps and pagemap: clean, the kernel can drop them and read them again",
        ONCE: "found by content outside the model's file: the first copy of each tensor as stored",
        AGAIN: "found by content: further copies as stored",
        REPACKED: "found by content: copies in another order or type",
        IN_USE: f"blocks in use in which no weights were found and that were not there at the end of STARTUP: {walked}{_unseen(tiny)}",
        KEPT: f"resident pages of blocks that were freed, and the top of each arena: {walked}",
        FILES: "other mapped files, from smaps",
        REST: "what no rule takes: small mappings of the interpreter and the runtime, shared memory",
    }[name]


def _unseen(tiny: Small | None) -> str:
    size = tiny.unseen_bytes if tiny is not None else 0
    return f"; up to {format_bytes(size)} of weights that look like other memory may be among them" if size >= _UNSEEN_LEAST else ""


def counted(wanted: Index) -> tuple[int, int, dict[str, int]]:
    """(bytes, tensors) that copies are counted of, and the bytes of those that are not, by the reason."""
    size, count = 0, 0
    others: dict[str, int] = defaultdict(int)
    for weight in wanted.weights:
        if weight.why_not:
            others[weight.why_not] += weight.tensor.bytes
        else:
            size += weight.tensor.bytes * weight.instances
            count += weight.instances
    return size, count, dict(others)
