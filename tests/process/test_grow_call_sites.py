"""`memprof grow --who`: which call sites hold what rose, told by the stacks of memray and heaptrack at several moments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import need_tool
from support import suites
from support.growth_runs import grows
from support.leaks import LEAK
from support.native_programs import program
from support.recorder_runs import Silent, runtime_file
from support.suites import one

from memprof.growth.grow import call_sites
from memprof.growth.grow.grow import GrowRequest

KIB, MIB = 1 << 10, 1 << 20


def test_leak_in_native_wrapper_located(tmp_path: Path) -> None:
    """The library allocates too, and frees it all."""
    pytest.importorskip("memray")
    (tmp_path / "m.json").write_text("{}")
    runtime_file(
        tmp_path,
        top="import zlib\nkept = []",
        execute="zlib.compress(bytes(200_000))\nkept.append(bytearray(65536))\ntime.sleep(0.002)",
    )

    answer = call_sites.explained(GrowRequest(one(tmp_path / "m.json", str(tmp_path / "mine.py"))), grows(400, MIB), Silent())

    assert answer.who is not None
    (place, *_) = answer.who.places
    assert place.each_bytes == pytest.approx(65536, rel=0.4)
    line = (tmp_path / "mine.py").read_text().splitlines().index("        kept.append(bytearray(65536))") + 1
    assert place.sites == (f"execute (mine.py:{line})",)  # and not what of the interpreter allocates
    assert re.fullmatch(rf"memray: about [\d.]+ KiB each iteration stay from execute \(mine.py:{line}\)\.", answer.remarks[0])


def test_leak_per_token_found_by_heaptrack(memprof, tmp_path: Path) -> None:
    need_tool("heaptrack")
    leaks = LEAK.replace("memprof_iteration_of", "usleep(3000); memprof_iteration_of")  # slow enough for moments in between
    request = GrowRequest(suites.program(f"engine={program(leaks)} {{runs}}"))

    answer = call_sites.explained(request, grows(800, MIB, "token"), Silent())  # of 800 iterations

    assert answer.who is not None
    (place,) = answer.who.places
    assert place.sites[0] == "main"
    assert place.each_bytes == pytest.approx(300, rel=0.4)  # where the machine stalls, the clocks of heaptrack and of the marks differ
    assert answer.remarks == (f"heaptrack: about {place.each_bytes:.0f} B each token stay from main.",)


def test_call_sites_without_tool_refused(memprof, tmp_path, scenario, monkeypatch) -> None:
    scenario()
    monkeypatch.setattr("memprof.heap.record._missing", lambda tool, python: None if tool == "massif" else f"{tool} is not installed")

    done = memprof("grow", "scenario.json", "-r", "synthetic", "--who", "-o", "runs.jsonl")

    assert done.returncode == 5 and "--who needs memray" in done.stderr and "or heaptrack" in done.stderr
    assert not (tmp_path / "runs.jsonl").exists()
