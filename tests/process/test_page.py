"""The page: what it says, and what it does in a real browser (a headless Chromium without a network)."""

from __future__ import annotations

import base64
import html
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy
import pytest
from msgspec.structs import replace
from support.browser_page import Browser
from support.growth_runs import followed
from support.pages import contrast
from support.recorder_runs import wait_for
from support.sample_runs import MIB, machine, mark, run, runs, timeline

from memprof.base.errors import InputError
from memprof.plan.measured import Measured
from memprof.records import store
from memprof.records.types import Outcome, Run
from memprof.reports import page, standalone
from memprof.reports.page import drawn, words
from memprof.reports.tables import table

pytestmark = pytest.mark.xdist_group("browser")  # one worker starts the browser


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


CRASH = Outcome("signal", phase="PREPARE", signal="SIGSEGV", rss_last_bytes=200 * MIB)


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "quotes \" ' ` & %{x} ${y} {{ 7*7 }} <b>",
    "two\nlines",
    "x" * 200,
    "模型 ünï عربى 🧠 \u202e",
    "a|b \\ c",
)


SECTIONS = ["finding", "comparison", "peaks", "timelines", "latencies", "failures", "conditions"]


def load_and_prepare(load: float, prepare: float) -> dict[str, tuple[float, float]]:
    return {"STARTUP": (40, 40), "MODEL_LOAD": (load, load), "PREPARE": (prepare, prepare), "WARMUP": (50, 51), "EXECUTE": (50, 51)}


def text_of(markup: object) -> str:
    return re.sub(r"<[^>]+>", "", str(markup)).replace("&#39;", "'").replace("&#34;", '"').replace("&amp;", "&")


def finding(made: Sequence[Run]) -> str:
    return " | ".join(text_of(sentence) for sentence in words.model(made).findings)


def test_finding_names_extremes_and_difference():
    made = [*runs("a", memory=load_and_prepare(100, 150)), *runs("b", memory=load_and_prepare(300, 200)), *runs("c")]

    assert finding(made) == "Of 3 variants, b peaks highest, at 300.2 MiB in MODEL_LOAD: 150.0 MiB (100%) more than a, the lowest, " + (
        "which peaks at 150.2 MiB in PREPARE."
    )


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ([run("a")], "a peaks at 270.0 MiB in PREPARE: 230.0 MiB above the 40.0 MiB of the runtime with no model loaded."),
        (
            [run("a", runtime="command")],
            "a peaks at 270.0 MiB in PREPARE: 230.0 MiB above the 40.0 MiB of the program before its first phase.",
        ),
        ([run("a", exact=False)], "~270.0 MiB"),
        ([run("a", outcome=CRASH)], "No run ended well, so there is no peak to report. 1 run of 1 failed, all of “a”."),
        ([*runs("a"), run("b", outcome=CRASH)], "1 run of 6 failed, all of “b”."),
        ([*runs("a"), run("a", 6, outcome=CRASH)], "1 run of 6 failed."),
        ([run("a"), run("b", outcome=CRASH), run("a", 2, outcome=CRASH)], "2 runs of 3 failed, among them all of “b”."),
        ([*runs("a", (0, 9)), *runs("b", (5, 6))], "a difference within the spread of their repeats"),
        ([*runs("a", (0, 0.1)), *runs("b", (0.2, 0.3))], "a difference finer than the kernel counts"),
        (
            [*runs("a", (0, 0, 0, 8, 8)), *runs("b", (20,) * 5)],
            "b peaks highest, at 290.0 MiB in PREPARE: 12.0 MiB or 20.0 MiB more than a, the lowest, which peaks at 270.0 MiB or 278.0 MiB in",
        ),
        ([run("a"), run("b", extra_mib=9)], "with a single repeat, so that noise is not known"),
        ([*runs("a", (0, 0)), *runs("b", (0, 0)), *runs("c", (0, 0))], "All 3 variants peak alike, at 270.0 MiB in PREPARE."),
        (
            [run("a", threads=1), run("a", threads=2), run("a", threads=4, extra_mib=5)],
            "Of 3 variants and thread counts, a, 4 threads peaks highest",
        ),
    ],
)
def test_finding_states_limits(made, said):
    assert said in finding(made)


