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
from failing import with_time
from made import MIB, packed, run, runs
from native_programs import SWAPPED_OUT, program, ran, swapped_out
from test_summary import cells

from memprof.errors import InputError, UsageError
from memprof.judge import baseline, budgets, compare, verdicts
from memprof.measuring import limits
from memprof.measuring.suite import canonical_cpus
from memprof.probe import procfs, swapping
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


# -- what the probe sees


class Kernel:
    """A made-up /proc: each reading of a process's swap is the next of these."""

    def __init__(self, monkeypatch, readings, swap=True, release="6.18.0"):
        self.readings, self.asked = list(readings), 0
        monkeypatch.setattr(procfs, "swapped", self.swapped)
        monkeypatch.setattr(procfs, "has_swap", lambda: swap)
        monkeypatch.setattr(procfs, "late_by_thread", lambda release=release: tuple(map(int, release.split(".")[:2])) < (6, 2))

    def swapped(self, pid):
        self.asked += 1
        return self.readings.pop(0) if self.readings else None


def phase(begin_ms: float, end_ms: float, peak_mib: float = 100, **figures: int) -> dict[str, object]:
    return {"begin_ns": int(begin_ms * 1e6), "end_ns": int(end_ms * 1e6), "rss_peak_bytes": int(peak_mib * MIB), **figures}


def looked(readings: int, every_ms: float = 10) -> swapping.Swapped:
    seen = swapping.Swapped()
    for index in range(readings):
        seen.look(1, int(index * every_ms * 1e6), lambda now: False)
    return seen


def test_the_peak_of_both_is_the_largest_sum_of_one_moment(monkeypatch):
    Kernel(monkeypatch, [(100 * MIB, 0, 1), (80 * MIB, 60 * MIB, 1), (120 * MIB, 10 * MIB, 1), (90 * MIB, 0, 1)])
    record = phase(0, 40, peak_mib=125)

    looked(4).tell(record)

    assert (record["swap_peak_bytes"], record["rss_swap_peak_bytes"]) == (60 * MIB, 140 * MIB)


def test_a_phase_has_only_what_was_swapped_out_inside_it(monkeypatch):
    Kernel(monkeypatch, [(100 * MIB, 0, 1), (80 * MIB, 60 * MIB, 1), (100 * MIB, 0, 1), (100 * MIB, 0, 1)])
    seen = looked(4)

    before, after = phase(0, 5), phase(15, 40)
    seen.tell(before)
    seen.tell(after)

    assert "swap_peak_bytes" not in before and "rss_swap_peak_bytes" not in after


def test_what_is_swapped_out_at_the_end_counts_without_a_reading(monkeypatch):
    Kernel(monkeypatch, [])
    record = phase(0, 40, 444, rss_end_bytes=438 * MIB, swap_end_bytes=175 * MIB)

    looked(0).tell(record)

    assert (record["swap_peak_bytes"], record["rss_swap_peak_bytes"]) == (175 * MIB, 613 * MIB)


def test_it_is_read_every_10_ms_and_never_without_swap(monkeypatch):
    kernel = Kernel(monkeypatch, [(MIB, MIB, 1)] * 1000)
    looked(100, every_ms=1)
    assert kernel.asked == 10

    kernel = Kernel(monkeypatch, [(MIB, MIB, 1)] * 1000, swap=False)
    looked(100, every_ms=1)
    assert kernel.asked == 0


def test_a_reading_that_came_late_is_dropped(monkeypatch):
    Kernel(monkeypatch, [(MIB, MIB, 1)])
    seen = swapping.Swapped()
    seen.look(1, 0, lambda now: True)
    assert not seen.timeline.count


def test_threads_are_counted_where_the_counters_depend_on_them(monkeypatch):
    kernel = Kernel(monkeypatch, [(MIB, 0, 3), (MIB, 0, 9), (MIB, 0, 2)], swap=False, release="6.1.0")
    assert looked(3).threads == 9 and kernel.asked == 3


@pytest.mark.parametrize(
    ("release", "usable", "threads", "cpus", "pages"),
    [
        ("6.18.44", 2, 1, 2, 2 * 32 * 2),  # a part for each CPU, of two counters
        ("6.18.44", 1, 64, 2, 2 * 32),
        ("6.2.0", 64, 1, 64, 2 * 128 * 64),
        ("6.2.0", 4, 8, 64, 2 * 128 * 4),
        ("6.1.0-50-arm64", 8, 1, 8, 67 * 16),  # a part for each thread
        ("5.10.1", 8, 9, 8, 9 * 67 * 16),
        ("odd", 2, 1, 2, 2 * 32 * 2),
    ],
)
def test_the_bound_of_the_high_water_mark(release, usable, threads, cpus, pages):
    assert procfs.peak_bound(usable, threads, cpus, release) == pages * procfs.PAGE


def test_an_end_is_that_of_smaps_rollup_where_status_lags():
    status = {"rss": 100 * MIB, "anon": 90 * MIB, "file": 8 * MIB, "shmem": 2 * MIB}
    page = procfs.PAGE
    assert procfs.exact_end(status, 100 * MIB + page, 90 * MIB) == {}
    assert procfs.exact_end(status, 103 * MIB, 92 * MIB) == {"rss": 103 * MIB, "anon": 92 * MIB, "file": 9 * MIB}
    assert procfs.exact_end({}, 103 * MIB, 92 * MIB) == {}


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


def test_a_run_stays_on_its_cpus(probe):
    cpu = max(os.sched_getaffinity(0))
    run = ran("sh", "-c", 'test "$(sed -n s/Cpus_allowed_list:.//p /proc/self/status)" = ' + str(cpu), cpus=str(cpu))

    assert run.outcome.ok, run.outcome
    assert run.job.cpus == str(cpu)
    assert run.machine.peak_bound_bytes == procfs.peak_bound(1)


def test_a_cpu_that_is_not_there_is_a_sentence(probe):
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


def test_a_program_whose_pages_go_to_zram(probe, zram):
    swapped_out(ran(program(SWAPPED_OUT)))


def test_a_program_without_marks_is_seen_swapped_out_by_polling(probe, zram):
    body = """
    char *first = hold(64 * MIB);
    madvise(first, 64 * MIB, 21 /* MADV_PAGEOUT */);
    hold(48 * MIB);
    usleep(1000 * atoi(words[1]));
    """

    def seen_mib(run: Run) -> float:
        mark = run.mark("RUN")
        return (mark.with_swap_bytes or 0) / MIB if mark is not None else 0

    run = with_time(lambda seconds: ran(program(body), int(1000 * seconds)), lambda run: seen_mib(run) >= 112, 0.5, 5, 50)

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
