"""Recording under real tools: the files, the phases, what is partial, and what is said when it cannot be done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Scenario, need_tool
from support.compiler import compiled
from support.heap_program import program  # noqa: F401  (the fixtures)
from support.recorder_runs import with_patience
from support.sample_profiles import top_by

from memprof.campaign import recorder_client
from memprof.heap import heaptrack, load, phrases, record
from memprof.heap.profile import HeapProfile
from memprof.heap.shape import sums
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant

Memprof = Callable[..., "subprocess.CompletedProcess[str]"]
MIB = 1 << 20


@pytest.mark.parametrize("tool", ["massif", "heaptrack"])
def test_heap_record_program_peak(memprof: Memprof, tmp_path: Path, program: Path, tool: str) -> None:
    need_tool("valgrind" if tool == "massif" else tool)
    done = memprof("heap", "record", "--tool", tool, "--timeout", "200s", "-o", tmp_path / "the profile", "--", program)
    assert done.returncode == 0, done.stderr
    said, _, following = done.stderr.rstrip().rpartition("\n")
    assert following == f"memprof: next: memprof heap show '{tmp_path / 'the profile'}'"
    assert "peak" not in said  # the resident set under a tool is none of the program's
    profile = load(Path(done.stdout.strip()))
    assert profile.tool == tool and profile.partial is None
    assert 15 * MIB <= profile.peak.heap_bytes < 15.2 * MIB
    peak = profile.peak_tree
    assert peak is not None and peak[0].tree is not None and peak[1]
    key, names = profile.keys("function")
    assert names[top_by(peak[0].tree, key)[0][0]] == "grow"


STEPS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static long long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
int main(int count, char **words) {
    FILE *out = fopen(words[count - 1], "w");
    for (int i = 1; i <= 9; i++) {
        size_t size = (4 << 20) + i * 64;
        long long before = now();
        char *volatile p = (char *)malloc(size);
        fprintf(out, "%zx %lld %lld\n", size, before, now());
        memset(p, i, size);
        usleep(40000 + 9000 * (i % 4));
        if (i % 3 == 0) free(p);
    }
    return fclose(out);
}
"""


def test_heaptrack_clock_aligned(memprof: Memprof, tmp_path: Path) -> None:
    """The program writes when it allocates each block, which heaptrack's file has between two of its own times."""
    need_tool("heaptrack")
    program = compiled(tmp_path, STEPS, "-O1", name="steps")

    def attempt(limit_ns: int) -> Path:
        done = memprof("heap", "record", "--tool", "heaptrack", "-o", tmp_path / f"{limit_ns}", "--", program, tmp_path / "blocks")
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    def phases_of(path: Path) -> dict[str, Any]:
        return json.loads((path.parent / "phases.json").read_text())

    path = with_patience(attempt, lambda path: "zero_ns" in phases_of(path))
    facts = phases_of(path)
    assert facts["zero_error_ns"] < 200_000_000
    made = {size: (int(before), int(after)) for size, before, after in map(str.split, (tmp_path / "blocks").read_text().splitlines())}
    sizes: list[str] = []
    time_ns, since = 0, {}
    with heaptrack._lines(path) as lines:
        for line in lines:
            words = line.decode().split() or [""]
            if words[0] == "a":
                sizes.append(words[1])
            elif words[0] == "+" and sizes[int(words[1], 16)] in made:
                since[sizes[int(words[1], 16)]] = time_ns
            elif words[0] == "c":
                time_ns = int(words[1], 16) * 1_000_000
                for size in [size for size in made if size in since]:
                    # the zero lies between the latest and the earliest that this block allows
                    least, most = made[size][0] - time_ns - 1_000_000, made.pop(size)[1] - since[size]
                    assert least - facts["zero_error_ns"] <= facts["zero_ns"] <= most + facts["zero_error_ns"], size
    assert len(made) <= 1, "the last block may be allocated after the last time"


def test_massif_avx512_program(memprof: Memprof, tmp_path: Path) -> None:
    need_tool("valgrind"), need_tool("gcc")
    if "avx512f" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no AVX-512")
    source = "#include <stdlib.h>\nint main(void) { char *volatile p = malloc(9999);"
    (tmp_path / "wide.c").write_text(source + ' __asm__ volatile(".byte 0x62,0xf1,0x7c,0x48,0x58,0xc0" ::: "xmm0"); return p == 0; }\n')
    subprocess.run(["gcc", "-o", tmp_path / "wide", tmp_path / "wide.c"], check=True)
    assert subprocess.run([tmp_path / "wide"], check=False).returncode == 0
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", tmp_path / "wide")
    assert done.returncode == 4 and "lacks an instruction that this CPU has (AVX-512" in done.stderr, done.stderr