def test_finding_names_near_phases():
    memory = {"STARTUP": (40, 40), "PREPARE": (200, 200), "EXECUTE": (200, 200.2)}

    assert "at 200.2 MiB in PREPARE and EXECUTE: 160.2 MiB above" in finding([run(memory=memory)])
    assert "at 200.2 MiB in EXECUTE: " in finding([run(memory=memory, where=machine(peak_bound_bytes=4096))])


def test_finding_per_machine():
    made = [*runs("a"), *runs("b", (50, 51)), *runs("a", (500, 501), where=machine("board"))]

    assert finding(made) == (
        "On here, b peaks highest, at 320.5 MiB in PREPARE: 50.3 MiB (19%) more than a, the lowest, which peaks at 270.2 MiB in PREPARE. | "
        "On board, a peaks at 770.5 MiB in PREPARE: 730.5 MiB above the 40.0 MiB of the runtime with no model loaded."
    )
    assert any("2 machines (here, board)" in notice for notice in words.notices(made, ()))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"where": machine(kernel="6.1")}, "kernel"),
        ({"where": machine(libc="glibc 2.40", cpus_usable=1)}, "CPUs, C library"),
    ],
)
def test_notice_of_unlike_repeats(changes, said):
    notices = words.notices([run("a"), run("a", 2, **changes)], ())

    assert notices == [f"a: its repeats were not measured alike, they differ in {said}. Its medians are over all of them."]
    assert words.notices([run("a"), run("b", **changes)], ()) == []


