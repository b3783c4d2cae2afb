"""Two sets of Runs -> how each metric differs in each phase, and whether that is more than noise.

A difference is beyond noise if all of these hold: both sides have five repeats or more, the difference is larger than the peaks' error bound,
and a rank test of both sides rejects equality at 0.01. Rows of several interchangeable machines are tested machine by machine (see spread).
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from ..base.errors import InputError, UndecidedError, UsageError, there_are
from ..base.units import counted, format_bytes
from ..records import metrics, settings, summary
from ..records.modes import middles
from ..records.summary import Key, PeakPhases, Row, VariantKey
from ..records.types import PEAK, Run
from . import input_files, machine_spread
from .ranks import ALPHA, LEAST_REPEATS, bootstrap, two_sided_p

Verdict = Literal["more", "less", "noise", "too few"]
_LEAST_APART = 3  # values a side
Baselines = tuple[tuple[float, ...], tuple[float, ...]]


class Difference(Struct, frozen=True):
    """A metric in a phase on both sides.

    difference is head's median less base's, in the metric's unit; ratio is head's over base's, None where base's is 0; interval is the 95%
    confidence interval of the difference, by bootstrap. verdict: more or less are beyond noise.
    """

    key: Key
    phase: str
    metric: str
    base: Row
    head: Row
    difference: float
    ratio: float | None
    interval: tuple[float, float]
    verdict: Verdict


class Ground(Struct, frozen=True):
    """What both sides have below the model: versions and baselines.

    versions: those that differ beside the runtime's (see settings.beside_runtime); alone: nothing else differs. baselines: base's and head's in
    bytes, of a side in modes each of them; None where a side has none.
    """

    versions: tuple[str, ...] = ()
    alone: bool = False
    baselines: Baselines | None = None


class Comparison(Struct, frozen=True):
    """All differences, the variants that only one side has, and sentences for the user.

    grounds, peak_phases: of each variant that both sides have; peak_phases: where base's and head's PEAK is. ran: a run of each of them, for the
    shapes of its inputs, by side (see memprof.verdicts.input_files). measured: a run of each variant and side, for its versions and machine.
    """

    differences: tuple[Difference, ...]
    only_base: tuple[Key, ...]
    only_head: tuple[Key, ...]
    remarks: tuple[str, ...]
    grounds: Mapping[VariantKey, Ground] = field(default_factory=dict)
    peak_phases: Mapping[VariantKey, tuple[PeakPhases, PeakPhases]] = field(default_factory=dict)
    ran: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    measured: tuple[Run, ...] = ()

    @property
    def phases(self) -> list[str]:
        """All phases that differ or not, in the order in which they ran."""
        courses: dict[Key, list[str]] = {}
        for difference in self.differences:
            courses.setdefault(difference.key, []).append(difference.phase)
        return summary.merged(courses.values())

    def geometric_means(self) -> dict[tuple[str, str], float]:
        """The geometric mean of the ratios over models, variants and threads, by metric and phase."""
        ratios: dict[tuple[str, str], list[float]] = {}
        for difference in self.differences:
            if difference.ratio and difference.ratio > 0:
                ratios.setdefault((difference.metric, difference.phase), []).append(difference.ratio)
        return {row: math.exp(statistics.fmean(map(math.log, values))) for row, values in ratios.items()}


def compare(
    base: Sequence[Run], head: Sequence[Run], names: Sequence[str] = metrics.DEFAULT_METRICS, across_machines: bool = False
) -> Comparison:
    """Compare two sets of Runs by model, variant and thread count.

    Raises InputError if they have nothing in common, or if a side has a row from several machines;
    UndecidedError if the sides come from different machines, unless across_machines is set.
    """
    sides = [{key.place: group for key, group in summary.groups_of_one_machine(runs).items()} for runs in (base, head)]
    return _compare(sides[0], sides[1], names, across_machines)


def compare_variants(
    runs: Sequence[Run], base: str, head: str, names: Sequence[str] = metrics.DEFAULT_METRICS, across_machines: bool = False
) -> Comparison:
    """Compare two variants of one set of Runs, by model and thread count. Raises UsageError for an unknown variant, and as `compare` does."""
    groups = summary.groups_of_one_machine(runs)
    variants = list(dict.fromkeys(key.heading for key in groups))
    for name in (base, head):
        if name not in variants:
            raise UsageError(f"there is no variant {name!r}; {there_are(variants, '; ')}")
    both = f"{base} → {head}"
    # The first of several programs without a model gave all of them its name, and a pair of them is more than that one.
    of_programs = {key.model for key, group in groups.items() if _names_program(group)}
    sides = [dict[VariantKey, list[Run]](), dict[VariantKey, list[Run]]()]
    for key, group in groups.items():
        place = VariantKey(both if key.model in of_programs else key.model, both, key.threads)
        for name, side in zip((base, head), sides, strict=True):
            if key.heading == name:
                side[place] = group
    return _compare(sides[0], sides[1], names, across_machines)


def _names_program(group: Sequence[Run]) -> bool:
    """Whether the model of these runs is the program's own name."""
    return any(_is_program(run) and os.path.basename(run.job.argv[0]) == run.job.model.name for run in group)


