"""What the tests of doctor share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from memprof.doctor import known_allocations
from memprof.doctor.report import DoctorReport
from memprof.doors.cli.doctor import command

Root = Callable[[dict[str, str]], Path]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Write files below a root of their own: root({"/proc/meminfo": TEXT}) -> the root."""

    def write(files: dict[str, str]) -> Path:
        for path, text in files.items():
            file = tmp_path / "root" / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "root").mkdir(exist_ok=True)
        return tmp_path / "root"

    return write


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_allocations, "_ENOUGH_NS", 0)  # each allocation is measured once
        done = CliRunner().invoke(command, ["--json"], standalone_mode=False, catch_exceptions=False)
    assert (done.return_value, done.stderr) == (0, "")
    content: dict[str, Any] = json.loads(done.stdout)
    return content


@pytest.fixture(scope="module")
def report(printed: dict[str, Any]) -> DoctorReport:
    return msgspec.convert(printed, DoctorReport)
