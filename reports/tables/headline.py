"""The first sentence of a report, which says what matters, and the last line of a pasted table, which says where its figures are from."""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from memprof.base.units import counted, format_bytes
from memprof.records import metrics, summary
from memprof.records.metrics import BYTES, amount
from memprof.records.modes import middle
from memprof.records.settings import PACKAGE
from memprof.records.summary import Key, PeakPhases, Row, highest_phases
from memprof.records.types import EXECUTE, GENERATE, PEAK, RELEASE, REQUEST, STARTUP, Run
from memprof.verdicts.baseline import BaselineEntry
from memprof.verdicts.compare import Comparison, Difference, Ground, Verdict, compare_groups, ground, ground_of
from memprof.verdicts.ranks import bootstrap
from memprof.verdicts.verdicts import OUTCOME, Judged, Limits, Report, floor, worst_first

from .. import modes
from ..rows import named, place
from .release import kept_modes

_KINDS = {"anon_end_bytes": "anonymous", "file_end_bytes": "file-backed"}
_LEAST_MODEL, _SEEN_IN = 1 << 20, (0.1, 10.0)  # bytes of a model, and times its size, of which the model is the cause
_MOST_MODELS, _MOST_TITLED = 3, 2  # that the sentence and a picture's title have
Groups = Mapping[Key, Sequence[Run]]
Phases = tuple[PeakPhases, PeakPhases]  # where the PEAKs of two sides are
_NOWHERE: Phases = (PeakPhases(), PeakPhases())
_WORTH_A_RATIO = 1.1
_MANY = 4  # figures, of which the first and the last are enough
_TIMES = 2  # from which a ratio is read more easily than a percentage
_HEIGHT = metrics.METRICS["rss_peak_bytes"]
_TIMED = (EXECUTE, GENERATE, REQUEST)


def of_runs(runs: Sequence[Run]) -> str:
    """PEAK, in which phase, how far above the baseline, and what stays after release; of several rows of a model those of the least and the largest
    PEAK, and of a runtime's releases what changed.

    Medians of the runs that ended well, after the variants of which none did; empty where no variant has one.
    """
    groups, peaks = _peaks(runs)
    if not peaks:
        return ""
    every = summary.groups(runs)
    without = [key for key in every if key not in groups]
    names = _names(every)
    failed = f"{len(without)} of {len(every)} variants failed in every run: {'; '.join(names[key] for key in without)}. " if without else ""
    return failed + _of_peaks(groups, peaks)


def _names(keys: Collection[Key]) -> dict[Key, str]:
    """The names of variants in a sentence that does not name the model of all of them elsewhere."""
    return {key: place(key) for key in keys} if len({key.model for key in keys}) > 1 else named(keys)


def _of_peaks(groups: Groups, peaks: Sequence[Row]) -> str:
    models = _by_model(peaks)
    names = _names([row.key for row in peaks])
    sentences = [_of_model(groups, rows, names) for rows in models[:_MOST_MODELS]]
    rest = len(models) - len(sentences)
    return " ".join([*sentences, *([f"The tables below have {counted(rest, 'more model')}."] if rest else [])])


def _of_model(groups: Groups, peaks: Sequence[Row], names: Mapping[Key, str]) -> str:
    """The PEAKs of one model, which alone can be compared. names: of the rows, where the sentence has several."""
    if len(peaks) == 1:
        row, group = peaks[0], groups[peaks[0].key]
        return f"{place(row.key)}: PEAK is {size(row)}, in {summary.peak_phases(group).names}{_above(row, group)}{_stays(group)}."
    if (releases := _releases(groups, peaks)) is not None:
        return _between(groups, *releases)
    rows = (peaks[0], peaks[-1])
    phases = (summary.peak_phases(groups[rows[0].key]), summary.peak_phases(groups[rows[1].key]))
    least, largest = (f"{size(row)}{where} ({names[row.key]})" for row, where in zip(rows, apart(phases), strict=True))
    between = ground(groups[peaks[0].key], groups[peaks[-1].key])
    below = _below(between, modes.differences(*rows)) if between.versions else ""
    parts = [f"The largest is {largest}{_times(*rows)}{_of_model_size(groups, peaks)}", below]
    return f"The smallest of {len(peaks)} PEAKs is {least}. {'; '.join(filter(None, parts))}."


