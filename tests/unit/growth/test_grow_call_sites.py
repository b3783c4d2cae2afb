"""`memprof grow --who`: which call sites hold what rose, told by the stacks of memray and heaptrack at several moments."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support.growth_runs import grows
from support.recorder_runs import Silent
from support.sample_profiles import profile
from support.suites import one

from memprof.base.errors import InputError
from memprof.explain.growth import GrowthPart, GrowthParts, Pinned
from memprof.growth.grow import call_sites
from memprof.growth.grow.grow import GrowRequest
from memprof.heap.growth_sites import Rise, Rises, rises
from memprof.heap.profile import PhaseSpan
from memprof.verdicts.growth import Verdict

KIB, MIB = 1 << 10, 1 << 20
EXECUTE = (PhaseSpan("EXECUTE", 0, 100),)


def moments(*held: dict[tuple[str, ...], float]) -> Any:
    return profile(*((10.0 * number, stacks) for number, stacks in enumerate(held)), phases=EXECUTE)


def test_site_rises_with_each_unit():
    leak, buffer, weights = ("net::cache", "net::run", "main", "_start"), ("net::scratch", "main"), ("net::read", "main")
    held = [{leak: 2 * number + 1, buffer: 40 if number % 2 else 0.1, weights: 60} for number in range(8)]

    risen = rises(moments(*held), "EXECUTE", lambda time: 5 * time)

    (place,) = risen.places
    assert place.sites == ("net::cache", "net::run", "main")
    assert place.each_bytes == pytest.approx(2 * MIB / 50)
    assert (place.bytes, risen.units) == (14 * MIB, 350)


def test_site_rising_once_ignored():
    once, leak = ("net::table", "main"), ("net::cache", "main")
    held = [{once: 30 if number >= 6 else 0.1, leak: number + 1} for number in range(7)]

    assert [place.sites[0] for place in rises(moments(*held), "EXECUTE", lambda time: time).places] == ["net::cache"]


def test_site_freed_at_program_end_rises():
    leak, weights = ("net::cache", "main"), ("net::read", "main")
    held = [{leak: 5 * number + 1, weights: 60} for number in range(12)]

    (place,) = rises(moments(*held, {leak: 20, weights: 60}, {weights: 2}), "EXECUTE", lambda time: time).places

    assert place.sites == ("net::cache", "main")
    assert place.each_bytes == pytest.approx(MIB / 2)


def test_stacks_merged_by_nearest_callers():
    held = [
        {("malloc", "a", "b", "c", "x"): number + 1, ("operator new(unsigned long)", "a", "b", "c", "y"): number + 1} for number in range(5)
    ]

    (place,) = rises(moments(*held), "EXECUTE", lambda time: time).places

    assert place.sites == ("a", "b", "c")
    assert place.bytes == 8 * MIB


@pytest.mark.parametrize(("count", "last"), [(3, 30.0), (6, 0.0)])
def test_moments_too_few(count, last):
    with pytest.raises(InputError, match="too few to see a rise: more units are needed"):
        rises(moments(*[{("a",): 1.0}] * count), "EXECUTE", lambda time: min(time, last))


@pytest.mark.parametrize(
    ("done", "each", "wanted", "by_memray"),
    [(400, 64 * KIB, 4000, 256), (400, MIB, 400, 200), (5000, KIB, 5000, 5000), (6000, 64 * KIB, 4000, 256)],
    ids=["as fast as this it takes more", "more would hold too much", "more would take too long", "fewer are enough"],
)
def test_units_chosen_for_recording(done, each, wanted, by_memray):
    """Each takes 1 ms; memray's clock is close to memprof's."""
    assert call_sites._units(grows(done, each), "heaptrack") == wanted
    assert call_sites._units(grows(done, each), "memray") == by_memray


def test_recording_skipped_without_growth() -> None:
    answer = replace(grows(), verdict=Verdict("bounded", "iteration"))

    said = call_sites.explained(GrowRequest(one("m", "r")), answer, Silent())

    assert (said.who, said.remarks) == (None, ("--who: it is bounded, so that no call site rises with it",))


def looked(in_use: int, kept: int) -> GrowthParts:
    """Two looks between which so many MiB more came to be in use, and to be kept by the allocator."""
    parts = (GrowthPart("in use by the program", MIB, (1 + in_use) * MIB), GrowthPart("freed, kept by the allocator", 0, kept * MIB))
    return GrowthParts("a", "b", (MIB, (1 + in_use + kept) * MIB), parts, (0, 0), (0, 0), (0, 0), Pinned(0, 0, 0, 0, 0, 0), inside=True)


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (None, "rise with iterations; --why tells whether what rose is in use."),
        (looked(1, 9), "not from malloc; --why names the mappings that rise."),
        (looked(14, 2), ", though --why finds 14.0 MiB more in use by the program: heaptrack did not see who holds them."),
    ],
)
def test_no_call_site_agrees_with_why(why: GrowthParts | None, words: str) -> None:
    (sentence,) = call_sites._sentences(Rises((), 0.0, 100.0), "heaptrack", grows().verdict, why, None)

    assert sentence.endswith(words)


@pytest.mark.parametrize("places", [(), (Rise(("main",), 64.0, 6400),)])
def test_python_under_heaptrack_names_memray(places: tuple[Rise, ...]) -> None:
    *_, hint = call_sites._sentences(Rises(places, 64.0, 100.0), "heaptrack", grows().verdict, None, "/usr/bin/python3")

    assert hint == "memray is not installed in /usr/bin/python3: install '.[memray]' there to see lines of Python."
