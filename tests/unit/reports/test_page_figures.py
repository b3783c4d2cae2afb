"""The bars and tables of the page: lengths are shares of the longest bar, and a variant without a figure says why."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.sample_runs import MIB, mark, run

from memprof.records.types import Outcome, Run
from memprof.reports.page import figures


def measured(variant: str, peak: int, anon: int, file: int, repeat: int = 1) -> Run:
    """A run that peaks in PREPARE, where it ends with these parts, in MiB."""
    prepare = replace(mark("PREPARE", 1, anon + file, peak), anon_end_bytes=anon * MIB, file_end_bytes=file * MIB)
    return replace(run(variant, repeat), marks=(mark("STARTUP", 0, 40, 40), prepare))


def test_bar_parts_add_up_to_peak() -> None:
    fat, lean = figures.figures([measured("fat", 200, 100, 60), measured("lean", 100, 60, 40)]).bars["PEAK"]

    assert (fat.value, fat.spread, fat.where) == ("200.0 MiB", "", "PREPARE")
    assert [(part.kind, part.length) for part in fat.parts] == [("anonymous", 50), ("file", 30), ("transient", 20)]
    assert [part.words for part in fat.parts][2] == "40.0 MiB given back by its end"
    assert [(part.kind, part.length) for part in lean.parts] == [("anonymous", 30), ("file", 20)]
    assert fat.ground == lean.ground == 20


def test_bar_range_of_repeats() -> None:
    runs = [measured("a", peak, 100, 20, repeat) for repeat, peak in enumerate((150, 200, 180), 1)]

    (bar,) = figures.figures(runs).bars["PREPARE"]

    assert (bar.value, bar.spread) == ("180.0 MiB", "±30.0")
    assert (bar.low, bar.high) == (75, 100)
    (steady,) = figures.figures([measured("a", 200, 100, 20, repeat) for repeat in (1, 2)]).bars["PREPARE"]
    assert steady.low is None and steady.high is None


def test_bar_without_figure_has_reason() -> None:
    crash = Outcome("signal", phase="PREPARE", signal="SIGSEGV")
    runs = [measured("a", 200, 100, 20), replace(measured("b", 200, 100, 20), outcome=crash, marks=(mark("STARTUP", 0, 40, 40),))]

    _, bar = figures.figures(runs).bars["PREPARE"]

    assert not bar.value and bar.why == "it failed in PREPARE (SIGSEGV) and never came so far"


def test_bar_of_unsplit_peak() -> None:
    made = measured("a", 200, 100, 20)
    bare = replace(made, marks=(made.marks[0], replace(made.marks[1], anon_end_bytes=None)))

    (bar,) = figures.figures([bare]).bars["PREPARE"]

    assert [(part.length, part.words) for part in bar.parts] == [(100, "the system does not say what it consists of")]


def test_tables_above_baseline_only_of_memory() -> None:
    choices = figures.figures([measured("a", 200, 100, 20)]).choices

    assert [each.table.rows[0][-1] for each in choices if each.metric == "rss_peak_bytes"] == ["200.0", "160.0"]
    assert [each.above for each in choices if each.metric == "time_ns"] == [False]


@pytest.mark.parametrize("phase", ["PEAK", "PREPARE", "STARTUP"])
def test_bars_leave_out_startup(phase: str) -> None:
    assert (phase in figures.figures([measured("a", 200, 100, 20)]).bars) == (phase != "STARTUP")


def test_chips_of_long_names_differ() -> None:
    """Cut at their ends alone, they would be the same words."""
    names = [f"onnxruntime with a name that is long, {setting}=on" for setting in ("arena", "mem_pattern")]
    chips = figures.figures([measured(name, 200, 100, 60) for name in (*names, "short")]).chips

    assert [name for name, _ in chips] == [*names, "short"]
    assert len({short for _, short in chips}) == 3 and max(len(short) for _, short in chips) <= 40
