"""The laws of measured places: which of their sizes make a law, the laws side by side, and the same from runs that were kept.

Of processes that ran side by side one run has the sum (records.types.LawSearch). Runs of earlier versions lack it, and make no law.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...base.errors import InputError
from ...programs import runtimes
from ...records.settings import in_a_line
from ...records.types import EXECUTE, PEAK, WARMUP, Job, RequestTrace, Run
from ...subjects.dimensions import OWN, PROCESSES, SESSIONS, THREADS, Dimension
from ..laws import laws
from ..laws.arena import ArenaLaw
from ..laws.laws import Prediction
from ..laws.terms import Coordinates, SizePoint, Term
from .answer import ALL, ANONYMOUS, Named, PlaceRun, Scaled, Within, against, changes, widening
from .arena_requests import Resident, Simulation, planned_again, replayed
from .findings import findings, mapped_again, undecided
from .runs import measured, measured_together, noise

MOST_VARYING = 3  # more take too many runs
_MOST_POINTS = 500  # the search for terms takes seconds with so many
_HIGHEST = 1 << 53  # values are fitted as floating point numbers
_PLANNED_NOISE = (64.0, 1e-6)  # a plan repeats; its tensors are aligned
_FEWEST_PLANNED = 3


def answer(
    job: Job,
    dimensions: Sequence[Dimension],
    points: Sequence[PlaceRun],
    main: str,
    noise: tuple[float, float],
    arena: ArenaLaw | None = None,
    simulation: Simulation | None = None,
) -> Scaled:
    """What the points tell, with nothing beside them. job: of one of the runs. noise: what two runs at a place differ by, in bytes and as a share.
    arena: whose memory it is, where its regions double; simulation: of it, where there is one."""
    ranges = {each.label: (each.low, each.last) for each in dimensions if each.varies}
    names = dict.fromkeys(name for point in points if not point.ended for name in point.sizes)
    ordered = [main, *(name for name in names if name != main)]
    # Memory that exists several times grows with their number: other effects in a few runs of them are chance, such as freed memory that is kept.
    several = all(name in (SESSIONS, PROCESSES) for each in dimensions if each.varies for name in each.names)

    def law(name: str) -> laws.Law | None:
        own = simulated(arena, name, simulation)
        return laws.law(
            series(points, name, main), noise=noise, arena=own, simple=several or (arena is not None and arena.doubles and own is None)
        )

    named = tuple(Named(name, law(name)) for name in ordered)
    made = Scaled(
        model=job.model.name,
        runtime=job.runtime,
        settings=_settings(job, dimensions),
        dimensions=tuple(dimensions),
        points=tuple(points),
        main=main,
        laws=named,
        changes=changes(main, named, ranges),
        threads=None if _has(dimensions, THREADS) else job.threads,
    )
    return replace(made, undecided=undecided(made, noise), mapped_again_bytes=mapped_again(made))


def arena(
    doubles: bool, job: Job, dimensions: Sequence[Dimension], points: Sequence[PlaceRun], simulation: Simulation | None
) -> ArenaLaw | None:
    """Whose memory it is: of an arena whose regions double (`doubles`) with the tensors in it, or of one that is planned. job: of one of the runs."""
    varying = [dimension for dimension in dimensions if dimension.varies]
    names = [name for dimension in varying for name in dimension.names]
    if not doubles:
        # Each session has its own arenas, and other memory beside them.
        beside = tuple(Term(((each.label, 1),)) for each in varying if each.label == SESSIONS)
        return ArenaLaw(doubles=False, beside=beside) if simulation is not None else None
    # Each further session has an arena with tensors of the same sizes, which depend on no dimension.
    if SESSIONS in names or all(name in OWN or name in job.knobs for name in names):
        return None
    plan = planned(points)
    return ArenaLaw(terms=tuple(entry.term for entry in plan.coefficients if entry.term.powers) if plan is not None else ())


def simulated(arena: ArenaLaw | None, name: str, simulation: Simulation | None) -> ArenaLaw | None:
    """The arena as the law of that name knows it: none for phases before any tensor has its size, and simulated where it can be."""
    if arena is None or name not in (WARMUP, EXECUTE, PEAK, ANONYMOUS):
        return None
    if simulation is None:
        return arena
    last = name != WARMUP

    def resident(at: Coordinates) -> Resident:
        return simulation({label: round(value) for label, value in at.items()})

    def size(at: Coordinates) -> float:
        # Far beyond all memory a size is no 64-bit integer, which numpy would not take for a number.
        return float(resident(at).last if last else resident(at).first)

    return replace(arena, size=size, doubt=lambda at: float(resident(at).doubt_bytes))


def of_runs(runs: Sequence[Run]) -> list[Scaled]:
    """The laws of runs that `memprof scale` kept, one for each search: each model, variant, runtime, settings, shapes, dimensions and machine. Other
    runs are left out, and searches in which nothing varied or no place could be measured.

    Raises InputError for more places than a law is sought for.
    """
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        job, places = run.job, [_fixed(label, value) for label, value in run.job.at.items()]
        if not job.at or not all(1 <= value <= _HIGHEST for value in job.at.values()):
            continue
        threads = None if _has(places, THREADS) else job.threads
        asked = (
            job.variant.rpartition(", ")[0],
            job.version,
            job.runtime,
            job.python,
            tuple(sorted(job.variables.items())),
            _settings(job, places),
            threads,
        )
        key = (job.model.sha256, *asked, tuple(job.at), run.machine.name)
        groups.setdefault(key, []).append(run)
    answers = [_of_search(search) for group in groups.values() for search in _by_shapes(group)]
    return [made for made in answers if made is not None]


def _by_shapes(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs apart where their inputs differ by more than the place: an axis that is one of its values in every run is of the place."""
    sizes = [{(name, axis): size for name, shape in run.job.shapes.items() for axis, size in enumerate(shape)} for run in runs]
    of_place = {
        axis
        for axis in sizes[0]
        if any(all(size.get(axis) == run.job.at[label] for size, run in zip(sizes, runs, strict=True)) for label in runs[0].job.at)
    }
    searches: dict[tuple[object, ...], list[Run]] = {}
    for size, run in zip(sizes, runs, strict=True):
        searches.setdefault(tuple(sorted(item for item in size.items() if item[0] not in of_place)), []).append(run)
    return list(searches.values())