def _times(least: Row, largest: Row) -> str:
    """How many times as much the largest is, of each mode."""
    if not least.median or largest.median / least.median < _WORTH_A_RATIO:
        return ""
    ratios = sorted(after / before for before in modes.of_each(least) for after in modes.of_each(largest))
    texts = list(dict.fromkeys(f"{ratio:.1f}" for ratio in ratios))
    return f", {' or '.join(texts) if len(texts) < _MANY else f'{texts[0]} to {texts[-1]}'} times as much"


def _of_model_size(groups: Groups, peaks: Sequence[Row]) -> str:
    """The largest of several PEAKs beside the model's size, as that of one row is; empty where the model is not what makes it."""
    group = groups[peaks[-1].key]
    above = _above_bytes(group)
    times = _model_times(middle(above, BYTES) if above else peaks[-1].median, group[0].job.model.bytes)
    if not times:
        return ""
    return f"; it lies {_height(peaks[-1], above)} above its baseline, {times}" if above else f"; that is {times}"


def _by_model(peaks: Sequence[Row]) -> list[list[Row]]:
    """The PEAKs of each model, the least first; the model whose PEAKs lie farthest apart comes first."""
    models: dict[str, list[Row]] = {}
    for row in peaks:
        models.setdefault(row.key.model, []).append(row)
    return sorted(models.values(), key=lambda rows: rows[0].median - rows[-1].median)


