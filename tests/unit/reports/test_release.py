"""RELEASE: the last phase of a run, in which the runtime is deleted. What stays is shown; a failure there spoils nothing that came before."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace
from support.sample_runs import MIB, USUAL, run

from memprof.base.errors import EXIT_REGRESSION
from memprof.records import metrics, store, summary
from memprof.records.metrics import METRICS
from memprof.records.types import Outcome, Run
from memprof.reports import columns
from memprof.reports.pictures import peaks
from memprof.reports.pictures import timeline as picture
from memprof.reports.tables import swap, table
from memprof.verdicts import baseline, budgets, verdicts

PEAK = METRICS["rss_peak_bytes"]
RELEASED = {**USUAL, "RELEASE": (60, 400)}  # its peak is above all others
CRASHED = Outcome("signal", "RELEASE", signal="SIGSEGV")


def released(**words: object) -> Run:
    return run(memory=RELEASED, release=True, **words)  # type: ignore[arg-type]


def crashed(variant: str = "a", repeat: int = 1, **words: object) -> Run:
    return released(variant=variant, repeat=repeat, outcome=CRASHED, **words)


def test_peak_excludes_release():
    made = released()

    assert metrics.value(made, "PEAK", PEAK) == 270 * MIB
    assert summary.peak_phases([made]).level == ("PREPARE",)
    assert metrics.value(made, "RELEASE", PEAK) == 400 * MIB
    inexact = replace(made, marks=(*made.marks[:-1], replace(made.marks[-1], rss_peak_exact=False)))
    assert metrics.exact(inexact, "PEAK", PEAK)


def test_release_has_no_peak_column():
    text = table.render([released()])

    titles = dict(zip(text.split("\n\n"), text.split("\n\n")[1:], strict=False))
    assert "RELEASE" not in titles["RSS peak (MiB)"] and "RELEASE" not in titles["Latency (ms)"]
    assert "RELEASE" in titles["Anonymous memory at the end (MiB)"]


def test_table_shows_kept_memory_by_kind():
    text = table.render([released()])

    kept = text.split("Kept after release, above the baseline (MiB)")[1].split("\n\n")[1].splitlines()
    assert kept[0].replace(" ", "") == "|variant|RSS|anonymous|file-backed|"
    assert kept[2].replace(" ", "") == "|a|20.0|20.0|0.000|"
    assert "Kept after release" not in table.render([run()])


def test_brief_table_has_latencies():
    def timed(variant: str, *times_ns: int) -> Run:
        made = released(variant=variant)
        return replace(made, marks=tuple(replace(mark, times_ns=times_ns) if mark.phase == "EXECUTE" else mark for mark in made.marks))

    both = [timed("slow", 160_000_000, 170_000_000, 400_000_000), timed("fast", 10_000_000)]
    assert "- latency (an iteration of EXECUTE): fast 10 ms; slow 170 ms\n" in table.render(both, brief=True)
    assert "- latency (an iteration of EXECUTE): 10 ms\n" in table.render(both[1:], brief=True)
    assert "latency (" not in table.render([timed("none")], brief=True) + table.render(both)


def test_brief_table_has_what_stays():
    text = table.render([released(), run("b")], brief=True)

    (header,), rows = ([line for line in text.splitlines() if line.startswith(begin)] for begin in ("| variant", ("| a ", "| b ")))
    assert [cell.strip() for cell in header.strip("|").split("|")][-2:] == ["PEAK", "stays"]
    assert [row.strip("|").split("|")[-1].strip() for row in rows] == ["20.0", "-"]
    assert "- stays: RSS above the baseline once the runtime was deleted" in text
    assert "stays" not in table.render([run()], brief=True)


def test_table_shows_crash_in_release():
    brief = table.render([released(variant="fine"), crashed(variant="bad")], brief=True)
    assert next(line for line in brief.splitlines() if line.startswith("| bad")).count("failed (SIGSEGV)") == 1
    text = table.render([released(variant="fine"), crashed(variant="bad")])
    kept = text.split("Kept after release, above the baseline (MiB)")[1].split("\n\n")[1]

    (line,) = [line for line in kept.splitlines() if line.startswith("| bad")]
    assert line.count("failed (SIGSEGV)") == 3
    assert "270.0" in next(line for line in brief.splitlines() if line.startswith("| bad"))
    assert "bad: failed: ended by SIGSEGV in RELEASE" in text


def test_program_failure_in_release_is_incomplete():
    made = run(memory=RELEASED, outcome=CRASHED)

    assert not made.complete
    assert metrics.value(made, "PEAK", PEAK) is None


def test_minimum_of_run_excludes_release():
    samples = [(index * 10**9, size * MIB, 0, 0) for index, size in enumerate((40, 140, 260, 265, 265))]
    after = (5 * 10**9 + 10**8, 20 * MIB, 0, 0)
    plain, with_release = run(samples=samples), released(samples=[*samples, after])

    low, _, high = swap.run_extremes(with_release, swap.KINDS[0], swap.window(None))

    assert (low, high) == swap.run_extremes(plain, swap.KINDS[0], swap.window(None))[::2] == (40 * MIB, 270 * MIB)
    assert swap.run_extremes(with_release, swap.KINDS[0], swap.window("release"))[0] == 20 * MIB


def test_release_crash_regresses_other_figures_judged():
    base = baseline.entries([released(repeat=repeat, extra_mib=repeat / 10) for repeat in range(5)])
    head = baseline.entries([crashed(repeat=repeat, extra_mib=50 + repeat / 10) for repeat in range(5)])

    rows = verdicts.judge(base, head)

    assert verdicts.Report("", tuple(rows)).exit_code == EXIT_REGRESSION
    outcome = next(row for row in rows if row.metric == verdicts.OUTCOME)
    assert (outcome.verdict, outcome.reason) == ("failed", "5 of 5 runs failed: ended by SIGSEGV in RELEASE")
    assert next(row.verdict for row in rows if (row.phase, row.metric) == ("PEAK", "rss_peak_bytes")) == "regressed"
    assert not [row for row in rows if row.verdict == "gone"]


def test_kept_memory_judged_by_budget_only(tmp_path):
    """Whether freed pages are given back turns on the size of the environment: the comparison would fail for code that did not change."""
    more = {**RELEASED, "RELEASE": (90, 900)}
    base = baseline.entries([released(repeat=repeat, extra_mib=repeat / 100) for repeat in range(5)])
    head = baseline.entries([run(memory=more, release=True, repeat=repeat, extra_mib=repeat / 100) for repeat in range(5)])
    limits = tmp_path / "budgets.toml"
    limits.write_text('[[budget]]\nphase = "RELEASE"\nanon_end_bytes = "60 MiB"\n')

    compared = verdicts.judge(base, head)
    over = [(row.phase, row.verdict) for row in budgets.judge(budgets.read(limits), head)]

    assert {row.verdict for row in compared} == {"ok"}
    assert "RELEASE" not in {row.phase for row in compared}
    assert over == [("RELEASE", "over")]


def test_peaks_picture_shows_kept_memory():
    figure = peaks.render([released(variant="a"), released(variant="b", extra_mib=10)])

    panel = figure.axes[-1]
    assert panel.get_title(loc="left") == "after RELEASE"
    assert [text.get_text() for text in panel.texts] == ["60.0", "70.0"]
    assert len({axes.get_position().y0 for axes in figure.axes}) == 1  # five phases stand in one line
    bar = peaks.bar_of([released()], "RELEASE", columns.columns)
    assert (bar.peak, bar.anon, bar.file, bar.unseen) == (60 * MIB, 50 * MIB, 10 * MIB, 0)


def test_timeline_picture_marks_peak_before_release():
    figure = picture.render([released()])

    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any("270.0 MiB in PREPARE" in text for text in texts)


def test_page_shows_kept_trace_names_peak(memprof, tmp_path):
    path = Path(tmp_path / "runs.jsonl")
    path.write_bytes(b"".join(store.encode(made) for made in (released(), released(repeat=2))))

    assert memprof("page", path, "-o", "page.html").returncode == 0
    assert memprof("trace", path, "-o", "trace.json").returncode == 0

    assert "Kept after release, above the baseline (MiB)" in (tmp_path / "page.html").read_text()
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert "PEAK: 270.0 MiB in PREPARE" in names
