"""The two recorders, each as it is shipped: in Python as sources with nothing around them, in C as one static program."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import need_tool
from support.session_cache import once

from .harness import Recorder

_SOURCES = Path(__file__).parents[3] / "memprof/recorder"
_START = "import sys; sys.path.insert(0, sys.argv[1]); from memprof.recorder.__main__ import main; sys.exit(main())"


def _python() -> Recorder:
    sources = {f"memprof/recorder/{path.name}": path.read_bytes() for path in sorted(_SOURCES.glob("*.py"))}

    def make(folder: Path) -> None:
        with zipfile.ZipFile(folder / "recorder.zip", "w") as archive:
            for name, source in {"memprof/__init__.py": b"", **sources}.items():
                archive.writestr(name, source)

    return Recorder("python", [sys.executable, "-I", "-S", "-c", _START, str(once(repr(sources), make) / "recorder.zip")])


def _c() -> Recorder:
    sources = sorted((_SOURCES / "c").glob("*.c"))
    if not sources:
        pytest.skip("the recorder in C has no sources")
    text = "".join(path.read_text() for path in sorted((_SOURCES / "c").iterdir()))
    words = [need_tool("cc"), "-std=c99", "-Os", "-D_GNU_SOURCE", "-static", "-o", "recorder", *map(str, sources)]

    def make(folder: Path) -> None:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return Recorder("c", [str(once(text, make) / "recorder")])


@pytest.fixture(params=["python", "c"])
def recorder(request: pytest.FixtureRequest) -> Recorder:
    """The test runs once with each recorder."""
    return _python() if request.param == "python" else _c()
