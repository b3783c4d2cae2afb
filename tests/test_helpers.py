"""What the other tests stand on: a command that is called is the command that is started, things made once, and --quick."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from once import once


@pytest.mark.parametrize("words", [["--help"], ["tabel"], ["table", "nowhere.jsonl"], ["zoo", "mlp"]])
def test_a_command_that_is_called_says_what_it_says_as_a_process(memprof, memprof_process, words):
    called, process = memprof(*words), memprof_process(*words)

    assert (called.returncode, called.stdout, called.stderr) == (process.returncode, process.stdout, process.stderr)


def test_a_called_command_leaves_nothing_changed(memprof, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.getcwd(), dict(os.environ), tempfile.tempdir

    memprof("table", "nowhere.jsonl", cwd=tmp_path / "elsewhere")

    assert (os.getcwd(), dict(os.environ), tempfile.tempdir) == before


def test_a_thing_is_made_once_and_again_only_where_making_it_failed(tmp_path):
    tries = []

    def make(folder: Path) -> None:
        tries.append(folder)
        (folder / "half").touch(exist_ok=False)
        if len(tries) == 1:
            raise OSError("the disk is full")

    with pytest.raises(OSError):
        once(str(tmp_path), make)
    assert once(str(tmp_path), make) == once(str(tmp_path), make)
    assert len(tries) == 2


def test_quick_leaves_out_what_starts_a_process(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import os, subprocess\n"
        "def test_nothing(): pass\n"
        "def test_program(): subprocess.run(['true'])\n"
        "def test_fork(): os.fork() or os._exit(0)\n"
        "def test_hidden():\n    try:\n        subprocess.run(['true'])\n    except Exception:\n        pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    for more, end in (([], "4 passed"), (["--quick"], "1 passed, 3 skipped")):
        done = subprocess.run([*words, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1].startswith(end), done.stdout + done.stderr
