"""Made-up heap profiles, for what looks at them: stacks in, HeapProfiles and massif files out."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from memprof.heap.frames import Frame, FrameTable
from memprof.heap.profile import HeapProfile, PhaseSpan, Snapshot
from memprof.heap.shape import sums
from memprof.heap.trees import CallTree, Trie

MIB = 1 << 20
ROOT = Frame("(heap allocation functions) malloc/new/new[], --alloc-fns, etc.", kind="root")
LIB = "/opt/build-17/lib/libnet.so.1.2"
COUNTS = "massif counts what the program asks of malloc"

# Stacks, sites first, and their MiB: what a small runtime holds at its peak.
PEAK: Mapping[tuple[str, ...], float] = {
    ("net::Weights::read", "net::load", "main"): 60,
    ("net::pack", "net::prepare", "main"): 30,
    ("net::Arena::grow", "net::prepare", "main"): 8,
    ("log", "main"): 1.5,
    ("(below)",): 0.5,
}
BEFORE: Mapping[tuple[str, ...], float] = {("net::Weights::read", "net::load", "main"): 60, ("log", "main"): 1}


def frame(name: str, module: str | None = LIB, line: int | None = None) -> Frame:
    if name == "(below)":
        return Frame(name, kind="below", places=7)
    return Frame(name, file="net.cc" if line else None, line=line, module=None if line else module, address=0x400000 + hash(name) % 4096)


def tree(stacks: Mapping[tuple[str, ...], float], frames: list[Frame], scale: int = MIB, module: str | None = LIB) -> CallTree:
    trie = Trie(0)
    known = {site: number for number, site in enumerate(frames)}
    for stack, size in stacks.items():
        numbers = []
        for name in stack:
            site = frame(name, module)
            if site not in known:
                known[site] = len(frames)
                frames.append(site)
            numbers.append(known[site])
        trie.add(numbers, int(size * scale))
    return trie.tree()


def profile(
    *snapshots: tuple[float, Mapping[tuple[str, ...], float] | float],
    phases: Sequence[PhaseSpan] = (),
    extra: float = 0.0,
    module: str | None = LIB,
    **changes: object,
) -> HeapProfile:
    """Snapshots as (time, stacks in MiB) or, without a tree, (time, MiB)."""
    frames = [ROOT]
    made = []
    for index, (time, held) in enumerate(snapshots):
        phase = next((span.name for span in reversed(phases) if span.begin <= time), None)
        if isinstance(held, Mapping):
            made.append(tree(held, frames, module=module))
            size = made[-1].bytes[0]
        else:
            made.append(None)
            size = int(held * MIB)
        made[-1] = Snapshot(index, time, size, int(extra * MIB), 0, made[-1], phase)
    facts: dict[str, object] = {"path": "made.massif", "phases": tuple(phases)}
    usual = HeapProfile("massif", "/usr/bin/net model.bin", "", "ms", COUNTS, tuple(made), tuple(frames))
    return replace(usual, **{**facts, **changes})  # type: ignore[arg-type]


def usual(**changes: object) -> HeapProfile:
    """Load, a peak in PREPARE with a tree, and less in EXECUTE."""
    phases = (PhaseSpan("MODEL_LOAD", 0, 40), PhaseSpan("PREPARE", 40, 80), PhaseSpan("EXECUTE", 80, None))
    snapshots = ((0, 0.0), (10, 30.0), (30, BEFORE), (50, 80.0), (60, PEAK), (70, 100.0), (90, BEFORE), (100, 61.0))
    return profile(*snapshots, **{"phases": phases, **changes})  # type: ignore[arg-type]


def of_two_lines(first_bytes: int) -> HeapProfile:
    """A function that allocates in two lines, called from two lines: so much in those that come first, 8 MiB in the others."""
    calls = [Frame("read", "reader.cc", 14), Frame("main", "app.cc", 3), Frame("read", "reader.cc", 16), Frame("main", "app.cc", 7)]
    trie = Trie(0)
    trie.add((1, 2), first_bytes)
    trie.add((3, 4), 8 * MIB)
    made = trie.tree()
    snapshot = Snapshot(0, 1, made.bytes[0], tree=made)
    return HeapProfile("heaptrack", "read", "", "ms", COUNTS, (snapshot,), (ROOT, *calls), "lines.zst")


def of_stacks(*stacks: tuple[Sequence[Frame], float], path: str = "python.bin") -> HeapProfile:
    """A profile of memray with one snapshot, of stacks of frames, sites first, and their MiB."""
    table, trie = FrameTable(ROOT), Trie(0)
    for stack, size in stacks:
        trie.add([table.number(frame) for frame in stack], int(size * MIB))
    made = trie.tree()
    snapshot = Snapshot(0, 1, made.bytes[0], tree=made)
    return HeapProfile("memray", "python app.py", "", "ms", COUNTS, (snapshot,), tuple(table.frames), path)


def chain(depth: int, module: str = LIB) -> HeapProfile:
    """One stack of this depth."""
    frames = [ROOT, *(Frame(f"f{place}", module=module, address=place) for place in range(depth))]
    count = depth + 1
    made = CallTree(array("i", range(count)), array("i", range(-1, depth)), array("q", [MIB] * count))
    return HeapProfile("massif", "deep", "", "i", COUNTS, (Snapshot(0, 5, MIB, 0, 0, made),), tuple(frames), "deep.massif")


def comb(depth: int) -> HeapProfile:
    """A stack of this depth of which each frame also calls a leaf of its own."""
    frames, number, parent, size = [ROOT], [0], [-1], [2 * depth + 1]
    at = 0
    for place in range(depth):
        frames += [Frame(f"f{place}", module=LIB), Frame(f"leaf{place}", module=LIB)]
        here = len(number)
        number += [2 * place + 1, 2 * place + 2]
        parent += [at, here]
        size += [2 * (depth - place), 1]
        at = here
    made = CallTree(array("i", number), array("i", parent), array("q", size))
    return HeapProfile("massif", "comb", "", "i", COUNTS, (Snapshot(0, 5, size[0], 0, 0, made),), tuple(frames), "comb.massif")


def massif_text(made: HeapProfile) -> str:
    """The profile as massif writes it."""
    lines = ["desc: --massif-out-file=made", f"cmd: {made.command}", f"time_unit: {made.time_unit}"]
    for moment in made.snapshots:
        lines += ["#-----------", f"snapshot={moment.index}", "#-----------", f"time={moment.time:g}", f"mem_heap_B={moment.heap_bytes}"]
        lines += [
            f"mem_heap_extra_B={moment.extra_bytes}",
            f"mem_stacks_B={moment.stacks_bytes}",
            f"heap_tree={'detailed' if moment.tree else 'empty'}",
        ]
        if moment.tree is not None:
            depths, children = moment.tree.depths(), Counter(moment.tree.parent)
            for node in range(len(moment.tree)):
                lines.append(" " * depths[node] + _line(made.frames[moment.tree.frame[node]], children[node], moment.tree.bytes[node]))
    return "\n".join(lines) + "\n"


def _line(site: Frame, children: int, size: int) -> str:
    if site.kind == "root":
        return f"n{children}: {size} {site.function}"
    if site.kind == "below":
        return f"n0: {size} in {site.places} places, all below massif's threshold (1.00%)"
    where = f"in {site.module}" if site.module else f"{site.file}:{site.line}"
    return f"n{children}: {size} 0x{site.address or 1:X}: {site.function} ({where})"


def write(made: HeapProfile, path: Path) -> Path:
    path.write_text(massif_text(made), encoding="utf-8")
    return path


def top_by(tree, key):
    """Sums by a property of the frames, the plain way: (key, self bytes, total bytes), largest self first, then largest total. key: for each
    frame its group, below 0 for frames that are passed over. Self: the group allocates, as the first frame of a stack that is not passed over.
    Total: it stands anywhere in the stack, counted once however often it does."""
    own, total = {}, {}
    for stack, size in tree.stacks():
        groups = [group for group in (key[frame] for frame in stack) if group >= 0]
        if groups:
            site = groups[0]
            own[site] = own.get(site, 0) + size
        for group in set(groups):
            total[group] = total.get(group, 0) + size
    return sorted(((group, own.get(group, 0), size) for group, size in total.items()), key=lambda row: (-row[1], -row[2], row[0]))


def stacks(profile: HeapProfile) -> dict[str, int]:
    """The bytes of each stack in the only tree, by its functions from the site on."""
    (snapshot,) = profile.snapshots
    assert snapshot.tree is not None
    return {";".join(profile.frames[frame].function for frame in stack): size for stack, size in snapshot.tree.stacks()}


def totals_by_function(profile: HeapProfile) -> dict[str, int]:
    """The bytes of the stacks that hold each function, in the last tree."""
    tree = profile.snapshots[-1].tree
    assert tree is not None
    return {name: total for _, name, _, total in sums(profile, tree)}
