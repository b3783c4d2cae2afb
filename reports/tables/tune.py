"""The outcome of `memprof tune`: the proposals as a table, with the command that measures each again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from memprof.base.units import counted, exact_bytes, format_bytes, format_duration, listed
from memprof.footprint.tune.answer import ITERATION, THREADS, LeftOut, Recommendation, Tuned, TunedRuntimes, over_time, shown
from memprof.records.metrics import BYTES, NS
from memprof.records.summary import late_rise_words
from memprof.records.types import EXECUTE
from memprof.verdicts import baseline, budget_proposal
from memprof.verdicts.compare import Verdict, verdict_of_times

from ..ran import shaped
from . import grid, headline
from .grid import Say, Section, TextTable, Unit

_MOST_BEATEN = 3  # that a note names
_NOISY_TIMES = 0.25  # a range of the default's times, as a share of the least, in which a faster setting is lost
_WIDE = 0.02  # a range of PEAK, as a share of the least, that is worth a note


def render(answer: Tuned | TunedRuntimes, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps(_plain(answer) if isinstance(answer, Tuned) else _plain_runtimes(answer), indent=1)
    say = grid.say_in(format)
    answers = each_of(answer)
    size = _unit(answers, unit)
    parts = [_finding(answer, say, size)] if isinstance(answer, Tuned) else [_of_runtimes(answer, say, size)]
    parts.append(grid.laid_out(section(answer, unit, bold=format != "text"), say))
    for tuned in answers:
        parts += [f"{name}\n\n    {each.command}" for name, each in _named(tuned, len(answers) > 1) if _has_command(each, tuned, answer)]
    best = answer if isinstance(answer, Tuned) else answer.best
    if best is not None and best.offered is not None:
        row = best.offered
        parts += [_offer(best, row, size), headline.in_program(_with_threads(best, row), row.calls, format != "text")]
        parts += [_fit(best), _gate(best, row)]
    return "\n\n".join(filter(None, parts))


def _offer(tuned: Tuned, row: Recommendation, size: Unit) -> str:
    """Which row the lines that follow are of, beside the best; empty where it is the best."""
    best = tuned.best
    if best is None or best is row:
        return ""
    timed = "an iteration" if tuned.timed == ITERATION else tuned.timed
    time = headline.time_words(best.time / tuned.default.time, _time_verdict(best, tuned.default))
    if row is tuned.default:
        return (
            "The lines below are of the default: no row with less PEAK takes at most 10% more time, or the same within noise. "
            f"#{best.number} (best), `{shown(best.settings)}`, saves {size.amount(row.peak - best.peak)}, and {timed} takes {time}."
        )
    return (
        f"The lines below are of #{row.number}, which has the least PEAK of all rows that take at most 10% more time, or the same within noise: "
        f"{size.amount(row.peak)}. "
        f"#{best.number} (best) peaks at {size.amount(best.peak)}, and {timed} takes {time}."
    )


def _with_threads(tuned: Tuned, row: Recommendation) -> str:
    """The settings of a row and the number of threads, which a program sets too."""
    threads = {THREADS: str(tuned.threads)} if tuned.threads else {}
    return shown(frozenset({**threads, **dict(row.settings)}.items()))


def _fit(tuned: Tuned) -> str:
    """The command that goes on to the size of a container."""
    return f"The least memory in which these settings work is found by\n\n    {tuned.fit_command}" if tuned.fit_command else ""


def _gate(tuned: Tuned, row: Recommendation) -> str:
    """The command that holds the settings of a row to a budget in CI: that of the search, or one that its fresh runs would keep."""
    runs = [run for run in tuned.runs if run.job.verifies and f"#{row.number} " in run.job.variant]
    held = budget_proposal.proposal(baseline.entries(runs)[0]) if runs else None
    budget = exact_bytes(int(tuned.goal.budget)) if tuned.goal.budget is not None else held.word if held is not None else ""
    before, behind = tuned.gate_command
    return f"To keep it so in CI:\n\n    {' '.join(filter(None, (before, budget, behind)))}" if before and budget else ""


def each_of(answer: Tuned | TunedRuntimes) -> Sequence[Tuned]:
    """The answer of each runtime, or the one of the only one."""
    return (answer,) if isinstance(answer, Tuned) else answer.answers


def _has_command(each: Recommendation, tuned: Tuned, answer: Tuned | TunedRuntimes) -> bool:
    """Whether the command of a row is printed: of several runtimes, that of the best of each; of a row over --max-latency none."""
    return each is not tuned.default and not _is_over(each, tuned) if isinstance(answer, Tuned) else each is tuned.best


def _is_over(each: Recommendation, tuned: Tuned) -> bool:
    return each is not tuned.default and over_time(tuned.goal, tuned.default, each)


def section(answer: Tuned | TunedRuntimes, unit: str | None = None, bold: bool = True) -> Section:
    """The table of the default and every proposal, of each runtime, and notes on the search. bold: changed outputs are marked so."""
    answers = each_of(answer)
    size = _unit(answers, unit)
    time = grid.choose_unit(NS, [proposal.time for tuned in answers for _, proposal in _named(tuned)])
    tuned = answers[0]
    budget = tuned.goal.budget
    header: tuple[str, ...] = (
        *("", "settings", f"PEAK ({size.name})", "of default"),
        *((f"within {format_bytes(budget)}",) if budget is not None else ()),
        *(f"{tuned.timed} ({time.name})", "of default"),
        *(("outputs",) if tuned.compares else ()),
    )
    rows = tuple(_row(name, each, tuned, (size, time), bold) for tuned in answers for name, each in _named(tuned, len(answers) > 1))
    notes = tuple(_notes(answer, bold) if isinstance(answer, Tuned) else _notes_of_runtimes(answer, bold))
    return Section("", (TextTable("", header, rows, 2),), notes)


def _row(name: str, proposal: Recommendation, tuned: Tuned, units: tuple[Unit, Unit], bold: bool) -> tuple[str, ...]:
    default, budget, (size, time) = tuned.default, tuned.goal.budget, units
    marks = [
        *(["noise"] if proposal is not default and _time_verdict(proposal, default) == "noise" else []),
        *(["over --max-latency"] if _is_over(proposal, tuned) else []),
    ]
    marked = f" ({', '.join(marks)})" if marks else ""
    return (
        name,
        shown(proposal.settings),
        grid.spread(proposal.peak / size.size, [peak / size.size for peak in proposal.peaks]),
        f"{proposal.peak / default.peak:.1%}",
        *(("yes" if proposal.peak <= budget else "no",) if budget is not None else ()),
        grid.spread(proposal.time / time.size, [value / time.size for value in proposal.times]),
        f"{proposal.time / default.time:.1%}{marked}",
        *((_outputs(proposal, bold),) if tuned.compares else ()),
    )


def _time_verdict(proposal: Recommendation, default: Recommendation) -> Verdict:
    return verdict_of_times(default.times, proposal.times)


def _unit(answers: Sequence[Tuned], unit: str | None) -> Unit:
    """The unit of the table and of the sentence above it, which say the same in the same words."""
    return grid.choose_unit(BYTES, [proposal.peak for tuned in answers for _, proposal in _named(tuned)], unit)


def _named(tuned: Tuned, several: bool = False) -> list[tuple[str, Recommendation]]:
    """The default and every proposal, with the name of its row. several: the table has other runtimes too."""
    runtime = f"{tuned.runtime} " if several else ""
    return [
        (f"{runtime}#{proposal.number}{' (best)' if proposal is tuned.best else ''}", proposal)
        for proposal in (tuned.default, *tuned.proposals)
    ]


def _outputs(proposal: Recommendation, bold: bool) -> str:
    if proposal.output_error is None:
        return "-"
    if proposal.output_error == 0:
        return "same"
    words = f"{'differ by' if proposal.changes_outputs else 'within'} {proposal.output_error:.1g}"
    return f"**{words}**" if proposal.changes_outputs and bold else words


def _of_runtimes(answer: TunedRuntimes, say: Say, size: Unit) -> str:
    """The best runtime of all, and what was found of each."""
    several = f"Of {counted(len(answer.answers), 'runtime')}"
    best, each = answer.best, "".join(f"\n- {_finding(replace(tuned, needed_ns=0), say, size)}" for tuned in answer.answers)
    if best is None:
        return f"{several}, none keeps within {format_bytes(answer.answers[0].goal.budget or 0)}.\n{each}"
    row = best.best or best.default
    found = f"`{shown(row.settings)}`, with a PEAK of {size.amount(row.peak)}"
    if best.goal.budget is None:
        return f"{several}, {say(best.runtime)} needs least: {found}.\n{each}"
    return f"{several}, {say(best.runtime)} is the fastest within {format_bytes(best.goal.budget)}: {found}.\n{each}"


def _finding(tuned: Tuned, say: Say, size: Unit) -> str:
    threads = f", {counted(tuned.threads, 'thread')}" if tuned.threads else ""
    what = tuned.model if tuned.model == tuned.runtime else f"{tuned.model}, {tuned.runtime}"
    name = f"{say(what)}{threads}{say(shaped(tuned.shapes, tuned.assumed))}"
    return f"{name}: {_found(tuned, size)}"


def _found(tuned: Tuned, size: Unit) -> str:
    best, default, budget = tuned.best, tuned.default, tuned.goal.budget
    if best is None:
        wanted = [f"within {format_bytes(budget)}" if budget is not None else "below the default's peak"]
        wanted += [f"take at most {tuned.goal.max_time:.4g} times as long"] if tuned.goal.max_time is not None else []
        wanted += ["leave the outputs as they are"] if any(proposal.changes_outputs for proposal in tuned.proposals) else []
        lowest, so_far = tuned.least, " so far" if tuned.cut else ""
        least = f"; the least PEAK{so_far} is {size.amount(lowest.peak)}, of `{shown(lowest.settings)}`"
        named = budget is not None or lowest is not default
        more = _more_time(tuned) if tuned.untried else ""
        return f"no settings were found that stay {' and '.join(wanted)}{tuned.cut}{least if named else ''}.{more}"
    if best is default:
        so_far = " so far" if tuned.cut else ""
        return f"the default keeps within {format_bytes(budget or 0)}, and nothing{so_far} that does is faster{_fits(tuned)}."
    timed = "an iteration" if tuned.timed == ITERATION else tuned.timed
    peaks = f"{size.amount(best.peak)}, {best.peak / default.peak:.1%} of the default's {size.amount(default.peak)}"
    time = f"{timed} takes {headline.time_words(best.time / default.time, _time_verdict(best, default))}"
    if budget is None:
        return f"`{shown(best.settings)}` peaks at {peaks}, and {time}."
    return f"fastest within {format_bytes(budget)}: `{shown(best.settings)}`, which peaks at {peaks}; {time}{_fits(tuned)}."


def _fits(tuned: Tuned) -> str:
    """How many of the settings that were tried keep within the budget."""
    return f"; {tuned.within[0]} of {counted(tuned.within[1], 'setting')} that ran fit" if tuned.within[1] else ""


def of_picture(answer: Tuned | TunedRuntimes) -> str:
    """The same for the title of a picture, whose key has the settings; empty where nothing better was found."""
    best = answer if isinstance(answer, Tuned) else answer.best
    if best is None or best.best is None:
        return ""
    (name,) = (name for name, each in _named(best, not isinstance(answer, Tuned)) if each is best.best)
    least = f"PEAK of {name} is {format_bytes(best.best.peak)}, {best.best.peak / best.default.peak:.1%} of the default's"
    return f"{least}; the limit is {format_bytes(best.goal.budget)}" if best.goal.budget is not None else least


def _more_time(tuned: Tuned) -> str:
    """The --time in which each value is tried, in whole minutes; empty if no trial of this search tells."""
    return f" --time {math.ceil(tuned.needed_ns / 60e9)}min tries each." if tuned.needed_ns else ""


def _notes_of_runtimes(answer: TunedRuntimes, bold: bool) -> Iterator[str]:
    """The notes of each runtime, those that all have once."""
    yield from answer.remarks
    yield "Each runtime was searched and verified by itself, one after another: times of two runtimes are of two moments."
    needed_ns = max(tuned.needed_ns if tuned.untried else 0 for tuned in answer.answers) * len(answer.answers)
    if needed_ns:
        yield f"They share the time: --time {math.ceil(needed_ns / 60e9)}min tries each value in each runtime."
    notes = {tuned.runtime: _notes(replace(tuned, needed_ns=0), bold) for tuned in answer.answers}
    for text in dict.fromkeys(note for own in notes.values() for note in own):
        having = [name for name, own in notes.items() if text in own]
        yield text if len(having) == len(notes) else f"{', '.join(having)}: {text}"
    yield from (f"{name}: {sentence}" for name, sentence in answer.failed.items())


def _notes(tuned: Tuned, bold: bool) -> list[str]:
    notes = list(tuned.remarks)
    trials = counted(tuned.trials, "trial")
    if tuned.verified:
        notes.append(
            f"Medians of {tuned.repeats} fresh runs each, interleaved, ± the distance to the farthest (their range, where that is more). "
            f"{trials} came before."
            if tuned.repeats > 1
            else f"One fresh run each: there was no time for more; {trials} before."
        )
    else:
        notes.append(f"Not verified: medians of the search's {trials}.")
    if not tuned.complete:
        left = f" Not tried: {counted(tuned.untried, 'value')}.{_more_time(tuned)}" if tuned.untried else ""
        notes.append(f"The search was not finished; with more time it may find better settings.{left}")
    elif tuned.proposals:
        notes.append("The search went to its end. It may miss better settings that differ from these in three values or more.")
    if tuned.time_noise > _NOISY_TIMES:
        notes.append(
            f"The default's times differed by {tuned.time_noise:.0%} in the search: it may miss settings that are faster and save less PEAK."
        )
    if tuned.baseline is not None:
        size = _unit([tuned], None)
        notes.append(
            f"{grid.number(tuned.baseline / size.size)} of the default's {grid.number(tuned.default.peak / size.size)} {size.name} are the "
            "baseline, which is there before a model is loaded: settings of the model lower no more than the rest."
        )
    if tuned.given:
        notes.append(f"The default has {', '.join(f'{name}={value}' for name, value in tuned.given.items())}.")
    if not tuned.compares:
        notes.append("The outputs of a program are not compared: whether they stay the same is yours to see.")
    if any(proposal.changes_outputs for proposal in tuned.proposals):
        marked = f"{'bold' if bold else 'said to differ'} beyond {tuned.tolerance:g}"
        notes.append(f"Outputs: the largest difference from the default's over their largest magnitude; {marked}.")
    rising = [(name, each.late_rise_bytes) for name, each in _named(tuned) if each.late_rise_bytes]
    notes += [f"{name}: {late_rise_words(rise_bytes, EXECUTE)}." for name, rise_bytes in rising]
    notes += [f"PEAK of {name} {spread}" for name, each in _named(tuned) if (spread := _spread(each, tuned.threads))]
    if tuned.beaten:
        each = [f"{shown(point.settings)} ({format_bytes(point.peak)}, {format_duration(point.time)})" for point in tuned.beaten]
        notes.append(
            f"Not measured again, as another had less PEAK and took no more time in the search: {listed(each, _MOST_BEATEN, '; ')}."
        )
    if tuned.unverified:
        each = [f"{shown(point.settings)} ({format_bytes(point.peak)}, {format_duration(point.time)})" for point in tuned.unverified]
        notes.append(f"Not measured again, for lack of time: {listed(each, _MOST_BEATEN, '; ')}.")
    if tuned.idle:
        notes.append(f"These change neither PEAK nor time, and are left out: {', '.join(f'{name}={value}' for name, value in tuned.idle)}.")
    notes += [f"{shown(settings)} fails: {message}" for settings, message in tuned.failed]
    notes += [f"{_numbered(each)} failed when it was measured again: {each.error}" for each in tuned.left_out if each.rival is None]
    for number in dict.fromkeys(each.rival for each in tuned.left_out if each.rival is not None):
        names = [_numbered(each) for each in tuned.left_out if each.rival == number]
        left_out, it = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} left out", "it" if len(names) == 1 else "each"
        seen = "measured again" if tuned.verified else "by the medians"
        rival = f"#{number}" if number else "the default"
        notes.append(f"{left_out}: {seen}, {it} has no less PEAK and takes no less time than {rival} beyond noise.")
    return notes


def _spread(row: Recommendation, threads: int | None) -> str:
    """How far the PEAKs of a row lie apart, as the rest of a sentence; empty where it is little."""
    low, high = min(row.peaks), max(row.peaks)
    if high - low <= _WIDE * low:
        return ""
    alone = "" if threads == 1 else "; --threads 1 may have one size"
    return f"was from {format_bytes(low)} to {format_bytes(high)} in its runs: a limit needs the largest{alone}."


def _numbered(each: LeftOut) -> str:
    return f"#{each.number} ({shown(each.settings)})"


def _plain_runtimes(answer: TunedRuntimes) -> dict[str, Any]:
    return {
        "best_runtime": None if answer.best is None else answer.best.runtime,
        "runtimes": [_plain(tuned) for tuned in answer.answers],
        "failed": dict(answer.failed),
        "remarks": list(answer.remarks),
    }


def _plain(tuned: Tuned) -> dict[str, Any]:
    return {
        "model": tuned.model,
        "runtime": tuned.runtime,
        "max_time": tuned.goal.max_time,
        "budget_bytes": tuned.goal.budget,
        "within_budget": list(tuned.within) if tuned.goal.budget is not None else None,
        "default": _plain_proposal(tuned.default),
        "proposals": [_plain_proposal(proposal) for proposal in tuned.proposals],
        "best": None if tuned.best is None else dict(sorted(tuned.best.settings)),
        "offered": None if tuned.offered is None else dict(sorted(tuned.offered.settings)),
        "idle": [f"{name}={value}" for name, value in tuned.idle],
        "left_out": [
            {"number": each.number, "settings": dict(sorted(each.settings)), "rival": each.rival, "error": each.error or None}
            for each in tuned.left_out
        ],
        "beaten": [
            {"settings": dict(sorted(point.settings)), "rss_peak_bytes": point.peak, "time_ns": point.time} for point in tuned.beaten
        ],
        "unverified": [
            {"settings": dict(sorted(point.settings)), "rss_peak_bytes": point.peak, "time_ns": point.time} for point in tuned.unverified
        ],
        "failed": [{"settings": dict(sorted(settings)), "message": message} for settings, message in tuned.failed],
        "trials": tuned.trials,
        "complete": tuned.complete,
        "values": tuned.values,
        "untried": tuned.untried,
        "verified": tuned.verified,
        "repeats": tuned.repeats,
        "timed": tuned.timed,
        "time_noise": tuned.time_noise,
        "baseline_bytes": tuned.baseline,
        "outputs_compared": tuned.compares,
        "given": dict(tuned.given),
        "threads": tuned.threads,
        "shapes": {name: list(shape) for name, shape in tuned.shapes.items()},
        "assumed": {name: list(shape) for name, shape in tuned.assumed.items()},
        "gate_command": list(tuned.gate_command),
        "fit_command": tuned.fit_command,
        "remarks": list(tuned.remarks),
    }


def _plain_proposal(proposal: Recommendation) -> dict[str, Any]:
    return {
        "settings": dict(sorted(proposal.settings)),
        "rss_peak_bytes": proposal.peak,
        "time_ns": proposal.time,
        "rss_peak_bytes_values": list(proposal.peaks),
        "time_ns_values": list(proposal.times),
        "output_error": proposal.output_error,
        "changes_outputs": proposal.changes_outputs,
        "command": proposal.command,
        "env": dict(proposal.variables),
        "in_program": list(proposal.calls),
        "late_rise_bytes": proposal.late_rise_bytes,
    }
