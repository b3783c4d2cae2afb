"""The hold: a child that stands still at the end of each phase, is looked at, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import need_tool
from msgspec.structs import replace
from support import native_programs, recorder_runs, sample_runs
from support.compiler import once_compiled

from memprof.base.runners import runners_path
from memprof.campaign import campaign, recorder_client
from memprof.explain import engine as explain_engine
from memprof.records import store
from memprof.records.types import Run
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite

MIB = 1 << 20
PHASES = ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE"]


def order_of(model: Path, hold: bool = True, hold_at: dict[str, int] | None = None, runtime: str = "synthetic", **words: object):
    (order,) = plan(
        Suite(models=(str(model),), runtimes=(runtime,), repeats=1, **{"warmup": 1, "runs": 2, "release": False, **words})
    ).orders
    return replace(order, job=replace(order.job, hold=hold), hold_at=hold_at or {})


def held(order, look=lambda job, phase, pid: None):
    (run,) = campaign.measure([order], recorder_runs.Silent(), lambda line: None, look)
    return run


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stands_still(pid: int) -> bool:
    try:
        return state(pid) == "T"
    except OSError:  # it has ended
        return False


# memprof, whose look at a child lasts until one of the two is ended.
LOOKS_ON = """
import pathlib, time
from memprof.doors import cli
from memprof.explain import snapshot

def look(*words):
    pathlib.Path("looking").touch()
    time.sleep(600)

snapshot.take = look
cli.main()
"""


@contextmanager
def looking(folder: Path, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`memprof WORDS`, as soon as it looks at a child that stands still."""
    command = [sys.executable, "-c", LOOKS_ON, *map(str, words)]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            recorder_runs.wait_for((folder / "looking").exists)
            assert any(stands_still(child.pid) for child in recorder_runs.children())
            yield process
        finally:
            process.kill()


def test_hold_at_end_of_each_phase(scenario, nothing_left) -> None:
    seen = []
    model = scenario(load=[{"allocate": "a", "bytes": 4 * MIB}])
    run = held(order_of(model), lambda job, phase, pid: seen.append((phase, state(pid))))
    assert seen == [(phase, "T") for phase in PHASES]
    assert run.outcome.ok, run.outcome.sentence
    assert run.job.hold
    assert not run.warnings
    assert [mark.phase for mark in run.marks] == PHASES


def test_plain_job_never_held(scenario) -> None:
    seen = []
    run = held(order_of(scenario(), hold=False), lambda job, phase, pid: seen.append(phase))
    assert run.outcome.ok
    assert seen == []


def test_hold_at_transient_inside_phase(scenario, tmp_path: Path, nothing_left) -> None:
    sizes, seen = {}, tmp_path / "seen"

    def look(job, phase: str, pid: int) -> None:
        sizes[phase] = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
        if phase == "MODEL_LOAD/peak":
            seen.touch()

    size = "memory = mmap.mmap(-1, 60 << 20)\nfor place in range(0, len(memory), 4096):\n    memory[place] = 1\n"
    load = f"{size}while not os.path.exists({str(seen)!r}):\n    time.sleep(0.01)\nmemory.close()"
    runtime = recorder_runs.runtime_file(tmp_path, top="import mmap", load=load)
    run = held(order_of(scenario(), hold_at={"MODEL_LOAD": 60 * MIB}, runtime=str(runtime)), look)
    assert run.outcome.ok, run.outcome.sentence
    assert list(sizes) == ["STARTUP", "MODEL_LOAD/peak", *PHASES[1:]]
    assert sizes["MODEL_LOAD/peak"] - sizes["MODEL_LOAD"] > 30 * MIB


def test_hold_outside_time_limit(scenario) -> None:
    def attempt(limit_ns: int) -> Run:
        return held(order_of(scenario(), timeout_ns=limit_ns), lambda job, phase, pid: time.sleep(limit_ns / 3e9))

    run = recorder_runs.with_patience(attempt, lambda run: run.outcome.ok)
    assert run.outcome.ok, run.outcome.sentence  # though it stood still for longer than its limit


def test_hold_expires_at_its_limit(scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left) -> None:
    went_on = tmp_path / "went on"
    runtime = recorder_runs.runtime_file(tmp_path, prepare=f"open({str(went_on)!r}, 'w').close()")

    def look(job, phase: str, pid: int) -> None:
        if phase == "MODEL_LOAD":
            recorder_runs.wait_for(went_on.exists)

    for limit_ms in (200, 2_000, 20_000):  # if it is over before STARTUP has been looked at, the answer to that lets MODEL_LOAD go
        went_on.unlink(missing_ok=True)
        monkeypatch.setattr(recorder_client, "HOLD_LIMIT_NS", limit_ms * 10**6)
        run = held(order_of(scenario(), runtime=str(runtime)), look)
        if over := any("MODEL_LOAD: it was held" in warning for warning in run.warnings):
            break
    assert run.outcome.ok, run.outcome.sentence
    assert over


