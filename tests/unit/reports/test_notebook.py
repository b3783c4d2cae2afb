"""What a notebook and `memprof run` show first: the peak and the latency, as tables, and never a timeline's bytes."""

from __future__ import annotations

import re

import pytest
from support.sample_runs import runs

import memprof
from memprof.base.errors import UsageError
from memprof.doors.api import Runs
from memprof.reports.tables import table

RUNS = Runs([*runs("a"), *runs("b", (5, 6))])


def test_runs_shown_as_tables():
    shown = RUNS._repr_html_()

    assert re.findall("<caption>(.*?)</caption>", shown) == ["RSS peak (MiB)"]
    assert repr(RUNS) == "<7 runs of 1 model, 2 variants>"
    assert RUNS._repr_markdown_() == table.render(RUNS, brief=True)
    assert len(repr(RUNS[0])) < 10_000
    assert Runs()._repr_html_() == "no runs"


def test_summary_shown_as_tables():
    rows = memprof.summarise(RUNS)

    shown = rows._repr_markdown_()
    assert repr(rows).endswith(" rows of statistics>")
    assert "RSS peak (MiB)" in shown
    assert re.search(r"\| a +\| PEAK +\| +270\.2 \| +270\.2 \| +270\.0 \| +270\.4 \| +0\.158 \| +5 \|", shown)
    assert "<caption>RSS peak (MiB)</caption>" in rows._repr_html_()


def test_brief_tables():
    assert "Anonymous memory" in table.render(RUNS) and "Anonymous memory" not in table.render(RUNS, brief=True)
    assert "Anonymous memory" in table.render(RUNS, ["anon_end_bytes"], brief=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"threads": "2"}, "threads='2': give 2 or [1, 2, 4]"),
        ({"shapes": "x=1,3"}, "shapes='x=1,3': give {'x': (1, 3, 224, 224)}, the sizes by the input's name"),
        ({"set": "arena=off"}, "set='arena=off': give {'arena': 'off'}, each knob and its value a text"),
        ({"timeout": -1}, "timeout=-1: give '30s' or a number of seconds"),
        ({"repeats": 2.5}, "repeats=2.5: give a whole number"),
    ],
)
def test_measure_argument_refusals(words, said):
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        memprof.measure("s.json", "synthetic", **words)


def test_measure_accepts_single_numbers(monkeypatch):
    class Planned(Exception):
        pass

    def planned(suite):
        raise Planned(suite)

    monkeypatch.setattr("memprof.doors.api.plan", planned)
    numpy = pytest.importorskip("numpy")

    with pytest.raises(Planned) as caught:
        variant = memprof.Variant("synthetic", "v", threads=2)
        shapes = {"x": 4, "y": numpy.array([1, 3])}
        memprof.measure("s.json", "synthetic", variant, threads=2, timeout=1.5, shapes=shapes, cmds="a=true")

    suite = caught.value.args[0]
    assert (suite.threads, suite.timeout_ns) == ((2,), 1_500_000_000)
    assert suite.shapes == {"x": (4,), "y": (1, 3)} and type(suite.shapes["y"][0]) is int
    assert [(variant.name, variant.threads) for variant in suite.variants] == [("v", (2,)), ("a", ())]
