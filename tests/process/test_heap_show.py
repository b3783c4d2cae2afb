"""A profile in the terminal and as a picture: right at every width, plain in a pipe, honest about what it does not know."""

from __future__ import annotations

import os
import subprocess
import sys

from support.sample_profiles import usual, write


def test_show_in_pipe_honours_columns(memprof, tmp_path):
    write(usual(), tmp_path / "a b ü.massif")

    done = memprof("heap", "show", "a b ü.massif", env={**os.environ, "COLUMNS": "80"})

    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.split("\n")) <= 80
    assert "60.0 MiB  60.0% ├─net::Weights::read" in done.stdout


def test_show_in_ascii(memprof, tmp_path):
    write(usual(), tmp_path / "m.massif")

    done = memprof("heap", "show", "m.massif", env={**os.environ, "PYTHONIOENCODING": "ascii"})

    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and "|-net::Weights::read" in done.stdout and "\\u" not in done.stdout


def test_show_with_closed_pipe(memprof, tmp_path):
    write(usual(), tmp_path / "m.massif")

    done = subprocess.run(
        f"'{sys.executable}' -m memprof heap show m.massif --depth 0 | head -1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "m.massif\n"


def test_help_without_heavy_imports():
    code = "import sys; from memprof.doors.cli import main\ntry: main(['heap', 'show', '--help'])\nexcept SystemExit: pass\n" + (
        "print([name for name in ('numpy', 'matplotlib', 'pandas', 'rich', 'msgspec') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"
