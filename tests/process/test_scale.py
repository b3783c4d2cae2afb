"""`memprof scale`: laws that the synthetic runtime is known to follow, and what cannot be measured or told."""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import re
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import recorder_runs
from support.recorder_runs import NEAR
from support.sample_runs import MIB, machine, run
from support.scale_scenarios import falling
from support.suites import apart, one

from memprof import zoo
from memprof.base.errors import InputError, MeasurementError
from memprof.campaign import side_by_side
from memprof.campaign.progress import Silent
from memprof.growth.laws import laws
from memprof.growth.laws.arena import ArenaLaw
from memprof.growth.scale import arena_requests, predictions, scale
from memprof.growth.scale import runs as scale_runs
from memprof.growth.scale.answer import ALL, CHARGED, Named, ScaleRequest
from memprof.places import limits, remote_groups
from memprof.places.place import HERE
from memprof.programs import runtimes
from memprof.records import store
from memprof.records.types import EXECUTE, MODEL_LOAD, PEAK, ArenaRequests, LawSearch, Outcome, RequestTrace
from memprof.reports import page
from memprof.reports.pictures import scale as pictures
from memprof.reports.tables import scale as tables
from memprof.subjects import orders
from memprof.subjects.dimensions import parse

KIB = 1 << 10


def asked(path, *ranges, **words):
    dimensions = tuple(parse(text) for text in ranges)
    settings, others = apart(words)
    return scale.scale(ScaleRequest(one(path, runs=1, **settings), dimensions, **others), Silent(), lambda line: None)


def coefficients(answer, name=PEAK):
    return {coefficient.term.words: coefficient.bytes for coefficient in answer.named(name).coefficients}


def test_law_found_inverted_and_confirmed(scenario, memprof, tmp_path):
    path = scenario(load=[{"allocate": "w", "bytes": 40 * MIB}], execute=[{"spike": {"": 1000, "x": MIB, "x*x": 16 * KIB}}])

    words = ("--vary", "x=1..64", "--predict", "x=90", "--within", "150MiB", "--confirm", "--json", "-o", "s.jsonl", "--plot", "s.png")
    done = memprof("scale", path, "-r", "synthetic", *words)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "x=64: PEAK" in done.stderr
    assert len([point for point in told["points"] if not point["held_out"]]) <= 6
    coefficients = {entry["words"]: entry["bytes"] for entry in told["laws"][0]["law"]["coefficients"]}
    assert set(coefficients) == {"", "x", "x²"}
    assert coefficients["x"] == pytest.approx(MIB, rel=0.03)
    assert coefficients["x²"] == pytest.approx(16 * KIB, rel=0.03)
    (prediction,) = told["predictions"]
    (held_out,) = [point for point in told["points"] if point["at"] == {"x": 90}]
    assert prediction["low_bytes"] <= held_out["sizes"][PEAK] <= prediction["high_bytes"]
    assert prediction["beyond"] == ["x"]
    (within,) = told["within"]
    assert 146 * MIB < within["confirmed_bytes"] <= 150.5 * MIB
    assert within["surely"] <= within["value"] <= within["possibly"]
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    loaded = store.load([tmp_path / "s.jsonl"]).runs
    assert len(loaded) == len(told["points"])
    (again,) = predictions.of_runs(loaded)
    assert {entry.term.words: entry.bytes for entry in again.law.coefficients} == pytest.approx(coefficients)
    assert [point.at for point in again.points if point.held_out] == [point["at"] for point in told["points"] if point["held_out"]]
    assert json.loads(tables.render(again, format="json"))["within"] == told["within"]
    assert again.predictions[0].bytes == pytest.approx(prediction["bytes"])
    assert memprof("plot", "scale", "s.jsonl", "-o", "again.png").returncode == 0
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "s.png").read_bytes()
    assert memprof("plot", "scale", "s.jsonl", "-o", "again.svg", "--within", "120MiB").returncode == 0
    assert "limit 120.0 MiB" in (tmp_path / "again.svg").read_text()


def test_run_out_of_memory_is_point(scenario):
    path = scenario(
        load=[{"allocate": "w", "bytes": {"": 30 * MIB, "x": MIB}}],
        execute=[{"raise": "std::bad_alloc", "above": {"x": 40}}, {"raise": "this shape is odd", "above": {"x": 20, "y": 1}}],
    )

    answer = asked(path, "x=1..64", "y=1..2")

    dead = [point for point in answer.points if point.least]
    refused = [point for point in answer.points if point.ended and not point.least]
    assert dead and all(point.at["x"] > 40 and point.sizes[PEAK] > 70 * MIB for point in dead)
    assert all(point.at == {"x": point.at["x"], "y": 2} and "odd" in point.ended and not point.sizes for point in refused)
    assert coefficients(answer, MODEL_LOAD)["x"] == pytest.approx(MIB, rel=0.02)
    assert len(answer.points) == 6


def test_search_without_measurement_gives_first_reason(scenario):
    with pytest.raises(MeasurementError, match=r"no place could be measured: .*it is broken"):
        asked(scenario(load=[{"raise": "it is broken"}]), "x=1..64")


def test_dimensions_unset_named_in_failure(tmp_path, monkeypatch, memprof):
    from support.model_inputs import model

    def measure(orders, progress, keep):
        (order,) = orders
        assert order.job.shapes["x"][1:] in ((3, 1, 1), (3, 5, 5))
        yield replace(run(outcome=Outcome("error", "WARMUP", message="invalid shape")), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    path = model(tmp_path, ("n", 3, "h", None), ("n",))
    done = memprof("scale", path, "-r", "onnxruntime", "--vary", "n=1..8")

    assert done.returncode == 4
    said = "open dimensions of the model are taken as 1: h, x.3 (--vary h=SIZE --vary x.3=SIZE sets others)"
    assert f"open.onnx: {said}" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1].endswith(f"no place could be measured: in WARMUP: invalid shape; {said}")
    assert done.stderr.count("invalid shape") == 1
    for words in (("--vary", "h=5", "--vary", "x.3=5"), ("--shape", "x=1,3,5,5")):
        assert "taken as 1" not in memprof("scale", path, "-r", "onnxruntime", "--vary", "n=1..8", *words).stderr


