"""`memprof scale`: laws that the synthetic runtime is known to follow, and what cannot be measured or told."""

from __future__ import annotations

import base64
import itertools
import json
import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import failing
import pytest
from failing import NEAR
from made import MIB, job, machine, run
from test_laws import QUIET, SIX, line, measured

from memprof import zoo
from memprof.errors import InputError, MeasurementError, UsageError
from memprof.judge import laws
from memprof.judge.terms import Point, Term
from memprof.measuring import limits, together
from memprof.measuring.places.place import HERE
from memprof.measuring.progress import Silent
from memprof.programs import runtimes
from memprof.reports import page
from memprof.reports.pictures import scale as pictures
from memprof.reports.tables import scale as tables
from memprof.runs import store
from memprof.runs.records import MODEL_LOAD, PEAK, Asked, Outcome, Requests, Search
from memprof.seek import scale, scale_findings, scale_laws, scale_requests, scale_runs, scaled
from memprof.seek.dimensions import Dimension, parse, parse_place
from memprof.seek.scale_runs import ran_out
from memprof.seek.scaled import ALL, ANONYMOUS, CHARGED, Against, Change, Measured, Named, Scaled, ScaleRequest, Within

KIB = 1 << 10


def asked(path, *ranges, **words):
    dimensions = tuple(parse(text) for text in ranges)
    return scale.scale(ScaleRequest(str(path), "synthetic", dimensions, runs=1, **words), Silent(), lambda line: None)


def coefficients(answer, name=PEAK):
    return {coefficient.term.words: coefficient.bytes for coefficient in answer.named(name).coefficients}


# -- what is measured


def test_a_law_is_found_predicted_inverted_and_confirmed(scenario, memprof, tmp_path):
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
    (again,) = scale_laws.of_runs(loaded)
    assert {entry.term.words: entry.bytes for entry in again.law.coefficients} == pytest.approx(coefficients)
    assert [point.at for point in again.points if point.held_out] == [point["at"] for point in told["points"] if point["held_out"]]
    assert json.loads(tables.render(again, format="json"))["within"] == told["within"]
    assert again.predictions[0].bytes == pytest.approx(prediction["bytes"])
    assert memprof("plot", "scale", "s.jsonl", "-o", "again.png").returncode == 0
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "s.png").read_bytes()
    assert memprof("plot", "scale", "s.jsonl", "-o", "again.svg", "--within", "120MiB").returncode == 0
    assert "limit 120.0 MiB" in (tmp_path / "again.svg").read_text()


def test_a_run_that_dies_of_want_of_memory_is_a_point_and_a_refused_run_is_not(scenario):
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


def test_where_nothing_can_be_measured_the_first_reason_is_the_error(scenario):
    with pytest.raises(MeasurementError, match=r"no place could be measured: .*it is broken"):
        asked(scenario(load=[{"raise": "it is broken"}]), "x=1..64")


