"""What the other tests stand on: a command that is called is the command that is started, things made once, and what a unit test may not do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.session_cache import once


@pytest.mark.parametrize("words", [["--help"], ["tabel"], ["table", "nowhere.jsonl"], ["zoo", "mlp"]])
def test_called_command_equals_process(memprof, memprof_process, words):
    called, process = memprof(*words), memprof_process(*words)

    assert (called.returncode, called.stdout, called.stderr) == (process.returncode, process.stdout, process.stderr)


def test_called_command_without_side_effects(memprof, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.getcwd(), dict(os.environ), tempfile.tempdir

    memprof("table", "nowhere.jsonl", cwd=tmp_path / "elsewhere")

    assert (os.getcwd(), dict(os.environ), tempfile.tempdir) == before


def test_once_retries_only_after_failure(tmp_path):
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


@pytest.mark.xdist_group("support")
def test_group_reaches_scheduler(request):
    """xdist hands a test's group to its scheduler in the test's name; what it does not find there, it gives to any worker."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("only where tests are distributed by their groups: make test")

    assert request.node.nodeid.endswith("@support")


def test_unit_test_starting_process_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    shutil.copy(Path(__file__).parents[1] / "unit/conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import os, subprocess\n"
        "def test_nothing(): pass\n"
        "def test_program(): subprocess.run(['true'])\n"
        "def test_fork(): os.fork() or os._exit(0)\n"
        "def test_hidden():\n    try:\n        subprocess.run(['true'])\n    except Exception:\n        pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path]

    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stdout.splitlines()[-1].startswith("3 failed, 1 passed"), done.stdout + done.stderr
