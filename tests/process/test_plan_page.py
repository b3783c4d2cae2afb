"""The page of a plan, in a real browser: what is hovered is named, what is hidden goes, and all charts show the same steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.browser_page import Browser

pytest.importorskip("onnx")

from support import plan_models as models
from support.plan_models import node, save, value

from memprof.plan.analysis import Question, analyse, planned
from memprof.plan.graphs.read import read
from memprof.reports import standalone
from memprof.reports.pictures import plan_page


def rendered(path: Path) -> str:
    question = Question(time_limit_s=60)
    plan = planned(read(path), question)
    return plan_page.render(plan, analyse(plan, question))


def test_plan_page_hover_names_operators_tensors(browser: Browser, tmp_path: Path) -> None:
    browser.show(rendered(models.wide(tmp_path / "wide.onnx")))

    hint = browser.hover("#lines .u-over", 1.5)
    assert re.search(r"(Exp|ReduceSum)\), step 2 of the (model.s|best) order", hint) and "in use" in hint
    hint = browser.hover("#arena-0 .u-over", 0.5, 0.9)
    assert "400 B at offset" in hint and "steps 1 to" in hint


pytestmark = pytest.mark.xdist_group("browser")  # one worker starts the browser

HOSTILE = "</script><img src=x onerror=alert(1)>"


# The steps that each chart shows.
SPANS = "return [...document.querySelectorAll('.plot')].map((plot) => plot.chart.range.map(Math.round))"


def test_plan_page_zooms_all_charts(browser: Browser, tmp_path: Path) -> None:
    browser.show(rendered(models.wide(tmp_path / "wide.onnx")))
    assert browser.js(SPANS) == [[0, 7]] * 3

    browser.drag("#arena-0 .u-over", 2, 5)
    browser.wait(f"return JSON.stringify((() => {{ {SPANS} }})()) === '[[2,5],[2,5],[2,5]]'")
    browser.find("#reset").click()
    assert browser.js(SPANS) == [[0, 7]] * 3


def test_plan_page_hides_order(browser: Browser, tmp_path: Path) -> None:
    browser.show(rendered(models.wide(tmp_path / "wide.onnx")))
    lines = "return document.querySelector('#lines').chart.u.series.length - 1"
    assert browser.js(lines) == 3

    browser.find("#orders .chip").click()

    assert browser.js(lines) == 2


def test_plan_page_themes_and_phone_width(browser: Browser, tmp_path: Path) -> None:
    browser.show(rendered(models.wide(tmp_path / "wide.onnx")), width=360)
    before = browser.js("return document.querySelector('#lines canvas').toDataURL()")

    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.frames()

    assert browser.js("return document.querySelector('#lines canvas').toDataURL()") != before
    assert browser.js("return document.documentElement.scrollWidth") <= 360


def test_plan_page_escapes_names(browser: Browser, tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Exp", ["x"], [HOSTILE], HOSTILE)], [value("x", [30])], [value(HOSTILE, [30])])
    text = rendered(path)
    browser.show(text)

    assert HOSTILE in browser.hover("#lines .u-over", 0.5)
    assert browser.js("return document.querySelectorAll('img').length") == 0
    assert text.count("</script>") == text.count("<script") == 4
    assert "http" not in text.replace(standalone.asset("memprof.reports.web", "uplot/uPlot.js"), "").replace("http-equiv", "")
