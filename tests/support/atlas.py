"""What the tests of atlas share."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parents[2] / "ci"


@pytest.fixture
def atlas(monkeypatch):
    monkeypatch.syspath_prepend(str(CI))
    for name in ("atlas", "atlas.releases", "atlas.tables", "atlas.subjects", "atlas.on_fleet", "atlas.main", "bench", "bench.docs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return lambda name: import_module(f"atlas.{name}")
