"""Folders that are a model, where a JSON file says which file in them it is: onert's nnpackage and the folder of onnxruntime-genai."""

from __future__ import annotations

import json
from pathlib import Path

from ..base.files import Torn, opened
from . import companion_files

NNPACKAGE, GENAI = "metadata/MANIFEST", "genai_config.json"
_LARGEST = 16 << 20


def first_model(folder: Path) -> Path:
    """The first model of an nnpackage. Raises OSError where the file cannot be read, Torn where it names no model, InputError for one elsewhere."""
    return companion_files.named(folder, _text(folder / NNPACKAGE, "models", 0), "its first model")


def genai_decoder(folder: Path) -> Path:
    """The decoder's ONNX file. Raises as `first_model` does."""
    return companion_files.named(folder, _text(folder / GENAI, "model", "decoder", "filename"), "its decoder")


def _text(path: Path, *places: str | int) -> str:
    """The text at a place in the file, by names and numbers from the outside in."""
    with opened(path) as file:
        content = file.read(_LARGEST)
    try:
        value = json.loads(content)
        for place in places:
            value = value[place]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Torn from None
    if not isinstance(value, str):
        raise Torn
    return value
