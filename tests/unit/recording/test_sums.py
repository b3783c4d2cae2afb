"""The arithmetic of a sum: what may change the overlap of processes, and what a later reading tells of before."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from memprof.recording.sums import SumHistory, TreeSum


@dataclass
class One:
    rss: int
    file: int = 0
    vms: int = 0


class Sums:
    """A TreeSum, and what it has settled: (time, low, high)."""

    def __init__(self) -> None:
        self.settled: list[tuple[int, int, int]] = []
        self.sum = TreeSum(lambda begin_ns, end_ns, low, high, file, vms: self.settled.append((begin_ns, low, high)))

    def sample(self, t_ns: int, *members: One) -> None:
        self.sum.sample(t_ns, t_ns, members)


def test_one_process_is_known_at_once() -> None:
    sums = Sums()
    sums.sample(1, One(100))
    sums.sum.extend(2)
    assert sums.settled == [(1, 100, 100), (2, 100, 100)]


def test_lone_samples_follow_those_that_waited() -> None:
    sums = Sums()
    sums.sample(1, One(100))
    sums.sum.gain(0, 100, 0)
    sums.sample(2, One(100), One(100))
    sums.sample(3, One(100))
    sums.sum.extend(4)
    sums.sum.flush()
    assert [t_ns for t_ns, _, _ in sums.settled] == [1, 2, 3, 4]


def test_fork_shares_all_but_new_pages() -> None:
    sums = Sums()
    sums.sample(1, One(100))
    sums.sum.gain(95, 100, 0)
    sums.sample(2, One(100), One(100))
    sums.sum.flush()
    assert sums.settled[-1] == (2, 100, 105)


def test_late_copy_counts_from_before() -> None:
    sums = Sums()
    sums.sum.gain(100, 100, 0)
    sums.sample(1, One(100), One(100))
    sums.sum.copy(30)
    sums.sample(2, One(100), One(100))
    sums.sum.flush()
    assert sums.settled == [(1, 100, 130), (2, 100, 130)]


def test_shared_files_wait_for_a_reading() -> None:
    sums = Sums()
    sums.sample(1, One(1), One(1))
    for before, step in ((0, 50), (50, 100), (100, 200)):
        sums.sum.gain(0, 0, 2 * (step - before))
        sums.sample(step, One(step, step), One(step, step))
    assert sums.sum.last == (200, 200, 0)
    sums.sum.confirm(200, 0, 200)  # one file
    sums.sum.flush()
    assert max(high for _, _, high in sums.settled) == max(low for _, low, _ in sums.settled) == 200

    sums.sum.gain(0, 0, 100)
    sums.sample(300, One(200, 200), One(300, 300))
    assert sums.sum.last == (300, 300, 0)
    sums.sum.confirm(200, 0, 200)  # another one
    assert sums.settled[-1] == (300, 300, 300)


def test_reading_tells_of_before() -> None:
    sums = Sums()
    sums.sum.gain(0, 100, 0)
    sums.sample(1, One(100), One(100))
    sums.sum.lose(40)
    sums.sample(2, One(60), One(100))
    sums.sum.confirm(60, 60, 0)
    sums.sum.flush()
    assert sums.settled == [(1, 100, 140), (2, 100, 100)]


def test_end_may_lose_what_was_uncertain() -> None:
    sums = Sums()
    sums.sum.gain(40, 100, 0)
    sums.sample(1, One(100), One(100), One(50))
    sums.sum.lose(100, 40)
    sums.sample(2, One(100), One(50))
    sums.sum.confirm(0, 0, 0)
    sums.sum.flush()
    assert sums.settled == [(1, 150, 210), (2, 150, 150)]


def test_least_overlap_holds_for_before() -> None:
    sums = Sums()
    sums.sum.gain(0, 0, 50)
    sums.sample(1, One(100, 50), One(60, 50))
    sums.sum.gain(0, 0, 30)
    sums.sample(2, One(100, 50), One(90, 80))
    sums.sum.at_least(45)
    sums.sum.flush()
    assert sums.settled == [(1, 110, 145), (2, 140, 145)]


def test_reading_that_contradicts_takes_over() -> None:
    sums = Sums()
    sums.sum.gain(90, 100, 0)
    sums.sample(1, One(100), One(100))
    sums.sum.confirm(20, 30, 0)
    assert (sums.sum.certain, sums.sum.width) == (20, 10)


def test_high_water_mark_alone_is_possible() -> None:
    sums = Sums()
    sums.sum.gain(100, 100, 0)
    sums.sum.miss(7)
    sums.sample(1, One(100), One(100))
    sums.sum.flush()
    assert sums.settled == [(1, 100, 107)]


def test_waiting_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memprof.recording.sums._PENDING", 10)
    sums = Sums()
    sums.sum.gain(0, 100, 0)
    for t_ns in range(1, 41):
        sums.sample(t_ns, One(100 + t_ns), One(100))
    assert len(sums.settled) >= 30
    assert [t_ns for t_ns, _, _ in sums.settled] == sorted({t_ns for t_ns, _, _ in sums.settled})


def test_extension_repeats_a_waiting_sample() -> None:
    sums = Sums()
    sums.sum.gain(50, 100, 0)
    sums.sample(1, One(100), One(100))
    sums.sum.extend(5)
    sums.sum.extend(9)
    sums.sample(10, One(100), One(110))
    sums.sum.flush()
    assert sums.settled == [(1, 100, 150), (9, 100, 150), (10, 110, 160)]


def test_extension_repeats_a_settled_sample() -> None:
    sums = Sums()
    sums.sum.gain(50, 100, 0)
    sums.sample(1, One(100), One(100))
    sums.sum.confirm(60, 60, 0)
    assert sums.settled == [(1, 140, 140)]
    sums.sum.extend(9)
    sums.sum.lose(10)
    sums.sample(10, One(100), One(90))
    sums.sum.flush()
    assert sums.settled == [(1, 140, 140), (9, 140, 140), (10, 130, 140)]


def test_history_has_bounds_of_each_window() -> None:
    history = SumHistory()
    history.sum.gain(50, 100, 0)
    history.sum.sample(1, 2, [One(100), One(100)])
    history.sum.sample(3, 4, [One(100), One(120)])
    history.sum.flush()
    assert (history.highest(0, 2), history.highest(3, 4), history.highest(5, 9)) == ((100, 150), (120, 170), (0, 0))
    assert (history.most, history.settled_ns) == (170, 4)
