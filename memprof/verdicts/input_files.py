"""The runs whose inputs stand in the heading of a report on two sides: once if both sides ran with the same shapes, else side by side."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from ..records import summary
from ..records.summary import VariantKey
from ..records.types import Job, Run
from .baseline import BaselineEntry

BOTH, BASE, HEAD = "both", "base", "head"

Groups = Mapping[VariantKey, Sequence[Run]]


def by_place(runs: Iterable[Run]) -> dict[VariantKey, list[Run]]:
    """Repeats by what is measured."""
    return {key.place: group for key, group in summary.groups(runs).items()}


def of_sides(base: Groups, head: Groups) -> dict[str, tuple[Run, ...]]:
    """A run of each variant by the side that it stands for: head's stand for both, unless a variant of both sides ran with other shapes."""
    common = {place: base[place] for place in head if place in base}
    if all(_shapes(group[0]) == _shapes(head[place][0]) for place, group in common.items()):
        return {BOTH: _first(head)}
    return {BASE: _first(common), HEAD: _first(head)}


def beside_baseline(base: Sequence[BaselineEntry], entries: Sequence[BaselineEntry], head: Groups) -> dict[str, tuple[Run, ...]]:
    """The same for a baseline, which keeps no runs, but the shapes of the request. entries: head's."""
    asked = {entry.place: _asked(entry) for entry in base}
    alike = all(asked.get(entry.place, _asked(entry)) == _asked(entry) for entry in entries)
    return {BOTH if alike else HEAD: _first(head)}


def shapes(job: Job) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs as far as a Job tells them: asked for, of its arrays, and those in which open dimensions were taken as 1."""
    return {**job.shapes, **job.given, **job.assumed}


def _shapes(run: Run) -> tuple[object, ...]:
    job = run.job
    return shapes(job), os.path.basename(job.inputs or "") if not job.given else ""


def _asked(entry: BaselineEntry) -> dict[str, str]:
    return {name: value for name, value in entry.settings.items() if name == "inputs" or name.startswith("shape of ")}


def _first(groups: Groups) -> tuple[Run, ...]:
    return tuple(group[0] for group in groups.values())
