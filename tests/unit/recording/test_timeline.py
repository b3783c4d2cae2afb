"""A timeline is bounded, keeps every extreme, and comes back out of a file as it went in."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from memprof.recording.timeline import FILE, TimelineBuilder
from memprof.records import store
from memprof.records.types import Timeline

PAGES = st.integers(0, 1 << 40)
SAMPLES = st.lists(st.tuples(st.integers(2, 10**9), PAGES, PAGES, PAGES), min_size=1, max_size=300)
Row = tuple[int, int, int, int]


def filled(samples: list[Row], capacity: int = 20) -> tuple[TimelineBuilder, list[Row]]:
    """A timeline of samples that came so long after one another, and what was seen when."""
    timeline, seen, now = TimelineBuilder(capacity), [], 0
    for step, rss, file, vms in samples:
        now += step
        timeline.add(now, now + 1, rss, file, vms)
        seen.append((now, rss, file, vms))
    return timeline, seen


def unpacked(timeline: TimelineBuilder, samples: int = 300) -> store.TimelineColumns:
    facts = {"samples": samples, "rss_min_bytes": 0, "rss_mean_bytes": 0, "rss_max_bytes": 0}
    return store.unpack(msgspec.convert({**timeline.encoded(), **facts}, Timeline))


@given(SAMPLES)
@examples(150)
def test_extremes_outlive_thinning(samples: list[Row]) -> None:
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
def test_rows_are_samples_in_order(samples: list[Row]) -> None:
    timeline, seen = filled(samples)

    columns = unpacked(timeline)

    rows = list(zip(columns.t_ns, columns.rss, columns.file, columns.vms, strict=True))
    assert set(rows) <= set(seen)
    assert [row[0] for row in rows] == sorted({row[0] for row in rows})


@given(SAMPLES)
@examples(100)
def test_mean_is_weighted_by_time(samples: list[Row]) -> None:
    timeline, seen = filled(samples)

    area = sum(rss * (after[0] - now) for (now, rss, _, _), after in pairwise(seen))
    length = seen[-1][0] - seen[0][0]

    assert timeline.mean() == (area // length if length else seen[0][1])


@given(SAMPLES, st.integers(0, 10**10), st.integers(0, 10**10))
@examples(100)
def test_highest_is_of_its_window(samples: list[Row], here: int, there: int) -> None:
    timeline, seen = filled(samples, capacity=1000)
    begin, end = sorted((here, there))

    inside = [rss for now, rss, _, _ in seen if begin <= now and now + 1 <= end]
    # Between two readings that are the same, the value of both is known.
    level = [rss for (now, rss, _, _), (later, same, _, _) in pairwise(seen) if rss == same and now + 1 <= end and later >= begin]

    assert timeline.highest(begin, end) == max(inside + level, default=0)


READINGS = [(100, 110, 5), (200, 210, 7), (300, 310, 7), (400, 410, 6)]


@pytest.mark.parametrize(
    ("begin_ns", "end_ns", "highest"),
    [
        (0, 500, 7),
        (90, 110, 5),
        (90, 109, 0),  # it may have been read after the end
        (101, 200, 0),  # or before the begin
        (200, 209, 0),
        (205, 206, 0),  # the level is known from the end of its first reading
        (205, 210, 7),
        (220, 290, 7),  # between two readings of a level
        (300, 305, 7),
        (301, 305, 0),  # it may have been read before that
        (311, 399, 0),
        (305, 415, 6),
    ],
)
def test_highest_leaves_out_straddling_readings(begin_ns: int, end_ns: int, highest: int) -> None:
    timeline = TimelineBuilder()
    for reading in READINGS:
        timeline.add(*reading)
    assert timeline.highest(begin_ns, end_ns) == highest


@pytest.mark.parametrize(("begin_ns", "end_ns", "highest"), [(0, 109, 0), (0, 110, 5), (150, 160, 5), (200, 300, 5), (201, 300, 0)])
def test_highest_knows_the_newest_level(begin_ns: int, end_ns: int, highest: int) -> None:
    timeline = TimelineBuilder()
    timeline.add(100, 110, 5)
    timeline.add(200, 210, 5)
    assert timeline.highest(begin_ns, end_ns) == highest


def test_thinned_rows_are_no_level() -> None:
    """Two rows of the same value, between which others were dropped, tell nothing of the time between."""
    timeline = TimelineBuilder(10)
    for t_ns, rss, vms in zip(range(10, 120, 10), (9, 3, 4, 5, 9, 9, 1, 2, 3, 4, 5), (0, 1, 2, 3, 99, 4, 5, 6, 7, 8, 9), strict=True):
        timeline.add(t_ns, t_ns + 1, rss, 0, vms)
    assert timeline.highest(15, 48) < 9


def test_highest_of_another_column() -> None:
    timeline = TimelineBuilder()
    timeline.add(10, 11, 100, 7)
    timeline.add(20, 21, 90, 9)
    timeline.add(30, 31, 90, 9)
    assert [timeline.highest(begin, 40, FILE) for begin in (0, 15, 25)] == [9, 9, 9]
    assert timeline.highest(0, 15, FILE) == 7


def test_level_is_two_rows_however_long() -> None:
    timeline, _ = filled([(1, 5, 1, 9)] * 1000 + [(1, 7, 1, 9)])

    columns = unpacked(timeline)

    assert list(columns.t_ns) == [1, 1000, 1001]
    assert list(columns.rss) == [5, 5, 7]


def test_empty_timeline_has_no_rows() -> None:
    assert len(unpacked(TimelineBuilder(), 0).t_ns) == 0
