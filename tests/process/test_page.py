"""The page: what it says, and what it does in a real browser (a headless Chromium without a network)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from support.browser_page import Browser
from support.sample_runs import runs

from memprof.records import store
from memprof.records.types import Run
from memprof.reports import page


def test_page_law_places_by_size():
    made = [runs(f"{prefix}x={x}", at={"x": x})[0] for prefix in ("b, ", "") for x in (1, 64, 8)]
    html = page.render([*made[:2], *runs("other"), *made[2:]])

    places = [html.index(f'title="{name}"') for name in ("x=1", "x=8", "x=64", "b, x=1", "b, x=8", "b, x=64")]
    assert sorted(places[:3]) == places[:3] and sorted(places[3:]) == places[3:]


def write_runs(path: Path, made: Sequence[Run]) -> Path:
    path.write_bytes(b"".join(store.encode(run) for run in made))
    return path


def test_view_without_display_prints_path(memprof, tmp_path):
    write_runs(tmp_path / "runs.jsonl", runs())
    without = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}

    done = memprof("view", "runs.jsonl", env={**without, "TMPDIR": str(tmp_path)})

    assert done.returncode == 0
    assert Path(done.stdout.strip()).read_text().startswith("<!doctype html>")


def test_view_opens_browser(memprof, tmp_path):
    write_runs(tmp_path / "runs.jsonl", runs())
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > "$0.opened"\n')
    browser.chmod(0o755)

    done = memprof("view", "runs.jsonl", env={**os.environ, "TMPDIR": str(tmp_path), "BROWSER": f"{shlex.quote(str(browser))} %s"})

    assert (done.returncode, done.stdout) == (0, "")
    opened = (tmp_path / "browser.opened").read_text().strip()
    assert unquote(opened).startswith(f"file://{tmp_path}/memprof-")
    assert opened.endswith("/report.html")


def opened(browser: Browser, made: Sequence[Run], **look: Any) -> None:
    browser.show(page.render(made, sources=["runs.jsonl"]), **look)


def test_page_without_matplotlib(tmp_path):
    """Its import takes longer than a page."""
    words = "import sys, memprof.reports.page as page; print('matplotlib' in sys.modules, page.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=tmp_path, capture_output=True, text=True, check=True
    )  # not the checkout's folder
    assert done.stdout.split()[0] == "False"
