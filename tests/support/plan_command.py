"""What the tests of plan cli share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from memprof.models.identity import identify
from memprof.records.types import Run
from support import plan_models as models
from support import sample_runs
from support.plan_models import node, save, value

Memprof = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def memprof(memprof: Memprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Memprof:
    """As conftest's, but `plan` runs in this process: its imports take longer than all it does."""
    from memprof.doors import cli

    def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
        if words[0] != "plan":
            return memprof(*words)
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main([*map(str, words)])
        output = capsys.readouterr()
        return subprocess.CompletedProcess([*map(str, words)], int(str(ended.value.code)), output.out, output.err)

    return call


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    return models.wide(tmp_path / "wide.onnx")


def open_shaped(path: Path) -> Path:
    nodes = [node("Relu", ["x"], ["a"]), node("ReduceSum", ["a"], ["y"], keepdims=0)]
    return save(path, nodes, [value("x", ["n", 64])], [value("y", [])])


def run_at(path: Path, *, threads: int | None = None, inputs: str | None = None, **shapes: tuple[int, ...]) -> Run:
    """A made-up run of a model at shapes."""
    run = sample_runs.run(variant="onnxruntime")
    return replace(run, job=replace(run.job, model=identify(path), threads=threads, inputs=inputs, shapes=shapes))
