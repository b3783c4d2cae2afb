"""Pages that are swapped out: they are in no resident set, so each figure that lacks them says so, and no verdict forgets them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from made import MIB, packed, run, runs
from native_programs import SWAPPED_OUT, program, ran, ran_in_time, swapped_out
from test_summary import cells

from memprof.errors import InputError, UsageError
from memprof.judge import baseline, budgets, compare, verdicts
from memprof.measuring import limits
from memprof.measuring.places.machine import this_machine
from memprof.measuring.suite import canonical_cpus
from memprof.reports import frame
from memprof.reports.tables import table
from memprof.runs import metrics, store
from memprof.runs.records import PEAK, Run

PEAK_OF_BOTH = metrics.METRICS["rss_swap_peak_bytes"]


def swapped(made: Run, mib: float, phase: str = "EXECUTE", end_mib: float | None = None) -> Run:
    """The run with this much swapped out at most in a phase, beside all of its peak, and at its end."""

    def change(mark):
        end = int((mib if end_mib is None else end_mib) * MIB)
        return replace(mark, swap_peak_bytes=int(mib * MIB), rss_swap_peak_bytes=mark.rss_peak_bytes + int(mib * MIB), swap_end_bytes=end)

    return replace(made, marks=tuple(change(mark) if mark.phase == phase else mark for mark in made.marks))


# -- what readers see


def test_tables_mark_the_peak_and_set_the_peak_of_both_beside_it():
    made = [swapped(each, 171.5) for each in runs()]

    text = table.render(made, brief=True, unit="MiB")

    assert cells(text, "RSS peak (MiB)")["a"]["EXECUTE"].startswith("≥268")
    assert cells(text, "RSS peak (MiB)")["a"]["PREPARE"].startswith("270")
    assert cells(text, "RSS peak (MiB)")["a"]["PEAK"].startswith("≥")
    both = cells(text, "Peak of RSS and swap (MiB)")["a"]
    assert both["EXECUTE"].startswith("~439.7") and both["PEAK"].startswith("~439.7") and both["PREPARE"].startswith("270.2")
    assert "≥ at least: pages were swapped out (171.5 MiB in EXECUTE, at most), which RSS does not count." in text


@pytest.mark.parametrize("style", ["phases", "models"])
def test_tables_without_swap_are_as_before(style):
    text = table.render(runs(), style=style, brief=style == "phases")
    assert "≥" not in text and "swap" not in text


@pytest.mark.parametrize("style", ["threads", "models"])
def test_other_styles_have_both_peaks_too(style):
    made = [swapped(each, 100) for each in runs(threads=2)]
    assert "Peak of RSS and swap (MiB)" in table.render(made, style=style)


def test_rows_of_a_frame_have_both_peaks():
    rows = frame.runs_frame([swapped(run(), 100)]).set_index("phase")
    assert rows.loc["PEAK", "rss_swap_peak_bytes"] == 368 * MIB
    assert rows.loc["PREPARE", "rss_swap_peak_bytes"] == rows.loc["PREPARE", "rss_peak_bytes"]


def test_rows_of_a_frame_say_at_least():
    rows = frame.runs_frame([swapped(runs()[0], 20)]).set_index("phase")

    assert [bool(rows.loc[phase, "rss_peak_at_least"]) for phase in ("EXECUTE", PEAK, "PREPARE")] == [True, True, False]
    assert not rows.loc["EXECUTE", "rss_peak_exact"] and not rows.loc[PEAK, "rss_peak_exact"] and rows.loc["PREPARE", "rss_peak_exact"]


def test_a_run_of_an_older_memprof_is_understood():
    """It has what was swapped out at the end of a phase, and nothing else."""
    old = replace(run(), marks=tuple(replace(mark, swap_end_bytes=50 * MIB) for mark in run().marks))
    assert metrics.value(old, "EXECUTE", PEAK_OF_BOTH) == (265 + 50) * MIB
    assert metrics.swapped(old, PEAK, metrics.METRICS["rss_peak_bytes"]) == 50 * MIB


def test_columns_of_swap_go_through_a_file():
    made = run()
    made = replace(made, timeline=replace(made.timeline, swap_t_ns=packed([1, 2]), swap=packed([MIB, 0])))
    assert store.decode(store.encode(made), "here") == made


# -- verdicts


def judged(base: list[Run], head: list[Run], metric: str = "rss_peak_bytes", phase: str = "EXECUTE") -> verdicts.Judged:
    both = [baseline.entries(side) for side in (base, head)]
    return next(row for row in verdicts.judge(*both) if (row.metric, row.phase) == (metric, phase))


@pytest.mark.parametrize("metric", ["rss_peak_bytes", "anon_end_bytes"])
def test_memory_that_went_to_swap_is_a_regression_although_rss_is_the_same(metric):
    row = judged(runs(), [swapped(each, 100) for each in runs()], metric)

    assert row.verdict == "regressed"
    assert row.reason.endswith("; with swapped-out pages, 100.0 MiB at most, which RSS lacks")
    assert row.difference == 100 * MIB


@pytest.mark.parametrize("metric", ["rss_peak_bytes", "anon_end_bytes"])
def test_memory_that_was_only_moved_to_swap_is_no_improvement(metric):
    moved = [swapped(each, 100) for each in runs(extra_mib=[extra - 100 for extra in (0, 0.1, 0.2, 0.3, 0.4)])]
    assert judged(runs(), moved, metric).verdict == "ok"
    assert judged(runs(), moved, metric, "PREPARE").verdict == "improved"  # nothing of it was swapped out there


def test_the_peak_of_the_run_is_judged_with_swap_too():
    assert judged(runs(), [swapped(each, 100) for each in runs()], phase=PEAK).verdict == "regressed"


def test_a_baseline_keeps_both(tmp_path):
    path = tmp_path / "baseline.json"
    head = [swapped(each, 100) for each in runs()]
    baseline.update(path, baseline.entries(head))

    assert baseline.read(path) == baseline.entries(head)
    assert all(row.verdict == "ok" for row in verdicts.judge(baseline.read(path), baseline.entries(head)))
    assert {row.verdict for row in verdicts.judge(baseline.read(path), baseline.entries(runs())) if row.phase == "EXECUTE"} == {"improved"}


def test_a_baseline_with_too_few_values_is_refused(tmp_path):
    path = tmp_path / "baseline.json"
    baseline.update(path, baseline.entries([swapped(each, 100) for each in runs()]))
    content = json.loads(path.read_text())
    row = next(row for row in content["entries"][0]["rows"] if "with_swap" in row)
    row["with_swap"].pop()
    path.write_text(json.dumps(content))

    with pytest.raises(InputError, match="with_swap"):
        baseline.read(path)


def test_a_budget_counts_swapped_out_pages(tmp_path):
    path = tmp_path / "budgets.toml"
    path.write_text('[[budget]]\nphase = "EXECUTE"\nrss_peak_bytes = "300 MiB"\n')

    (fine,) = budgets.judge(budgets.read(path), baseline.entries(runs()))
    (over,) = budgets.judge(budgets.read(path), baseline.entries([swapped(each, 100) for each in runs()]))

    assert (fine.verdict, over.verdict) == ("ok", "over")
    assert "which RSS lacks" in over.reason and "swap" not in fine.reason


def test_a_comparison_counts_them_and_says_so():
    comparison = compare.compare(runs(), [swapped(each, 100) for each in runs()], ["rss_peak_bytes"])

    (row,) = (row for row in comparison.differences if row.phase == "EXECUTE")
    assert (row.verdict, row.difference) == ("more", 100 * MIB)
    assert "rss_peak_bytes of EXECUTE, PEAK: with swapped-out pages, 100.0 MiB at most, which RSS lacks" in comparison.remarks


# -- settings


@pytest.mark.parametrize(("text", "written"), [("0", "0"), ("3,0,1", "0-1,3"), ("0-3,6", "0-3,6"), (" 2 , 1-2", "1-2")])
def test_cpus_are_read(text, written):
    assert canonical_cpus(text) == written


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999", "٣"])
def test_words_that_are_no_cpus_are_refused(text, memprof):
    with pytest.raises(UsageError, match="write numbers and ranges such as 0-3,6"):
        canonical_cpus(text)
    assert memprof("exec", "--cpus", text, "--", "true").returncode == 2


def test_runs_with_other_conditions_are_other_rows():
    told, _ = store.told_apart([run(), run(repeat=2, cpus="0"), run(repeat=3, no_swap=True)])
    assert [each.job.variant for each in told] == [
        "a (CPUs default, swap default)",
        "a (CPUs 0, swap default)",
        "a (CPUs default, swap kept out)",
    ]


def test_a_run_stays_on_its_cpus(recorder):
    cpu = max(os.sched_getaffinity(0))
    run = ran("sh", "-c", 'test "$(sed -n s/Cpus_allowed_list:.//p /proc/self/status)" = ' + str(cpu), cpus=str(cpu))

    assert run.outcome.ok, run.outcome
    assert run.job.cpus == str(cpu)
    assert run.machine.peak_bound_bytes * len(os.sched_getaffinity(0)) == this_machine().peak_bound_bytes


def test_a_cpu_that_is_not_there_is_a_sentence(recorder):
    run = ran("true", cpus="8000")
    assert run.outcome.status == "start"
    assert run.outcome.message == "it may not run on exactly the CPUs 8000: one of them is not there, or not allowed to this process"


def test_without_control_groups_no_swap_is_refused(monkeypatch):
    def find(by):
        raise InputError("none")

    monkeypatch.setattr(limits, "find", find)
    with pytest.raises(InputError, match="--no-swap needs a control group for the run"):
        ran("true", no_swap=True)


# -- for real


@pytest.fixture
def zram() -> Iterator[None]:
    """A swap device of compressed memory, for as long as the test runs."""
    control = Path("/sys/class/zram-control")
    if os.geteuid() != 0 or not control.is_dir() or not (shutil.which("mkswap") and shutil.which("swapon")):
        pytest.skip("no swap can be made here: that takes root, zram, mkswap and swapon")
    with open("/tmp/memprof-test-zram.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        number = (control / "hot_add").read_text().strip()
        device = f"/dev/zram{number}"
        try:
            Path(f"/sys/block/zram{number}/disksize").write_text(str(128 * MIB))
            for words in (["mkswap", device], ["swapon", device]):
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                if done.returncode:
                    pytest.skip(f"no swap can be made here: {done.stderr.strip()}")
            yield
            subprocess.run(["swapoff", device], check=True)
        finally:
            with suppress(OSError):
                (control / "hot_remove").write_text(number)


def test_a_program_whose_pages_go_to_zram(recorder, zram):
    swapped_out(ran(program(SWAPPED_OUT)))


def test_a_program_without_marks_is_seen_swapped_out_by_polling(recorder, zram):
    body = """
    char *first = hold(64 * MIB);
    madvise(first, 64 * MIB, 21 /* MADV_PAGEOUT */);
    hold(48 * MIB);
    usleep(atoi(words[1]));
    """
    run = ran_in_time(lambda run: run.marks and (run.marks[0].with_swap_bytes or 0) >= 112 * MIB, program(body), "{us}")

    mark = run.mark("RUN")
    assert run.outcome.ok and mark is not None
    assert mark.with_swap_bytes is not None and 112 * MIB <= mark.with_swap_bytes < 120 * MIB
    assert run.timeline.swap is not None


def test_a_run_is_kept_out_of_swap():
    try:
        limiter = limits.find("cgroup")
    except InputError as error:
        pytest.skip(str(error))
    if not isinstance(limiter, limits.Groups):
        pytest.skip("systemd makes the groups here")
    name, kept = ("memory.swappiness", "0") if limiter.version == 1 else ("memory.swap.max", "0")
    if not (limiter.folder / name).exists():
        pytest.skip(f"this kernel's groups have no {name}")
    folder = f"{limiter.folder}/$(basename $(grep -m 1 -E ':(memory|):' /proc/self/cgroup))"
    run = ran("sh", "-c", f'test "$(cat {folder}/{name})" = {kept}', no_swap=True)

    assert run.outcome.ok, run.outcome
    assert run.job.no_swap and run.charged is not None
