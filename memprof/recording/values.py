"""Figures that the measured program reports of itself, in bounded number."""

from __future__ import annotations

from typing import Any

from .fields import count, word

_MOST = 4000  # beyond them the values of each name are thinned to the extremes of neighbours
_MOST_VALUE = 1e100  # memprof refuses larger numbers; a file of JSON holds neither infinities nor NaN


class ValueCollector:
    """records: memprof.records.types.Value of each figure."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def take(self, mark: dict[str, Any], phase: str) -> None:
        """Take a line of a value; phase: the one that runs, empty for none. Raises TypeError, ValueError and KeyError."""
        number = mark["value"]
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ValueError("no number")
        value = {"name": word(mark["name"]), "t_ns": count(mark["t_ns"]), "value": number}
        if number != number:
            value.update(value=None, note="not a number")
        elif abs(number) >= _MOST_VALUE:
            size = "infinite" if abs(number) == float("inf") else "1e100 or more"
            value.update(value=None, note=size if number > 0 else "minus " + size)
        elif abs(number) >= 1 << 53:
            value["value"] = float(number)
        if phase:
            value["phase"] = phase
        self.records.append(value)
        if len(self.records) > _MOST:
            self.records = _thinned(self.records)


def _thinned(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The smallest and the largest of each four neighbours of a name."""
    kept: list[dict[str, Any]] = []
    names: dict[str, list[dict[str, Any]]] = {}
    for value in values:
        names.setdefault(value["name"], []).append(value)
    for same in names.values():
        for start in range(0, len(same), 4):
            part = same[start : start + 4]
            numbers = [value for value in part if value["value"] is not None] or part[:1]
            low, high = min(numbers, key=_number), max(numbers, key=_number)
            kept += [low] if low is high else [low, high]
    return sorted(kept, key=lambda value: value["t_ns"])


def _number(value: dict[str, Any]) -> float:
    return value["value"] or 0