def samples(count: int, highest: int) -> list[tuple[int, int, int, int]]:
    return [
        (place * 200_000, 40 * MIB + (place % 7) * 4096 + (highest if place == count // 2 else 0), 10 * MIB, 0) for place in range(count)
    ]


def test_page_size_stays_bounded(monkeypatch):
    drew = []
    monkeypatch.setattr(drawn, "page", lambda *words, page=drawn.page: drew.append(page(*words)) or drew[-1])
    long_run = run(samples=samples(5_000, 99 * MIB))
    made = [replace(long_run, job=replace(long_run.job, repeat=repeat)) for repeat in range(1, 201)]

    text = page.render(made)

    assert len(text) < 5 << 20
    assert len(page.render([run()])) < 150 << 10
    highest = max(numpy.frombuffer(_decoded(trace.rss), dtype="<u4").max() for trace in drew[0].models[0].groups[0].traces)
    assert highest >= (40 + 99) * 1024


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)


def test_timeline_ends_with_last_phase():
    made = run(samples=[(0, 5 * MIB, MIB, 0), (4_350_000_000, 265 * MIB, 10 * MIB, 0), (4_900_000_000, MIB, 0, 0)])

    (trace,) = drawn.page([[made]]).models[0].groups[0].traces

    t = numpy.frombuffer(_decoded(trace.t), dtype="<u4")
    assert t[-1] * trace.tick_ns == 4_400_000_000
    assert numpy.frombuffer(_decoded(trace.rss), dtype="<u4")[-1] == 265 * 1024


def test_timeline_of_hours_fits():
    made = run(samples=[(0, MIB, 0, 0), (10**14, MIB, 0, 0)], outcome=CRASH)

    (trace,) = drawn.page([[made]]).models[0].groups[0].traces

    last = numpy.frombuffer(_decoded(trace.t), dtype="<u4")[-1] * trace.tick_ns
    assert math.isclose(last, 10**14, rel_tol=1e-6)


def test_timeline_damaged_refused():
    broken = replace(run("a"), timeline=replace(timeline([(0, 1, 1, 1), (1, 2, 2, 2)]), rss="AAAA"))

    with pytest.raises(InputError, match="the timeline of a, repeat 1, is damaged"):
        page.render([broken])


def test_latencies_thinned_keep_extremes():
    slow = replace(mark("EXECUTE", 4, 265, 268), times_ns=tuple(range(1, 100_001)))
    made = run("a")
    made = replace(made, marks=(*made.marks[:-1], slow))

    latencies = drawn.page([[made]]).models[0].groups[0].latencies

    assert latencies is not None
    assert latencies.count == 100_000
    assert len(latencies.points) <= 6_000
    assert {1, 100_000} <= {time_ns for _, _, time_ns in latencies.points}
    assert latencies.box_ns == pytest.approx((1, 25_000.75, 50_000.5, 75_000.25, 100_000))


def test_latency_of_page_is_that_of_tables():
    """One slow repeat moves the median of all iterations together, and not that of the repeats."""
    times = ((10, 11, 12), (10, 12, 14), (90, 91, 92, 93, 94, 95, 96))
    made = [run("a", repeat) for repeat in (1, 2, 3)]
    runs = [
        replace(one, marks=(*one.marks[:-1], replace(mark("EXECUTE", 4, 265, 268), times_ns=own)))
        for one, own in zip(made, times, strict=True)
    ]

    latencies = drawn.page([runs]).models[0].groups[0].latencies

    assert latencies is not None and (latencies.median_ns, latencies.box_ns[2]) == (12, 90)


def test_page_escapes_script_content():
    failed = Outcome("error", phase="PREPARE", message="</pre><script>alert(3)</script>")
    text = page.render([run(name, model=name) for name in HOSTILE] + [run("b", model="m", outcome=failed)], sources=HOSTILE)

    assert text.count("</script>") == text.count("<script") == 4
    assert "alert(3)</script>" not in text
    assert "onerror=alert(2)>" not in text


def test_plan_missing_has_reason():
    plans = {"net.onnx": (Measured("", (), None, "the model is no longer at /x/<net>"),)}

    planned = page.render([run("a")], plans=plans).partition('id="planned"')[2]

    assert "<li>Not planned: the model is no longer at /x/&lt;net&gt;.</li>" in planned


def test_plans_absent_for_program():
    made = run("a", model="sleep", argv=("sleep", "1"))
    program = replace(made, job=replace(made.job, model=replace(made.job.model, files=())))
    plans = {"sleep": (Measured("", (), None, "graphs are read from .onnx files"),), "net.onnx": (Measured("", (), None, "no"),)}

    assert 'id="planned"' not in page.render([program], plans=plans)
    assert "Nothing is planned here: a program has no graph" in page.render([program, run("a")], plans=plans)


def test_page_fetches_nothing():
    text = page.render([run()])

    outside = text.replace(standalone.asset("memprof.reports.web", "uplot/uPlot.js"), "")
    assert not re.findall(r"""(?:src|href)=(?!["']?(?:#|data:))""", outside)
    assert "http" not in outside.replace("http-equiv", "")
    assert "default-src 'none'" in html.unescape(outside)


def test_themes_have_enough_contrast():
    style = standalone.asset("memprof.reports.web", "common.css")
    light, dark = (dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", block)) for block in re.findall(r":root[^{]*\{([^}]*)\}", style)[:2])

    for theme in (light, dark):
        for ground in ("page", "panel"):
            assert all(contrast(theme[name], theme[ground]) >= 4.5 for name in ("ink", "muted", "accent", "bad"))
        assert contrast(theme["ink"], theme["warn"]) >= 4.5
        assert all(contrast(theme[f"v{place}"], theme["page"]) >= 3 for place in range(7))


def test_page_writes_and_replaces(memprof, tmp_path):
    write_runs(tmp_path / "runs.jsonl", runs())

    for _ in range(2):
        done = memprof("page", "runs.jsonl", "-o", "report.html")
        assert (done.returncode, done.stdout) == (0, "")
        assert "report.html holds the page" in done.stderr
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        ("nowhere/report.html", 5, "there is no folder nowhere"),
        ("folder", 5, "it is a folder"),
        ("/proc/report.html", 5, "/proc/report.html cannot be written"),
        ("runs.jsonl", 5, "runs.jsonl exists and is not a page of memprof's; it was left as it is"),
        ("notes.txt", 5, "notes.txt exists and is not a page of memprof's; it was left as it is"),
    ],
)
def test_page_output_refusals(memprof, tmp_path, output, code, said):
    write_runs(tmp_path / "runs.jsonl", runs())
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("mine")

    done = memprof("page", "runs.jsonl", "-o", output)

    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("content", "said"), [("", "holds no complete run"), ("no\n", "not a run of memprof")])
def test_page_without_runs_writes_nothing(memprof, tmp_path, content, said):
    (tmp_path / "runs.jsonl").write_text(content)

    done = memprof("page", "runs.jsonl", "-o", "report.html")

    assert done.returncode == 5
    assert said in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_page_file_name_not_utf8(memprof, tmp_path):
    name = os.fsdecode(b"runs-\xff.jsonl")
    write_runs(tmp_path / name, runs())

    done = memprof("page", name, "-o", "report.html")

    assert done.returncode == 0, done.stderr
    assert "runs-\\udcff.jsonl" in (tmp_path / "report.html").read_text()


