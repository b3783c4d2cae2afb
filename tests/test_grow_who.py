"""`memprof grow --who`: which call sites hold what rose, told by the stacks of memray and heaptrack at several moments."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pytest
from conftest import need_tool
from failing import Silent, runtime_file
from heap_made import profile
from native_programs import program
from plan_models import wide
from test_grow import LEAK

from memprof.errors import InputError
from memprof.heap.profile import PhaseSpan
from memprof.heap.rising import rises
from memprof.judge.growth import Verdict
from memprof.programs import commands
from memprof.seek import who
from memprof.seek.grow import Grown, GrowRequest

KIB, MIB = 1 << 10, 1 << 20
EXECUTE = (PhaseSpan("EXECUTE", 0, 100),)


def grows(units: int = 400, each: int = 64 * KIB, unit: str = "iteration") -> Grown:
    """An answer of `memprof grow`: processes that grew by so much with each of so many units."""
    run = replace(made.run(), work=(made.worked(range(units + 1), [each * done for done in range(units + 1)]),))
    return Grown("m", "r", "", "", Verdict("grows", unit, slope=float(each), tail=units), (), runs=(run,))


def moments(*held: dict[tuple[str, ...], float]) -> Any:
    return profile(*((10.0 * number, stacks) for number, stacks in enumerate(held)), phases=EXECUTE)


# -- what rises


def test_a_site_that_holds_more_with_each_unit_rises_and_what_comes_and_goes_does_not():
    leak, buffer, weights = ("net::cache", "net::run", "main", "_start"), ("net::scratch", "main"), ("net::read", "main")
    held = [{leak: 2 * number + 1, buffer: 40 if number % 2 else 0.1, weights: 60} for number in range(8)]

    risen = rises(moments(*held), "EXECUTE", lambda time: 5 * time)

    (place,) = risen.places
    assert place.sites == ("net::cache", "net::run", "main")
    assert place.each_bytes == pytest.approx(2 * MIB / 50)
    assert (place.bytes, risen.units) == (14 * MIB, 350)


def test_a_site_that_rose_once_does_not_follow_the_work():
    once, leak = ("net::table", "main"), ("net::cache", "main")
    held = [{once: 30 if number >= 6 else 0.1, leak: number + 1} for number in range(7)]

    assert [place.sites[0] for place in rises(moments(*held), "EXECUTE", lambda time: time).places] == ["net::cache"]


def test_stacks_that_share_their_site_and_nearest_callers_are_one_place():
    held = [
        {("malloc", "a", "b", "c", "x"): number + 1, ("operator new(unsigned long)", "a", "b", "c", "y"): number + 1} for number in range(5)
    ]

    (place,) = rises(moments(*held), "EXECUTE", lambda time: time).places

    assert place.sites == ("a", "b", "c")
    assert place.bytes == 8 * MIB


@pytest.mark.parametrize(("count", "last"), [(3, 30.0), (6, 0.0)])
def test_too_few_moments_are_said(count, last):
    with pytest.raises(InputError, match="too few to see a rise: more units are needed"):
        rises(moments(*[{("a",): 1.0}] * count), "EXECUTE", lambda time: min(time, last))


@pytest.mark.parametrize(
    ("done", "each", "wanted"),
    [(400, 64 * KIB, 4000), (400, MIB, 400), (5000, KIB, 5000), (6000, 64 * KIB, 4000)],
    ids=["as fast as this it takes more", "more would hold too much", "more would take too long", "fewer are enough"],
)
def test_as_many_units_are_recorded_as_a_tool_sees_well(done, each, wanted):
    assert who._units(grows(done, each)) == wanted  # each takes 1 ms


# -- with the real tools


def test_a_leak_in_a_wrapper_of_onnxruntime_is_found_with_its_line(tmp_path: Path) -> None:
    pytest.importorskip("memray")
    runtime_file(
        tmp_path,
        top="import numpy, onnxruntime\nkept = []",
        load="self.session = onnxruntime.InferenceSession(model)",
        prepare="self.feed = {given.name: numpy.zeros([1 if not isinstance(n, int) else n for n in given.shape], numpy.float32)"
        " for given in self.session.get_inputs()}",
        execute="self.session.run(None, self.feed)\nkept.append(bytearray(65536))\ntime.sleep(0.002)",
    )

    answer = who.explained(GrowRequest(str(wide(tmp_path / "wide.onnx")), str(tmp_path / "mine.py")), grows(400, MIB), Silent())

    assert answer.who is not None
    (place, *_) = answer.who.places
    assert place.each_bytes == pytest.approx(65536, rel=0.4)
    line = (tmp_path / "mine.py").read_text().splitlines().index("        kept.append(bytearray(65536))") + 1
    assert f"execute (mine.py:{line})" in place.sites
    assert re.fullmatch(
        rf"memray: about [\d.]+ KiB each iteration stay from \S+, called by execute \(mine.py:{line}\)\.", answer.remarks[0]
    )


def test_a_program_that_leaks_a_token_is_found_with_heaptrack(memprof, tmp_path: Path) -> None:
    need_tool("heaptrack")
    leaks = LEAK.replace("memprof_iteration_of", "usleep(3000); memprof_iteration_of")  # slow enough for moments in between
    request = GrowRequest(None, command=commands.parse(f"engine={program(leaks)} {{runs}}"))

    answer = who.explained(request, grows(800, MIB, "token"), Silent())  # of 800 iterations

    assert answer.who is not None
    (place,) = answer.who.places
    assert place.sites[0] == "main"
    assert place.each_bytes == pytest.approx(300, rel=0.4)  # where the machine stalls, the clocks of heaptrack and of the marks differ
    assert answer.remarks == (f"heaptrack: about {place.each_bytes:.0f} B each token stay from main.",)


# -- what cannot be told


def test_nothing_is_recorded_where_nothing_grew() -> None:
    answer = replace(grows(), verdict=Verdict("bounded", "iteration"))

    said = who.explained(GrowRequest("m", "r"), answer, Silent())

    assert (said.who, said.remarks) == (None, ("--who: it is bounded, so that no call site rises with it",))


def test_without_a_tool_it_is_refused_before_anything_is_measured(memprof, tmp_path, scenario, monkeypatch) -> None:
    scenario()
    monkeypatch.setattr("memprof.heap.record._missing", lambda tool, python: None if tool == "massif" else f"{tool} is not installed")

    done = memprof("grow", "scenario.json", "-r", "synthetic", "--who", "-o", "runs.jsonl")

    assert done.returncode == 5 and "--who needs memray" in done.stderr and "or heaptrack" in done.stderr
    assert not (tmp_path / "runs.jsonl").exists()