def test_massif_killed_leaves_no_files(memprof: Memprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipes of vgdb stayed there."""
    need_tool("valgrind")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", "sh", "-c", "sh -c 'kill -9 $PPID'; true")
    assert (done.returncode, "SIGKILL" in done.stderr) == (4, True), done.stderr
    assert not list((tmp_path / "tmp").iterdir())


def test_heaptrack_early_end_leaves_no_file(memprof: Memprof, tmp_path: Path, monkeypatch) -> None:
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


def test_massif_model_ends_after_prepare(memprof: Memprof, scenario: Scenario, tmp_path: Path) -> None:
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


def test_memray_records_model(memprof: Memprof, scenario: Scenario, tmp_path: Path) -> None:
    pytest.importorskip("memray")
    model = scenario(load=[{"allocate": "a", "bytes": 8 * MIB}], prepare=[{"allocate": "b", "bytes": 16 * MIB}], execute=[])
    done = memprof("heap", "record", model, "-r", "synthetic", "--tool", "memray", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    profile = load(Path(done.stdout.strip()))
    assert (profile.tool, profile.partial) == ("memray", None)
    assert [span.name for span in profile.phases][:3] == ["STARTUP", "MODEL_LOAD", "PREPARE"]
    assert profile.peak_tree is not None and profile.peak_tree[1]
    assert all(profile.largest_tree(span.name) is not None for span in profile.phases)  # none of which lasts as long as memray's 10 ms
    assert profile.command.startswith("python /") and phrases.program(profile) == "out/memray.bin"
    assert 24 * MIB <= profile.peak.heap_bytes < 60 * MIB


OBJECTS = """
class Token:
    __slots__ = ("text",)

def small(count):
    return [str(number) * 20 for number in range(10**9, 10**9 + count)]

def tokens(count):
    made = []
    for _ in range(count):
        made.append(Token())
    return made

kept = small(20_000), tokens(40_000)
"""


def test_python_objects_are_recorded_at_their_lines(memprof: Memprof, tmp_path: Path) -> None:
    """Python's own allocator has an arena of 1 MiB for them, at whichever line needed a new one."""
    pytest.importorskip("memray")
    script = tmp_path / "objects.py"
    script.write_text(OBJECTS)
    done = memprof("heap", "record", "--tool", "memray", "-o", tmp_path / "out", "--", sys.executable, script)
    assert done.returncode == 0, done.stderr
    profile = load(Path(done.stdout.strip().splitlines()[-1]))
    peak = profile.peak_tree
    assert peak is not None and peak[0].tree is not None
    rows = [(profile.frames[site.frame], own) for site, _, own, _ in sums(profile, peak[0].tree, by="line")]
    sites = [(frame.line, own) for frame, own in rows if (frame.file or "").endswith("objects.py")]
    lines = OBJECTS.splitlines()
    texts, made = (
        sum(size for at, size in sites if at == number)
        for number, line in enumerate(lines, 1)
        if "str(number)" in line or "Token())" in line
    )
    assert texts == pytest.approx(20_000 * (249 + 8), rel=0.05)  # a text with its header, and a reference in the list
    assert made == pytest.approx(40_000 * (40 + 8), rel=0.1)  # an object with gc's header, and a reference in the list
    assert "arenas" not in profile.counts


def test_capture_with_arenas_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("memray")
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    subprocess.run([sys.executable, "-m", "memray", "run", "-q", "-o", tmp_path / "m.bin", "-c", OBJECTS], check=True, timeout=120)

    assert load(tmp_path / "m.bin").counts.endswith("recorded with PYTHONMALLOC=malloc, it counts each object")


_SITES = 12
_STRIPPED = "#include <stdlib.h>\n" + "".join(
    f"__attribute__((noinline)) static void *f{n}(void) {{ char *volatile p = (char *)malloc({n + 1} << 20); p[0] = 1; return p; }}\n"
    for n in range(_SITES)
)
_STRIPPED += 'extern "C" void *grow(void) {' + "".join(f" f{n}();" for n in range(_SITES)) + " return 0; }\n"


@pytest.mark.long
def test_nameless_frames_agree_between_tools(memprof: Memprof, tmp_path: Path) -> None:
    """Only memray tells where a library was mapped; each site of it was one and the same `???`."""
    need_tool("valgrind"), need_tool("heaptrack")
    library = compiled(tmp_path, _STRIPPED, "-shared", "-fPIC", "-s", name="libsites.so")
    script = tmp_path / "call.py"
    script.write_text(f"import ctypes\nctypes.CDLL({str(library)!r}).grow()\n")
    found = {}
    for tool in record.TOOLS:
        done = memprof("heap", "record", "--tool", tool, "-o", tmp_path / tool, "--", sys.executable, script)
        assert done.returncode == 0, done.stderr
        profile = load(Path(done.stdout.split()[0]))
        peak = profile.peak_tree
        assert peak is not None and peak[0].tree is not None
        key, names = profile.keys("function")
        found[tool] = {names[group] for group, size, _ in top_by(peak[0].tree, key) if size >= MIB and names[group].startswith("libsites")}
        assert any("libsites.so has no symbols: " in remark for remark in phrases.remarks(profile))
    assert len(found["memray"]) == _SITES and all("libsites.so+0x" in name for name in found["memray"])
    assert found["memray"] == found["heaptrack"]
    assert found["massif"] <= {f"{name[:12]}{int(name[12:], 16) - before:#x}" for name in found["memray"] for before in (0, 1)}
    assert len(found["massif"]) >= _SITES // 2  # places below 1% have no line


def test_native_runtime_recorded_by_heaptrack(memprof: Memprof, tmp_path: Path) -> None:
    """memray was taken, which left no file."""
    need_tool("heaptrack")
    made = memprof("zoo", "mlp", "--size", "1MiB", "--format", "onnx", "-o", tmp_path / "m.onnx")
    assert made.returncode == 0, made.stderr
    done = memprof("heap", "record", tmp_path / "m.onnx", "-r", "onnxruntime-native", "--phases", "load,prepare", "-o", tmp_path / "out")
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0 and "recording with heaptrack" in done.stderr, done.stderr
    assert load(Path(done.stdout.strip())).phases[-1].name == "PREPARE"


def test_memray_converted_model_interpreter(scenario: Scenario, tmp_path: Path) -> None:
    (order,) = plan(Suite(models=(str(scenario()),), variants=(Variant(runtime="synthetic", name="it"),), repeats=1)).orders

    under = record._under(order, "memray", record.HeapRequest(tmp_path), ("python", "-m", "memray"), lambda text: None)

    assert under.python == order.python
    (program,) = recorder_client._program(under)
    assert program.endswith("runners/__main__.py")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["-o", "out"], 2, "name a runtime, -r NAME, or a program, -- PROGRAM WORD..."),
        (["-o", "out", "--phase", "load=f", "--", "true"], 2, "gdb, which --phase takes, cannot follow a program under a profiler"),
        (["-o", "out", "--shape", "x=1", "--", "true"], 2, "--shape is for a runtime"),
        (["-o", "out", "--", "no-such-program-anywhere"], 5, "there is no command no-such-program-anywhere"),
        (["-o", "full", "--", "true"], 5, "full is not empty: name a new folder with -o"),
        (["-o", "out", "--phases", "load", "--", "true"], 2, "--phases is for a model in a runtime"),
        (["model.json", "-r", "synthetic", "--phases", "laod", "-o", "out"], 2, "there is no phase 'laod'; did you mean load?"),
        (["model.json", "-r", "synthetic", "-o", "out"], 5, "model.json"),
    ],
)
def test_heap_record_refusals(memprof: Memprof, tmp_path: Path, words: list[str], code: int, sentence: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = memprof("heap", "record", *words)
    assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


def test_forked_children_own_files(memprof: Memprof, tmp_path: Path, program: Path) -> None:
    need_tool("valgrind")
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", program, "fork")
    parent, child = [load(Path(line)) for line in done.stdout.split("\n") if line]
    assert round(parent.peak.heap_bytes / MIB) == 15 and round(parent.snapshots[-1].heap_bytes / MIB) == 10
    assert round(child.snapshots[-1].heap_bytes / MIB) == 13  # it goes on from what it was forked with


def test_crash_leaves_partial_profile(memprof: Memprof, tmp_path: Path, program: Path) -> None:
    need_tool("valgrind")
    done = memprof("heap", "record", "--tool", "massif", "-o", tmp_path / "out", "--", program, "crash")
    assert done.returncode == 4 and "the profile is partial: the program ended by SIGABRT" in done.stderr
    assert "SIGABRT" in str(load(Path(done.stdout.strip())).partial)


@pytest.mark.parametrize("tool", ["massif", "heaptrack"])
def test_hanging_program_file_kept(memprof: Memprof, tmp_path: Path, program: Path, tool: str) -> None:
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
