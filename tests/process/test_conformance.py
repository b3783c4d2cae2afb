"""Every runtime that is installed goes through the same contract: all phases marked, figures there, the same line format.

Its baseline is that of a program that uses it by its documented interface. The nets are made by the zoo; a runtime or the zoo's packages that are
missing skip their cases.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support import ct2_model
from support.session_cache import once

import memprof
from memprof.base.errors import InputError
from memprof.places.place import HERE
from memprof.programs import runtimes

CASES = {"onnxruntime": "onnx", "tflite": "tflite", "litert": "tflite", "onert": "tflite", "tvm": "onnx", "openvino": "onnx"}
CASES.update({"onnxruntime-native": "onnx", "onert-native": "tflite", "llamacpp": "gguf"})
CASES.update({"ncnn": "param", "mnn": "mnn", "tflite_micro": "tflite", "ctranslate2": "folder"})
# One for each kind of lines that a recorder reads: of a runtime in Python, with figures of its own, of a model that generates, and of programs in C.
RUNNERS = ("onnxruntime", "tflite_micro", "llamacpp", "onnxruntime-native", "onert-native")
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
def test_runtime_contract(nets, recorder, name):
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


# A program by the runtime's documented interface: what it imports, and how it loads the model.
PROGRAMS = {
    "onnxruntime": ("import onnxruntime", "onnxruntime.InferenceSession(model)"),
    "tflite": ("from tflite_runtime.interpreter import Interpreter", "Interpreter(model)"),
    "litert": ("from ai_edge_litert.interpreter import Interpreter", "Interpreter(model)"),
    "litert,api=compiled_model": ("from ai_edge_litert.compiled_model import CompiledModel", "CompiledModel.from_file(model)"),
    "onert": ("from onert import infer", "infer.session(model)"),
    "tvm": ("import tvm", "tvm.runtime.vm.VirtualMachine"),
    "openvino": ("import openvino; core = openvino.Core()", "core.read_model(model)"),
    "llamacpp": ("import xllamacpp", "xllamacpp.CommonParams().model.path = model"),
    "ncnn": ("import ncnn, numpy", "ncnn.Net().load_param(model)"),
    "mnn": ("import MNN", "MNN.Interpreter(model)"),
    "tflite_micro": ("from tflite_micro import runtime", "runtime.Interpreter.from_file(model)"),
    "ctranslate2": ("import ctranslate2", "ctranslate2.Generator(model)"),
}
# Differences that are meant, as in the footnotes of the table in docs/runtimes.md: what a user's program does beside its imports to have them too.
MEANT = {
    "onnxruntime": "import os; os.environ['ORT_DISABLE_TELEMETRY'] = '1'",  # telemetry is off
    "ctranslate2": "import numpy",  # the tokens are made with numpy, which CTranslate2 does not import
}
ALLOWED = 1 << 20


def test_programs_cover_runtimes():
    assert {*PROGRAMS} == {name for name in CASES if not name.endswith("-native")} | {"litert,api=compiled_model"}


@pytest.mark.parametrize("case", PROGRAMS)
def test_baseline_is_that_of_a_program(nets, tmp_path, case):
    name, _, setting = case.partition(",")
    imports, work = PROGRAMS[case]
    program, model = tmp_path / "program.py", nets / f"mnist.{CASES[name]}"
    marks = f"import sys; sys.path.append({str(runtimes.runners_path())!r}); from memprof_marks import phase"
    program.write_text(f"{MEANT.get(name, '')}\n{imports}\n{marks}\nmodel = {str(model)!r}\nwith phase('MODEL_LOAD'):\n    {work}\n")
    try:
        runtimes.find(name, sys.executable)
    except InputError as error:
        pytest.skip(str(error))

    knobs = dict([setting.split("=")] if setting else [])
    (measured,) = memprof.measure([model], [name], set=knobs, warmup=0, runs=1, repeats=1, threads=[1])
    (own,) = memprof.measure(cmds=f"own={sys.executable} {program}", repeats=1)

    assert (measured.outcome.ok, own.outcome.ok) == (True, True), (measured.outcome.sentence, own.outcome.sentence)
    more = measured.marks[0].rss_end_bytes - own.marks[0].rss_end_bytes
    assert (measured.marks[0].phase, own.marks[0].phase) == ("STARTUP", "STARTUP")
    assert abs(more) <= ALLOWED, f"{more / 2**20:+.2f} MiB"


def test_interpreter_asked_once_for_runtimes(tmp_path, monkeypatch):
    python, asked, run = tmp_path / "python", [], subprocess.run
    python.symlink_to(Path(sys.executable).resolve())
    monkeypatch.setattr(runtimes.subprocess, "run", lambda words, **rest: asked.append(words) or run(words, **rest))

    described = runtimes.describe(str(python))

    assert runtimes.located("synthetic", str(python), HERE)[0] == runtimes.find("synthetic", str(python)) in described
    assert len(asked) == 1


def test_run_imports_no_rare_modules(tmp_path):
    code = "import sys, memprof.cli.run, memprof.cli.progress, memprof.gate.decide, memprof.campaign.campaign, memprof.reports.tables.gate"
    words = [sys.executable, "-c", f"{code}; print(*sys.modules)"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert not {"email", "http.client", "rich", "ssl", "xml", "concurrent.futures"} & set(done.stdout.split())
