"""A timeline is bounded, keeps every extreme, and comes back out of a file as it went in."""

from __future__ import annotations

import time
from itertools import pairwise

import msgspec
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from memprof.probe.child import Measurement
from memprof.probe.timeline import Timeline
from memprof.runs import store
from memprof.runs.records import Timeline as Record

PAGES = st.integers(0, 1 << 40)
SAMPLES = st.lists(st.tuples(st.integers(1, 10**9), PAGES, PAGES, PAGES), min_size=1, max_size=300)


def filled(samples: list[tuple[int, int, int, int]], capacity: int = 20) -> tuple[Timeline, list[tuple[int, int, int, int]]]:
    timeline, seen, now = Timeline(capacity), [], 0
    for step, *values in samples:
        now += step
        timeline.add(now, *values)
        seen.append((now, *values))
    return timeline, seen


def unpacked(timeline: Timeline) -> store.Columns:
    facts = {"samples": timeline.count, "rss_min_bytes": 0, "rss_mean_bytes": 0, "rss_max_bytes": 0}
    return store.unpack(msgspec.convert({**timeline.encoded(), **facts}, Record))


@given(SAMPLES)
@examples(150)
def test_it_stays_within_its_capacity_and_loses_no_extreme(samples):
    timeline, seen = filled(samples)

    columns = unpacked(timeline)

    assert len(columns.t_ns) <= 20
    assert max(columns.rss) == max(rss for _, rss, _, _ in seen) == timeline.rss_max
    assert min(columns.rss) == min(rss for _, rss, _, _ in seen) == timeline.rss_min
    assert max(columns.file) == max(file for _, _, file, _ in seen)
    assert max(columns.vms) == max(vms for _, _, _, vms in seen)
    assert max(rss - file for rss, file in zip(columns.rss, columns.file, strict=True)) == max(rss - file for _, rss, file, _ in seen)


@given(SAMPLES)
@examples(150)
def test_its_rows_are_samples_that_were_really_taken_in_their_order(samples):
    timeline, seen = filled(samples)

    columns = unpacked(timeline)

    rows = list(zip(columns.t_ns, columns.rss, columns.file, columns.vms, strict=True))
    assert set(rows) <= set(seen)
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})


@given(SAMPLES)
@examples(100)
def test_its_mean_is_weighted_by_time(samples):
    timeline, seen = filled(samples)

    area = sum(rss * (after[0] - now) for (now, rss, _, _), after in pairwise(seen))
    length = seen[-1][0] - seen[0][0]

    assert timeline.mean() == (area // length if length else seen[0][1])


@given(SAMPLES, st.integers(0, 10**10), st.integers(0, 10**10))
@examples(100)
def test_the_highest_of_a_window_is_never_below_what_was_kept_nor_above_what_was_seen(samples, here, there):
    timeline, seen = filled(samples, capacity=1000)
    begin, end = sorted((here, there))

    best = timeline.highest(begin, end)

    inside = [rss for now, rss, _, _ in seen if begin <= now <= end]
    assert best <= max(inside, default=0)
    kept_level_ends = {now for (now, *a), (_, *b), (_, *c) in zip(seen, seen[1:], seen[2:], strict=False) if a == b == c}
    if not kept_level_ends:
        assert best == max(inside, default=0)


def test_a_level_is_two_rows_however_long_it_lasts():
    timeline, _ = filled([(1, 5, 1, 9)] * 1000 + [(1, 7, 1, 9)])

    columns = unpacked(timeline)

    assert list(columns.t_ns) == [1, 1000, 1001]
    assert list(columns.rss) == [5, 5, 7]
    assert timeline.count == 1001


def test_nothing_seen_is_an_empty_timeline():
    assert len(unpacked(Timeline()).t_ns) == 0


def test_a_sample_that_was_held_up_is_left_out():
    class Statm:
        held_up_s = 0.0

        def read(self):
            time.sleep(self.held_up_s)
            return 1, 2, 3

    probe = object.__new__(Measurement)
    probe._statm = Statm()
    # A busy machine may hold up a few of them; all of them it does not.
    assert (1, 2, 3) in [probe._sample(time.monotonic_ns()) for _ in range(1000)]
    probe._statm.held_up_s = 0.001
    assert probe._sample(time.monotonic_ns()) is None