def _releases(groups: Groups, peaks: Sequence[Row]) -> tuple[Row, Row] | None:
    """The older and the newer where the rows are two releases of one runtime, with the same settings; None otherwise."""
    jobs = [groups[row.key][0].job for row in peaks]
    versions = {_version(groups[row.key][0]): row for row in peaks}
    settings = {(job.runtime, job.threads, tuple(sorted(job.knobs.items())), row.key.machine) for job, row in zip(jobs, peaks, strict=True)}
    if len(settings) > 1 or len(peaks) != 2 or len(versions) < 2 or "" in versions:
        return None
    first, last = sorted(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    return versions[first], versions[last]


def _version(run: Run) -> str:
    return run.about.runtime_version if run.about is not None else ""


def _between(groups: Groups, old: Row, new: Row) -> str:
    """What changed from one release to another: PEAK, its phase, and the memory at that phase's end."""
    sides = [groups[row.key] for row in (old, new)]
    first, second = (_version(group[0]) for group in sides)
    phases = (summary.peak_phases(sides[0]), summary.peak_phases(sides[1]))
    rows = compare_groups(sides[0], sides[1], ("rss_peak_bytes", *_KINDS))
    at_end = "".join(f"; {text}" for text in _at_end(rows, phases))
    threads = f", {counted(new.key.threads, 'thread')}" if new.key.threads else ""
    what = f"{new.key.model}, {sides[1][0].job.runtime} {first} to {second}{threads}"
    peak = next(row for row in rows if row.phase == PEAK)
    below = _below(ground(sides[0], sides[1]), modes.differences(peak.base, peak.head))
    return f"{what}: {_peak(peak, phases)}{_in(phases)}{at_end}{f'; {below}' if below else ''}{_stays(sides[1], sides[0])}."


def _below(below: Ground, changes: Sequence[float]) -> str:
    """How much of a PEAK's change lies in the baseline, of which versions beside the runtime's, and how much above; or the versions alone.

    changes: of PEAK, as modes.differences has them. Where a baseline is in modes, it is not known which of them a mode of PEAK stands on.
    """
    if not below.versions and below.baselines is None:
        return ""
    versions = " and ".join(below.versions)
    least = Limits().bytes
    of_baseline = modes.between(*below.baselines) if below.baselines is not None else [0.0]
    if all(abs(each) <= least for each in of_baseline):
        return f"with {versions}" if versions else ""
    causes = "" if not versions else f", all from {versions}" if below.alone else f", from the runtime and from {versions}"
    has = f"its baseline has {modes.change(_HEIGHT.name, of_baseline, least)}{causes}"
    if len(of_baseline) > 1:
        return f"{has}, so that no figure tells how PEAK differs above it"
    return f"{has}, and above it PEAK is {modes.change(_HEIGHT.name, [each - of_baseline[0] for each in changes], least)}"


def of_picture(runs: Sequence[Run]) -> str:
    """The same for the title of a picture, which names the model and how it was measured below."""
    groups, peaks = _peaks(runs)
    if not peaks:
        return ""
    if len(peaks) == 1:
        group = groups[peaks[0].key]
        return f"PEAK is {size(peaks[0])}, in {summary.peak_phases(group).names}{_above(peaks[0], group)}"
    models = _by_model(peaks)
    names = named([row.key for row in peaks])
    if len(models) == 1:
        return f"PEAK is {_span(groups, peaks, names)}"
    parts = [f"of {rows[0].key.model} {_span(groups, rows, names)}" for rows in models[:_MOST_TITLED]]
    more = f"; {counted(len(models) - len(parts), 'more model')}" if len(models) > len(parts) else ""
    return f"PEAK {'; '.join(parts)}{more}"


def _span(groups: Groups, rows: Sequence[Row], names: Mapping[Key, str]) -> str:
    """The least and the largest PEAK of one model, in the order of their rows: the first is often what the other is compared with."""
    if len(rows) == 1:
        return f"{size(rows[0])} ({names[rows[0].key]})"
    ends = sorted((rows[0], rows[-1]), key=lambda row: list(groups).index(row.key))
    return " to ".join(f"{size(row)} ({names[row.key]})" for row in ends)


def _peaks(runs: Sequence[Run]) -> tuple[Groups, list[Row]]:
    """The runs that ended well by variant, and their PEAKs, the least first."""
    groups = summary.groups(run for run in runs if run.outcome.ok)
    ended = [run for group in groups.values() for run in group]
    return groups, sorted((row for row in summary.summarise(ended, ("rss_peak_bytes",)) if row.phase == PEAK), key=lambda row: row.median)


def size(row: Row) -> str:
    """A PEAK as people read it, of a row in modes each of them, with the sign of one that is not exact."""
    return f"{'≥' if row.swapped else '' if row.exact else '~'}{modes.of_row(row)}"  # as in the tables


def _stays(group: Sequence[Run], before: Sequence[Run] = ()) -> str:
    """What stays after release; of a sample in modes each of them. before: the runs of an earlier release, named where more or less stayed."""
    kept, earlier = _kept(group), _kept(before)
    if not kept:
        return ""
    return f"; {kept} stays after release{f', {earlier} before' if earlier and earlier != kept else ''}"


def _kept(group: Sequence[Run]) -> str:
    kept = [max(statistics.median(mode), 0) for mode in kept_modes(group)]
    return " or ".join(format_bytes(size) if size else "nothing" for size in kept)


def _above(peak: Row, group: Sequence[Run]) -> str:
    """How far PEAK lies above the baseline, where that is known, and how many times the model's size that is."""
    above = _above_bytes(group)
    sizes = above or metrics.values(group, PEAK, _HEIGHT)
    times = _model_times(middle(sizes, BYTES) if sizes else 0.0, group[0].job.model.bytes)
    parts = [*([f"{_height(peak, above)} above the baseline"] if above else []), *([times] if times else [])]
    return "".join(f", {part}" for part in parts)


def _height(peak: Row, above: Sequence[float]) -> str:
    """What lies above the baseline, in modes only where PEAK is: a gap that is small for PEAK may be a large part of this."""
    return modes.figure(_HEIGHT.name, above) if modes.count(peak) > 1 else amount(_HEIGHT.name, middle(above, BYTES))


def _above_bytes(group: Sequence[Run]) -> list[float]:
    return [size for run in group if (size := metrics.above_baseline(run, PEAK, _HEIGHT)) is not None]


def _model_times(size: float, model_bytes: int) -> str:
    """How many times the model's size that is, for a model that is a large part of it: a load that holds the model twice is at 2."""
    times = size / model_bytes if model_bytes >= _LEAST_MODEL else 0.0
    return f"{times:.1f} times the model's {format_bytes(model_bytes)}" if _SEEN_IN[0] <= times <= _SEEN_IN[1] else ""


def of_comparison(comparison: Comparison) -> str:
    """How far PEAK differs, in which phase, in which kind of memory, and the time; empty where PEAK was not compared.

    With several rows it is the one whose PEAK differs most.
    """
    peaks = [row for row in comparison.differences if (row.phase, row.metric) == (PEAK, "rss_peak_bytes")]
    if not peaks:
        return ""
    rank = {"noise": 0, "too few": 1}
    peak = max(peaks, key=lambda row: (rank.get(row.verdict, 2), abs(row.difference)))
    own = [row for row in comparison.differences if row.key == peak.key]
    phases = comparison.peak_phases[peak.key.place]
    parts = [f"{place(peak.key)}: {_peak(peak, phases)}"]
    if peak.verdict != "noise":
        parts[0] += _in(phases)
        parts += _at_end(own, phases)
        below = _below(comparison.grounds.get(peak.key.place, Ground()), modes.differences(peak.base, peak.head))
        parts += [below] if below else []
    times = [row for row in own if row.metric == "time_ns" and row.phase in _TIMED]
    parts += [f"{row.phase} takes {time_words(row.ratio or 1.0, row.verdict)}" for row in times]
    sentence = "; ".join(parts) + "."
    return sentence if len(peaks) == 1 else f"{sentence} {_rest(peaks)}"


def _peak(row: Difference, phases: Phases) -> str:
    if row.verdict == "noise" and _narrow(row.metric, row.base, row.interval):
        return f"PEAK is the same within noise ({size(row.head)})"
    sizes = _sizes(size(row.base), size(row.head), phases)
    if row.verdict == "noise":
        return f"PEAK {_within_noise(row.metric, row.interval)} ({sizes})"
    few = ", with too few repeats to tell it from noise" if row.verdict == "too few" else ""
    return f"PEAK is {modes.change(row.metric, modes.differences(row.base, row.head))} ({sizes}{few})"


def _in(phases: Phases) -> str:
    """`, in PREPARE`, where both sides have their PEAK in it; else `_sizes` has the phases."""
    shared = phases[0].shared(phases[1])
    return f", in {shared.names}" if shared.level else ""


def apart(phases: Phases) -> tuple[str, str]:
    """` in PREPARE` for each side, where no phase has the PEAK of both; else nothing."""
    together = bool(phases[0].shared(phases[1]).level)
    before, after = (f" in {side.names}" if side.level and not together else "" for side in phases)
    return before, after


def _sizes(base: str, head: str, phases: Phases) -> str:
    """Both PEAKs, each with its phase where these differ."""
    before, after = apart(phases)
    return f"{base}{before} to {head}{after}"


def _end(phases: Phases, ended: Iterable[str]) -> tuple[str, str]:
    """The phase at whose end a sentence tells the kinds of memory, and its words: the last that has both PEAKs, or the last before RELEASE of those
    that ended, since the end of a phase that has the PEAK of one side alone does not tell what a change gains."""
    shared = phases[0].shared(phases[1])
    if shared.level:
        return shared.highest, "at its end" if len(shared.level) == 1 else f"at the end of {shared.highest}"
    last = next((phase for phase in reversed(list(ended)) if phase != RELEASE), "")
    return last, f"at the end of {last}"


def _at_end(rows: Sequence[Difference], phases: Phases) -> list[str]:
    """How the kinds of memory differ at the end of a phase, in one part of a sentence or none."""
    rows = [row for row in rows if row.metric in _KINDS]
    phase, words = _end(phases, (row.phase for row in rows))
    kinds = [_kind(row) for row in rows if row.phase == phase]
    return [f"{words} {' and '.join(kinds)}"] if kinds else []


def _kind(row: Difference) -> str:
    if row.verdict == "noise":
        return f"{_KINDS[row.metric]} memory {_undecided(row.metric, row.base, row.interval)}"
    change = modes.change(row.metric, modes.differences(row.base, row.head))
    return f"{_KINDS[row.metric]} memory is {change}{_taken_back(row.metric, row.difference)}"


def _taken_back(metric: str, change: float) -> str:
    """What more file-backed memory means, such as that of a model that is mapped and no longer read."""
    return ", which the kernel can take back" if metric == "file_end_bytes" and change > Limits().bytes else ""


def _undecided(metric: str, base: Row, interval: tuple[float, float]) -> str:
    """The words on a difference that is no more than noise."""
    return "is the same" if _narrow(metric, base, interval) else _within_noise(metric, interval)


def _narrow(metric: str, base: Row, interval: tuple[float, float]) -> bool:
    """Whether no difference that would matter lies in an interval: then both sides are the same, and else that is not known."""
    return max(map(abs, interval)) <= floor(metric, base.median, 0, Limits())


def _within_noise(metric: str, interval: tuple[float, float]) -> str:
    low, high = (f"{'+' if end > 0 else '-' if end < 0 else ''}{amount(metric, abs(end))}" for end in interval)
    return f"differs within noise, by {low} to {high}"


def time_words(ratio: float, verdict: Verdict | Literal[""]) -> str:
    """How much more time the one takes than the other, by compare's verdict; empty for none, of an older file."""
    if ratio == 1 or (verdict == "noise" and max(ratio, 1 / ratio) < _WORTH_A_RATIO):
        return "the same time within noise"
    change = f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} time"
    change = f"{ratio:.{0 if ratio >= 10 else 1}f} times as long" if ratio >= _TIMES else change
    if verdict == "noise":
        return f"{change} by the medians, which is within noise"
    return f"{change}{', with too few repeats to tell it from noise' if verdict == 'too few' else ''}"


