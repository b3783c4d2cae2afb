"""Runtimes that live in environments apart: torch, executorch and genai. They are too large for the environment of the tests.

What takes the runtime itself runs if `memprof runtimes install NAME` was done on this machine, and is skipped otherwise. The nets in tests/data are
one net with the same weights, so that their outputs must agree.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from support import genai_model
from support.exported_models import DATA, interpreter, planned
from support.recorder_runs import NEAR
from support.session_cache import once

import memprof
from memprof.campaign import campaign
from memprof.campaign.outputs import output_error
from memprof.campaign.progress import Silent
from memprof.programs.runtimes import runners_path
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant

NETS = {"torch": ("net.py", "net.pt2"), "executorch": ("net.pte", "net_xnnpack.pte")}
EXECUTING, GENERATING = ["WARMUP", "EXECUTE"], ["WARMUP", "PROMPT", "GENERATE"]
CASES = [*((name, net) for name, nets in NETS.items() for net in nets), ("genai", "llama")]


def net(name: str) -> Path:
    """The path of a net of tests/data, or the folder of the decoder."""
    if name != "llama":
        return DATA / name
    pytest.importorskip("onnx")
    return once("a decoder for genai", genai_model.make)


@pytest.mark.parametrize(("name", "model"), CASES)
def test_separate_runtime_follows_contract(name, model):
    python = interpreter(name)

    (run,) = memprof.measure([net(model)], variants=[Variant(name, python=python)], warmup=1, runs=2, repeats=1, threads=[1])

    assert run.outcome.ok, run.outcome.sentence
    executing = GENERATING if name == "genai" else EXECUTING
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", *executing, "RELEASE"]
    assert run.about is not None and run.about.runtime_version[0].isdigit()
    assert all(len(mark.times_ns) == 2 for mark in run.marks if mark.phase in executing[1:])
    for mark in run.marks:
        assert mark.rss_peak_bytes >= mark.rss_end_bytes > 0
        assert mark.hwm_bytes >= mark.rss_end_bytes - NEAR
    if name == "executorch":
        assert {value.value for value in run.values if value.name == "planned_bytes"} == {planned(model)}


def test_runtime_outputs_agree(tmp_path):
    pythons = {name: interpreter(name) for name in NETS}
    files = [outputs(name, pythons[name], DATA / model, tmp_path) for name, models in NETS.items() for model in models]

    assert [output_error(files[0], file) < 1e-3 for file in files] == [True] * 4


def outputs(name: str, python: str, model: Path, folder: Path) -> Path:
    """The outputs of a model as a file, for inputs that are the same in every runtime."""
    target = folder / f"{model.name}.npz"
    suite = Suite(models=(str(model),), runtimes=(name,), python=python, warmup=0, runs=1, repeats=1)
    orders = [replace(order, outputs=str(target)) for order in plan(suite).orders]
    (run,) = campaign.measure(orders, Silent(), lambda line: None)
    assert run.outcome.ok, run.outcome.sentence
    return target


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The measured side's modules, with packages that are empty in place of the runtimes'."""
    monkeypatch.syspath_prepend(str(runners_path()))
    before = set(sys.modules)
    for name in ("onnxruntime_genai", "torch"):
        module = ModuleType(name)
        module.__version__ = "0"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    modules = {name: importlib.import_module(f"runtimes.{name}") for name in ("torch", "executorch", "genai")}
    yield SimpleNamespace(
        **modules, Options=importlib.import_module("runtimes").Options, Refused=importlib.import_module("runtimes").Refused
    )
    # No others: what a package of C brought along may not be imported twice.
    for name in {name for name in set(sys.modules) - before if name.partition(".")[0] == "runtimes"}:
        del sys.modules[name]


def test_pte_operators_delegates_planned_bytes(runner):
    portable = runner.executorch.Program(str(DATA / "net.pte"))
    delegated = runner.executorch.Program(str(DATA / "net_xnnpack.pte"))

    assert portable.name == delegated.name == "forward"
    assert "aten::convolution.out" in portable.operators and portable.delegates == []
    assert set(delegated.delegates) == {"XnnpackBackend"} and len(delegated.operators) < len(portable.operators)
    # At least input, convolution and its batch norm's result, each in 4 bytes: [1, 3, 32, 32] and [1, 16, 30, 30].
    assert sum(portable.planned) >= 4 * (3 * 32 * 32 + 16 * 30 * 30)
    assert 0 < sum(delegated.planned) < sum(portable.planned)


