"""What a file can hold is shown and never obeyed: words that would steer a terminal or a spreadsheet, and figures that no machine has."""

from __future__ import annotations

import csv
import io
import json
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from made import run, runs, timeline
from test_explain_command import explanation

from memprof.errors import InputError
from memprof.explain.records import SLICES, Phase, Slice
from memprof.plain import plain
from memprof.reports import frame, page, trace
from memprof.reports.page import explained
from memprof.reports.pictures import choosing, saving
from memprof.reports.tables import explain, table
from memprof.runs import store
from memprof.runs.records import Outcome, Run

LINK = "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x07\x9b31m"


def test_foreign_words_do_not_steer_a_terminal():
    assert "\x1b" not in plain(LINK) and "\x07" not in plain(LINK) and "\x9b" not in plain(LINK)
    assert plain("a\nb\t c") == "a b c"
    assert plain("file-\udcff") == "file-\\udcff"
    assert plain("模型 ünï\u202e") == "模型 ünï�"


@pytest.mark.parametrize("style", ["phases", "models", "swap", "load"])
def test_tables_show_escapes_and_do_not_write_them(style):
    failed = replace(run(LINK, 2, outcome=Outcome("error", phase="PREPARE", message=LINK)), warnings=(LINK,))

    made = [run(LINK, model=LINK), failed]
    text = table.render(made, style=style) + table.render(made, style=style, format="html") + table.render(made, format="csv")

    assert not any(mark in text for mark in "\x1b\x07\x9b")


def test_what_memprof_says_of_a_file_is_no_escape(memprof, tmp_path):
    (tmp_path / "runs.jsonl").write_bytes(store.encode(run(LINK, outcome=Outcome("error", phase="PREPARE", message=LINK))))

    done = memprof("plot", "peaks", "runs.jsonl", "-o", "x.png")

    assert done.returncode == 5
    assert not any(mark in done.stderr for mark in "\x1b\x07\x9b")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1"])
def test_a_cell_of_csv_is_no_formula(name):
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
def test_a_figure_that_no_machine_has_is_a_sentence(door, value):
    with pytest.raises(InputError, match="a, repeat 1: it holds a figure larger than any machine has"):
        DOORS[door]([large(value)])


def test_a_figure_beside_the_phases_is_no_figure_either():
    failed = run("a", outcome=Outcome("signal", phase="PREPARE", signal="SIGSEGV", rss_last_bytes=10**400))

    with pytest.raises(InputError, match="larger than any machine has"):
        table.render([failed])


@pytest.mark.parametrize("value", [2**63, 10**400])
def test_an_explanation_that_no_machine_has_is_a_sentence(value):
    made = explanation(weight_bytes=value)

    for show in (explain.render, explained.page_piece):
        with pytest.raises(InputError, match=r"the explanation of net\.onnx: it holds a figure larger than any machine has"):
            show(made)


def test_a_slice_larger_than_its_phase_is_a_full_bar():
    text = explain.render(explanation(phases=(Phase("EXECUTE", 1, (Slice(SLICES[0], 2**60, "how"),)),)))

    assert len(text) < 10_000


def test_a_timeline_whose_columns_are_empty_has_no_window():
    made = run("a")
    empty = replace(made, timeline=replace(timeline(()), samples=5))

    with pytest.raises(InputError, match="there is no row in it"):
        table.render([empty], style="swap", window="PREPARE")


def test_peaks_of_a_log_that_has_none_are_a_sentence(memprof, tmp_path):
    profile = Path(__file__).parent / "data" / "onnxruntime_profile.json"
    assert memprof("import", profile, "-o", "runs.jsonl").returncode == 0

    done = memprof("plot", "peaks", "runs.jsonl", "-o", "x.png")

    assert done.returncode == 5
    assert "no run here has a memory peak of a phase" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("page",), ("trace",), ("table", "--format", "csv")])
def test_a_full_disk_leaves_an_earlier_report_whole(memprof, tmp_path, words):
    (tmp_path / "runs.jsonl").write_bytes(b"".join(store.encode(made) for made in runs()))
    assert memprof(*words, "runs.jsonl", "-o", "report").returncode == 0
    before = (tmp_path / "report").read_bytes()

    # A file may have 512 bytes: what a full disk does to a report.
    done = memprof(
        *words, "runs.jsonl", "-o", "report", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
    )

    assert done.returncode == 5
    assert "report cannot be written" in done.stderr
    assert (tmp_path / "report").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "runs.jsonl"]


def test_a_report_can_be_written_into_a_pipe(memprof, tmp_path):
    (tmp_path / "runs.jsonl").write_bytes(store.encode(run()))

    done = memprof("trace", "runs.jsonl", "-o", "/dev/stdout")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["traceEvents"]


def test_a_picture_that_matplotlib_cannot_draw_is_a_sentence(tmp_path):
    from matplotlib.figure import Figure

    with pytest.raises(InputError, match="cannot be drawn as one picture"):
        saving.save(Figure(figsize=(1, 200_000)), tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []
