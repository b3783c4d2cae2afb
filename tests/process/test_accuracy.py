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
from support.recorder_runs import with_patience

from memprof.campaign import campaign
from memprof.records import store
from memprof.records.types import EXECUTE, MODEL_LOAD, PREPARE, STARTUP, WARMUP, Mark, Run
from memprof.subjects import suite
from memprof.subjects.orders import plan

MIB = 1 << 20
MS = 1_000_000
TRANSIENT = Path(__file__).resolve().parents[2] / "ci" / "bench" / "transient.py"
# What Python itself takes in a phase: a line of JSON, a frame, a page of a library touched for the first time.
OWN_BYTES = int(0.15 * MIB)


def measured(model: Path, runtime: str | Path = "synthetic", **words: Any) -> tuple[Run, ...]:
    """The Runs of one model, one iteration and one repeat where nothing else is said; each must have ended well."""
    settings = {"warmup": 0, "runs": 1, "repeats": 1, **words}
    orders = plan(suite.Suite(models=(str(model),), runtimes=(str(runtime),), release=False, **settings)).orders
    runs = tuple(campaign.measure(orders, Mock(), lambda line: None))
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


@pytest.mark.parametrize("hold_s", [0, 0.01])
def test_transient_seen_in_each_phase(scenario, hold_s: float) -> None:
    spike = [{"spike": 32 * MIB, "hold_s": hold_s}]
    (run,) = measured(scenario(load=spike, prepare=spike, execute=spike))
    for name in (MODEL_LOAD, PREPARE, EXECUTE):
        mark = phase(run, name)
        assert mark.rss_peak_exact
        assert abs(above_begin(mark) - 32 * MIB) <= bound(run), name


@pytest.mark.parametrize(("name", "hold_s"), [("load", 0), ("prepare", 0.001), ("execute", 0)])
def test_transient_of_eight_threads(tmp_path: Path, name: str, hold_s: float) -> None:
    model = tmp_path / "transient.json"
    model.write_text(json.dumps({"phase": name, "bytes": 32 * MIB, "threads": 8, "hold_s": hold_s, "settle_s": 0}))
    (run,) = measured(model, TRANSIENT)
    peaks = {mark.phase: above_begin(mark) for mark in run.marks if mark.phase != STARTUP}
    held = {"load": MODEL_LOAD, "prepare": PREPARE, "execute": EXECUTE}[name]
    assert abs(peaks.pop(held) - 32 * MIB) <= bound(run)
    assert max(peaks.values()) <= bound(run), "a phase has a peak that belongs to its neighbour"


def test_allocation_freed_at_once_without_polling(scenario) -> None:
    load = [{"allocate": "a", "bytes": 64 * MIB}, {"free": "a"}]
    (run,) = measured(scenario(load=load), interval_ns=10**12)
    mark = phase(run, MODEL_LOAD)
    assert abs(above_begin(mark) - 64 * MIB) <= bound(run)
    assert mark.rss_end_bytes is not None and mark.rss_begin_bytes is not None
    assert abs(mark.rss_end_bytes - mark.rss_begin_bytes) <= bound(run)


def test_peak_not_inherited_by_iterations(scenario) -> None:
    load = [{"spike": 60 * MIB}]
    (run,) = measured(scenario(load=load, execute=[{"spike": 20 * MIB}]), warmup=2, runs=3)
    assert abs(above_begin(phase(run, WARMUP)) - 20 * MIB) <= bound(run)
    assert abs(above_begin(phase(run, EXECUTE)) - 20 * MIB) <= bound(run)
    execute = phase(run, EXECUTE)
    assert execute.hwm_bytes is not None
    assert execute.hwm_bytes - phase(run, STARTUP).rss_peak_bytes >= 60 * MIB - bound(run), "a mark never reset would still show the load"


def test_peak_not_below_samples_or_end(scenario) -> None:
    held = [{"allocate": "a", "bytes": 40 * MIB}, {"sleep_s": 0.05}]
    (run,) = measured(scenario(load=held, execute=[{"spike": 60 * MIB, "hold_s": 0.05}]), interval_ns=MS)
    columns = store.unpack(run.timeline)
    for mark in run.marks:
        inside = [rss for t_ns, rss in zip(columns.t_ns, columns.rss, strict=True) if mark.begin_ns <= t_ns <= mark.end_ns]
        assert mark.rss_peak_bytes >= max([*inside, mark.rss_end_bytes or 0])


def test_timeline_holds_polled_transient(scenario) -> None:
    run = with_patience(
        lambda limit_ns: measured(scenario(prepare=[{"spike": 40 * MIB, "hold_s": limit_ns / 4e9}]), interval_ns=MS)[0],
        lambda run: run.timeline.rss_max_bytes - (phase(run, PREPARE).rss_begin_bytes or 0) > 40 * MIB - bound(run),
    )
    columns = store.unpack(run.timeline)
    prepare = phase(run, PREPARE)
    seen = max(rss for t_ns, rss in zip(columns.t_ns, columns.rss, strict=True) if prepare.begin_ns <= t_ns <= prepare.end_ns)
    assert abs(seen - (prepare.rss_begin_bytes or 0) - 40 * MIB) <= bound(run)
    assert run.timeline.rss_max_bytes == max(columns.rss)
    assert run.timeline.rss_min_bytes <= min(columns.rss)
    assert run.timeline.rss_min_bytes <= run.timeline.rss_mean_bytes <= run.timeline.rss_max_bytes
    assert list(columns.t_ns) == sorted(columns.t_ns)
    assert 0 < prepare.samples <= run.timeline.samples


