"""What torch, executorch and genai refuse, and what is read from a .pte, with empty packages in place of the runtimes'."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
from support.exported_models import DATA

from memprof.base.runners import runners_path


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
