"""A folder of onnxruntime-genai: genai_config.json names the decoder's ONNX file."""

from __future__ import annotations

import json
from pathlib import Path

from ..files import opened
from . import Torn, beside

NAME = "genai_config.json"
_LARGEST = 16 << 20


def decoder(folder: Path) -> Path:
    """The decoder's file. Raises Torn where the configuration names none, OSError, InputError for one elsewhere."""
    with opened(folder / NAME) as file:
        content = file.read(_LARGEST)
    try:
        name = json.loads(content)["model"]["decoder"]["filename"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Torn from None
    if not isinstance(name, str):
        raise Torn
    return beside.named(folder, name, "its decoder")
