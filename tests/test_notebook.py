"""What a notebook and `memprof run` show first: the peak and the latency, as tables, and never a timeline's bytes."""

from __future__ import annotations

import re

import pytest
from made import run, runs

import memprof
from memprof.api import Runs
from memprof.errors import MemprofError, UsageError
from memprof.reports.tables import table

RUNS = Runs([*runs("a"), *runs("b", (5, 6))])


def test_runs_show_themselves_as_tables():
    shown = RUNS._repr_html_()

    assert re.findall("<caption>(.*?)</caption>", shown) == ["RSS peak (MiB)", "Latency (ms)", "EXECUTE, one iteration (ms)"]
    assert repr(RUNS) == "<7 runs of 1 model, 2 variants>"
    assert RUNS._repr_markdown_() == table.render(RUNS, brief=True)
    assert len(repr(RUNS[0])) < 10_000
    assert Runs()._repr_html_() == "no runs"


def test_names_in_a_notebook_stay_text():
    shown = Runs([run("<script>alert(1)</script>", model="<b>")])._repr_html_()

    assert "<script" not in shown and "<b>" not in shown


def test_a_summary_shows_itself_as_tables():
    rows = memprof.summarise(RUNS)

    shown = rows._repr_markdown_()
    assert repr(rows).endswith(" rows of statistics>")
    assert "RSS peak (MiB)" in shown
    assert re.search(r"\| a +\| PEAK +\| +270\.2 \| +270\.2 \| +270\.0 \| +270\.4 \| +0\.158 \| +5 \|", shown)
    assert "<caption>RSS peak (MiB)</caption>" in rows._repr_html_()


def test_the_brief_tables_are_the_peak_and_the_latency():
    titles = [made.title for section in table.sections(RUNS, table.BRIEF, iterations=True) for made in section.tables]

    assert titles == ["RSS peak (MiB)", "Latency (ms)", "EXECUTE, one iteration (ms)"]
    assert "Anonymous memory" in table.render(RUNS) and "Anonymous memory" not in table.render(RUNS, brief=True)
    assert "Anonymous memory" in table.render(RUNS, ["anon_end_bytes"], brief=True)


def test_run_prints_every_table_when_asked(memprof, tmp_path):
    (tmp_path / "s.json").write_text('{"load": [{"allocate": "w", "bytes": 1000000}]}')
    words = ["run", "s.json", "-r", "synthetic", "--repeats", "1", "--runs", "1", "--warmup", "0"]

    brief, whole = memprof(*words, "-o", "a.jsonl"), memprof(*words, "-o", "b.jsonl", "--all")

    assert brief.returncode == whole.returncode == 0
    assert brief.stdout.index("RSS peak") < brief.stdout.index("Latency")
    assert "Anonymous memory" not in brief.stdout and "Anonymous memory" in whole.stdout


@pytest.mark.parametrize(
    "words",
    [
        {"models": ["s.json"]},
        {"models": ["s.json"], "cmds": ["a=true", "a=true"]},
        {"cmds": ["a=echo {threads}"], "threads": ()},
        {"cmds": ["a=echo x"], "threads": [1, 2]},
        {"cmds": ["a=true"], "output": "taken.jsonl"},
        {"models": "s.json", "runtimes": "synthetic", "repeats": 0},
        {"models": "s.json", "runtimes": "synthetic", "cache": "hot"},
        {"models": ["s.json", "other/../s.json"], "runtimes": "synthetic"},
        {"models": "s.json", "runtimes": "synthetic", "threads": "2"},
        {"models": "s.json", "runtimes": "synthetic", "threads": ""},
        {"models": "s.json", "runtimes": "synthetic", "threads": 1.5},
        {"models": "s.json", "runtimes": "synthetic", "threads": True},
        {"models": "s.json", "runtimes": "synthetic", "threads": 0},
        {"models": "s.json", "runtimes": "synthetic", "timeout": -1},
        {"models": "s.json", "runtimes": "synthetic", "timeout": float("nan")},
        {"models": "s.json", "runtimes": "synthetic", "timeout": None},
        {"models": "s.json", "runtimes": "synthetic", "shapes": "x=1,3"},
        {"models": "s.json", "runtimes": "synthetic", "shapes": {"x": "1x3"}},
        {"models": "s.json", "runtimes": "synthetic", "shapes": {"x": (1, "3")}},
        {"models": "s.json", "runtimes": "synthetic", "shapes": {"x": -4}},
        {"models": "s.json", "runtimes": "synthetic", "set": "arena=off"},
        {"models": "s.json", "runtimes": "synthetic", "set": {"arena": False}},
        {"models": "s.json", "runtimes": "synthetic", "runs": "5"},
        {"models": "s.json", "variants": "a=synthetic"},
        {"models": "s.json", "variants": ["a=synthetic"]},
        {"models": "s.json", "variants": [memprof.Variant("synthetic", set="arena=off")]},
        {"models": "s.json", "variants": [memprof.Variant("synthetic", shapes="x=1,3")]},
        {"models": "s.json", "variants": [memprof.Variant("synthetic", threads="2")]},
        {"models": "s.json", "runtimes": 5},
        {"models": 5, "runtimes": "synthetic"},
    ],
)
def test_the_library_does_not_speak_of_options_of_the_command_line(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "taken.jsonl").write_text("{}")

    with pytest.raises(MemprofError) as caught:
        memprof.measure(**words)

    assert not re.search(r"(^|\s)-{1,2}[a-zA-Z]", str(caught.value))


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
def test_an_argument_of_another_type_is_refused_with_what_to_give(words, said):
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        memprof.measure("s.json", "synthetic", **words)


def test_a_number_is_taken_for_one_thread_count_one_dimension_or_seconds(monkeypatch):
    class Planned(Exception):
        pass

    def planned(suite):
        raise Planned(suite)

    monkeypatch.setattr("memprof.api.plan", planned)
    numpy = pytest.importorskip("numpy")

    with pytest.raises(Planned) as caught:
        variant = memprof.Variant("synthetic", "v", threads=2)
        shapes = {"x": 4, "y": numpy.array([1, 3])}
        memprof.measure("s.json", "synthetic", variant, threads=2, timeout=1.5, shapes=shapes, cmds="a=true")

    suite = caught.value.args[0]
    assert (suite.threads, suite.timeout_ns) == ((2,), 1_500_000_000)
    assert suite.shapes == {"x": (4,), "y": (1, 3)} and type(suite.shapes["y"][0]) is int
    assert [(variant.name, variant.threads) for variant in suite.variants] == [("v", (2,)), ("a", ())]
