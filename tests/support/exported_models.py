"""What the tests of separate runtimes share."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

from memprof.programs.runtimes import runners_path

DATA = Path(__file__).parents[1] / "data"


def planned(model: str) -> int:
    return sum(executorch_file(DATA / model).planned)


def executorch_file(path: Path) -> SimpleNamespace:
    """What the measured side reads of a .pte."""
    sys.path.insert(0, str(runners_path()))
    try:
        return importlib.import_module("runtimes.executorch").Program(str(path))
    finally:
        sys.path.remove(str(runners_path()))
