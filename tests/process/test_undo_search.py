"""The setting that undoes a step of `memprof bisect`, on a runtime of the tests' own whose knobs cost what the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace
from support.recorder_runs import KNOB, MIB, NEAR_MIB, Silent

from memprof.campaign import campaign
from memprof.records import metrics, store, summary
from memprof.records.summary import Key, PeakPhases, Row
from memprof.records.types import COMMAND, PEAK, Run
from memprof.regressions.bisect import bisect, undo_search
from memprof.regressions.bisect.search import FigureQuestion, Searched, VersionStep
from memprof.regressions.bisect.undo_search import Undoing
from memprof.regressions.bisect.version_range import Versions
from memprof.reports.tables import bisect as report
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, Variant
from memprof.verdicts.verdicts import judge_row

KEY = Key("model.bin", "new", None, "here")
RUNTIME = (
    KNOB
    + """
class Runtime:
    version = "1"
    default_threads = 1
    knobs = tuple(Knob(name, values, values[0]) for name, values in KNOBS.items())
    def load(self, model, options):
        self.set = {name: options.knobs.get(name, values[0]) for name, values in KNOBS.items()}
        self.kept = bytearray(b"x") * int(MIB(self.set) * (1 << 20))
    def prepare(self):
        pass
    def execute(self):
        pass
"""
)


@pytest.fixture
def runtime(tmp_path: Path) -> Callable[[str, dict[str, tuple[str, ...]], str], Suite]:
    """Writes a runtime with these knobs, and memory as an expression of `s`, the settings; gives its suite."""
    (tmp_path / "model.bin").write_bytes(b"1")

    def write(name: str, knobs: dict[str, tuple[str, ...]], mib: str) -> Suite:
        head = f"KNOBS = {knobs!r}\ndef MIB(s): return {mib}\n"
        path = tmp_path / f"{name}.py"
        path.write_text(head + RUNTIME)
        return Suite(models=(str(tmp_path / "model.bin"),), variants=(Variant(str(path), name),), warmup=0, runs=2, release=False)

    return write


def row_of(suite: Suite, repeats: int) -> tuple[Row, Run]:
    """Repeats of a suite's only variant."""
    runs = list(campaign.measure(plan(Suite(**{**asdict(suite), "repeats": repeats})).orders, Silent(), lambda line: None))
    wanted = metrics.metric("rss_peak_bytes")
    values = tuple(value for run in runs if (value := metrics.value(run, PEAK, wanted)) is not None)
    return summary.Row(summary.key(runs[0]), PEAK, wanted.name, values, True), runs[0]


def undone(old: Suite, new: Suite, kept: list[bytes] | None = None) -> tuple[Undoing | None, Row, Row]:
    """The search between these two. Of the new one its median alone is looked at."""
    (before, run), (after, _) = row_of(old, 5), row_of(new, 1)
    question = FigureQuestion(after.key, PEAK, "rss_peak_bytes", run.machine.peak_bound_bytes)
    keep = (kept if kept is not None else []).append
    return undo_search.undo(new, new.variants[0], before, after, question, Silent(), keep), before, after


def test_undo_picks_fastest_setting(runtime, tmp_path, nothing_left, monkeypatch) -> None:
    measure = undo_search.campaign.measure

    def timed(*words) -> Iterator[Run]:
        """What is measured, but for the latencies: those of a busy machine would say anything."""
        for run in measure(*words):
            execute = replace(run.marks[-1], times_ns=(200 if run.job.knobs.get("cache") == "off" else 1,))
            yield replace(run, marks=(*run.marks[:-1], execute))

    monkeypatch.setattr(undo_search.campaign, "measure", timed)
    knobs = {"cache": ("on", "off"), "pool": ("big", "small"), "idle": ("a", "b")}
    old = runtime("old", {}, "4")
    new = runtime("new", knobs, "20 if s['cache'] == 'on' and s['pool'] == 'big' else 4")
    kept: list[bytes] = []

    answer, before, after = undone(old, new, kept)

    assert after.median - before.median == pytest.approx(16 * MIB, abs=NEAR_MIB * MIB)
    assert answer is not None and dict(answer.settings) == {"pool": "small"}
    assert answer.tried >= 3 and answer.median == pytest.approx(before.median, abs=NEAR_MIB * MIB)
    path = tmp_path / "kept.jsonl"
    path.write_bytes(b"".join(kept))
    names = {run.job.variant for run in store.load([path]).runs}
    assert names >= {"new", "new, cache=off", "new, pool=small", "new, idle=b"}


