"""What `memprof tune` found: the proposals as a table, with the command that measures each again."""

from __future__ import annotations

import json
from typing import Any

from memprof.plain import plain
from memprof.runs.metrics import BYTES, NS
from memprof.seek.tune import Proposal, Tuned, shown
from memprof.units import format_bytes

from . import grid
from .grid import Say, Section, Table, Unit
from .shapes import shaped


def render(found: Tuned, *, unit: str | None = None, format: str = "markdown") -> str:
    """The outcome as markdown, as text for a terminal, or the same content as json. Raises UsageError for an unknown unit."""
    if format == "json":
        return json.dumps(_plain(found), indent=1)
    say = plain if format == "text" else grid.escaped
    parts = [_finding(found, say, unit), grid.laid_out(section(found, unit, bold=format != "text"), say)]
    parts += [f"{name}\n\n    {one.command}" for name, one in _named(found) if one is not found.default]
    return "\n\n".join(parts)


def section(found: Tuned, unit: str | None = None, bold: bool = True) -> Section:
    """The table of the default and every proposal, and what was learned on the way. bold: what changes the outputs is marked so."""
    every = [found.default, *found.proposals]
    size = _unit(found, unit)
    time = grid.choose_unit(NS, [one.time for one in every])
    header = ("", "settings", f"PEAK ({size.name})", "of default", f"iteration ({time.name})", "of default", "outputs")
    rows = tuple(
        (
            name,
            shown(one.settings),
            grid.spread(one.peak / size.size, [peak / size.size for peak in one.peaks]),
            f"{one.peak / found.default.peak:.1%}",
            grid.spread(one.time / time.size, [value / time.size for value in one.times]),
            f"{one.time / found.default.time:.1%}",
            _outputs(one, bold),
        )
        for name, one in _named(found)
    )
    return Section("", (Table("", header, rows, 2),), tuple(_notes(found, bold)))


def _unit(found: Tuned, unit: str | None) -> Unit:
    """The unit of the table and of the sentence above it, which say the same in the same words."""
    return grid.choose_unit(BYTES, [one.peak for one in (found.default, *found.proposals)], unit)


def _named(found: Tuned) -> list[tuple[str, Proposal]]:
    return [(f"#{one.number}{' (best)' if one is found.best else ''}", one) for one in (found.default, *found.proposals)]


def _outputs(one: Proposal, bold: bool) -> str:
    if one.output_error is None:
        return "-"
    if one.output_error == 0:
        return "same"
    words = f"{'differ by' if one.changes_outputs else 'within'} {one.output_error:.1g}"
    return f"**{words}**" if one.changes_outputs and bold else words


def _finding(found: Tuned, say: Say, unit: str | None) -> str:
    size = _unit(found, unit)
    threads = f", {found.threads} thread{'s' if found.threads != 1 else ''}" if found.threads else ""
    name = f"{say(found.model)}, {say(found.runtime)}{threads}{say(shaped(found.shapes, found.assumed))}"
    if found.best is None:
        wanted = f"within {format_bytes(found.goal.budget)}" if found.goal.budget is not None else "below the default's peak"
        kept = " and leave the outputs as they are" if any(one.changes_outputs for one in found.proposals) else ""
        return f"{name}: no settings were found that stay {wanted}{kept}."
    if found.best is found.default:
        return f"{name}: the default keeps within {format_bytes(found.goal.budget or 0)}, and nothing that does is faster."
    share, longer = found.best.peak / found.default.peak, found.best.time / found.default.time
    return (
        f"{name}: `{shown(found.best.settings)}` peaks at {grid.number(found.best.peak / size.size)} {size.name}, {share:.1%} of the default's "
        f"{grid.number(found.default.peak / size.size)} {size.name}, and takes {longer:.1%} of its time an iteration."
    )


def _notes(found: Tuned, bold: bool) -> list[str]:
    notes = []
    if found.verified:
        notes.append(
            f"Medians of {found.repeats} fresh runs each, interleaved, ± the distance to the farthest; {found.trials} trials before."
            if found.repeats > 1
            else f"One fresh run each, for there was no time for more; {found.trials} trials before."
        )
    else:
        notes.append(f"Not verified: medians of what the search saw in {found.trials} trials.")
    if not found.complete:
        notes.append("The search was not at its end when it stopped; more time may find more.")
    if any(one.changes_outputs for one in found.proposals):
        marked = f"{'bold' if bold else 'said to differ'} beyond {found.tolerance:g}"
        notes.append(f"Outputs: the largest difference from the default's over their largest magnitude; {marked}.")
    if found.idle:
        notes.append(f"These change neither PEAK nor time, and are left out: {', '.join(f'{name}={value}' for name, value in found.idle)}.")
    notes += [f"{shown(settings)} fails: {said}" for settings, said in found.failed]
    return notes


def _plain(found: Tuned) -> dict[str, Any]:
    def proposal(one: Proposal) -> dict[str, Any]:
        return {
            "settings": dict(sorted(one.settings)),
            "rss_peak_bytes": one.peak,
            "time_ns": one.time,
            "rss_peak_bytes_values": list(one.peaks),
            "time_ns_values": list(one.times),
            "output_error": one.output_error,
            "changes_outputs": one.changes_outputs,
            "command": one.command,
            "env": dict(one.variables),
        }

    return {
        "model": found.model,
        "runtime": found.runtime,
        "max_time": found.goal.max_time,
        "budget_bytes": found.goal.budget,
        "default": proposal(found.default),
        "proposals": [proposal(one) for one in found.proposals],
        "best": None if found.best is None else dict(sorted(found.best.settings)),
        "idle": [f"{name}={value}" for name, value in found.idle],
        "failed": [{"settings": dict(sorted(settings)), "message": said} for settings, said in found.failed],
        "trials": found.trials,
        "complete": found.complete,
        "verified": found.verified,
        "repeats": found.repeats,
        "threads": found.threads,
        "shapes": {name: list(shape) for name, shape in found.shapes.items()},
        "assumed": {name: list(shape) for name, shape in found.assumed.items()},
    }