def _is_program(run: Run) -> bool:
    """Whether a program without a model was measured: its file stands where a model's would."""
    return bool(run.job.program and run.job.argv) and not run.job.model.files


def _compare(
    base: dict[VariantKey, list[Run]], head: dict[VariantKey, list[Run]], names: Sequence[str], across_machines: bool
) -> Comparison:
    common = [place for place in base if place in head]
    if not common:
        raise InputError("the two sides have no model and variant in common")
    for place in [] if across_machines else common:
        differs = settings.other_machine(base[place][0].machine, head[place][0].machine)
        if differs is not None:
            raise UndecidedError(
                f"{place.label}: the sides come from different machines ({differs}); --across-machines compares them all the same"
            )
    differences = [difference for place in common for difference in _differences(place, base[place], head[place], names)]
    swapped = [row for row in differences if row.base.swapped or row.head.swapped]
    return Comparison(
        tuple(differences),
        tuple(place.on(base[place][0].machine.name) for place in base if place not in head),
        tuple(place.on(head[place][0].machine.name) for place in head if place not in base),
        (
            *_ways(base, head),
            *_phase_remarks(common, base, head),
            *_swap_remarks(swapped),
            *machine_spread.deviating([run for side in (base, head) for group in side.values() for run in group]),
            *_remarks([run for group in base.values() for run in group], [run for group in head.values() for run in group]),
        ),
        {place: ground(base[place], head[place]) for place in common},
        {place: (summary.peak_phases(base[place]), summary.peak_phases(head[place])) for place in common},
        input_files.of_sides(base, {place: head[place] for place in common}),
        tuple(next((run for run in side[place] if run.about), side[place][0]) for side in (base, head) for place in common),
    )


def _differences(place: VariantKey, base: Sequence[Run], head: Sequence[Run], names: Sequence[str]) -> Iterable[Difference]:
    bound = max(run.machine.peak_bound_bytes for run in (*base, *head))
    after = {(row.phase, row.metric): row for row in summary.summarise(head, names)}
    for row in summary.summarise(base, names):
        other = after.get((row.phase, row.metric))
        if other is not None:
            yield _difference(place.on(row.key.machine), summary.whole(row), summary.whole(other), bound)


def ground(base: Sequence[Run], head: Sequence[Run]) -> Ground:
    """What lies below the model in two groups of repeats, each of one variant."""
    peak = metrics.METRICS["rss_peak_bytes"]
    baselines = _baselines(base, peak), _baselines(head, peak)
    return ground_of(settings.of_repeats(base), settings.of_repeats(head), baselines if all(baselines) else None)


def _baselines(runs: Sequence[Run], peak: metrics.Metric) -> tuple[float, ...]:
    sizes = [size for run in runs if (size := metrics.baseline(run, peak)) is not None]
    if len({run.machine.name for run in runs}) > 1:  # different machines are no modes
        return (statistics.median(sizes),) if sizes else ()
    return middles(sizes, metrics.BYTES) if sizes else ()


def ground_of(before: Mapping[str, str], after: Mapping[str, str], baselines: Baselines | None) -> Ground:
    """The same of settings (see settings.of_repeats) and baselines."""
    versions = settings.beside_runtime(before, after)
    return Ground(versions, len(versions) == len(list(settings.differing(before, after))), baselines)


def compare_groups(base: Sequence[Run], head: Sequence[Run], names: Sequence[str]) -> list[Difference]:
    """The differences between two groups of repeats, each of one variant, whichever these are, under the key of head's."""
    return list(_differences(summary.key(head[0]).place, base, head, names))


def _difference(key: Key, base: Row, head: Row, bound: int) -> Difference:
    return Difference(
        key=key,
        phase=base.phase,
        metric=base.metric,
        base=base,
        head=head,
        difference=head.median - base.median,
        ratio=head.median / base.median if base.median else None,
        interval=bootstrap(base.values, head.values),
        verdict=_verdict(base, head, bound if base.metric in metrics.HIGH_WATER_MARKS else 0),
    )