def test_held_child_killed(scenario, nothing_left) -> None:
    run = held(order_of(scenario()), lambda job, phase, pid: os.kill(pid, signal.SIGKILL) if phase == "PREPARE" else None)
    assert run.outcome.status == "signal"
    assert run.outcome.signal == "SIGKILL"


def test_look_exception_ends_child(scenario, nothing_left) -> None:
    def look(job, phase: str, pid: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held(order_of(scenario()), look)


def test_killed_memprof_leaves_no_held_child(scenario, tmp_path: Path, nothing_left) -> None:
    with looking(tmp_path, "explain", scenario(), "-r", "synthetic") as process:
        process.kill()
        process.wait()
        recorder_runs.wait_for(recorder_runs.all_gone)


def test_interrupt_during_hold_ends_everything(scenario, tmp_path: Path, nothing_left) -> None:
    with looking(tmp_path, "explain", scenario(), "-r", "synthetic", "-o", "why.json", "--keep-runs", "runs.jsonl") as process:
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "memprof: interrupted"
    assert out == ""
    assert not (tmp_path / "why.json").exists()
    assert len(recorder_runs.runs_in(tmp_path / "runs.jsonl")) == 1  # the plain run was measured


def test_hold_of_wrapped_process(tmp_path: Path, scenario, nothing_left) -> None:
    wrapper = recorder_runs.script(tmp_path / "python", f'#!/bin/sh\n{recorder_runs.PYTHON} "$@"\nexit $?\n')
    seen = []
    run = held(order_of(scenario(), python=str(wrapper)), lambda job, phase, pid: seen.append((phase, state(pid))))
    assert run.outcome.ok, run.outcome.sentence
    assert seen == [(phase, "T") for phase in PHASES]


def test_held_runs_in_own_rows() -> None:
    runs = [sample_runs.run("a", 1), sample_runs.run("a", 2, hold=True)]
    apart, said = store.told_apart(runs)
    assert [run.job.variant for run in apart] == ["a (plain)", "a (held)"]
    assert said
    (alone,), _ = store.told_apart(runs[1:])
    assert alone.job.variant == "a (held)"
    (plain,), said = store.told_apart(runs[:1])
    assert (plain.job.variant, said) == ("a", [])


# -- programs


ALLOCATES = """#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <unistd.h>
static char *volatile blocks[9]; /* or the compiler leaves them out */
static void more(int at, size_t mib) { blocks[at] = malloc(mib << 20); memset(blocks[at], at + 1, mib << 20); }
"""
# Only its first run is as large as the place at which the runs after it are to be stopped.
LARGE_ONCE = """#include <fcntl.h>
int main(void) { if (open("was_large", O_CREAT | O_EXCL, 0600) >= 0) { more(0, 30); usleep(300000); } return 0; }"""
PLAIN = "int main(void) { more(0, 30); usleep(300000); return blocks[0][9] == 0; }"
LINES = """int main(void) { more(0, 30); puts("loaded"); fflush(stdout); sleep(1); more(1, 10); puts("ran"); fflush(stdout); sleep(1); return 0; }"""
PHASE_LINES = ("--phase-regex", "load=^loaded", "--phase-regex", "execute=^ran")
OUTRUNS = """int main(void) {
    more(0, 30); usleep(100000); free(blocks[0]); puts("loaded"); fflush(stdout); puts("ran"); fflush(stdout); return 0; }"""
MARKED = """#include "memprof.h"
int main(void) {
    memprof_begin("MODEL_LOAD"); more(0, 30); memprof_end();
    memprof_begin("EXECUTE"); more(1, 10); memprof_end();
    return 0; }"""
FUNCTIONS = """__attribute__((noinline)) void load(void) { more(0, 30); }
__attribute__((noinline)) void infer(int size) { more(1, size); }
int main(void) { load(); infer(10); free(blocks[1]); infer(5); return 0; }"""
READS = """#include "memprof.h"
#include <sys/stat.h>
int main(int count, char **words) {
    struct stat facts; FILE *file = fopen(words[count - 1], "rb");
    fstat(fileno(file), &facts);
    memprof_begin("MODEL_LOAD");
    blocks[0] = malloc((size_t)facts.st_size); blocks[1] = malloc((size_t)facts.st_size);
    if (fread(blocks[0], 1, (size_t)facts.st_size, file) == 0) return 1;
    memcpy(blocks[1], blocks[0], (size_t)facts.st_size);
    memprof_end();
    return 0; }"""


def engine(tmp_path: Path, body: str) -> str:
    path = tmp_path / "engine"
    path.write_bytes(once_compiled("gcc", "engine.c", ALLOCATES + body, f"-I{native_programs.HEADER.parent}").read_bytes())
    path.chmod(0o755)
    return str(path)


def explained(memprof, tmp_path: Path, *words: str):
    done = memprof("explain", "--json", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def in_use(answer: dict, phase: str) -> int:
    slices = next(look["slices"] for look in answer["phases"] if look["name"] == phase)
    return sum(part["bytes"] for part in slices if part["name"] == "other blocks in use")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (MARKED, ()),
        (LINES, PHASE_LINES),
        (FUNCTIONS, ("--phase", "load=load", "--phase", "execute=infer")),
        (FUNCTIONS, ("--phase", "load=load", "--phase", "execute=infer", "--recorder", "c")),
    ],
    ids=["marks", "lines", "functions", "functions with the C recorder"],
)
def test_program_explained_at_phases(memprof, tmp_path: Path, nothing_left, body: str, words: tuple[str, ...]) -> None:
    if body == FUNCTIONS:
        need_tool("gdb")

    answer = explained(memprof, tmp_path, *words, "--", engine(tmp_path, body))

    sizes = [in_use(answer, phase) / MIB for phase in ("MODEL_LOAD", "EXECUTE")]
    # A line tells of an end a moment later: a busy machine may see the program asleep behind it, and no later.
    assert sizes == pytest.approx([30, 40], abs=0.5)
    assert answer["runtime"] == "engine"
    assert "copies of weights need a model, of any format: name it before --" in answer["remarks"]
    assert not answer["findings"]


