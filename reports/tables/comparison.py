"""A comparison as a table: both medians, their difference and ratio, its interval, and whether it is beyond noise."""

from __future__ import annotations

import json
from collections.abc import Sequence

from memprof.judge.compare import Comparison, Difference
from memprof.runs import metrics

from . import grid
from .grid import Section, Table, Unit

_WORDS = {"more": "more", "less": "less", "noise": "within noise", "too few": "too few repeats"}


def render(comparison: Comparison, *, all_rows: bool = False, unit: str | None = None, format: str = "markdown") -> str:
    """The comparison as Markdown, or the same content as JSON. all_rows: those within noise too."""
    if format == "json":
        return _json(comparison)
    return grid.markdown(section(comparison, all_rows=all_rows, unit=unit))


def section(comparison: Comparison, *, all_rows: bool = False, unit: str | None = None) -> Section:
    """One table a metric, and the geometric means of the ratios."""
    shown = [one for one in comparison.differences if all_rows or one.verdict != "noise"]
    tables = [_table([one for one in shown if one.metric == name], unit) for name in dict.fromkeys(one.metric for one in shown)]
    tables.append(_means(comparison))
    folded = len(comparison.differences) - len(shown)
    notes = [f"{folded} rows are within noise and left out; --all shows them."] if folded else []
    notes.append("95% interval of the difference by bootstrap; beyond noise by an exact rank test at 0.01 with 5 repeats a side or more.")
    for side, keys in (("base", comparison.only_base), ("head", comparison.only_head)):
        notes += [f"only in the {side}: {key.model}, {key.variant}{f', {key.threads} threads' if key.threads else ''}" for key in keys]
    return Section("", tuple(tables), (*notes, *comparison.remarks))


def _table(rows: Sequence[Difference], wanted: str | None) -> Table:
    metric = metrics.METRICS[rows[0].metric]
    unit = grid.choose_unit(metric.unit, [value for one in rows for value in (one.base.median, one.head.median)], wanted)
    threads = any(one.key.threads for one in rows)
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
    texts = tuple((*_labels(one, threads), *_figures(one, unit)) for one in rows)
    return Table(unit.caption(metric.title), header, texts, 4 if threads else 3)


def _labels(one: Difference, threads: bool) -> tuple[str, ...]:
    count = str(one.key.threads) if one.key.threads else "default"
    return (one.key.model, one.key.variant, *([count] if threads else []), one.phase)


def _figures(one: Difference, unit: Unit) -> tuple[str, ...]:
    base, head, difference = (value / unit.size for value in (one.base.median, one.head.median, one.difference))
    low, high = (value / unit.size for value in one.interval)
    tilde = "" if one.base.exact and one.head.exact else "~"
    return (
        tilde + grid.number(base),
        tilde + grid.number(head),
        _signed(difference, base),
        f"{one.ratio:.3f}" if one.ratio is not None else "-",
        f"{_signed(low, base)} to {_signed(high, base)}" if one.verdict != "too few" else "-",
        _WORDS[one.verdict],
    )


def _signed(value: float, beside: float) -> str:
    text = grid.number(value, max(abs(beside), abs(value)))
    return text if text.startswith("-") else "+" + text


def _means(comparison: Comparison) -> Table:
    means = comparison.geometric_means()
    names = list(dict.fromkeys(metric for metric, _ in means))
    phases = list(dict.fromkeys(phase for _, phase in means))
    rows = tuple(
        (metrics.METRICS[name].title, *(f"{means[name, phase]:.3f}" if (name, phase) in means else "-" for phase in phases))
        for name in names
    )
    return Table("Geometric mean of the ratios, head over base", ("metric", *phases), rows)


def _json(comparison: Comparison) -> str:
    rows = [
        {
            "model": one.key.model,
            "variant": one.key.variant,
            "threads": one.key.threads,
            "phase": one.phase,
            "metric": one.metric,
            "unit": metrics.METRICS[one.metric].unit,
            "base": list(one.base.values),
            "head": list(one.head.values),
            "base_median": one.base.median,
            "head_median": one.head.median,
            "difference": one.difference,
            "ratio": one.ratio,
            "interval": list(one.interval),
            "verdict": one.verdict,
        }
        for one in comparison.differences
    ]
    means = [{"metric": metric, "phase": phase, "ratio": ratio} for (metric, phase), ratio in comparison.geometric_means().items()]
    return json.dumps({"differences": rows, "geometric_means": means, "remarks": list(comparison.remarks)}, indent=1)