def _rest(peaks: Sequence[Difference]) -> str:
    counts = {word: sum(row.verdict == word for row in peaks) for word in ("more", "less", "noise", "too few")}
    words = {"more": "higher", "less": "lower", "noise": "the same within noise", "too few": "of too few repeats"}
    return f"Of {len(peaks)} PEAKs, {', '.join(f'{count} {words[word]}' for word, count in counts.items() if count)}."


def of_gate(report: Report) -> str:
    """The finding of the worst row: how much, in which phase, in which kind of memory; or that nothing changed. Empty for a gate without rows.

    If several rows have the worst verdict, it is PEAK's.
    """
    rows = [row for row in worst_first(report.rows) if not (report.allow_gone and row.verdict == "gone")]
    if not rows:
        return ""
    worst = [row for row in rows if row.verdict == rows[0].verdict]
    lead = next((row for row in worst if _is_peak(row)), next((row for row in worst if row.cause is None), worst[0]))
    if lead.head is None or lead.metric == OUTCOME:
        wholly = all(row.verdict == lead.verdict for row in rows if row.key == lead.key)
        return f"{place(lead.key, '' if wholly else lead.phase)}: {lead.reason}."
    name = "PEAK" if _is_peak(lead) else f"{metrics.described(lead.metric).title} of {lead.phase}"
    if lead.budget is not None:
        return f"{place(lead.key)}: {name} is {_beside_budget(lead, lead.head, lead.budget)}."
    if lead.base is None:
        return f"{place(lead.key)}: {name} is {_median(lead.head)} ({lead.reason})."
    if lead.verdict == "ok":
        figures = f"{_median(lead.head)}, and was {_median(lead.base)}"
        return f"Nothing changed beyond the thresholds: {name} of {place(lead.key)} is {figures}."
    own = _of_variant(lead.key, report)
    phases = _peak_phases(own, report) if _is_peak(lead) else _NOWHERE
    return f"{place(lead.key)}: {name} is {_change(lead, lead.base, lead.head, phases)}{_whence(lead, own, report, phases)}."