def test_place_failed_first_has_reason(monkeypatch, scenario):
    said = []

    def measure(orders, progress, keep):
        (order,) = orders
        outcome = Outcome("error", "WARMUP", message="odd") if order.job.at["x"] == 1 else None
        yield replace(run(outcome=outcome), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    monkeypatch.setattr(Silent, "say", lambda self, sentence: said.append(sentence))
    asked(scenario(), "x=1..8", points=2)

    assert said.index("x=1: failed") < said.index("x=1: in WARMUP: odd")


def test_sessions_without_sharing(scenario):
    path = scenario(load=[{"allocate": "w", "bytes": 20 * MIB}])

    answer = asked(path, "sessions=1..4")

    assert coefficients(answer)["sessions"] == pytest.approx(20 * MIB, abs=NEAR)
    assert "sessions do not share them" in answer.findings[0]


def test_sessions_map_one_file(scenario, tmp_path):
    (tmp_path / "weights").write_bytes(os.urandom(8 * MIB))
    path = scenario(load=[{"map": str(tmp_path / "weights"), "as": "w", "read": True}, {"allocate": "own", "bytes": 4 * MIB}])

    answer = asked(path, "sessions=1..3")

    assert answer.mapped_again_bytes == pytest.approx(8 * MIB, abs=NEAR)
    assert coefficients(answer)["sessions"] == pytest.approx(12 * MIB, abs=NEAR)
    (takes,) = re.findall(
        r"sessions map [\d.]+ MiB of files again, which lie in memory once. What a session takes for itself is ([\d.]+) MiB",
        answer.findings[0],
    )
    assert float(takes) == pytest.approx(4, abs=NEAR / MIB)
    assert "PEAK is RSS, which counts a page once for each mapping" in tables.finding(answer, str)


@pytest.mark.usefixtures("nothing_left")
def test_processes_cost_private_memory_each(scenario, memprof, tmp_path):
    path = scenario(load=[{"allocate": "w", "bytes": 30 * MIB}])
    words = ("--vary", "processes=1..3", "--points", "3", "--within", "200MiB", "--json", "-o", "p.jsonl")

    done = memprof("scale", path, "-r", "synthetic", *words)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (answer,) = predictions.of_runs(store.load([tmp_path / "p.jsonl"]).runs)
    retold = json.loads(tables.render(answer, format="json"))
    for part in ("main", "laws", "points", "within"):
        assert retold[part] == told[part], part
    marginal = coefficients(answer, answer.main)["processes"]
    own = answer.points[0].sizes[answer.main]
    assert 30 * MIB < marginal <= own + MIB
    if any(CHARGED in point.sizes for point in answer.points):  # where control groups can be made
        # The kernel counts a group's pages in batches, of 64 a CPU.
        assert coefficients(answer, CHARGED)["processes"] == pytest.approx(marginal, rel=0.05)
    assert "The next process costs" in told["findings"][0]
    assert "The processes share pages of " in told["findings"][1]


@pytest.mark.usefixtures("nothing_left")
def test_processes_include_page_tables(scenario, monkeypatch):
    texts = side_by_side._texts
    monkeypatch.setattr(
        side_by_side, "_texts", lambda place, paths: [re.sub(r"VmPTE:.*", f"VmPTE: {50 << 10} kB", text) for text in texts(place, paths)]
    )
    answer = asked(scenario(load=[{"allocate": "w", "bytes": 30 * MIB}]), "processes=1..2", points=2)
    one, two = sorted(point.sizes[answer.main] for point in answer.points)
    assert 80 * MIB < two - one < 90 * MIB


@pytest.mark.usefixtures("nothing_left")
def test_processes_not_charged_for_file_pages(scenario, tmp_path):
    weights = tmp_path / "weights"
    weights.write_bytes(os.urandom(20 * MIB))
    with weights.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    answer = asked(scenario(load=[{"map": str(weights), "as": "w"}, {"allocate": "own", "bytes": 10 * MIB}]), "processes=1..2", points=2)

    for point in answer.points:
        if CHARGED in point.sizes:  # where control groups can be made
            assert point.sizes[CHARGED] < point.sizes[answer.main] - 20 * MIB + MIB


def test_place_within_limit_but_refused(scenario):
    path = scenario(
        load=[{"allocate": "w", "bytes": {"": 10 * MIB, "x": MIB}}], execute=[{"raise": "this is too much.", "above": {"x": 30}}]
    )

    answer = asked(path, "y=1..4", "x=1..8", points=4, within_bytes=80 * MIB, confirm=True)

    text = tables.render(answer, format="text")
    for row in (row for row in answer.within if row.dimension == "x"):
        assert row.ended == "in WARMUP: RuntimeError: this is too much" and row.confirmed_bytes is None
    assert "| in WARMUP: RuntimeError: this is too much |" in text
    assert "was not confirmed: in WARMUP: RuntimeError: this is too much." in text
    assert {tuple(point.at) for point in answer.points} == {("y", "x")}
    # y has no largest value, so there is no place to run.
    assert max(point.at["y"] for point in answer.points) == 4
    assert {row.value for row in answer.within if row.dimension == "y"} == {laws.FARTHEST}


def test_prediction_without_law_is_measured(monkeypatch, scenario):
    def measure(orders, progress, keep):
        (order,) = orders
        size = {1: 100, 2: 146, 3: 166, 9: 400}[order.job.at["sessions"]]
        yield replace(run(memory={"EXECUTE": (size, size)}), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    answer = asked(scenario(), "sessions=1..3", predictions=({"sessions": 9},), confirm=True)
    assert answer.law is None and "Nothing is predicted, for no simple law holds." in answer.remarks
    assert answer.points[-1].at == {"sessions": 9} and answer.points[-1].sizes[PEAK] == 400 * MIB
    assert "sessions=1..3 has 3 values, and no line goes through them: widen the range" in answer.undecided
    assert ": undecided: sessions=1..3 has 3 values" in tables.finding(answer, str)


def test_prediction_without_law_is_undecided(monkeypatch, scenario, memprof):
    def measure(orders, progress, keep):
        (order,) = orders
        size = {1: 100, 2: 400, 4: 120, 8: 300}.get(order.job.at["sessions"], 110)
        yield replace(run(memory={"EXECUTE": (size, size)}), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    assert asked(scenario(), "sessions=1..8").undecided == ""
    answer = asked(scenario(), "sessions=1..8", predictions=({"sessions": 9},))
    assert (answer.law, answer.undecided) == (None, "no simple law holds for PEAK")


@pytest.mark.parametrize(("sizes", "median"), [((300, 180, 181), 181), ((180,), 180), ((300, 301, 180), 300)])
def test_confirmation_outside_interval_repeated_twice(sizes, median, monkeypatch, scenario):
    left, lines = list(sizes), []

    def measure(orders, progress, keep):
        (order,) = orders
        size = left.pop(0) if order.job.verifies else 80 + order.job.at["x"]
        yield (done := replace(run(memory={"EXECUTE": (size, size)}), job=order.job))
        keep(store.encode(done))

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    request = ScaleRequest(one(scenario()), (parse("x=1..64"),), predictions=({"x": 100},), confirm=True)
    answer = scale.scale(request, Silent(), lines.append)

    (again,) = predictions.of_runs([store.decode(line, "a run") for line in lines])
    for made in (answer, again):
        (point,) = (point for point in made.points if point.held_out)
        assert point.sizes[PEAK] == median * MIB and left == []
        assert point.again == (tuple(size * MIB for size in sizes) if len(sizes) > 1 else ())
        text = tables.render(made)
        assert ("median of 3 runs" in text) == (f"{sizes[0]}.0 MiB, " in text) == (len(sizes) > 1)


def test_confirmation_runs_what_may_need_most(monkeypatch, scenario):
    """The lines for a manifest stand on the largest value that surely fits and on each below it, and the arena needs more at 27."""
    confirmed = []

    def measure(orders, progress, keep):
        (order,) = orders
        place = order.job.at["x"]
        confirmed.extend([place] if order.job.verifies else [])
        yield replace(run(memory={"EXECUTE": (falling(place),) * 2}), job=order.job)

    known = ArenaLaw(size=lambda at: (falling(at["x"]) - 138) * MIB)
    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    monkeypatch.setattr(predictions, "simulated", lambda arena, name, simulation: known if name in (PEAK, EXECUTE) else None)
    answer = asked(scenario(), "x=1..8", within_bytes=390 * MIB, confirm=True)

    (row,) = answer.within
    assert answer.simulated and 28 < row.bound <= row.value
    assert set(confirmed) == {row.value, row.bound, 27}
    assert "batch" not in tables.render(answer) and "x=27 needs most: measured 367.5 MiB." in tables.render(answer)


def test_largest_value_below_runtime_refusal():
    points = itertools.product((1, 4, 8), (1, 2, 4))
    runs = [run(f"a={a},b={b}", memory={"EXECUTE": (80 + 2 * a + 4 * b,) * 2}, at={"a": a, "b": b}) for a, b in points]
    refused = run("a=1,b=6", at={"a": 1, "b": 6}, outcome=Outcome("error", "MODEL_LOAD", message="too many"))
    killed = run("a=8,b=6", at={"a": 8, "b": 6}, outcome=Outcome("timeout", "EXECUTE"))
    (answer,) = predictions.of_runs(wanting([*runs, refused, killed], within_bytes=130 * MIB))
    rows = {(row.dimension, tuple(row.others.items())): row for row in answer.within}
    assert (rows["b", (("a", 1),)].value, rows["b", (("a", 1),)].refused) == (5, 6)
    assert rows["b", (("a", 8),)].value == 8 and rows["b", (("a", 8),)].refused is None
    assert "onnxruntime refuses b=6 with a=1, so that no more fit there for certain." in tables.render(answer)


@pytest.mark.usefixtures("nothing_left")
def test_processes_end_on_one_failure(scenario):
    with pytest.raises(MeasurementError, match="it is broken"):
        asked(scenario(prepare=[{"raise": "it is broken"}]), "processes=2..3")


@pytest.mark.usefixtures("nothing_left")
def test_processes_on_another_machine(scenario, memprof, board):
    path = scenario(load=[{"allocate": "w", "bytes": 30 * MIB}])

    words = ("--vary", "processes=1..3", "--points", "3", *board, "--python", sys.executable, "--json")
    done = memprof("scale", path, "-r", "synthetic", *words)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    named = {entry["name"]: entry["law"]["coefficients"] for entry in told["laws"]}
    marginal = {entry["words"]: entry["bytes"] for entry in named[ALL]}["processes"]
    assert 30 * MIB < marginal < 50 * MIB
    if isinstance(limits.find("auto"), limits.Groups):  # the server is this machine
        assert {entry["words"]: entry["bytes"] for entry in named[CHARGED]}["processes"] == pytest.approx(marginal, rel=0.05)
    assert "The processes share pages of " in told["findings"][1]


def test_place_beyond_memory_not_run(scenario, monkeypatch):
    path = scenario(load=[{"allocate": "w", "bytes": {"": 20 * MIB, "x": MIB}}])
    monkeypatch.setattr(scale_runs, "_guard", lambda place: None)
    monkeypatch.setattr(scale_runs, "_free", lambda: 100 * MIB)

    answer = asked(path, "x=1..16", predictions=({"x": 500},), confirm=True, points=4)

    assert answer.predictions[0].bytes == pytest.approx((500 + 20 + 10) * MIB, rel=0.03)
    assert any("x=500 was not confirmed: not run: it would need more memory" in remark for remark in answer.remarks)


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["--vary", "bach=1..4"], 2, "has such a dimension"),
        (["--vary", "sesions=1..4"], 2, "did you mean sessions"),
        (["--vary", "x"], 2, "write NAME=LOW..HIGH"),
        (["--vary", "x=1..8:100"], 2, "a step of 100 leaves the range; 101 would be the second value"),
        (["--vary", "x=0..4"], 2, "LOW and STEP are at least 1"),
        (["--vary", "x=1..4:" + "9" * 5000], 2, "write NAME=LOW..HIGH"),
        (["--vary", "x=4"], 2, "nothing varies"),
        (["--vary", "x=1..4", "--vary", "x=1..8"], 2, "named twice"),
        (["--vary", "x=1..4", "--predict", "z=2"], 2, "'z' is not a dimension that varies"),
        (["--vary", "x=1..4", "--vary", "y=1..4", "--predict", "x=2"], 2, "y needs a value too"),
        (["--vary", "x=1..4", "--set", "x=3"], 2, "--vary x: --set x=3 gives it a value too"),
        (["--vary", "threads=1..4", "--threads", "2"], 2, "--vary threads: --threads 2 gives it a value too"),
        (["--vary", "x=1..4", "--vary", "y=1..4", "--vary", "z=1..4", "--vary", "threads=1..2"], 2, "a law of more than 3"),
        (["--vary", "x=1..4", "--within", "much"], 2, "is not a size"),
    ],
)
def test_scale_command_refusals(words, code, reason, scenario, memprof):
    done = memprof("scale", scenario(load=[]), "-r", "synthetic", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--vary", "x.1=1..4"], "--vary x.1: open.onnx fixes it at 3, and onnxruntime keeps that; open in the file are n, h"),
        (
            ["--vary", "n=1..4", "--vary", "h=5", "--shape", "x=4,3,1"],
            "--shape x=4,3,1: 4 is in the place of n, which --vary gives values; write 1 there",
        ),
        (["--vary", "h=1..4", "--shape", "x=4,3"], "--shape x=4,3: it has no place for h, which is dimension 2 of x"),
    ],
)
def test_dimension_fixed_cannot_vary(words, reason, tmp_path, memprof):
    from support.model_inputs import model

    done = memprof("scale", model(tmp_path, ("n", 3, "h")), "-r", "onnxruntime", *words)
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (2, "", f"memprof: {reason}")


