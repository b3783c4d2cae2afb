"""Profiles for other tools: collapsed stacks (flamegraph.pl, inferno), speedscope, and massif's own format (massif-visualizer, ms_print).

Each is a function that yields the file's text piece by piece, so that a profile of any size is written in bounded memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..base.errors import InputError
from .frames import NO_MODULE, UNKNOWN, Frame
from .massif import EXPORTED
from .phrases import format_time
from .profile import HeapProfile, Snapshot
from .trees import CallTree

_HEAP_ROOT = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc."


def collapsed(profile: HeapProfile, snapshot: Snapshot | None = None) -> Iterator[str]:
    """Lines `main;load;grow 1048576`, program entry first, of a snapshot's tree; that of the peak by default. Sizes are bytes.

    Raises InputError if there is no tree.
    """
    _, tree = _shown(profile, snapshot)
    names = [_flat(_label(frame)).replace(";", ":") for frame in profile.frames]
    if tree.self_bytes()[0] > 0:
        yield f"{_flat(profile.frames[tree.frame[0]].function).replace(';', ':')} {tree.self_bytes()[0]}\n"
    for stack, size in tree.stacks():
        if stack:
            yield ";".join(names[frame] for frame in reversed(stack)) + f" {size}\n"


def speedscope(profile: HeapProfile, snapshot: Snapshot | None = None) -> Iterator[str]:
    """A speedscope file (https://www.speedscope.app/file-format-schema.json) with one sampled profile in bytes.

    Raises InputError if there is no tree.
    """
    shown, tree = _shown(profile, snapshot)
    facts = [{"name": _label(frame), "file": frame.file or frame.module, "line": frame.line} for frame in profile.frames]
    frames = [{name: value for name, value in fact.items() if value is not None} for fact in facts]
    yield '{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"memprof","activeProfileIndex":0,'
    yield '"name":' + json.dumps(f"{profile.command}: heap at {format_time(shown.time, profile.time_unit)}") + ',"shared":{"frames":'
    yield json.dumps(frames, separators=(",", ":")) + "},"
    yield f'"profiles":[{{"type":"sampled","name":{json.dumps(f"snapshot {shown.index}")},"unit":"bytes","startValue":0,'
    weights, comma = [], ""
    yield '"samples":['
    for stack, size in tree.stacks():
        weights.append(size)
        yield comma + json.dumps(stack[::-1] or [tree.frame[0]], separators=(",", ":"))
        comma = ","
    yield '],"weights":' + json.dumps(weights, separators=(",", ":")) + f',"endValue":{sum(weights)}}}]}}\n'


def massif(profile: HeapProfile) -> Iterator[str]:
    """The whole profile as a massif file that massif-visualizer, ms_print and memprof itself open.

    Times in seconds become milliseconds, since not all of these read fractions. The largest tree is marked as the peak.
    """
    seconds = profile.time_unit == "s"
    peak = profile.peak_tree
    total = f" [{profile.total}]" if profile.total else ""
    other = profile.tool != "massif"
    description = EXPORTED.format(tool=profile.tool, total=total, counts=profile.counts) if other else profile.description
    yield f"desc: {_flat(description) or '(none)'}\n"
    yield f"cmd: {_flat(profile.command) or '(none)'}\n"
    yield f"time_unit: {'ms' if seconds else profile.time_unit}\n"
    places = [_place(frame) for frame in profile.frames]
    for number, snapshot in enumerate(profile.snapshots):
        kind = "empty" if snapshot.tree is None else "peak" if peak is not None and snapshot is peak[0] else "detailed"
        yield (
            f"#-----------\nsnapshot={number}\n#-----------\ntime={round(snapshot.time * (1000 if seconds else 1))}\n"
            f"mem_heap_B={snapshot.heap_bytes}\nmem_heap_extra_B={snapshot.extra_bytes}\nmem_stacks_B={snapshot.stacks_bytes}\n"
            f"heap_tree={kind}\n"
        )
        if snapshot.tree is not None:
            yield from _tree_lines(snapshot.tree, places)


def _tree_lines(tree: CallTree, places: list[str]) -> Iterator[str]:
    depths = tree.depths()
    counts = [0] * len(tree)
    for parent in tree.parent[1:]:
        counts[parent] += 1
    for node in range(len(tree)):
        yield f"{' ' * depths[node]}n{counts[node]}: {tree.bytes[node]} {places[tree.frame[node]]}\n"


def _place(frame: Frame) -> str:
    if frame.kind == "root":
        return _flat(frame.function) if frame.function.startswith("(") else _HEAP_ROOT
    if frame.kind == "below":
        count = frame.places or 1
        return f"in {count} place{'s, all' if count != 1 else ','} below massif's threshold (1.00%)"
    where = ""
    if frame.file is not None:
        where = f" ({frame.file}:{frame.line or 0})"
    elif frame.module not in (None, NO_MODULE):
        where = f" (in {frame.module})"
    return _flat(f"0x{frame.address or 0:X}: {frame.function}{where}")


def _label(frame: Frame) -> str:
    place = frame.file if frame.module == NO_MODULE else frame.module or frame.file
    if frame.function == UNKNOWN and place:
        return f"{UNKNOWN} ({place.rsplit('/', 1)[-1]})"
    return frame.function


def _flat(text: str) -> str:
    return " ".join(text.split())


def _shown(profile: HeapProfile, snapshot: Snapshot | None) -> tuple[Snapshot, CallTree]:
    largest = profile.peak_tree
    shown = snapshot if snapshot is not None or largest is None else largest[0]
    if shown is None or shown.tree is None:
        raise InputError(f"{profile.path}: no snapshot has a tree")
    return shown, shown.tree
