"""What a notebook and `memprof run` show first: the peak and the latency, as tables, and never a timeline's bytes."""

from __future__ import annotations

import re

import pytest
from made import run, runs

import memprof
from memprof.api import Runs
from memprof.errors import MemprofError
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
