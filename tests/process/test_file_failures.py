"""Runs files and disks: nothing is overwritten, nothing measured is lost, and what cannot be read or written is said in one sentence."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import pytest
from conftest import need_tool
from support.recorder_runs import QUICK, runs_in, script, sentence, started
from support.sample_runs import run

from memprof.records import store

INPUT = 5
ONCE = ["-r", "synthetic", "--repeats", "1"]

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def folder(tmp_path, scenario):
    scenario("quick.json", **QUICK)
    return tmp_path


@pytest.fixture
def some_runs(folder):
    """A runs file with one Run."""
    path = folder / "runs.jsonl"
    path.write_bytes(store.encode(run()))
    return path


def test_existing_file_needs_append(memprof, some_runs):
    before = some_runs.read_bytes()

    refused = memprof("run", "quick.json", *ONCE, "-o", "runs.jsonl")
    added = memprof("run", "quick.json", *ONCE, "-o", "runs.jsonl", "--append")

    assert sentence(refused) == "memprof: runs.jsonl exists: --append adds to it, or name another file"
    assert refused.returncode == INPUT
    assert added.returncode == 0
    assert some_runs.read_bytes().startswith(before)
    assert len(runs_in(some_runs)) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"my notes\n", "runs.jsonl is not a memprof runs file; nothing was added to it"),
        (b"my notes", "runs.jsonl is not a memprof runs file; nothing was added to it"),
        (b'{"memprof": 99, "new": true}\n', "runs.jsonl was written by a newer memprof; nothing was added to it"),
    ],
    ids=["foreign", "foreign without an end", "newer"],
)
def test_append_to_foreign_file_refused(memprof, folder, content, said):
    (folder / "runs.jsonl").write_bytes(content)

    done = memprof("run", "quick.json", *ONCE, "-o", "runs.jsonl", "--append")

    assert sentence(done) == f"memprof: {said}"
    assert done.returncode == INPUT
    assert (folder / "runs.jsonl").read_bytes() == content


@pytest.mark.parametrize("path", ["/dev/full", "/dev/zero", ".", "/proc/none.jsonl", "none/runs.jsonl"])
def test_output_path_refusals(memprof, folder, path):
    done = memprof("run", "quick.json", *ONCE, "-o", path, "--append")

    assert sentence(done).startswith(f"memprof: {path} ")
    assert done.returncode == INPUT


def test_append_cuts_torn_line(memprof, some_runs):
    whole = some_runs.read_bytes()
    some_runs.write_bytes(whole + whole[:500])

    done = memprof("run", "quick.json", *ONCE, "-o", "runs.jsonl", "--append")

    assert "runs.jsonl: its last line was torn and has been cut off" in done.stderr
    assert len(runs_in(some_runs)) == 2


def test_last_line_without_newline(some_runs):
    some_runs.write_bytes(some_runs.read_bytes()[:-1])

    loaded = store.load([some_runs])
    writer = store.RunsWriter(some_runs, append=True)
    writer.write(store.encode(loaded.runs[0]))

    assert (len(loaded.runs), loaded.warnings) == (1, ())
    assert len(runs_in(some_runs)) == 2


def test_interrupted_write_undone(some_runs, monkeypatch):
    before = some_runs.read_bytes()

    def interrupted(descriptor, data):
        os.write(descriptor, data[:100])
        raise KeyboardInterrupt

    writer = store.RunsWriter(some_runs, append=True)
    monkeypatch.setattr(store, "_write_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.write(store.encode(run()))

    assert some_runs.read_bytes() == before


def test_empty_file_kept_if_preexisting(folder):
    path = folder / "runs.jsonl"
    path.touch()
    store.RunsWriter(path, append=True).discard_if_empty()
    assert path.exists()

    path.unlink()
    store.RunsWriter(path, append=True).discard_if_empty()
    assert not path.exists()


def test_default_file_name_taken(folder, memprof):
    now = time.time()
    for second in range(300):
        (folder / time.strftime("memprof-%Y%m%d-%H%M%S.jsonl", time.localtime(now + second))).touch()

    done = memprof("run", "quick.json", *ONCE)

    (path,) = folder.glob("memprof-*-2.jsonl")
    assert len(runs_in(path)) == 1
    assert f"memprof: {path.name} holds the runs" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "runs.jsonl holds no complete run"),
        (b"my notes\n", "runs.jsonl, line 1: not a run of memprof"),
        (b"\x00" * 100, "runs.jsonl is not a memprof runs file"),
        (b'{"memprof": 99, "new": true}\n', "runs.jsonl, line 1: written by a newer memprof (schema 99; this one reads up to 1)"),
        (None, "runs.jsonl: No such file or directory"),
    ],
    ids=["empty", "foreign", "zeros", "newer", "missing"],
)
def test_table_of_file_without_runs(memprof, folder, content, said):
    if content is not None:
        (folder / "runs.jsonl").write_bytes(content)

    done = memprof("table", "runs.jsonl")

    assert sentence(done) == f"memprof: {said}"
    assert done.returncode == INPUT


def test_concurrent_appends_keep_lines(folder):
    words = ["run", "quick.json", *ONCE[:-1], "4", "-o", "runs.jsonl", "--append"]
    with started(folder, *words, "--name", "a") as first, started(folder, *words, "--name", "b") as second:
        for process in (first, second):
            process.communicate(timeout=120)

    assert (first.returncode, second.returncode) == (0, 0)
    assert sorted(saved.job.model.name for saved in store.load([folder / "runs.jsonl"]).runs) == ["a"] * 4 + ["b"] * 4


def test_runs_read_without_locking(some_runs):
    program = "import sys; sys.modules['fcntl'] = None; from memprof.records import store; print(len(store.load(sys.argv[1:]).runs))"

    done = subprocess.run([sys.executable, "-c", program, some_runs], capture_output=True, text=True, check=False)

    assert done.stdout == "1\n", done.stderr


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 64 KiB; only root can have one."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_full_disk_loses_no_run(folder, memprof, small_disk):
    shutil.copy(folder / "quick.json", small_disk)
    (small_disk / "filling").write_bytes(b"x" * 40_000)

    done = memprof("run", "quick.json", "-r", "synthetic", "--repeats", "20", "-o", "runs.jsonl", cwd=small_disk)

    runs = runs_in(small_disk / "runs.jsonl")
    assert done.returncode == INPUT
    assert 1 <= len(runs) < 20
    assert done.stderr.splitlines()[-2:] == [
        "memprof: runs.jsonl holds the runs",
        "memprof: runs.jsonl cannot be written: No space left on device",
    ]
    assert f"{len(runs) + 1} repeats" in done.stdout.splitlines()[2]  # the one that did not fit is shown all the same


def test_file_size_limit_keeps_runs(some_runs, memprof):
    memprof("run", "quick.json", *ONCE)  # the recorder is larger than the limit, and is in the cache from here on
    before = some_runs.read_bytes()
    limit = len(before) + 100

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = memprof("run", "quick.json", *ONCE, "-o", "runs.jsonl", "--append", preexec_fn=limited)

    assert done.returncode == INPUT
    assert done.stderr.splitlines()[-1] == "memprof: runs.jsonl cannot be written: File too large"
    assert done.stdout.startswith("quick.json, ")
    assert some_runs.read_bytes() == before


def test_full_disk_compiling_recorder(folder, memprof, small_disk):
    # It writes another program, which is larger than the disk too: the recorder would take seconds.
    (folder / "small.c").write_text("int main(void) { return 0; }")
    lines = f'[ "$1" = --version ] || {{ while [ "$1" != -o ]; do shift; done; set -- -static -o "$2" {shlex.quote(str(folder / "small.c"))}; }}'
    quick = script(folder / "quick-cc", f'#!/bin/sh\n{lines}\nexec {need_tool("cc")} "$@"\n')
    (small_disk / "filling").write_bytes(b"x" * 60_000)

    done = memprof("exec", "--recorder", "c", "--", "true", env={**os.environ, "XDG_CACHE_HOME": str(small_disk), "CC": str(quick)})

    assert done.returncode == INPUT
    assert re.search("^memprof: .*recorder-.* cannot be (compiled|written)", done.stderr.splitlines()[-1])
    assert not list(folder.glob("memprof-*.jsonl"))


def test_full_stdout_keeps_runs(folder, memprof):
    with open("/dev/full", "w") as full:
        done = memprof("run", "quick.json", *ONCE, "-o", "runs.jsonl", capture_output=False, stdout=full, stderr=subprocess.PIPE)

    assert done.returncode == INPUT
    assert done.stderr.splitlines()[-2:] == ["memprof: runs.jsonl holds the runs", "memprof: standard output: No space left on device"]
    assert len(runs_in(folder / "runs.jsonl")) == 1


@pytest.fixture
def nobody(folder):
    """A folder of the user nobody, and memprof as that user in it: place, call("run", ...). Only root can have them."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    python = nobodys_python()
    if python is None:
        pytest.skip("no interpreter here is for other users")
    with nobodys_folder() as place:
        shutil.copy(folder / "quick.json", place)
        yield place, partial(as_nobody, place, python)


