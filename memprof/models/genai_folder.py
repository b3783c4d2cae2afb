"""A folder of onnxruntime-genai: genai_config.json names the decoder's ONNX file."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from . import Torn

NAME = "genai_config.json"


def decoder(folder: Path) -> Path:
    """The decoder's file. Raises Torn where the configuration names none in the folder, OSError."""
    try:
        name = json.loads((folder / NAME).read_bytes())["model"]["decoder"]["filename"]
        within = PurePosixPath(name)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Torn from None
    if within.is_absolute() or ".." in within.parts or "\0" in name or not within.parts:
        raise Torn
    return folder / within