def test_open_dimensions_named_with_words(tmp_path, memprof):
    """Each input has a name of its own for its batch: one range for both is proposed, in the words that were given."""
    from support.model_inputs import model

    done = memprof("scale", model(tmp_path, ("unk_1", 21), ("unk_2", "length"), (3,)), "-r", "onnxruntime", "--vary", "batch=1..8:2")
    assert done.returncode == 2
    assert done.stderr.endswith(". Open are x=unk_1,21 y=unk_2,length: such as --vary unk_1,unk_2=1..8:2\n")
    done = memprof("scale", model(tmp_path, ("", 3)), "-r", "onnxruntime", "--vary", "xx.0=1..4")
    assert done.stderr.endswith("such a dimension; did you mean x.0? Write --vary x.0=1..4\n")


def test_dimension_fixed_not_proposed(tmp_path, memprof):
    from support.model_inputs import model

    done = memprof("scale", model(tmp_path, (2, 3)), "-r", "onnxruntime", "--vary", "batch=1..4")
    assert done.returncode == 2
    assert "x.0" not in done.stderr
    assert "; open.onnx fixes x=2,3: export it with a dynamic dimension (dynamic_shapes of torch.onnx.export), or open one" in done.stderr


@pytest.mark.parametrize(
    ("runs", "places", "code"),
    [(lambda batch: batch == 1, [1, 4, 2], 5), (lambda batch: batch < 4, [1, 4, 2, 3], 0)],
)
def test_dimension_kept_by_runtime_ends_search(runs, places, code, tmp_path, monkeypatch, memprof):
    tried = []

    def measure(orders, progress, keep):
        (order,) = orders
        tried.append(order.job.at["input.0"])
        outcome = None if runs(tried[-1]) else Outcome("error", "PREPARE", message="no reshape.")
        yield replace(run(outcome=outcome), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    zoo.make("mnist", tmp_path / "mnist.tflite", format="tflite")
    done = memprof("scale", "mnist.tflite", "-r", "tflite", "--vary", "input.0=1..4")

    assert (done.returncode, tried) == (code, places)
    reason = "memprof: mnist.tflite fixes input.0 at 1, and tflite keeps that (in PREPARE: no reshape); mnist.tflite fixes"
    assert done.stderr.splitlines()[-1].startswith(reason) == bool(code)


def test_range_too_small_is_undecided(scenario, memprof):
    done = memprof("scale", scenario(load=[]), "-r", "synthetic", "--vary", "x=1..2")
    assert done.returncode == 3
    assert "x=1..2 has 2 values, and a line goes through any two: widen the range, such as --vary x=1..4" in done.stderr
    assert "undecided: x=1..2 has 2 values" in done.stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("places", "sizes", "reason"),
    [
        (
            (512, 600, 557, 534, 580, 523),
            (53.8, 55.1, 55.1, 55.1, 55.1, 55.1),
            "makes a single step, between 512 and 523, and a step tells no slope",
        ),
        ((700, 800, 751, 704, 796, 747), (55.1, 56.2, 55.1, 55.1, 56.2, 55.1), "makes a single step, between 751 and 796"),
        (
            (512, 600, 557, 534),
            (55.1, 55.1, 55.1, 55.1),
            "changes by 0 B, which is within the noise: widen the range, such as --vary a=512..2048",
        ),
        ((512, 1024, 768, 600), (53.8, 56.1, 54.95, 54.95), ""),
        ((1, 64, 20, 40), (55.1, 55.1, 55.1, 55.1), ""),
        ((1, 64, 20, 40), (55.1, 118.1, 74.1, 94.1), ""),
    ],
)
def test_single_step_is_no_law(places, sizes, reason):
    runs = [
        run(memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}, at={"a": a}, runtime="litert")
        for a, size in zip(places, sizes, strict=True)
    ]
    (answer,) = predictions.of_runs(runs)
    assert reason in answer.undecided if reason else not answer.undecided
    assert answer.unbelievable == (answer.undecided if len(set(sizes)) > 1 else "")
    assert tables.finding(answer, str).startswith("net.onnx, litert: undecided: over a=") == bool(reason)
    assert "\n- a has no effect beyond noise between 1 and 64." in tables.render(answer) or len(set(sizes)) > 1 or reason


def test_falling_peak_is_no_single_step():
    sizes = {1: 271.0, 8: 415.5, 4: 301.3, 6: 396.0, 2: 314.5, 7: 377.9}  # inception_v3 in ONNX Runtime 1.32 with 2 threads
    runs = [run(memory={"EXECUTE": (size, size)}, at={"a": a}, threads=2) for a, size in sizes.items()]
    (answer,) = predictions.of_runs(runs)
    said = "PEAK falls from 396.0 MiB at a=6 to 377.9 MiB at a=7, which no law of growth does: try --threads 1, or widen the range"
    assert answer.undecided.startswith(said)
    (apart,) = predictions.of_runs([*runs, *(run(memory={"EXECUTE": (size, size)}, at={"a": 8}, threads=2) for size in (398, 390))])
    assert apart.undecided.startswith("runs of one place differ by up to 25.5 MiB, and no law of a tells that: try --threads 1, or widen")
    answer = replace(answer, within_bytes=512 * MIB, predictions=tuple(answer.predict([{"a": 16}, {"a": 8}])))
    text = tables.render(replace(answer, within=predictions.within(answer)), format="text")
    assert "Nothing is predicted, for the law is undecided. What was measured stands." in text and "Within 512.0 MiB" not in text
    predicted = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| a=")]
    assert [[row[0], row[1], row[2], row[-1]] for row in predicted] == [["a=16", "-", "-", "-"], ["a=8", "-", "-", "415.5"]]
    assert "PEAK as measured at a=8, in one run: 415.5 MiB" in text and "memory: 416Mi" in text


