"""A folder of onnxruntime-genai: genai_config.json names the decoder's ONNX file."""

from __future__ import annotations

from pathlib import Path

from . import companion_files, manifest

NAME = "genai_config.json"


def decoder(folder: Path) -> Path:
    """The decoder's file. Raises Torn where the configuration names none, OSError, InputError for one elsewhere."""
    return companion_files.named(folder, manifest.text(folder / NAME, "model", "decoder", "filename"), "its decoder")