def test_page_without_output_names_option(memprof, tmp_path):
    done = memprof("page", write_runs(tmp_path / "runs.jsonl", runs()))

    assert done.returncode == 2
    assert "-o" in done.stderr


def test_view_failure_leaves_nothing(memprof, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "runs.jsonl").write_text("")

    done = memprof("view", "runs.jsonl")

    assert done.returncode == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.jsonl"]


# The table of the chosen metric, of the model that is shown.
TABLE = "[...document.querySelectorAll('#table table')].find((table) => table.checkVisibility())"


def column(browser: Browser, place: int) -> list[str]:
    return [row[place] for row in cells(browser)[1:]]


def cells(browser: Browser) -> list[list[str]]:
    """The texts of the table's rows that are seen, its heading first; none where no table is."""
    rows = browser.js(
        f"return [...({TABLE}?.rows || [])].filter((row) => !row.hidden).map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return [[str(text) for text in row] for row in rows]


def caption(browser: Browser) -> str:
    return str(browser.js(f"return {TABLE}.caption.innerText"))


@pytest.fixture
def comparison() -> list[Run]:
    """Three variants, of which one fails in PREPARE and one is inexact."""
    return [
        *runs("fat", memory=load_and_prepare(150, 300)),
        *runs("lean", memory=load_and_prepare(100, 120), exact=False),
        *(run("broken", repeat, outcome=CRASH) for repeat in (1, 2)),
    ]


def test_page_of_program_names_no_model():
    made = run("app.py", model="app.py", runtime="command")
    program = replace(made, job=replace(made.job, model=replace(made.job.model, files=())))

    text, of_runtime = page.render([program]), page.render([run()])

    assert "Model files" not in text and "no model loaded" not in text
    assert "the program before its first phase</span>" in text
    assert "Model files" in of_runtime and "the runtime with no model loaded</span>" in of_runtime


def test_page_sections_in_order(browser, comparison):
    opened(browser, comparison)

    tops = browser.js("return arguments[0].map((id) => document.getElementById(id).getBoundingClientRect().top)", SECTIONS)
    assert tops == sorted(tops)
    assert browser.js("return [...document.querySelectorAll('main section')].map((element) => element.id)") == SECTIONS
    assert browser.js("return document.querySelectorAll('#lines canvas').length") == 3
    assert browser.js("return document.querySelectorAll('#strips canvas').length") == 2
    assert "fat peaks highest, at 300.2 MiB in PREPARE" in browser.find("#finding").text
    assert "ended by SIGSEGV in PREPARE, its RSS last 200.0 MiB" in browser.find("#failures").text
    conditions = browser.find("#conditions").text
    assert all(fact in conditions for fact in ("a CPU (x86_64)", "6.18", "glibc 2.36", "onnxruntime 1.0", "00" * 32, "/models/net.onnx"))


def test_page_tables_match_command_line(browser, comparison):
    opened(browser, comparison)

    for metric in ("rss_peak_bytes", "time_ns", "anon_end_bytes", "minor_faults"):
        browser.js(
            "const choice = document.getElementById('metric'); choice.value = arguments[0]; choice.dispatchEvent(new Event('change'))",
            metric,
        )
        assert cells(browser) == grid(table.render(comparison, [metric]))


def test_peak_without_swapped_pages_marked(browser):
    made = [replace(each, marks=tuple(replace(mark, swap_peak_bytes=171 << 20) for mark in each.marks[-1:])) for each in runs("a")]
    opened(browser, made)

    phase = made[0].marks[-1].phase
    assert sum(text.startswith("≥") for row in cells(browser) for text in row) == 2  # in its phase and in PEAK
    assert f"≥ at least: pages were swapped out (171.0 MiB in {phase}, at most)" in browser.find("#table").text
    assert "≥" in browser.find("#peaks .bars").text


def grid(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_choices_of_metric_and_baseline(browser, comparison):
    opened(browser, comparison)
    assert (caption(browser), column(browser, 6)[0]) == ("RSS peak (MiB)", "300.2 ±0.2")

    browser.find("#above").click()
    assert (caption(browser), column(browser, 6)[0], column(browser, 1)[0]) == (
        "RSS peak above the baseline (MiB)",
        "260.2 ±0.2",
        "40.0 ±0.0",
    )

    browser.choose("metric", "Latency")
    assert (caption(browser), column(browser, 3)[0]) == ("Latency (ms)", "22.0 ±0.0")
    assert not browser.js("return document.getElementById('above').checkVisibility()")


def test_missing_cells_give_reason(browser, comparison):
    opened(browser, comparison)

    assert column(browser, 3)[2] == "failed (SIGSEGV)"
    assert column(browser, 4)[2] == "-"
    assert "broken: failed in 2 of 2 repeats: ended by SIGSEGV in PREPARE" in browser.find("#table .notes").text

    opened(browser, [run("a"), replace(run("b"), marks=tuple(replace(mark, anon_end_bytes=None) for mark in run("b").marks))])
    assert "anonymous and file-backed memory: -, the kernel does not say it" in browser.find("#table .notes").text


def test_heading_sorts_and_resets(browser, comparison):
    opened(browser, comparison)
    heading = "#table [data-metric='rss_peak_bytes'][data-above='False'] button[data-column='6']"

    orders, said = [], []
    for _ in range(3):
        browser.find(heading).click()
        orders.append(column(browser, 0))
        said.append(browser.js("return document.querySelector(arguments[0]).parentElement.getAttribute('aria-sort')", heading))

    assert orders == [["lean", "fat", "broken"], ["fat", "lean", "broken"], ["fat", "lean", "broken"]]
    assert said == ["ascending", "descending", "none"]


def test_variants_hidden_everywhere(browser, comparison):
    opened(browser, comparison)

    browser.find(".variants .chip:nth-of-type(1)").click()

    assert column(browser, 0) == ["lean", "broken"]
    assert "fat" not in browser.find("#peaks .bars").text
    assert "fat" not in browser.find("#latencies").text
    browser.wait("return !document.getElementById('lines').innerText.includes('fat')")


def test_timelines_view_span_and_zoom(browser, comparison):
    opened(browser, comparison)
    assert browser.js(RANGES) == [[0, 4.4]] * 3

    browser.drag("#lines .u-over", 1, 3)
    browser.wait(f"return (() => {{ {RANGES} }})().every((range) => range[0] === 1 && range[1] === 3)")
    browser.find("#reset").click()
    browser.wait(f"return (() => {{ {RANGES} }})().every((range) => range[0] === 0 && range[1] === 4.4)")
    browser.drag("#lines .u-over", 2, 4)
    browser.command("Input.dispatchMouseEvent", type="mousePressed", x=600, y=450, button="left", clickCount=2)
    browser.command("Input.dispatchMouseEvent", type="mouseReleased", x=600, y=450, button="left", clickCount=2)
    browser.wait(f"return (() => {{ {RANGES} }})().every((range) => range[0] === 0 && range[1] === 4.4)")

    browser.choose("span", "PREPARE")
    browser.wait("return document.getElementById('lines').innerText.includes('no finished PREPARE')")
    browser.choose("view", "one over the other")
    browser.find("#every").click()
    assert browser.js("return [...document.querySelectorAll('#lines .plot')].map((plot) => plot.chart.u.series.length - 1)") == [10]


def test_timeline_of_load_has_own_peak(browser):
    """The whole run peaks in EXECUTE, and what comes before it in PREPARE."""
    memory = {"STARTUP": (40, 40), "MODEL_LOAD": (140, 150), "PREPARE": (260, 270), "WARMUP": (265, 266), "EXECUTE": (265, 300)}
    opened(browser, [run(memory=memory)])
    assert "peak 300.0 MiB in EXECUTE" in browser.find("#lines").text

    browser.choose("span", "up to EXECUTE")
    browser.wait("return document.getElementById('lines').innerText.includes('peak 270.0 MiB in PREPARE')")


# The span of time that each chart shows, in the axis' unit.
RANGES = (
    "return [...document.querySelectorAll('#lines .plot')].map((plot) => plot.chart.u.scales.x)"
    ".map((scale) => [scale.min, scale.max].map((value) => Math.round(value * 10) / 10))"
)


def test_pointer_shows_sample(browser, comparison):
    opened(browser, comparison)

    said = browser.hover("#lines .u-over", 2.01)
    assert "2 s, PREPARE" in said
    assert "300.0 MiB RSS: 290.0 MiB anonymous, 10.0 MiB file-backed" in said
    said = browser.hover("#strips .u-over", 0.5)
    assert re.search(r"20\.0 ms to 24\.0 ms, the middle half 21\.0 ms to 23\.0 ms", said)

    browser.choose("view", "one over the other")
    browser.find("#every").click()
    assert re.search(r"(fat|lean), repeat \d", browser.hover("#lines .u-over", 2.01))


def test_models_can_be_switched(browser):
    opened(browser, [*runs("a"), *runs("b", (9, 9)), *runs("a", model="other.onnx"), run("c", model="other.onnx", outcome=CRASH)])
    assert "Every run ended well." in browser.find("#failures").text
    assert browser.js("return document.querySelectorAll('#finding .finding').length") == 2

    browser.find("[data-show='1']").click()

    assert column(browser, 0) == ["a", "c"]
    assert "ended by SIGSEGV" in browser.find("#failures").text
    assert "of other.onnx" in browser.find("#comparison h2").text


def test_hostile_names_and_messages_stay_text(browser):
    made = []
    for name in HOSTILE:
        failed = Outcome("error", phase="PREPARE", message=name + "\n" + name)
        made += [run(name, model=name), run("other", model=name, outcome=failed)]
    opened(browser, made)

    for place, name in enumerate(HOSTILE):
        browser.js(
            "const choice = document.getElementById('model'); choice.value = arguments[0]; choice.dispatchEvent(new Event('change'))", place
        )
        shown = " ".join(name.split())
        assert one_line(browser.js(f"return {TABLE}.querySelector('tbody th').textContent")) == shown
        assert one_line(browser.js("return document.querySelector('.finding.current h2').textContent")) == shown
        assert browser.js("return document.querySelector('#failures div:not([hidden]) pre').textContent") == name + "\n" + name
        if len(name) < 60:
            browser.wait(f"return {DRAWN_NAME}.includes({json.dumps(shown)})")
    assert browser.js("return document.querySelectorAll('img, iframe, main script, strong *, .name *:not(i)').length") == 0
    assert browser.js("return document.querySelectorAll('script').length") == 4


# What stands above the first strip of latencies.
DRAWN_NAME = "document.querySelector('#strips figcaption .name')?.textContent.replace(/\\s+/g, ' ')"


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_page_policy_blocks_foreign_code(chromium, comparison):
    opened(chromium, comparison)

    chromium.js("const bad = document.createElement('script'); bad.textContent = 'window.bad = 1'; document.body.append(bad)")
    chromium.js(
        "const bad = document.createElement('div'); bad.setAttribute('onclick', 'window.bad = 1'); document.body.append(bad); bad.click()"
    )
    chromium.js("window.failed = 0; fetch('http://127.0.0.1:9/').catch(() => { window.failed = 1; })")
    chromium.wait("return window.failed")

    assert chromium.js("return window.bad") is None
    said: list[str] = []
    wait_for(lambda: said.extend(chromium.complaints()) or sum("Content Security Policy" in each for each in said) >= 3)


def test_controls_work_by_keyboard(browser, comparison):
    from selenium.webdriver.common.keys import Keys

    opened(browser, comparison)
    reached = []
    while "reset" not in reached and len(reached) < 60:
        browser.press(Keys.TAB)
        reached.append(browser.js("const at = document.activeElement; return at.id || at.dataset.column || at.className || at.tagName"))
        if reached[-1] == "6" and reached.count("6") == 1:
            browser.press(Keys.ENTER)
            assert column(browser, 0) == ["lean", "fat", "broken"]
            assert browser.js("return document.activeElement.dataset.column") == "6"
            outline = browser.js("return getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
    wanted = ["metric", "above", "6", "peakPhase", "view", "span", "every", "reset"]
    assert [name for name in reached if name in wanted][: len(wanted)] == wanted

    browser.find(".variants input").send_keys(Keys.SPACE)
    assert column(browser, 0) == ["lean", "broken"]


def test_controls_have_names(browser, comparison):
    opened(browser, [*comparison, *runs("a", model="other")])

    nameless = browser.js(
        "return [...document.querySelectorAll('button, select, input, [role=region], [role=img], section')]"
        ".filter((element) => element.checkVisibility({ visibilityProperty: true }))"
        ".filter((element) => !(element.getAttribute('aria-label') || element.getAttribute('aria-labelledby')"
        " || element.innerText || element.labels?.length))"
        ".map((element) => element.outerHTML)"
    )
    assert nameless == []


CANVASES = "return [...document.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL())"


def test_theme_follows_system(browser, comparison):
    opened(browser, comparison, theme="dark")
    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    drawn = browser.js(CANVASES)
    assert len(drawn) == 5

    for theme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")):
        browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        browser.frames()
        assert browser.js("return getComputedStyle(document.body).backgroundColor") == ground
        before, drawn = drawn, browser.js(CANVASES)
        assert all(canvas != earlier for canvas, earlier in zip(drawn, before, strict=True))


def crowd() -> list[Run]:
    return [measured for place in range(14) for measured in runs(f"a runtime with knob {place} set to something", (place, place + 0.5))]


@pytest.mark.parametrize("made", [crowd, lambda: [run(name, repeat, model="x" * 200) for name in HOSTILE for repeat in (1, 2)]])
def test_page_fits_phone(browser, made: Callable[[], list[Run]]):
    opened(browser, made(), width=360)

    for view in ("one row for each", "one over the other"):
        browser.choose("view", view)
        browser.frames()
        assert browser.js("return document.documentElement.scrollWidth") <= 360
        assert browser.js("return document.body.scrollWidth") <= 360


def test_variants_beyond_limit_not_drawn(browser):
    opened(browser, crowd())

    assert len(column(browser, 0)) == 14
    assert browser.js("return [...document.querySelectorAll('.bars li')].filter((bar) => bar.checkVisibility()).length") == 12
    assert browser.find("#peaks .undrawn").text.startswith("Not drawn: 2 more.")
    browser.find(".variants button[value=none]").click()
    assert column(browser, 0) == []
    browser.find(".variants .chip:nth-of-type(13)").click()
    assert browser.js("return [...document.querySelectorAll('.bars li')].filter((bar) => bar.checkVisibility()).length") == 1
    assert browser.find("#peaks .undrawn").text == ""


def test_print_is_light(browser, comparison):
    opened(browser, comparison, theme="dark")
    drawn = browser.js(CANVASES)

    browser.command("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.frames()

    assert browser.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert all(canvas != before for canvas, before in zip(browser.js(CANVASES), drawn, strict=True))
    browser.command("Emulation.setEmulatedMedia", media="")
    assert len(browser.command("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]) > 20_000


@pytest.mark.parametrize(
    "made",
    [
        [run("a", outcome=Outcome("start", phase="STARTUP", message="no such file"))],
        [run("a", outcome=Outcome("lost", phase="after EXECUTE"))],
        [replace(run("a", outcome=Outcome("import", phase="STARTUP", message="no module")), timeline=timeline(()), marks=(), about=None)],
        [replace(run("a"), marks=tuple(replace(mark, times_ns=()) for mark in run("a").marks))],
        [run("a", memory={"STARTUP": (40, 40), "RUN": (90, 99), "<own phase>": (90, 99)})],
    ],
    ids=["start", "lost", "nothing", "no iterations", "own phases"],
)
def test_page_of_sparse_runs(browser, made):
    opened(browser, made)

    assert column(browser, 0) in (["a"], [])
    assert browser.find("#finding").text


def test_page_without_scripts_has_tables(browser, comparison):
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.load(page.render(comparison))
        shown = browser.driver.find_element("css selector", "body").text
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert "Scripts do not run here" in shown
    assert "300.2 ±0.2" in shown
    assert "failed (SIGSEGV)" in shown
    assert "above the baseline" not in shown


def test_growth_picture_and_verdict():
    text = page.render([followed(repeat, 65536) for repeat in (1, 2, 3)])

    assert "<li>net.onnx in a: grows. 64.0 KiB per iteration (95%: " in text
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    drawn = base64.b64decode(picture)
    assert b"<svg" in drawn and b"the rise" in drawn
    assert 'id="growth"' not in page.render([run()])


def test_growth_picture_in_browser(browser):
    opened(browser, [followed(repeat, 65536) for repeat in (1, 2, 3)])

    width, wide = browser.js("const image = document.querySelector('#growth img'); return [image.naturalWidth, image.clientWidth]")
    assert width > 300 and 300 < wide <= width
