"""Runtimes that live in environments apart: torch, executorch and genai. They are too large for the environment of the tests.

What takes the runtime itself runs if `memprof runtimes install NAME` was done on this machine, and is skipped otherwise. The nets in tests/data are
one net with the same weights, as are those that the zoo makes, so that their outputs must agree.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from support.exported_models import DATA

from memprof import zoo
from memprof.base.errors import InputError
from memprof.programs import runtimes
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite


def test_plan_with_unconvertible_model(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    zoo.make("loop", tmp_path / "loop.onnx", format="onnx", size_bytes=1 << 20)
    zoo.make("mnist", tmp_path / "mnist.onnx", format="onnx")
    known = {runtime.name: runtime for runtime in runtimes.describe(sys.executable)}
    installed = {name: replace(known[name], version="1") for name in ("torch", "onnxruntime")}
    monkeypatch.setattr(runtimes, "located", lambda name, *words: (installed[name], sys.executable))
    monkeypatch.setattr(runtimes, "describe", lambda *words: [installed["torch"]])

    with pytest.raises(InputError, match=r"^loop\.onnx: memprof's conversion of \.onnx for torch .* has no operator .*Loop"):
        plan(Suite(models=(str(tmp_path / "loop.onnx"),), runtimes=("torch",)))
    for other in ("all", "torch"):
        planned = plan(Suite(models=(str(tmp_path / "loop.onnx"),), runtimes=("onnxruntime", other), repeats=1))
        assert [order.job.variant for order in planned.orders] == ["onnxruntime"]
        assert any(remark.startswith("loop.onnx: torch is left out, memprof's conversion") for remark in planned.remarks)
    (order,) = plan(Suite(models=(str(tmp_path / "mnist.onnx"),), runtimes=("torch",), repeats=1)).orders
    assert order.build == {}


@pytest.mark.parametrize(("format", "name"), [("pt2", "torch"), ("pte", "executorch")])
def test_zoo_names_missing_environment(format, name, tmp_path):
    pytest.importorskip("onnx")
    with pytest.raises(InputError, match=rf"{name} is not installed .*: memprof runtimes install {name}$"):
        zoo.make("mnist", tmp_path / f"mnist.{format}", format=format)
    assert not list(tmp_path.iterdir())


def test_run_names_missing_environment(memprof):
    done = memprof("run", str(DATA / "net.pt2"), "-r", "torch")

    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert done.stderr.endswith("memprof runtimes install torch\n")
