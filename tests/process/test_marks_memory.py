"""What marks take from malloc does not follow the digits of their figures, so that they do not move the memory of what is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import need_tool
from support.recorder_runs import runtime_file

from memprof.base.runners import runners_path
from memprof.records import store

# Reads and writes as marks do; each file of /proc has rows of as many digits as the word says, and so has each figure.
_BEGIN = """
import ctypes, os, sys, time
sys.path.insert(0, {runners!r})
program, number = ctypes.CDLL(None), int("9" * int(sys.argv[1]))
program.sizes.restype = ctypes.c_uint64
reading, _ = os.pipe()
names = ("Name", "VmHWM", "VmPeak", "VmSize", "VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSwap", "Rss", "Pss", "Anonymous", "read_bytes")
text = "".join("%s:\\t%d kB\\n" % (name, number) for name in names).encode()

def readv(descriptor, buffers):
    buffers[0][: len(text)] = text
    return len(text)

os.readv = readv
time.monotonic_ns = lambda: number
os.getpid = lambda: number
"""
_BEGIN += """
os.environ["MEMPROF_MARKS"] = os.environ["TARGET"]
import memprof_marks
memprof_marks._counters = lambda: (0, 0, 0, 0)
"""
_RUNNER = """
one = memprof_marks.Marks()
def measured():
    one.begin("EXECUTE")
    one.iteration(tokens=number)
    one.end([number] * 200, lambda: {"arena_bytes": number})
"""
_SCRIPT = """
def measured():
    with memprof_marks.phase("EXECUTE"):
        memprof_marks.iteration(tokens=number)
    memprof_marks.value("arena_bytes", float(number))
"""
# How many variables there are, and how many of them are this test's and memprof's empty ones.
_COUNTS = """\
starts = [sum(name.startswith(word) for name in os.environ) for word in ("", "MORE", "MEMPROF_PAD_")]
self.notes = [" ".join(map(str, starts))]
"""
_TEXTS = """
def measured():
    return ["%d," % number * 100]
"""
_END = """
for _ in range(3):
    measured()
program.begin_sizes()
measured()
print(program.sizes())
"""


@pytest.fixture(scope="module")
def watch(tmp_path_factory):
    library = tmp_path_factory.mktemp("watch") / "seen.so"
    source = Path(__file__).parents[1] / "support" / "seen_by_malloc.c"
    subprocess.run([need_tool("gcc"), "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def _sizes(watch: Path, what: str, digits: int, written: Path) -> str:
    with written.open("wb") as file:
        status = os.fstat(file.fileno())
        env = {"LD_PRELOAD": str(watch), "TARGET": f"{file.fileno()}:{status.st_dev}:{status.st_ino}", "PYTHONHASHSEED": "0"}
        text = _BEGIN.format(runners=str(runners_path())) + what + _END
        words = [sys.executable, "-S", "-c", text, str(digits)]
        done = subprocess.run(words, env=env, pass_fds=[file.fileno()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("what", [_RUNNER, _SCRIPT], ids=["runner", "script"])
def test_marks_memory_independent_of_figures(watch, tmp_path, what):
    small, large = (_sizes(watch, what, digits, tmp_path / f"marks{digits}") for digits in (1, 15))

    assert small == large
    written = [(tmp_path / f"marks{digits}").read_text() for digits in (1, 15)]
    assert "999999999999999" in written[1]
    assert len(written[1]) > len(written[0]) > 1000


def test_variable_count_independent_of_knobs(memprof, tmp_path, monkeypatch):
    """glibc copies the array of variables into the heap when a library sets one: OpenBLAS does."""
    model, runtime = tmp_path / "net.bin", runtime_file(tmp_path, load=_COUNTS)
    model.write_bytes(b"x")
    monkeypatch.setenv("MEMPROF_PAD_7", "of a memprof that measures this one")
    counts = {}
    for more in (0, 2):
        words = [word for number in range(more) for word in ("--env", f"MORE{number}=1")]
        output = tmp_path / f"{more}.jsonl"
        done = memprof("run", model, "-r", runtime, "--repeats", "1", "--runs", "1", *words, "-o", output)
        assert done.returncode == 0, done.stderr
        (run,) = store.load([output]).runs
        assert run.about is not None
        every, given, pads = map(int, run.about.notes[0].split())
        assert given == more
        counts[every] = pads
    assert len(counts) == 1 and next(iter(counts)) % 128 == 0, counts


def test_watch_detects_texts_following_figures(watch, tmp_path):
    small, large = (_sizes(watch, _TEXTS, digits, tmp_path / "marks") for digits in (1, 15))

    assert small != large
