"""The page of a plan, in a real browser: what is hovered is named, what is hidden goes, and all charts show the same steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.browser_page import Browser

pytest.importorskip("onnx")

from support import plan_models as models

from memprof.plan.analysis import Question, analyse, planned
from memprof.plan.graphs.read import read
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
