"""All pages share a template, and carry uPlot as its authors publish it."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

UPLOT = files("memprof.reports.web").joinpath("uplot")


def test_uplot_as_published():
    origin = json.loads(UPLOT.joinpath("origin.json").read_text())

    assert {name: hashlib.sha256(UPLOT.joinpath(name).read_bytes()).hexdigest() for name in origin["sha256"]} == origin["sha256"]
    assert f"v{origin['version']}" in UPLOT.joinpath("uPlot.js").read_text()[:200]
    assert origin["licence"] in UPLOT.joinpath("LICENSE").read_text()


def test_uplot_safe_in_script_element():
    text = UPLOT.joinpath("uPlot.js").read_text()

    assert "</script" not in text.lower() and "<!--" not in text


def test_templates_extend_base():
    """A page that brings its own head would drift from the others, and from the policy."""
    parts = ("base.html", "words.html", "explained.html")
    templates = [path for path in Path(str(files("memprof.reports"))).rglob("*.html") if path.name not in parts]

    assert len(templates) == 4
    assert all(path.read_text().startswith('{% extends "base.html" %}') for path in templates)
