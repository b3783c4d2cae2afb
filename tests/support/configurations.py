"""A folder with memprof's configuration, which is the current one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memprof.base import configuration_file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test's folder is the current one, and a project of its own: no configuration above it counts."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    configuration_file.read.cache_clear()
    yield tmp_path
    configuration_file.read.cache_clear()


def configure(folder: Path, text: str) -> Path:
    """Write memprof.toml."""
    path = folder / "memprof.toml"
    path.write_text(text)
    configuration_file.read.cache_clear()
    return path
