"""The smallest setting that undoes a step: the newer version is measured with each other value of each knob, then with two of the best together.

A setting undoes a step if fresh repeats with it are no worse than the older version, by the gate's verdict. The fastest of several is reported.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import MemprofError
from ...campaign import campaign
from ...campaign.progress import Keep, Progress
from ...programs.runtimes import values_to_try
from ...records import metrics, summary
from ...records.summary import Row
from ...records.types import Run
from ...subjects.order import Order
from ...subjects.orders import plan
from ...subjects.suite import Suite, Variant
from ...verdicts.verdicts import floor, judge_row
from .search import FigureQuestion

_REPEATS = 5
_VERIFIED = 3  # of the settings that seem to undo a step, so many are measured again
_TOGETHER = 4  # so many of the knobs that help most are set two at a time, if none is enough alone
_ALIKE = 0.02  # latencies that differ by less are the same


class Undoing(Struct, frozen=True):
    """What undoes a step. settings: knobs, None if none was found; median: the figure with them, in the metric's unit; slower: the latency with them
    as a share of that without. tried: how many settings were measured."""

    settings: Mapping[str, str] | None
    tried: int
    median: float = 0.0
    slower: float | None = None


class _Trial(Struct, frozen=True):
    settings: Mapping[str, str]
    values: tuple[float, ...]
    latency: float | None

    @property
    def value(self) -> float:
        return statistics.median(self.values)


def undo(
    suite: Suite, variant: Variant, before: Row, after: Row, question: FigureQuestion, progress: Progress, keep: Keep
) -> Undoing | None:
    """Search for the variant of the newer version's suite. before, after: the rows of both sides. None without a knob to turn.

    Raises what campaign.measure raises."""
    lab = _UndoLab(suite, variant, question, progress, keep)
    alone = [{name: value} for name, values in lab.knobs().items() for value in values]
    if not alone:
        return None
    plain = lab.measured([{}], 1)
    singles = lab.measured(alone, 1)
    tried = len(alone)
    best = lab.verified(singles, before)
    if best is None:
        helping = sorted((trial for trial in singles if trial.value < after.median), key=lambda trial: trial.value)[:_TOGETHER]
        pairs = [
            {**first.settings, **second.settings} for first, second in itertools.combinations(helping, 2) if not _same_knob(first, second)
        ]
        best = lab.verified(lab.measured(pairs, 1), before)
        tried += len(pairs)
    if best is None:
        return Undoing(None, tried)
    usual = plain[0].latency if plain else None
    slower = best.latency / usual if best.latency and usual else None
    return Undoing(best.settings, tried, best.value, slower if slower is None or abs(slower - 1) > _ALIKE else None)


def _same_knob(first: _Trial, second: _Trial) -> bool:
    return set(first.settings) == set(second.settings)


class _UndoLab:
    def __init__(self, suite: Suite, variant: Variant, question: FigureQuestion, progress: Progress, keep: Keep) -> None:
        self._suite, self._variant, self._question, self._progress, self._keep = suite, variant, question, progress, keep

    def knobs(self) -> dict[str, tuple[str, ...]]:
        """The other values of each knob that the variant leaves at its default."""
        order = next(self._orders({}, 1), None)
        if order is None:
            return {}
        values = {knob.name: values_to_try(knob) for knob in order.runtime.knobs if knob.name not in self._variant.set}
        return {name: others for name, others in values.items() if others}

    def _orders(self, settings: Mapping[str, str], repeats: int) -> Iterator[Order]:
        """The orders with these knobs; none if they cannot be set here."""
        name = ", ".join([self._variant.name or self._variant.runtime, *(f"{key}={value}" for key, value in settings.items())])
        candidate = replace(self._variant, name=name, set={**self._variant.set, **settings})
        try:
            orders = plan(replace(self._suite, variants=(candidate,), runtimes=(), repeats=repeats)).orders
        except MemprofError:
            return
        key = self._question.key
        yield from (
            order for order in orders if order.error is None and (order.job.model.name, order.job.threads) == (key.model, key.threads)
        )

    def measured(self, each: Sequence[Mapping[str, str]], repeats: int) -> list[_Trial]:
        """Each of these settings that runs, with its figures."""
        runs: dict[int, list[Run]] = {}
        orders = [(number, order) for number, settings in enumerate(each) for order in self._orders(settings, repeats)]
        for (number, _), run in zip(orders, campaign.measure([order for _, order in orders], self._progress, self._keep), strict=True):
            runs.setdefault(number, []).append(run)
        return [trial for number, own in runs.items() if (trial := self._trial(each[number], own)) is not None]

    def _trial(self, settings: Mapping[str, str], runs: Sequence[Run]) -> _Trial | None:
        wanted = metrics.metric(self._question.metric)
        values = tuple(metrics.values((run for run in runs if run.outcome.ok), self._question.phase, wanted))
        if len(values) < len(runs):
            return None
        times = [metrics.value(run, summary.timed_phase(runs), metrics.METRICS["time_ns"]) for run in runs]
        latency = statistics.median(time for time in times if time is not None) if None not in times else None
        return _Trial(settings, values, latency)

    def verified(self, trials: Sequence[_Trial], before: Row) -> _Trial | None:
        """The fastest of these that fresh repeats find no worse than the older version."""
        question = self._question
        # What the verdict would call alike is ruled out by no single run either.
        most = before.max + floor(question.metric, before.median, question.bound_bytes, question.limits)
        chosen = sorted((trial for trial in trials if trial.value <= most), key=lambda trial: trial.latency or 0.0)[:_VERIFIED]
        for fresh in (fresh for trial in chosen for fresh in self.measured([trial.settings], _REPEATS)):
            row = summary.Row(question.key, question.phase, question.metric, fresh.values, True)
            if judge_row(before, row, question.bound_bytes, question.limits).verdict in ("ok", "improved"):
                return fresh
        return None