@pytest.mark.parametrize("threads", [1, 2])
def test_doubtful_places_measured_again(tmp_path, monkeypatch, memprof, threads):
    """Where PEAK falls, and with several threads the highest place: their medians count, and the answer gives all."""
    from support.model_inputs import model

    tried = []

    def measure(orders, progress, keep):
        (order,) = orders
        tried.append(order.job.variant)
        size = 100 + 20 * order.job.at["n"]
        if threads == 1:
            size += 60 if tried[-1] == "n=4" else 0
        elif tried[-1] == "n=8":
            size += (0, 64, 0)[tried.count("n=8") - 1]
        made_run = replace(run(memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}), job=order.job)
        keep(store.encode(made_run))
        yield made_run

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    monkeypatch.setattr(arena_requests, "unusual", lambda order: "this")
    words = ["--vary", "n=1..8", "--threads", str(threads), "--json", "-o", "runs.jsonl"]
    done = memprof("scale", model(tmp_path, ("n", 3)), "-r", "onnxruntime", *words)

    assert {name for name in tried if tried.count(name) == 3} == ({"n=8"} if threads == 2 else {"n=4", "n=6"}), done.stderr
    told = json.loads(done.stdout)
    points = {point["at"]["n"]: point for point in told["points"]}
    assert len(points) == len(set(tried))
    if threads == 2:
        assert points[8]["again"] == [260 * MIB, 324 * MIB, 260 * MIB] and points[8]["sizes"][PEAK] == 260 * MIB
        assert any("differ by up to 64.0 MiB" in text for text in told["findings"])
        assert any("--threads 1 usually has one size" in text for text in told["findings"])
    (kept,) = predictions.of_runs(store.load([tmp_path / "runs.jsonl"]).runs)
    assert json.loads(tables.render(kept, format="json"))["points"] == told["points"]


def test_dimension_with_refused_values_undecided():
    refused = Outcome("error", "EXECUTE", message="no")
    (answer,) = predictions.of_runs([run(at={"a": a}, outcome=refused if 1 < a < 64 else None) for a in (1, 64, 20, 40)])
    assert "a was measured at 1 and 64 only, for other runs failed" in answer.undecided


@pytest.mark.parametrize(
    ("sizes", "law"),
    [((102, 146, 166), False), ((102, 131, 160), True)],
)
def test_sessions_cost_with_or_without_law(sizes, law):
    runs = [
        run(memory={"STARTUP": (40, 40), "MODEL_LOAD": (57 + 14.7 * n,) * 2, "EXECUTE": (size, size)}, at={"sessions": n})
        for n, size in enumerate(sizes, 1)
    ]
    (answer,) = predictions.of_runs(runs)
    assert (answer.law is not None) == law
    each = (sizes[-1] - sizes[0]) / 2
    assert f"From sessions=1 to sessions=3 each further session costs {each:.1f} MiB of PEAK" in answer.findings[0]
    assert "regions double" not in tables.render(answer) and not answer.against


def test_input_with_unnamed_dimensions_omitted(tmp_path):
    zoo.make("encoder", tmp_path / "encoder.tflite", format="tflite", size_bytes=4 * MIB)
    request = ScaleRequest(one(tmp_path / "encoder.tflite", "litert"), (parse("ids.0=1..4"),))

    assert "taken as 1: ids.1, mask.0, mask.1 " in scale_runs.Places(request, Silent(), lambda line: None).assumed


def test_process_group_removed(scenario):
    with side_by_side._group(HERE, 1 << 30) as group:
        pass
    assert group is None or not Path(group.folder).exists()


@pytest.mark.skipif(remote_groups.common(HERE) is None, reason="no control group can be made here")
def test_process_group_without_swap():
    with side_by_side._group(HERE, None, no_swap=True) as group:
        assert (Path(group.folder) / group.files.swap).read_text() == "0\n"


def test_processes_without_swap_need_group(monkeypatch):
    monkeypatch.setattr(remote_groups, "common", lambda place: None)
    with pytest.raises(InputError, match="--no-swap needs a control group"), side_by_side._group(HERE, None, no_swap=True):
        pass


def test_processes_wait_until_cool(scenario, monkeypatch):
    def refuse(order, progress):
        raise InputError(f"hotter than {order.max_celsius:g}")

    monkeypatch.setattr(side_by_side, "cooled", refuse)
    order = orders.of_one(one(scenario(), "synthetic", max_celsius=45.0))

    with pytest.raises(InputError, match="hotter than 45"):
        side_by_side.measure(order, 2, Silent(), lambda line: None)


def at_places(slope=1.0, *, shape=None, start=80.0, **changes):
    """Runs of a search along `a`; shape: of the input besides, whose first axis is `a`."""
    places = (1, 64, 20, 40, 7)
    return [
        run(
            f"a={a}",
            memory={"STARTUP": (40, 40), "MODEL_LOAD": (60, 60), "EXECUTE": (start + slope * a, start + slope * a)},
            at={"a": a},
            shapes={"x": (a, *shape)} if shape else {},
            **changes,
        )
        for a in places
    ]


def slopes(runs):
    return [answer.law.coefficient("a").bytes / MIB for answer in predictions.of_runs(runs)]


def test_law_from_kept_runs():
    runs = at_places(slope=2.0)
    confirmed = run("a=100", memory={"STARTUP": (40, 40), "EXECUTE": (500, 500)}, at={"a": 100}, verifies=True)

    (answer,) = predictions.of_runs([*runs, confirmed, run("another")])

    assert answer.law.coefficient("a").bytes == pytest.approx(2 * MIB, rel=0.01)
    assert [point.at for point in answer.points if point.held_out] == [{"a": 100}]
    assert answer.named(MODEL_LOAD).coefficient("a") is None
    assert not answer.undecided


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": (3, 320)},
        {"threads": 4},
        {"knobs": {"arena": "off"}},
        {"where": machine("board")},
        {"model": "other.onnx"},
        {"env": {"X": "1"}},
        {"python": "/other/python"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_laws_of_two_searches(changes):
    if "model" in changes:
        changes = {"model": changes["model"]}
        second = [
            replace(each, job=replace(each.job, model=replace(each.job.model, sha256="11" * 32))) for each in at_places(3.0, **changes)
        ]
    else:
        second = at_places(3.0, **{"shape": (3, 224), **changes})

    runs = [each for pair in zip(at_places(1.0, shape=(3, 224)), second, strict=True) for each in pair]

    assert slopes(runs) == pytest.approx([1.0, 3.0], rel=0.01)


@pytest.mark.parametrize(
    ("far", "remark"), [(False, "The arena is not simulated: not with this."), (True, "the simulation is too far from what was measured")]
)
def test_law_with_plan_from_kept_runs(tmp_path, monkeypatch, memprof, far, remark):
    def measure(orders, progress, keep):
        (order,) = orders
        part = math.log2(order.job.planned_bytes) % 1
        size = 90 + order.job.planned_bytes * (1.2 if part < 0.3 else 1.7 if part < 0.7 else 1.4) / MIB  # in steps that come again
        made_run = replace(run(memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}), job=order.job)
        keep(store.encode(made_run))
        yield made_run

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    # The law is that of an arena that is not simulated, or of one whose simulation is far from what is measured.
    if far:

        def far_off(at):
            return arena_requests.Resident(MIB, MIB * at["batch"] ** 3)

        monkeypatch.setattr(scale_runs.Places, "simulate", lambda places: (LawSearch(), far_off))
    else:
        monkeypatch.setattr(arena_requests, "unusual", lambda order: "this")
    zoo.make("encoder", tmp_path / "encoder.onnx", format="onnx", size_bytes=4 * MIB)
    words = ("--vary", "batch=1..32", "--vary", "sequence=16..512", "--predict", "batch=40,sequence=600", "--confirm", "--json")
    done = memprof("scale", "encoder.onnx", "-r", "onnxruntime", *words, "-o", "runs.jsonl")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    loaded = store.load([tmp_path / "runs.jsonl"]).runs
    assert all(each.job.planned_bytes for each in loaded)
    (again,) = predictions.of_runs(loaded)
    retold = json.loads(tables.render(again, format="json"))
    assert told["planned"] and told["laws"][0]["law"]["steps"]
    (said,) = (sentence for sentence in told["remarks"] if "simulat" in sentence)
    assert remark in said
    for part in ("laws", "planned", "against", "points"):
        assert retold[part] == told[part], part
    # Of a file from before there were plans, and of one that claims nonsense, the law is made without.
    for nonsense in (None, -1, 10**400):
        (plain,) = predictions.of_runs([replace(each, job=replace(each.job, planned_bytes=nonsense)) for each in loaded])
        assert plain.planned is None and plain.law is not None


def test_law_without_constant_dimension():
    runs = [
        replace(each, job=replace(each.job, at={**each.job.at, "sequence": 128}, shapes={"x": (each.job.at["a"], 128)}))
        for each in at_places()
    ]

    (answer,) = predictions.of_runs(runs)

    assert [dimension.label for dimension in answer.varying] == ["a"]
    assert {tuple(point.at) for point in answer.points} == {("a",)}


