"""A fleet as text: its places and what they measure, the desks that wait, and what cannot be used."""

from __future__ import annotations

import json

from msgspec import to_builtins

from memprof.base.units import counted, format_duration
from memprof.campaign.fleet.monitor import Fleet

from . import grid
from .grid import Section, TextTable

_OWN = ("place", "host", "machine")


def render(fleet: Fleet, *, format: str = "markdown") -> str:
    """The tables as Markdown, or the same as JSON, with `lines` in one line."""
    if format in ("json", "lines"):
        return json.dumps(_content(fleet), indent=1 if format == "json" else None)
    # What changes comes first: a terminal that is too narrow cuts the labels off.
    header = ("place", "host", "measures", "runs", "for", "desk", "labels")
    tables = [TextTable("Machines", header, tuple(_places(fleet)), len(header))] if fleet.places else []
    if fleet.desks:
        rows = tuple((desk.desk, str(desk.running), str(desk.waiting), str(desk.done)) for desk in fleet.desks)
        tables.append(TextTable("Desks, comparisons of each", ("desk", "run", "wait", "done"), rows))
    notes = [] if fleet.places else ["There is no machine: memprof worker offers one."]
    notes += fleet.unusable
    busy = sum(bool(place.doing.title) for place in fleet.places)
    title = f"{fleet.scheduler}: {counted(len(fleet.places), 'machine')}, {busy} of them busy"
    return grid.laid_out(Section(title, tuple(tables), tuple(notes)), grid.say_in(format))


def _places(fleet: Fleet) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for place in fleet.places:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(place.offered.labels.items()) if name not in _OWN)
        doing = place.doing
        runs = f"{doing.done} of {doing.runs or '?'}" if doing.title else "-"
        since = format_duration(doing.for_s * 1e9) if doing.title else "-"
        rows.append((place.offered.place, place.offered.host, doing.title or "-", runs, since, doing.desk or "-", labels))
    return rows


def _content(fleet: Fleet) -> dict[str, object]:
    places = [
        {**to_builtins(place.offered), "labels": dict(place.offered.labels), "address": place.address, "doing": to_builtins(place.doing)}
        for place in fleet.places
    ]
    return {
        "scheduler": fleet.scheduler,
        "places": places,
        "desks": [to_builtins(desk) for desk in fleet.desks],
        "unusable": list(fleet.unusable),
    }
