"""RELEASE: the last phase of a run, in which the runtime is deleted. What stays is shown; a failure there spoils nothing that came before."""

from __future__ import annotations

import json
import os

import pytest
from msgspec.structs import replace
from support.recorder_runs import QUICK, measured, runs_in, runtime_file, with_patience
from support.sample_runs import MIB, run

from memprof.base.errors import MeasurementError
from memprof.records import metrics, summary
from memprof.records.metrics import METRICS
from memprof.records.summary import place_of
from memprof.regressions.gate.confirmation import orders_again
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant

PEAK = METRICS["rss_peak_bytes"]

PAGES = 64 * os.sysconf("SC_PAGE_SIZE")  # what an interpreter moves between two looks


@pytest.mark.usefixtures("recorder")
def test_release_frees_runtime_memory(scenario):
    model = scenario(load=[{"allocate": "weights", "bytes": 32 * MIB}], execute=[{"spike": 8 * MIB}])

    measured_run = measured(model, release=True)

    before, after, ground = (measured_run.mark(phase).anon_end_bytes for phase in ("EXECUTE", "RELEASE", "STARTUP"))
    assert [mark.phase for mark in measured_run.marks][-2:] == ["EXECUTE", "RELEASE"]
    assert before - after == pytest.approx(32 * MIB, abs=PAGES)
    assert after - ground == pytest.approx(0, abs=PAGES)
    assert metrics.value(measured_run, "PEAK", PEAK) == measured_run.mark("EXECUTE").rss_peak_bytes
    assert measured_run.job.release


def test_release_method_before_deletion(tmp_path, scenario):
    steps = tmp_path / "steps"
    say = f"open({str(steps)!r}, 'a').write"
    top = f"kept = []\nclass End:\n    def __del__(self): {say}('deleted ')"
    mine = runtime_file(
        tmp_path, top=top, load=f"kept.append(bytearray(b'1') * {16 * MIB})\nself.end = End()", release=f"{say}('released ')"
    )

    measured_run = measured(scenario(**QUICK), mine, release=True)

    assert steps.read_text() == "released deleted "
    assert measured_run.mark("RELEASE").anon_end_bytes - measured_run.mark("STARTUP").anon_end_bytes >= 16 * MIB - PAGES


def test_release_absent_without_deletion(tmp_path, scenario):
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
def test_release_failure_keeps_earlier_figures(scenario, step, status, words):
    measured_run = measured(scenario(load=[{"allocate": "weights", "bytes": 16 * MIB}], release=[step]), release=True)

    outcome = measured_run.outcome
    assert (outcome.status, outcome.phase, outcome.ok, measured_run.complete) == (status, "RELEASE", False, True)
    assert outcome.sentence.startswith(words)
    assert measured_run.mark("RELEASE") is None
    assert metrics.value(measured_run, "PEAK", PEAK) == max(mark.rss_peak_bytes for mark in measured_run.marks)
    assert summary.peak_phases([measured_run]).level


def test_release_hang_times_out(scenario):
    model = scenario(**QUICK, release=[{"hang": True}])
    measured_run = with_patience(
        lambda limit_ns: measured(model, release=True, timeout_ns=limit_ns), lambda run: run.outcome.phase == "RELEASE"
    )

    assert (measured_run.outcome.status, measured_run.outcome.phase, measured_run.complete) == ("timeout", "RELEASE", True)


def test_run_command_with_failing_release(memprof, scenario):
    model = scenario(**QUICK, release=[{"crash": "SIGABRT"}])

    done = memprof("run", model, "-r", "synthetic", "--repeats", "1", "-o", "runs.jsonl")

    assert done.returncode == MeasurementError.exit_code
    assert "Kept after release" not in done.stdout  # nothing stayed that anybody saw
    assert "failed: ended by SIGABRT in RELEASE" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if "[1/1]" in line]
    assert "peak " in line and "; failed: ended by SIGABRT in RELEASE" in line
    rows = [row["phase"] for row in json.loads(memprof("table", "runs.jsonl", "--format", "json").stdout)]
    assert rows[-2:] == ["PEAK", "RELEASE"]


def test_release_option_in_suite_and_command(memprof, scenario, tmp_path):
    scenario(**QUICK)
    suite = tmp_path / "suite.toml"
    suite.write_text('models = ["scenario.json"]\nruntimes = ["synthetic"]\nrepeats = 1\nruns = 1\nwarmup = 0\nrelease = false\n')

    for number, words in enumerate((["--suite", "suite.toml"], ["--suite", "suite.toml", "--release"])):
        assert memprof("run", *words, "-o", f"{number}.jsonl").returncode == 0

    has = [[mark["phase"] for mark in runs_in(tmp_path / f"{number}.jsonl")[0]["marks"]][-1] for number in (0, 1)]
    assert has == ["EXECUTE", "RELEASE"]


def test_release_setting_kept_when_remeasured(scenario):
    model = scenario(**QUICK)
    for release in (True, False):
        suite = Suite(models=(str(model),), variants=(Variant("synthetic"),), repeats=1, warmup=0, runs=1, release=release)
        (order,) = plan(suite).orders
        assert order.job.release is release
        again = replace(run(), job=order.job, machine=order.place.machine())
        assert [order.job.release for order in orders_again([again], place_of(again.job))] == [release]
