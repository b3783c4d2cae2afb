"""What more work could overturn a verdict of growth, on verdicts written by hand."""

from __future__ import annotations

import pytest

from memprof.reports.tables.growth import prospect
from memprof.verdicts.growth import Verdict
from memprof.verdicts.growth_outlook import CacheBound, Outlook, outlook

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GROWS = Verdict("grows", "request", slope=64 * KIB, tail=8000)
PROMPTS = CacheBound("prompt_cache", 8 * GIB, "bytes")


def test_growth_names_larger_cache():
    prospects = outlook(GROWS, (500 * MIB, False))

    assert prospects == Outlook(("bounded",), 8000, 500 * MIB, needed=20_000, shown=12_000, option="--budget 20000")
    assert prospect(GROWS, prospects) == (
        "Memory rose by 500.0 MiB in 8,000 requests. It may be a cache that is not full yet: --budget 20000 would show a bound within 12,000."
    )


def test_growth_of_fixed_work_names_longer_run():
    prospects = outlook(GROWS, (500 * MIB, False), longer=False)

    assert prospects.option is None
    assert prospect(GROWS, prospects).endswith(
        "It may be a cache that is not full yet: a run of 20,000 requests would show a bound within 12,000."
    )


@pytest.mark.parametrize(
    ("bounds", "first", "filled", "needed"),
    [
        ((PROMPTS,), PROMPTS, 131_072, 220_000),
        ((CacheBound("kernels", 9000, "entries"), PROMPTS), CacheBound("kernels", 9000, "entries"), 9000, 20_000),
        ((CacheBound("kernels", 1024, "entries"),), None, None, 20_000),
        ((CacheBound("prompt_cache", 64 * MIB, "bytes"),), None, None, 20_000),
        ((CacheBound("prompt_cache", 490 * MIB, "bytes"),), CacheBound("prompt_cache", 490 * MIB, "bytes"), 8000, 20_000),
    ],
)
def test_growth_stops_at_first_bound_ahead(bounds, first, filled, needed):
    prospects = outlook(GROWS, (500 * MIB, False), bounds)

    assert (prospects.bound, prospects.bound_units, prospects.needed) == (first, filled, needed)


def test_growth_bound_in_words():
    said = prospect(GROWS, outlook(GROWS, (500 * MIB, False), (PROMPTS, CacheBound("texts", 64 * MIB, "bytes"))))

    assert "If it is the cache that prompt_cache bounds, it stops at 8.00 GiB, after about 131,072 requests." in said
    assert "It is not the cache of texts alone, which is bounded at 64.0 MiB." in said
    entries = prospect(GROWS, outlook(GROWS, (500 * MIB, False), (CacheBound("kernels", 9000, "entries"),)))
    assert "it stops at 9,000 entries." in entries


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        (CacheBound("prompt_cache", 64 * MIB, "bytes"), True),
        (CacheBound("prompt_cache", 8 * GIB, "bytes"), False),
        (CacheBound("prompt_cache", 16 * MIB, "bytes"), False),
        (CacheBound("kernels", 200, "entries"), True),
        (CacheBound("kernels", 1024, "entries"), False),
    ],
)
def test_bound_reached_named(bound, reached):
    verdict = Verdict("bounded", "request", high=4.0, warmup=203, rise_bytes=65 * MIB, tail=997)

    prospects = outlook(verdict, (65 * MIB, False), (bound,))

    assert prospects.bound == (bound if reached else None)
    assert (prospects.to, prospects.needed, prospects.slope_bytes) == (("grows",), 4800, 4.0)
    said = prospect(verdict, prospects)
    assert (f"This is where {bound.knob} bounds a cache: " in said) == reached


def test_undecided_needs_same_run_as_verdict():
    verdict = Verdict("undecided", "shape", tail=2000, rise_bytes=470 * MIB, reason="it rose late, in few steps", needed=8000)

    prospects = outlook(verdict, (470 * MIB, False), (PROMPTS,))

    assert prospects.to == ("steady", "bounded", "grows")
    assert (prospects.needed, prospects.option, prospects.bound) == (8000, "--budget 8000", PROMPTS)
    assert "it stops at 8.00 GiB" in prospect(verdict, prospects)
    assert outlook(verdict, (100, False), (PROMPTS,)).bound is None
    assert outlook(Verdict("undecided", "shape", reason="1 of 3 processes were measured"), (0, False)).option is None


def test_steady_says_what_could_hide():
    prospects = outlook(Verdict("steady", "iteration", high=3.0, tail=2000), (0, False))

    assert prospects == Outlook(("bounded", "grows"), 2000, 0, 3.0, 8000, None, "--budget 8000")
    assert prospect(Verdict("steady", "iteration", high=3.0, tail=2000), prospects) == ""
