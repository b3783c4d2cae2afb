"""The sentences that every view of a profile has beside its figures, and the choice of the snapshot it shows."""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Sequence

from ..base.errors import InputError, UsageError, near
from ..base.units import either, format_bytes, format_number
from . import unnamed
from .frames import NO_MODULE, is_python
from .profile import HeapProfile, PhaseSpan, Snapshot, TimeUnit

_RUNNER = re.compile(r"/runners(?:/__main__\.py)? run$")  # the tools quote nothing: the folders before it may hold a space
_STEPS = (("G", 10**9), ("M", 10**6), ("k", 10**3))
# Every view draws the total on from one snapshot to the next. These sentences say what that leaves out.
_BETWEEN = {
    "massif": "massif sees the heap only at its snapshots: the total is drawn as constant between two, and blocks in between are not seen.",
    "heaptrack": "heaptrack sees every allocation, but the clock every 10 ms at best: the total is drawn as constant between two snapshots.",
    "memray": "memray sees the heap every 10 ms, and the exact peak: the total is drawn as constant between two snapshots.",
    "torch": "torch records every block and its end: the total is drawn as constant between two snapshots, of which each is the largest of its time.",
}


def format_time(time: float, unit: TimeUnit) -> str:
    """A moment in the profile's unit as people read it: `1.25 G instructions`, `3.2 s`, `14.0 MiB allocated`."""
    if unit == "B":
        return f"{format_bytes(time)} allocated"
    if unit in ("s", "ms"):
        seconds = time / 1000 if unit == "ms" else time
        return f"{format_number(seconds, 3)} s"
    for name, size in _STEPS:
        if time >= size:
            return f"{format_number(time / size, 3)} {name} instructions"
    return f"{time:.0f} instructions"


def chosen(profile: HeapProfile, snapshot: int | None = None, phase: str | None = None) -> Snapshot | None:
    """The snapshot to show: that of this number, else the largest with a tree, of this phase or of all; None if none has a tree.

    Raises UsageError for a snapshot or a phase that the profile does not have, InputError for a snapshot or a phase without a tree.
    """
    if snapshot is not None and phase is not None:
        raise UsageError("--snapshot and --at-phase exclude one another")
    if snapshot is not None:
        return _numbered(profile, snapshot)
    if phase is None:
        return profile.peak_tree[0] if profile.peak_tree else None
    name = phase_name(profile, phase)
    largest = profile.largest_tree(name)
    if largest is None:
        if not any(candidate.phase == name for candidate in profile.snapshots):
            raise InputError(f"{profile.path} has no snapshot in {name}")
        more = "; recorded with --detailed-freq 1 every snapshot has one" if profile.tool == "massif" else ""
        raise InputError(f"{profile.path} has no tree in {name}: no snapshot taken there has one ({_has_trees(profile)}){more}")
    return largest[0]


def phase_name(profile: HeapProfile, word: str) -> str:
    """The profile's phase that a word means: `prepare`, `load` or the name itself. Raises UsageError."""
    names = list(
        dict.fromkeys([span.name for span in profile.phases] + [snapshot.phase for snapshot in profile.snapshots if snapshot.phase])
    )
    if not names:
        raise UsageError(f"{profile.path} knows no phases: only what `memprof heap record MODEL` records does")
    wanted = {"load": "MODEL_LOAD"}.get(word.lower(), word)
    for name in names:
        if name.lower() == wanted.lower():
            return name
    raise UsageError(f"{profile.path} has no phase {word!r}{near(word.upper(), names) or '; it has ' + ', '.join(names)}")


def _numbered(profile: HeapProfile, number: int) -> Snapshot:
    for snapshot in profile.snapshots:
        if snapshot.index == number:
            if snapshot.tree is None:
                raise InputError(f"snapshot {number} of {profile.path} has no tree ({_has_trees(profile, number)})")
            return snapshot
    first, last = profile.snapshots[0].index, profile.snapshots[-1].index
    raise UsageError(f"{profile.path} has no snapshot {number}: its snapshots are {first} to {last}")


def _has_trees(profile: HeapProfile, near: int | None = None) -> str:
    numbers = [snapshot.index for snapshot in profile.snapshots if snapshot.tree is not None]
    if not numbers:
        return "no snapshot of it has one"
    start = 0 if near is None else max(bisect.bisect(numbers, near) - 3, 0)
    shown = numbers[start : start + 6]
    return f"those with trees{' near it' if near is not None and len(shown) < len(numbers) else ''}: " + (
        ", ".join(map(str, shown)) + (", ..." if near is None and len(shown) < len(numbers) else "")
    )


