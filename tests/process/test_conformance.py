"""Every runtime that is installed goes through the same contract: all phases marked, figures there, the same line format.

The nets are made by the zoo; a runtime or the zoo's packages that are missing skip their cases.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import ct2_model, suites
from support.recorder_runs import Silent
from support.session_cache import once

import memprof
from memprof.base.errors import InputError
from memprof.base.runners import runners_path
from memprof.campaign import campaign
from memprof.places.place import HERE
from memprof.programs import runtimes
from memprof.subjects.orders import plan

CASES = {"onnxruntime": "onnx", "tflite": "tflite", "litert": "tflite", "onert": "tflite", "tvm": "onnx", "openvino": "onnx"}
CASES.update({"onnxruntime-native": "onnx", "onert-native": "tflite", "llamacpp": "gguf"})
CASES.update({"ncnn": "param", "mnn": "mnn", "tflite_micro": "tflite", "ctranslate2": "folder"})
# One for each kind of lines that a recorder reads: of a runtime in Python with figures of its own, of a model that generates, and of a program in C.
RUNNERS = ("tflite_micro", "llamacpp", "onert-native")
# What a program writes that uses a runtime by its documented interface, before it loads a model.
PUBLIC_IMPORTS = {
    "onnxruntime": "import onnxruntime",
    "tflite": "from tflite_runtime.interpreter import Interpreter",
    "litert": "from ai_edge_litert.interpreter import Interpreter",
    "onert": "import onert, numpy",
    "tvm": "import tvm",
    "openvino": "import openvino; core = openvino.Core()",
    "llamacpp": "import xllamacpp",
    "ncnn": "import ncnn, numpy",
    "mnn": "import MNN, numpy",
    "tflite_micro": "from tflite_micro.python.tflite_micro import runtime",
    "ctranslate2": "import ctranslate2, numpy",
}
# The phases after PREPARE: of a model that generates, and of all others.
GENERATING, EXECUTING = ["WARMUP", "PROMPT", "GENERATE"], ["WARMUP", "EXECUTE"]


@pytest.fixture(scope="module")
def nets():
    pytest.importorskip("onnx", reason="the zoo needs onnx")
    pytest.importorskip("flatbuffers", reason="the zoo needs flatbuffers")
    return once("the nets of test_conformance.py", make_nets)


def make_nets(folder):
    from memprof import zoo

    for form in ("onnx", "tflite"):
        zoo.make("mnist", folder / f"mnist.{form}", format=form)
    zoo.make("mnist", folder / "mnist.param", format="ncnn")
    if find_spec("MNN"):
        zoo.make("mnist", folder / "mnist.mnn", format="mnn")
    if find_spec("ctranslate2"):
        ct2_model.make(folder / "mnist.folder")
    zoo.make("llama", folder / "mnist.gguf", format="gguf", size_bytes=1 << 20)


@pytest.mark.parametrize(
    ("recorder", "name"), [*(("python", name) for name in CASES), *(("c", name) for name in RUNNERS)], indirect=["recorder"]
)
def test_runtime_contract(nets, recorder, name, tmp_path):
    try:
        runtimes.find(name, sys.executable)
    except InputError as error:
        pytest.skip(str(error))

    (run,) = memprof.measure([nets / f"mnist.{CASES[name]}"], [name], warmup=1, runs=3, repeats=1, threads=[1])

    assert run.outcome.ok, run.outcome.sentence
    executing = GENERATING if CASES[name] == "gguf" else EXECUTING
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", *executing, "RELEASE"]
    assert run.about is not None
    assert run.about.runtime_version[0].isdigit()
    assert "memprof" not in run.about.packages and all(version[0].isdigit() for version in run.about.packages.values())
    assert all(len(mark.times_ns) == 3 for mark in run.marks if mark.phase in executing[1:])
    for mark in run.marks:
        assert mark.end_ns >= mark.begin_ns
        assert mark.rss_peak_bytes >= mark.rss_end_bytes > 0
        assert mark.rss_end_bytes == mark.anon_end_bytes + mark.file_end_bytes + mark.shmem_end_bytes
        assert mark.hwm_bytes >= 0.9 * mark.rss_end_bytes  # it is read first, and a runtime's threads may go on meanwhile
        assert mark.vms_peak_bytes >= mark.vms_end_bytes > mark.rss_end_bytes
    assert [mark.hwm_bytes for mark in run.marks] == sorted(mark.hwm_bytes for mark in run.marks)
    assert [mark.begin_ns for mark in run.marks] == sorted(mark.begin_ns for mark in run.marks)
    if recorder == "python" and name in PUBLIC_IMPORTS:
        alone = imported(PUBLIC_IMPORTS[name], tmp_path, env={**runtimes.find(name, sys.executable).env})
        assert abs(run.marks[0].rss_end_bytes - alone) < 1 << 20, "the baseline is that of a program with this runtime"


def test_setting_imports_its_own_interface(nets, tmp_path):
    pytest.importorskip("ai_edge_litert.compiled_model")
    (run,) = memprof.measure([nets / "mnist.tflite"], ["litert"], set={"api": "compiled_model"}, warmup=0, runs=1, repeats=1)

    alone = imported("from ai_edge_litert.compiled_model import CompiledModel\nimport numpy", tmp_path, env={})

    assert run.outcome.ok, run.outcome.sentence
    assert abs(run.marks[0].rss_end_bytes - alone) < 1 << 20


def imported(words: str, folder: Path, env: dict[str, str]) -> int:
    """The resident set, in bytes, of a program that has imported this, at the begin of its first phase."""
    # Where the marks lie compiled: to compile them takes a megabyte, which would hide as much.
    marks = f"import sys; sys.path.append({str(runners_path())!r}); import memprof_marks"
    (folder / "app.py").write_text(f"{marks}\n{words}\nwith memprof_marks.phase('LOAD'):\n    pass\n")
    suite = suites.program(f"app={sys.executable} {folder / 'app.py'}", env=env, repeats=1)
    (run,) = campaign.measure(plan(suite).orders, Silent(), lambda line: None)
    assert run.outcome.ok, run.outcome.sentence
    return int(run.marks[0].rss_end_bytes)


def test_interpreter_asked_once_for_runtimes(tmp_path, monkeypatch):
    python, asked, run = tmp_path / "python", [], subprocess.run
    python.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(runtimes.subprocess, "run", lambda words, **rest: asked.append(words) or run(words, **rest))

    described = runtimes.describe(str(python))

    assert runtimes.located("synthetic", str(python), HERE)[0] == runtimes.find("synthetic", str(python)) in described
    assert len(asked) == 1