def _median(row: Row) -> str:
    return ("" if row.exact else "~") + modes.of_row(row)  # as in the tables


def _is_peak(row: Judged) -> bool:
    return (row.phase, row.metric) == (PEAK, "rss_peak_bytes")


def _beside_budget(row: Judged, head: Row, budget: float) -> str:
    worst = amount(row.metric, head.max)
    if head.max == budget:
        return f"{worst}, as the budget allows"
    side = "above" if head.max > budget else "below"
    return f"{worst}, {amount(row.metric, abs(head.max - budget))} {side} the budget of {amount(row.metric, budget)}"


def _change(row: Judged, base: Row, head: Row, phases: Phases = _NOWHERE) -> str:
    sizes = _sizes(_median(base), _median(head), phases)
    doubt = f", {row.verdict}" if row.verdict in ("undecided", "acknowledged") else ""
    return f"{modes.change(row.metric, modes.differences(base, head))} ({sizes}{doubt})"


def _whence(lead: Judged, own: Sequence[Judged], report: Report, phases: Phases) -> str:
    """The phase of a PEAK that moved, and the kinds of memory that moved with it. own: the rows of its variant, in the order of its phases."""
    if not any(side.level for side in phases):
        return ""
    phase, words = _end(phases, [row.phase for row in own if row.metric in _KINDS])
    kinds = [
        f"{_KINDS[row.metric]} memory {_moved(row, row.base, row.head)}"
        for row in own
        if row.phase == phase and row.metric in _KINDS and row.base is not None and row.head is not None
    ]
    parts = [*([f"{words} {' and '.join(kinds)}"] if kinds else []), _below_gate(lead, report)]
    return _in(phases) + "".join(f"; {part}" for part in parts if part)