@contextmanager
def nobodys_folder():
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, 65534, 65534)
        yield Path(name)


@cache
def nobodys_python():
    """root's own interpreter may lie where nobody else may look; the system's can use the same packages."""
    with nobodys_folder() as place:
        pythons = (sys.executable, "/usr/bin/python3")
        return next((python for python in pythons if as_nobody(place, python, "--version").returncode == 0), None)


def as_nobody(place, python, *words):
    program = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r}); from memprof.doors.cli import main; main()"
    environment = {**os.environ, "XDG_CACHE_HOME": str(place / "cache")}
    options = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": place, "env": environment}
    try:
        return subprocess.run([python, "-c", program, *words], capture_output=True, text=True, timeout=120, check=False, **options)
    except OSError:
        return subprocess.CompletedProcess(words, 126)


def test_other_user_measures(nobody):
    place, call = nobody

    done = call("run", "quick.json", *ONCE, "-o", "runs.jsonl")

    assert done.returncode == 0, done.stderr
    (saved,) = runs_in(place / "runs.jsonl")
    assert all(mark["rss_peak_exact"] for mark in saved["marks"])


@pytest.mark.parametrize(
    ("forbidden", "said"),
    [
        ("model", "memprof: model quick.json: Permission denied"),
        ("folder", "memprof: runs.jsonl cannot be written: Permission denied"),
        ("file", "memprof: runs.jsonl cannot be written: Permission denied"),
        ("cache", "cannot be made: Permission denied; XDG_CACHE_HOME can name another place"),
    ],
)
def test_other_user_refusals(nobody, forbidden, said):
    place, call = nobody
    words = ["run", "quick.json", *ONCE, "-o", "runs.jsonl"]
    if forbidden == "model":
        (place / "quick.json").chmod(0o600)
    elif forbidden == "folder":
        os.chown(place, 0, 0)
        place.chmod(0o755)
    elif forbidden == "file":
        (place / "runs.jsonl").touch(0o644)
        words.append("--append")
    else:
        shutil.rmtree(place / "cache", ignore_errors=True)
        (place / "cache").mkdir(0o755)

    done = call(*words)

    assert done.returncode == INPUT
    assert done.stderr.splitlines()[-1].endswith(said)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("page", "-o"), ("trace", "-o"), ("table", "--format", "html", "-o")], ids=lambda words: words[0])
def test_report_on_full_disk_keeps_old(memprof, folder, some_runs, words):
    some_runs.write_bytes(b"".join(store.encode(run(variant=f"variant {number}")) for number in range(40)))
    first = memprof(words[0], "runs.jsonl", *words[1:], "report.html")
    assert first.returncode == 0, first.stderr
    before = (folder / "report.html").read_bytes()
    assert len(before) > 2048

    # A limit on the size of files stands for the disk: the same OSError in the midst of writing.
    program = [sys.executable, "-m", "memprof", words[0], "runs.jsonl", *words[1:], "report.html"]
    limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (2048, 2048))
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=limited)

    assert done.returncode == INPUT
    assert done.stderr.splitlines()[-1] == "memprof: report.html cannot be written: File too large"
    assert (folder / "report.html").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {"quick.json", "runs.jsonl", "report.html"}