def test_undo_by_two_settings_together(runtime, nothing_left) -> None:
    knobs = {"cache": ("on", "off"), "pool": ("big", "small")}
    old = runtime("old", {}, "4")
    new = runtime("new", knobs, "20 - 8 * (s['cache'] == 'off') - 8 * (s['pool'] == 'small')")

    answer, _, _ = undone(old, new)

    assert answer is not None and dict(answer.settings) == {"cache": "off", "pool": "small"}


def test_undo_without_matching_setting(runtime, nothing_left) -> None:
    old, new = runtime("old", {}, "4"), runtime("new", {"cache": ("on", "off")}, "20 - 2 * (s['cache'] == 'off')")

    answer, _, _ = undone(old, new)

    assert answer is not None and answer.settings is None and answer.tried >= 1


def test_undo_keeps_setting_within_noise(monkeypatch) -> None:
    """Among 20 MiB a hundredth is less than what an interpreter itself moves from run to run."""
    lab = undo_search._UndoLab(
        Suite(), Variant(COMMAND, "new"), FigureQuestion(KEY, PEAK, "rss_peak_bytes", 0), Silent(), lambda line: None
    )
    monkeypatch.setattr(lab, "measured", lambda each, repeats: [undo_search._Trial(each[0], (20.0 * MIB,) * repeats, 1.0)])
    before = summary.Row(KEY, PEAK, "rss_peak_bytes", (20.0 * MIB,) * 5, True)

    for mib, expected in ((20.4, {"pool": "small"}), (21.0, None)):
        best = lab.verified([undo_search._Trial({"pool": "small"}, (mib * MIB,), 1.0)], before)
        assert (best.settings if best else None) == expected


def test_undo_of_program_without_settings(tmp_path) -> None:
    suite = Suite(models=(str(tmp_path),), variants=(Variant(COMMAND, "program"),))
    row = summary.Row(KEY, PEAK, "rss_peak_bytes", (1.0,) * 5, True)
    assert (
        undo_search.undo(suite, suite.variants[0], row, row, FigureQuestion(KEY, PEAK, "rss_peak_bytes", 0), Silent(), lambda line: None)
        is None
    )


def told(answer: Undoing | None) -> str:
    """The report's words on a step with this answer."""
    before, after = (summary.Row(KEY, PEAK, "rss_peak_bytes", (mib * MIB,) * 12, True) for mib in (20.0, 36.0))
    judged = judge_row(before, after, 0)
    step = VersionStep(0, 1, judged)
    versions = Versions("release", "engine", ("1.0", "1.1"), None, lambda number: f"1.{number}", "")  # type: ignore[arg-type]
    question = FigureQuestion(KEY, PEAK, "rss_peak_bytes", 0)
    searched = Searched(judged, (step,), {0: before.values, 1: after.values}, {})
    return report.render(
        bisect.Bisected(versions, question, searched, ("MODEL_LOAD",), ((PeakPhases(), PeakPhases()),), ((),), (), (answer,), 1.0)
    )


def test_report_gives_undo_and_price() -> None:
    text = told(Undoing({"pool": "small"}, 3, 20 * MIB, 1.5))
    assert "--set pool=small undoes it: 1.1 then has 20.0 MiB, at 1.50 times the latency (3 settings tried)." in text
    assert "No setting undoes it: 1 setting of 1.1 was measured" in told(Undoing(None, 1))
