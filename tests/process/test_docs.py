"""The manual: its examples print what it says, its words are words of the commands, and its pages and pictures are there.

A ```console block holds commands after `$ ` and what they print on standard output; each is run in one folder, in the order of the pages, and
compared with figures masked; a line `...` stands for any lines. test_docs_commands.py runs the commands of ```sh blocks; here the names of their
commands and options are looked up.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Memprof
from support.manual import ROOT, examples, prints

# In the order of the manual: the later ones use files that the earlier ones make.
PAGES = ["README", "tutorial", "any-program", "import", "heap", "tables-and-pictures", "gate", "plan"]
NEEDED = ("tflite_runtime", "onert", "onnx")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measuring is for Linux")
@pytest.mark.long
def test_manual_examples_output(tmp_path: Path, memprof: Memprof, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing or shutil.which("cc") is None:
        pytest.skip(f"needs {', '.join(missing) or 'a C compiler'}")
    data = ROOT / "tests" / "data"
    for file in [*data.glob("onert-*.log"), *(data / "manual").iterdir()]:
        shutil.copy(file, tmp_path)
    memprof("zoo", "mobilenet_v2", "--format", "tflite", "-o", "mobilenet_v2.tflite")  # the model of README's reader
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("COLUMNS", "120")
    wrong = []
    for page in PAGES:
        for command, printed in examples(page):
            simple = re.fullmatch(r"memprof ([^|;&<>$'\"]+)(?:> (\S+)|\| (.+))?", command)
            if simple:  # without a shell and an interpreter, which take most of the time
                done = memprof(*simple[1].split())
                if simple[2]:
                    (tmp_path / simple[2]).write_text(done.stdout)
                    done.stdout = ""
                if simple[3]:
                    piped = subprocess.run(["sh", "-c", simple[3]], input=done.stdout, stdout=subprocess.PIPE, text=True, timeout=120)
                    done.stdout = piped.stdout
            else:
                done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
            if not prints(printed, done.stdout):
                wrong.append(f"{page}: $ {command}\n{done.stdout}{done.stderr}")
    assert not wrong, "\n\n".join(wrong)