def moment(profile: HeapProfile, snapshot: Snapshot) -> str:
    """Which snapshot, when and in which phase: `snapshot 57, at 1.2 G instructions, in PREPARE`."""
    if profile.total:
        return f"snapshot {snapshot.index}, the only one"
    return f"snapshot {snapshot.index}, {_when(snapshot, profile.time_unit)}{in_phase(profile, snapshot)}"


def in_phase(profile: HeapProfile, snapshot: Snapshot) -> str:
    """`, in PREPARE`, or `, in MODEL_LOAD or PREPARE` where the clocks do not tell; empty where no phase is known."""
    names = profile.possible_phases(snapshot)
    return f", in {either(names)}" if names else ""


def _why_possible(profile: HeapProfile, snapshot: Snapshot) -> list[str]:
    """Sentences on a moment so near a border that its phase does not follow from the times that are shown, and on what tells it."""
    spans = profile.phases_nearby(snapshot)
    near = tuple(dict.fromkeys(span.name for span in spans))
    names = profile.possible_phases(snapshot)
    if not profile.phase_error or not near:
        return []
    if len(near) < 2:
        return _why_one(profile, snapshot, spans)
    text = f"{_estimates(profile)}: by its time snapshot {snapshot.index} may lie in {either(near)}."
    if names == near:
        return [text]
    low = either([name for name in near if name not in names])
    return [f"{text} It lies in {either(names)}: in {low} the process never had as much memory as this snapshot holds."]


def _why_one(profile: HeapProfile, snapshot: Snapshot, spans: Sequence[PhaseSpan]) -> list[str]:
    """A sentence on a moment outside of the estimated times of its phase, or so near behind those of another that both seem to have it."""
    unit, own, index = profile.time_unit, spans[-1], snapshot.index
    left = [span for span in profile.phases_left(snapshot) if span.name != own.name]
    within = any(span.begin <= snapshot.time and (span.end is None or snapshot.time <= span.end) for span in spans)
    if within and not left:
        return []
    text = f"{_estimates(profile)}: by its time snapshot {index} lies in {own.name}"
    if not within and snapshot.time < own.begin:
        text += f", which begins at {format_time(own.begin, unit)} by the estimate"
    elif not within and own.end is not None:
        text += f", which ends at {format_time(own.end, unit)} by the estimate"
    if left and left[-1].end is not None:
        since = format_time(snapshot.time - left[-1].end, unit)
        text += f"; {left[-1].name} had ended {since} before snapshot {index} at the latest"
    return [f"{text}."]


def _estimates(profile: HeapProfile) -> str:
    """How exact the estimated times of phases are, without a full stop. Without started_ns they are off to one side."""
    error = format_time(profile.phase_error or 0.0, profile.time_unit)
    if profile.started_ns is None:
        return f"Each phase begins and ends at its estimated time or up to {error} earlier"
    return f"Each phase begins and ends within {error} of its estimated time"


def _why_undrawn(profile: HeapProfile) -> list[str]:
    """A sentence on phases that no time axis shows."""
    if not profile.phases or profile.phase_error is None or profile.drawable_phases:
        return []
    error, longest = (format_time(time, profile.time_unit) for time in (profile.phase_error, profile.longest_phase))
    return [f"Phases are not drawn: where they begin is known to {error} only, and the longest took {longest}."]


def _when(snapshot: Snapshot, unit: TimeUnit) -> str:
    begin = format_time(snapshot.time, unit)
    end = begin if snapshot.until is None else format_time(snapshot.until, unit)
    return f"at {begin}" if begin == end else f"between {begin} and {end}"


def share(part: float, whole: float, digits: int = 1) -> str:
    """A part as a percentage: only the whole is `100%`, and only nothing is `0%`."""
    text = f"{100 * part / whole if whole else 0:.{digits}f}%"
    if 0 < part < whole and text == f"{0:.{digits}f}%":
        return f"<{10**-digits:.{digits}f}%"
    if 0 < part < whole and text == f"{100:.{digits}f}%":
        return f">{100 - 10**-digits:.{digits}f}%"
    return text


def program(profile: HeapProfile) -> str:
    """The recorded program, for a title: the command without folders, or the file if the command has no meaning for people (memprof's runner)."""
    words = [os.path.basename(word.rstrip("/")) or word if word.startswith("/") else word for word in profile.command.split()]
    if not words or _RUNNER.search(profile.command):
        return "/".join(os.path.normpath(profile.path).split(os.sep)[-2:]) if profile.path else profile.tool
    return " ".join(words)


