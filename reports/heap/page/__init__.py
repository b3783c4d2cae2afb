"""HeapProfiles -> one HTML page that needs nothing else: the heap over time, and of any snapshot the tree of who held it.

drawn.py holds the figures that heap.js draws; the look is that of all pages, web/common.css, and heap.css. Names come from
measured programs and may hold anything: standalone.py is why they stay text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memprof.base.terminal_text import plain
from memprof.base.units import counted, format_bytes
from memprof.heap import phrases
from memprof.heap.profile import HeapProfile

from ... import standalone
from ...standalone import check
from ...tables.grid import TextTable
from .. import labels, show
from . import drawn

__all__ = ["check", "render"]

_TOP = 20


def render(profiles: Sequence[HeapProfile]) -> str:
    """The page of these profiles, one at least, side by side on one scale."""
    names = _names([profile.path or phrases.program(profile) for profile in profiles])
    data = drawn.page(profiles, names)
    return standalone.render(
        __package__,
        "heap",
        data,
        title=labels.shortened(plain(phrases.program(profiles[0])), 200) if len(profiles) == 1 else f"{len(profiles)} profiles",
        subtitle=_subtitle(profiles),
        sources=[plain(profile.path) for profile in profiles if profile.path],
        notices=_notices(profiles, names),
        files=[_words(profile, name, len(profiles) > 1) for profile, name in zip(profiles, names, strict=True)],
        estimated=drawn.estimated(data),
        gathering=drawn.gathering(data, profiles),
    )


def _names(paths: Sequence[str]) -> list[str]:
    """Each file's name, with as much of its folder as tells it from the others, and a number where a file is given twice."""
    parts = [Path(path).parts or (path,) for path in paths]
    names = []
    for place, own in enumerate(parts):
        count = 1
        others = [other for index, other in enumerate(parts) if index != place]
        while count < len(own) and any(other[-count:] == own[-count:] for other in others):
            count += 1
        twice = [index for index, other in enumerate(parts) if other == own]
        number = f" ({twice.index(place) + 1})" if len(twice) > 1 else ""
        names.append(plain("/".join(own[-count:]) if len(twice) == 1 else own[-1]) + number)
    return names


def _subtitle(profiles: Sequence[HeapProfile]) -> str:
    if len(profiles) > 1:
        return "side by side, on one scale"
    count = len(profiles[0].snapshots)
    return f"recorded by {profiles[0].tool}, {counted(count, 'snapshot')}"


def _notices(profiles: Sequence[HeapProfile], names: Sequence[str]) -> list[str]:
    notices = phrases.comparable(profiles)
    for profile, name in zip(profiles, names, strict=True):
        notices += [remark if len(profiles) == 1 else f"{name}: {remark}" for remark in phrases.remarks(profile)]
    return [plain(notice) for notice in notices]


def _words(profile: HeapProfile, name: str, several: bool) -> dict[str, Any]:
    """The sentences about a profile, and the tables that stand where no script runs."""
    tables = []
    sentences = [plain(phrases.headline(profile))]
    snapshot, is_peak = profile.peak_tree or (None, False)
    if snapshot is not None and snapshot.tree is not None and (whole := snapshot.tree.bytes[0]):
        functions, modules = show.top(profile, snapshot, "function"), show.top(profile, snapshot, "module")
        for by, rows in (("function", functions), ("module", modules)):
            caption = f"{f'{name}: ' if several else ''}snapshot {snapshot.index}, by {by}"
            texts = tuple((row.label.text, format_bytes(row.own_bytes), format_bytes(row.total_bytes)) for row in rows[:_TOP])
            tables.append(TextTable(caption, ("site", "self", "total"), texts))
        where = "of it" if is_peak else f"of the largest tree, that of snapshot {snapshot.index},"
        sentences += _largest(functions, modules, whole, where)
    conditions = [f"Command: {plain(profile.command)}"] if profile.command else []
    conditions.append(plain(phrases.counting(profile)))
    conditions += [plain(remark) for remark in (phrases.between(profile), *phrases.remarks(profile)) if remark]
    phases = [plain(f"{span.name} from {phrases.format_time(span.begin, profile.time_unit)}") for span in profile.drawable_phases]
    return {
        "name": name,
        "drawn": bool(profile.snapshots),
        "phases": ", ".join(phases),
        "unsure": bool(profile.phase_error),
        "finding": sentences,
        "tables": tables,
        "conditions": conditions,
    }


def _largest(functions: Sequence[show.FrameRow], modules: Sequence[show.FrameRow], whole: int, where: str) -> list[str]:
    """The function and the module that allocated most, in a sentence. whole: the bytes of their tree; where: what they are a share of, in words."""
    first, module = (next((row for row in rows if row.own_bytes), None) for rows in (functions, modules))
    if first is None or module is None:
        return []
    names = [_beside_module(row.label) for row in functions if format_bytes(row.own_bytes) == format_bytes(first.own_bytes)]
    others = f", and as much by {rest}" if (rest := labels.beside_first(names)) else ""
    return [
        f"{phrases.share(first.own_bytes, whole, 0)} {where} was allocated by {names[0]}{others}; "
        f"{labels.shortened(module.label.text, 60)} allocated {phrases.share(module.own_bytes, whole, 0)}."
    ]


def _beside_module(label: labels.FrameLabel) -> str:
    return labels.shortened(label.text, 120) + (f" ({label.module})" if label.module else "")
