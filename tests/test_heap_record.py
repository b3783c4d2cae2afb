"""Recording under real tools: the files, the phases, what is partial, and what is said when it cannot be done."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import made
import pytest
from conftest import Scenario, need_tool
from examples import tried
from failing import with_patience
from heap_made import top_by, usual

from memprof.errors import InputError, MeasurementError, UsageError
from memprof.heap import load, phases, record, wording
from memprof.heap.phases import with_phases
from memprof.heap.profile import HeapProfile, PhaseSpan
from memprof.measuring import probing
from memprof.measuring.orders import plan
from memprof.measuring.progress import Silent
from memprof.measuring.suite import Suite, Variant
from memprof.runs.records import Outcome

Memprof = Callable[..., "subprocess.CompletedProcess[str]"]
MIB = 1 << 20

_PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static char *grow(size_t size) { char *p = malloc(size); memset(p, 1, size); return p; }
int main(int count, char **words) {
    char *kept = grow(10 << 20), *freed = grow(5 << 20);
    free(freed);
    if (count > 1 && words[1][0] == 'f' && fork() == 0) { grow(3 << 20); return 0; }
    if (count > 1 && words[1][0] == 'c') abort();
    if (count > 1 && words[1][0] == 'f') wait(NULL);
    if (count > 1 && words[1][0] == 'h') for (;;) sleep(1);
    return kept[0] == 9;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that holds 10 MiB, and 15 at its peak; with `fork` it has a child, with `crash` it aborts, with `hang` it stays."""
    need_tool("gcc")
    folder = tmp_path_factory.mktemp("a program")
    (folder / "grow.c").write_text(_PROGRAM)
    subprocess.run(["gcc", "-g", "-O0", "-o", folder / "grow", folder / "grow.c"], check=True)
    return folder / "grow"


@pytest.mark.parametrize("tool", ["massif", "heaptrack"])
def test_a_program_is_recorded_and_its_peak_is_known(memprof: Memprof, tmp_path: Path, program: Path, tool: str) -> None:
    need_tool("valgrind" if tool == "massif" else tool)
    done = memprof("heap", "record", "--tool", tool, "--timeout", "200s", "-o", tmp_path / "the profile", "--", program)
    assert done.returncode == 0, done.stderr
    assert "peak" not in done.stderr  # the resident set under a tool is none of the program's
    profile = load(Path(done.stdout.strip()))
    assert profile.tool == tool and profile.partial is None
    assert 15 * MIB <= profile.peak.heap_bytes < 15.2 * MIB
    peak = profile.peak_tree
    assert peak is not None and peak[0].tree is not None and peak[1]
    key, names = profile.keys("function")
    assert names[top_by(peak[0].tree, key)[0][0]] == "grow"


def test_forked_children_have_files_of_their_own(memprof: Memprof, tmp_path: Path, program: Path) -> None:
    need_tool("valgrind")
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", program, "fork")
    parent, child = [load(Path(line)) for line in done.stdout.split("\n") if line]
    assert round(parent.peak.heap_bytes / MIB) == 15 and round(parent.snapshots[-1].heap_bytes / MIB) == 10
    assert round(child.snapshots[-1].heap_bytes / MIB) == 13  # it goes on from what it was forked with


def test_a_crash_leaves_a_profile_that_is_marked_partial(memprof: Memprof, tmp_path: Path, program: Path) -> None:
    need_tool("valgrind")
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", program, "crash")
    assert done.returncode == 4 and "the profile is partial: the program ended by SIGABRT" in done.stderr
    assert "SIGABRT" in str(load(Path(done.stdout.strip())).partial)


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
def test_an_illegal_instruction_under_massif_names_the_likely_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: record.Tool, outcome: Outcome, said: str, leaves: bool
) -> None:
    run = replace(made.run(outcome=outcome), output_tail="==1== valgrind: Unrecognised instruction at address 0x109171: an error")
    monkeypatch.setattr(record, "_missing", lambda tool, python: None)
    monkeypatch.setattr(record.campaign, "measure_program", lambda *_: run)
    monkeypatch.setattr(record, "_kept", lambda tool, scratch, folder: [folder / "massif.out.1"] if leaves else [])
    request = record.Request(tmp_path / "out", command=("true",), tool=tool)
    if leaves:
        assert record.record(request, Silent()).partial == said
        assert json.loads((tmp_path / "out/phases.json").read_text())["partial"] == said
    elif _VALGRIND_LACKS in said:
        with pytest.raises(MeasurementError, match=re.escape(f"massif left no file: {said.removeprefix('the program ')}")):
            record.record(request, Silent())


