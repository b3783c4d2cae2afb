"""Absolute limits beside relative ones, in a TOML file: no run may exceed them, whatever it needed before.

    peak = "400 MiB"                  # of every model and variant: its PEAK

    [[budget]]
    model = "inception_*"             # globs (* ? [seq]); a field that is left out means any
    variant = "onert*"
    peak = "210 MiB"

    [[budget]]
    phase = "PREPARE"
    anon_end_bytes = "120 MiB"        # any metric by its name, or by a glob: "*_end_bytes"
    time_ns = "300 ms"

    [[budget]]
    growth_bytes = "0 B"              # at most so much more with each iteration: see growth_limits.py
    per = "iteration"                 # or "reload", or "shape"

`peak` is rss_peak_bytes, of PEAK where no phase is named. The most specific of several limits on a row wins: the limit that names the model
more closely, then the variant, the phase, the metric; of equals the last. A limit that matches no row is an error: it guards nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..base import toml
from ..base.errors import UsageError, near, near_or_all
from ..base.units import parse_bytes, parse_duration_ns
from ..records.metrics import BYTES, GROWTH, METRICS, NS, amount
from ..records.summary import Key, Row, whole
from ..records.types import PEAK
from .baseline import BaselineEntry
from .verdicts import Judged, swap_words

_WHERE = ("model", "variant", "phase")
_FIELDS = (*_WHERE, "metric")
_PER = "per"

# Where a limit may hold: model, variant, phase and metric, or as many of these, from the first on, as are known.
Spot = tuple[str, ...]


class Budget(Struct, frozen=True):
    """A limit, in the unit of its metrics, on all rows that its globs match. text: how it was written; file, number: where, from 1."""

    model: str
    variant: str
    phase: str
    metric: str
    limit: float
    text: str
    file: Path = Path()
    number: int = 0

    @property
    def words(self) -> str:
        """The budget as a reader finds it in the file."""
        where = [f"{name} {glob}" for name in _WHERE if (glob := getattr(self, name)) != "*"]
        return f"{self.metric} = {self.text!r}" + (f" ({', '.join(where)})" if where else "")

    @property
    def globs(self) -> tuple[str, str, str, str]:
        """Model, variant, phase and metric."""
        return self.model, self.variant, self.phase, self.metric

    @property
    def closeness(self) -> tuple[tuple[bool, int], ...]:
        """How closely it names what it limits: field by field, a name before a glob, and a glob with more letters before a glob with fewer."""
        return tuple((not _is_glob(glob), sum(letter not in "*?[]" for letter in glob)) for glob in self.globs)

    def matches(self, row: Row) -> bool:
        """Whether it limits this row."""
        return all(fnmatchcase(name, glob) for name, glob in zip(_spot(row), self.globs, strict=True))

    def limits(self, key: Key, phase: str) -> bool:
        """Whether it limits this variant in this phase."""
        return all(fnmatchcase(name, glob) for name, glob in zip((key.model, key.heading, phase), self.globs, strict=False))


def _spot(row: Row) -> Spot:
    return row.key.model, row.key.heading, row.phase, row.metric


def _is_glob(text: str) -> bool:
    return any(letter in text for letter in "*?[")


def read(path: Path) -> tuple[Budget, ...]:
    """The budgets in a file. Raises InputError if it cannot be read, UsageError if its content is no TOML or no budget."""
    top: dict[str, Any] = toml.read_named("budgets", path)
    tables = top.pop("budget", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"budgets {path}: write [[budget]] above each group of limits")
    limits = [budget for table in [top, *tables] for budget in _budgets(table, path)]
    if not limits:
        raise UsageError(f"budgets {path}: there is no limit in it")
    return tuple(Budget(*facts, path, number) for number, facts in enumerate(limits, 1))


def of_peak(text: str) -> Budget:
    """The budget for the peak of everything, from `900MiB`. Raises UsageError."""
    if re.fullmatch(r"[0-9.]*[1-9][0-9.]*", text.strip()):  # 900 bytes are what nobody means
        raise UsageError(f"--budget {text!r} has no unit: write {text.strip()}MiB")
    return Budget("*", "*", PEAK, "rss_peak_bytes", parse_bytes(text), text)


def _budgets(table: Mapping[str, Any], path: Path) -> Iterable[tuple[str, str, str, str, float, str]]:
    where = {name: table.get(name, "*") for name in _WHERE}
    names = [name for name in table if name not in (*_WHERE, _PER)]
    if table and not names:
        raise UsageError(f'budgets {path}: a budget names no limit, such as peak = "120 MiB"')
    for name in _WHERE:
        if not isinstance(where[name], str):
            raise UsageError(f"budgets {path}: {name} = {where[name]!r}: write a name or a glob in quotes")
    if _PER in table and (not isinstance(table[_PER], str) or GROWTH not in names):
        raise UsageError(f"budgets {path}: per = {table[_PER]!r} names the unit of {GROWTH}, in quotes and beside it")
    for name in names:
        if name == GROWTH:
            yield (
                where["model"],
                where["variant"],
                f"per {table.get(_PER, '*')}",
                name,
                _limit(name, "rss_peak_bytes", table[name], path),
                str(table[name]),
            )
            continue
        metric, phase = ("rss_peak_bytes", table.get("phase", PEAK)) if name == "peak" else (name, where["phase"])
        yield where["model"], where["variant"], phase, metric, _limit(name, metric, table[name], path), str(table[name])


def _limit(name: str, metric: str, value: Any, path: Path) -> float:
    units = {METRICS[known].unit for known in METRICS if fnmatchcase(known, metric)}
    if not units:
        known = [*METRICS, "peak", GROWTH, *_WHERE]
        raise UsageError(f"budgets {path}: {name} is not a metric{near(name, known) or '; there are ' + ', '.join(METRICS)}")
    if len(units) > 1:
        raise UsageError(f"budgets {path}: {name} means metrics with different units ({', '.join(sorted(units))})")
    (unit,) = units
    try:
        if unit == BYTES and isinstance(value, str):
            return parse_bytes(value)
        if unit == NS and isinstance(value, str):
            return parse_duration_ns(value)
    except UsageError as error:
        raise UsageError(f"budgets {path}: {name}: {error}") from None
    if unit not in (BYTES, NS) and isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return value
    wanted = {BYTES: 'a size such as "120 MiB"', NS: 'a duration such as "300 ms"'}.get(unit, "a number from 0 on")
    raise UsageError(f"budgets {path}: {name} = {value!r}: write {wanted}")


def metric_names(budgets: Iterable[Budget]) -> tuple[str, ...]:
    """The metrics that budgets limit."""
    return tuple(dict.fromkeys(name for budget in budgets for name in METRICS if fnmatchcase(name, budget.metric)))


def check(budgets: Iterable[Budget], spots: Sequence[Spot]) -> None:
    """Raises UsageError for a budget that matches none of these spots, as far as they are known: it guards nothing. Growth is no row of a run."""
    for budget in budgets:
        if budget.metric == GROWTH:
            continue
        left = spots
        for place, (name, glob) in enumerate(zip(_FIELDS, budget.globs, strict=True)):
            known = dict.fromkeys(spot[place] for spot in left if len(spot) > place)
            left = [spot for spot in left if len(spot) <= place or fnmatchcase(spot[place], glob)]
            if not left:
                raise UsageError(
                    f"budgets {budget.file}: {budget.words} guards nothing: no {name} that is measured matches {glob}"
                    f"{near_or_all(glob, known, '; ')}"
                )


def judge(budgets: Sequence[Budget], head: Sequence[BaselineEntry]) -> list[Judged]:
    """A verdict for each row that has a budget: over if any repeat is above it. Raises UsageError for a budget that matches no row."""
    rows = [row for entry in head for row in entry.rows]
    check([budget for budget in budgets if not _limits_a_failed(budget, head)], [_spot(row) for row in rows])
    judged = []
    for row in rows:
        matching = [budget for budget in budgets if budget.matches(row)]
        if matching:
            judged.append(_judged(row, max(matching, key=lambda budget: (budget.closeness, budget.number))))
    return judged


def _limits_a_failed(budget: Budget, head: Sequence[BaselineEntry]) -> bool:
    """Whether a budget limits a variant with failed runs: the failure may be why its row is missing."""
    return any(entry.failed and fnmatchcase(entry.model, budget.model) and fnmatchcase(entry.heading, budget.variant) for entry in head)


def _judged(row: Row, budget: Budget) -> Judged:
    row = whole(row)
    over = row.max > budget.limit
    most = amount(row.metric, row.max) + (f", the worst of {len(row.values)}," if len(row.values) > 1 else "")
    limit = amount(row.metric, budget.limit)
    # A value just above the budget may be rounded to the same figure.
    excess = amount(row.metric, row.max - budget.limit)
    reason = f"{most} is above the budget of {limit} by {excess}" if over else f"{most} is within the budget of {limit}"
    reason += swap_words(row)
    return Judged(row.key, row.phase, row.metric, "over" if over else "ok", reason, head=row, budget=budget.limit)
