"""Parts of files that several processes have mapped: each place of a file is in memory once."""

from __future__ import annotations

from memprof.recording.mappings import FileOverlap, union_bytes


def test_overlapping_parts_count_once() -> None:
    parts = [(1, 0, 30), (1, 20, 50), (1, 90, 95), (2, 0, 7)]
    assert union_bytes(parts) == union_bytes(reversed(parts)) == 50 + 5 + 7


def test_part_within_another_counts_nothing() -> None:
    assert union_bytes([(1, 0, 100), (1, 20, 30), (1, 40, 120)]) == 120


def test_first_reading_tells_nothing() -> None:
    mappings = FileOverlap()
    mappings.take(7, [(1, 0, 30)])
    assert mappings.complete([7], 5) is None
    assert mappings.moved == 5


def test_two_readings_cover_what_was_between() -> None:
    mappings = FileOverlap()
    mappings.take(7, [(1, 0, 30)])
    mappings.take(8, [(1, 0, 30)])
    mappings.complete([7, 8], 0)
    mappings.take(8, [(1, 0, 40)])
    assert mappings.complete([7, 8], 0) == {7: [(1, 0, 30)], 8: [(1, 0, 30), (1, 0, 40)]}
    assert mappings.complete([7, 8], 0) is None  # the next two begin


def test_process_that_may_not_be_read_is_left_out() -> None:
    mappings = FileOverlap()
    mappings.take(7, [(1, 0, 30)])
    mappings.complete([7, 8], 0)
    mappings.take(8, [(1, 0, 30)])
    assert mappings.complete([7, 8], 0) == {7: [(1, 0, 30)]}


def test_process_that_comes_spoils_the_first() -> None:
    mappings = FileOverlap()
    mappings.take(7, [(1, 0, 30)])
    mappings.complete([7], 0)
    mappings.drop()
    assert mappings.complete([7], 0) is None
