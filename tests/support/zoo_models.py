"""What the tests of zoo share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memprof import zoo
from support.session_cache import once

onnx = pytest.importorskip("onnx")

MIB = 1 << 20


@pytest.fixture
def made() -> Any:
    """made(name, format, type) -> path, each model made once a session."""

    def get(name: str, format: str, type: str = "float32") -> Path:
        if format == "tflite":
            pytest.importorskip("ai_edge_litert")
        file, size_bytes = f"{name}.{type}.{format}", 2 * MIB if name in zoo._SIZED else None
        return once(f"zoo {file}", lambda folder: zoo.make(name, folder / file, format=format, type=type, size_bytes=size_bytes)) / file

    return get


def run_onnx(path: Path, inputs: dict[str, Any]) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(["output"], inputs)[0]


@pytest.fixture
def encoders() -> Path:
    """The folder of encoder.onnx and encoder.tflite, of 8 MiB and so with two heads."""
    pytest.importorskip("ai_edge_litert")
    return once(
        "zoo encoders",
        lambda folder: [zoo.make("encoder", folder / f"encoder.{end}", format=end, size_bytes=8 * MIB) for end in ("onnx", "tflite")],
    )