def test_dimensions_that_nobody_set_are_named_and_a_failure_at_all_places_is_said_once(tmp_path, monkeypatch, memprof):
    from test_inputs import model

    def measure(orders, progress, keep):
        (order,) = orders
        assert order.job.shapes["x"][1:] in ((3, 1, 1), (3, 5, 5))
        yield replace(run(outcome=Outcome("error", "WARMUP", message="invalid shape")), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    path = model(tmp_path, ("n", 3, "h", None), ("n",))
    done = memprof("scale", path, "-r", "onnxruntime", "--vary", "n=1..8")

    assert done.returncode == 4
    said = "open dimensions of the model are taken as 1: h, x.3 (--vary h=N --vary x.3=N with your sizes for N says otherwise)"
    assert f"open.onnx: {said}" in done.stderr.splitlines()
    assert done.stderr.splitlines()[-1].endswith(f"no place could be measured: in WARMUP: invalid shape; {said}")
    assert done.stderr.count("invalid shape") == 1
    for words in (("--vary", "h=5", "--vary", "x.3=5"), ("--shape", "x=1,3,5,5")):
        assert "taken as 1" not in memprof("scale", path, "-r", "onnxruntime", "--vary", "n=1..8", *words).stderr


def test_a_place_that_failed_before_another_worked_has_its_reason(monkeypatch, scenario):
    said = []

    def measure(orders, progress, keep):
        (order,) = orders
        outcome = Outcome("error", "WARMUP", message="odd") if order.job.at["x"] == 1 else None
        yield replace(run(outcome=outcome), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    monkeypatch.setattr(Silent, "say", lambda self, sentence: said.append(sentence))
    asked(scenario(), "x=1..8", points=2)

    assert said.index("x=1: failed") < said.index("x=1: in WARMUP: odd")


def test_sessions_that_share_nothing_are_seen_as_such(scenario):
    path = scenario(load=[{"allocate": "w", "bytes": 20 * MIB}])

    answer = asked(path, "sessions=1..4")

    assert coefficients(answer)["sessions"] == pytest.approx(20 * MIB, abs=NEAR)
    assert "sessions do not share them" in answer.findings[0]


def test_a_file_that_each_session_maps_again_lies_in_memory_once(scenario, tmp_path):
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
def test_the_next_process_costs_what_it_has_for_itself_alone(scenario):
    path = scenario(load=[{"allocate": "w", "bytes": 30 * MIB}])

    answer = asked(path, "processes=1..3", points=3)

    marginal = coefficients(answer, answer.main)["processes"]
    own = answer.points[0].sizes[answer.main]
    assert 30 * MIB < marginal <= own + MIB
    if any(CHARGED in point.sizes for point in answer.points):  # where control groups can be made
        # The kernel counts a group's pages in batches, of 64 a CPU.
        assert coefficients(answer, CHARGED)["processes"] == pytest.approx(marginal, rel=0.05)
    assert "The next process costs" in answer.findings[0]
    assert "The processes share pages of " in answer.findings[1]


@pytest.mark.usefixtures("nothing_left")
def test_the_page_tables_of_each_process_count(scenario, monkeypatch):
    texts = together._texts
    monkeypatch.setattr(
        together, "_texts", lambda place, paths: [re.sub(r"VmPTE:.*", f"VmPTE: {50 << 10} kB", text) for text in texts(place, paths)]
    )
    answer = asked(scenario(load=[{"allocate": "w", "bytes": 30 * MIB}]), "processes=1..2", points=2)
    one, two = sorted(point.sizes[answer.main] for point in answer.points)
    assert 80 * MIB < two - one < 90 * MIB


@pytest.mark.usefixtures("nothing_left")
def test_pages_of_a_file_that_only_the_first_run_had_to_read_are_not_charged(scenario, tmp_path):
    weights = tmp_path / "weights"
    weights.write_bytes(os.urandom(20 * MIB))
    with weights.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    answer = asked(scenario(load=[{"map": str(weights), "as": "w"}, {"allocate": "own", "bytes": 10 * MIB}]), "processes=1..2", points=2)

    for point in answer.points:
        if CHARGED in point.sizes:  # where control groups can be made
            assert point.sizes[CHARGED] < point.sizes[answer.main] - 20 * MIB + MIB


def test_a_place_that_fits_and_is_refused_says_so_in_its_row_and_places_are_in_the_order_of_vary(scenario):
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


def test_without_a_law_what_was_asked_is_measured_and_nothing_is_predicted(monkeypatch, scenario):
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


def test_a_prediction_that_no_law_can_make_is_an_open_question(monkeypatch, scenario, memprof):
    def measure(orders, progress, keep):
        (order,) = orders
        size = {1: 100, 2: 400, 4: 120, 8: 300}.get(order.job.at["sessions"], 110)
        yield replace(run(memory={"EXECUTE": (size, size)}), job=order.job)

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    assert asked(scenario(), "sessions=1..8").undecided == ""
    answer = asked(scenario(), "sessions=1..8", predictions=({"sessions": 9},))
    assert (answer.law, answer.undecided) == (None, "no simple law holds for PEAK")


@pytest.mark.parametrize(("sizes", "median"), [((300, 180, 181), 181), ((180,), 180), ((300, 301, 180), 300)])
def test_a_place_that_is_confirmed_outside_its_interval_is_measured_twice_more(sizes, median, monkeypatch, scenario):
    left, lines = list(sizes), []

    def measure(orders, progress, keep):
        (order,) = orders
        size = left.pop(0) if order.job.verifies else 80 + order.job.at["x"]
        yield (done := replace(run(memory={"EXECUTE": (size, size)}), job=order.job))
        keep(store.encode(done))

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    request = ScaleRequest(scenario(), "synthetic", (parse("x=1..64"),), predictions=({"x": 100},), confirm=True)
    answer = scale.scale(request, Silent(), lines.append)

    (again,) = scale_laws.of_runs([store.decode(line, "a run") for line in lines])
    for made in (answer, again):
        (point,) = (point for point in made.points if point.held_out)
        assert point.sizes[PEAK] == median * MIB and left == []
        assert point.again == (tuple(size * MIB for size in sizes) if len(sizes) > 1 else ())
        text = tables.render(made)
        assert ("median of 3 runs" in text) == (f"{sizes[0]}.0 MiB, " in text) == (len(sizes) > 1)


def test_no_more_are_said_to_fit_than_the_runtime_takes():
    points = itertools.product((1, 4, 8), (1, 2, 4))
    runs = [run(f"a={a},b={b}", memory={"EXECUTE": (80 + 2 * a + 4 * b,) * 2}, at={"a": a, "b": b}) for a, b in points]
    refused = run("a=1,b=6", at={"a": 1, "b": 6}, outcome=Outcome("error", "MODEL_LOAD", message="too many"))
    killed = run("a=8,b=6", at={"a": 8, "b": 6}, outcome=Outcome("timeout", "EXECUTE"))
    (answer,) = scale_laws.of_runs(wanting([*runs, refused, killed], within_bytes=130 * MIB))
    rows = {(row.dimension, tuple(row.others.items())): row for row in answer.within}
    assert (rows["b", (("a", 1),)].value, rows["b", (("a", 1),)].refused) == (5, 6)
    assert rows["b", (("a", 8),)].value == 8 and rows["b", (("a", 8),)].refused is None
    assert "onnxruntime refuses b=6 with a=1, so that no more are said to fit there." in tables.render(answer)


def test_a_law_depends_on_the_dimension_among_whose_parts_another_is_divided():
    term = Term((("context", 1),), "pages", "context", 256, "slots")
    assert term.names == {"context", "slots"}
    law = laws.law(
        [
            Point({"context": c, "slots": s}, MIB * (80 + s * 256 * -(-c // (256 * s)) / 128))
            for c, s in itertools.product((512, 1100, 2100, 4096), (1, 3))
        ],
        noise=(1000.0, 1e-5),
    )
    assert law.depends_on("slots") and term.words in {entry.term.words for entry in law.coefficients}


def test_a_place_that_was_measured_above_the_limit_is_too_much():
    row = Within("a", {"s": 16}, 9, 8, 10, confirmed_bytes=501 * MIB)
    assert "501.0 MiB: too much" in tables.render(made(within_bytes=500 * MIB, within=(row,)), format="text")


@pytest.mark.usefixtures("nothing_left")
def test_of_processes_at_once_a_failure_ends_all(scenario):
    with pytest.raises(MeasurementError, match="it is broken"):
        asked(scenario(prepare=[{"raise": "it is broken"}]), "processes=2..3")


@pytest.mark.usefixtures("nothing_left")
def test_processes_on_another_machine_are_added_up_there(scenario, memprof, board):
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


@pytest.mark.usefixtures("nothing_left")
def test_processes_there_end_with_the_connection_and_the_search_goes_on(scenario, memprof, board, server, tmp_path):
    go = tmp_path / "go"
    body = f"""
import os, pathlib, time
pathlib.Path({str(tmp_path)!r}, "seen%d" % os.getpid()).touch()
while not os.path.exists({str(go)!r}):
    time.sleep(0.05)
"""
    words = ("--vary", "processes=1..2", "--points", "2", *board, "--python", sys.executable, "-o", "s.jsonl")
    with failing.started(tmp_path, "scale", scenario(), "-r", failing.runtime_file(tmp_path, load=body), *words) as process:
        failing.wait_for(lambda: list(tmp_path.glob("seen*")))
        server.cut()
        failing.wait_for(lambda: b"lost" in (tmp_path / "s.jsonl").read_bytes())
        go.touch()
        _, errors = process.communicate(timeout=300)

    assert "the connection to " in errors and process.returncode in (0, 3)
    statuses = [run["outcome"]["status"] for run in failing.runs_in(tmp_path / "s.jsonl")]
    assert "lost" in statuses and statuses[-1] == "ok"


def test_a_place_that_surely_does_not_fit_is_not_run(scenario, monkeypatch):
    path = scenario(load=[{"allocate": "w", "bytes": {"": 20 * MIB, "x": MIB}}])
    monkeypatch.setattr(scale_runs, "_guard", lambda place: None)
    monkeypatch.setattr(scale_runs, "_free", lambda: 100 * MIB)

    answer = asked(path, "x=1..16", predictions=({"x": 500},), confirm=True, points=4)

    assert answer.predictions[0].bytes == pytest.approx((500 + 20 + 10) * MIB, rel=0.03)
    assert any("x=500 was not confirmed: not run: it would need more memory" in remark for remark in answer.remarks)


# -- words


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
        (["--vary", "x=1..4", "--predict", "z=2"], 2, "'z' is no dimension that varies"),
        (["--vary", "x=1..4", "--vary", "y=1..4", "--predict", "x=2"], 2, "y needs a value too"),
        (["--vary", "x=1..4", "--set", "x=3"], 2, "--vary x: --set x=3 gives it a value too"),
        (["--vary", "threads=1..4", "--threads", "2"], 2, "--vary threads: --threads 2 gives it a value too"),
        (["--vary", "x=1..4", "--vary", "y=1..4", "--vary", "z=1..4", "--vary", "threads=1..2"], 2, "a law of more than 3"),
        (["--vary", "x=1..4", "--within", "much"], 2, "is not a size"),
    ],
)
def test_wrong_words_are_said_before_anything_is_measured(words, code, reason, scenario, memprof):
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
def test_what_the_file_or_a_shape_gives_cannot_vary(words, reason, tmp_path, memprof):
    from test_inputs import model

    done = memprof("scale", model(tmp_path, ("n", 3, "h")), "-r", "onnxruntime", *words)
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (2, "", f"memprof: {reason}")


def test_the_shapes_of_a_suite_are_of_its_runs_and_not_of_a_law_of_them(tmp_path):
    from test_inputs import model

    path = model(tmp_path, ("n", 3, "h"))
    plain = job(shapes={"x": (4, 3, 5)})
    order = SimpleNamespace(job=replace(plain, model=replace(plain.model, path=str(path))), runtime=runtimes.Runtime("litert"))
    assert scale.request_of(order, ("n=1..8",)).shapes == {"x": (1, 3, 5)}


def test_a_dimension_that_the_file_fixes_is_not_proposed(tmp_path, memprof):
    from test_inputs import model

    done = memprof("scale", model(tmp_path, (2, 3)), "-r", "onnxruntime", "--vary", "batch=1..4")
    assert done.returncode == 2
    assert "x.0" not in done.stderr and done.stderr.endswith("; the file fixes all dimensions of its inputs\n")


@pytest.mark.parametrize(
    ("runs", "places", "code"),
    [(lambda batch: batch == 1, [1, 4, 2], 5), (lambda batch: batch < 4, [1, 4, 2, 3], 0)],
)
def test_a_dimension_that_the_file_fixes_and_the_runtime_keeps_ends_the_search(runs, places, code, tmp_path, monkeypatch, memprof):
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
    reason = "memprof: mnist.tflite fixes input.0 at 1, and tflite keeps that (in PREPARE: no reshape); the file leaves none open"
    assert (done.stderr.splitlines()[-1] == reason) == bool(code)


def test_a_range_too_small_to_tell_is_undecided(scenario, memprof):
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
def test_what_a_single_step_explains_is_no_law(places, sizes, reason):
    runs = [
        run(memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}, at={"a": a}, runtime="litert")
        for a, size in zip(places, sizes, strict=True)
    ]
    (answer,) = scale_laws.of_runs(runs)
    assert reason in answer.undecided if reason else not answer.undecided
    assert answer.unbelievable == (answer.undecided if len(set(sizes)) > 1 else "")
    assert tables.finding(answer, str).startswith("net.onnx, litert: undecided: over a=") == bool(reason)
    assert "\n- a makes no difference beyond noise between 1 and 64." in tables.render(answer) or len(set(sizes)) > 1 or reason


def test_a_dimension_whose_other_values_were_refused_is_undecided():
    refused = Outcome("error", "EXECUTE", message="no")
    (answer,) = scale_laws.of_runs([run(at={"a": a}, outcome=refused if 1 < a < 64 else None) for a in (1, 64, 20, 40)])
    assert "a was measured at 1 and 64 only, for other runs failed" in answer.undecided


@pytest.mark.parametrize(
    ("sizes", "law"),
    [((102, 146, 166), False), ((102, 131, 160), True)],
)
def test_sessions_grow_by_a_plain_sum_or_by_no_law_and_their_cost_is_said(sizes, law):
    runs = [
        run(memory={"STARTUP": (40, 40), "MODEL_LOAD": (57 + 14.7 * n,) * 2, "EXECUTE": (size, size)}, at={"sessions": n})
        for n, size in enumerate(sizes, 1)
    ]
    (answer,) = scale_laws.of_runs(runs)
    assert (answer.law is not None) == law
    each = (sizes[-1] - sizes[0]) / 2
    assert f"From sessions=1 to sessions=3 each further session costs {each:.1f} MiB of PEAK" in answer.findings[0]
    assert "regions double" not in tables.render(answer) and not answer.against


def test_ranges_and_places_in_words():
    assert parse("height,width=224..1024:32") == Dimension(("height", "width"), 224, 1024, 32)
    assert parse("context=4KiB..64KiB") == Dimension(("context",), 4096, 65536)
    assert not parse("sequence=128").varies
    both = [parse("height,width=224..1024"), parse("batch=1..4")]
    assert list(parse_place("batch=2,width=500", both).items()) == [("height=width", 500), ("batch", 2)]
    with pytest.raises(UsageError, match="at least 1"):
        parse_place("width=500,batch=0", both)
    with pytest.raises(UsageError, match="batch is a whole number"):
        parse_place("width=500,batch=1.5", both)
    with pytest.raises(UsageError, match="sequence is 128 everywhere; give it a range"):
        parse_place("batch=2,sequence=64", [parse("batch=1..4"), parse("sequence=128")])


def test_an_input_whose_dimensions_have_no_names_may_be_left_out(tmp_path):
    zoo.make("encoder", tmp_path / "encoder.tflite", format="tflite", size_bytes=4 * MIB)
    request = ScaleRequest(str(tmp_path / "encoder.tflite"), "litert", (parse("ids.0=1..4"),))

    assert "taken as 1: ids.1, mask.0, mask.1 " in scale_runs.Places(request, Silent(), lambda line: None).assumed


def test_a_runtimes_own_full_stop_does_not_end_the_sentence_around_it():
    assert Outcome("error", "WARMUP", "failed to invoke.").sentence == "in WARMUP: failed to invoke"
    assert Outcome("exit", "WARMUP", exit_code=1, hints=("it printed: no model.",)).sentence.endswith("it printed: no model")
    assert Outcome("error", "WARMUP", "still waiting ...").sentence == "in WARMUP: still waiting ..."


def test_want_of_memory_is_told_by_the_kernel_or_by_the_runtime():
    assert ran_out(Outcome("signal", "EXECUTE", signal="SIGKILL", out_of_memory=True))
    assert ran_out(Outcome("error", "EXECUTE", "RuntimeError: Failed to allocate memory for requested buffer"))
    assert ran_out(Outcome("error", "EXECUTE", "MemoryError"))
    assert not ran_out(Outcome("error", "EXECUTE", "ValueError: got a wrong shape"))
    assert not ran_out(Outcome("ok"))


# -- the report, of a made-up answer


def made(truth=lambda a, s: 80 + 0.02 * a * s + 0.0001 * a * s * s, **changes):
    points = measured(truth, SIX)
    law = laws.law(points, noise=(1000.0, 1e-5))
    answer = Scaled(
        model="net.onnx",
        runtime="onnxruntime",
        settings="arena=off",
        dimensions=(parse("a=1..16"), parse("s=16..512")),
        points=tuple(Measured(point.at, {PEAK: int(point.bytes), ANONYMOUS: 40 * MIB}) for point in points),
        main=PEAK,
        laws=(Named(PEAK, law),),
        threads=2,
    )
    return replace(answer, **changes)


def test_a_law_reads_as_a_sum_with_an_interval_for_each_term():
    text = tables.render(made(), format="text")
    assert text.startswith("net.onnx, onnxruntime, arena=off, 2 threads: PEAK = 80.0 MiB + 20.5 KiB x a x s + 105 B x a x s²\n")
    row = next(row for row in text.splitlines() if "| a x s² " in row)
    assert "105 B to 105 B" in row
    assert tables.per(0.03125) == "0.0312 B" and tables.per(8192) == "8.00 KiB" and tables.per(-3e6) == "-2.86 MiB"


def test_the_report_says_what_stands_beside_a_law():
    answer = made()
    held_out = Measured({"a": 32, "s": 512}, {PEAK: 1000 * MIB}, held_out=True)
    dead = Measured({"a": 16, "s": 500}, {PEAK: 900 * MIB}, ended="out of memory in EXECUTE", least=True)
    answer = replace(
        answer,
        points=(*answer.points, held_out, dead),
        predictions=tuple(answer.predict([held_out.at])),
        within_bytes=500 * MIB,
        within=(Within("a", {"s": 512}, 9, 8, 10, 499 * MIB), Within("s", {"a": 99}, None, None, None)),
        against=(Against("a x s", 30 * KIB, 20 * KIB), Against("a", None, 5.0)),
        changes=(Change("a", 5, "PREPARE", "EXECUTE", {"s": 16}),),
        undecided="add more",
        remarks=("A remark.",),
    )
    text = tables.render(answer, format="text")
    for words in (
        "beyond the measured a",
        "at least 900.0",
        "out of memory in EXECUTE",
        "not fitted",
        "Within 500.0 MiB",
        "499.0 MiB",
        "none",
        "1.50x",
        "Up to about a=5 PREPARE makes the peak, beyond it EXECUTE (with s=16).",
        "2 threads: undecided: add more.",
        "- A remark.",
    ):
        assert words in text, words
    told = json.loads(tables.render(answer, format="json"))
    assert told["within"][0]["value"] == 9
    assert told["laws"][0]["law"]["text"] == "80.0 MiB + 20.5 KiB x a x s + 105 B x a x s²"
    assert told["points"][-1]["least"] is True
    places = [
        cells[1:3] for line in text.splitlines() if len(cells := [cell.strip() for cell in line.split("|")]) > 6 and cells[1].isdigit()
    ]
    assert places == [[str(value) for value in place] for place in sorted(tuple(point.at.values()) for point in answer.points)]
    assert pictures.picture(answer).get_axes()[0].get_xlabel() == "a"


def test_what_is_possible_far_beyond_is_not_any():
    row = Within("a", {"s": 16}, 9, 8, None)
    text = tables.render(made(within_bytes=500 * MIB, within=(row,)), format="text")
    assert "not bounded" in text and "any" not in text
    assert "the law's interval is too wide beyond the measured range to say what is possible" in text


def test_without_a_law_the_table_has_bounds_and_the_picture_points():
    points = [Measured({"a": value}, {PEAK: size * MIB}) for value, size in ((1, 80), (8, 300), (20, 90))]
    answer = made(points=tuple(points), laws=(Named(PEAK, None),))
    text = tables.render(answer, format="text")
    assert "no simple law holds for PEAK" in text
    assert "| 80.0 to 90.0 |" in text
    assert answer.predict([{"a": 3}]) == []
    assert len(pictures.picture(answer).get_axes()[0].get_lines()) == 3


def test_another_phase_may_make_the_peak_beyond_a_place():
    load = laws.law(measured(lambda a: 120, line("a", 1, 64, 20, 40)), noise=(1000.0, 1e-5))
    execute = laws.law(measured(lambda a: 60 + 2 * a, line("a", 1, 64, 20, 40)), noise=(1000.0, 1e-5))
    named = (Named(PEAK, execute), Named(MODEL_LOAD, load), Named("EXECUTE", execute))
    assert scaled.predicted(PEAK, named, line("a", 10, 50))[0].bytes == pytest.approx(120 * MIB)
    assert scaled.predicted(PEAK, named, line("a", 10, 50))[1].bytes == pytest.approx(160 * MIB)
    (change,) = scaled.changes(PEAK, named, {"a": (1, 64)})
    assert (change.before, change.after) == (MODEL_LOAD, "EXECUTE")
    assert change.value == pytest.approx(30, abs=2)
    answer = made(laws=named, changes=(change,), points=(Measured({"a": 1}, {PEAK: 120 * MIB}),))
    assert "PEAK is the larger of MODEL_LOAD = " in pictures._drawn_as(answer)
    text = tables.render(answer)
    assert "PEAK is the larger of MODEL_LOAD = 120.0 MiB and EXECUTE = 60.0 MiB + 2.00 MiB x a\n" in text
    assert "the most of MODEL_LOAD and EXECUTE" in text


def test_a_group_of_processes_is_removed(scenario):
    with together._group(HERE, 1 << 30) as group:
        pass
    assert group is None or not Path(group.folder).exists()


@pytest.mark.parametrize(
    ("slope", "sentence"),
    [
        (
            8 * KIB + 52,
            "A token of context costs 8.05 KiB of anonymous memory, of which 8.00 KiB is the KV cache and 52 B llama.cpp's table of its cells.",
        ),
        (8.05 * KIB + 52, "A token of context costs 8.10 KiB of anonymous memory, of which 8.00 KiB is the KV cache."),
        (4 * KIB, "8.00 KiB is the KV cache by the file: it is not kept whole."),
        (0, "no such term was found"),
    ],
)
def test_what_a_token_costs_stands_beside_the_arithmetic_of_the_kv_cache(slope, sentence, monkeypatch):
    asked_types = []

    class Cache:
        def bytes_per_token(self, keys):
            asked_types.append(keys)
            return 8.0 * KIB

    monkeypatch.setattr(scale_findings, "kv_cache", lambda path: Cache())
    law = laws.law(measured(lambda context: 80 + slope * context / MIB, line("context", 512, 8192, 2000, 5000)), noise=QUIET)

    answer = made(laws=(Named(ANONYMOUS, law),), dimensions=(parse("context=512..8192"),))
    (finding,) = scale_findings.of_token(answer, Path("llama.gguf"), "q8_0")

    assert sentence in finding
    assert asked_types == ["q8_0"]


def test_a_chance_amount_of_kept_memory_is_not_taken_for_a_law():
    noise = (0.1 * MIB, 0.001)
    kept = {1: 14, 64: 14, 20: 5, 40: 14, 7: 5, 50: 14}
    points = [
        Measured({"a": a}, {PEAK: int((80 + 0.5 * a + free - 14) * MIB)}, heap_used_bytes=47 * MIB, heap_free_bytes=free * MIB)
        for a, free in kept.items()
    ]

    shifted, most = scale_laws.shifted(points, PEAK, noise)

    assert [point.shift_bytes // MIB for point in shifted] == [14 - free for free in kept.values()]
    assert most == 14 * MIB
    law = laws.law(scale_laws.series(shifted, PEAK, PEAK), noise=noise)
    assert law.coefficient("a").bytes == pytest.approx(0.5 * MIB, rel=0.02)
    # Where the heap in use differs, its rest is no chance.
    assert scale_laws.shifted([replace(point, heap_used_bytes=(47 + point.at["a"]) * MIB) for point in points], PEAK, noise) is None

    # Laws of runs that all kept as much are of such runs too, and a run that keeps less is compared as if it had.
    same = [replace(point, heap_free_bytes=14 * MIB) for point in points]
    assert scale_laws.shifted(same, PEAK, noise) == (same, 14 * MIB)
    assert scale_laws.kept(replace(points[0], heap_free_bytes=5 * MIB), 14 * MIB).shift_bytes == 9 * MIB


# -- laws of runs that were kept


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
    return [answer.law.coefficient("a").bytes / MIB for answer in scale_laws.of_runs(runs)]


def test_runs_that_were_kept_make_their_law_again():
    runs = at_places(slope=2.0)
    confirmed = run("a=100", memory={"STARTUP": (40, 40), "EXECUTE": (500, 500)}, at={"a": 100}, verifies=True)

    (answer,) = scale_laws.of_runs([*runs, confirmed, run("another")])

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
def test_runs_of_two_searches_make_two_laws(changes):
    if "model" in changes:
        changes = {"model": changes["model"]}
        second = [
            replace(each, job=replace(each.job, model=replace(each.job.model, sha256="11" * 32))) for each in at_places(3.0, **changes)
        ]
    else:
        second = at_places(3.0, **{"shape": (3, 224), **changes})

    runs = [each for pair in zip(at_places(1.0, shape=(3, 224)), second, strict=True) for each in pair]

    assert slopes(runs) == pytest.approx([1.0, 3.0], rel=0.01)


def test_a_law_with_a_plan_is_the_same_again(tmp_path, monkeypatch, memprof):
    def measure(orders, progress, keep):
        (order,) = orders
        part = math.log2(order.job.planned_bytes) % 1
        size = 90 + order.job.planned_bytes * (1.2 if part < 0.3 else 1.7 if part < 0.7 else 1.4) / MIB  # in steps that come again
        made_run = replace(run(memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}), job=order.job)
        keep(store.encode(made_run))
        yield made_run

    monkeypatch.setattr(scale_runs.campaign, "measure", measure)
    monkeypatch.setattr(scale_requests, "unusual", lambda order: "this")  # the law is that of an arena that is not simulated
    zoo.make("encoder", tmp_path / "encoder.onnx", format="onnx", size_bytes=4 * MIB)
    words = ("--vary", "batch=1..32", "--vary", "sequence=16..512", "--predict", "batch=40,sequence=600", "--confirm", "--json")
    done = memprof("scale", "encoder.onnx", "-r", "onnxruntime", *words, "-o", "runs.jsonl")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    loaded = store.load([tmp_path / "runs.jsonl"]).runs
    assert all(each.job.planned_bytes for each in loaded)
    (again,) = scale_laws.of_runs(loaded)
    retold = json.loads(tables.render(again, format="json"))
    assert told["planned"] and told["laws"][0]["law"]["steps"]
    assert "The arena is not simulated: not with this." in told["remarks"]
    for part in ("laws", "planned", "against", "points"):
        assert retold[part] == told[part], part
    # Of a file from before there were plans, and of one that claims nonsense, the law is made without.
    for nonsense in (None, -1, 10**400):
        (plain,) = scale_laws.of_runs([replace(each, job=replace(each.job, planned_bytes=nonsense)) for each in loaded])
        assert plain.planned is None and plain.law is not None


def test_a_dimension_that_stayed_the_same_is_no_dimension_of_the_law():
    runs = [
        replace(each, job=replace(each.job, at={**each.job.at, "sequence": 128}, shapes={"x": (each.job.at["a"], 128)}))
        for each in at_places()
    ]

    (answer,) = scale_laws.of_runs(runs)

    assert [dimension.label for dimension in answer.varying] == ["a"]
    assert {tuple(point.at) for point in answer.points} == {("a",)}


def test_what_makes_no_law_is_left_out():
    nothing_varies = [run(f"b={b}", at={"b": b}) for b in (5, 5)]
    side_by_side = [run(f"processes={count}", at={"processes": count}, processes=count) for count in (1, 2, 3)]  # without their sum
    failed = [run(f"c={c}", at={"c": c}, outcome=Outcome("error", phase="MODEL_LOAD", message="no")) for c in (1, 9)]
    hostile = [run("d", at={"d": value}) for value in (0, -1, 10**400)]

    assert scale_laws.of_runs([*nothing_varies, *side_by_side, *failed, *hostile]) == []


def test_more_than_a_law_is_sought_for_is_a_sentence():
    with pytest.raises(InputError, match="3 dimensions and 500 places at most; here are 1 and 501"):
        scale_laws.of_runs([run(f"a={a}", at={"a": a}) for a in range(1, 502)])
    with pytest.raises(InputError, match="here are 4 and 2"):
        scale_laws.of_runs([run(f"{a}", at=dict.fromkeys("abcd", a)) for a in (1, 2)])


def test_a_picture_is_of_one_search():
    with pytest.raises(InputError, match="no run is of a search for a law"):
        pictures.render([run()])
    with pytest.raises(
        InputError, match=r"2 searches, and a picture is of one: net.onnx in onnxruntime; net.onnx in onnxruntime · arena=off"
    ):
        pictures.render([*at_places(), *at_places(knobs={"arena": "off"})])


def wanting(runs, **asked):
    return [replace(each, search=Search(**asked)) for each in runs]


def drawn(answer):
    """The texts of a picture, and the ends of its axis."""
    figure = pictures.picture(answer)
    (axes,) = figure.get_axes()
    return [text.get_text() for text in (*figure.texts, *axes.texts)], axes.get_xlim()


def test_what_was_asked_is_in_the_picture():
    refused = run("a=50", at={"a": 50}, outcome=Outcome("error", phase="EXECUTE", message="no room"))
    runs = [*at_places(slope=2.0), refused]
    (plain,) = scale_laws.of_runs(runs)
    texts, ends = drawn(plain)
    assert "not measured" in texts and any(text.startswith("Not measured: a=50: in EXECUTE: no room") for text in texts)
    assert ends[1] < 70 and not [text for text in texts if text.startswith(("predicted", "limit", "largest"))]

    (answer,) = scale_laws.of_runs(wanting(runs, predictions=({"a": 120},), within_bytes=180 * MIB))
    texts, ends = drawn(answer)
    assert {"predicted, with 95%", "limit 180.0 MiB", "largest that fits"} <= set(texts)
    assert f"{answer.within[0].value}" in texts and answer.within[0].value in (49, 50)
    assert ends[1] > 120

    # What is too far away, and a limit too high, are said.
    (far,) = scale_laws.of_runs(wanting(runs, predictions=({"a": 1000},), within_bytes=1 << 34))
    texts, ends = drawn(far)
    assert ends[1] < 70
    assert any(text == "The limit of 16.00 GiB lies above the picture." for text in texts)
    assert any(text.startswith("Not drawn: PEAK at a=1000, predicted as 2.03 GiB") for text in texts)


def test_points_that_are_on_no_curve_have_an_entry():
    def law(a, b):
        return 80 + a + 2 * b

    places = [(1, b) for b in (1, 3, 9, 20, 32)] + [(9, b) for b in (1, 32)] + [(5, 3)]
    runs = [run(f"a={a},b={b}", memory={"STARTUP": (40, 40), "EXECUTE": (law(a, b), law(a, b))}, at={"a": a, "b": b}) for a, b in places]
    (answer,) = scale_laws.of_runs(wanting(runs, predictions=({"a": 4, "b": 40},)))
    texts, _ = drawn(answer)
    assert {"b=1", "b=40", "at other values of b"} <= set(texts)
    # Nothing was measured with b=40: its curve is an assumption all along, without a mark of measured points.
    assert "beyond the measured range" in texts


def test_a_law_too_long_for_the_line_under_the_title_stands_below():
    (answer,) = scale_laws.of_runs(at_places(slope=2.0))
    assert drawn(answer)[0][1] == "onnxruntime · PEAK = 80.0 MiB + 2.00 MiB x a"
    long = replace(answer, main="PEAK " + "of many words " * 9)
    long = replace(
        long, laws=(Named(long.main, answer.law),), points=[replace(point, sizes={long.main: point.sizes[PEAK]}) for point in answer.points]
    )
    texts = drawn(long)[0]
    assert texts[1] == "onnxruntime · the law below" and "2.00 MiB x a." in " ".join(texts[2:])


@pytest.mark.parametrize(
    "search",
    [
        Search(predictions=({"b": 3}, {"a": -1}, {"a": 10**400}), within_bytes=-5),
        Search(requests=Requests((7, ~9), (), (0,), (Asked({"a": 1}, (10,), ()),))),
        Search(requests=Requests((0, ~0), (0,), (0,), (Asked({"b": 1}, (10,), ()),))),
        Search(requests=Requests((0, ~0), (0,), (0,), (Asked({"a": 1}, (10**400,), ()), Asked({"a": 2}, (20, 30), (4,))))),
        Search(requests=Requests((), (), (), ())),
        Search(sums={"no such": 1}),
    ],
)
def test_what_no_search_asked_changes_no_law(search):
    (plain,), (odd,) = scale_laws.of_runs(at_places()), scale_laws.of_runs([replace(each, search=search) for each in at_places()])
    assert (odd.laws, odd.predictions, odd.within) == (plain.laws, (), ())


def test_processes_make_their_law_again(scenario, memprof, tmp_path):
    path = scenario(load=[{"allocate": "w", "bytes": 20 * MIB}])
    words = ("--vary", "processes=1..3", "--points", "3", "--within", "200MiB", "--json", "-o", "p.jsonl")
    done = memprof("scale", path, "-r", "synthetic", *words)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (again,) = scale_laws.of_runs(store.load([tmp_path / "p.jsonl"]).runs)
    retold = json.loads(tables.render(again, format="json"))
    for part in ("main", "laws", "points", "within"):
        assert retold[part] == told[part], part


def test_the_page_has_what_was_asked():
    text = page.render(wanting(at_places(slope=2.0), predictions=({"a": 100},), within_bytes=180 * MIB))
    laws_part = text[text.index('id="laws"') :]
    lead = text[text.index('id="finding"') : text.index('id="controls"')]
    assert "PEAK = 80.0 MiB + 2.00 MiB x a" in lead and "peaks highest" not in lead
    assert "Predictions (MiB)" in laws_part and "beyond the measured a" in laws_part
    assert "Within 180.0 MiB" in laws_part and "largest that fits" in laws_part


def test_the_page_has_the_law_and_its_picture():
    text = page.render(at_places(slope=2.0))

    assert "net.onnx, onnxruntime: PEAK = 80.0 MiB + 2.00 MiB x a" in text
    (picture,) = re.findall(r'id="laws".*?src="data:image/svg\+xml;base64,([^"]+)"', text, re.DOTALL)
    assert b"PEAK as a law" in base64.b64decode(picture)
    assert 'id="laws"' not in page.render([run()])


def test_steps_of_an_arena_are_said_and_an_arena_that_is_off_has_none():
    def stepping(**changes):
        sizes = {a: 90 + a * (7 if a in (1, 8, 64) else 5 if a < 48 else 4) for a in (1, 8, 14, 26, 44, 56, 64)}
        runs = [run(f"a={a}", memory={"STARTUP": (40, 40), "EXECUTE": (size, size)}, at={"a": a}, **changes) for a, size in sizes.items()]
        (answer,) = scale_laws.of_runs(runs)
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
def test_whose_arena_doubles_is_known_for_runs_of_elsewhere(name, knobs, doubles):
    assert runtimes.described(name).arena_doubles(knobs) is doubles
