"""Why a process grew: two looks at the same child, after its warm-up and at its end, and the difference of each slice between them.

`between` is a function of the two looks alone. `why` measures: the child stops at the end of two phases, and is looked at both times.
`why_program` does the same with any program that counts its units of work: it is stopped from outside, soon after so many of them. `lines`
asks a Python child which lines of its code hold more Python objects than before; tracemalloc, which tells, needs memory itself, so that run is a
run for itself.

glibc's malloc gives memory back from the top of a heap alone. So a small block that lives near the top keeps everything free below it: `Pinned`
says how much, and how little it is that pins. malloc_trim(0) gives back whole free pages wherever they lie (glibc 2.8 and later).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import MeasurementError
from ..base.leftovers import scratch
from ..base.mappings import Mapping
from ..base.units import counted, format_bytes
from ..campaign import campaign
from ..campaign.progress import Progress, Quiet
from ..records.python_lines import GrowthLine, read_lines
from ..records.types import EXECUTE, WARMUP, Job
from ..subjects.order import Order
from . import remote, waterfall
from .engine import must_be_ok, weights
from .glibc import GlibcHeap, Ranges
from .memory_map import PAGE, Addresses
from .records import AGAIN, FILES, IN_USE, KEPT, LIBRARIES, MODEL_FILE, ONCE, REPACKED, REST, STACKS
from .snapshot import ProcessSnapshot
from .snippets import Index
from .whole_weights import Small

# The slices of explain under the names of a growth: memory from before the model is no slice of its own here, it is in use or kept like any other.
NAMES = {
    IN_USE: "in use by the program",
    KEPT: "freed, kept by the allocator",
    AGAIN: "weights again",
    REPACKED: "repacked weights",
    ONCE: "weights",
    STACKS: "threads' stacks",
    MODEL_FILE: "the model file's pages",
    LIBRARIES: "libraries",
    FILES: "other mapped files",
    REST: "other mappings",
}
_MOST_MAPPINGS = 8
_ANONYMOUS = "anonymous"
_UNKNOWN = "in use, kept by the allocator, or other mappings"
_PYTHON = re.compile(r"(?:lib)?python[\d.]*(?:\.so.*)?$")  # the interpreter or its library
_NEARLY_ALL = 0.9  # of what is free in a heap


class GrowthPart(Struct, frozen=True):
    """A part of the resident set at the first and at the last look, in bytes."""

    name: str
    before: int
    after: int

    @property
    def grown_bytes(self) -> int:
        """By how much it grew; below 0 if it shrank."""
        return self.after - self.before


class Pinned(Struct, frozen=True):
    """The memory that glibc's allocator keeps at the last look, resident bytes, and what keeps it.

    kept_bytes: freed blocks and the tops of heaps. whole_bytes: the part of it in pages with no block in use: malloc_trim gives it back. pages:
    how many other pages have free bytes; live_bytes: the blocks in use in them. Were these gone, all of those pages could be given back.
    top_bytes: if the blocks in use nearest to the end of the main heap were gone, top_live_bytes in all, so much of what is free lay at its
    top, where free() itself gives it back: nearly all of it.
    """

    kept_bytes: int
    whole_bytes: int
    pages: int
    live_bytes: int
    top_bytes: int
    top_live_bytes: int

    @property
    def given_back_bytes(self) -> int:
        """How much could be given back were the blocks gone that share a page with freed memory."""
        return self.whole_bytes + self.pages * PAGE


class GrowthParts(Struct, frozen=True):
    """Two looks at a process and the difference between them, in bytes.

    first, last: the phases at whose ends they were taken; if inside is true, the moments between which they lie, in words. parts: the slices,
    those that grew most first; their sum is the resident set. arenas: how many arenas beside the main arena have memory, threads how many stacks
    were seen. mappings: mapped files, shared memory and other anonymous mappings that grew, by name. swap: bytes swapped out. complete: whether
    glibc's chunks could be followed both times; else what is the allocator's is one part with the other mappings. python: whether it is a program
    of Python, whose objects are in mappings of Python's own.
    """

    first: str
    last: str
    rss_bytes: tuple[int, int]
    parts: tuple[GrowthPart, ...]
    arenas: tuple[int, int]
    threads: tuple[int, int]
    swap_bytes: tuple[int, int]
    pinned: Pinned
    mappings: tuple[tuple[str, int], ...] = ()
    complete: bool = True
    python: bool = False
    remarks: tuple[str, ...] = ()
    inside: bool = False

    @property
    def grown_bytes(self) -> int:
        """By how much the resident set and the swapped-out pages grew."""
        return sum(last - first for first, last in (self.rss_bytes, self.swap_bytes))

    @property
    def cause(self) -> str | None:
        """The part that grew most, None if nothing did."""
        return self.parts[0].name if self.parts and self.parts[0].grown_bytes > 0 else None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The growth, its parts and what pins memory, for people."""
        return tuple(_sentences(self))


