"""The page of heap profiles, in a real browser: what is clicked is shown, what is searched is found, and names stay text."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.heap_viewer import viewer  # noqa: F401  (the fixtures)
from support.sample_profiles import usual, write

numpy = pytest.importorskip("numpy")


def test_view_without_display_prints_path(memprof, tmp_path):
    write(usual(), tmp_path / "m.massif")

    done = memprof("heap", "view", "m.massif", env={"PATH": "/usr/bin", "TMPDIR": str(tmp_path)})

    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_theme_follows_system_and_button(viewer, theme):
    viewer.open(usual(), theme=theme)
    before = viewer.pixels("tree-0"), viewer.pixels("chart-0")

    assert viewer.js("return document.documentElement.dataset.theme") == theme
    viewer.find("#theme").click()
    assert viewer.js("return document.documentElement.dataset.theme") != theme
    assert viewer.pixels("tree-0") != before[0] and viewer.pixels("chart-0") != before[1]
