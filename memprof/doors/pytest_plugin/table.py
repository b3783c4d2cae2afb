"""The table of `pytest --memprof`: one row per test that was measured, the highest peak first. Its figures are properties of the tests' reports."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import pytest

from ...base.units import format_bytes, format_duration
from .limit import ONLY_LINUX, OUTSIDE, measured_from_outside, profile_words

OPTION = "--memprof"
PEAK, BEFORE = "peak_rss_bytes", "rss_before_bytes"
GROWTH, RATE, HIDDEN = "growth_verdict", "growth_bytes_per_call", "growth_hidden_bytes_per_call"
_HEADER = ("peak RSS", "in the test", "per call", "time")
_NOTHING = "No test was measured: those that ran were skipped, failed, or are no functions (such as doctests)."
_FIXTURE = "A test with the memprof fixture runs here, and measures in other processes: it has no memory of its own, and memprof.grows has no peak."
_NO_LEAKS = 'Leaks were not looked for: @pytest.mark.memprof(leaks="0 B") or memprof.grows of the fixture looks for them.'
_FLAT = "Per call, `< N` is the verdict steady or bounded: growth below N per call could hide."


def pytest_report_header(config: pytest.Config) -> str | None:
    if measured_from_outside(os.environ):
        return f"memprof: {OUTSIDE}: a test with its mark runs once, here and without its limit, and one with its fixture is skipped"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption(OPTION) or measured_from_outside(os.environ):
        return
    figures: dict[str, dict[str, Any]] = {}
    times_s: dict[str, float] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if isinstance(report, pytest.TestReport):
            figures.setdefault(report.nodeid, {}).update(report.user_properties)
            times_s[report.nodeid] = times_s.get(report.nodeid, 0) + report.duration
    rows = sorted((item for item in figures.items() if {PEAK, GROWTH} & set(item[1])), key=lambda item: -item[1].get(PEAK, 0))
    terminalreporter.write_sep("=", "memprof: the memory of each test")
    if not rows:
        terminalreporter.write_line(_NOTHING if sys.platform.startswith("linux") else f"{ONLY_LINUX}.")
        return
    for cells, name in ((_HEADER, "test"), *((_cells(row, times_s[name]), name) for name, row in rows)):
        terminalreporter.write_line("  ".join([*(f"{cell:>11}" for cell in cells), name]))
    if any(BEFORE not in row and RATE in row and PEAK not in row for _, row in rows):
        terminalreporter.write_line(_FIXTURE)
    if any(HIDDEN in row for _, row in rows):
        terminalreporter.write_line(_FLAT)
    if not any(GROWTH in row for _, row in rows):
        terminalreporter.write_line(_NO_LEAKS)
    largest, figures_of_largest = rows[0]
    commands = profile_words(config.cwd_relative_nodeid(largest))
    shown = () if config.option.tbstyle == "no" else terminalreporter.stats.get("failed", ())  # whose messages pytest shows
    failed = [report for report in shown if report.nodeid == largest]
    if BEFORE in figures_of_largest and not any(commands in report.longreprtext for report in failed):
        terminalreporter.write_line(f"{largest} has the highest peak. Its lines: {commands}")


def _cells(row: dict[str, Any], time_s: float) -> tuple[str, ...]:
    peak = format_bytes(row[PEAK]) if PEAK in row else "-"
    inside = f"+{format_bytes(max(row[PEAK] - row[BEFORE], 0))}" if BEFORE in row else "-"
    rate = (
        f"< {format_bytes(math.ceil(row[HIDDEN]))}"
        if HIDDEN in row
        else format_bytes(row[RATE])
        if RATE in row
        else str(row.get(GROWTH, "-"))
    )
    return peak, inside, rate, format_duration(time_s * 1e9)