def grown(run: Run, field: str, names: Sequence[str] = (STARTUP, MODEL_LOAD, PREPARE, EXECUTE)) -> list[int]:
    """By how much a figure grew in each phase after the first."""
    values = [getattr(phase(run, name), field) for name in names]
    return [after - before for before, after in pairwise(values)]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """64 MiB of touched memory in MODEL_LOAD, 32 MiB of a mapped file in PREPARE, 256 MiB of untouched memory in EXECUTE."""
    folder = tmp_path_factory.mktemp("known")
    (folder / "mapped.bin").write_bytes(os.urandom(MIB) * 32)
    model = folder / "scenario.json"
    steps = {
        "load": [{"allocate": "a", "bytes": 64 * MIB}],
        "prepare": [{"map": "mapped.bin", "as": "m", "read": True}],
        "execute": [{"allocate": "v", "bytes": 256 * MIB, "touch": False}],
    }
    model.write_text(json.dumps(steps))
    (run,) = measured(model)
    return run


def test_memory_kinds_counted_apart(known: Run) -> None:
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


def test_shares_agree_with_resident_set(known: Run) -> None:
    for mark in known.marks:
        assert mark.uss_end_bytes is not None and mark.pss_end_bytes is not None and mark.rss_end_bytes is not None
        assert mark.uss_end_bytes <= mark.pss_end_bytes <= mark.rss_end_bytes + bound(known)
    load, prepare, execute = grown(known, "uss_end_bytes")
    assert abs(load - 64 * MIB) <= bound(known) + OWN_BYTES
    assert abs(execute) <= bound(known) + OWN_BYTES
    assert prepare >= -bound(known)


def test_faults_count_touched_pages(known: Run) -> None:
    load = phase(known, MODEL_LOAD)
    assert load.minor_faults is not None
    if known.machine.huge_pages != "always":
        assert 64 * MIB // known.machine.page_bytes <= load.minor_faults <= 64 * MIB // known.machine.page_bytes + 2000


def test_baseline_of_small_process(known: Run) -> None:
    startup = phase(known, STARTUP)
    assert startup.rss_end_bytes is not None
    assert MIB < startup.rss_end_bytes < 20 * MIB
    assert startup.rss_peak_bytes < 20 * MIB + bound(known), "the child inherited the high-water mark of whoever started it"


def test_interval_reported_by_phase(scenario) -> None:
    def attempt(limit_ns: int) -> Run:
        sleep = [{"sleep_s": limit_ns / 4e9}]
        return measured(scenario(load=sleep, execute=sleep), interval_ns=20 * MS)[0]

    run = with_patience(attempt, lambda run: run.polling is not None and run.polling.polls > 10)
    assert run.job.interval_ns == run.job.iterations_interval_ns == 20 * MS
    assert {mark.interval_ns for mark in run.marks} == {20 * MS}
    # One poll may come late and the next in time, but three take two periods at least.
    assert run.polling is not None and run.polling.median_ns >= 8 * MS


def test_iterations_unpolled_when_cpus_busy(scenario) -> None:
    cpus = len(os.sched_getaffinity(0))
    execute = [{"sleep_s": 0.2}, {"spike": 30 * MIB}, {"sleep_s": 0.1}]

    def attempt(limit_ns: int) -> Run:
        load = [{"allocate": "a", "bytes": 10 * MIB}, {"sleep_s": limit_ns / 4e9}]
        return measured(scenario(load=load, execute=execute), threads=(cpus,), runs=2)[0]

    run = with_patience(attempt, lambda run: phase(run, MODEL_LOAD).samples > 0)
    mark = phase(run, EXECUTE)
    assert mark.interval_ns == run.job.iterations_interval_ns == 0
    assert mark.samples <= 1, "the poll that was due as the phase began may still fall into it"
    assert mark.rss_peak_exact
    assert abs(above_begin(mark) - 30 * MIB) <= bound(run)
    assert phase(run, MODEL_LOAD).interval_ns == MS
    assert phase(run, MODEL_LOAD).samples > 0


def test_durations_match_work_done(scenario) -> None:
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


def test_processor_time_excludes_waiting(scenario) -> None:
    def cpu_ns(run: Run, name: str) -> int:
        return phase(run, name).cpu_ns or 0

    # On a busy machine what spins gets little of the processor.
    run = with_patience(
        lambda limit_ns: measured(scenario(load=[{"sleep_s": limit_ns / 5e9}], prepare=[{"spin_s": limit_ns / 5e9}]))[0],
        lambda run: cpu_ns(run, MODEL_LOAD) < cpu_ns(run, PREPARE),
    )
    asleep, busy = phase(run, MODEL_LOAD), phase(run, PREPARE)
    assert asleep.cpu_ns is not None and busy.cpu_ns is not None
    assert asleep.cpu_ns < 100 * MS
    assert asleep.cpu_ns < busy.cpu_ns <= busy.time_ns + 50 * MS


def test_deterministic_job_repeats_its_memory(scenario) -> None:
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
