"""A comparison as a table: both medians, their difference and ratio, its interval, and whether it is beyond noise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from memprof.base.units import counted, format_bytes
from memprof.records import metrics
from memprof.records.types import PEAK
from memprof.verdicts.compare import Comparison, Difference

from ..rows import exactness_notes, key_fields, place
from . import grid, headline, inputs
from .grid import Section, TextTable, Unit

_WORDS = {"more": "more", "less": "less", "noise": "within noise", "too few": "too few repeats"}
_SAME = "the same"  # to as many digits as the table has
_EVERY_PHASE = ("time_ns", "rss_peak_bytes")  # metrics of which a variant that differs has all phases: those that stay the same count too


def render(comparison: Comparison, *, all_rows: bool = False, unit: str | None = None, format: str = "markdown") -> str:
    """The comparison as Markdown or as text, a sentence first, or the same content as JSON. all_rows: those that stay the same too.

    In JSON a row of PEAK has `peak_phases` too: the phases in which base's PEAK is, and those of head's.
    """
    if format == "json":
        return _json(comparison)
    say, first = grid.say_in(format), headline.of_comparison(comparison)
    return "\n\n".join([*([say(first)] if first else []), grid.laid_out(section(comparison, all_rows=all_rows, unit=unit), say)])


def section(comparison: Comparison, *, all_rows: bool = False, unit: str | None = None) -> Section:
    """One table per metric, and the geometric means of the ratios where there are several rows of each phase."""
    names = list(dict.fromkeys(row.metric for row in comparison.differences))
    units = {name: _unit([row for row in comparison.differences if row.metric == name], unit) for name in names}
    differing = [row.verdict != "noise" and not _is_same(row, units[row.metric]) for row in comparison.differences]
    whole = {(row.key, row.metric) for row in itertools.compress(comparison.differences, differing) if row.metric in _EVERY_PHASE}
    rows = [
        row for row, differs in zip(comparison.differences, differing, strict=True) if all_rows or differs or (row.key, row.metric) in whole
    ]
    tables = [_table(shown, units[name]) for name in names if (shown := [row for row in rows if row.metric == name])]
    if len({row.key for row in comparison.differences}) > 1:
        tables.append(_means(comparison))
    folded = len(comparison.differences) - len(rows)
    notes = inputs.notes(comparison.ran)
    if folded:
        verb, pronoun = ("is", "it") if folded == 1 else ("are", "them")
        notes.append(f"{counted(folded, 'row')} {verb} the same or within noise, and left out; --all shows {pronoun}.")
    bound = max((run.machine.peak_bound_bytes for run in comparison.measured), default=0)
    notes.append(
        "The 95% interval of the difference is by bootstrap. Beyond noise: by a rank test at 0.01, with at least 5 repeats per side"
        f"{f', and of a peak by more than the {format_bytes(bound)} to which the kernel counts it' if bound else ''}."
    )
    notes += exactness_notes(side.exact for row in rows for side in (row.base, row.head))
    for side, keys in (("base", comparison.only_base), ("head", comparison.only_head)):
        notes += [f"only in the {side}: {place(key)}" for key in keys]
    origin = headline.origin(comparison.measured)
    return Section("", tuple(tables), (*notes, *comparison.remarks, *([origin] if origin else [])))


def _unit(rows: Sequence[Difference], wanted: str | None) -> Unit:
    values = [value for row in rows for value in (row.base.median, row.head.median)]
    return grid.choose_unit(metrics.METRICS[rows[0].metric].unit, values, wanted)


def _is_same(row: Difference, unit: Unit) -> bool:
    """Whether a difference beyond noise is none to as many digits as a table has."""
    return row.verdict in ("more", "less") and not any(digit in "123456789" for digit in _difference(row, unit))


def _difference(row: Difference, unit: Unit) -> str:
    return _signed(row.difference / unit.size, row.base.median / unit.size)


def _table(rows: Sequence[Difference], unit: Unit) -> TextTable:
    threads = any(row.key.threads for row in rows)
    header = (
        "model",
        "variant",
        *(["threads"] if threads else []),
        "phase",
        "base",
        "head",
        "difference",
        "ratio",
        "95% interval",
        "verdict",
    )
    texts = tuple((*_labels(row, threads), *_figures(row, unit)) for row in rows)
    return TextTable(unit.caption(metrics.METRICS[rows[0].metric].title), header, texts, 4 if threads else 3)


def _labels(row: Difference, threads: bool) -> tuple[str, ...]:
    count = str(row.key.threads) if row.key.threads else "default"
    return (row.key.model, row.key.heading, *([count] if threads else []), row.phase)


def _figures(row: Difference, unit: Unit) -> tuple[str, ...]:
    base, head = row.base.median / unit.size, row.head.median / unit.size
    low, high = (value / unit.size for value in row.interval)
    return (
        ("" if row.base.exact else "~") + grid.number(base),
        ("" if row.head.exact else "~") + grid.number(head),
        _difference(row, unit),
        f"{row.ratio:.3f}" if row.ratio is not None else "-",
        f"{_signed(low, base)} to {_signed(high, base)}" if row.verdict != "too few" else "-",
        _SAME if _is_same(row, unit) else _WORDS[row.verdict],
    )


def _signed(value: float, beside: float) -> str:
    text = grid.number(value, max(abs(beside), abs(value)))
    return text if text.startswith("-") else "+" + text


def _means(comparison: Comparison) -> TextTable:
    means = comparison.geometric_means()
    names = list(dict.fromkeys(metric for metric, _ in means))
    having = {phase for _, phase in means}
    phases = [phase for phase in comparison.phases if phase in having]
    rows = tuple(
        (metrics.METRICS[name].title, *(f"{means[name, phase]:.3f}" if (name, phase) in means else "-" for phase in phases))
        for name in names
    )
    return TextTable("Geometric mean of the ratios, head over base", ("metric", *phases), rows)


def _json(comparison: Comparison) -> str:
    rows = [
        {
            **key_fields(row.key),
            "phase": row.phase,
            "metric": row.metric,
            "unit": metrics.METRICS[row.metric].unit,
            "base": list(row.base.values),
            "head": list(row.head.values),
            "base_median": row.base.median,
            "head_median": row.head.median,
            "difference": row.difference,
            "ratio": row.ratio,
            "interval": list(row.interval),
            "verdict": row.verdict,
            **({"peak_phases": [list(side.level) for side in comparison.peak_phases[row.key.place]]} if row.phase == PEAK else {}),
        }
        for row in comparison.differences
    ]
    means = [{"metric": metric, "phase": phase, "ratio": ratio} for (metric, phase), ratio in comparison.geometric_means().items()]
    content = {
        "sentence": headline.of_comparison(comparison),
        "differences": rows,
        "geometric_means": means,
        "remarks": list(comparison.remarks),
        "inputs": inputs.fields(comparison.ran),
        "origin": headline.origin(comparison.measured),
    }
    return json.dumps(content, indent=1)
