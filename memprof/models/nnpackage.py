"""onert's nnpackage: a folder whose metadata/MANIFEST, a JSON file, names its models."""

from __future__ import annotations

import json
from pathlib import Path

from . import Torn, beside


def first_model(folder: Path) -> Path:
    """The first model of a package. Raises OSError where the manifest cannot be read, Torn where it names no model, InputError for one elsewhere."""
    with (folder / "metadata" / "MANIFEST").open(encoding="utf-8") as file:
        try:
            name = str(json.load(file)["models"][0])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise Torn from None
    return beside.named(folder, name, "its first model")
