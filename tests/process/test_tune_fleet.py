"""`memprof tune` on a fleet that is made up: what it asks for, and what it makes of each answer."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import pytest
from msgspec.structs import replace
from support import sample_runs
from support.suites import apart, one, program
from support.tune_runtime import COMMON, RUNTIME

from memprof.base.errors import InputError, MeasurementError
from memprof.campaign.fleet import comparison_runs
from memprof.campaign.fleet.search_client import ComparisonResult
from memprof.campaign.progress import Silent
from memprof.footprint.tune import candidates, tuner
from memprof.footprint.tune.answer import TuneRequest
from memprof.models.identity import identify
from memprof.records import store
from memprof.records.types import COMMAND, About, Attempt

LABELS = {"kind": "x"}


def outputs_of(rounding: str) -> bytes:
    data = io.BytesIO()
    numpy.savez(data, numpy.array([1.0, 2.0, 4.0]) * (1 if rounding == "exact" else 1.01))
    return data.getvalue()


@dataclass
class Fleet:
    """Machines that answer at once: a PEAK by `copies` and an EXECUTE by `slow`. spoil: an answer in place of that, by the number of the question.
    width: how many can be asked at once. asked: what was."""

    spoil: Callable[[int, object, ComparisonResult], ComparisonResult] = lambda number, asked, answer: answer
    width: int = 3
    are_hosts: bool = True
    name: str = "kind=x"
    labels: frozenset[tuple[str, str]] = frozenset(LABELS.items())
    asked: list[list[object]] = field(default_factory=list)
    seconds: float = 1.0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def measure(self, asked, progress, keep, stop):
        self.asked.append(list(asked))
        for number, each in enumerate(asked):
            runs = tuple(self._run(each, variant, repeat) for repeat, variant in self._all(each))
            outputs = outputs_of("exact") if each.sought.outputs == "sent" else b""
            answer = self.spoil(next(self._numbers), each, ComparisonResult(runs, True, "", outputs, self.seconds))
            for run in answer.runs:
                keep(store.encode(run))
            yield number, answer

    def _all(self, each):
        for repeat in range(1, each.suite.repeats + 1):
            for variant in each.suite.variants:
                if repeat in each.sought.repeats.get(variant.name, (repeat,)):
                    yield repeat, variant

    def _run(self, each, variant, repeat):
        knobs = {"copies": "3", "slow": "no", "rounding": "exact", **variant.set}
        size = 20 + 10 * int(knobs["copies"]) - 8 * (knobs["slow"] == "yes")
        memory = {"MODEL_LOAD": (size, size), "EXECUTE": (size, size)}
        run = sample_runs.run(variant.name, repeat, memory=memory, knobs=dict(variant.set))
        marks = tuple(replace(mark, times_ns=(20_000_000 if knobs["slow"] == "yes" else 5_000_000,) * 5) for mark in run.marks)
        error = None if not each.sought.outputs else 0.0 if knobs["rounding"] == "exact" else 0.01
        path = Path(each.suite.models[0]).resolve()
        job = replace(run.job, model=identify(str(path)), runtime=str(path.with_name("mine.py")), verifies=each.sought.verifies)
        attempt = Attempt("c", 1, 1, "there", LABELS)
        return replace(run, job=job, marks=marks, about=About("1", "3.11"), attempt=attempt, output_error=error)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(RUNTIME)
    (tmp_path / "model.bin").write_bytes(b"model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said():
    class Says(Silent):
        def __init__(self):
            self.sentences = []

        def say(self, sentence):
            self.sentences.append(sentence)

    return Says()


def tuned(fleet, progress, earlier=(), **words):
    """The answer, and the lines of the runs file."""
    settings, others = apart(words)
    fixed = {**dict(word.split("=") for word in COMMON[1::2]), "idle": "a", "bad": "no", "slow": "no"}
    tries = {"copies": ["2", "1"], "rounding": ["half"]}
    request = TuneRequest(one("model.bin", "./mine.py", set=fixed, **settings), tries=tries, fleet=fleet, **others)
    lines: list[bytes] = []
    return tuner.tune(request, progress, lines.append, earlier), lines


def settings_of(asked):
    return {variant.name for each in asked for variant in each.suite.variants}


def test_tune_parallel_trials_single_proof(folder, said):
    fleet = Fleet()
    answer, lines = tuned(fleet, said)

    assert answer.best is not None and answer.best.settings == {("copies", "1")}
    assert settings_of(fleet.asked[0]) == {"default"} and len(fleet.asked[0]) == 1
    assert [each.sought.outputs for each in fleet.asked[0]] == ["sent"]
    assert settings_of(fleet.asked[1]) == {"copies=1", "copies=2", "rounding=half"}
    # The others are compared with the outputs of the default that were sent.
    assert {(each.sought.outputs, each.reference is not None) for each in fleet.asked[1]} == {("compared", True)}
    (proof,) = fleet.asked[-1]
    assert proof.sought.verifies and proof.suite.repeats == 5 and proof.reference is None
    assert [variant.name[:2] for variant in proof.suite.variants][:2] == ["#0", "#1"]
    assert len(lines) == sum(len(each.suite.variants) for turn in fleet.asked[:-1] for each in turn) + 5 * len(proof.suite.variants)
    assert answer.verified and answer.repeats == 5


def test_tune_continues_after_abandoned_setting(folder, said):
    def spoil(number, asked, answer):
        if asked.suite.variants[0].name == "copies=1" and not asked.sought.verifies:
            return ComparisonResult(why="model.bin failed 3 times, on 2 machines and is given up: x: it vanished")
        return answer

    answer, _ = tuned(Fleet(spoil), said)

    assert answer.best is not None and answer.best.settings == {("copies", "2")}
    assert answer.failed == ((frozenset({("copies", "1")}), "model.bin failed 3 times, on 2 machines and is given up: x: it vanished"),)
    assert any("copies=1: failed: model.bin failed 3 times" in sentence for sentence in said.sentences)


def test_tune_ends_after_abandoned_default(folder, said):
    with pytest.raises(MeasurementError, match=r"mine\.py: the default settings fail: model\.bin failed once"):
        tuned(Fleet(lambda number, asked, answer: ComparisonResult(why="model.bin failed once")), said)


def test_tune_reports_abandoned_proof(folder, said):
    def spoil(number, asked, answer):
        return ComparisonResult(why="model.bin failed 3 times") if asked.sought.verifies else answer

    answer, _ = tuned(Fleet(spoil), said)

    assert not answer.verified and answer.proposals
    assert "the proposals that follow were not verified: model.bin failed 3 times" in said.sentences


def test_tune_unanswered_setting_not_failed(folder, said):
    def spoil(number, asked, answer):
        return ComparisonResult() if asked.suite.variants[0].name == "copies=1" and not asked.sought.verifies else answer

    answer, _ = tuned(Fleet(spoil), said)

    assert not answer.complete and answer.verified
    assert not answer.failed and answer.best is not None and answer.best.settings == {("copies", "2")}


def test_tune_asks_within_time(folder, said):
    fleet = Fleet(seconds=40.0)
    answer, _ = tuned(fleet, said, time_ns=60 * 10**9)

    assert not answer.complete
    assert settings_of(fleet.asked[0]) == {"default"} and len(fleet.asked) == 2  # and the proof
    assert fleet.asked[1][0].suite.repeats == 1


def test_tune_partial_rounds_not_counted(folder, said):
    def spoil(number, asked, answer):
        return replace(answer, runs=answer.runs[: 2 * len(asked.suite.variants) + 1], complete=False) if asked.sought.verifies else answer

    answer, _ = tuned(Fleet(spoil), said)

    assert answer.verified and answer.repeats == 2
    assert {len(proposal.peaks) for proposal in (answer.default, *answer.proposals)} == {2}


def test_tune_interrupted_keeps_trials(folder, said):
    def spoil(number, asked, answer):
        if number == 2:  # the second of three that are measured at once
            raise KeyboardInterrupt
        return answer

    answer, _ = tuned(Fleet(spoil), said)

    assert answer.interrupted and not answer.verified
    assert answer.trials == 2 and {proposal.settings for proposal in answer.proposals} == {frozenset({("copies", "2")})}
    assert "interrupted: the proposals that follow were not verified" in said.sentences
    with pytest.raises(KeyboardInterrupt):  # before there is a default, there is no answer
        tuned(Fleet(lambda number, asked, answer: spoil(2, asked, answer)), said)


def test_tune_refuses_mixed_versions(folder, said):
    def spoil(number, asked, answer):
        return replace(answer, runs=tuple(replace(run, about=About("2", "3.11")) for run in answer.runs)) if number == 2 else answer

    with pytest.raises(InputError, match=r"here has .*mine\.py 2, and a machine before it 1: install one"):
        tuned(Fleet(spoil), said)


def test_tune_resumes_on_same_kind_only(folder, said):
    first, lines = tuned(Fleet(), said)
    runs = [store.decode(line, "a run") for line in lines[:4]]
    fleet = Fleet()

    again, _ = tuned(fleet, said, runs)

    # The outputs of the default are not in the file: it is asked for once more.
    assert settings_of(fleet.asked[0]) == {"default"} and fleet.asked[0][0].sought.outputs == "sent"
    assert fleet.asked[0][0].sought.repeats == {"default": (2,)}
    assert again.best is not None and again.best.settings == first.best.settings
    for other in (replace(runs[0], attempt=None), replace(runs[0], attempt=replace(runs[0].attempt, labels={"kind": "y"}))):
        with pytest.raises(InputError, match="the runs to go on with were measured on here, no machine with kind=x: name another -o file"):
            tuned(Fleet(), said, [other])


@dataclass
class ProgramFleet(Fleet):
    """Machines whose runs of a program hold as many MiB as its last word says."""

    def _run(self, each, variant, repeat):
        mib = int(variant.command.argv[-1])
        run = sample_runs.run(variant.name, repeat, memory={"RUN": (mib, mib)}, knobs=dict(variant.set))
        job = replace(run.job, runtime=COMMAND, verifies=each.sought.verifies, argv=variant.command.argv)
        return replace(run, job=job, attempt=Attempt("c", 1, 1, "there", LABELS))


def test_tune_of_program_asks_no_outputs(folder, said):
    fleet = ProgramFleet()
    fixed = {"malloc_arenas": "1", "malloc_mmap_threshold": "131072"}
    request = TuneRequest(program("true {model} {mib}", ["model.bin"], set=fixed), tries={"mib": ["40", "16"]}, fleet=fleet)

    answer = tuner.tune(request, said, lambda line: None)

    assert {each.sought.outputs for turn in fleet.asked for each in turn} == {""}
    assert answer.best is not None and answer.best.settings == {("mib", "16")} and answer.verified
    assert {variant.command.argv[-1] for each in fleet.asked[-1] for variant in each.suite.variants} == {"40", "16"}
    assert not answer.compares


def test_candidates_on_hosts_and_boards():
    runtime = candidates.Runtime(
        "onnxruntime",
        knobs=(
            candidates.Knob("weights", ("embedded", "separate"), "embedded", "build", ""),
            candidates.Knob("preload", "path", None, "env", ""),
            candidates.Knob("mmap", ("off", "on"), "off", "load", ""),
        ),
    )

    def searched(fleet):
        return set(candidates.candidates_of(runtime, TuneRequest(one("net.onnx", "onnxruntime"), fleet=fleet)))

    assert searched(Fleet()) == {"weights", "mmap"}
    assert searched(Fleet(are_hosts=False)) == {"mmap"}


@pytest.mark.parametrize(("most", "travels"), [(1 << 20, True), (10, False)])
def test_outputs_travel_up_to_size(tmp_path, monkeypatch, most, travels):
    told = []
    monkeypatch.setattr(comparison_runs, "_MOST_OUTPUTS", most)
    (tmp_path / "outputs.npz").write_bytes(outputs_of("exact"))

    comparison_runs._send(tmp_path / "outputs.npz", lambda **words: told.append(words))

    assert [[*words] for words in told] == ([["outputs"]] if travels else [["remark"]])
    if not travels:
        assert "more than the 10 B that travel: they are compared only when the proposals are verified" in told[0]["remark"]
