"""onert's nnpackage: a folder whose metadata/MANIFEST, a JSON file, names its models."""

from __future__ import annotations

from pathlib import Path

from . import companion_files, manifest


def first_model(folder: Path) -> Path:
    """The first model of a package. Raises OSError where the manifest cannot be read, Torn where it names no model, InputError for one elsewhere."""
    return companion_files.named(folder, manifest.text(folder / "metadata" / "MANIFEST", "models", 0), "its first model")
