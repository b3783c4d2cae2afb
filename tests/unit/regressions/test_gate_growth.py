"""The gate's limits on growth: in a suite, which measures it, and among budgets, for runs of `memprof grow` too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import sample_runs
from support.growth_runs import followed

from memprof.base.errors import InputError, UsageError
from memprof.records import store
from memprof.records.summary import Key
from memprof.reports.pictures import growth as pictures
from memprof.subjects import suite
from memprof.verdicts import budgets, growth, growth_limits
from memprof.verdicts.growth_limits import Limit, VariantGrowth

KEY = Key("net.onnx", "a", None, "here")
GROWS = growth.Verdict("grows", "iteration", 65536.0, 65400.0, 65600.0, tail=2000)
STEADY = growth.Verdict("steady", "iteration", high=41.0, tail=4000)
BOUNDED = growth.Verdict("bounded", "iteration", high=41.0, tail=4000, warmup=38, rise_bytes=11 << 20)
UNDECIDED = growth.Verdict("undecided", "iteration", tail=60, reason="it rises and comes down again", needed=240)
KIB = 1024


@pytest.mark.parametrize(
    ("verdict", "limit", "word", "reason"),
    [
        (STEADY, 0, "ok", "steady: 0 B (95%: at most 41 B) per iteration over 4,000"),
        (BOUNDED, 0, "ok", "bounded: 11.0 MiB more in the first 38, then 0 B (95%: at most 41 B) per iteration over 4,000"),
        (GROWS, 0, "over", "64.0 KiB more per iteration, limit 0 B per iteration (95%: 63.9 KiB to 64.1 KiB)"),
        (GROWS, 65 * KIB, "ok", "64.0 KiB more per iteration, limit 65.0 KiB per iteration (95%: 63.9 KiB to 64.1 KiB)"),
        (GROWS, 64 * KIB, "undecided", "which may be above it or not; the limit is 64.0 KiB per iteration"),
        (
            UNDECIDED,
            0,
            "undecided",
            "undecided after 60 iterations: it rises and comes down again; a run of 240 would decide it; the limit is 0 B per iteration",
        ),
        (replace(GROWS, unit="token"), 0, "over", "64.0 KiB more per token"),
        (replace(GROWS, unit="token"), KIB, "undecided", "the two units cannot be compared"),
        (replace(GROWS, unit="token", rivals=("iteration",)), KIB, "over", "64.0 KiB more per token"),
    ],
)
def test_limit_against_growth_interval(verdict, limit, word, reason) -> None:
    row = growth_limits.judged(VariantGrowth(KEY, "iteration", verdict), Limit("iteration", limit))

    assert (row.verdict, row.phase, row.metric, row.budget) == (word, "per iteration", "growth_bytes", limit)
    assert reason in row.reason


@pytest.mark.parametrize(
    ("by", "only"),
    [("new input", " with new inputs only"), ("iteration", ""), (None, "")],
)
def test_limit_names_growing_inputs(by, only) -> None:
    row = growth_limits.judged(VariantGrowth(KEY, "iteration", GROWS, by=by), Limit("iteration", 0))

    assert row.reason.startswith(f"64.0 KiB more per iteration{only}, limit 0 B per iteration (95%: ")


def test_growth_without_verdict_failing() -> None:
    (row,) = growth_limits.judge([VariantGrowth(KEY, "reload", None, Limit("reload", 0), "it crashed")])

    assert (row.verdict, row.phase, row.reason) == ("failing", "per reload", "it crashed")


def limits(folder: Path, text: str) -> tuple[budgets.Budget, ...]:
    (folder / "budgets.toml").write_text(text)
    return budgets.read(folder / "budgets.toml")


def test_growth_budget_by_unit(tmp_path) -> None:
    known = [VariantGrowth(KEY, "iteration", GROWS), VariantGrowth(replace(KEY, variant="b"), "reload", STEADY)]
    text = '[[budget]]\ngrowth_bytes = "1 KiB"\n[[budget]]\nvariant = "a"\nper = "iteration"\ngrowth_bytes = "1 MiB"\n'

    rows = growth_limits.judge(known, limits(tmp_path, text))

    assert [(row.key.variant, row.phase, row.verdict) for row in rows] == [("a", "per iteration", "ok"), ("b", "per reload", "ok")]
    assert budgets.metric_names(limits(tmp_path, text)) == ()
    budgets.check(limits(tmp_path, text), [("net.onnx", "a", "PEAK", "rss_peak_bytes")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[budget]]\nper = "shape"\ngrowth_bytes = "0 B"\n', "guards nothing: growth was measured of net.onnx, a, per iteration"),
        ('[[budget]]\nmodel = "other"\ngrowth_bytes = "0 B"\n', "guards nothing: growth was measured of net.onnx, a, per iteration"),
        ('[[budget]]\nper = "iteration"\npeak = "1 MiB"\n', "per = 'iteration' names the unit of growth_bytes, in quotes and beside it"),
        ('[[budget]]\nper = 3\ngrowth_bytes = "0 B"\n', "per = 3 names the unit of growth_bytes"),
        ('[[budget]]\ngrowth_bytes = "much"\n', "'much' is not a size"),
    ],
)
def test_growth_budget_refusals(tmp_path, text, said) -> None:
    with pytest.raises(UsageError, match="budgets") as refused:
        growth_limits.judge([VariantGrowth(KEY, "iteration", GROWS)], limits(tmp_path, text))
    assert said in str(refused.value)


def test_growth_budget_without_measurement(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"no growth was measured \(\[\[growth\]\] in a suite, or memprof grow -o RUNS.jsonl\)"):
        growth_limits.judge([], limits(tmp_path, 'growth_bytes = "0 B"\n'))


def test_growth_last_round_decides() -> None:
    first, last = ([followed(repeat, slope) for repeat in (1, 2, 3)] for slope in (0, 65536))

    (known,) = growth_limits.of_runs([*first, *last])

    assert (known.key.variant, known.per, known.growth.word) == ("a", "iteration", "grows")
    assert known.growth.slope == pytest.approx(65536, rel=0.01)
    assert growth_limits.of_runs([sample_runs.run()]) == ()
    (shapes,) = growth_limits.of_runs([followed(repeat, 0, shapes=({"x": (1,)}, {"x": (2,)})) for repeat in (1, 2, 3)])
    assert shapes.per == "shape"


def test_growth_of_fresh_inputs_decides() -> None:
    same, fresh = ([followed(repeat, slope, fresh=slope > 0) for repeat in (1, 2, 3)] for slope in (0, 65536))
    in_turn = [run for pair in zip(same, fresh, strict=True) for run in pair]

    (known,) = growth_limits.of_runs(in_turn)

    assert (known.per, known.growth.word, known.by, len(known.growth.processes)) == ("iteration", "grows", "new input", 3)
    first, second = pictures.panels(in_turn)
    assert first.title.startswith("net.onnx in a with the same input: steady. ")
    assert second.title.startswith("net.onnx in a with fresh inputs: grows. ")


def test_growth_rows_by_inputs(tmp_path) -> None:
    runs = [followed(1, 0, 200), followed(1, 65536, 200, fresh=True), followed(1, 0, 400)]
    (tmp_path / "grow.jsonl").write_bytes(b"".join(map(store.encode, runs)))

    loaded = store.load([tmp_path / "grow.jsonl"])

    names = [run.job.variant for run in loaded.runs]
    assert names == ["a (the same input, runs 200)", "a (fresh inputs, runs 200)", "a (the same input, runs 400)"]
    assert loaded.warnings == (), "processes of one question differ by design"
    assert {run.job.variant for run in store.rounds_together(loaded.runs)} == {"a"}


def test_growth_rows_of_round_ended_by_time(memprof, tmp_path) -> None:
    """The first process of a round may do as much as time allows, and the others do as much as it did: they are repeats of one another."""
    kinds = [[followed(repeat, 0, units, fresh=fresh) for repeat in (1, 2, 3)] for units, fresh in ((163, False), (123, True))]
    for runs in kinds:
        job = runs[0].job
        assert job.use is not None
        runs[0] = replace(runs[0], job=replace(job, runs=2000, use=replace(job.use, iterations=2000)))
    (tmp_path / "grow.jsonl").write_bytes(b"".join(store.encode(run) for runs in kinds for run in runs))

    loaded = store.load([tmp_path / "grow.jsonl"])
    table = memprof("table", "grow.jsonl").stdout

    assert [run.job.variant for run in loaded.runs] == [*["a (the same input)"] * 3, *["a (fresh inputs)"] * 3]
    assert {run.job.variant for run in store.rounds_together(loaded.runs)} == {"a"}
    assert "net.onnx, warming up 5 & running 123 to 163, 3 repeats\n" in table


def test_growth_of_one_shape_stands_apart() -> None:
    varied = {"shapes": ({"x": (1,)}, {"x": (2,)})}
    runs = [followed(repeat, slope, **rest) for repeat in (1, 2, 3) for slope, rest in ((0, {}), (65536, varied))]

    assert [(known.per, known.growth.word) for known in growth_limits.of_runs(runs)] == [("iteration", "steady"), ("shape", "grows")]


def test_growth_rounds_with_different_units(memprof, tmp_path) -> None:
    first, last = ([followed(repeat, slope, units) for repeat in (1, 2, 3)] for slope, units in ((0, 200), (65536, 400)))
    (tmp_path / "grow.jsonl").write_bytes(b"".join(map(store.encode, [*first, *last])))
    loaded = store.load([tmp_path / "grow.jsonl"])

    assert loaded.warnings == ()
    assert {run.job.variant for run in loaded.runs} == {"a (runs 200)", "a (runs 400)"}, "tables do not average rounds"
    (known,) = growth_limits.of_runs(loaded.runs)
    assert (known.key.variant, known.growth.word) == ("a", "grows")
    (panel,) = pictures.panels(loaded.runs)
    assert (panel.variant, len(panel.processes), panel.verdict.word) == ("a", 3, "grows")
    done = memprof("plot", "growth", "grow.jsonl", "-o", "growth.svg")
    assert done.returncode == 0 and "separate rows" not in done.stderr
    plain = [replace(run, job=replace(run.job, use=None)) for run in (*first, *last)]
    assert "runs that differ in runs are separate rows" in store.told_apart(plain)[1][0]


def test_gate_judges_grow_file_by_budgets(memprof, tmp_path) -> None:
    (tmp_path / "runs.jsonl").write_bytes(b"".join(store.encode(followed(repeat, 65536)) for repeat in (1, 2, 3)))
    limits(tmp_path, 'growth_bytes = "0 B"\n')

    done = memprof("gate", "runs.jsonl", "--budgets", "budgets.toml")
    content = json.loads(memprof("gate", "runs.jsonl", "--budgets", "budgets.toml", "--format", "json").stdout)

    assert done.returncode == 1
    assert "**✗ over budget** net.onnx, a, per iteration, Growth (budget); 64.0 KiB more per iteration" in done.stdout
    (row,) = [row for row in content["rows"] if row["metric"] == "growth_bytes"]
    assert (row["unit"], row["budget"], row["verdict"], row["head"]) == ("bytes", 0, "over", None)
    for form in ("junit", "github"):
        assert "per iteration" in memprof("gate", "runs.jsonl", "--budgets", "budgets.toml", "--format", form).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('per = "month"\nlimit = "0 B"', "month"),
        ('per = "shape"\nlimit = "0 B"', r"\[\[growth\]\] per shape needs the shapes"),
        ('shapes = "x=1,H; H in 1,2"\nlimit = "0 B"', r"\[\[growth\]\] shapes are for per = 'shape'"),
        ('limits = "0 B"', "there is no 'limits'; did you mean limit"),
        ('limit = "a lot"', "'a lot' is not a size"),
    ],
)
def test_growth_in_suite_refusals(tmp_path, text, said) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(f"[[growth]]\n{text}\n")
    with pytest.raises((InputError, UsageError), match=said):
        suite.read(path)