def _of_search(runs: Sequence[Run]) -> Scaled | None:
    """None where nothing varies, or no place could be measured."""
    job = runs[0].job
    together = _has([_fixed(label, 1) for label in job.at], PROCESSES)
    seen = _together(runs) if together else [(run, measured(run)) for run in runs]
    points = [replace(point, planned_bytes=_planned_of(run.job), held_out=run.job.verifies) for run, point in seen]
    fitted = [point for point in points if not point.held_out]
    values = {label: [point.at[label] for point in fitted] for label in job.at}
    dimensions = [_range(label, each, runs) for label, each in values.items() if each]
    varying = [dimension.label for dimension in dimensions if dimension.varies]
    if not varying or all(point.ended for point in fitted):
        return None
    if len(varying) > MOST_VARYING or len(points) > _MOST_POINTS:
        raise InputError(
            f"{job.model.name}: a law is sought for {MOST_VARYING} dimensions and {_MOST_POINTS} places at most; here are "
            f"{len(varying)} and {len(points)}"
        )
    points = [replace(point, at={label: point.at[label] for label in varying}) for point in points]
    bounds = noise(runs[-1])
    main = ALL if together else PEAK
    points = of_medians(points, main)
    by_plan = planned(points)
    doubles = runtimes.described(job.runtime).arena_doubles(job.knobs)
    arenas = next((run.search.arenas for run in reversed(runs) if run.search is not None and run.search.arenas is not None), None)
    known: Simulation | None = replayed(_requests(runs, varying), job.runs) if doubles else planned_again(arenas, varying)
    whose = arena(doubles, job, dimensions, points, known)
    made = replace(answer(job, dimensions, points, main, bounds, whose, known), planned=by_plan)
    made = confirmed(replace(made, against=against(made), **_asked(made, runs)))
    return replace(made, findings=findings(made, job.model.weight_bytes or job.model.bytes, [], bounds[0]))


