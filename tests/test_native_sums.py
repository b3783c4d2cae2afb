"""The sum of a tree: programs whose memory is known, and the arithmetic of what may change the overlap of processes."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from failing import MIB, wait_for
from native_programs import built, program, ran

from memprof.probe import procfs
from memprof.probe.rounds import Rounds
from memprof.probe.sums import Sum
from memprof.probe.tree import Tree
from memprof.reports.tables import table

TREES = Path(__file__).resolve().parents[1] / "ci" / "attack" / "trees.c"

# What is held at once for certain, in MiB, and the number of processes.
HELD = {
    "fork": (100, 7),
    "fork-short": (100, 7),
    "killed": (100, 7),
    "own": (96, 5),
    "copy-100ms": (1000, 2),
    "file": (200, 4),
    "shmem": (200, 5),
    "vfork": (300, 4),
    "threads": (128, 5),
    "daemon": (100, 3),
}


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("case", HELD)
def test_the_sum_lies_within_its_bounds(case):
    run = ran(built(TREES), case)

    (mark,) = run.marks
    held, count = HELD[case]
    assert mark.rss_peak_bytes <= (held + 2 + 0.8 * (count - 1)) * MIB
    assert mark.rss_peak_high_bytes >= held * MIB
    assert run.timeline.rss_max_bytes <= mark.rss_peak_bytes
    assert run.timeline.rss_max_high_bytes >= mark.rss_peak_high_bytes


def test_the_bounds_of_a_phase_are_its_own():
    body = """memprof_begin("FORKS"); hold(40 * MIB); for (int i = 0; i < 3; ++i) if (fork() == 0) { usleep(300000); _exit(0); }
        while (wait(NULL) > 0); memprof_end();
        memprof_begin("OWN"); if (fork() == 0) { hold(60 * MIB); usleep(300000); _exit(0); } wait(NULL); memprof_end();
        memprof_begin("ALONE"); memprof_end();"""
    run = ran(program(body))

    forks, own, alone = (run.mark(phase) for phase in ("FORKS", "OWN", "ALONE"))
    assert 40 * MIB <= forks.rss_peak_bytes <= 46 * MIB <= 99 * MIB <= own.rss_peak_bytes <= 104 * MIB
    assert forks.rss_peak_bytes <= forks.rss_peak_high_bytes and own.rss_peak_bytes <= own.rss_peak_high_bytes
    assert alone.rss_peak_exact and alone.rss_peak_high_bytes is None


def test_a_peak_between_bounds_is_marked_only_where_they_are_apart():
    run = ran(built(TREES), "own")
    (mark,) = run.marks
    for high, shown in ((mark.rss_peak_bytes * 1.009, False), (mark.rss_peak_bytes * 1.2, True)):
        text = table.render([replace(run, marks=(replace(mark, rss_peak_high_bytes=round(high)),))])
        assert ("~" in text) == shown
        assert ("for certain, and up to 20% more is possible" in text) == shown


# -- the arithmetic


@dataclass
class One:
    rss: int
    file: int = 0
    vms: int = 0


class Sums:
    """A Sum and what it settled: [(t_ns, low, high)]."""

    def __init__(self):
        self.settled = []
        self.sum = Sum(lambda t_ns, low, high, file, vms: self.settled.append((t_ns, low, high)))


def test_one_process_alone_is_known():
    sums = Sums()
    sums.sum.sample(1, [One(100)])
    sums.sum.again(2)
    assert sums.settled == [(1, 100, 100), (2, 100, 100)]


def test_a_fork_shares_all_but_what_it_made_itself():
    sums = Sums()
    sums.sum.sample(1, [One(100)])
    sums.sum.gain(95, 100, 0)
    sums.sum.sample(2, [One(100), One(100)])
    sums.sum.flush()
    assert sums.settled[-1] == (2, 100, 105)


def test_a_copy_that_is_learnt_later_counts_from_before():
    sums = Sums()
    sums.sum.gain(100, 100, 0)
    sums.sum.sample(1, [One(100), One(100)])
    sums.sum.copy(30)
    sums.sum.sample(2, [One(100), One(100)])
    sums.sum.flush()
    assert sums.settled == [(1, 100, 130), (2, 100, 130)]


def test_files_that_may_be_shared_raise_the_sum_only_when_a_reading_says_so():
    sums = Sums()
    sums.sum.sample(1, [One(1), One(1)])
    for before, step in ((0, 50), (50, 100), (100, 200)):
        sums.sum.gain(0, 0, 2 * (step - before))
        sums.sum.sample(step, [One(step, step), One(step, step)])
    assert sums.sum.last[0] == 200
    sums.sum.confirm(200, 0, 200)  # one file
    sums.sum.flush()
    assert max(high for _, _, high in sums.settled) == max(low for _, low, _ in sums.settled) == 200

    sums.sum.gain(0, 0, 100)
    sums.sum.sample(300, [One(200, 200), One(300, 300)])
    assert sums.sum.last[0] == 300
    sums.sum.confirm(200, 0, 200)  # another one
    assert sums.settled[-1] == (300, 300, 300)


def test_a_reading_tells_of_before_less_what_has_happened_since():
    sums = Sums()
    sums.sum.gain(0, 100, 0)
    sums.sum.sample(1, [One(100), One(100)])
    sums.sum.lose(40)
    sums.sum.sample(2, [One(60), One(100)])
    sums.sum.confirm(60, 60, 0)
    sums.sum.flush()
    assert sums.settled == [(1, 100, 140), (2, 100, 100)]


def test_what_an_end_may_have_lost_counts_before_it_though_it_was_never_certain():
    sums = Sums()
    sums.sum.gain(40, 100, 0)
    sums.sum.sample(1, [One(100), One(100), One(50)])
    sums.sum.lose(100, 40)
    sums.sum.sample(2, [One(100), One(50)])
    sums.sum.confirm(0, 0, 0)
    sums.sum.flush()
    assert sums.settled == [(1, 150, 210), (2, 150, 150)]


def test_a_reading_that_contradicts_takes_over():
    sums = Sums()
    sums.sum.gain(90, 100, 0)
    sums.sum.sample(1, [One(100), One(100)])
    sums.sum.confirm(20, 30, 0)
    assert sums.sum.overlap == (20, 30, 0)


def test_what_only_a_high_water_mark_saw_is_possible():
    sums = Sums()
    sums.sum.gain(100, 100, 0)
    sums.sum.miss(7)
    sums.sum.sample(1, [One(100), One(100)])
    sums.sum.flush()
    assert sums.settled == [(1, 100, 107)]


def test_samples_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr("memprof.probe.sums._PENDING", 10)
    sums = Sums()
    sums.sum.gain(0, 100, 0)
    for t_ns in range(40):
        sums.sum.sample(t_ns, [One(100 + t_ns), One(100)])
    assert len(sums.settled) >= 30
    assert [t_ns for t_ns, _, _ in sums.settled] == sorted({t_ns for t_ns, _, _ in sums.settled})


def test_a_child_that_never_moved_has_missed_nothing():
    # Its resident set is the one that it was forked with; a page more in its high-water mark is not all of it.
    with subprocess.Popen([program("hold(50 * MIB); if (fork() == 0) { sleep(60); _exit(0); } sleep(60);")]) as process:
        wait_for(lambda: len(psutil.Process(process.pid).children()) == 1, 10)
        watched = Tree(process.pid, time.monotonic_ns())
        for _ in range(5):
            watched.poll(time.monotonic_ns())
        (child,) = [node for node in watched._nodes.values() if node.pid != process.pid]
        assert child.rss_peak >= 50 * MIB
        for left in (*psutil.Process(process.pid).children(), process):
            left.kill()


# -- readings


@pytest.fixture
def told(monkeypatch):
    """Shares of processes without end, none of which takes time; and a sum of two that is not known."""
    monkeypatch.setattr(procfs, "shares", lambda pid: procfs.Shares({"Rss": 100, "Pss": 50}))
    monkeypatch.setattr(procfs, "stat", lambda pid: None)
    whole = Sum(lambda *_: None)
    whole.gain(0, 100 * MIB, 0)
    whole.sample(0, [One(100 * MIB), One(100 * MIB)])
    return whole


MS = 1_000_000
NODES = [type("Node", (), {"pid": pid})() for pid in (1, 2)]


def test_a_reading_in_which_nobody_came_or_went_is_told_a_poll_later(told):
    readings = Rounds(0)
    begun = None
    for at in range(20):
        done = readings.step(at * MS, NODES, told, lambda node: None)
        if done is not None:
            break
        begun = at if begun is None and readings._waiting is not None else begun
    assert done is not None and [node.pid for node, _ in done] == [2, 1]
    assert at == begun + 1 and readings.count == 1


@pytest.mark.parametrize("what", ["came", "went", "copied"])
def test_a_reading_that_is_passed_by_events_is_dropped(told, what):
    readings = Rounds(0)
    at = 0
    while readings._waiting is None:
        assert readings.step(at * MS, NODES, told, lambda node: None) is None
        at += 1
    if what == "came":
        readings.changed(at * MS)
    elif what == "went":
        readings.left(7, at * MS)
    else:
        told.copy(90 * MIB)
    assert readings.step(at * MS, NODES, told, lambda node: None) is None
    assert readings.count == 0


def test_nothing_is_read_while_a_process_unmaps_its_memory(told, monkeypatch):
    leaving = type("Stat", (), {"ended": False})()
    monkeypatch.setattr(procfs, "stat", lambda pid: leaving)
    readings = Rounds(0)
    readings.left(7, 0)
    assert not any(readings.step(at * MS, NODES, told, lambda node: None) for at in range(300))
    leaving.ended = True
    assert any(readings.step(at * MS, NODES, told, lambda node: None) for at in range(300, 600))