def _sentences(grown: GrowthParts) -> Iterator[str]:
    where = (
        f"from {grown.first} to {grown.last} of one more process" if grown.inside else f"between the ends of {grown.first} and {grown.last}"
    )
    if grown.cause is None:
        yield f"RSS did not grow {where}"
        return
    rising = [f"{format_bytes(part.grown_bytes)} {part.name}" for part in grown.parts if part.grown_bytes >= PAGE]
    falling = [f"{format_bytes(-part.grown_bytes)} less {part.name}" for part in reversed(grown.parts) if part.grown_bytes <= -PAGE]
    yield f"RSS grew by {format_bytes(grown.rss_bytes[1] - grown.rss_bytes[0])} {where}: {', '.join([*rising, *falling])}"
    if grown.swap_bytes[1] != grown.swap_bytes[0]:
        yield f"swapped out: {format_bytes(grown.swap_bytes[0])}, then {format_bytes(grown.swap_bytes[1])}, which RSS lacks"
    if grown.cause == NAMES[KEPT]:
        yield from _pinning(grown.pinned)
    for word, (first, last) in (("arena", grown.arenas), ("thread", grown.threads)):
        if last > first:
            yield f"{counted(last - first, word)} more ({first}, then {last})"
    if grown.cause in (NAMES[REST], NAMES[FILES], NAMES[MODEL_FILE], NAMES[LIBRARIES]) and grown.mappings:
        yield "mappings that grew: " + ", ".join(f"{name} {format_bytes(size)}" for name, size in grown.mappings)
    if grown.cause == NAMES[REST] and grown.python and any(name == _ANONYMOUS for name, _ in grown.mappings):
        yield "Python keeps its objects in anonymous mappings of its own, so the growth may be objects in use"
    if not grown.complete:
        yield "the allocator's blocks could not be followed, so its memory and other mappings are one part"


def _pinning(pinned: Pinned) -> Iterator[str]:
    if pinned.whole_bytes:
        yield f"malloc_trim(0) would give back {format_bytes(pinned.whole_bytes)} of the {format_bytes(pinned.kept_bytes)} that are kept"
    if 0 < pinned.top_live_bytes < pinned.top_bytes:
        yield (
            f"{format_bytes(pinned.top_live_bytes)} of blocks in use near the heap's end keep {format_bytes(pinned.top_bytes)}"
            " from being given back when it is freed"
        )
    if pinned.pages:
        yield (
            f"{format_bytes(pinned.live_bytes)} of blocks in use lie in {counted(pinned.pages, 'page')} with freed memory:"
            f" were they gone, {format_bytes(pinned.given_back_bytes)} could be given back in all"
        )


# -- two looks


