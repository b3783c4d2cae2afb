"""Recording under real tools: the files, the phases, what is partial, and what is said when it cannot be done."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support import sample_runs
from support.examples import tried
from support.heap_program import program  # noqa: F401  (the fixtures)
from support.sample_profiles import profile, usual

from memprof.base.errors import InputError, MeasurementError, UsageError
from memprof.campaign.progress import Silent
from memprof.heap import load, phases, phrases, record
from memprof.heap.phases import with_phases
from memprof.heap.profile import HeapProfile, PhaseSpan
from memprof.programs import commands
from memprof.records.types import COMMAND, Outcome
from memprof.reports.heap import page, plot, series, show
from memprof.subjects.orders import of_one
from memprof.subjects.suite import Suite, Variant

Memprof = Callable[..., "subprocess.CompletedProcess[str]"]
MIB = 1 << 20


def suite(words: tuple[str, ...]) -> Suite:
    command = commands.of_words(words)
    return Suite(variants=(Variant(runtime=COMMAND, name=command.name, command=command),))


_VALGRIND_LACKS = (
    "valgrind probably lacks an instruction that this CPU has (AVX-512, for example); --tool heaptrack runs the program on the CPU itself"
)


@pytest.mark.parametrize(
    ("tool", "outcome", "said"),
    [
        ("massif", Outcome("signal", "EXECUTE", signal="SIGILL"), f"the program ended by SIGILL in EXECUTE; {_VALGRIND_LACKS}"),
        ("massif", Outcome("exit", "RUN", exit_code=132), f"the program ended with exit code 132 in RUN; {_VALGRIND_LACKS}"),
        ("massif", Outcome("signal", "EXECUTE", signal="SIGSEGV"), "the program ended by SIGSEGV in EXECUTE"),
        ("heaptrack", Outcome("signal", "EXECUTE", signal="SIGILL"), "the program ended by SIGILL in EXECUTE"),
    ],
)
@pytest.mark.parametrize("leaves", [True, False])
def test_massif_illegal_instruction_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: record.Tool, outcome: Outcome, said: str, leaves: bool
) -> None:
    run = replace(sample_runs.run(outcome=outcome), output_tail="==1== valgrind: Unrecognised instruction at address 0x109171: an error")
    monkeypatch.setattr(record, "_missing", lambda tool, python: None)
    monkeypatch.setattr(record.campaign, "measure", lambda *_, **__: [run])
    monkeypatch.setattr(record, "_kept", lambda tool, scratch, folder: [folder / "massif.out.1"] if leaves else [])
    request = record.HeapRequest(tmp_path / "out", suite(("true",)), tool=tool)
    if leaves:
        assert record.record(request, Silent()).partial == said
        assert json.loads((tmp_path / "out/phases.json").read_text())["partial"] == said
    elif _VALGRIND_LACKS in said:
        with pytest.raises(MeasurementError, match=re.escape(f"massif left no file: {said.removeprefix('the program ')}")):
            record.record(request, Silent())


@pytest.mark.parametrize("runner", ["/home/a b/memprof/runners run", "/home/a b/memprof/runners/__main__.py run"])
def test_model_recording_named_by_file(runner: str) -> None:
    recorded = usual(command=f"/home/a b/python {runner}", path="one/massif.out.7")
    assert phrases.program(recorded) == "one/massif.out.7"


def test_uninstalled_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for tool, words in (("massif", "valgrind is not installed"), ("heaptrack", "heaptrack is not installed")):
        with pytest.raises(InputError, match=words):
            record.choose(record.HeapRequest(tmp_path, tool=tool), None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"memray records programs of Python only; heaptrack is not .*; valgrind is not"):
        record.choose(record.HeapRequest(tmp_path), None)


def test_fastest_usable_tool_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record, "_missing", lambda tool, python: "no" if tool == "memray" and python is None else None)
    request = record.HeapRequest(tmp_path)
    assert record.choose(request, "/usr/bin/python3")[0] == "memray"
    assert record.choose(request, None)[0] == "heaptrack"
    tool, sentence = record.choose(record.HeapRequest(tmp_path, pages_as_heap=True), "/usr/bin/python3")
    assert tool == "massif" and "--pages-as-heap" in sentence
    with pytest.raises(UsageError, match=r"--threshold needs --tool massif"):
        record.choose(record.HeapRequest(tmp_path, tool="heaptrack", threshold=1.0), None)


def test_missing_memray_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program of Python has its lines by memray alone."""
    monkeypatch.setattr(record.subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 1))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    missing = "memray is not installed in /venv/bin/python3: pip install memray"

    with pytest.raises(InputError) as caught:
        record.choose(record.HeapRequest(tmp_path, tool="memray"), "/venv/bin/python3")
    tool, sentence = record.choose(record.HeapRequest(tmp_path), "/venv/bin/python3")

    assert str(caught.value) == missing
    assert tool == "heaptrack" and sentence.endswith(f"slower than alone. It names no lines of Python, because {missing}")
    assert "Python" not in record.choose(record.HeapRequest(tmp_path), None)[1]