def test_damaged_pte_refused(runner, tmp_path):
    data = (DATA / "net.pte").read_bytes()
    path = tmp_path / "damaged.pte"
    for size in (1, 5, 8, 40, 200, 1000, 3000):
        path.write_bytes(data[:size])
        with pytest.raises(runner.Refused, match=r"damaged\.pte is no \.pte, or damaged"):
            runner.executorch.Program(str(path))
    path.write_bytes(data[:4] + b"TFL3" + data[8:])
    with pytest.raises(runner.Refused, match=r"is no \.pte"):
        runner.executorch.Program(str(path))
    for at in range(8, 400):
        path.write_bytes(data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :])
        try:
            runner.executorch.Program(str(path))
        except runner.Refused:
            pass


@pytest.mark.parametrize(
    ("lacking", "sentence"),
    [
        ("aten::convolution.out", "this build of executorch lacks the operator aten::convolution.out"),
        ("XnnpackBackend", "this build of executorch lacks the delegate XnnpackBackend"),
    ],
)
def test_executorch_missing_operator_named(runner, lacking, sentence):
    program = runner.executorch.Program(str(DATA / ("net.pte" if "::" in lacking else "net_xnnpack.pte")))
    runtime = runner.executorch.Runtime.__new__(runner.executorch.Runtime)
    runtime._described = program
    runtime._core = SimpleNamespace(
        _get_operator_names=lambda: [name for name in program.operators if name != lacking],
        _get_registered_backend_names=lambda: [name for name in program.delegates if name != lacking],
    )

    with pytest.raises(runner.Refused, match=f"^{sentence}$"):
        runtime.prepare()


@pytest.mark.parametrize(
    ("config", "settings", "sentence"),
    [
        (None, {}, "has no genai_config.json: genai takes a folder of onnxruntime-genai"),
        ("[]", {}, "genai_config.json is not one of onnxruntime-genai: "),
        ("{", {}, "genai_config.json is not one of onnxruntime-genai: JSONDecodeError"),
        ('{"model": {"context_length": 100}}', {}, "prompt=128 and generate=32 are 160 tokens: more than the 100 of the context"),
        ('{"model": {}, "search": {"max_length": 150}}', {}, "prompt=128 and generate=32 are 160 tokens: more than the 150 of the context"),
        ('{"model": {}}', {"generate": "0"}, "generate=0: it is a number from 1 to 2147483647"),
    ],
)
def test_genai_refusals(runner, tmp_path, config, settings, sentence):
    pytest.importorskip("numpy")
    if config is not None:
        (tmp_path / "genai_config.json").write_text(config)
    runtime = runner.genai.Runtime()

    with pytest.raises(runner.Refused) as refused:
        runtime.load(str(tmp_path), runner.Options({"knobs": settings}, runner.genai.Runtime.knobs))
    assert sentence in str(refused.value)


def test_torch_refusals(runner, tmp_path, monkeypatch):
    (tmp_path / "text.pt2").write_text("no archive")
    (tmp_path / "net.py").write_text("")

    with pytest.raises(runner.Refused, match=r"^text\.pt2 is no \.pt2: it is no zip archive$"):
        runner.torch._is_package(str(tmp_path / "text.pt2"))
    assert not runner.torch._is_package(str(DATA / "net.pt2"))
    options = SimpleNamespace(knobs={"package": "aoti"})
    with pytest.raises(runner.Refused, match=r"^package=aoti needs a \.pt2 of torch\.export, not net\.py$"):
        runner.torch.Runtime.build(str(tmp_path / "net.py"), str(tmp_path), options)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(runner.Refused, match=r"^package=aoti needs a C\+\+ compiler, such as g\+\+$"):
        runner.torch.Runtime.build(str(DATA / "net.pt2"), str(tmp_path), options)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("", "has no function model(): model() returns the module, inputs() a tuple of tensors"),
        ("def model(): return 1\n", "has no function inputs()"),
        ("def model(): return 1\ndef inputs(): return ()\n", "model() of mine.py returned a int, not a torch.nn.Module"),
    ],
)
def test_torch_python_file_without_module(runner, tmp_path, code, sentence):
    path = tmp_path / "mine.py"
    path.write_text(code)
    runtime = runner.torch.Runtime()
    runtime.torch = SimpleNamespace(nn=SimpleNamespace(Module=dict))

    with pytest.raises(runner.Refused) as refused:
        runtime._from_python(str(path))
    assert sentence in str(refused.value)
