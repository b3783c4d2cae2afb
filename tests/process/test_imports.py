"""What a command does not import: each of these takes longer than the rest of its start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DRAWING = {"numpy", "matplotlib", "pandas"}
RUN = ("doors.cli.run", "doors.cli.progress", "regressions.gate.decide", "campaign.campaign", "reports.tables.gate")


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (RUN, {"email", "http.client", "rich", "ssl", "xml", "concurrent.futures"}),
        (("doors.cli.explain", "doors.cli.plot", "doors.cli.trace"), DRAWING),
        (("reports.page",), {"matplotlib"}),
        (("zoo", "doors.cli.zoo"), {"numpy", "onnx", "flatbuffers", "ai_edge_litert"}),
    ],
    ids=["run", "explain, plot and trace", "page", "zoo"],
)
def test_modules_import_nothing_large(tmp_path: Path, modules: tuple[str, ...], absent: set[str]) -> None:
    code = "; ".join(f"import memprof.{module}" for module in modules)
    words = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert not absent & set(done.stdout.split())
