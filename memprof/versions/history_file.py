"""The points of a history as lines, one for each variant, phase and metric on machines that are alike, and what changed them, commit by commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ..base.errors import InputError, UsageError
from ..records import metrics, settings, summary
from ..records.summary import Key, VariantKey
from ..records.types import PEAK, Machine
from ..verdicts import steps
from ..verdicts.steps import LevelStep
from . import commits
from .commits import Commit
from .history_folder import FolderPoints
from .series import CommitEntry, CommitPoint


class MetricLine(Struct, frozen=True):
    """A metric in a phase of a variant, over the commits that have it. machine: the number of its kind of machine; places: the commits' places in
    the history's order; samples: the repeats of each."""

    key: Key
    phase: str
    metric: str
    machine: int
    places: tuple[int, ...]
    samples: tuple[tuple[float, ...], ...]
    steps: tuple[LevelStep, ...] = ()


class Hit(Struct, frozen=True):
    """A step of a line, with the places of its commits: it lies after `after` and at `at` at the latest. until: where an opposite step undoes it."""

    line: MetricLine
    step: LevelStep
    after: int
    at: int
    until: int | None


class SharedStep(Struct, frozen=True):
    """All steps of one kind of machine between the same two commits: one cause. The first hit is the one to name.

    phase: the first phase that moved in that hit's variant. also: the other changes there, briefly.
    """

    hits: tuple[Hit, ...]
    phase: str
    also: tuple[str, ...] = ()

    @property
    def head(self) -> Hit:
        """The hit to name."""
        return self.hits[0]

    @property
    def variants(self) -> tuple[str, ...]:
        """The models and variants that it hit."""
        return tuple(dict.fromkeys(hit.line.key.label for hit in self.hits))


