"""C and C++ programs for tests, each compiled once a session; without a compiler those tests are skipped, with the reason."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from conftest import need_tool

from support.session_cache import once


def compiled(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    """A copy in the folder of the program (or, with -shared among the flags, the library) of this C++ source: a test may change it."""
    return Path(shutil.copy(once_compiled("g++", f"{name}.cpp", source, "-std=c++17", *flags), folder / name))


def once_compiled(compiler: str, file: str, source: str, *flags: str) -> Path:
    """The program of this source, in a file of this name."""
    words = [need_tool(compiler), "-O1", "-o", Path(file).stem, file, *flags, "-pthread"]

    def compile(folder: Path) -> None:
        (folder / file).write_text(source)
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return once("\n".join([source, *words]), compile) / Path(file).stem
