"""The sum of a tree: programs whose memory is known, and the arithmetic of what may change the overlap of processes."""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from failing import MIB, wait_for, with_patience
from made import run as made_run
from native_programs import built, program, ran, ran_until_seen

from memprof.probe import procfs
from memprof.probe.mappings import Mappings, parts, together
from memprof.probe.rounds import Rounds
from memprof.probe.sums import Sum
from memprof.probe.tree import Tree
from memprof.reports.tables import table
from memprof.runs.records import Process

TREES = Path(__file__).resolve().parents[1] / "ci" / "attack" / "trees.c"

# What is held at once for certain, in MiB, and the number of processes.
HELD = {
    "fork": (100, 7),
    "fork-short": (100, 7),
    "killed": (100, 7),
    "own": (96, 5),
    "copy": (200, 2),
    "file": (200, 4),
    "shmem": (200, 5),
    "vfork": (300, 4),
    "threads": (128, 5),
    "daemon": (100, 3),
}


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize("case", HELD)
def test_the_sum_lies_within_its_bounds(case):
    lies_within_its_bounds(case, *HELD[case])


def test_a_process_whose_first_thread_has_ended_is_followed_on():
    lies_within_its_bounds("leader", 164, 2)  # the probe in C takes it for ended


def lies_within_its_bounds(case, held, count):
    # A probe that was held up until all was over has not seen it: then all goes on for longer.
    run = with_patience(
        lambda limit_ns: ran(built(TREES), case, limit_ns // 10**9),
        lambda run: run.marks and (run.marks[0].rss_peak_high_bytes or 0) >= held * MIB,
    )

    (mark,) = run.marks
    assert mark.rss_peak_bytes <= (held + 2 + 0.8 * (count - 1)) * MIB
    assert mark.rss_peak_high_bytes >= held * MIB
    assert run.timeline.rss_max_bytes <= mark.rss_peak_bytes
    assert run.timeline.rss_max_high_bytes >= mark.rss_peak_high_bytes


def test_the_bounds_of_a_phase_are_its_own(tmp_path):
    body = """memprof_begin("FORKS"); hold(40 * MIB); for (int i = 0; i < 3; ++i) if (fork() == 0) { usleep(atoi(words[2])); _exit(0); }
        while (wait(NULL) > 0); memprof_end();
        memprof_begin("OWN"); if (fork() == 0) { hold(60 * MIB); until(words[1]); _exit(0); } wait(NULL); memprof_end();
        memprof_begin("ALONE"); memprof_end();"""
    run = with_patience(
        lambda limit_ns: ran_until_seen(99, tmp_path / f"seen {limit_ns}", program(body), limit_ns // 4000),
        lambda run: run.mark("FORKS").rss_peak_high_bytes,
    )

    forks, own, alone = (run.mark(phase) for phase in ("FORKS", "OWN", "ALONE"))
    assert 40 * MIB <= forks.rss_peak_bytes <= 46 * MIB <= 99 * MIB <= own.rss_peak_bytes <= 104 * MIB
    assert forks.rss_peak_bytes <= forks.rss_peak_high_bytes and own.rss_peak_bytes <= own.rss_peak_high_bytes
    assert alone.rss_peak_exact and alone.rss_peak_high_bytes is None


def test_a_peak_between_bounds_is_marked_only_where_they_are_apart():
    run = made_run(exact=False)
    mark = run.marks[-1]
    for processes, why in ((), "smaller than memprof's probe"), ((Process(1, "a", 0, 1, MIB), Process(2, "b", 0, 1, MIB)), "for certain"):
        for high, shown in ((mark.rss_peak_bytes * 1.009, False), (mark.rss_peak_bytes * 1.2, True)):
            text = table.render([replace(run, processes=processes, marks=(replace(mark, rss_peak_high_bytes=round(high)),))])
            assert ("~" in text) == shown
            assert (f"{why}, and up to 20% more is possible" in text) == shown


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


def test_samples_of_one_process_alone_come_after_those_that_waited():
    sums = Sums()
    sums.sum.sample(1, [One(100)])
    sums.sum.gain(0, 100, 0)
    sums.sum.sample(2, [One(100), One(100)])
    sums.sum.sample(3, [One(100)])
    sums.sum.again(4)
    sums.sum.flush()
    assert [t_ns for t_ns, _, _ in sums.settled] == [1, 2, 3, 4]


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


def test_what_is_counted_twice_at_least_holds_for_samples_before_too():
    sums = Sums()
    sums.sum.gain(0, 0, 50)
    sums.sum.sample(1, [One(100, 50), One(60, 50)])
    sums.sum.gain(0, 0, 30)
    sums.sum.sample(2, [One(100, 50), One(90, 80)])
    sums.sum.at_least(45)
    sums.sum.flush()
    assert sums.settled == [(1, 110, 145), (2, 140, 145)]


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
        wait_for(lambda: len(psutil.Process(process.pid).children()) == 1)
        watched = Tree(process.pid, time.monotonic_ns())
        for _ in range(5):
            watched.poll(time.monotonic_ns())
        (child,) = [node for node in watched._nodes.values() if node.pid != process.pid]
        assert child.rss_peak >= 50 * MIB
        for left in (*psutil.Process(process.pid).children(), process):
            left.kill()


def test_a_process_is_seen_through_any_of_its_threads_until_all_have_ended():
    threads = """pthread_t id; hold(50 * MIB);
        pthread_create(&id, NULL, ({ void *work(void *n) { sleep(60); return n; } work; }), NULL);
        pthread_create(&id, NULL, ({ void *work(void *n) { char go; if (read(0, &go, 1) == 1) execl("/bin/sleep", "sleep", "60", (char *)0);
            return n; } work; }), NULL);
        pthread_exit(NULL);"""
    with subprocess.Popen([program(threads)], stdin=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        seen = procfs.Statm(process.pid)
        wait_for(lambda: procfs.sizes(process.pid) is None)
        assert (seen.read() or (0,))[0] >= 50 * MIB and seen.task != process.pid
        assert procfs.status(process.pid)["rss"] >= 50 * MIB
        assert not procfs.stat(process.pid).ended and procfs.parent(process.pid) is not None
        process.stdin.write(b".")  # a thread execs, and is the first from then on
        wait_for(lambda: 0 < (seen.read() or (0,))[0] < 50 * MIB)
        assert seen.task == process.pid
        process.kill()
        wait_for(lambda: seen.read() is None)
        wait_for(lambda: procfs.stat(process.pid).ended)  # its memory goes first
    assert seen.read() is None
    seen.close()


# -- what is mapped


MAPS = [
    "55c8d0406000-55c8d0408000 r--p 00001000 fe:00 260386                     /usr/lib/a name.so",
    "55c8d0408000-55c8d040e000 rw-p 00000000 00:00 0                          [heap]",
    "7fa45b78b000-7fa45b797000 rw-s 00000000 00:01 1026                       /dev/zero (deleted)",
    "7fa45b7db000-7fa45b7dd000 rw-s 00000000 00:06 77                         /dev/accelerator",
    "7fa45b7de000-7fa45b7df000 rw-s 00000000 00:0f 9                          anon_inode:[io_uring]",
    "7fa45b9df000-7fa45b9e1000 r-xp 00000000 00:00 0                          [vdso]",
]
KIB = 1024
MS = 1_000_000
NODES = [type("Node", (), {"pid": pid, "task": pid})() for pid in (1, 2)]


def test_a_file_is_in_memory_once_and_a_device_once_a_process():
    once = 8 + 48
    each = 8 + 4 + 8
    assert together(parts(1, MAPS)) == (once + each) * KIB
    assert together(parts(1, MAPS) + parts(1, MAPS)) == (once + each) * KIB
    assert together(parts(1, MAPS) + parts(2, MAPS)) == (once + 2 * each) * KIB


def test_a_name_may_hold_what_ends_a_line_elsewhere(tmp_path):
    path = tmp_path / "a\x85b\x0cc"
    path.write_bytes(bytes(4096))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        files = {file for file, _, _ in parts(os.getpid(), procfs.maps(os.getpid()))}
    assert [name for _, _, name in files if name.endswith("b\x0cc")]


def test_parts_of_a_file_that_overlap_count_once():
    places = [(("fe:00", "1", "/a"), 0, 30), (("fe:00", "1", "/a"), 20, 50), (("fe:00", "1", "/a"), 90, 95), (("fe:00", "2", "/a"), 0, 7)]
    assert together(places[::-1]) == 50 + 5 + 7


def test_what_is_mapped_bounds_the_sum_where_no_share_may_be_read(monkeypatch):
    # On a busy machine it can be a second until all shares are read, and by then a process has ended.
    monkeypatch.setattr(Rounds, "step", lambda *_: None)

    for _ in range(10):  # who is held up between the end of one process and the look at the next counts pages twice
        with subprocess.Popen([built(TREES), "shmem"]) as process:
            watched = Tree(process.pid, time.monotonic_ns())
            while process.poll() is None:
                watched.poll(time.monotonic_ns())
            watched.settle()
        assert watched.whole.most >= 200 * MIB
        if watched.whole.most <= 230 * MIB:
            break
    assert watched.whole.most <= 230 * MIB


def test_a_file_mapped_between_two_looks_is_not_taken_for_one_that_was_before(monkeypatch):
    # One process has a MiB of a file, and so has the other: of the same, then of another.
    lines = {1: [MAPS[2]], 2: [MAPS[2]]}
    monkeypatch.setattr(procfs, "maps", lambda pid: lines[pid])
    whole = Sum(lambda *_: None)
    whole.gain(0, 0, 2 * MIB)
    whole.sample(0, [One(2 * MIB, 2 * MIB), One(2 * MIB, 2 * MIB)])
    mappings = Mappings(0)
    assert mappings.step(0, NODES, whole) is None
    lines[2] = [MAPS[2].replace("1026", "1027")]
    done = mappings.step(MS, NODES, whole)
    assert together([place for _, places in done for place in places]) == 2 * 48 * KIB


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
