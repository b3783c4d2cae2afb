"""A small model for onnxruntime-genai with random weights."""

from __future__ import annotations

from pathlib import Path

from memprof import zoo


def make(folder: Path, size: int = 2 << 20) -> None:
    """A decoder with random weights, and what onnxruntime-genai wants to know of it. size: of the weights, in bytes."""
    zoo.make("llama", folder, format="genai", size_bytes=size)