def _of_variant(key: Key, report: Report) -> list[Judged]:
    """The rows of a variant that compare two sides, in the order of its phases: a report has the worst first."""
    sides = [entry for entry in report.sources if entry.key.place == key.place]
    order = summary.merged([list(dict.fromkeys(row.phase for row in entry.rows)) for entry in sides])
    own = [row for row in report.rows if row.key == key and row.budget is None]
    return sorted(own, key=lambda row: order.index(row.phase) if row.phase in order else len(order))


def _peak_phases(own: Sequence[Judged], report: Report) -> Phases:
    """Where base's and head's PEAK is, nowhere for a side without phases."""
    bound = max((entry.machine.peak_bound_bytes for entry in report.sources), default=0)
    heights = [row for row in own if row.metric == _HEIGHT.name and row.phase != PEAK]
    before = [(row.phase, row.base.median) for row in heights if row.base is not None]
    after = [(row.phase, row.head.median) for row in heights if row.head is not None]
    return highest_phases(before, bound), highest_phases(after, bound)


def _below_gate(lead: Judged, report: Report) -> str:
    """The same as `_below` of a gate's PEAK, whose sides are entries."""
    sides = [entry for entry in report.sources if entry.key.place == lead.key.place]
    if len(sides) != 2 or lead.base is None or lead.head is None:
        return ""
    startups = [modes.of_each(row) for entry in sides for row in entry.rows if (row.phase, row.metric) == (STARTUP, _HEIGHT.name)]
    baselines = (startups[0], startups[1]) if len(startups) == 2 else None
    return _below(ground_of(sides[0].settings, sides[1].settings, baselines), modes.differences(lead.base, lead.head))


