"""Tests of pytest-benchmark: their peaks beside their times. Another process runs such a test once, for its peak; the first process times it."""

from __future__ import annotations

import pytest

from ..base.units import format_bytes

OPTION, FIXTURE = "--memprof", "benchmark"
PEAK = "peak_rss_bytes"
BEFORE = "rss_before_bytes"
measured = pytest.StashKey[dict[str, int]]()  # of a test: its figures from the other process


def is_measured(item: pytest.Item) -> bool:
    """Whether the test's peak is shown beside its times."""
    return bool(item.config.getoption(OPTION)) and FIXTURE in getattr(item, "fixturenames", ())


def tell(item: pytest.Item) -> None:
    """Put a test's figures where its times are: into pytest-benchmark's JSON, and into the test's properties."""
    figures = item.stash.get(measured, None)
    if figures is not None:
        getattr(item, "funcargs", {})[FIXTURE].extra_info.update(figures)
        item.user_properties += list(figures.items())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The peaks of all tests that were measured for them, the highest first."""
    if not config.getoption(OPTION):
        return
    peaks = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        properties = dict(getattr(report, "user_properties", ()))
        if PEAK in properties and BEFORE in properties:
            peaks[report.nodeid] = (int(properties[PEAK]), int(properties[BEFORE]))
    if not peaks:
        return
    terminalreporter.section("memprof: peak RSS, and its growth in the test")
    for name, (peak, before) in sorted(peaks.items(), key=lambda named: -named[1][0]):
        terminalreporter.write_line(f"{format_bytes(peak):>12} {'+' + format_bytes(max(peak - before, 0)):>12}  {name}")
