"""Pages that are swapped out: they are in no resident set, so each figure that lacks them says so, and no verdict forgets them."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.native_programs import ran
from support.sample_runs import MIB, packed, run, runs
from support.tables import cells

from memprof.base.errors import InputError, UsageError
from memprof.places import limits
from memprof.records import metrics, store
from memprof.records.types import PEAK, Run
from memprof.reports import frame
from memprof.reports.tables import table
from memprof.subjects.values import canonical_cpus
from memprof.verdicts import baseline, budgets, compare, verdicts

PEAK_OF_BOTH = metrics.METRICS["rss_swap_peak_bytes"]


def swapped(made: Run, mib: float, phase: str = "EXECUTE", end_mib: float | None = None) -> Run:
    """The run with this much swapped out at most in a phase, beside all of its peak, and at its end."""

    def change(mark):
        end = int((mib if end_mib is None else end_mib) * MIB)
        return replace(mark, swap_peak_bytes=int(mib * MIB), rss_swap_peak_bytes=mark.rss_peak_bytes + int(mib * MIB), swap_end_bytes=end)

    return replace(made, marks=tuple(change(mark) if mark.phase == phase else mark for mark in made.marks))


def test_table_shows_peak_with_swap():
    made = [swapped(each, 171.5) for each in runs()]

    text = table.render(made, brief=True, unit="MiB")

    assert cells(text, "RSS peak (MiB)")["a"]["EXECUTE"].startswith("≥268")
    assert cells(text, "RSS peak (MiB)")["a"]["PREPARE"].startswith("270")
    assert cells(text, "RSS peak (MiB)")["a"]["PEAK"].startswith("≥")
    both = cells(text, "Peak of RSS and swap (MiB)")["a"]
    assert both["EXECUTE"].startswith("~439.7") and both["PEAK"].startswith("~439.7") and both["PREPARE"].startswith("270.2")
    assert "≥ at least: pages were swapped out (171.5 MiB in EXECUTE, at most), which RSS does not count." in text


@pytest.mark.parametrize("style", ["phases", "models"])
def test_table_without_swap_unchanged(style):
    text = table.render(runs(), style=style, brief=style == "phases")
    assert "≥" not in text and "swap" not in text


@pytest.mark.parametrize("style", ["threads", "models"])
def test_table_styles_show_both_peaks(style):
    made = [swapped(each, 100) for each in runs(threads=2)]
    assert "Peak of RSS and swap (MiB)" in table.render(made, style=style)


def test_frame_has_both_peaks():
    rows = frame.runs_frame([swapped(run(), 100)]).set_index("phase")
    assert rows.loc["PEAK", "rss_swap_peak_bytes"] == 368 * MIB
    assert rows.loc["PREPARE", "rss_swap_peak_bytes"] == rows.loc["PREPARE", "rss_peak_bytes"]


def test_frame_marks_peak_as_at_least():
    rows = frame.runs_frame([swapped(runs()[0], 20)]).set_index("phase")

    assert [bool(rows.loc[phase, "rss_peak_at_least"]) for phase in ("EXECUTE", PEAK, "PREPARE")] == [True, True, False]
    assert not rows.loc["EXECUTE", "rss_peak_exact"] and not rows.loc[PEAK, "rss_peak_exact"] and rows.loc["PREPARE", "rss_peak_exact"]


def test_older_run_with_swap_at_end():
    """It has what was swapped out at the end of a phase, and nothing else."""
    old = replace(run(), marks=tuple(replace(mark, swap_end_bytes=50 * MIB) for mark in run().marks))
    assert metrics.value(old, "EXECUTE", PEAK_OF_BOTH) == (265 + 50) * MIB
    assert metrics.swapped(old, PEAK, metrics.METRICS["rss_peak_bytes"]) == 50 * MIB


def test_swap_columns_round_trip():
    made = run()
    made = replace(made, timeline=replace(made.timeline, swap_t_ns=packed([1, 2]), swap=packed([MIB, 0])))
    assert store.decode(store.encode(made), "here") == made


def judged(base: list[Run], head: list[Run], metric: str = "rss_peak_bytes", phase: str = "EXECUTE") -> verdicts.Judged:
    both = [baseline.entries(side) for side in (base, head)]
    return next(row for row in verdicts.judge(*both) if (row.metric, row.phase) == (metric, phase))


@pytest.mark.parametrize("metric", ["rss_peak_bytes", "anon_end_bytes"])
def test_verdict_regressed_by_swap(metric):
    row = judged(runs(), [swapped(each, 100) for each in runs()], metric)

    assert row.verdict == "regressed"
    assert row.reason.endswith("; with swapped-out pages, 100.0 MiB at most, which RSS lacks")
    assert row.difference == 100 * MIB


@pytest.mark.parametrize("metric", ["rss_peak_bytes", "anon_end_bytes"])
def test_verdict_not_improved_by_swap(metric):
    moved = [swapped(each, 100) for each in runs(extra_mib=[extra - 100 for extra in (0, 0.1, 0.2, 0.3, 0.4)])]
    assert judged(runs(), moved, metric).verdict == "ok"
    assert judged(runs(), moved, metric, "PREPARE").verdict == "improved"  # nothing of it was swapped out there


def test_verdict_of_run_peak_with_swap():
    assert judged(runs(), [swapped(each, 100) for each in runs()], phase=PEAK).verdict == "regressed"


def test_baseline_keeps_both_peaks(tmp_path):
    path = tmp_path / "baseline.json"
    head = [swapped(each, 100) for each in runs()]
    baseline.update(path, baseline.entries(head))

    assert baseline.read(path) == baseline.entries(head)
    assert all(row.verdict == "ok" for row in verdicts.judge(baseline.read(path), baseline.entries(head)))
    assert {row.verdict for row in verdicts.judge(baseline.read(path), baseline.entries(runs())) if row.phase == "EXECUTE"} == {"improved"}


def test_baseline_with_too_few_values_refused(tmp_path):
    path = tmp_path / "baseline.json"
    baseline.update(path, baseline.entries([swapped(each, 100) for each in runs()]))
    content = json.loads(path.read_text())
    row = next(row for row in content["entries"][0]["rows"] if "with_swap" in row)
    row["with_swap"].pop()
    path.write_text(json.dumps(content))

    with pytest.raises(InputError, match="with_swap"):
        baseline.read(path)


def test_budget_counts_swap(tmp_path):
    path = tmp_path / "budgets.toml"
    path.write_text('[[budget]]\nphase = "EXECUTE"\nrss_peak_bytes = "300 MiB"\n')

    (fine,) = budgets.judge(budgets.read(path), baseline.entries(runs()))
    (over,) = budgets.judge(budgets.read(path), baseline.entries([swapped(each, 100) for each in runs()]))

    assert (fine.verdict, over.verdict) == ("ok", "over")
    assert "which RSS lacks" in over.reason and "swap" not in fine.reason


def test_comparison_counts_and_names_swap():
    comparison = compare.compare(runs(), [swapped(each, 100) for each in runs()], ["rss_peak_bytes"])

    (row,) = (row for row in comparison.differences if row.phase == "EXECUTE")
    assert (row.verdict, row.difference) == ("more", 100 * MIB)
    assert "rss_peak_bytes of EXECUTE, PEAK: with swapped-out pages, 100.0 MiB at most, which RSS lacks" in comparison.remarks


@pytest.mark.parametrize(("text", "written"), [("0", "0"), ("3,0,1", "0-1,3"), ("0-3,6", "0-3,6"), (" 2 , 1-2", "1-2")])
def test_cpus_parsed(text, written):
    assert canonical_cpus(text) == written


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999", "٣"])
def test_cpus_refused(text, memprof):
    with pytest.raises(UsageError, match="write numbers and ranges such as 0-3,6"):
        canonical_cpus(text)
    assert memprof("exec", "--cpus", text, "--", "true").returncode == 2


def test_runs_separated_by_conditions():
    told, _ = store.told_apart([run(), run(repeat=2, cpus="0"), run(repeat=3, no_swap=True)])
    assert [each.job.variant for each in told] == [
        "a (CPUs default, swap default)",
        "a (CPUs 0, swap default)",
        "a (CPUs default, swap kept out)",
    ]


def test_no_swap_refused_without_control_groups(monkeypatch):
    def find(by):
        raise InputError("none")

    monkeypatch.setattr(limits, "find", find)
    with pytest.raises(InputError, match="--no-swap needs a control group for the run"):
        ran("true", no_swap=True)
