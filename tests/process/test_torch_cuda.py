"""torch's own peaks where it uses CUDA, with the least of torch's interface in its place: none of it was run on such a device."""

from __future__ import annotations

import pytest
from support.recorder_runs import MIB, PYTHON, measured, script

CUDA_TORCH = """
import types

__version__ = "9.9"
_now = _most = 0


def grown(mib):
    global _now, _most
    _now += mib << 20
    _most = max(_most, _now)


class Tensor:
    dtype, shape, device = "torch.float32", (1, 4), "cuda:0"

    def __init__(self, device="cpu"):
        self.device = device

    def to(self, device):
        return Tensor(device)


class Module:
    def __call__(self, *arguments):
        return self.forward(*arguments)

    def eval(self): ...

    def parameters(self):
        return iter(self.held)


def _reset(device):
    global _most
    _most = _now


nn = types.SimpleNamespace(Module=Module)
backends = types.SimpleNamespace()
set_num_threads = set_grad_enabled = lambda value: None
from_numpy = lambda array: Tensor()
cuda = types.SimpleNamespace(
    is_initialized=lambda: _most > 0,
    device_count=lambda: 2,
    synchronize=lambda: None,
    max_memory_allocated=lambda device: _most if device == 0 else 0,
    max_memory_reserved=lambda device: _most + (2 << 20) if device == 0 else 0,
    reset_peak_memory_stats=_reset,
)
"""
CUDA_MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        torch.grown(HELD)
        self.held = [torch.Tensor("cuda:0")]

    def forward(self, value):
        assert value.device == "cuda:0"
        torch.grown(20 if HELD else 0)
        torch.grown(-20 if HELD else 0)


def model():
    return Net()


def inputs():
    return (torch.Tensor(),)
"""


@pytest.mark.parametrize("held", [10, 0])
def test_torch_counts_its_memory_of_cuda(tmp_path, held):
    packages = tmp_path / "packages"
    (packages / "torch-9.9.dist-info").mkdir(parents=True)
    (packages / "torch-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    (packages / "torch.py").write_text(CUDA_TORCH)
    python = script(tmp_path / "python", f'#!/bin/sh\nPYTHONPATH={packages} exec {PYTHON} "$@"\n')
    (tmp_path / "net.py").write_text(CUDA_MODEL.replace("HELD", str(held)))

    run = measured(tmp_path / "net.py", "torch", python=str(python), runs=2)

    assert run.outcome.ok, run.outcome
    counts = {(value.phase, value.name.split("_")[1]): value.value / MIB for value in run.values}
    phases = {"MODEL_LOAD": 10, "PREPARE": 10, "EXECUTE": 30}
    assert counts == (
        {(phase, what): most + more for phase, most in phases.items() for what, more in (("allocated", 0), ("reserved", 2))} if held else {}
    )