def _verdict(base: Row, head: Row, bound: int) -> Verdict:
    machines = machine_spread.sides(base, head)
    if machines is not None:
        if machines.too_few:
            return "too few"
        if abs(machines.difference) <= bound or 2 * min(machines.p, machines.turned.p) > ALPHA:
            return "noise"
        return "more" if machines.difference > 0 else "less"
    return verdict_of(base.values, head.values, bound)


def verdict_of(base: Sequence[float], head: Sequence[float], bound: float = 0) -> Verdict:
    """Whether head's values are more than base's beyond noise, of one machine and neither empty. bound: the most that both may differ by and be the
    same."""
    difference = statistics.median(head) - statistics.median(base)
    if min(len(base), len(head)) < LEAST_REPEATS:
        return "too few"
    if difference == 0 or abs(difference) <= bound or two_sided_p(base, head) > ALPHA:
        return "noise"
    return "more" if difference > 0 else "less"


def verdict_of_times(base: Sequence[float], head: Sequence[float]) -> Verdict:
    """The same of times, which have no modes, and which a search measures too seldom for a rank test: three or four values a side are beyond noise
    where the gap between the sides is wider than either of them.

    Of 400,000 simulated pairs of equal sides that was so in 0.8% with three values a side and 0.06% with four, of normal values; of log-normal ones
    (sigma 0.5) and of Student's t with three degrees of freedom in less. With two it was so in 9%.
    """
    gap = max(min(head) - max(base), min(base) - max(head))
    if _LEAST_APART <= min(len(base), len(head)) < LEAST_REPEATS and gap > max(max(side) - min(side) for side in (base, head)):
        return "more" if min(head) > max(base) else "less"
    return verdict_of(base, head)


def _ways(base: dict[VariantKey, list[Run]], head: dict[VariantKey, list[Run]]) -> list[str]:
    """Differences between the sides besides their figures: where they ran, and how."""
    pairs = [(place.label, _way(base[place]), _way(head[place])) for place in base if place in head]
    surroundings, asked = settings.difference_remarks(pairs)
    return [*surroundings, *asked]


def _phase_remarks(
    common: Iterable[VariantKey], base: Mapping[VariantKey, Sequence[Run]], head: Mapping[VariantKey, Sequence[Run]]
) -> Iterator[str]:
    """A sentence for each side of a variant that has phases which the other lacks: no row compares these."""
    for place in common:
        before, after = _heights(base[place]), _heights(head[place])
        for name, own, other in (("base", before, after), ("head", after, before)):
            only = [f"{phase} (RSS peak {format_bytes(size)})" for phase, size in own.items() if phase not in other]
            if only and other:
                yield f"{place.label}: only the {name} has {', '.join(only)}"


def _heights(runs: Sequence[Run]) -> dict[str, float]:
    """The median peak of each phase, in bytes."""
    return {row.phase: row.median for row in summary.summarise(runs, ("rss_peak_bytes",)) if row.phase != PEAK}


def _swap_remarks(rows: Sequence[Difference]) -> list[str]:
    """A sentence for each metric in whose rows swapped-out pages were added."""
    remarks = []
    for name in dict.fromkeys(row.metric for row in rows):
        phases = dict.fromkeys(row.phase for row in rows if row.metric == name)
        most = max(max(row.base.swapped, row.head.swapped) for row in rows if row.metric == name)
        remarks.append(f"{name} of {', '.join(phases)}: with swapped-out pages, {format_bytes(most)} at most, which RSS lacks")
    return remarks


def _way(runs: Sequence[Run]) -> dict[str, str]:
    return {**settings.of_machine(runs[0].machine), **settings.of_repeats(runs)}


def _remarks(base: Sequence[Run], head: Sequence[Run]) -> list[str]:
    models = [{(run.job.model.name, run.job.model.sha256) for run in runs if not _is_program(run)} for runs in (base, head)]
    changed = sorted({name for name, _ in models[0] ^ models[1]} & {name for name, _ in models[0]} & {name for name, _ in models[1]})
    remarks = [f"{name} is not the same file on both sides" for name in changed]
    failed = [sum(not run.outcome.ok for run in runs) for runs in (base, head)]
    if any(failed):
        remarks.append(
            f"{counted(failed[0], 'run')} of the base and {failed[1]} of the head failed; they count in the phases they finished"
        )
    return remarks
