"""What a section of the bench hands back, the little arithmetic they share, and the Markdown they become."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

HEADINGS = ("what", "target", "memprof", "mprof", "psrecord", "peer / memprof", "")


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
    """One line of the table, its cells as they are shown. met: None where there is no target."""

    what: str
    target: str
    memprof: str
    mprof: str = "-"
    psrecord: str = "-"
    _: KW_ONLY
    ratio: str = "-"
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, its verdict last."""
        verdict = "" if self.met is None else "met" if self.met else "**missed**"
        return (self.what, self.target or "-", self.memprof, self.mprof, self.psrecord, self.ratio, verdict)


@dataclass(frozen=True)
class Section:
    """A section's rows, what its cells mean, and every figure behind them."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    raw: Mapping[str, Any]


def markdown(rows: Sequence[Row]) -> str:
    """The rows as one table."""
    lines = [HEADINGS, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines]
    text.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(text)


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
