"""What a test with leaks= says, on verdicts written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import sample_runs

from memprof.doors.pytest_plugin import leaks
from memprof.doors.pytest_plugin.leaks import LeakAnswer
from memprof.records.python_lines import GrowthLine
from memprof.verdicts.growth import Verdict

KIB, MIB = 1 << 10, 1 << 20
GROWS = Verdict("grows", "call", 64.0 * KIB, 63.0 * KIB, 65.0 * KIB, tail=1000)
UNDECIDED = Verdict("undecided", "call", tail=6000, reason="its memory moves too much to tell a slow rise", needed=32_000)
STEADY = Verdict("steady", "call", high=3.0, tail=1000)


def test_growth_names_unfilled_cache_and_remedy():
    failure = LeakAnswer(GROWS, (64 * MIB, False)).failure(sample_runs.run(), 10 * KIB, 8000)

    assert failure == (
        "64.0 KiB more per call, limit 10.0 KiB per call (95%: 63.0 KiB to 65.0 KiB). Memory rose by 64.0 MiB in 1,000 calls. "
        "It may be a cache that is not full yet: then bound it, fill it in a fixture, or give leaks a higher limit"
    )


def test_growth_in_freed_memory_is_lower_bound():
    verdict = Verdict("grows", "call", 74.0, 73.0, 75.0, tail=8000, hidden=True)

    failure = LeakAnswer(verdict, (578 * KIB, False)).failure(sample_runs.run(), 0, 8000)

    assert failure is not None and failure.startswith(
        "at least 74 B more per call, limit 0 B per call (95%: 73 B to 75 B in use, in memory that was freed before). Memory rose by 578.0 KiB in"
    )


def test_undecided_names_what_test_can_change():
    failure = LeakAnswer(UNDECIDED, (0, False)).failure(sample_runs.run(), 0, 8000)

    assert failure is not None and failure.startswith("undecided after 6,000 calls: its memory moves too much")
    assert "32,000" not in failure
    assert failure.endswith("Let its work vary less or take less time: a process makes up to 8,000 calls")


@pytest.mark.parametrize("allowed", [65 * KIB, 1 * MIB])
def test_growth_within_limit_passes(allowed):
    assert LeakAnswer(GROWS, (64 * MIB, False)).failure(sample_runs.run(), allowed, 8000) is None


@pytest.mark.parametrize(
    ("verdict", "properties"),
    [
        (GROWS, [("growth_verdict", "grows"), ("growth_bytes_per_call", 65536.0)]),
        (STEADY, [("growth_verdict", "steady"), ("growth_bytes_per_call", 0.0), ("growth_hidden_bytes_per_call", 3.0)]),
        (UNDECIDED, [("growth_verdict", "undecided")]),
    ],
)
def test_undecided_growth_has_no_rate(verdict, properties):
    assert leaks.properties(verdict) == properties


@pytest.mark.parametrize(
    ("hidden_bytes", "allowed", "more"),
    [(3.0, 0, False), (170.0, 0, True), (170.0, 1 * KIB, False)],
    ids=["close", "wide", "within the limit"],
)
def test_flat_verdict_that_hides_much_needs_more(hidden_bytes, allowed, more):
    assert LeakAnswer(Verdict("steady", "call", high=hidden_bytes, tail=1000), (0, False)).needs_more(allowed) is more


def test_growth_in_freed_memory_is_confirmed():
    assert LeakAnswer(Verdict("grows", "call", 48.0, 47.0, 49.0, tail=1000, hidden=True), (48 * KIB, True)).needs_more(0)
    assert not LeakAnswer(GROWS, (64 * MIB, False)).needs_more(0)


def test_lines_that_allocate_growth_named():
    lines = (
        GrowthLine("/w/pkg/cache.py", 7, 5600 * KIB, 100, holder="the list `kept` of module pkg.cache"),
        GrowthLine("/lib/other.py", 9, 900 * KIB, 100, "json/decoder.py", 353, holder=""),
        GrowthLine("/w/pkg/few.py", 1, 9 * KIB, 1),
    )

    assert list(leaks.told(lines, 100, 64 * KIB, Path("/w"))) == [
        "At least 56.0 KiB of Python's objects per call stay, allocated by pkg/cache.py:7, held by the list `kept` of module pkg.cache",
        # 9 KiB stay under tracemalloc, and 8 KiB of the measured growth are left
        "At least 8.0 KiB of Python's objects per call stay, allocated by /lib/other.py:9 (in json/decoder.py:353, which it called); "
        "what holds them was not found",
    ]


def test_line_whose_objects_were_not_seen_names_no_holder():
    (sentence,) = leaks.told((GrowthLine("/w/pkg/few.py", 1, 64 * KIB, 1),), 1, 64 * KIB, Path("/w"))

    assert sentence.endswith("allocated by pkg/few.py:1")


def test_growth_outside_python_names_next_step():
    (sentence,) = leaks.told((GrowthLine("/w/pkg/few.py", 1, 9 * KIB, 1),), 100, 64 * KIB, Path("/w"))

    assert "memprof grow --why --who -- python SCRIPT" in sentence
