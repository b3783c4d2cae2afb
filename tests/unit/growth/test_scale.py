"""`memprof scale`: laws that the synthetic runtime is known to follow, and what cannot be measured or told."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.law_points import QUIET, line, measured
from support.sample_runs import MIB, job, run
from support.scale_scenarios import in_arena, made
from support.suites import one

from memprof.base.errors import InputError, UsageError
from memprof.base.units import format_bytes
from memprof.growth.laws import laws
from memprof.growth.laws.arena import ArenaLaw
from memprof.growth.laws.terms import SizePoint, Term
from memprof.growth.scale import answer as scaled
from memprof.growth.scale import findings, predictions, scale
from memprof.growth.scale.answer import ANONYMOUS, Against, Named, PeakChange, PlaceRun, Within
from memprof.growth.scale.runs import measured as of_one_run
from memprof.growth.scale.runs import ran_out
from memprof.programs import runtimes
from memprof.records.types import MODEL_LOAD, PEAK, Outcome, Process
from memprof.reports.pictures import scale as pictures
from memprof.reports.tables import scale as tables
from memprof.subjects.dimensions import Dimension, parse, parse_place

KIB = 1 << 10


def test_law_depends_on_dividing_dimension():
    term = Term((("context", 1),), "pages", "context", 256, "slots")
    assert term.names == {"context", "slots"}
    law = laws.law(
        [
            SizePoint({"context": c, "slots": s}, MIB * (80 + s * 256 * -(-c // (256 * s)) / 128))
            for c, s in itertools.product((512, 1100, 2100, 4096), (1, 3))
        ],
        noise=(1000.0, 1e-5),
    )
    assert law.depends_on("slots") and term.words in {entry.term.words for entry in law.coefficients}


def test_place_measured_above_limit():
    row = Within("a", {"s": 16}, 9, 8, 10, confirmed_bytes=501 * MIB)
    assert "501.0 MiB: too much" in tables.render(made(within_bytes=500 * MIB, within=(row,)), format="text")


def test_suite_shapes_not_in_law(tmp_path):
    from support.model_inputs import model

    path = model(tmp_path, ("n", 3, "h"))
    plain = job(shapes={"x": (4, 3, 5)})
    job_of_path = replace(plain, model=replace(plain.model, path=str(path)))
    order = SimpleNamespace(job=job_of_path, runtime=runtimes.Runtime("litert"), subject=one(path, "litert", shapes=plain.shapes))
    assert scale.request_of(order, ("n=1..8",)).shapes == {"x": (1, 3, 5)}


def test_ranges_and_places_in_words():
    assert parse("height,width=224..1024:32") == Dimension(("height", "width"), 224, 1024, 32)
    assert parse("context=4KiB..64KiB") == Dimension(("context",), 4096, 65536)
    assert not parse("sequence=128").varies
    both = [parse("height,width=224..1024"), parse("batch=1..4")]
    assert list(parse_place("batch=2,width=500", both).items()) == [("height=width", 500), ("batch", 2)]
    assert parse_place("height,width=640,batch=2", both) == {"height=width": 640, "batch": 2}
    assert parse_place("batch,width=3", both) == {"height=width": 3, "batch": 3}
    with pytest.raises(UsageError, match="'batch' is not a dimension"):
        parse_place("batch", [parse("a=1..2")])
    with pytest.raises(UsageError, match="at least 1"):
        parse_place("width=500,batch=0", both)
    with pytest.raises(UsageError, match="batch takes one value, and two are given: leave one out"):
        parse_place("batch=2,width=500,batch=3", both)
    with pytest.raises(UsageError, match="height=width has one value, and two are given"):
        parse_place("height=500,width=600,batch=2", both)
    with pytest.raises(UsageError, match="batch is a whole number"):
        parse_place("width=500,batch=1.5", both)
    with pytest.raises(UsageError, match="sequence is 128 everywhere; give it a range"):
        parse_place("batch=2,sequence=64", [parse("batch=1..4"), parse("sequence=128")])


def test_outcome_sentence_without_full_stop():
    assert Outcome("error", "WARMUP", "failed to invoke.").sentence == "in WARMUP: failed to invoke"
    assert Outcome("exit", "WARMUP", exit_code=1, hints=("it printed: no model.",)).sentence.endswith("it printed: no model")
    assert Outcome("error", "WARMUP", "still waiting ...").sentence == "in WARMUP: still waiting ..."


def test_out_of_memory_outcomes():
    assert ran_out(Outcome("signal", "EXECUTE", signal="SIGKILL", out_of_memory=True))
    assert ran_out(Outcome("error", "EXECUTE", "RuntimeError: Failed to allocate memory for requested buffer"))
    assert ran_out(Outcome("error", "EXECUTE", "MemoryError"))
    assert not ran_out(Outcome("error", "EXECUTE", "ValueError: got a wrong shape"))
    assert not ran_out(Outcome("ok"))


def test_law_shown_as_sum_with_intervals():
    text = tables.render(made(), format="text")
    assert text.startswith("net.onnx, onnxruntime, arena=off, 2 threads: PEAK = 80.0 MiB + 20.5 KiB x a x s + 105 B x a x s²\n")
    row = next(row for row in text.splitlines() if "| a x s² " in row)
    assert "105 B to 105 B" in row
    assert tables.per(0.03125) == "0.0312 B" and tables.per(8192) == "8.00 KiB" and tables.per(-3e6) == "-2.86 MiB"


def test_report_with_all_parts():
    answer = made()
    held_out = PlaceRun({"a": 32, "s": 512}, {PEAK: 1000 * MIB}, held_out=True)
    dead = PlaceRun({"a": 16, "s": 500}, {PEAK: 900 * MIB}, ended="out of memory in EXECUTE", least=True)
    answer = replace(
        answer,
        points=(*answer.points, held_out, dead),
        predictions=tuple(answer.predict([held_out.at])),
        within_bytes=500 * MIB,
        within=(Within("a", {"s": 512}, 9, 8, 10, 499 * MIB), Within("s", {"a": 99}, None, None, None)),
        against=(Against("a x s", 30 * KIB, 20 * KIB), Against("a", None, 5.0)),
        changes=(PeakChange("a", 5, "PREPARE", "EXECUTE", {"s": 16}),),
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
        "- A remark.",
    ):
        assert words in text, words
    undecided = tables.render(replace(answer, undecided="add more"), format="text")
    assert "2 threads: undecided: add more." in undecided and "Within 500.0 MiB" not in undecided and "1000" in undecided
    told = json.loads(tables.render(answer, format="json"))
    assert told["within"][0]["value"] == 9
    assert told["laws"][0]["law"]["text"] == "80.0 MiB + 20.5 KiB x a x s + 105 B x a x s²"
    assert told["points"][-1]["least"] is True
    places = [
        cells[1:3] for line in text.splitlines() if len(cells := [cell.strip() for cell in line.split("|")]) > 6 and cells[1].isdigit()
    ]
    assert places == [[str(value) for value in place] for place in sorted(tuple(point.at.values()) for point in answer.points)]
    assert pictures.picture(answer).get_axes()[0].get_xlabel() == "a"


@pytest.mark.parametrize("doubles", [True, False])
def test_simulated_arena_named_beside_its_figures(doubles):
    """The sum and its coefficients predict nothing then: headline, heads and picture say what does."""
    scaled = in_arena(doubles, within_bytes=390 * MIB)
    scaled = replace(scaled, within=predictions.within(scaled), predictions=tuple(scaled.predict([{"batch": 16}])))
    source, cell = ("the simulated arena", "simulated arena") if doubles else ("the planned arenas", "planned arenas")
    text = tables.render(scaled)
    head, nearest = text.split("\n\n")[:2]
    assert f"PEAK follows {'ONNX' if doubles else 'the arenas that TFLite'}" in head and " = " not in head
    assert "146.5 MiB at batch=1, 172.0 MiB at batch=4, 206.0 MiB at batch=8; on average about 8.50 MiB per batch" in head
    assert nearest.startswith("The nearest sum is PEAK = ") and f"Predictions do not come from it, but from {source}" in nearest
    rows = {cells[1]: cells for line in text.splitlines() if (cells := [cell.strip() for cell in line.split("|")])[1:]}
    assert rows["law of"][2:7] == ["term of the nearest sum", "coefficient", "with 95%", "predictions from", "their error at unseen points"]
    assert rows["PEAK"][5] == cell
    assert f"Predictions by {source} (MiB)" in text and f"Within 390.0 MiB by {source}" in text and f"| {cell} |" in text
    assert "Of all places up to batch=" in text and "batch=27 may need most: 367.5 MiB, at most " in text
    figure = pictures.picture(scaled)
    words = [each.get_text() for each in figure.texts]
    assert " ".join(words[:2]).startswith("PEAK follows") and f"PEAK by {source}" in " ".join(words)
    assert f"95% of {source}" in " ".join(words) and "the law" not in " ".join(words)


def test_limit_far_beyond_not_bounded():
    row = Within("a", {"s": 16}, 9, 8, None)
    text = tables.render(made(within_bytes=500 * MIB, within=(row,)), format="text")
    assert "not bounded" in text and "any" not in text
    assert "the law's interval is too wide beyond the measured range to say what is possible" in text


def test_report_without_law():
    points = [PlaceRun({"a": value}, {PEAK: size * MIB}) for value, size in ((1, 80), (8, 300), (20, 90))]
    answer = made(points=tuple(points), laws=(Named(PEAK, None),))
    text = tables.render(answer, format="text")
    assert "no simple law holds for PEAK" in text
    assert "| 80.0 to 90.0 |" in text
    assert answer.predict([{"a": 3}]) == []
    assert len(pictures.picture(answer).get_axes()[0].get_lines()) == 3


def test_peak_phase_changes_with_size():
    load = laws.law(measured(lambda a: 120, line("a", 1, 64, 20, 40)), noise=(1000.0, 1e-5))
    execute = laws.law(measured(lambda a: 60 + 2 * a, line("a", 1, 64, 20, 40)), noise=(1000.0, 1e-5))
    named = (Named(PEAK, execute), Named(MODEL_LOAD, load), Named("EXECUTE", execute))
    assert scaled.predicted(PEAK, named, line("a", 10, 50))[0].bytes == pytest.approx(120 * MIB)
    assert scaled.predicted(PEAK, named, line("a", 10, 50))[1].bytes == pytest.approx(160 * MIB)
    (change,) = scaled.changes(PEAK, named, {"a": (1, 64)})
    assert (change.before, change.after) == (MODEL_LOAD, "EXECUTE")
    assert change.value == pytest.approx(30, abs=2)
    answer = made(laws=named, changes=(change,), points=(PlaceRun({"a": 1}, {PEAK: 120 * MIB}),))
    assert "PEAK is the larger of MODEL_LOAD = " in pictures._finding(answer)
    text = tables.render(answer)
    assert "PEAK is the larger of MODEL_LOAD = 120.0 MiB and EXECUTE = 60.0 MiB + 2.00 MiB x a\n" in text
    assert "the most of MODEL_LOAD and EXECUTE" in text


def test_phase_below_peak_not_extrapolated():
    places = line("a", 1, 64, 20, 40)
    prepare = laws.law(measured(lambda a: 50 + 0.01 * a * a, places), noise=(1000.0, 1e-5))
    peak = laws.law(measured(lambda a: 100 + 0.2 * a, places), noise=(1000.0, 1e-5))
    named = (Named(PEAK, peak), Named("PREPARE", prepare), Named("EXECUTE", peak))
    assert prepare.predict({"a": 300}).bytes > peak.predict({"a": 300}).bytes
    assert scaled.predicted(PEAK, named, line("a", 300))[0].bytes == pytest.approx(160 * MIB)


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
def test_token_cost_beside_kv_cache(slope, sentence, monkeypatch):
    asked_types = []

    class Cache:
        def bytes_per_token(self, keys):
            asked_types.append(keys)
            return 8.0 * KIB

    monkeypatch.setattr(findings, "kv_cache", lambda path: Cache())
    law = laws.law(measured(lambda context: 80 + slope * context / MIB, line("context", 512, 8192, 2000, 5000)), noise=QUIET)

    answer = made(laws=(Named(ANONYMOUS, law),), dimensions=(parse("context=512..8192"),))
    (finding,) = findings.of_token(answer, Path("llama.gguf"), "q8_0")

    assert sentence in finding
    assert asked_types == ["q8_0"]


def test_runs_without_law_left_out():
    nothing_varies = [run(f"b={b}", at={"b": b}) for b in (5, 5)]
    side_by_side = [run(f"processes={count}", at={"processes": count}, processes=count) for count in (1, 2, 3)]  # without their sum
    failed = [run(f"c={c}", at={"c": c}, outcome=Outcome("error", phase="MODEL_LOAD", message="no")) for c in (1, 9)]
    hostile = [run("d", at={"d": value}) for value in (0, -1, 10**400)]

    assert predictions.of_runs([*nothing_varies, *side_by_side, *failed, *hostile]) == []


def test_law_of_too_many_places_refused():
    with pytest.raises(InputError, match="3 dimensions and 500 places at most; here are 1 and 501"):
        predictions.of_runs([run(f"a={a}", at={"a": a}) for a in range(1, 502)])
    with pytest.raises(InputError, match="here are 4 and 2"):
        predictions.of_runs([run(f"{a}", at=dict.fromkeys("abcd", a)) for a in (1, 2)])


def test_anonymous_memory_of_several_processes_left_out():
    alone = run("a", at={"workers": 1})
    workers = replace(alone, processes=(Process(1, "server", 0, 1, MIB), Process(2, "worker", 0, 1, MIB)))

    assert ANONYMOUS in of_one_run(alone).sizes
    assert ANONYMOUS not in of_one_run(workers).sizes and PEAK in of_one_run(workers).sizes


@pytest.mark.parametrize(
    ("lowest", "highest", "begin"), [(0.0, 90.0, 0.0), (60.0, 90.0, 0.0), (61.0, 90.0, 59.26), (90.0, 90.0, 84.6), (-1.0, 90.0, 0.0)]
)
def test_picture_axis_from_zero_unless_two_thirds_empty(lowest, highest, begin):
    low, high = pictures._limits(lowest, highest)

    assert low == pytest.approx(begin) and high > highest


def test_picture_axis_says_that_it_does_not_begin_at_zero():
    flat = pictures.picture(made(lambda a, s: 80 + 0.1 * a + 0.02 * s)).get_axes()[0]
    steep = pictures.picture(made()).get_axes()[0]

    assert flat.get_ylim()[0] > 70 and flat.get_ylabel() == "PEAK (MiB), the axis does not begin at 0"
    assert steep.get_ylim()[0] == 0 and steep.get_ylabel() == "PEAK (MiB)"


def flat(samples):
    """MiB of an arena that has no more regions from 25000 to 38000."""
    return 138 + 0.085 * min(samples, 25000) + (1000 if samples >= 38000 else 0)


def spiking(samples):
    """The same, but for a narrow range that needs 200 MiB more."""
    return flat(samples) + (200 if 30000 <= samples < 30100 else 0)


def confirmed_in(limit_mib, *seen):
    """The answer of a simulation with a spike within a limit, with places that were measured afterwards, in MiB."""
    points = measured(flat, line("samples", 10000, 15000, 20000, 25000, 32000, 35000))
    law = laws.law(points, noise=QUIET, arena=ArenaLaw(size=lambda at: (spiking(**at) - 138) * MIB))
    own = tuple(PlaceRun(point.at, {PEAK: int(point.bytes)}) for point in points)
    own += tuple(PlaceRun({"samples": samples}, {PEAK: int(size * MIB)}, held_out=True) for samples, size in seen)
    answer = made(
        dimensions=(parse("samples=10000..35000"),), points=own, laws=(Named(PEAK, law),), settings="", within_bytes=limit_mib * MIB
    )
    return predictions.confirmed(replace(answer, predictions=tuple(answer.predict([{"samples": 30050}]))))


def test_sure_values_end_below_narrow_spike():
    (row,) = confirmed_in(2400).within
    assert row.value == row.surely == 29999 and row.most.high_bytes <= 2400 * MIB


@pytest.mark.parametrize("limit", [1100, 1500, 2290, 2400, 2480, 2520, 4000])
def test_sure_values_agree_with_worst_below(limit):
    (row,) = confirmed_in(limit).within
    assert row.surely is not None and row.most.high_bytes <= limit * MIB


def test_confirmed_size_refutes_interval():
    """The spike is not there: the answer says so, every interval is as wide as that, and no text has the predicted size as what is needed."""
    before, after = confirmed_in(2520), confirmed_in(2520, (30050, flat(30050)))
    assert before.widened == 1 and 30000 <= before.within[0].most.at["samples"] < 30100 and not tables.refuted(before)
    (prediction,) = after.predict([{"samples": 30050}])
    assert after.widened > 1 and prediction.low_bytes == pytest.approx(flat(30050) * MIB, rel=1e-6)
    assert prediction in after.predictions
    text = tables.render(after, format="text")
    assert "The interval of samples=30050 is refuted: " in text and f"All intervals here are {after.widened:.1f} times as wide" in text
    assert "PEAK at samples=30050 by" not in text and "samples=30050 may need most" not in text
    (row,) = after.within
    assert row.surely < 30000 and row.most.high_bytes <= 2520 * MIB  # others of the spike may need as much


def test_confirmed_most_is_what_was_measured():
    """A spike that is there: its measured size stands in place of the prediction."""
    peak = spiking(30050) + 1
    answer = confirmed_in(2520, (30050, peak), (int(confirmed_in(2520).within[0].most.at["samples"]), peak))
    text = tables.render(answer, format="text")
    assert answer.widened == 1 and f"needs most: measured {format_bytes(int(peak * MIB))}." in text
    assert "PEAK as measured at samples=30" in text and "by the simulated arena, the most" not in text


def test_confirmed_excess_below_largest_makes_it_smaller():
    """A run at a smaller value that had too much counts; one at the largest value itself stands beside it."""
    known = confirmed_in(2000).within[0].value
    (row,) = confirmed_in(2000, (known, 2001)).within
    assert row.value == known and row.confirmed_bytes == 2001 * MIB
    (row,) = confirmed_in(2000, (18000, 2100)).within
    assert row.value < 18000 and row.surely < 18000


def test_picture_passes_through_named_places():
    """The curve has the predicted place and the one that may need most, in a range that is narrower than what it is drawn with."""
    answer = confirmed_in(2520)
    axes = pictures.picture(answer).get_axes()[0]
    curve = max((line for line in axes.get_lines()), key=lambda line: len(line.get_xdata()))
    drawn = dict(zip(map(round, curve.get_xdata()), curve.get_ydata(), strict=True))
    named = [answer.predictions[0], answer.within[0].most]
    unit = {"GiB": 1 << 30, "MiB": MIB}[axes.get_ylabel().partition("(")[2][:3]]
    for prediction in named:
        assert drawn[int(prediction.at["samples"])] == pytest.approx(prediction.bytes / unit)