def _range(label: str, values: Sequence[int], runs: Sequence[Run]) -> Dimension:
    """The range of a dimension as the last search had it, so that the values that fit are of its step. The values that were measured, where no
    search kept a range; where another search had more of them, its values on the same step are in the range too."""
    kept = [run.search.ranges[label] for run in runs if run.search is not None and label in run.search.ranges]
    known = [(low, high, step) for low, high, step in kept if 1 <= low <= high <= _HIGHEST and 1 <= step <= _HIGHEST]
    if not known:
        return replace(_fixed(label, min(values)), high=max(values))
    low, high, step = known[-1]
    on_step = [value for value in values if (value - low) % step == 0]
    return replace(_fixed(label, min([low, *on_step])), high=max([high, *on_step]), step=step)


def _together(runs: Sequence[Run]) -> list[tuple[Run, PlaceRun]]:
    """A point for the processes of each place, with one of their runs. A place that was measured again is the last time's."""
    places: dict[tuple[int, ...], list[Run]] = {}
    for run in runs:
        places.setdefault((run.job.verifies, *run.job.at.values()), []).append(run)
    points = [(each[0], measured_together(each)) for each in places.values()]
    return [(run, point) for run, point in points if point is not None]


def _requests(runs: Sequence[Run], labels: Sequence[str]) -> RequestTrace | None:
    """What was recorded last of the requests at places of these labels."""
    every = [run.search.requests for run in runs if run.search is not None and run.search.requests is not None]
    return next((known for known in reversed(every) if all(set(asked.at) == set(labels) for asked in known.places)), None)


def _asked(made: Scaled, runs: Sequence[Run]) -> dict[str, Any]:
    """What the searches were asked beside the law: all predictions, and the last limit."""
    searches = [run.search for run in runs if run.search is not None]
    labels = [dimension.label for dimension in made.varying]
    asked = [at for search in searches for at in search.predictions if all(1 <= at.get(label, 0) <= _HIGHEST for label in labels)]
    places = {tuple(at[label] for label in labels): {label: at[label] for label in labels} for at in asked}
    limits = [search.within_bytes for search in searches if 1 <= (search.within_bytes or 0) <= _HIGHEST]
    return {"predictions": tuple(made.predict(list(places.values()))), "within_bytes": limits[-1] if limits else None}


def within(made: Scaled) -> tuple[Within, ...]:
    """The largest value of each dimension within the limit, with the others at each end of their ranges; none without a limit or a law."""
    if made.within_bytes is None or made.law is None:
        return ()
    rows: list[Within] = []
    ranges = {each.label: (each.low, each.last) for each in made.varying}
    dimensions = {each.label: each for each in made.varying}
    for label, (low, _) in ranges.items():
        others = {name: ends for name, ends in ranges.items() if name != label}
        for fixed in itertools.product(*others.values()):
            at = dict(zip(others, fixed, strict=True))
            fit = _largest(made, label, at, low, dimensions[label].step)
            there = [point for point in made.points if point.refused and not point.held_out and point.at == {**at, label: point.at[label]}]
            refused = min((point.at[label] for point in there), default=None)
            if refused is not None and low < refused <= (fit[0] or 0):
                below = replace(dimensions[label], high=refused - 1).last
                value, surely, possibly = (None if each is None else min(each, below) for each in fit)
                rows.append(Within(label, at, value, surely, below if possibly is None else possibly, refused=refused))
            else:
                rows.append(Within(label, at, *fit))
    return tuple(replace(row, most=_most(made, row)) for row in rows)


def _largest(made: Scaled, label: str, others: Mapping[str, int], low: int, step: int) -> tuple[int | None, int | None, int | None]:
    """As `laws.largest`. The value that fits as predicted stays one where a run there had too much, which the row says beside it; a run at a smaller
    value that had too much makes it smaller."""
    limit = made.within_bytes or 0
    confirmed = _confirmed_values(made, label, others)

    def between(places: Sequence[Coordinates]) -> list[Prediction]:
        return [replace(known, bytes=own.bytes) for known, own in zip(made.expect(places), made.predict(places), strict=True)]

    fit = laws.largest(between if confirmed else made.predict, label, others, limit, low, step, list(confirmed))
    if any(size > limit and value < (fit[0] or 0) for value, size in confirmed.items()):
        return laws.largest(made.expect, label, others, limit, low, step, list(confirmed))
    return fit


