"""Small C and C++ programs for tests, compiled when they are needed; without a compiler those tests are skipped, with the reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

from conftest import need_tool


def compiled(folder: Path, source: str, *flags: str, name: str = "program", language: str = "c++") -> Path:
    """The program (or, with -shared among the flags, the library) of this source."""
    compiler = need_tool("g++" if language == "c++" else "gcc")
    text = folder / f"{name}.{'cpp' if language == 'c++' else 'c'}"
    text.write_text(source)
    path = folder / name
    standard = "-std=c++17" if language == "c++" else "-std=c99"
    done = subprocess.run(
        [compiler, standard, "-O1", "-o", str(path), str(text), *flags, "-pthread"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return path
