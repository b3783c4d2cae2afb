"""Offsets by ortools' CP-SAT: an extra, imported here only. Rectangles with fixed sides in time and free ones in memory, which do not overlap.

One worker with a fixed seed, so that the same problem takes the same way; only the time limit ends it earlier or later. ortools 9.9 to
9.14 run with numpy 1, later ones need numpy 2; what is used here is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..orders.problem import Buffer
from .skyline import Fit, sections


@dataclass(frozen=True)
class Found:
    """offsets by position, None where nothing better was found; bound: no arena of these buffers is smaller."""

    offsets: tuple[int, ...] | None
    bound: int


def fit(buffers: Sequence[Buffer], capacity: int, seconds: float) -> Fit:
    """Offsets within a capacity."""
    from ortools.sat.python import cp_model

    if any(one.size > capacity for one in buffers):
        return Fit(None, True, 0)
    model, offsets = _model(cp_model, buffers, capacity)
    solver = _solver(cp_model, seconds)
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Fit(tuple(solver.value(offset) for offset in offsets), False, 0)
    return Fit(None, status == cp_model.INFEASIBLE, 0)


def smallest(buffers: Sequence[Buffer], hints: Sequence[int], low: int, high: int, seconds: float) -> Found:
    """The smallest arena from `low` to `high`, beginning with the given offsets."""
    from ortools.sat.python import cp_model

    if seconds <= 0 or high < low:
        return Found(None, low)
    model, offsets = _model(cp_model, buffers, high)
    size = model.new_int_var(low, high, "size")
    for offset, one, hint in zip(offsets, buffers, hints, strict=True):
        model.add(offset + one.size <= size)
        model.add_hint(offset, min(hint, high - one.size))
    model.minimize(size)
    solver = _solver(cp_model, seconds)
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Found(tuple(solver.value(offset) for offset in offsets), int(solver.best_objective_bound))
    return Found(None, high + 1 if status == cp_model.INFEASIBLE else low)


def _model(cp_model: Any, buffers: Sequence[Buffer], capacity: int) -> tuple[Any, list[Any]]:
    model = cp_model.CpModel()
    times, places, offsets = [], [], []
    twins: dict[tuple[int, int, int], Any] = {}
    for one, (first, last) in zip(buffers, sections(buffers), strict=True):
        offset = model.new_int_var(0, capacity - one.size, "")
        places.append(model.new_fixed_size_interval_var(offset, one.size, ""))
        times.append(model.new_fixed_size_interval_var(first, last - first + 1, ""))
        offsets.append(offset)
        # Of buffers that are alike the first lies lowest.
        if (key := (first, last, one.size)) in twins:
            model.add(twins[key] <= offset)
        twins[key] = offset
    model.add_no_overlap_2d(times, places)
    return model, offsets


def _solver(cp_model: Any, seconds: float) -> Any:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 0.0)
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    # Several strategies in turn on the one worker, in steps that are counted and not timed: far faster than one alone where the arena is full.
    solver.parameters.interleave_search = True
    return solver