class History(Struct, frozen=True):
    """A folder's content in order. commits: the oldest first. machines: a description of each kind of machine, as first seen."""

    commits: tuple[Commit, ...]
    machines: tuple[Machine, ...]
    lines: tuple[MetricLine, ...]
    changes: tuple[SharedStep, ...]
    failures: Mapping[tuple[int, str], str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def read(
    loaded: FolderPoints,
    root: Path | None,
    names: Sequence[str] = (),
    until: int | None = None,
    find: Callable[..., tuple[LevelStep, ...]] = steps.find,
) -> History:
    """The history of these points. names: the metrics, all if empty; until: leave out the newest commits from this place on. find: a function
    of memprof.verdicts.steps that finds the steps of a line.

    Raises InputError if no commit is left, UsageError if a metric is in no point.
    """
    known = loaded.commits
    order = commits.ordered(known.values(), root)
    if not order.order:
        raise InputError(f"no commit of this history is in the repository's: {'; '.join(order.remarks)}")
    line = order.order[:until]
    places = {name: place for place, name in enumerate(line)}
    used = sorted(
        ((places[point.commit.hash], path, point) for path, point in loaded.points.items() if point.commit.hash in places),
        key=lambda entry: entry[:2],
    )
    machines, kinds = _machines(point for _, _, point in used)
    lines = [with_steps(line, machines, find) for line in _lines(((place, kinds[point.machine], point) for place, _, point in used), names)]
    for name in names:
        if not any(known.metric == name for known in lines):
            raise UsageError(f"--metric {name}: no commit of this history has it; memprof history add --metric {name} keeps it")
    entries = {(place, kinds[point.machine], entry.place): entry for place, _, point in used for entry in point.entries}
    failures = {
        (place, entry.place.label): summary.failures(entry.failed, entry.runs, entry.failure)
        for place, _, point in used
        for entry in point.entries
        if entry.failed
    }
    return History(
        tuple(known[name] for name in line),
        machines,
        tuple(lines),
        _changes(lines, entries),
        failures,
        (*order.remarks, *_machine_remarks(machines, used, kinds, known)),
    )


def _machines(all_points: Iterable[CommitPoint]) -> tuple[tuple[Machine, ...], dict[Machine, int]]:
    """The kinds of machines, and each machine's: figures of one kind are comparable."""
    kinds: list[Machine] = []
    numbers: dict[Machine, int] = {}
    for point in all_points:
        if point.machine not in numbers:
            alike = next((number for number, kind in enumerate(kinds) if settings.other_machine(kind, point.machine) is None), None)
            numbers[point.machine] = len(kinds) if alike is None else alike
            if alike is None:
                kinds.append(point.machine)
    return tuple(kinds), numbers


def _machine_remarks(
    machines: Sequence[Machine], used: Sequence[tuple[int, Path, CommitPoint]], kinds: Mapping[Machine, int], known: Mapping[str, Commit]
) -> list[str]:
    remarks = []
    for number in range(1, len(machines)):
        first = next(point for _, _, point in used if kinds[point.machine] == number)
        differs = settings.other_machine(machines[0], machines[number])
        remarks.append(
            f"{known[first.commit.hash].short} is the first commit of another machine ({differs}): figures of the two are not compared"
        )
    return remarks


def _lines(placed: Iterable[tuple[int, int, CommitPoint]], names: Sequence[str]) -> list[MetricLine]:
    samples: dict[tuple[VariantKey, str, str, int], dict[int, tuple[float, ...]]] = {}
    points = list(placed)
    for place, kind, point in points:
        for entry in point.entries:
            measured = entry.place
            for row in entry.rows:
                if not names or row.metric in names:
                    line = samples.setdefault((measured, row.phase, row.metric, kind), {})
                    line[place] = line[place] + row.values if place in line else row.values
    courses = [[row.phase for row in entry.rows if row.phase != PEAK] for _, _, point in points for entry in point.entries]
    order = {phase: number for number, phase in enumerate([PEAK, *summary.merged(courses)])}
    lines = [
        MetricLine(measured.on(""), phase, metric, kind, tuple(values), tuple(values.values()))
        for (measured, phase, metric, kind), values in samples.items()
    ]
    return sorted(
        lines, key=lambda line: (line.key.model, line.key.heading, line.key.threads or 0, line.machine, line.metric, order[line.phase])
    )


def with_steps(line: MetricLine, machines: Sequence[Machine], find: Callable[..., tuple[LevelStep, ...]] = steps.find) -> MetricLine:
    """The line with its steps."""
    bound = machines[line.machine].peak_bound_bytes if line.metric in metrics.HIGH_WATER_MARKS else 0
    return replace(line, steps=find(line.samples, max(bound, _least(line.metric))))


def _least(metric: str) -> float:
    """The smallest step that is reported of a metric other than a peak: pages come and go, and a clock ticks."""
    return {metrics.BYTES: 256 << 10, metrics.NS: 1000, metrics.COUNT: 1}[metrics.METRICS[metric].unit]


def _changes(lines: Iterable[MetricLine], entries: Mapping[tuple[int, int, VariantKey], CommitEntry]) -> tuple[SharedStep, ...]:
    groups: dict[tuple[int, int], list[Hit]] = {}
    for line in lines:
        for step in line.steps:
            until = None if step.until is None else line.places[step.until]
            hit = Hit(line, step, line.places[step.at - 1], line.places[step.at], until)
            groups.setdefault((hit.at, line.machine), []).append(hit)
    return tuple(_change(groups[place], entries) for place in sorted(groups))


def _change(hits: Sequence[Hit], entries: Mapping[tuple[int, int, VariantKey], CommitEntry]) -> SharedStep:
    # What most people look at comes first: a peak of the whole run, then memory, then the rest; among these the largest.
    def rank(hit: Hit) -> tuple[bool, bool, float]:
        memory = metrics.METRICS[hit.line.metric].unit == metrics.BYTES
        return hit.line.phase != PEAK, not memory, -abs(hit.step.share or 0)

    ordered = sorted(hits, key=rank)
    head = ordered[0]
    large = {hit.line.phase for hit in hits if hit.line.key == head.line.key and abs(hit.step.size) >= abs(head.step.size) / 2} - {PEAK}
    before, after = (entries.get((place, head.line.machine, head.line.key.place)) for place in (head.after, head.at))
    first = next((row.phase for row in (after.rows if after else ()) if row.phase in large), head.line.phase)
    return SharedStep(tuple(ordered), first, _also(before, after))


def _also(before: CommitEntry | None, after: CommitEntry | None) -> tuple[str, ...]:
    """Other changes between two entries: `numpy 1.26 → 2.0`."""
    if before is None or after is None:
        return ()
    return settings.changes(before.settings, after.settings, after.model, before.sha256 == after.sha256)


class Checked(Struct, frozen=True):
    """What the newest commit brings to light. news: changes that are not seen without it. failing: variants that failed there and not before."""

    history: History
    news: tuple[SharedStep, ...]
    failing: tuple[str, ...]
    enough: bool

    @property
    def worse(self) -> tuple[SharedStep, ...]:
        """The news that are for the worse."""
        return tuple(change for change in self.news if any(hit.step.size > 0 and not hit.step.undoes for hit in change.hits))


_NEAR = 2


def _row_of(hit: Hit) -> tuple[object, ...]:
    """What a step is of, on whatever machine, and its direction."""
    key, line = hit.line.key, hit.line
    return key.place, line.phase, line.metric, hit.step.size > 0


def check(loaded: FolderPoints, root: Path | None, names: Sequence[str] = ()) -> Checked:
    """Whether the newest commit shows a step that the history without it does not: at that commit, or before it and now certain."""
    now = read(loaded, root, names)
    newest = len(now.commits) - 1
    kinds = {line.machine for line in now.lines if newest in line.places}
    enough = any(len(line.places) > 1 for line in now.lines if newest in line.places)
    known: dict[tuple[object, ...], list[int]] = {}
    if newest:
        for change in read(loaded, root, names, until=newest).changes:
            for hit in change.hits:
                known.setdefault(_row_of(hit), []).append(hit.at)

    def new(hit: Hit) -> bool:
        # Another kind of machine that measures fewer commits sees the same step between commits that lie further apart.
        return not any(hit.after + 1 - _NEAR <= at <= hit.at + _NEAR for at in known.get(_row_of(hit), ()))

    news = tuple(change for change in now.changes if change.head.line.machine in kinds and any(map(new, change.hits)))
    before = {variant for place, variant in now.failures if place < newest}
    failing = tuple(f"{variant}: {words}" for (place, variant), words in now.failures.items() if place == newest and variant not in before)
    return Checked(now, news, failing, enough)


def surplus(loaded: FolderPoints, root: Path | None, gone: bool, keep: int | None) -> list[Path]:
    """The files of commits that are gone, and of all but the newest `keep` of the others. Commits of other branches are left alone.

    Raises InputError if all would be gone: more likely the repository is another.
    """
    order = commits.ordered(loaded.commits.values(), root)
    if gone and not order.known:
        raise InputError("--gone: git knows none of these commits here, so this may be another repository; nothing is removed")
    away = set(order.gone) if gone else set()
    if keep is not None:
        away.update(order.order[:-keep])
    return [path for path, point in loaded.points.items() if point.commit.hash in away]
