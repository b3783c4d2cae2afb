"""The outcome of `memprof tune`: the proposals as a table, with the command that measures each again."""

from __future__ import annotations

import json
import math
from typing import Any

from memprof.base.units import counted, format_bytes
from memprof.records.metrics import BYTES, NS
from memprof.tune.answer import ITERATION, LeftOut, Recommendation, Tuned, shown

from ..shapes import shaped
from . import grid
from .grid import Say, Section, TextTable, Unit


def render(tuned: Tuned, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps(_plain(tuned), indent=1)
    say = grid.say_in(format)
    parts = [_finding(tuned, say, unit), grid.laid_out(section(tuned, unit, bold=format != "text"), say)]
    parts += [f"{name}\n\n    {proposal.command}" for name, proposal in _named(tuned) if proposal is not tuned.default]
    return "\n\n".join(parts)


def section(tuned: Tuned, unit: str | None = None, bold: bool = True) -> Section:
    """The table of the default and every proposal, and notes on the search. bold: changed outputs are marked so."""
    size = _unit(tuned, unit)
    time = grid.choose_unit(NS, [proposal.time for _, proposal in _named(tuned)])
    header: tuple[str, ...] = ("", "settings", f"PEAK ({size.name})", "of default", f"{tuned.timed} ({time.name})", "of default", "outputs")
    rows: tuple[tuple[str, ...], ...] = tuple(
        (
            name,
            shown(proposal.settings),
            grid.spread(proposal.peak / size.size, [peak / size.size for peak in proposal.peaks]),
            f"{proposal.peak / tuned.default.peak:.1%}",
            grid.spread(proposal.time / time.size, [value / time.size for value in proposal.times]),
            f"{proposal.time / tuned.default.time:.1%}",
            _outputs(proposal, bold),
        )
        for name, proposal in _named(tuned)
    )
    if not tuned.compares:
        header, rows = header[:-1], tuple(row[:-1] for row in rows)
    return Section("", (TextTable("", header, rows, 2),), tuple(_notes(tuned, bold)))


def _unit(tuned: Tuned, unit: str | None) -> Unit:
    """The unit of the table and of the sentence above it, which say the same in the same words."""
    return grid.choose_unit(BYTES, [proposal.peak for _, proposal in _named(tuned)], unit)


def _named(tuned: Tuned) -> list[tuple[str, Recommendation]]:
    """The default and every proposal, with the name of its row."""
    return [
        (f"#{proposal.number}{' (best)' if proposal is tuned.best else ''}", proposal) for proposal in (tuned.default, *tuned.proposals)
    ]


def _outputs(proposal: Recommendation, bold: bool) -> str:
    if proposal.output_error is None:
        return "-"
    if proposal.output_error == 0:
        return "same"
    words = f"{'differ by' if proposal.changes_outputs else 'within'} {proposal.output_error:.1g}"
    return f"**{words}**" if proposal.changes_outputs and bold else words


def _finding(tuned: Tuned, say: Say, unit: str | None) -> str:
    size = _unit(tuned, unit)
    threads = f", {counted(tuned.threads, 'thread')}" if tuned.threads else ""
    what = tuned.model if tuned.model == tuned.runtime else f"{tuned.model}, {tuned.runtime}"
    name = f"{say(what)}{threads}{say(shaped(tuned.shapes, tuned.assumed))}"
    if tuned.best is None and tuned.untried:
        return f"{name}: the time was up with {counted(tuned.untried, 'value')} untried, and no better settings were found so far.{_more_time(tuned)}"
    if tuned.best is None:
        wanted = f"within {format_bytes(tuned.goal.budget)}" if tuned.goal.budget is not None else "below the default's peak"
        kept = " and leave the outputs as they are" if any(proposal.changes_outputs for proposal in tuned.proposals) else ""
        return f"{name}: no settings were found that stay {wanted}{kept}."
    if tuned.best is tuned.default:
        return f"{name}: the default keeps within {format_bytes(tuned.goal.budget or 0)}, and nothing that does is faster."
    timed = "per iteration" if tuned.timed == ITERATION else f"in {tuned.timed}"
    share, longer = tuned.best.peak / tuned.default.peak, tuned.best.time / tuned.default.time
    return (
        f"{name}: `{shown(tuned.best.settings)}` peaks at {grid.number(tuned.best.peak / size.size)} {size.name}, {share:.1%} of the default's "
        f"{grid.number(tuned.default.peak / size.size)} {size.name}, and takes {longer:.1%} of its time {timed}."
    )


def _more_time(tuned: Tuned) -> str:
    """The --time in which each value is tried, in whole minutes; empty if no trial of this search tells."""
    return f" --time {math.ceil(tuned.needed_ns / 60e9)}min tries each." if tuned.needed_ns else ""


def _notes(tuned: Tuned, bold: bool) -> list[str]:
    notes = []
    trials = counted(tuned.trials, "trial")
    if tuned.verified:
        notes.append(
            f"Medians of {tuned.repeats} fresh runs each, interleaved, ± the distance to the farthest. {trials} came before."
            if tuned.repeats > 1
            else f"One fresh run each: there was no time for more; {trials} before."
        )
    else:
        notes.append(f"Not verified: medians of the search's {trials}.")
    if not tuned.complete:
        left = f" Not tried: {counted(tuned.untried, 'value')}.{_more_time(tuned)}" if tuned.untried else ""
        notes.append(f"The search was not finished; with more time it may find better settings.{left}")
    if tuned.given:
        notes.append(f"The default has {', '.join(f'{name}={value}' for name, value in tuned.given.items())}.")
    if not tuned.compares:
        notes.append("The outputs of a program are not compared: whether they stay the same is yours to see.")
    if any(proposal.changes_outputs for proposal in tuned.proposals):
        marked = f"{'bold' if bold else 'said to differ'} beyond {tuned.tolerance:g}"
        notes.append(f"Outputs: the largest difference from the default's over their largest magnitude; {marked}.")
    if tuned.idle:
        notes.append(f"These change neither PEAK nor time, and are left out: {', '.join(f'{name}={value}' for name, value in tuned.idle)}.")
    notes += [f"{shown(settings)} fails: {message}" for settings, message in tuned.failed]
    return notes + [_left_out(each, tuned.verified) for each in tuned.left_out]


def _left_out(each: LeftOut, verified: bool) -> str:
    name = f"#{each.number} ({shown(each.settings)})"
    if each.rival is None:
        return f"{name} failed when it was measured again: {each.error}"
    rival = "the default" if each.rival == 0 else f"#{each.rival}"
    return f"{name} is left out: {'measured again' if verified else 'by the medians'}, it has no less PEAK and takes no less time than {rival}."


def _plain(tuned: Tuned) -> dict[str, Any]:
    return {
        "model": tuned.model,
        "runtime": tuned.runtime,
        "max_time": tuned.goal.max_time,
        "budget_bytes": tuned.goal.budget,
        "default": _plain_proposal(tuned.default),
        "proposals": [_plain_proposal(proposal) for proposal in tuned.proposals],
        "best": None if tuned.best is None else dict(sorted(tuned.best.settings)),
        "idle": [f"{name}={value}" for name, value in tuned.idle],
        "left_out": [
            {"number": each.number, "settings": dict(sorted(each.settings)), "rival": each.rival, "error": each.error or None}
            for each in tuned.left_out
        ],
        "failed": [{"settings": dict(sorted(settings)), "message": message} for settings, message in tuned.failed],
        "trials": tuned.trials,
        "complete": tuned.complete,
        "untried": tuned.untried,
        "verified": tuned.verified,
        "repeats": tuned.repeats,
        "timed": tuned.timed,
        "outputs_compared": tuned.compares,
        "given": dict(tuned.given),
        "threads": tuned.threads,
        "shapes": {name: list(shape) for name, shape in tuned.shapes.items()},
        "assumed": {name: list(shape) for name, shape in tuned.assumed.items()},
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
    }