def test_picture_of_one_search():
    with pytest.raises(InputError, match="no run is of a search for a law"):
        pictures.render([run()])
    with pytest.raises(
        InputError, match=r"2 searches, and a picture is of one: net.onnx in onnxruntime; net.onnx in onnxruntime · arena=off"
    ):
        pictures.render([*at_places(), *at_places(knobs={"arena": "off"})])


def wanting(runs, **asked):
    return [replace(each, search=LawSearch(**asked)) for each in runs]


def drawn(answer):
    """The texts of a picture, and the ends of its axis."""
    figure = pictures.picture(answer)
    (axes,) = figure.get_axes()
    return [text.get_text() for text in (*figure.texts, *axes.texts)], axes.get_xlim()


def test_picture_shows_request():
    refused = run("a=50", at={"a": 50}, outcome=Outcome("error", phase="EXECUTE", message="no room"))
    runs = [*at_places(slope=2.0), refused]
    (plain,) = predictions.of_runs(runs)
    texts, ends = drawn(plain)
    assert "not measured" in texts and any(text.startswith("Not measured: a=50: in EXECUTE: no room") for text in texts)
    assert ends[1] < 70 and not [text for text in texts if text.startswith(("predicted", "limit", "largest"))]

    (answer,) = predictions.of_runs(wanting(runs, predictions=({"a": 120},), within_bytes=180 * MIB))
    texts, ends = drawn(answer)
    assert {"predicted, with 95%", "limit 180.0 MiB", "largest that fits"} <= set(texts)
    assert f"{answer.within[0].value}" in texts and answer.within[0].value in (49, 50)
    assert ends[1] > 120

    # What is too far away, and a limit too high, are said.
    (far,) = predictions.of_runs(wanting(runs, predictions=({"a": 1000},), within_bytes=1 << 34))
    texts, ends = drawn(far)
    assert ends[1] < 70
    assert any(text == "The limit of 16.00 GiB lies above the picture." for text in texts)
    assert any(text.startswith("Not drawn: PEAK at a=1000, predicted as 2.03 GiB") for text in texts)


def test_views_of_runs_have_step(tmp_path, monkeypatch, memprof):
    """The command, the picture and the page find the same limits in the same runs, each of the step of --vary and below a refused value."""

    def measure(orders, progress, keep):
        (order,) = orders
        batch = order.job.at["batch"]
        size = 80 + 2 * batch
        made = replace(run(memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}), job=order.job)
        if batch == 50:
            made = replace(made, outcome=Outcome("error", phase="EXECUTE", message="no room"))
        keep(store.encode(made))
        yield made

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    monkeypatch.setattr(arena_requests, "unusual", lambda order: "this")
    zoo.make("encoder", tmp_path / "encoder.onnx", format="onnx", size_bytes=4 * MIB)
    for high, limit, expected in (
        (29, 174, 43),
        (50, 190, 43),
    ):  # 80 MiB + 2 MiB x 47 are 174 MiB, and 47 is not of the step; 50 is refused
        words = ("--vary", f"batch=1..{high}:7", "--vary", "sequence=16", "--within", f"{limit}MiB", "--json", "-o", f"{high}.jsonl")
        done = memprof("scale", "encoder.onnx", "-r", "onnxruntime", *words)
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)["within"]
        assert (row["value"] - 1) % 7 == 0 and row["value"] == expected, row
        loaded = store.load([tmp_path / f"{high}.jsonl"]).runs
        (again,) = predictions.of_runs(loaded)
        assert json.loads(tables.render(again, format="json"))["within"] == [row]
        assert f"{expected}" in drawn(again)[0]
        laws = re.sub(r"<[^>]+>", " ", page.render(loaded).partition('id="laws"')[2])
        assert laws.partition("measured there")[2].split()[:3] == ["batch", "-", f"{expected}"]


def test_picture_legend_of_points_off_curves():
    def law(a, b):
        return 80 + a + 2 * b

    places = [(1, b) for b in (1, 3, 9, 20, 32)] + [(9, b) for b in (1, 32)] + [(5, 3)]
    runs = [run(f"a={a},b={b}", memory={"STARTUP": (40, 40), "EXECUTE": (law(a, b), law(a, b))}, at={"a": a, "b": b}) for a, b in places]
    (answer,) = predictions.of_runs(wanting(runs, predictions=({"a": 4, "b": 40},)))
    texts, _ = drawn(answer)
    assert {"b=1", "b=40", "at other values of b"} <= set(texts)
    # Nothing was measured with b=40: its curve is an assumption all along, without a mark of measured points.
    assert "beyond the measured range" in texts


def test_picture_long_law_below():
    (answer,) = predictions.of_runs(at_places(slope=2.0))
    assert drawn(answer)[0][:2] == ["PEAK = 80.0 MiB + 2.00 MiB x a", "PEAK as a law: net.onnx · onnxruntime"]
    long = replace(answer, main="PEAK " + "of many words " * 9)
    long = replace(
        long, laws=(Named(long.main, answer.law),), points=[replace(point, sizes={long.main: point.sizes[PEAK]}) for point in answer.points]
    )
    texts = drawn(long)[0]
    place = texts.index("onnxruntime · the law below")
    assert "2.00 MiB x a." in " ".join(texts[place:])


