"""What a file can hold is shown and never obeyed: words that would steer a terminal or a spreadsheet, and figures that no machine has."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.explanations import explanation
from support.sample_runs import run, runs, timeline

from memprof.base.errors import InputError
from memprof.base.terminal_text import plain
from memprof.doors.cli import answer_format
from memprof.explain.records import SLICES, PhaseLook, Slice
from memprof.records import store
from memprof.records.types import Outcome, Run
from memprof.reports import frame, page, trace
from memprof.reports.pictures import choosing, saving
from memprof.reports.tables import comparison, explain, grid, table
from memprof.verdicts import compare

LINK = "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x07\x9b31m"


def test_plain_text_without_control_characters():
    assert "\x1b" not in plain(LINK) and "\x07" not in plain(LINK) and "\x9b" not in plain(LINK)
    assert plain("a\nb\t c") == "a b c"
    assert plain("file-\udcff") == "file-\\udcff"
    assert plain("模型 ünï\u202e") == "模型 ünï�"


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("`memprof run` of it; `--set a=1` too", "`memprof run` of it; `--set a=1` too"),
        ("`a` | b\\ <c>", "\\`a\\` \\| b\\\\ `<c>`"),
        ("the list `_kept` of it", "the list `_kept` of it"),
        ("in <module>, of std::vector<long>& a<b|c", "in `<module>`, of `std::vector<long>&` a&lt;b\\|c"),
        ("std::vector<long unsigned int>& of() but 1 < 2 and 3 > 2", "`std::vector<long unsigned int>&` of() but 1 `<` 2 and 3 > 2"),
        ("`memprof a|b` `memprof <b>`", "\\`memprof a\\|b\\` \\`memprof &lt;b>\\`"),
        ("`memprof", "\\`memprof"),
    ],
)
def test_own_commands_stay_code(text, markdown):
    assert grid.escaped(text) == markdown
    assert grid.say_in("text")(text) == text


def test_own_commands_are_code_on_page():
    page_text = page.render([replace(run(), warnings=("so `memprof run --set a=1` with --top-k, a--b or -- 3 differs from `<b>`",))])

    assert "so <code>memprof run --set a=1</code> with <code>--top-k</code>, a--b or -- 3 differs from `&lt;b&gt;`" in page_text


@pytest.mark.parametrize("style", ["phases", "models", "swap", "load"])
def test_table_without_escapes(style):
    failed = replace(run(LINK, 2, outcome=Outcome("error", phase="PREPARE", message=LINK)), warnings=(LINK,))

    made = [run(LINK, model=LINK), failed]
    text = table.render(made, style=style) + table.render(made, style=style, format="html") + table.render(made, format="csv")

    assert not any(mark in text for mark in "\x1b\x07\x9b")


@pytest.mark.parametrize("terminal", [True, False])
def test_markdown_escapes_kept_from_terminal(monkeypatch, terminal):
    name = "<module> a|b `c`"
    made = runs(name, model=name)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    form = answer_format(as_json=False)
    compared = comparison.render(compare.compare(made, made, ("rss_peak_bytes",)), all_rows=True, format=form)

    for text in (table.render(made, format=form), compared):
        assert (name in text) is terminal
        assert ("`<module>` a\\|b \\`c\\`" in text) is not terminal


def test_message_without_escapes(memprof, tmp_path):
    (tmp_path / "runs.jsonl").write_bytes(store.encode(run(LINK, outcome=Outcome("error", phase="PREPARE", message=LINK))))

    done = memprof("plot", "peaks", "runs.jsonl", "-o", "x.png")

    assert done.returncode == 5
    assert not any(mark in done.stderr for mark in "\x1b\x07\x9b")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1"])
def test_csv_cell_is_no_formula(name):
    rows = list(csv.DictReader(io.StringIO(table.render([run(name, model=name)], format="csv"))))

    assert {row["variant"] for row in rows} == {row["model"] for row in rows} == {f"'{name}"}
    assert all(not row["rss_end_bytes"].startswith("'") for row in rows)


def large(value: int) -> Run:
    made = run("a")
    return replace(made, marks=(*made.marks[:-1], replace(made.marks[-1], rss_end_bytes=value, anon_end_bytes=value)))


DOORS = {
    "tables": table.render,
    "csv": lambda runs: table.render(runs, format="csv"),
    "swap": lambda runs: table.render(runs, style="swap"),
    "frame": frame.runs_frame,
    "samples": frame.timeline_frame,
    "page": page.render,
    "trace": trace.render,
    "pictures": choosing.chosen,
}


@pytest.mark.parametrize("value", [2**63, 10**30, 10**400])
@pytest.mark.parametrize("door", DOORS)
def test_impossible_figure_refused(door, value):
    with pytest.raises(InputError, match="a, repeat 1: it holds a figure larger than any machine has"):
        DOORS[door]([large(value)])


def test_impossible_figure_of_outcome_refused():
    failed = run("a", outcome=Outcome("signal", phase="PREPARE", signal="SIGSEGV", rss_last_bytes=10**400))

    with pytest.raises(InputError, match="larger than any machine has"):
        table.render([failed])


@pytest.mark.parametrize("value", [2**63, 10**400])
def test_impossible_explanation_refused(value):
    made = explanation(weight_bytes=value)

    for show in (explain.render, lambda made: page.render([run("a")], explanations=[made])):
        with pytest.raises(InputError, match=r"the explanation of net\.onnx: it holds a figure larger than any machine has"):
            show(made)


def test_oversized_slice_is_full_bar():
    text = explain.render(explanation(phases=(PhaseLook("EXECUTE", 1, (Slice(SLICES[0], 2**60, "how"),)),)))

    assert len(text) < 10_000


def test_empty_timeline_has_no_window():
    made = run("a")
    empty = replace(made, timeline=replace(timeline(()), samples=5))

    with pytest.raises(InputError, match="there is no row in it"):
        table.render([empty], style="swap", window="PREPARE")


def test_plot_peaks_without_peaks(memprof, tmp_path):
    profile = Path(__file__).parents[2] / "data" / "onnxruntime_profile.json"
    assert memprof("import", profile, "-o", "runs.jsonl").returncode == 0

    done = memprof("plot", "peaks", "runs.jsonl", "-o", "x.png")

    assert done.returncode == 5
    assert "no run here has a memory peak of a phase" in done.stderr and len(done.stderr.splitlines()) == 1


def test_report_written_into_pipe(memprof, tmp_path):
    (tmp_path / "runs.jsonl").write_bytes(store.encode(run()))

    done = memprof("trace", "runs.jsonl", "-o", "/dev/stdout")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["traceEvents"]


def test_picture_too_large_refused(tmp_path):
    from matplotlib.figure import Figure

    with pytest.raises(InputError, match="cannot be drawn as one picture"):
        saving.save(Figure(figsize=(1, 200_000)), tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []
