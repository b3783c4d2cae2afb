"""Tables of a comparison, from Runs. The style chooses rows and columns:

    phases    for each model one table per metric, one row per variant, one column per phase
    models    one table per metric, one row per model, one column per variant, in one phase
    threads   for each model one table per metric, one row per variant, one column per thread count, in one phase
    swap      for each kind of memory MIN, AVR and MAX over the run or a window of it, one column per model and variant (swap.py)
    load      for each model one row per variant: the memory of MODEL_LOAD, and the times of MODEL_LOAD and PREPARE (load.py)

A cell is a statistic over the repeats, by default the median; ± is the distance from it to the farthest repeat. ~ marks a value that is not exact,
≥ a resident set that lacks swapped-out pages; the peak of RSS and swap then stands beside the peak of RSS. If a variant failed, the cell of
the phase says how, and a note below says why.
"""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from memprof.base.errors import InputError, UsageError
from memprof.base.terminal_text import harmless
from memprof.base.units import format_duration, listed, parse_bytes
from memprof.records import metrics, summary, work
from memprof.records.metrics import BYTES, NS, Metric
from memprof.records.modes import middle
from memprof.records.store import units_done
from memprof.records.summary import Key
from memprof.records.types import EXECUTE, PEAK, RELEASE, STARTUP, WARMUP, Run
from memprof.verdicts.machine_spread import deviating

from .. import modes, ran, run_rows
from ..rows import BASELINE, by_model, columns, label_names, labels, named, named_with_models, phase_of, whole_programs
from ..soundness import sound
from . import commands, control_group, devices, grid, headline, load, missing, native, release, swap, tokens
from .grid import Section, TextTable, Unit

STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": statistics.fmean,
    "median": statistics.median,
    "max": max,
    "geomean": metrics.geometric_mean,
    "p90": lambda values: metrics.percentile(values, 0.9),
}
# The metrics that most people look at first.
BRIEF = ("rss_peak_bytes",)
_MOST_LATENCIES = 8  # that a note of it names
STAYS = "stays"  # a column of the brief table
Groups = dict[Key, list[Run]]


def render(
    runs: Sequence[Run],
    names: Sequence[str] = (),
    *,
    style: str = "phases",
    format: str = "markdown",
    stat: str = "median",
    unit: str | None = None,
    phase: str | None = None,
    above_baseline: bool = False,
    window: str | None = None,
    brief: bool = False,
) -> str:
    """The tables of these runs as text.

    names: metrics; none for the style's. stat: a name in STATISTICS. unit: for bytes; None for the unit that suits each table. phase: for the
    styles models and threads; None for PEAK with RSS peaks, and EXECUTE with other metrics. window: for the style swap. brief: only the peaks and
    what stays after RELEASE if no metric is named. Markdown of the style phases begins with a sentence if no metric is
    named. CSV and JSON have one row per run and phase, as run_rows.py has it, and heed only the names; JSON of the style swap has the figures of
    its tables. Raises UsageError, and InputError where a run has figures that no machine has.
    """
    sound(runs)
    if format == "json" and style == "swap":
        return swap.as_json(summary.groups(runs), swap.window(window))
    if format in ("csv", "json"):
        return _plain(runs, names, format)
    runs = whole_programs(runs)
    brief = brief and not names
    wanted = [metrics.metric(name) for name in (BRIEF if brief else names)]
    tables = ReportTables(stat, unit, above_baseline)
    models = [_by_machine(group) for group in by_model(runs).values()]
    styles: dict[str, Callable[[], list[Section]]] = {
        "phases": lambda: [tables.by_phase(group, wanted, brief) for group in models],
        "threads": lambda: [tables.by_threads(group, wanted, phase) for group in models],
        "models": lambda: [tables.by_model(runs, wanted, phase)],
        "load": lambda: [tables.load(group) for group in models],
        "swap": lambda: [tables.swap(runs, swap.window(window))],
    }
    parts = styles[style]()
    if format == "html":
        return grid.html(parts)
    say = grid.say_in(format)
    first = headline.of_runs(runs) if style == "phases" and not names else ""
    texts = [say(first), *(grid.laid_out(section, say) for section in parts), say(headline.origin(runs))]
    return "\n\n".join(text for text in texts if text)


def _plain(runs: Sequence[Run], names: Sequence[str], format: str) -> str:
    columns = [*run_rows.KEYS, *(metrics.metric(name).name for name in names)] if names else run_rows.COLUMNS
    rows = [(run, place, row) for run in runs for place, row in enumerate(run_rows.rows(run))]
    if format == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *([_cell(row.get(name)) for name in columns] for _, _, row in rows)])
        return text.getvalue().rstrip("\n")
    kept = [
        {**{name: row[name] for name in columns if row.get(name) is not None}, **({} if names else commands.beside(run, place))}
        for run, place, row in rows
    ]
    return json.dumps(kept, indent=1)


def _cell(cell: Any) -> Any:
    """A cell of text that no spreadsheet takes for a formula and no terminal for a command."""
    if not isinstance(cell, str):
        return cell
    text = harmless(cell)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


_STAYS_NOTE = f"{STAYS}: RSS above the baseline once the runtime was deleted"


class ReportTables(Struct, frozen=True):
    """The choices that all tables of one report share: a name in STATISTICS, a unit for bytes, and whether memory is shown above the baseline."""

    stat: str = "median"
    unit: str | None = None
    above: bool = False

    # -- styles

    def by_phase(self, runs: Sequence[Run], wanted: Sequence[Metric], stays: bool) -> Section:
        groups = summary.groups(runs)
        tables = []
        # If no run came past the baseline, one table shows it as well as eight.
        usual = metrics.DEFAULT_METRICS if any(mark.phase != STARTUP for run in runs for mark in run.marks) else ("rss_peak_bytes",)
        shown = _beside_swap(wanted or [metrics.METRICS[name] for name in usual], runs)
        for metric in shown:
            tables += self.of_metric(metric, groups, stays)
        if not wanted or stays:
            tables += devices.tables(groups, self.unit)[: 1 if stays else None]  # of the brief tables the peaks alone
        if not wanted:
            tables += self.of_iterations(groups)
            tables += tokens.tables(groups, self.unit)
            tables += release.tables(groups, self.unit)
            tables += commands.tables(groups, self.unit)
            tables += control_group.tables(groups, self.unit)
        latency = _latency_note(groups) if stays else []
        kept = [_STAYS_NOTE, *release.notes(groups)] if any(STAYS in made.header for made in tables) else []
        return Section(_title(runs), tuple(tables), (*latency, *kept, *self.notes(groups, shown)))

    def of_metric(self, metric: Metric, groups: Groups, stays: bool = False) -> list[TextTable]:
        """A row for each group, a column for each phase, and for what stays after RELEASE; no table where no run has a value."""
        heads = columns(metric, summary.phases((run for group in groups.values() for run in group), failed=True))
        if stays and any(release.kept_bytes(run, "rss_end_bytes") is not None for group in groups.values() for run in group):
            heads = [*heads, STAYS]
        names = label_names(groups)
        rows = {labels(key, names): [(group, column) for column in heads] for key, group in groups.items()}
        return self._table(metric, names, heads, rows)

    def by_threads(self, runs: Sequence[Run], wanted: Sequence[Metric], phase: str | None) -> Section:
        groups = summary.groups(runs)
        counts = sorted({key.threads for key in groups if key.threads is not None})
        if not counts:
            raise UsageError(f"{runs[0].job.model.name}: no run has a thread count; measure with several, as in 1,2,4")
        names = label_names(groups, threads=False)
        places = {key: (labels(key, names), f"T={key.threads}") for key in groups}
        tables, notes = self._by_place(groups, names, [f"T={count}" for count in counts], places, wanted, phase)
        return Section(_title(runs, threads=False), tables, notes)

    def by_model(self, runs: Sequence[Run], wanted: Sequence[Metric], phase: str | None) -> Section:
        groups = summary.groups(runs)
        called = named(groups)
        places = {key: ((key.model,), called[key]) for key in groups}
        tables, notes = self._by_place(groups, ("model",), list(dict.fromkeys(called.values())), places, wanted, phase)
        return Section("", tables, (*_shapes(runs), *notes))

    def _by_place(
        self,
        groups: Groups,
        names: Sequence[str],
        heads: Sequence[str],
        places: Mapping[Key, tuple[tuple[str, ...], str]],
        wanted: Sequence[Metric],
        phase: str | None,
    ) -> tuple[tuple[TextTable, ...], tuple[str, ...]]:
        """Tables of metrics in one phase, with their notes. places: the row and the head of the column in which each group stands."""
        runs = [run for group in groups.values() for run in group]
        shown = _beside_swap(wanted or [metrics.METRICS["time_ns"], metrics.METRICS["rss_peak_bytes"]], runs)
        tables = []
        for metric in shown:
            where = phase_of(metric, phase, runs)
            rows: dict[tuple[str, ...], list[tuple[list[Run], str]]] = {row: [([], where) for _ in heads] for row, _ in places.values()}
            for key, group in groups.items():
                row, head = places[key]
                if head in heads:
                    rows[row][heads.index(head)][0].extend(group)
            tables += self._table(metric, names, heads, rows, where)
        return tuple(tables), tuple(self.notes(groups, shown))

    def load(self, runs: Sequence[Run]) -> Section:
        groups = summary.groups(runs)
        unit = load.ONERTS if self.unit is None else grid.choose_unit(BYTES, (), self.unit)
        table = load.table(groups, named(groups), self.above, unit)
        return Section(_title(runs), (table,), (*load.notes(unit), *self.notes(groups, (), spread=False, exactness=False)))

    def swap(self, runs: Sequence[Run], over: swap.Window) -> Section:
        groups = summary.groups(runs)
        names = {key: f"{key.model}, {name}" for key, name in named(groups).items()}
        tables = swap.tables(groups, names, over, self.unit)
        if not tables:
            raise InputError(
                "--style swap is made of memory over time, and no run here that ended well has any (most imported logs have none)"
            )
        notes = [swap.note(over), *_shapes(runs), *self.notes(groups, (), spread=False)]
        return Section("", tuple(tables), tuple(notes))

    # -- one table

    def _table(
        self,
        metric: Metric,
        names: Sequence[str],
        columns: Sequence[str],
        rows: dict[tuple[str, ...], list[tuple[list[Run], str]]],
        phase: str | None = None,
    ) -> list[TextTable]:
        """A table of a metric, a cell for each (repeats, phase); none where no cell has a value."""
        values = [value for cells in rows.values() for group, where in cells for value in self._values(group, where, metric)]
        if not values:
            return []
        unit = grid.choose_unit(metric.unit, values, self.unit)
        texts = tuple((*label, *(self._cell(group, where, metric, unit) for group, where in cells)) for label, cells in rows.items())
        above = " above the baseline" if self.above and metric.baseline else ""
        stat = f", {self.stat}" if self.stat != "median" else ""
        place = "" if phase is None or phase == PEAK else f" in {phase}"
        return [TextTable(unit.caption(f"{metric.title}{place}{above}{stat}"), (*names, *columns), texts, len(names))]

    def _values(self, group: Sequence[Run], column: str, metric: Metric) -> list[float]:
        return [value for run in group if (value := self._value(run, column, metric)) is not None]

    def _value(self, run: Run, column: str, metric: Metric) -> float | None:
        if column == STAYS:
            return release.kept_bytes(run, "rss_end_bytes")
        if column == BASELINE:
            return metrics.baseline(run, metric) if metric.baseline else metrics.value(run, STARTUP, metric)
        if metric.name == "time_ns" and (mark := run.mark(column)) is not None and mark.times_ns:
            return STATISTICS[self.stat](mark.times_ns)
        return (metrics.above_baseline if self.above and metric.baseline else metrics.value)(run, column, metric)

    def _cell(self, group: Sequence[Run], column: str, metric: Metric, unit: Unit) -> str:
        having = [run for run in group if self._value(run, column, metric) is not None]
        values = self._values(having, column, metric)
        if not values:
            failures = [
                run.outcome
                for run in group
                if not run.outcome.ok and run.outcome.phase in {BASELINE: (column, STARTUP), STAYS: (RELEASE,)}.get(column, (column,))
            ]
            return f"failed ({failures[0].word})" if failures else "-"
        chosen = (middle(values, metric.unit) if self.stat == "median" else STATISTICS[self.stat](values)) / unit.size
        spread = self.stat in ("median", "mean", "geomean")
        text = grid.spread(chosen, [value / unit.size for value in values]) if spread else grid.number(chosen)
        measured = STARTUP if column == BASELINE else column
        if any(metrics.swapped(run, measured, metric) for run in having) and metric.name in metrics.HIGH_WATER_MARKS:
            return "≥" + text
        return text if all(metrics.exact(run, column, metric) for run in having) else "~" + text

    def of_iterations(self, groups: Groups) -> list[TextTable]:
        """The times of iterations, a table for each phase that has any."""
        runs = [run for group in groups.values() for run in group]
        repeated = {mark.phase for run in runs for mark in run.marks if len(mark.times_ns) > 1 or mark.phase == EXECUTE} - {WARMUP}
        return [table for phase in summary.phases(runs) if phase in repeated for table in self._iterations_of(phase, groups)]

    def _iterations_of(self, phase: str, groups: Groups) -> list[TextTable]:
        wanted = [metrics.METRICS[name] for name in metrics.ITERATION_METRICS]
        cells = {key: [self._values(group, phase, metric) for metric in wanted] for key, group in groups.items()}
        times = [value for row in cells.values() for values in row for value in values]
        if not times:
            return []
        unit = grid.choose_unit(NS, times)
        names = label_names(groups)
        rows = tuple(
            (*labels(key, names), *(self._spread([value / unit.size for value in values]) for values in row)) for key, row in cells.items()
        )
        return [TextTable(unit.caption(f"{phase}, one iteration"), (*names, "min", "mean", "max", "median", "geomean"), rows, len(names))]

    def _spread(self, values: Sequence[float]) -> str:
        return grid.spread(STATISTICS[self.stat](values), values) if values else "-"

    # -- notes

    def notes(self, groups: Groups, shown: Sequence[Metric], spread: bool = True, exactness: bool = True) -> list[str]:
        """What a reader of tables of these metrics must know."""
        runs = [run for group in groups.values() for run in group]
        notes = []
        if spread and any(len(group) > 1 for group in groups.values()):
            notes.append(cells_note(runs, self.stat, any(metric.name == "time_ns" for metric in shown)))
        notes += missing.inexact(runs) if exactness else []
        notes += missing.swapped(runs)
        notes += devices.notes(runs)
        notes += missing.absences(runs, shown)
        called = named_with_models(groups)
        measured = _over_variants([(called[key], sentence) for key, group in groups.items() for sentence in _on_figures(group)])
        concerned = {sentence: list(names) for sentence, names in measured.items()}
        for key, group in groups.items():
            for sentence in dict.fromkeys(_sentences(group)):
                concerned.setdefault(sentence, []).append(called[key])
        machines = {run.machine.name: _machine_words(run) for run in runs}
        notes += deviating(runs)
        if len(machines) > 1:
            notes += [f"{name}: {words}" for name, words in machines.items() if words]
        for sentence, names in concerned.items():
            who = "all" if 1 < len(names) == len(groups) else "; ".join(names)
            notes.append(f"{who}: {sentence}")
        return notes + native.notes(groups)


def _latency_note(groups: Groups) -> list[str]:
    """The median iteration of each variant, the shortest first; none where no run has iterations."""
    names, phase = named_with_models(groups), summary.timed_phase(run for group in groups.values() for run in group)
    times = {names[key]: time_ns for key, group in groups.items() if (time_ns := summary.iteration_ns(group)) is not None}
    each = [f"{name} {format_duration(time_ns)}" for name, time_ns in sorted(times.items(), key=lambda pair: pair[1])]
    shown = listed(each, _MOST_LATENCIES, "; ") if len(each) > 1 else "".join(map(format_duration, times.values()))
    return [f"latency (an iteration of {phase}): {shown}"] if each else []


def _machine_words(run: Run) -> str:
    """A run's machine, with the labels by which a fleet knows it."""
    labels = run.attempt.labels if run.attempt is not None else {}
    return ", ".join(
        filter(None, [run.machine.words, *(f"{name}={value}" for name, value in labels.items() if name not in ("machine", "arch"))])
    )


def _by_machine(runs: Sequence[Run]) -> list[Run]:
    """The runs of each machine together, machines in the order of their first runs."""
    places = {name: place for place, name in enumerate(dict.fromkeys(run.machine.name for run in runs))}
    return sorted(runs, key=lambda run: places[run.machine.name])


def _beside_swap(shown: Sequence[Metric], runs: Sequence[Run]) -> list[Metric]:
    """These metrics, and behind the peak of RSS the peak of RSS and swap if pages were swapped out in any run."""
    peak, both = (metrics.METRICS[name] for name in ("rss_peak_bytes", "rss_swap_peak_bytes"))
    if peak not in shown or both in shown or not any(mark.swapped_bytes for run in runs for mark in run.marks):
        return list(shown)
    return [each for metric in shown for each in ((metric, both) if metric is peak else (metric,))]


def cells_note(runs: Sequence[Run], stat: str = "median", timed: bool = True) -> str:
    """The meaning of a cell if runs were repeated. timed: whether latencies are shown."""
    beside = ", ± the distance to the farthest repeat" if stat in ("median", "mean", "geomean") else ""
    latency = f" {_iterated(runs)}'s latency: the {stat} iteration." if timed else ""
    return f"Cells: {stat} over repeats{beside}.{latency}"


def _iterated(runs: Sequence[Run]) -> str:
    """The phases that have iterations, in words."""
    repeated = {mark.phase for run in runs for mark in run.marks if mark.times_ns} - {WARMUP}
    return " and ".join(phase for phase in summary.phases(runs) if phase in repeated) or EXECUTE


def _shapes(runs: Sequence[Run]) -> list[str]:
    """The shapes that ran, for sections without a model in their heading."""
    return [f"Inputs: {text}." for text in ran.heading(runs)]


def _title(runs: Sequence[Run], threads: bool = True) -> str:
    job = runs[0].job
    counts = sorted({run.job.threads for run in runs if run.job.threads})
    parts = [job.model.name]
    if counts and threads:
        parts.append(f"{', '.join(map(str, counts))} thread{'s' if counts != [1] else ''}")
    if job.warmup or job.runs or not job.argv:  # a command chooses its iterations, unless it took their number from here
        done = sorted({units_done(run) if run.followed else run.job.runs for run in runs})
        parts.append(f"warming up {job.warmup} & running {' to '.join(map(str, dict.fromkeys((done[0], done[-1]))))}")
    parts.append(ran.repeats(runs))
    parts += [job.drive] if job.drive else []
    parts += ran.heading(runs)
    return ", ".join(parts)


_SIZE = re.compile(r"\d[\d.]* [KMGT]?i?B\b")
_MOST_ALIKE = 2  # sentences of different variants that differ in their sizes alone


def _over_variants(sentences: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Each sentence with the variants that it is of. More than a few that differ in sizes alone are one, with the range of each size: each variant's
    stand in the tables. sentences: with the variant in front."""
    alike: dict[str, dict[str, list[str]]] = {}
    for name, sentence in sentences:
        alike.setdefault(_SIZE.sub("", sentence), {}).setdefault(sentence, []).append(name)
    merged: dict[str, tuple[str, ...]] = {}
    for texts in alike.values():
        if len(texts) <= _MOST_ALIKE:
            merged.update((text, tuple(names)) for text, names in texts.items())
            continue
        ranges = [_range(sizes) for sizes in zip(*(_SIZE.findall(text) for text in texts), strict=True)]
        parts = zip(_SIZE.split(next(iter(texts))), [*ranges, ""], strict=True)
        merged["".join(f"{words}{size}" for words, size in parts)] = tuple(name for names in texts.values() for name in names)
    return merged


def _range(sizes: Sequence[str]) -> str:
    least, *_, most = sorted(sizes, key=parse_bytes)
    return least if least == most else f"{least} to {most}"


def _on_figures(group: Sequence[Run]) -> list[str]:
    """The sentences on a variant's figures."""
    rise_bytes = summary.late_rise_bytes(group)
    return devices.limits(group) + ([summary.late_rise_words(rise_bytes, summary.timed_phase(group))] if rise_bytes else [])


def _sentences(group: Sequence[Run]) -> list[str]:
    sentences = [*ran.failures(group), *modes.notes(group)]
    sentences += _alike([control_group.sentences(run) for run in group])
    # Of a run of `memprof grow`: why its memory may not be that of `memprof run`.
    sentences += _alike([list(filter(None, [work.freed_before(run)])) if run.job.use is not None else [] for run in group])
    return sentences + _alike([run.about.notes if run.about else () for run in group]) + _alike([run.warnings for run in group])


_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def _alike(notes_of_repeats: Sequence[Sequence[str]]) -> list[str]:
    """The notes of all repeats, without those that differ from an earlier repeat's only in their figures."""
    kinds: dict[tuple[str, int], dict[str, None]] = {}
    for notes in notes_of_repeats:
        counts: Counter[str] = Counter()
        for note in notes:
            if any(note in alike for alike in kinds.values()):
                continue
            words = _NUMBER.sub("", note)
            kinds.setdefault((words, counts[words]), {})[note] = None
            counts[words] += 1
    return [next(iter(alike)) + (" (in other repeats other figures)" if len(alike) > 1 else "") for alike in kinds.values()]
