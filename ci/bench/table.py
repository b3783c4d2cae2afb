"""The results of a section of the bench, the little arithmetic that sections share, and their Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Setting:
    """How the bench runs. folder: for scenarios and logs, gone afterwards; model: the path of inception_v3.onnx."""

    quick: bool
    folder: Path
    model: Callable[[], Path]
    say: Callable[[str], None]

    def count(self, full: int, quick: int) -> int:
        """How often something is done."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Row:
    """A line of the table, its cells as they are shown, those of the section's peers in their order. met: None without a target."""

    subject: str
    target: str
    memprof: str
    peer: str = "-"
    other_peer: str = "-"
    _: KW_ONLY
    ratio: str = "-"
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, its verdict last."""
        verdict = "" if self.met is None else "met" if self.met else "**missed**"
        return (self.subject, self.target or "-", self.memprof, self.peer, self.other_peer, self.ratio, verdict)


@dataclass(frozen=True)
class Section:
    """A section's rows, notes on the meaning of its cells, every figure behind them, and the tools beside memprof."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    raw: Mapping[str, Any]
    peers: tuple[str, str] = ("mprof", "psrecord")


def markdown(section: Section) -> str:
    """The section's rows as a table, without the columns that are empty in every row."""
    headings = ("what", "target", "memprof", *section.peers, "peer / memprof", "")
    columns = [number for number in range(len(headings)) if any(row.cells[number] not in ("", "-") for row in section.rows)]
    return aligned([tuple(line[number] for number in columns) for line in (headings, *(row.cells for row in section.rows))])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text, the headings first, as a Markdown table whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and the two quartiles around it; all three are the same for a single value."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, half, high = statistics.quantiles(values, n=4, method="inclusive")
    return half, low, high


def ratios(own: float, **peers: Sequence[float]) -> str:
    """How many times as much each peer's figures are as memprof's."""
    return ", ".join(f"{name} {' / '.join(_times(value / own) for value in values)}" for name, values in peers.items())


def _times(ratio: float) -> str:
    if ratio > 1000:
        return ">1000x"
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x" if ratio >= 2 else f"{ratio:.2f}x"