def test_program_that_outruns_its_lines_explained_near_peak(memprof, tmp_path: Path, nothing_left) -> None:
    """Lines tell of phases that are over: the program has freed its memory by then."""
    answer = explained(memprof, tmp_path, *PHASE_LINES, "--", engine(tmp_path, OUTRUNS))

    assert "MODEL_LOAD/peak" in [look["name"] for look in answer["phases"]]
    assert 25 * MIB < in_use(answer, "MODEL_LOAD/peak") < 41 * MIB


def test_program_without_phases_explained_near_peak(memprof, tmp_path: Path, nothing_left) -> None:
    answer = explained(memprof, tmp_path, "--", engine(tmp_path, PLAIN))

    assert [look["name"] for look in answer["phases"]] == ["RUN/peak"]
    assert 25 * MIB < in_use(answer, "RUN/peak") < 31 * MIB
    assert answer["phases"][0]["beyond_one_bytes"] is None


@pytest.mark.parametrize(
    "words", [("model.onnx", "--", "{engine}", "{model}"), ("--", "{engine}", "model.onnx")], ids=["given", "among words"]
)
def test_copies_counted_in_program(memprof, tmp_path: Path, nothing_left, words: tuple[str, ...]) -> None:
    assert memprof("zoo", "shared_if", "--format", "onnx", "--size", "8MiB", "-o", "model.onnx", cwd=tmp_path).returncode == 0
    path = engine(tmp_path, READS)

    answer = explained(memprof, tmp_path, *(word.replace("{engine}", path) for word in words))

    look = next(look for look in answer["phases"] if look["name"] == "MODEL_LOAD")
    assert answer["weight_bytes"] == pytest.approx(8 * MIB, rel=0.1)
    assert look["beyond_one_bytes"] == pytest.approx(answer["counted_bytes"], rel=0.02)
    assert answer["model"]["name"] == "model.onnx"


def test_copies_of_file_in_unknown_format(memprof, tmp_path: Path, nothing_left) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.random.default_rng(1).integers(0, 256, 8 * MIB, numpy.uint8).tofile(tmp_path / "model.own")

    answer = explained(memprof, tmp_path, "model.own", "--", engine(tmp_path, READS), "{model}")

    look = next(look for look in answer["phases"] if look["name"] == "MODEL_LOAD")
    assert look["beyond_one_bytes"] == pytest.approx(8 * MIB, rel=0.02)
    assert "model.own is in no format that memprof reads: copies of its bytes are looked for, and called weights" in answer["remarks"]
    assert answer["of_pieces"] and not answer["tensors"] and answer["counted_tensors"] > 1


SPIKES = """#include "memprof.h"
int main(void) {
    memprof_begin("MODEL_LOAD"); more(0, 30); more(1, 30); free(blocks[1]); memprof_end();
    return 0; }"""
SPIKE_FUNCTION = """__attribute__((noinline)) void load(void) { more(0, 30); more(1, 30); free(blocks[1]); }
int main(void) { load(); return 0; }"""