def test_a_program_with_an_instruction_that_valgrind_lacks(memprof: Memprof, tmp_path: Path) -> None:
    need_tool("valgrind"), need_tool("gcc")
    if "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no AVX-512")
    source = "#include <stdlib.h>\nint main(void) { char *volatile p = malloc(9999);"
    (tmp_path / "wide.c").write_text(source + ' __asm__ volatile(".byte 0x62,0xf1,0x7c,0x48,0x58,0xc0" ::: "xmm0"); return p == 0; }\n')
    subprocess.run(["gcc", "-o", tmp_path / "wide", tmp_path / "wide.c"], check=True)
    assert subprocess.run([tmp_path / "wide"], check=False).returncode == 0
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", tmp_path / "wide")
    assert done.returncode == 4 and _VALGRIND_LACKS in done.stderr, done.stderr


def test_a_killed_massif_leaves_nothing_in_the_temporary_folder(memprof: Memprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipes of vgdb stayed there."""
    need_tool("valgrind")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", "sh", "-c", "sh -c 'kill -9 $PPID'; true")
    assert (done.returncode, "SIGKILL" in done.stderr) == (4, True), done.stderr
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("tool", ["massif", "heaptrack"])
def test_a_program_that_does_not_end_is_asked_to_and_its_file_kept(memprof: Memprof, tmp_path: Path, program: Path, tool: str) -> None:
    need_tool("valgrind" if tool == "massif" else tool)
    for limit in ("3s", "12s", "60s"):  # a busy machine may need longer until the tool has begun, and until the program has grown
        done = memprof("heap", "record", "--tool", tool, "--timeout", limit, "-o", tmp_path / limit, "--", program, "hang")
        assert done.returncode == 4 and "Traceback" not in done.stderr, done.stderr
        profile = load(Path(done.stdout.strip())) if done.stdout else None
        if profile is not None and profile.peak.heap_bytes >= 15 * MIB:
            break
    assert profile is not None
    assert 15 * MIB <= profile.peak.heap_bytes < 15.2 * MIB
    assert "did not end in time" in str(profile.partial), profile.partial


def test_a_program_that_was_ended_before_heaptrack_had_begun_leaves_no_file(memprof: Memprof, tmp_path: Path, monkeypatch) -> None:
    """heaptrack's own script leaves one, of two lines, which no tool reads."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "heaptrack").write_text(
        '#!/bin/sh\nprintf "\\n# strings: 0\\n# ips: 0\\n" | gzip -c > "$2.gz"\nexec sleep 100\n',
    )
    (folder / "heaptrack").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    done = memprof("heap", "record", "--tool", "heaptrack", "--timeout", "1s", "-o", tmp_path / "out", "--", "true")
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert "heaptrack left no file: did not end in time" in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_a_model_ends_after_prepare_with_the_file_whole_and_its_snapshots_in_phases(
    memprof: Memprof, scenario: Scenario, tmp_path: Path
) -> None:
    need_tool("valgrind")

    def attempt(limit_ns: int) -> HeapProfile:
        model = scenario(load=[{"sleep_s": 0.3}], prepare=[{"sleep_s": 2 * limit_ns / 1e9}], execute=[{"crash": "SIGILL"}])
        folder = tmp_path / f"out {limit_ns}"
        done = memprof("heap", "record", model, "-r", "synthetic", "--tool", "massif", "--phases", "load,prepare", "-o", folder)
        assert done.returncode == 0, done.stderr
        assert not (folder / "runs.jsonl").exists()
        return load(Path(done.stdout.strip()))

    def ends_in_prepare(profile: HeapProfile) -> bool:
        return profile.snapshots[-1].time > profile.phases[-1].begin

    # A busy machine places the phases less well in the tool's time, by a second and more.
    profile = with_patience(attempt, ends_in_prepare)
    assert [span.name for span in profile.phases] == ["STARTUP", "MODEL_LOAD", "PREPARE"]
    assert profile.phase_error is not None
    assert profile.partial is None  # EXECUTE, which would have crashed, was not reached
    ends = [snapshot.time for snapshot in profile.snapshots]
    assert ends == sorted(ends) and ends_in_prepare(profile)


