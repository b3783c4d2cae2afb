"""What the tests of separate runtimes share."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from memprof.base.runners import runners_path
from memprof.programs import environments

from .session_cache import USERS_CACHE

DATA = Path(__file__).parents[1] / "data"


def interpreter(name: str) -> str:
    """The interpreter of the user's environment of a runtime; without one the test is skipped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.environ[USERS_CACHE])
        made = environments.of(name)
    if not made:
        pytest.skip(f"{name} is not installed: memprof runtimes install {name}")
    return made[0].interpreter


def planned(model: str) -> int:
    return sum(executorch_file(DATA / model).planned)


def executorch_file(path: Path) -> SimpleNamespace:
    """What the measured side reads of a .pte."""
    sys.path.insert(0, str(runners_path()))
    try:
        return importlib.import_module("runtimes.executorch").Program(str(path))
    finally:
        sys.path.remove(str(runners_path()))