def test_transient_too_short_for_first_look(memprof, tmp_path: Path, nothing_left, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was over before it could be stopped near the peak is looked at on the way there; if that fails too, the answer says so."""
    monkeypatch.setattr(explain_engine, "_TRIP_SHARES", (1.5, 0.3))
    answer = explained(memprof, tmp_path, "--", engine(tmp_path, SPIKES))
    assert "MODEL_LOAD/peak" in [look["name"] for look in answer["phases"]]
    (finding,) = answer["findings"]
    assert finding["bytes"] == pytest.approx(30 * MIB, abs=MIB) and "the look came on the way there, at" in finding["evidence"][0]

    monkeypatch.setattr(explain_engine, "_TRIP_SHARES", (1.5, 1.4))
    answer = explained(memprof, tmp_path, "--", engine(tmp_path, SPIKES))
    assert "MODEL_LOAD/peak" not in [look["name"] for look in answer["phases"]]
    sentence = "the transient of MODEL_LOAD was over before the child could be stopped inside it, so its content is not known; "
    assert any(remark.startswith(sentence) and " shows who allocates it" in remark for remark in answer["remarks"])
    assert "memprof heap record -o heap-profile " in answer["findings"][0]["proposals"][-1]["text"]


LOADER = """__attribute__((noinline)) void fetch(void) { more(0, 30); }
__attribute__((noinline)) void pack(void) { more(1, 30); }
__attribute__((noinline)) void load(void) { fetch(); pack(); free(blocks[0]); }
int main(void) { load(); return 0; }"""


def test_transient_of_function_seen_in_function_inside(memprof, tmp_path: Path, nothing_left) -> None:
    """The functions inside a loader as phases: the finding about the loader stays, and no note advises to name them."""
    need_tool("gdb")
    words = [word for name in ("load=load", "fetch=fetch", "pack=pack") for word in ("--phase", name)]
    answer = explained(memprof, tmp_path, *words, "--", engine(tmp_path, LOADER))
    (finding,) = answer["findings"]
    assert finding["title"] == "a transient of MODEL_LOAD sets the PEAK"
    assert finding["bytes"] == pytest.approx(30 * MIB, abs=MIB)
    assert "pack runs inside it, and comes to that peak" in finding["evidence"]
    assert not any("does not stop it there" in remark for remark in answer["remarks"])


def test_transient_of_function_not_looked_at(memprof, tmp_path: Path, nothing_left) -> None:
    need_tool("gdb")
    answer = explained(memprof, tmp_path, "--phase", "load=load", "--", engine(tmp_path, SPIKE_FUNCTION))
    remark = next(remark for remark in answer["remarks"] if remark.startswith("MODEL_LOAD peaks "))
    assert remark.endswith(
        "above its end, and memprof does not stop it there, because its phases come from functions: copies of weights that it holds only then are "
        "in no figure. With marks (memprof marks), or with functions inside it as phases, they are; a heap profile shows who allocates it, without "
        f"phases: memprof heap record -o heap-profile -- {answer['model']['path']}"
    )
    marks, profile = (proposal["text"] for proposal in answer["findings"][0]["proposals"][-2:])
    assert marks.startswith("mark the phases in the source (memprof marks)")
    assert profile.endswith(
        f"a heap profile shows who allocates it, without phases: memprof heap record -o heap-profile -- {answer['model']['path']}"
    )


@pytest.mark.parametrize(
    ("body", "words", "code", "sentence"),
    [
        (PLAIN, ("--verify",), 2, "--verify measures the knobs of a runtime"),
        (LARGE_ONCE, (), 4, "engine: it was over before it could be stopped and looked at. Mark its phases"),
    ],
    ids=["--verify", "large once"],
)
def test_program_that_cannot_be_explained(
    memprof, tmp_path: Path, nothing_left, body: str, words: tuple[str, ...], code: int, sentence: str
) -> None:
    done = memprof("explain", *words, "--", engine(tmp_path, body), cwd=tmp_path)
    assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr


def test_script_with_marks_explained(memprof, tmp_path: Path, nothing_left) -> None:
    (tmp_path / "memprof_marks.py").write_bytes((runners_path() / "memprof_marks.py").read_bytes())
    (tmp_path / "train.py").write_text('from memprof_marks import phase\nwith phase("EPOCH"):\n    held = bytearray(b"1" * (30 << 20))\n')

    answer = explained(memprof, tmp_path, "--", sys.executable, "train.py")

    assert [look["name"] for look in answer["phases"] if "/" not in look["name"]] == ["STARTUP", "EPOCH"]
    assert in_use(answer, "EPOCH") == pytest.approx(30 * MIB, abs=3 * MIB)