def headline(profile: HeapProfile) -> str:
    """The peak in a sentence, or what the bytes of a profile of one moment are."""
    if not profile.snapshots or profile.peak.total_bytes == 0:
        return f"There is nothing {profile.total}." if profile.total else "No allocation was recorded."
    peak = profile.peak
    parts = [(peak.extra_bytes, "that the allocator added"), (peak.stacks_bytes, "of stacks")]
    with_parts = [f"{format_bytes(size)} {name}" for size, name in parts if size]
    held = f" ({', '.join([f'{format_bytes(peak.heap_bytes)} asked for', *with_parts])})" if with_parts else ""
    if profile.total:
        return f"{format_bytes(peak.total_bytes)}{held} {profile.total}."
    return f"Peak {format_bytes(peak.total_bytes)}{held}: {moment(profile, peak)}."


def total_noun(profile: HeapProfile) -> str:
    """What the largest total is called: that of a profile of one moment need not be the peak."""
    return "total" if profile.total else "peak"


def between(profile: HeapProfile) -> str:
    """A sentence on the line that is drawn from one snapshot to the next."""
    return "" if profile.total else _BETWEEN.get(profile.tool, "")


def modules(profile: HeapProfile) -> str:
    """A sentence on why its modules are not those of another tool; empty if they are libraries and programs."""
    if any(frame.module == NO_MODULE for frame in profile.frames):
        return f"{profile.tool} does not say which library a function of C or C++ is in: they are all put down to {NO_MODULE}."
    if any(frame.module is None and frame.file is not None and not is_python(frame.file) for frame in profile.frames):
        return (
            f"{profile.tool} names source files instead of libraries for code with debug information, so its modules include source files."
        )
    return ""


def _counts(profile: HeapProfile) -> str:
    text = profile.counts.strip().rstrip(".")
    return text if text.startswith(profile.tool) else f"{profile.tool} counts {text}"


def counting(profile: HeapProfile) -> str:
    """Sentences on the blocks that the tool counts, and on how exact its phases are."""
    text = f"{_counts(profile)}."
    if profile.phases and profile.phase_error:
        text += f" {_estimates(profile)}."
    return text


def remarks(profile: HeapProfile, shown: Snapshot | None = None) -> list[str]:
    """Sentences that the reader of any view needs: on a partial profile, on a tree that is not the peak's, and the parser's warnings."""
    sentences = []
    if profile.partial:
        sentences.append(f"This profile is partial: {profile.partial.rstrip('.')}. Later allocations are not in it.")
    largest = profile.peak_tree
    if not profile.snapshots or profile.peak.total_bytes == 0:
        pass
    elif largest is None:
        sentences.append("No snapshot has a tree of allocation sites, so who allocated the peak is not known.")
    elif not largest[1]:
        sentences.append(_not_the_peak(profile, largest[0]))
    if shown is not None and largest is not None and shown is not largest[0]:
        sentences.append(f"Shown is {moment(profile, shown)}, with {format_bytes(shown.total_bytes)}.")
    named = [profile.peak] if profile.snapshots and profile.peak.total_bytes else []
    named += [shown] if shown is not None and shown not in named else []
    sentences += [*_why_undrawn(profile), *(text for snapshot in named for text in _why_possible(profile, snapshot))]
    nameless = unnamed.remark(profile, shown or (largest[0] if largest else profile.peak)) if named else None
    return [*sentences, *([f"{nameless}."] if nameless else []), *profile.warnings]


def _not_the_peak(profile: HeapProfile, tree: Snapshot) -> str:
    peak, short = profile.peak, profile.peak.total_bytes - tree.total_bytes
    return (
        f"The tree is not that of the peak: the peak is {format_bytes(peak.total_bytes)} in snapshot {peak.index}, which has no tree; the largest "
        f"tree is that of snapshot {tree.index}, {format_bytes(tree.total_bytes)}, {format_bytes(short)} "
        f"({share(short, peak.total_bytes)}) less. Who holds the difference is not known."
    )


def gathered(profile: HeapProfile) -> bool:
    """Whether the tool itself left out places as too small."""
    below = {number for number, frame in enumerate(profile.frames) if frame.kind == "below"}
    return any(not below.isdisjoint(snapshot.tree.frame) for snapshot in profile.snapshots if snapshot.tree is not None)


def comparable(profiles: Sequence[HeapProfile]) -> list[str]:
    """Sentences on why the figures of these profiles cannot be compared."""
    counts = {(profile.tool, profile.counts) for profile in profiles}
    if len(counts) == 1:
        return []
    return ["These profiles do not count the same: " + "; ".join(dict.fromkeys(map(_counts, profiles))) + "."]
