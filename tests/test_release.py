"""RELEASE: the last phase of a run, in which the runtime is deleted. What stays is shown; a failure there spoils nothing that came before."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from failing import QUICK, measured, runs_in, runtime_file, with_patience
from made import MIB, USUAL, run

from memprof.errors import EXIT_REGRESSION, MeasurementError
from memprof.gate.again import orders_again
from memprof.judge import baseline, budgets, verdicts
from memprof.measuring.orders import plan
from memprof.measuring.suite import Suite, Variant
from memprof.reports import columns
from memprof.reports.pictures import peaks
from memprof.reports.pictures import timeline as picture
from memprof.reports.tables import swap, table
from memprof.runs import metrics, store, summary
from memprof.runs.metrics import METRICS
from memprof.runs.records import Outcome, Run

PEAK = METRICS["rss_peak_bytes"]
RELEASED = {**USUAL, "RELEASE": (60, 400)}  # its peak is above all others
CRASHED = Outcome("signal", "RELEASE", signal="SIGSEGV")
PAGES = 64 * os.sysconf("SC_PAGE_SIZE")  # what an interpreter moves between two looks


def released(**words: object) -> Run:
    return run(memory=RELEASED, release=True, **words)  # type: ignore[arg-type]


def crashed(variant: str = "a", repeat: int = 1, **words: object) -> Run:
    return released(variant=variant, repeat=repeat, outcome=CRASHED, **words)


# -- measured


@pytest.mark.usefixtures("recorder")
def test_a_runtime_is_deleted_and_what_it_held_is_gone(scenario):
    model = scenario(load=[{"allocate": "weights", "bytes": 32 * MIB}], execute=[{"spike": 8 * MIB}])

    measured_run = measured(model, release=True)

    before, after, ground = (measured_run.mark(phase).anon_end_bytes for phase in ("EXECUTE", "RELEASE", "STARTUP"))
    assert [mark.phase for mark in measured_run.marks][-2:] == ["EXECUTE", "RELEASE"]
    assert before - after == pytest.approx(32 * MIB, abs=PAGES)
    assert after - ground == pytest.approx(0, abs=PAGES)
    assert metrics.value(measured_run, "PEAK", PEAK) == measured_run.mark("EXECUTE").rss_peak_bytes
    assert measured_run.job.release


def test_what_outlives_the_runtime_stays_and_its_own_method_runs_before_it_is_deleted(tmp_path, scenario):
    steps = tmp_path / "steps"
    say = f"open({str(steps)!r}, 'a').write"
    top = f"kept = []\nclass End:\n    def __del__(self): {say}('deleted ')"
    mine = runtime_file(
        tmp_path, top=top, load=f"kept.append(bytearray(b'1') * {16 * MIB})\nself.end = End()", release=f"{say}('released ')"
    )

    measured_run = measured(scenario(**QUICK), mine, release=True)

    assert steps.read_text() == "released deleted "
    assert measured_run.mark("RELEASE").anon_end_bytes - measured_run.mark("STARTUP").anon_end_bytes >= 16 * MIB - PAGES


def test_a_runtime_without_a_delete_says_so_and_has_no_release(tmp_path, scenario):
    mine = runtime_file(tmp_path, load="self.notes = 'a note'")
    mine.write_text(mine.read_text().replace("version = '1'", "version = '1'\n    release = None"))

    measured_run = measured(scenario(**QUICK), mine, release=True)

    assert measured_run.outcome.ok
    assert measured_run.mark("RELEASE") is None
    assert measured_run.about.notes == ("a note", "this runtime has no way to delete what it loaded: there is no phase RELEASE")


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        ({"crash": "SIGSEGV"}, "signal", "ended by SIGSEGV in RELEASE"),
        ({"raise": "it cannot let go"}, "error", "in RELEASE: RuntimeError: it cannot let go"),
        ({"exit": 7}, "exit", "ended with exit code 7 in RELEASE"),
    ],
)
def test_a_failure_in_release_is_the_outcome_and_all_figures_before_it_count(scenario, step, status, words):
    measured_run = measured(scenario(load=[{"allocate": "weights", "bytes": 16 * MIB}], release=[step]), release=True)

    outcome = measured_run.outcome
    assert (outcome.status, outcome.phase, outcome.ok, measured_run.complete) == (status, "RELEASE", False, True)
    assert outcome.sentence.startswith(words)
    assert measured_run.mark("RELEASE") is None
    assert metrics.value(measured_run, "PEAK", PEAK) == max(mark.rss_peak_bytes for mark in measured_run.marks)
    assert summary.peak_phase([measured_run])


def test_a_release_that_hangs_meets_the_time_limit(scenario):
    model = scenario(**QUICK, release=[{"hang": True}])
    measured_run = with_patience(
        lambda limit_ns: measured(model, release=True, timeout_ns=limit_ns), lambda run: run.outcome.phase == "RELEASE"
    )

    assert (measured_run.outcome.status, measured_run.outcome.phase, measured_run.complete) == ("timeout", "RELEASE", True)


def test_run_shows_what_stays_and_ends_with_4_if_release_fails(memprof, scenario):
    model = scenario(**QUICK, release=[{"crash": "SIGABRT"}])

    done = memprof("run", model, "-r", "synthetic", "--repeats", "1", "-o", "runs.jsonl")

    assert done.returncode == MeasurementError.exit_code
    assert "Kept after release" not in done.stdout  # nothing stayed that anybody saw
    assert "failed: ended by SIGABRT in RELEASE" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "[1/1]" in line]
    assert "peak " in line and "; failed: ended by SIGABRT in RELEASE" in line
    rows = [row["phase"] for row in json.loads(memprof("table", "runs.jsonl", "--format", "json").stdout)]
    assert rows[-2:] == ["PEAK", "RELEASE"]


def test_no_release_leaves_it_out_on_the_command_line_and_in_a_suite(memprof, scenario, tmp_path):
    scenario(**QUICK)
    suite = tmp_path / "suite.toml"
    suite.write_text('models = ["scenario.json"]\nruntimes = ["synthetic"]\nrepeats = 1\nruns = 1\nwarmup = 0\nrelease = false\n')

    for number, words in enumerate((["--suite", "suite.toml"], ["--suite", "suite.toml", "--release"])):
        assert memprof("run", *words, "-o", f"{number}.jsonl").returncode == 0

    has = [[mark["phase"] for mark in runs_in(tmp_path / f"{number}.jsonl")[0]["marks"]][-1] for number in (0, 1)]
    assert has == ["EXECUTE", "RELEASE"]


def test_a_run_is_measured_again_as_it_was(scenario):
    model = scenario(**QUICK)
    for release in (True, False):
        suite = Suite(models=(str(model),), variants=(Variant("synthetic"),), repeats=1, warmup=0, runs=1, release=release)
        (order,) = plan(suite).orders
        assert order.job.release is release
        again = replace(run(), job=order.job, machine=order.place.machine())
        assert [order.job.release for order in orders_again([again], (order.job.model.name, "synthetic", None))] == [release]


# -- judged and shown


def test_peak_is_that_of_all_phases_but_release():
    made = released()

    assert metrics.value(made, "PEAK", PEAK) == 270 * MIB
    assert summary.peak_phase([made]) == "PREPARE"
    assert metrics.value(made, "RELEASE", PEAK) == 400 * MIB
    inexact = replace(made, marks=(*made.marks[:-1], replace(made.marks[-1], rss_peak_exact=False)))
    assert metrics.exact(inexact, "PEAK", PEAK)


def test_release_is_the_last_of_the_phases_and_no_column_of_peaks_and_times():
    assert summary.order(["EPOCH", "RELEASE", "EXECUTE", "DUMP"]) == ["EXECUTE", "EPOCH", "DUMP", "RELEASE"]
    text = table.render([released()])

    titles = dict(zip(text.split("\n\n"), text.split("\n\n")[1:], strict=False))
    assert "RELEASE" not in titles["RSS peak (MiB)"] and "RELEASE" not in titles["Latency (ms)"]
    assert "RELEASE" in titles["Anonymous memory at the end (MiB)"]


def test_the_table_shows_what_stays_by_kind():
    text = table.render([released()], brief=True)

    kept = text.split("Kept after release, above the baseline (MiB)")[1].split("\n\n")[1].splitlines()
    assert kept[0].replace(" ", "") == "|variant|RSS|anonymous|file-backed|"
    assert kept[2].replace(" ", "") == "|a|20.0|20.0|0.000|"
    assert "Kept after release" not in table.render([run()], brief=True)


def test_a_crash_is_shown_where_other_variants_kept_something():
    text = table.render([released(variant="fine"), crashed(variant="bad")], brief=True)

    (line,) = [line for line in text.splitlines() if line.startswith("| bad") and "SIGSEGV" in line]
    assert line.count("failed (SIGSEGV)") == 3
    assert "270.0" in next(line for line in text.splitlines() if line.startswith("| bad"))
    assert "bad: failed: ended by SIGSEGV in RELEASE" in text


def test_a_program_that_fails_in_a_phase_called_release_has_not_done_its_job():
    made = run(memory=RELEASED, outcome=CRASHED)

    assert not made.complete
    assert metrics.value(made, "PEAK", PEAK) is None


def test_the_minimum_of_the_whole_run_is_that_before_release():
    samples = [(index * 10**9, size * MIB, 0, 0) for index, size in enumerate((40, 140, 260, 265, 265))]
    after = (5 * 10**9 + 10**8, 20 * MIB, 0, 0)
    plain, with_release = run(samples=samples), released(samples=[*samples, after])

    low, _, high = swap.run_extremes(with_release, swap.KINDS[0], swap.window(None))

    assert (low, high) == swap.run_extremes(plain, swap.KINDS[0], swap.window(None))[::2] == (40 * MIB, 270 * MIB)
    assert swap.run_extremes(with_release, swap.KINDS[0], swap.window("release"))[0] == 20 * MIB


def test_a_new_crash_in_release_is_a_regression_and_its_other_figures_are_judged():
    base = baseline.entries([released(repeat=repeat, extra_mib=repeat / 10) for repeat in range(5)])
    head = baseline.entries([crashed(repeat=repeat, extra_mib=50 + repeat / 10) for repeat in range(5)])

    rows = verdicts.judge(base, head)

    assert verdicts.Report("", tuple(rows)).exit_code == EXIT_REGRESSION
    outcome = next(row for row in rows if row.metric == verdicts.OUTCOME)
    assert (outcome.verdict, outcome.reason) == ("failed", "5 of 5 runs failed: ended by SIGSEGV in RELEASE")
    assert next(row.verdict for row in rows if (row.phase, row.metric) == ("PEAK", "rss_peak_bytes")) == "regressed"
    assert not [row for row in rows if row.verdict == "gone"]


def test_only_a_budget_judges_what_stays(tmp_path):
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


def test_the_picture_of_peaks_shows_what_stays_and_not_the_peak_of_release():
    figure = peaks.render([released(variant="a"), released(variant="b", extra_mib=10)])

    panel = figure.axes[-1]
    assert panel.get_title(loc="left") == "after RELEASE"
    assert [text.get_text() for text in panel.texts] == ["60.0", "70.0"]
    assert len({axes.get_position().y0 for axes in figure.axes}) == 1  # five phases stand in one line
    bar = peaks.bar_of([released()], "RELEASE", columns.Cache())
    assert (bar.peak, bar.anon, bar.file, bar.unseen) == (60 * MIB, 50 * MIB, 10 * MIB, 0)


def test_the_timeline_marks_the_peak_before_release():
    figure = picture.render([released()])

    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any("270.0 MiB in PREPARE" in text for text in texts)


def test_the_page_shows_what_stays_and_the_trace_names_the_peak(memprof, tmp_path):
    path = Path(tmp_path / "runs.jsonl")
    path.write_bytes(b"".join(store.encode(made) for made in (released(), released(repeat=2))))

    assert memprof("page", path, "-o", "page.html").returncode == 0
    assert memprof("trace", path, "-o", "trace.json").returncode == 0

    assert "Kept after release, above the baseline (MiB)" in (tmp_path / "page.html").read_text()
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert "PEAK: 270.0 MiB in PREPARE" in names