def _confirmed_values(made: Scaled, label: str, others: Mapping[str, int]) -> dict[int, int]:
    """The confirmed sizes by the value of a dimension, with the others as they are here."""
    return {
        point.at[label]: point.most_bytes(made.main)
        for point in made.confirmations
        if all(point.at[name] == others[name] for name in others)
    }


def _most(made: Scaled, row: Within) -> Prediction | None:
    """See Within."""
    if row.bound is None:
        return None
    dimension = next(each for each in made.varying if each.label == row.dimension)
    end = row.bound_place(made.varying)[row.dimension]
    confirmed = list(_confirmed_values(made, row.dimension, row.others))
    refuted = [point.at for point, _ in made.refutations]

    def ends(places: Sequence[Coordinates]) -> list[Prediction]:
        """As predicted: a place beside a confirmed one is not more likely to need most. A refuted prediction is none."""
        own = made.predict(places)
        return [known if prediction.at in refuted else prediction for known, prediction in zip(made.expect(places), own, strict=True)]

    most = laws.highest(ends if refuted else made.predict, row.dimension, row.others, dimension.low, end, dimension.step, confirmed)
    return made.expect([most.at])[0]


def of_medians(points: Sequence[PlaceRun], main: str) -> list[PlaceRun]:
    """The points, the median of each place, and of each that no law was fitted to: a runtime's memory may come in modes, and a run meets one of
    them. A run that ended early counts where no other was made there."""
    places: dict[tuple[object, ...], list[PlaceRun]] = {}
    for point in points:
        places.setdefault((point.held_out, *point.at.values()), []).append(point)
    kept = []
    for every in places.values():
        runs = [point for point in every if not point.ended]
        if len(runs) < 2:
            kept += runs or every
        else:
            middle = sorted(runs, key=lambda point: point.sizes[main])[(len(runs) - 1) // 2]
            kept.append(replace(middle, again=tuple(point.sizes[main] for point in runs)))
    return kept


def confirmed(made: Scaled) -> Scaled:
    """The answer with what was measured after its law was found: the intervals hold these sizes, and the values that fit are found with them, with
    what was measured at the largest."""
    made = replace(made, widened=widening(made))
    made = replace(made, predictions=tuple(made.predict([prediction.at for prediction in made.predictions])), within=within(made))
    labels = [dimension.label for dimension in made.varying]
    seen = {tuple(point.at[label] for label in labels): point for point in made.points if point.held_out}
    points = [seen.get(tuple(row.place(labels).values())) for row in made.within]
    rows = [
        row if point is None else replace(row, confirmed_bytes=point.sizes.get(made.main), ended=point.ended or "")
        for row, point in zip(made.within, points, strict=True)
    ]
    return replace(made, within=tuple(rows))


def planned(points: Sequence[PlaceRun]) -> laws.Law | None:
    """The law of the planner's own peak at the places that a law is fitted to, None where too few of them have a plan."""
    sizes = [SizePoint(point.at, point.planned_bytes) for point in points if point.planned_bytes and not point.held_out]
    return laws.law(sizes, noise=_PLANNED_NOISE) if len(sizes) >= _FEWEST_PLANNED else None


def _planned_of(job: Job) -> int | None:
    return job.planned_bytes if 1 <= (job.planned_bytes or 0) <= _HIGHEST else None


def _fixed(label: str, value: int) -> Dimension:
    return Dimension(tuple(label.split("=")), value, value)


def _settings(job: Job, dimensions: Sequence[Dimension]) -> str:
    """The knobs that are the same at all places."""
    return in_a_line({name: value for name, value in job.knobs.items() if not _has(dimensions, name)})


def _has(dimensions: Sequence[Dimension], name: str) -> bool:
    return any(name in dimension.names for dimension in dimensions)


def series(points: Sequence[PlaceRun], name: str, main: str) -> list[SizePoint]:
    """The points of one law. A run that died for lack of memory bounds the main figure, and the phase in which it died."""
    return [
        SizePoint(point.at, point.sizes[name], point.least and name in (main, _last(point)))
        for point in points
        if name in point.sizes and not point.held_out and (not point.ended or point.least)
    ]


def _last(point: PlaceRun) -> str:
    """The phase in which a run died."""
    return (point.ended or "").rpartition(" in ")[2]