@pytest.mark.parametrize(
    "search",
    [
        LawSearch(predictions=({"b": 3}, {"a": -1}, {"a": 10**400}), within_bytes=-5),
        LawSearch(requests=RequestTrace((7, ~9), (), (0,), (ArenaRequests({"a": 1}, (10,), ()),))),
        LawSearch(requests=RequestTrace((0, ~0), (0,), (0,), (ArenaRequests({"b": 1}, (10,), ()),))),
        LawSearch(
            requests=RequestTrace((0, ~0), (0,), (0,), (ArenaRequests({"a": 1}, (10**400,), ()), ArenaRequests({"a": 2}, (20, 30), (4,))))
        ),
        LawSearch(requests=RequestTrace((), (), (), ())),
        LawSearch(sums={"no such": 1}),
        LawSearch(ranges={"a": (0, 5, 1)}),
        LawSearch(ranges={"a": (1, 10**400, 7)}),
        LawSearch(ranges={"a": (1, 64, 0), "b": (1, 2, 1)}),
    ],
)
def test_law_unchanged_by_odd_search(search):
    (plain,), (odd,) = predictions.of_runs(at_places()), predictions.of_runs([replace(each, search=search) for each in at_places()])
    assert (odd.laws, odd.predictions, odd.within) == (plain.laws, (), ())


def test_page_shows_request():
    text = page.render(wanting(at_places(slope=2.0), predictions=({"a": 100},), within_bytes=180 * MIB))
    laws_part = text[text.index('id="laws"') :]
    lead = text[text.index('id="finding"') : text.index('id="controls"')]
    assert "PEAK = 80.0 MiB + 2.00 MiB x a" in lead and "peaks highest" not in lead
    assert "Predictions (MiB)" in laws_part and "beyond the measured a" in laws_part
    assert "Within 180.0 MiB" in laws_part and "largest that fits" in laws_part


def test_page_shows_law_and_picture():
    text = page.render(at_places(slope=2.0))

    assert "net.onnx, onnxruntime: PEAK = 80.0 MiB + 2.00 MiB x a" in text
    (picture,) = re.findall(r'id="laws".*?src="data:image/svg\+xml;base64,([^"]+)"', text, re.DOTALL)
    assert b"PEAK as a law" in base64.b64decode(picture)
    assert 'id="laws"' not in page.render([run()])


def test_arena_steps_reported():
    def stepping(**changes):
        sizes = {a: 90 + a * (7 if a in (1, 8, 64) else 5 if a < 48 else 4) for a in (1, 8, 14, 26, 44, 56, 64)}
        runs = [run(f"a={a}", memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}, at={"a": a}, **changes) for a, size in sizes.items()]
        (answer,) = predictions.of_runs(runs)
        return answer

    answer = stepping()
    assert answer.law.steps and answer.law.predict({"a": 100}).high_bytes > 1.1 * answer.law.predict({"a": 100}).bytes
    assert "The arena's regions double, so memory grows in steps around the law of PEAK" in tables.render(answer, format="text")
    assert json.loads(tables.render(answer, format="json"))["laws"][0]["law"]["steps"] == answer.law.steps
    for plain in (stepping(knobs={"arena": "off"}), stepping(runtime="litert")):
        assert plain.law is None or not plain.law.steps


@pytest.mark.parametrize(
    ("name", "knobs", "doubles"),
    [
        ("onnxruntime", {}, True),
        ("onnxruntime-native", {"arena": "on"}, True),
        ("onnxruntime", {"arena": "off"}, False),
        ("tflite", {}, False),
        ("/a/runtime.py", {}, False),
    ],
)
def test_arena_doubling_by_runtime(name, knobs, doubles):
    assert runtimes.described(name).arena_doubles(knobs) is doubles


@pytest.mark.usefixtures("nothing_left")
def test_search_continues_after_lost_connection(scenario, memprof, board, server, tmp_path):
    go = tmp_path / "go"
    body = f"""
import os, pathlib, time
pathlib.Path({str(tmp_path)!r}, "seen%d" % os.getpid()).touch()
while not os.path.exists({str(go)!r}):
    time.sleep(0.05)
"""
    words = ("--vary", "processes=1..2", "--points", "2", *board, "--python", sys.executable, "-o", "s.jsonl")
    with recorder_runs.started(tmp_path, "scale", scenario(), "-r", recorder_runs.runtime_file(tmp_path, load=body), *words) as process:
        recorder_runs.wait_for(lambda: list(tmp_path.glob("seen*")))
        server.cut()
        recorder_runs.wait_for(lambda: b"lost" in (tmp_path / "s.jsonl").read_bytes())
        go.touch()
        _, errors = process.communicate(timeout=300)

    assert "the connection to " in errors and process.returncode in (0, 3)
    statuses = [run["outcome"]["status"] for run in recorder_runs.runs_in(tmp_path / "s.jsonl")]
    assert "lost" in statuses and statuses[-1] == "ok"


EATS = "import sys; held = bytearray(int(sys.argv[1]) << 20); held[::4096] = bytes([1]) * len(held[::4096])"


def test_program_law_by_its_parameter(memprof, tmp_path):
    (tmp_path / "eat.py").write_text(EATS)
    words = ("--vary", "mib=10..40", "--predict", "mib=80", "--within", "50MiB", "--confirm", "--points", "4", "--json")

    done = memprof("scale", *words, "--", sys.executable, "eat.py", "{mib}")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    law = next(law["law"] for law in answer["laws"] if law["name"] == "PEAK")
    by_mib = next(each for each in law["coefficients"] if each["words"] == "mib")
    assert abs(by_mib["bytes"] - MIB) < 64 * KIB
    (place,) = answer["predictions"]
    confirmed = next(point["sizes"]["PEAK"] for point in answer["points"] if point["at"] == {"mib": 80})
    assert place["low_bytes"] <= confirmed <= place["high_bytes"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--vary", "mib=1..2", "--", "true"], "--vary mib: write {mib} where its value goes among the words of true"),
        (["--vary", "n=1..2", "--vary", "n=3", "--", "true", "{n}"], "--vary n: it is named twice"),
        (["--vary", "n=1..2", "--shape", "x=1", "--", "true", "{n}"], "--shape is for a runtime"),
    ],
)
def test_program_law_refusals(memprof, words, sentence):
    done = memprof("scale", *words)

    assert done.returncode == 2 and sentence in done.stderr