def between(
    first: ProcessSnapshot,
    last: ProcessSnapshot,
    index: Index | None = None,
    files: Collection[tuple[int, int]] = (),
    tiny: Small | None = None,
) -> GrowthParts:
    """What grew between two looks at the same process.

    index, tiny: the weights that both looks looked for, None for none. files: device and inode of the model's own files.
    """
    # No page counts as the baseline's: a page that was free at first and is in use now did not become a library's.
    phases = [waterfall.account(look, waterfall.unlooked(first), index, files, tiny).phase for look in (first, last)]
    parts = [GrowthPart(NAMES[name], phases[0].size(name), phases[1].size(name)) for name in NAMES]
    complete = first.heap.complete and last.heap.complete
    if not complete:  # the blocks of one look may be the other mappings of the other
        apart = {NAMES[name] for name in (IN_USE, KEPT, REST)}
        together = [part for part in parts if part.name in apart]
        whole = GrowthPart(_UNKNOWN, sum(part.before for part in together), sum(part.after for part in together))
        parts = [whole, *(part for part in parts if part.name not in apart)]
    return GrowthParts(
        first=first.phase,
        last=last.phase,
        rss_bytes=(phases[0].rss_bytes, phases[1].rss_bytes),
        parts=tuple(sorted((part for part in parts if part.before or part.after), key=lambda part: -part.grown_bytes)),
        arenas=(first.heap.arenas, last.heap.arenas),
        threads=(len(first.stack_pointers), len(last.stack_pointers)),
        swap_bytes=(phases[0].swap_bytes, phases[1].swap_bytes),
        pinned=pinned(last),
        mappings=_risen(first, last),
        complete=complete,
        python=any(_PYTHON.match(os.path.basename(mapping.path)) for mapping in last.mappings if mapping.is_file),
    )


def pinned(look: ProcessSnapshot) -> Pinned:
    """What keeps the freed memory of a look."""
    begins = look.pages.address
    ends = begins + np.uint64(PAGE)
    free, used = look.heap.free.covered(begins, ends), look.heap.used.covered(begins, ends)
    whole = free == PAGE
    shared = (free > 0) & ~whole
    top, top_live = _at_the_top(look)
    return Pinned(
        kept_bytes=int(free.sum()),
        whole_bytes=int(whole.sum()) * PAGE,
        pages=int(shared.sum()),
        live_bytes=int(used[shared].sum()),
        top_bytes=top,
        top_live_bytes=top_live,
    )


def _at_the_top(look: ProcessSnapshot) -> tuple[int, int]:
    """(free resident bytes, bytes in use) at the end of the main heap, as far down as nearly all of its free bytes reach."""
    parts = [mapping for mapping in look.mappings if mapping.path == "[heap]"]
    if not parts:
        return 0, 0
    free = _resident(look, _inside(look.heap.free, parts[0].start, parts[-1].end))
    used = _inside(look.heap.used, parts[0].start, parts[-1].end)
    if not len(used.starts) or not free[2].sum():
        return 0, 0
    free_sizes, free_starts = free[2][::-1], free[0][::-1]
    reach = int(np.searchsorted(np.cumsum(free_sizes), _NEARLY_ALL * free_sizes.sum()))
    lowest = free_starts[min(reach, len(free_starts) - 1)]
    return int(free_sizes[: reach + 1].sum()), int((used.ends - used.starts)[used.starts >= lowest].sum())


def _inside(area: Ranges, start: int, end: int) -> Ranges:
    chosen = (area.starts >= start) & (area.ends <= end)
    return Ranges(area.starts[chosen], area.ends[chosen])


def _resident(look: ProcessSnapshot, area: Ranges) -> tuple[Addresses, Addresses, Addresses]:
    """(starts, ends, resident bytes) of each range."""
    starts, ends = look.pages.ranges()
    return area.starts, area.ends, Ranges(starts, ends).covered(area.starts, area.ends)


def _risen(first: ProcessSnapshot, last: ProcessSnapshot) -> tuple[tuple[str, int], ...]:
    sizes: dict[str, int] = defaultdict(int)
    for look, sign in ((first, -1), (last, 1)):
        walked = look.heap
        for mapping in look.mappings:
            if mapping.path != "[heap]" and not _allocated(mapping, walked):
                sizes[mapping.path or _ANONYMOUS] += sign * mapping.rss
    risen = sorted(((name, size) for name, size in sizes.items() if size >= PAGE), key=lambda pair: -pair[1])
    return tuple(risen[:_MOST_MAPPINGS])


