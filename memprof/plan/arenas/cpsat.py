"""Offsets by ortools' CP-SAT: an extra, imported here only. Rectangles with fixed sides in time and free ones in memory, which do not overlap.

One worker with a fixed seed searches, so that the same problem takes the same way; only the time limit ends it earlier or later. ortools 9.9 to
9.14 run with numpy 1, later versions need numpy 2; all of them have the functions used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..orders.problem import Buffer
from .skyline import SkylinePacking, sections


class Smallest(Struct, frozen=True):
    """offsets: by position, None where nothing better was found. bound: no arena of these buffers is smaller, in the unit of their sizes."""

    offsets: tuple[int, ...] | None
    bound: int


def fit(buffers: Sequence[Buffer], capacity: int, seconds: float) -> SkylinePacking:
    """Offsets within a capacity, in the unit of the sizes."""
    from ortools.sat.python import cp_model

    if any(buffer.size > capacity for buffer in buffers):
        return SkylinePacking(None, True)
    model, offsets = _model(cp_model, buffers, capacity)
    solver = _solver(cp_model, seconds)
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return SkylinePacking(tuple(solver.value(offset) for offset in offsets), False)
    return SkylinePacking(None, status == cp_model.INFEASIBLE)


def smallest(buffers: Sequence[Buffer], hints: Sequence[int], low: int, high: int, seconds: float) -> Smallest:
    """The smallest arena from `low` to `high`, beginning with the given offsets."""
    from ortools.sat.python import cp_model

    if seconds <= 0 or high < low:
        return Smallest(None, low)
    model, offsets = _model(cp_model, buffers, high)
    size = model.new_int_var(low, high, "size")
    for offset, buffer, hint in zip(offsets, buffers, hints, strict=True):
        model.add(offset + buffer.size <= size)
        model.add_hint(offset, min(hint, high - buffer.size))
    model.minimize(size)
    solver = _solver(cp_model, seconds)
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Smallest(tuple(solver.value(offset) for offset in offsets), int(solver.best_objective_bound))
    return Smallest(None, high + 1 if status == cp_model.INFEASIBLE else low)


def _model(cp_model: Any, buffers: Sequence[Buffer], capacity: int) -> tuple[Any, list[Any]]:
    model = cp_model.CpModel()
    times, places, offsets = [], [], []
    twins: dict[tuple[int, int, int], Any] = {}
    for buffer, (first, last) in zip(buffers, sections(buffers), strict=True):
        offset = model.new_int_var(0, capacity - buffer.size, "")
        places.append(model.new_fixed_size_interval_var(offset, buffer.size, ""))
        times.append(model.new_fixed_size_interval_var(first, last - first + 1, ""))
        offsets.append(offset)
        # Of buffers that are alike the first lies lowest.
        if (key := (first, last, buffer.size)) in twins:
            model.add(twins[key] <= offset)
        twins[key] = offset
    model.add_no_overlap_2d(times, places)
    return model, offsets


def _solver(cp_model: Any, seconds: float) -> Any:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.0)
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    # Several strategies one after another on the one worker, in steps counted and not timed: far faster than one alone where the arena is full.
    solver.parameters.interleave_search = True
    return solver
