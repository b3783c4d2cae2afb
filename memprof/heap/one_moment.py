"""Profiles of one moment: the stacks that a program's own allocator sampled, as the files of pprof, tcmalloc, jemalloc and Go hold them.

Such a file has one or several values of each stack, named as pprof names them: `inuse_space` and `space` are what is held when the file is
written, `alloc_space` is what was allocated until then, freed or not. One of them is the profile's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from ..base.errors import InputError, UsageError, near_or_all
from ..base.units import format_bytes
from .frames import BELOW, Frame, FrameTable
from .profile import HeapProfile, Snapshot
from .trees import SMALLEST, CallTree, Trie
from .unnamed import offset_name

IN_USE, ALLOCATED = "inuse_space", "alloc_space"
MOST_ENTRIES = 20_000_000
_MOST_BYTES = 1 << 62
DEEPEST = 1 << 16  # frames of a stack
_MOST_STACKS = 2_000_000
_MOST_FRAMES = 50_000_000  # of all stacks together
_MOST_NODES = 10_000_000


class StackSums:
    """Bytes by stack, of at most as many stacks as any program has: the file may be hostile."""

    def __init__(self, path: str) -> None:
        self._path, self._frames = path, 0
        self.sums: dict[tuple[int, ...], float] = {}

    def add(self, stack: tuple[int, ...], size: float) -> None:
        """Add bytes to those of a stack. Raises InputError for more stacks or deeper ones than there can be."""
        if stack not in self.sums:
            self._frames += len(stack)
            if len(self.sums) >= _MOST_STACKS or self._frames > _MOST_FRAMES or len(stack) > DEEPEST:
                raise InputError(f"{self._path} is damaged: it has more stacks, or deeper ones, than any program")
        self.sums[stack] = self.sums.get(stack, 0) + size


def selected(path: str, values: Sequence[str], wanted: str | None, default: str) -> str:
    """The value that a view is of: the wanted one, or the default. Raises UsageError for one that the file does not have."""
    if wanted is None:
        return default
    if wanted not in values:
        raise UsageError(f"{path} has no value {wanted!r}{near_or_all(wanted, values)}")
    return wanted


def total_words(value: str) -> str:
    """What the sum of a value is, in words that follow its bytes."""
    if value.startswith("alloc"):
        return f"allocated until the profile was written, freed or not ({value})"
    if value.startswith("inuse") or value == "space":
        return f"in use when the profile was written ({value})"
    return f"of {value} when the profile was written"


def counts(tool: str, period: int) -> str:
    """The sentence on what such a profile counts. period: bytes from one sampled block to the next, on average; 1 for every block, 0 if not known."""
    if period == 1:
        how = "every block that its allocator handed out"
    elif period > 1:
        how = (
            f"blocks sampled about every {format_bytes(period)}, scaled to all blocks, so that small and rare sites are estimates or absent"
        )
    else:
        how = "the blocks that its writer sampled, scaled to all blocks by the writer"
    return f"{tool} counts {how}, at the requested size. It does not count memory mapped directly, or freed blocks that the allocator keeps"


def scaled(blocks: int, size: int, period: int) -> float:
    """The bytes that a stack's samples stand for.

    A block of X bytes is sampled with the probability 1 - exp(-X / period). This is how jeprof (AdjustSamples) and google/pprof
    (scaleHeapSample in profile/legacy_profile.go) scale, with the stack's mean size for X.
    """
    if period <= 1 or blocks <= 0 or size <= 0:
        return size
    ratio = size / blocks / period
    return size / -math.expm1(-ratio) if ratio > 1e-12 else size / ratio


def offset_frame(address: int, mapping: tuple[int, int, str] | None) -> Frame:
    """The frame of an address without a symbol, as `module+offset`. mapping: where its file is mapped, the offset there, and its path."""
    if mapping is None:
        return Frame(f"{address:#x}", address=address)
    start, offset, path = mapping
    return Frame(offset_name(path, address - start + offset), module=path, address=address, kind="unknown")


def tree_of(path: str, stacks: Collection[tuple[Sequence[int], float]]) -> CallTree:
    """The tree of stacks with their bytes, sites first. Of the many stacks that hold next to nothing only the site is kept, before frame 1. path: of
    the file. Raises InputError for sums beyond what memory can be."""
    total = sum(size for _, size in stacks)
    check_total(path, total)
    trie = Trie(0)
    for stack, size in stacks:
        trie.add(stack if size >= total / SMALLEST or len(stack) < 2 else (stack[0], 1), round(size))
        if len(trie) > _MOST_NODES:
            raise InputError(f"{path} is damaged: no program's stacks are so deep")
    return trie.tree()


def check_total(path: str, total: float) -> None:
    """Raises InputError for more bytes than memory can be."""
    if total > _MOST_BYTES:
        raise InputError(f"{path} is damaged: its blocks sum up to {total:.3g} bytes, more than any memory")


def profile(
    tool: str,
    path: str,
    frames: FrameTable,
    stacks: Mapping[tuple[int, ...], float],
    *,
    command: str = "",
    period: int = 0,
    value: str,
    values: Sequence[str],
    written_ns: int | None = None,
    partial: str | None = None,
) -> HeapProfile:
    """The profile of these stacks. frames: begin with `new_frames`. stacks: see `tree_of`. Raises InputError as that does."""
    tree = tree_of(path, stacks.items())
    snapshot = Snapshot(0, 0, tree.bytes[0], tree=tree)
    return HeapProfile(
        tool,
        command,
        "",
        "ms",
        counts(tool, period),
        (snapshot,),
        tuple(frames.frames),
        path,
        started_ns=written_ns,
        partial=partial,
        total=total_words(value),
        value=value,
        values=tuple(values),
    )


def new_frames() -> FrameTable:
    """A table of frames that begins with the root and with the sum of small places."""
    return FrameTable(Frame("allocated", kind="root"), BELOW)
