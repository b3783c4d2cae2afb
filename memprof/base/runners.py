"""Where the measured side's programs lie."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def runners_path() -> Path:
    """The folder of the measured side's programs."""
    spec = find_spec("memprof.runners")  # found, never imported
    if spec is None or not spec.submodule_search_locations:
        return Path(__file__).parents[2] / "runners"  # setuptools' editable install finds no folder without __init__.py inside a package
    return Path(next(iter(spec.submodule_search_locations)))