def test_memray_refused_without_python(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tool memray records programs of Python only, and this is none"):
        record.choose(record.HeapRequest(tmp_path, tool="memray"), None)


@pytest.mark.parametrize(
    ("first", "is_python", "tool"),
    [
        (f"#!{sys.executable} -I", True, "memray"),
        ("#!/usr/bin/env python3", True, "memray"),
        ("#!/usr/bin/env -S A=1 python3", True, "memray"),
        ("#!/bin/sh", False, "massif"),
        ("\x7fELF", False, "heaptrack"),
    ],
)
def test_tool_by_kind_of_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: str, is_python: bool, tool: str) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    monkeypatch.setattr(record, "_missing", lambda tool, python: "no" if tool == "memray" and python is None else None)
    program = tmp_path / "engine"
    program.write_text(first + "\n")
    program.chmod(0o755)
    order = of_one(suite((str(program), "--word")))

    python = record.interpreter(order)

    assert (python is not None) == is_python
    assert record.choose(record.HeapRequest(tmp_path), python, python is None and record._is_starter(str(program)))[0] == tool
    assert record._script(order.argv or ()) == (str(program), "--word")


def test_native_runtime_is_no_python() -> None:
    order = SimpleNamespace(argv=None, runtime=SimpleNamespace(native="runner.c"), python=sys.executable)
    assert record.interpreter(order) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "last"), [("load", "MODEL_LOAD"), ("load,prepare", "PREPARE"), ("load, prepare,execute", None)])
def test_phases_option(text: str, last: str | None) -> None:
    assert record.parse_phases(text) == last


def test_phases_on_snapshot_clock(tmp_path: Path) -> None:
    text = "desc: d\ncmd: c\ntime_unit: ms\n" + "".join(f"snapshot={n}\ntime={n * 10}\nmem_heap_B={n}\nheap_tree=empty\n" for n in range(6))
    path = tmp_path / "massif.out.1"
    path.write_text(text)
    begin, ms = 5_000_000_000, 1_000_000
    kept = {"memprof_heap": 1, "tool": "massif", "files": [path.name, "massif.out.2"], "begin_ns": begin, "wall_offset_ns": 0,
            "partial": "the program ended by SIGILL in PREPARE", "phases": [
                {"name": "MODEL_LOAD", "begin_ns": begin + 15 * ms, "end_ns": begin + 32 * ms},
                {"name": "PREPARE", "begin_ns": begin + 40 * ms, "end_ns": None}]}  # fmt: skip
    (tmp_path / "phases.json").write_text(json.dumps(kept))
    profile = load(path)
    assert [snapshot.phase for snapshot in profile.snapshots] == [None, None, "MODEL_LOAD", "MODEL_LOAD", "PREPARE", "PREPARE"]
    assert profile.partial == "the program ended by SIGILL in PREPARE"
    assert [(span.begin, span.end) for span in profile.phases] == [(15.0, 32.0), (40.0, None)]
    largest = profile.largest_tree("PREPARE")
    assert largest is None
    (tmp_path / "massif.out.2").write_text(text)
    child = load(tmp_path / "massif.out.2")  # its end is its own, and its clock begins with its program
    assert child.partial is None and child.phases == () and not any(snapshot.phase for snapshot in child.snapshots)
    (tmp_path / "other").write_text(text)
    assert load(tmp_path / "other").phases == ()
    huge = json.dumps({**kept, "begin_ns": 10**400})
    for text in ('{"memprof_heap": 1}', '{"two\\nlines": 1}', huge):
        (tmp_path / "phases.json").write_text(text)
        with pytest.raises(InputError, match="is not what `memprof heap record` writes") as caught:
            with_phases(profile, path)
        assert "\n" not in str(caught.value)


_HEAPTRACK = "v 10400 3\ns 3 app\ns 4 main\ni 10 1 2\nt 1 0\na a00000 1\n"


