"""What a gate measures itself: a suite, both sides of a git ref, and again what is to be confirmed or proven.

With --base-ref both sides are measured in one campaign, each repeat of a variant beside its counterpart and the side that goes first in
turns, so that a machine that drifts drifts for both. What is measured again goes into a runs file of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ..errors import InputError, MemprofError
from ..judge import baseline, budgets
from ..judge.baseline import Side
from ..judge.budgets import Budget, Spot
from ..measuring import built, suite
from ..measuring.orders import Order, plan
from ..measuring.progress import Progress
from ..measuring.suite import Build, Suite
from ..runs.records import COMMAND, PEAK, PHASES, WARMUP, Run
from . import worktrees
from .interleaved import measure_sides, orders_at
from .request import BASE, HEAD, GateRequest, Known


@contextmanager
def measured(request: GateRequest, base: Side, names: Sequence[str], limits: Sequence[Budget], progress: Progress) -> Iterator[Known]:
    """The suite measured now, beside this base, or with --base-ref both sides; their trees live as long as the block.

    Raises UsageError, before anything is measured, for a limit on what the suite does not have.
    """
    assert request.suite is not None
    if request.base_ref is None:
        planned = plan(_repeated(suite.read(request.suite), request))
        _say(planned.remarks, progress)
        budgets.check(limits, _spots(planned.orders))
        runs = measure_sides({HEAD: planned.orders}, {HEAD: request.output}, progress)[HEAD]
        title = f"{request.suite}, measured now, against {request.base or request.budgets}"
        yield Known(title, base, _side(runs, names), lambda side, place: orders_at(planned.orders, place) if side == HEAD else ())
        return
    with _both_sides(request, progress) as (title, orders, remarks):
        budgets.check(limits, _spots(orders[HEAD]))
        found = measure_sides(orders, {BASE: request.base_output, HEAD: request.output}, progress)
        yield Known(
            title, _side(found[BASE], names), _side(found[HEAD], names), lambda side, place: orders_at(orders[side], place), tuple(remarks)
        )


def _spots(orders: Sequence[Order]) -> list[Spot]:
    """Where a budget may hold: a program, and a runtime in a file of its own, may have phases that nobody knows before."""
    found: list[Spot] = []
    for job in (order.job for order in orders):
        own = job.runtime == COMMAND or job.runtime.endswith(".py")
        phases = [phase for phase in PHASES if job.warmup or phase != WARMUP]
        found += [(job.model.name, job.variant)] if own else [(job.model.name, job.variant, phase) for phase in (*phases, PEAK)]
    return list(dict.fromkeys(found))


def _say(remarks: Sequence[str], progress: Progress) -> None:
    for remark in remarks:
        progress.say(remark)


def _side(runs: Sequence[Run], names: Sequence[str]) -> Side:
    return Side(baseline.entries(runs, names), from_runs=tuple(runs))


def _repeated(wanted: Suite, request: GateRequest) -> Suite:
    return replace(wanted, repeats=request.repeats) if request.repeats is not None else wanted


@contextmanager
def _both_sides(request: GateRequest, progress: Progress) -> Iterator[tuple[str, dict[str, Sequence[Order]], list[str]]]:
    """What is compared, the orders of both sides, whose trees live as long as the block, and what the user should know."""
    assert request.suite is not None and request.base_ref is not None
    repository = worktrees.Repository.of(request.suite)
    build = suite.read(request.suite).build or Build()
    with worktrees.trees(repository, request.base_ref, build, progress.say) as (base, head):
        suites = {name: _repeated(worktrees.suite_in(repository, tree, head), request) for name, tree in ((BASE, base), (HEAD, head))}
        planned = plan(suites[HEAD])
        _say(planned.remarks, progress)
        try:
            orders, remarks = _base_orders(suites[BASE], planned.orders) if base.new is None else ([], [base.new])
        except InputError as error:
            if repository.has_suite(base.folder):
                raise
            orders, remarks = [], [str(error)]
        if not orders:
            remarks = [f"{base.label} has no {repository.suite} yet, so all rows are new", *remarks]
        try:
            yield f"{head.label} against {base.label}", {BASE: _alone(orders), HEAD: _alone(planned.orders)}, remarks
        finally:
            built.forget_made_below(head.folder.parent)


def _base_orders(wanted: Suite, head: Sequence[Order]) -> tuple[list[Order], list[str]]:
    """Base's orders, variant by variant: one that base does not know yet is new in head and no error. Raises where it knows none."""
    found: list[Order] = []
    remarks: list[str] = []
    errors: list[MemprofError] = []
    variants = {one.name or os.path.basename(one.runtime).removesuffix(".py"): one for one in suite.variants_of(wanted)}
    for model, variant in dict.fromkeys((order.job.model.name, order.job.variant) for order in head):
        # Commands may be about no file: they are about what head's suite says together.
        paths = [path for path in wanted.models if os.path.basename(os.path.normpath(path)) == model]
        known = {key: value for key, value in wanted.set.items() if any(key in order.job.knobs for order in _of(head, model, variant))}
        try:
            one = replace(wanted, models=tuple(paths), name=model, runtimes=(), variants=(variants[variant],), set=known)
            found += plan(one).orders
        except MemprofError as error:
            errors.append(error)
            remarks.append(f"base cannot measure {model}, {variant}, so it is new: {error}")
    if errors and not found:
        raise InputError(f"base can measure nothing of this suite: {errors[0]}")
    return found, remarks


def _of(orders: Sequence[Order], model: str, variant: str) -> list[Order]:
    return [order for order in orders if (order.job.model.name, order.job.variant) == (model, variant)]


def _alone(orders: Sequence[Order]) -> tuple[Order, ...]:
    """The orders without a PYTHONPATH, which would put one side's modules (or the checkout's) before both sides' own."""
    return tuple(replace(order, env={"PYTHONPATH": None, **order.env}) for order in orders)
