"""The names of nodes and groups in every view: the short name, the module, and the source lines."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from memprof.base.terminal_text import plain
from memprof.base.units import counted
from memprof.heap.file_names import FileNames
from memprof.heap.frames import NO_MODULE, By, Frame
from memprof.heap.names import module_name, own_name, short
from memprof.heap.profile import HeapProfile
from memprof.heap.shape import BELOW, ROOT, LargestFrame, Shape

WHOLE = "all of the heap"


class FrameLabel(Struct, frozen=True):
    """text: the shown name, without the source; full: the name as the tool has it, with the source where that tells it from others; module: short,
    empty where it would repeat the text; source: file:line.

    lines: how many source lines the place has, of which `source` is the largest."""

    text: str
    full: str
    module: str = ""
    source: str = ""
    lines: int = 1


def label(profile: HeapProfile, shape: Shape, node: int, by: By, full_names: bool = False) -> FrameLabel:
    """A node's label."""
    group = shape.group[node]
    if group == ROOT:
        return FrameLabel(WHOLE, WHOLE)
    if group == BELOW:
        gathered = below(shape, node)
        return FrameLabel(gathered, gathered)
    return group_label(profile, shape.frames[node], shape.names[group], by, full_names)


def group_label(profile: HeapProfile, largest: LargestFrame, name: str, by: By, full_names: bool = False) -> FrameLabel:
    """The label of a group of frames, from its name and the frame that stands for it."""
    frame = profile.frames[largest.frame]
    clean = plain(name)
    if by == "module":
        return FrameLabel(clean, clean)
    own = own_name(frame, by)
    text = plain(own if full_names else short(own))
    module = "" if frame.module == NO_MODULE else plain(module_name(frame))
    known = f"({module})" in text or (frame.kind == "unknown" and module in text)
    return FrameLabel(text, clean, "" if known else module, source(frame, profile.file_names), largest.lines)


def source(frame: Frame, files: FileNames) -> str:
    """`file.cc:12`, or an empty string where the tool has no source line."""
    if frame.file is None:
        return ""
    name = plain(files.name(frame.file) or frame.file)
    return f"{name}:{frame.line}" if frame.line else name


def below(shape: Shape, node: int) -> str:
    """A gathered node's name."""
    places = shape.places[node]
    if shape.inverted and shape.parent[node] == 0:
        return "(called from places below the threshold)"
    return f"({counted(places, 'smaller place')})" if places else "(smaller places)"


def beside_first(names: Sequence[str]) -> str:
    """The places that hold as much as the first: `b`, or `each of 2 more`; empty where there is none."""
    others = names[1:]
    return f"each of {len(others)} more" if len(others) > 1 else "".join(others)


def shortened(text: str, most: int) -> str:
    """A name of at most so many letters, its middle left out: its start and its end tell most."""
    if len(text) <= most:
        return text
    if most < 2:
        return text[: max(most, 0)]
    tail = (most - 1) // 3
    return text[: most - 1 - tail] + "…" + (text[-tail:] if tail else "")