def test_peak_near_border_names_phases(tmp_path: Path) -> None:
    """heaptrack's clock starts up to 0.3 s after STARTUP: the peak at 1.9 s may lie behind the border at 2.0 s, not that at 2.6 s."""
    begin, ms = 5_000_000_000, 1_000_000
    ends = {"STARTUP": 1000, "MODEL_LOAD": 2000, "EMPTY": 2000.1, "PREPARE": 2600, "EXECUTE": 9000}
    begins = dict(zip(ends, (0, *ends.values()), strict=False))

    def read(**rss: int) -> HeapProfile:
        spans = [
            {
                "name": name,
                "begin_ns": begin + int((70 + begins[name]) * ms),
                "end_ns": begin + int((70 + end) * ms),
                "rss_peak_bytes": rss.get(name),
            }
            for name, end in ends.items()
        ]
        kept = {"memprof_heap": 1, "tool": "heaptrack", "files": ["h"], "begin_ns": begin, "wall_offset_ns": 0, "partial": None}
        (tmp_path / "phases.json").write_text(json.dumps({**kept, "phases": spans}))
        (tmp_path / "h").write_text(_HEAPTRACK + f"c {1900:x}\n+ 0\nc {1905:x}\n- 0\nc {8000:x}\n")
        return load(tmp_path / "h")

    unknown = read()
    assert "in MODEL_LOAD or PREPARE." in phrases.headline(unknown)
    assert any("may lie in MODEL_LOAD or PREPARE." in remark for remark in phrases.remarks(unknown))
    facts = show.facts(unknown)
    assert facts["peak"]["phase"] is None and facts["peak"]["phases"] == ("MODEL_LOAD", "PREPARE")
    for phase in ("load", "prepare"):
        shown = phrases.chosen(unknown, None, phase)
        assert shown is not None and shown.heap_bytes == 0xA00000
    table = series.series(unknown, "function", 5)
    assert "in MODEL_LOAD or PREPARE" in plot._finding(unknown, table)

    decided = read(MODEL_LOAD=0x9F0000, PREPARE=0xA10000)
    assert phrases.headline(decided).endswith("in PREPARE.")
    remark = "It lies in PREPARE: in MODEL_LOAD the process never had as much memory as this snapshot holds."
    assert any(text.endswith(remark) for text in phrases.remarks(decided))
    assert show.facts(decided)["peak"]["phase"] == "PREPARE"
    assert read(MODEL_LOAD=0x9F0000, PREPARE=0x9F0000).possible_phases(decided.peak) == (
        "MODEL_LOAD",
        "PREPARE",
    )  # blocks that were not touched


@pytest.mark.parametrize(
    ("at_ms", "in_phases", "said"),
    [
        (11_500, ["PREPARE", "EXECUTE"], "may lie in PREPARE or EXECUTE."),
        (
            11_646,
            ["EXECUTE"],
            "lies in EXECUTE, which begins at 11.7 s by the estimate; PREPARE had ended 0.001 s before snapshot 2 at the latest.",
        ),
        (11_745, ["EXECUTE"], "lies in EXECUTE; PREPARE had ended 0.1 s before snapshot 2 at the latest."),
        (12_500, ["EXECUTE"], ""),
        (13_000, ["EXECUTE"], "lies in EXECUTE, which ends at 12.9 s by the estimate."),
    ],
)
def test_views_say_how_phase_of_peak_is_known(at_ms: float, in_phases: list[str], said: str) -> None:
    """massif's borders lie up to 0.5 s before their estimated times: a peak behind PREPARE's end is in EXECUTE, which the list begins later."""
    spans = (PhaseSpan("STARTUP", 0, 10_900), PhaseSpan("PREPARE", 11_200, 11_645), PhaseSpan("EXECUTE", 11_743, 12_900))
    behind = at_ms > 12_900  # two-sided: the clock of heaptrack, once it is aligned
    made = profile(
        (0, 1.0), (11_000, 2.0), (at_ms, 9.0), (13_500, 2.0), phases=spans, phase_error=500.0, **({"started_ns": 1} if behind else {})
    )

    texts = [text.get_text() for text in plot.render(made).figure.texts]
    views = [" ".join(show.render(made, width=400).split()), page.render([made]), " ".join(" ".join(texts).split())]
    facts = show.facts(made)

    assert facts["peak"]["phases"] == tuple(in_phases)
    assert facts["border_error"] == {"before": 500.0, "behind": 500.0 if behind else 0.0}
    assert phrases.headline(made).endswith(f", in {' or '.join(in_phases)}.")
    for view in (*views, " ".join(facts["remarks"])):
        assert f"by its time snapshot 2 {said}" in view if said else "by its time" not in view
    for view in views:
        assert ("within 0.5 s of its estimated time" if behind else "at its estimated time or up to 0.5 s earlier") in view


