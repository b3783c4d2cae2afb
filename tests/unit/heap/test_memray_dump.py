"""What memray_dump.py makes of a capture's records, on records written by hand."""

from __future__ import annotations

import io
from types import SimpleNamespace

from memprof.heap import memray_dump

SITE, CALLER = ("grow", "/w/grow.py", 7), ("main", "/w/grow.py", 20)


def record(*bytes_from: tuple[int, int]) -> SimpleNamespace:
    """A stack that allocates, from a snapshot on, so many bytes."""
    frames = [SITE, CALLER]
    return SimpleNamespace(
        intervals=[
            SimpleNamespace(allocated_before_snapshot=at, deallocated_before_snapshot=None, n_bytes=size) for at, size in bytes_from
        ],
        stack_trace=lambda max_stacks=None: frames[:max_stacks],
    )


def test_stack_is_the_same_at_each_moment():
    """The least bytes of a full stack rise with the heap: small stacks must not come to a site that then seems to grow."""
    reader = SimpleNamespace(
        get_temporal_allocation_records=lambda merge_threads: [record((0, 100)), record((0, 10), (1, 10)), record((0, 5))]
    )

    live = memray_dump.at_moments(reader, memray_dump.Stacks(io.StringIO(), None), [0, 1], [15.0, 150.0])

    full, site = (0, 1), (0, -1)
    assert [dict(stacks) for stacks in live.values()] == [{full: 100, site: 15}, {full: 100, site: 25}]
    sizes = [dict(memray_dump.at_moments(reader, memray_dump.Stacks(io.StringIO(), None), [0, 1], [8.0, 80.0])[at]) for at in (0, 1)]
    assert [held[site] for held in sizes] == [5, 5]
