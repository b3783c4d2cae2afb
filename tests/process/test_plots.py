"""Pictures from made-up Runs: what is drawn equals what was measured, names stay text, nothing overlaps, and files are written with care."""

from __future__ import annotations

import subprocess
import sys

import pytest

numpy = pytest.importorskip("numpy")


def test_help_imports_no_matplotlib():
    program = "import sys; from memprof.doors.cli import group, plot, trace; print('matplotlib' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False False\n"