def _allocated(mapping: Mapping, heap: GlibcHeap) -> bool:
    """Whether most of an anonymous mapping is glibc's: blocks with separate mappings, and heaps of other arenas."""
    if mapping.path or not mapping.rss:
        return False
    start, end = np.array([mapping.start], np.uint64), np.array([mapping.end], np.uint64)
    inside = sum(int(area.covered(start, end)[0]) for area in (heap.used, heap.free, heap.mapped))
    return 2 * inside > mapping.end - mapping.start


# -- measured


def why(order: Order, progress: Progress, last: str = EXECUTE) -> GrowthParts:
    """Measure an order of a runtime held, and say what grew between the end of its warm-up and that of its last phase.

    The order's own numbers of iterations decide how long it warms up and how long it may grow. Raises MeasurementError where the run fails or does
    not stand still, ProcessEndError and Unreadable as looking does, and what campaign.measure raises.
    """
    job = order.job
    remarks: list[str] = []
    index, tiny = weights(order, remarks, progress)
    looker = remote.looker(order, index, tiny)
    looks: dict[str, ProcessSnapshot] = {}

    def look(held: Job, phase: str, pid: int) -> None:
        if phase in (WARMUP, last):
            progress.say(f"{held.model.name}: looking at the end of {phase}")
            looks[phase] = looker.take(pid, phase, weights=True)

    (run,) = campaign.measure([replace(order, job=replace(job, hold=True, release=False))], Quiet(progress), lambda line: None, look)
    must_be_ok(run)
    missing = [phase for phase in (WARMUP, last) if phase not in looks]
    if missing:
        raise MeasurementError(
            f"{job.model.name}, {job.variant}: it did not stand still at the end of {' and '.join(missing)}, so nothing is known of its growth"
        )
    grown = replace(between(looks[WARMUP], looks[last], index, looker.model_files(run.job), tiny), remarks=(*remarks, *run.warnings))
    if not job.warmup:  # an empty warm-up, of work that is repeated
        unit = "reload" if job.use is not None and job.use.cycles else "iteration"
        return replace(grown, first=f"the begin of the first {unit}", last=f"the end of {last}", inside=True)
    return grown


class _Seen(Exception):
    """Both looks were taken: what the program would still do is of no use."""


def why_program(order: Order, phase: str, units: tuple[int, int], called: str, progress: Progress) -> GrowthParts:
    """Measure the order of a command, and say what grew between two amounts of its work.

    phase: the phase whose units count. units: after how many of them it is stopped; it may do a few more until it stands still. called: what one
    is. The program is ended after the second look. Raises MeasurementError where it ends before, and as `why` does.
    """
    job = order.job
    remarks: list[str] = []
    index, tiny = weights(order, remarks, progress) if job.model.files else (None, None)
    looker = remote.looker(order, index, tiny)
    looks: list[ProcessSnapshot] = []

    def look(held: Job, name: str, pid: int) -> None:
        done = f"{called} {int(name.rpartition('/')[2]):,}"
        progress.say(f"{held.variant}: looking at it after {done}")
        looks.append(looker.take(pid, done, weights=True))
        if len(looks) == len(units):
            raise _Seen

    held = replace(order, job=replace(job, hold=True), hold_units={phase: units})
    try:
        (run,) = campaign.measure([held], Quiet(progress), lambda line: None, look)
    except _Seen:
        grown = between(looks[0], looks[1], index, looker.model_files(job), tiny)
        return replace(grown, inside=True, remarks=tuple(remarks))
    must_be_ok(run)
    wanted = " and ".join(f"{count:,}" for count in units[len(looks) :])
    raise MeasurementError(f"{job.variant}: it ended before it stood still after {wanted} {called}s, so nothing is known of its growth")


def lines(order: Order, progress: Progress, most: int = 10) -> tuple[GrowthLine, ...]:
    """The lines of Python code whose objects grew most between the ends of WARMUP and EXECUTE, by tracemalloc: of an order of a runtime that has an
    interpreter. Raises as `why` does."""
    with scratch("growth") as work:
        path = work.folder / "lines.json"
        traced = replace(order, traced=str(path), job=replace(order.job, release=False))
        (run,) = campaign.measure([traced], Quiet(progress), lambda line: None)
        must_be_ok(run)
        return read_lines(path)[:most]
