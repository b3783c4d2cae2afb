"""What memprof says against what is known beforehand: programs of known cost, measured the whole way, from a plan to its Runs.

Bounds are the machine's own (the kernel sums its counters late) and a little for what Python itself needs meanwhile; nothing here depends on
how busy the machine is, but for durations, which only ever become longer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from failing import UNTIL_SEEN, Noticing, with_time

from memprof.measuring import campaign, suite
from memprof.measuring.orders import plan
from memprof.runs import store
from memprof.runs.records import EXECUTE, MODEL_LOAD, PREPARE, STARTUP, WARMUP, Mark, Run

MIB = 1 << 20
MS = 1_000_000
TRANSIENT = Path(__file__).resolve().parents[1] / "ci" / "bench" / "transient.py"
# What Python itself takes in a phase: a line of JSON, a frame, a page of a library touched for the first time.
OWN_BYTES = int(0.15 * MIB)
HOLDS_S = (0, 0.0001, 0.001, 0.01, 0.1)


def measured(model: Path, runtime: str | Path = "synthetic", progress: Any = None, **words: Any) -> tuple[Run, ...]:
    """The Runs of one model, one iteration and one repeat where nothing else is said; each must have ended well."""
    settings = {"warmup": 0, "runs": 1, "repeats": 1, **words}
    orders = plan(suite.Suite(models=(str(model),), runtimes=(str(runtime),), release=False, **settings)).orders
    runs = tuple(campaign.measure(orders, progress or Mock(), lambda line: None))
    for run in runs:
        assert run.outcome.ok, run.outcome.sentence
    return runs


def phase(run: Run, name: str) -> Mark:
    mark = run.mark(name)
    assert mark is not None
    return mark


def bound(run: Run) -> int:
    return run.machine.peak_bound_bytes + OWN_BYTES


def above_begin(mark: Mark) -> int:
    assert mark.rss_begin_bytes is not None
    return mark.rss_peak_bytes - mark.rss_begin_bytes


# -- peaks


@pytest.mark.parametrize("hold_s", HOLDS_S)
def test_a_transient_is_seen_in_full_in_each_phase_however_short(scenario, hold_s: float) -> None:
    spike = [{"spike": 100 * MIB, "hold_s": hold_s}]
    (run,) = measured(scenario(load=spike, prepare=spike, execute=spike))
    for name in (MODEL_LOAD, PREPARE, EXECUTE):
        mark = phase(run, name)
        assert mark.rss_peak_exact
        assert abs(above_begin(mark) - 100 * MIB) <= bound(run), name


@pytest.mark.parametrize("name", ["load", "prepare", "execute"])
@pytest.mark.parametrize("hold_s", [0, 0.001])
def test_a_transient_of_eight_threads_is_seen_in_full(tmp_path: Path, name: str, hold_s: float) -> None:
    model = tmp_path / "transient.json"
    model.write_text(json.dumps({"phase": name, "bytes": 96 * MIB, "threads": 8, "hold_s": hold_s, "settle_s": 0}))
    (run,) = measured(model, TRANSIENT)
    peaks = {mark.phase: above_begin(mark) for mark in run.marks if mark.phase != STARTUP}
    held = {"load": MODEL_LOAD, "prepare": PREPARE, "execute": EXECUTE}[name]
    assert abs(peaks.pop(held) - 96 * MIB) <= bound(run)
    assert max(peaks.values()) <= bound(run), "a phase has a peak that belongs to its neighbour"


def test_an_allocation_that_is_freed_at_once_is_seen_though_nothing_polls(scenario) -> None:
    load = [{"allocate": "a", "bytes": 200 * MIB}, {"free": "a"}]
    (run,) = measured(scenario(load=load), interval_ns=10**12)
    mark = phase(run, MODEL_LOAD)
    assert abs(above_begin(mark) - 200 * MIB) <= bound(run)
    assert mark.rss_end_bytes is not None and mark.rss_begin_bytes is not None
    assert abs(mark.rss_end_bytes - mark.rss_begin_bytes) <= bound(run)


def test_the_peak_of_iterations_is_that_of_the_largest_one_and_later_phases_do_not_inherit_it(scenario) -> None:
    load = [{"spike": 150 * MIB}]
    (run,) = measured(scenario(load=load, execute=[{"spike": 50 * MIB}]), warmup=2, runs=3)
    assert abs(above_begin(phase(run, WARMUP)) - 50 * MIB) <= bound(run)
    assert abs(above_begin(phase(run, EXECUTE)) - 50 * MIB) <= bound(run)
    execute = phase(run, EXECUTE)
    assert execute.hwm_bytes is not None
    assert execute.hwm_bytes - phase(run, STARTUP).rss_peak_bytes >= 150 * MIB - bound(run), "a mark never reset would still show the load"


def test_no_peak_lies_below_what_was_sampled_or_below_the_end(scenario) -> None:
    held = [{"allocate": "a", "bytes": 40 * MIB}, {"sleep_s": 0.05}]
    (run,) = measured(scenario(load=held, execute=[{"spike": 60 * MIB, "hold_s": 0.05}]), interval_ns=MS)
    columns = store.unpack(run.timeline)
    for mark in run.marks:
        inside = [rss for t_ns, rss in zip(columns.t_ns, columns.rss, strict=True) if mark.begin_ns <= t_ns <= mark.end_ns]
        assert mark.rss_peak_bytes >= max([*inside, mark.rss_end_bytes or 0])


# -- the timeline


def test_the_timeline_holds_a_transient_long_enough_to_be_polled(scenario) -> None:
    def attempt(hold_s: float) -> Run:
        (run,) = measured(scenario(prepare=[{"spike": 100 * MIB, "hold_s": hold_s}]), interval_ns=MS)
        return run

    def polled(run: Run) -> bool:
        columns, prepare = store.unpack(run.timeline), phase(run, PREPARE)
        seen = (rss for t_ns, rss in zip(columns.t_ns, columns.rss, strict=True) if prepare.begin_ns <= t_ns <= prepare.end_ns)
        return abs(max(seen, default=0) - (prepare.rss_begin_bytes or 0) - 100 * MIB) <= bound(run)

    run = with_time(attempt, polled, 0.2, 2, 20)
    assert polled(run)
    columns, prepare = store.unpack(run.timeline), phase(run, PREPARE)
    assert run.timeline.rss_max_bytes == max(columns.rss)
    assert run.timeline.rss_min_bytes <= min(columns.rss)
    assert run.timeline.rss_min_bytes <= run.timeline.rss_mean_bytes <= run.timeline.rss_max_bytes
    assert list(columns.t_ns) == sorted(columns.t_ns)
    assert 0 < prepare.samples <= run.timeline.samples


# -- what a mark says at the end of its phase


def grown(run: Run, field: str, names: Sequence[str] = (STARTUP, MODEL_LOAD, PREPARE, EXECUTE)) -> list[int]:
    """By how much a figure grew in each phase after the first."""
    values = [getattr(phase(run, name), field) for name in names]
    return [after - before for before, after in pairwise(values)]


@pytest.fixture
def known(scenario, tmp_path: Path) -> Run:
    """64 MiB of touched memory in MODEL_LOAD, 32 MiB of a mapped file in PREPARE, 256 MiB of untouched memory in EXECUTE."""
    (tmp_path / "mapped.bin").write_bytes(os.urandom(MIB) * 32)
    (run,) = measured(
        scenario(
            load=[{"allocate": "a", "bytes": 64 * MIB}],
            prepare=[{"map": "mapped.bin", "as": "m", "read": True}],
            execute=[{"allocate": "v", "bytes": 256 * MIB, "touch": False}],
        )
    )
    return run


def test_each_kind_of_memory_is_counted_where_it_belongs(known: Run) -> None:
    near = bound(known) + OWN_BYTES
    expected = {
        "anon_end_bytes": (64, 0, 0),
        "file_end_bytes": (0, 32, 0),
        "rss_end_bytes": (64, 32, 0),
        "vms_end_bytes": (64, 32, 256),
        "shmem_end_bytes": (0, 0, 0),
    }
    for field, mebibytes in expected.items():
        for name, growth, wanted in zip((MODEL_LOAD, PREPARE, EXECUTE), grown(known, field), mebibytes, strict=True):
            slack = near if field != "vms_end_bytes" else 2 * MIB  # Python's own arenas come by the mebibyte
            assert abs(growth - wanted * MIB) <= slack, (field, name)


def test_shares_agree_with_the_resident_set(known: Run) -> None:
    for mark in known.marks:
        assert mark.uss_end_bytes is not None and mark.pss_end_bytes is not None and mark.rss_end_bytes is not None
        assert mark.uss_end_bytes <= mark.pss_end_bytes <= mark.rss_end_bytes + bound(known)
    load, prepare, execute = grown(known, "uss_end_bytes")
    assert abs(load - 64 * MIB) <= bound(known) + OWN_BYTES
    assert abs(execute) <= bound(known) + OWN_BYTES
    assert prepare >= -bound(known)


def test_touching_is_counted_in_faults(known: Run) -> None:
    load = phase(known, MODEL_LOAD)
    assert load.minor_faults is not None
    if known.machine.huge_pages != "always":
        assert 64 * MIB // known.machine.page_bytes <= load.minor_faults <= 64 * MIB // known.machine.page_bytes + 2000


def test_the_baseline_is_that_of_a_small_process(known: Run) -> None:
    startup = phase(known, STARTUP)
    assert startup.rss_end_bytes is not None
    assert MIB < startup.rss_end_bytes < 20 * MIB
    assert startup.rss_peak_bytes < 20 * MIB + bound(known), "the child inherited the high-water mark of whoever started it"


# -- polling


def test_the_interval_is_reported_by_phase(scenario) -> None:
    def attempt(sleep_s: float) -> Run:
        (run,) = measured(scenario(load=[{"sleep_s": sleep_s}], execute=[{"sleep_s": sleep_s}]), interval_ns=2 * MS)
        return run

    run = with_time(attempt, lambda run: run.polling is not None and run.polling.polls > 20, 0.1, 1, 10)
    assert run.job.interval_ns == run.job.iterations_interval_ns == 2 * MS
    assert {mark.interval_ns for mark in run.marks} == {2 * MS}
    # A poll that comes late is sooner followed by the next: half of them are a little nearer than the interval.
    assert run.polling is not None and run.polling.median_ns >= 1.5 * MS


def test_where_every_cpu_is_in_use_iterations_are_not_polled_and_their_peak_is_seen_all_the_same(scenario) -> None:
    cpus = len(os.sched_getaffinity(0))
    execute = [{"sleep_s": 0.2}, {"spike": 30 * MIB}, {"sleep_s": 0.1}]
    load = [{"allocate": "a", "bytes": 40 * MIB}, UNTIL_SEEN]
    model = scenario(load=load, execute=execute)
    noticing = Noticing(model.parent / UNTIL_SEEN["until"], 40 * MIB)  # which no earlier phase holds
    (run,) = measured(model, progress=noticing, threads=(cpus,), runs=2)
    mark = phase(run, EXECUTE)
    assert mark.interval_ns == run.job.iterations_interval_ns == 0
    assert mark.samples <= 1, "the poll that was due as the phase began may still fall into it"
    assert mark.rss_peak_exact
    assert abs(above_begin(mark) - 30 * MIB) <= bound(run)
    assert phase(run, MODEL_LOAD).interval_ns == MS
    assert phase(run, MODEL_LOAD).samples > 0


# -- time


def test_durations_are_those_of_what_was_done(scenario) -> None:
    late_ns = 10_000 * MS  # a busy machine may wake it late, and never early
    (run,) = measured(scenario(load=[{"sleep_s": 0.1}], prepare=[{"sleep_s": 0.2}], execute=[{"sleep_s": 0.05}]), warmup=1, runs=4)
    assert 100 * MS <= phase(run, MODEL_LOAD).time_ns <= 100 * MS + late_ns
    assert 200 * MS <= phase(run, PREPARE).time_ns <= 200 * MS + late_ns
    assert len(phase(run, WARMUP).times_ns) == 1
    execute = phase(run, EXECUTE)
    assert len(execute.times_ns) == 4
    assert all(50 * MS <= time_ns <= 50 * MS + late_ns for time_ns in execute.times_ns)
    assert sum(execute.times_ns) <= execute.time_ns <= sum(execute.times_ns) + late_ns
    ends = [(mark.begin_ns, mark.end_ns) for mark in run.marks]
    assert ends == sorted(ends) and all(end <= begin for (_, end), (begin, _) in pairwise(ends))


def test_processor_time_is_told_from_waiting(scenario) -> None:
    def attempt(spin_s: float) -> tuple[Mark, Mark]:
        (run,) = measured(scenario(load=[{"sleep_s": 0.3}], prepare=[{"spin_s": spin_s}]))
        return phase(run, MODEL_LOAD), phase(run, PREPARE)

    asleep, busy = with_time(attempt, lambda marks: (marks[0].cpu_ns or 0) < (marks[1].cpu_ns or 0), 0.3, 3, 30)
    assert asleep.cpu_ns is not None and busy.cpu_ns is not None
    assert asleep.cpu_ns < 100 * MS
    assert asleep.cpu_ns < busy.cpu_ns <= busy.time_ns + 50 * MS


# -- repeatability


def test_a_deterministic_job_takes_the_same_memory_each_time(scenario) -> None:
    steps = [{"allocate": "a", "bytes": 10 * MIB}, {"spike": 20 * MIB}]
    runs = measured(scenario(load=steps, execute=[{"spike": 5 * MIB}]), deterministic=True, repeats=3, runs=2)
    if any("randomisation" in warning for run in runs for warning in run.warnings):
        pytest.skip("this kernel or container does not let address space randomisation be turned off")
    for name in (STARTUP, MODEL_LOAD, PREPARE, EXECUTE):
        anonymous = {phase(run, name).anon_end_bytes for run in runs}
        peaks = [phase(run, name).rss_peak_bytes for run in runs]
        if _exact_counters(runs[0].machine.kernel):
            assert len(anonymous) == 1, (name, anonymous)
        assert max(peaks) - min(peaks) <= 2 * runs[0].machine.peak_bound_bytes, name


def _exact_counters(kernel: str) -> bool:
    """Whether /proc/PID/status gives exact sums there (Linux 6.17 and later)."""
    parts = kernel.split("-")[0].split(".")
    return (int(parts[0]), int(parts[1])) >= (6, 17)
