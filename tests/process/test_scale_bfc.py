"""ONNX Runtime's arena, simulated: by hand, and beside the runtime's own log."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support.sample_runs import MIB
from support.session_cache import once
from support.suites import apart, one

from memprof import zoo
from memprof.campaign.progress import Silent
from memprof.growth.scale import arena_requests, predictions, requests, runs, scale
from memprof.growth.scale.answer import ScaleRequest
from memprof.growth.scale.bfc import BfcArena
from memprof.growth.scale.heap import Heap
from memprof.programs import native
from memprof.records import store
from memprof.records.types import LawSearch
from memprof.reports.tables import scale as tables
from memprof.subjects.dimensions import parse

LOGGED = """
import sys
import numpy, onnxruntime
onnxruntime.set_default_logger_severity(1)
settings = onnxruntime.SessionOptions()
settings.log_severity_level = 1
settings.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], settings, providers=["CPUExecutionProvider"])
(given,) = session.get_inputs()
feed = {given.name: numpy.zeros((int(sys.argv[3]), int(sys.argv[2]), given.shape[2]), "float32")}
for _ in range(2):
    session.run(None, feed)
"""


def test_arena_regions_match_onnxruntime_log():
    pytest.importorskip("onnxruntime")
    folder = once("a small LSTM", lambda folder: zoo.make("lstm", folder / "net.onnx", format="onnx", size_bytes=MIB))
    request = ScaleRequest(one(folder / "net.onnx", "onnxruntime"), (parse("batch=1..8"), parse("sequence=16..128")))
    places = runs.Places(request, Silent(), lambda line: None)
    at = {"batch": 7, "sequence": 100}
    recording = arena_requests.record(places._order(at), (0,))
    assert recording is not None and recording.first and recording.second

    arena = BfcArena(Heap())
    for turn, steps in enumerate((recording.first, recording.second)):
        requests._run(arena, turn, steps, recording.sizes)
    words = [sys.executable, "-c", LOGGED, str(folder / "net.onnx"), "7", "100"]
    log = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stderr
    assert [int(size) for size in re.findall(r"Extended allocation by (\d+) bytes", log)] == arena.regions
    assert len(arena.regions) > 1


def test_predictions_follow_simulated_arena():
    pytest.importorskip("onnxruntime")
    folder = once("a small LSTM", lambda folder: zoo.make("lstm", folder / "net.onnx", format="onnx", size_bytes=MIB))
    said, kept = [], []
    progress = Silent()
    progress.say = said.append
    ranges = (parse("sequence=64..512"), parse("batch=8"))
    request = ScaleRequest(one(folder / "net.onnx", "onnxruntime", runs=1), ranges, points=3, predictions=[{"sequence": 900}], confirm=True)
    answer = scale.scale(request, progress, kept.append)

    assert answer.law.simulated
    assert "net.onnx: recording what is asked of the arena, in 4 runs without it" in said
    assert len(kept) == 4  # the runs that were recorded are no measurements
    (point,) = [point for point in answer.points if point.held_out]
    (predicted,) = answer.predict([point.at])
    assert predicted.bytes == pytest.approx(point.sizes[answer.main], rel=0.05)
    assert "Predictions do not come from it, but from the simulated arena" in tables.render(answer, format="text")
    # Kept runs have what was asked of the arena, and predict the same.
    (again,) = predictions.of_runs([store.decode(line, "a run") for line in kept])
    assert (again.laws, again.predictions) == (answer.laws, answer.predictions)
    assert len([line for line in kept if b'"heap_free_bytes"' in line]) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"set": {"arena_shrink": "on"}}, "not with arena_shrink=on"),
        ({"set": {"mode": "parallel"}}, "not with mode=parallel"),
        ({"set": {"arena": "off"}}, ""),
        ({"env": {"LD_PRELOAD": "/usr/lib/other.so"}}, "not with LD_PRELOAD=/usr/lib/other.so"),
        ({"simulates": False}, ""),
        ({"dimensions": (parse("sessions=4"), parse("batch=1..8"))}, "not with 4 sessions"),
        ({"dimensions": (parse("threads=1..4"), parse("batch=1..8"))}, "not with threads in --vary"),
        ({"dimensions": (parse("processes=4"), parse("batch=1..8"))}, "not with processes in --vary"),
    ],
)
def test_unsimulated_request_not_recorded(words, reason, monkeypatch):
    pytest.importorskip("onnxruntime")
    folder = once("a small LSTM", lambda folder: zoo.make("lstm", folder / "net.onnx", format="onnx", size_bytes=MIB))
    monkeypatch.setattr(arena_requests, "record", lambda *words: pytest.fail("recorded"))
    settings, others = apart({"dimensions": (parse("batch=1..8"), parse("sequence=16..128")), **words})
    request = ScaleRequest(one(folder / "net.onnx", "onnxruntime", **settings), **others)
    places = runs.Places(request, Silent(), lambda line: None)
    assert (places.simulate(), places.unsimulated) == ((LawSearch(), None), reason)


def test_missing_onnx_package_said_first(monkeypatch):
    pytest.importorskip("onnxruntime")
    folder = once("a small LSTM", lambda folder: zoo.make("lstm", folder / "net.onnx", format="onnx", size_bytes=MIB))
    monkeypatch.setattr(arena_requests, "record", lambda *words: pytest.fail("recorded"))
    monkeypatch.setitem(sys.modules, "onnx", None)
    said = []
    progress = Silent()
    progress.say = said.append
    request = ScaleRequest(one(folder / "net.onnx", "onnxruntime", runs=1), (parse("sequence=64..512"), parse("batch=8")), points=3)

    answer = scale.scale(request, progress, lambda line: None)

    missing = "reading an ONNX graph needs onnx, not installed here: pip install 'ml-memprof[plan]'"
    first = next(number for number, sentence in enumerate(said) if ": PEAK " in sentence)
    assert [number < first for number, sentence in enumerate(said) if missing in sentence] == [True]
    assert [remark for remark in answer.remarks if missing in remark] == [
        f"The arena is not simulated, and there is no plan to hold it against: {missing}."
    ]


def test_simulation_needs_recorded_requests(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    folder = once("a small LSTM", lambda folder: zoo.make("lstm", folder / "net.onnx", format="onnx", size_bytes=MIB))
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.compiled.cache_clear()
    said = []
    progress = Silent()
    progress.say = said.append
    request = ScaleRequest(one(folder / "net.onnx", "onnxruntime"), (parse("batch=1..8"), parse("sequence=16..128")))
    places = runs.Places(request, progress, lambda line: None)
    assert places.simulate() == (LawSearch(), None) and "there is no C compiler here" in places.unsimulated
    assert said == ["net.onnx: recording what is asked of the arena, in 5 runs without it"]