def _moved(row: Judged, base: Row, head: Row) -> str:
    if row.verdict == "ok":
        return _undecided(row.metric, base, bootstrap(base.values, head.values))
    return f"is {_change(row, base, head)}{_taken_back(row.metric, head.median - base.median)}"


def with_threads(settings: str, threads: int | None) -> str:
    """Settings in a line and the number of threads, which a program sets too; None for the runtime's own count."""
    return ",".join(filter(None, (settings, f"threads={threads}" if threads else "")))


def in_program(called: str, words: Sequence[str], code: bool) -> str:
    """What a program writes for some settings, as the end of an answer; empty where nothing is known. code: in markdown, as code."""
    texts = [f"`{text}`" if code else text for text in (called, *words)]
    return f"In your program, for {texts[0]}: {'; '.join(texts[1:])}." if words else ""


def origin(runs: Sequence[Run]) -> str:
    """`Measured with onnxruntime 1.31.0, Python 3.11.2; on here (a CPU, 2 CPUs, x86_64, Linux 6.18).`; empty where runs do not tell.

    Several versions or machines stand one after another, each once.
    """
    told = [(run.job.runtime, run.about) for run in runs if run.about is not None]
    return measured(
        [(runtime, about.runtime_version) for runtime, about in told],
        [about.python_version for _, about in told],
        [(run.machine.name, run.machine.words) for run in runs if run.machine.words],
        _differing([about.packages for _, about in told]),
    )


def origin_of_entries(entries: Sequence[BaselineEntry]) -> str:
    """The same for the sides of a gate."""
    told = [entry.settings for entry in entries]
    return measured(
        [(settings.get("runtime", ""), settings.get("runtime version", "")) for settings in told],
        [settings.get("Python", "") for settings in told],
        [(entry.machine.name, entry.machine.words) for entry in entries if entry.machine.words],
        _differing([_packages(settings) for settings in told]),
    )


def _packages(way: Mapping[str, str]) -> dict[str, str]:
    """The versions of packages among settings."""
    return {name.removeprefix(PACKAGE): version for name, version in way.items() if name.startswith(PACKAGE)}


def _differing(environments: Sequence[Mapping[str, str]]) -> list[str]:
    """Packages that several environments have in different versions: `numpy 1.26.4`, `numpy 2.4.6`."""
    versions: dict[str, dict[str, None]] = {}
    for packages in environments:
        for name, version in packages.items():
            versions.setdefault(name, {})[version] = None
    return [f"{name} {version}" for name, several in versions.items() if len(several) > 1 for version in several]


def measured(
    runtimes: Iterable[tuple[str, str | None]],
    pythons: Iterable[str | None],
    machines: Iterable[tuple[str, str]],
    packages: Iterable[str] = (),
) -> str:
    """The same of these runtimes and versions, of machines by name and in words, and of packages with their versions."""
    versions = dict.fromkeys(f"{runtime} {version}" for runtime, version in runtimes if runtime and version)
    versions.update(dict.fromkeys(f"Python {version}" for version in pythons if version))
    versions.update(dict.fromkeys(packages))
    described = dict(machines)
    if len(described) == 1:
        where = [f"on {name}{f' ({words})' if words else ''}" for name, words in described.items()]
    else:  # notes of the table describe each
        where = [f"on {' and '.join(described)}"] if described else []
    parts = [*([f"with {', '.join(versions)}"] if versions else []), *where]
    return f"Measured {'; '.join(parts)}." if parts else ""