def test_aligned_clock_places_phases(tmp_path: Path) -> None:
    """The tool's time 0 is 120 ms after STARTUP's begin, known to 5 ms: nothing of the launch's 0.3 s is left, and the error has two sides."""
    begin, ms = 5_000_000_000, 1_000_000
    kept = {"memprof_heap": 1, "tool": "heaptrack", "files": ["h"], "begin_ns": begin, "wall_offset_ns": 70, "partial": None,
            "zero_ns": begin + 120 * ms, "zero_error_ns": 5 * ms, "phases": [
                {"name": "STARTUP", "begin_ns": begin, "end_ns": begin + 220 * ms},
                {"name": "MODEL_LOAD", "begin_ns": begin + 220 * ms, "end_ns": begin + 420 * ms}]}  # fmt: skip
    (tmp_path / "phases.json").write_text(json.dumps(kept))

    def phases_of_peak(at_ms: int) -> tuple[str, ...]:
        (tmp_path / "h").write_text(_HEAPTRACK + f"c {at_ms:x}\n+ 0\nc {at_ms + 1:x}\n- 0\nc {400:x}\n")
        profile = load(tmp_path / "h")
        assert profile.phase_error == 5
        assert [(span.begin, span.end) for span in profile.phases] == [(0, 100), (100, 300)]
        return profile.possible_phases(profile.peak)

    assert [phases_of_peak(at_ms) for at_ms in (90, 97, 103, 110)] == [
        ("STARTUP",),
        ("STARTUP", "MODEL_LOAD"),
        ("STARTUP", "MODEL_LOAD"),
        ("MODEL_LOAD",),
    ]


@pytest.mark.parametrize("error_ms", [0.0, 4.0, 20.0, 200.0])
def test_borders_drawn_as_exactly_as_known(error_ms: float) -> None:
    """A border is a line, or a strip where it may lie; where it is known less exactly than phases are long, phases are not drawn."""
    spans = (PhaseSpan("STARTUP", 0.0, 40.0), PhaseSpan("EXECUTE", 40.0, 100.0))
    made = profile((0, 1.0), (50, 9.0), (100, 2.0), phases=spans, phase_error=error_ms)
    known = error_ms < 60

    figure = plot.render(made)

    axes = figure.axes[0]
    texts = [text.get_text() for text in figure.texts]
    strips = [(shape.get_x(), shape.get_x() + shape.get_width()) for shape in axes.patches if shape.get_alpha()]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert strips == ([(40 - error_ms, 40)] if known and error_ms else [])
    assert len(dashed) == (2 if not error_ms else 0)
    assert ("EXECUTE" in texts) == known
    assert any("where they begin is known to 0.2 s only, and the longest took 0.06 s" in text for text in texts) != known
    assert ("Phases: STARTUP from 0 s" in page.render([made])) == known
    assert ("Shaded: where each of them may begin" in page.render([made])) == bool(known and error_ms)
    assert ("EXECUTE" in show.render(made, width=100).split("Tree of")[0].replace("in EXECUTE", "")) == known


def test_many_phases_named_in_seconds() -> None:
    """A mebibyte of phases took 8 s for 3,000 snapshots: each phase was held against each."""
    spans = [PhaseSpan(f"p{number}", number / 4, number / 4 + 20_000) for number in range(50_000)]

    begin_ns = time.process_time_ns()
    names = phases._names(range(20_000), spans)

    assert time.process_time_ns() - begin_ns < 20 * 10**9
    assert names[10_000] == "p40000" and names[0] == "p0" and len(names) == 20_000


def test_overlapping_phases_last_wins() -> None:
    for seed in tried(range(200)):
        chance = random.Random(seed)
        ends = [None, *range(12)]
        spans = [PhaseSpan(str(number), chance.randrange(10), chance.choice(ends)) for number in range(chance.randrange(6))]
        wanted = {
            at: span.name
            for at in range(12)
            for span in spans  # the last one stays
            if span.begin <= at and (span.end is None or at <= span.end)
        }
        assert phases._names(range(12), spans) == wanted


def test_phases_file_bounded_and_regular(tmp_path: Path) -> None:
    path = tmp_path / "massif.out.1"
    path.write_text("desc: d\ncmd: c\ntime_unit: ms\nsnapshot=0\ntime=1\nmem_heap_B=1\nheap_tree=empty\n")
    os.mkfifo(tmp_path / "phases.json")
    assert load(path).phases == ()  # nobody writes into it
    (tmp_path / "phases.json").unlink()
    with open(tmp_path / "phases.json", "wb") as file:
        file.truncate(64 << 30)  # it takes no room on the disk

    with pytest.raises(InputError, match=r"it is larger than 16\.0 MiB"):
        load(path)


@pytest.mark.parametrize(("given", "wanted"), [(None, "malloc"), ("debug", "debug")], ids=["default", "of the user"])
def test_memray_records_objects_of_python_each(given: str | None, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    if given is not None:
        monkeypatch.setenv("PYTHONMALLOC", given)
    order = of_one(suite((sys.executable, "-c", "pass")))

    under = record._under(order, "memray", record.HeapRequest(tmp_path), ("memray",), lambda text: None)

    assert {**os.environ, **under.env}["PYTHONMALLOC"] == wanted