def test_memray_records_a_model(memprof: Memprof, scenario: Scenario, tmp_path: Path) -> None:
    pytest.importorskip("memray")
    model = scenario(load=[{"allocate": "a", "bytes": 8 * MIB}], prepare=[{"allocate": "b", "bytes": 16 * MIB}], execute=[])
    done = memprof("heap", "record", model, "-r", "synthetic", "--tool", "memray", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    profile = load(Path(done.stdout.strip()))
    assert (profile.tool, profile.partial) == ("memray", None)
    assert [span.name for span in profile.phases][:3] == ["STARTUP", "MODEL_LOAD", "PREPARE"]
    assert profile.peak_tree is not None and profile.peak_tree[1]
    assert all(profile.largest_tree(span.name) is not None for span in profile.phases)  # none of which lasts as long as memray's 10 ms
    assert profile.command.startswith("python /") and wording.program(profile) == "out/memray.bin"
    assert 24 * MIB <= profile.peak.heap_bytes < 60 * MIB


def test_a_model_that_is_converted_first_is_converted_by_its_interpreter_and_run_by_memray(scenario: Scenario, tmp_path: Path) -> None:
    (order,) = plan(Suite(models=(str(scenario()),), variants=(Variant(runtime="synthetic", name="it"),), repeats=1)).orders

    under = record._under(order, "memray", record.Request(tmp_path), ("python", "-m", "memray"), lambda text: None)

    assert under.python == order.python
    (program,) = probing._program(under)
    assert program.endswith("runners/__main__.py")


@pytest.mark.parametrize("runner", ["/home/a b/memprof/runners run", "/home/a b/memprof/runners/__main__.py run"])
def test_a_models_recording_is_called_by_its_file_wherever_memprof_lies(runner: str) -> None:
    recorded = usual(command=f"/home/a b/python {runner}", path="one/massif.out.7")
    assert wording.program(recorded) == "one/massif.out.7"


# -- what goes wrong


def test_a_tool_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    for tool, words in (("massif", "valgrind is not installed"), ("heaptrack", "heaptrack is not installed")):
        with pytest.raises(InputError, match=words):
            record.choose(record.Request(tmp_path, command=("true",), tool=tool), None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"memray records programs of Python only; heaptrack is not .*; valgrind is not"):
        record.choose(record.Request(tmp_path, command=("true",)), None)


def test_the_fastest_tool_that_can_is_chosen_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record, "_missing", lambda tool, python: "no" if tool == "memray" and python is None else None)
    request = record.Request(tmp_path, command=("true",))
    assert record.choose(request, "/usr/bin/python3")[0] == "memray"
    assert record.choose(request, None)[0] == "heaptrack"
    tool, sentence = record.choose(record.Request(tmp_path, command=("true",), pages_as_heap=True), "/usr/bin/python3")
    assert tool == "massif" and "--pages-as-heap" in sentence
    with pytest.raises(UsageError, match=r"--threshold needs --tool massif"):
        record.choose(record.Request(tmp_path, command=("true",), tool="heaptrack", threshold=1.0), None)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["-o", "out"], 2, "name a model and a runtime, or a program behind --"),
        (["-o", "out", "--", "no-such-program-anywhere"], 5, "no-such-program-anywhere: no such program"),
        (["-o", "full", "--", "true"], 5, "full is not empty: name a new folder with -o"),
        (["-o", "out", "--phases", "load", "--", "true"], 2, "--phases is for a model in a runtime"),
        (["model.json", "-r", "synthetic", "--phases", "laod", "-o", "out"], 2, "there is no phase 'laod'; did you mean load?"),
        (["model.json", "-r", "synthetic", "-o", "out"], 5, "model.json"),
    ],
)
def test_what_cannot_be_recorded(memprof: Memprof, tmp_path: Path, words: list[str], code: int, sentence: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = memprof("heap", "record", *words)
    assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize(("text", "last"), [("load", "MODEL_LOAD"), ("load,prepare", "PREPARE"), ("load, prepare,execute", None)])
def test_phases(text: str, last: str | None) -> None:
    assert record.parse_phases(text) == last


def test_phases_are_put_onto_the_snapshots_clock(tmp_path: Path) -> None:
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
    assert load(tmp_path / "massif.out.2").partial is None  # a forked child's, whose end is its own
    (tmp_path / "other").write_text(text)
    assert load(tmp_path / "other").phases == ()
    huge = json.dumps({**kept, "begin_ns": 10**400})
    for text in ('{"memprof_heap": 1}', '{"two\\nlines": 1}', huge):
        (tmp_path / "phases.json").write_text(text)
        with pytest.raises(InputError, match="is not what `memprof heap record` writes") as caught:
            with_phases(profile, path)
        assert "\n" not in str(caught.value)


def test_a_file_full_of_phases_names_each_snapshot_once() -> None:
    """A mebibyte of phases took 8 s for 3,000 snapshots: each phase was held against each."""
    spans = [PhaseSpan(f"p{number}", number / 4, number / 4 + 20_000) for number in range(50_000)]

    begin_ns = time.process_time_ns()
    names = phases._names(range(20_000), spans)

    assert time.process_time_ns() - begin_ns < 20 * 10**9
    assert names[10_000] == "p40000" and names[0] == "p0" and len(names) == 20_000


def test_phases_over_one_another_are_named_as_one_by_one() -> None:
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


def test_a_file_of_phases_has_a_bound_and_is_no_pipe(tmp_path: Path) -> None:
    path = tmp_path / "massif.out.1"
    path.write_text("desc: d\ncmd: c\ntime_unit: ms\nsnapshot=0\ntime=1\nmem_heap_B=1\nheap_tree=empty\n")
    os.mkfifo(tmp_path / "phases.json")
    assert load(path).phases == ()  # nobody writes into it
    (tmp_path / "phases.json").unlink()
    with open(tmp_path / "phases.json", "wb") as file:
        file.truncate(64 << 30)  # it takes no room on the disk

    with pytest.raises(InputError, match=r"it is larger than 16\.0 MiB"):
        load(path)
