"""The gate's limits on the terms of laws, which a suite asks for."""

from __future__ import annotations

import json
import sys

import pytest

from memprof.errors import InputError, UsageError
from memprof.judge import coefficients, laws
from memprof.judge.coefficients import Measured
from memprof.judge.terms import Point
from memprof.measuring import suite
from memprof.runs import store
from memprof.runs.summary import Key
from memprof.units import parse_bytes

KEY = Key("net.onnx", "a", None, "here")
KIB, MIB = 1024, 1024 * 1024
NOISE = (4096.0, 1e-4)


def law_of(size):
    """The law of memory by batch and length, 1 to 64 each."""
    places = [{"batch": batch, "length": length} for batch in (1, 8, 24, 64) for length in (1, 16, 64)]
    law = laws.law([Point(place, size(**place)) for place in places], noise=NOISE)
    assert law is not None
    return law


LINEAR = law_of(lambda batch, length: 100 * MIB + 64 * KIB * batch)
PRODUCT = law_of(lambda batch, length: 100 * MIB + 64 * KIB * batch * length)


@pytest.mark.parametrize(
    ("law", "per", "limit", "word", "reason"),
    [
        (LINEAR, "batch", "64.5 KiB", "ok", "PEAK has 64.0 KiB (95%: "),
        (LINEAR, "batch", "63 KiB", "over", "per batch at batch=1..64; the limit is 63.0 KiB per batch"),
        (LINEAR, "batch", "64 KiB", "undecided", "which may be above it or not; the limit is 64.0 KiB per batch"),
        (LINEAR, "length", "0 B", "ok", "PEAK does not depend on length at batch=1..64"),
        (PRODUCT, "length x batch", "63 KiB", "over", "per length x batch"),
        (PRODUCT, "batch", "1 GiB", "undecided", "PEAK has no such term, but batch x length; the limit is 1.00 GiB per batch"),
        (None, "batch", "1 GiB", "undecided", "no simple law of PEAK holds at batch=1..64"),
    ],
)
def test_a_limit_is_held_against_the_interval_of_a_coefficient(law, per, limit, word, reason) -> None:
    (row,) = coefficients.judge([Measured(KEY, per, parse_bytes(limit), "PEAK", "batch=1..64", law)])

    assert (row.verdict, row.phase, row.metric, row.budget) == (word, f"per {per}", "law_bytes", parse_bytes(limit))
    assert reason in row.reason


def test_a_law_that_is_undecided_is_held_to_nothing() -> None:
    (row,) = coefficients.judge([Measured(KEY, "batch", 1 << 30, "PEAK", "batch=1..2", LINEAR, undecided="widen the range")])

    assert (row.verdict, row.reason) == ("undecided", "widen the range; the limit is 1.00 GiB per batch")


def test_a_runtime_that_failed_everywhere_is_failing() -> None:
    (row,) = coefficients.judge([Measured(KEY, "batch", 0, failure="no place could be measured: it crashed")])

    assert (row.verdict, row.reason) == ("failing", "no place could be measured: it crashed")


def test_the_term_that_is_held_is_the_dimension_or_is_named() -> None:
    assert coefficients.held_term(["batch"], None) == "batch"
    assert coefficients.held_term(["batch", "length"], "length² x batch") == "length² x batch"
    with pytest.raises(UsageError, match="batch and length vary: per names the term, such as 'batch x length'"):
        coefficients.held_term(["batch", "length"], None)
    with pytest.raises(UsageError, match=r"'lenght' is no dimension that varies.*length"):
        coefficients.held_term(["batch", "length"], "batch x lenght")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('limit = "1 KiB"', "vary"),
        ('vary = []\nlimit = "1 KiB"', r"\[\[law\]\] varies nothing"),
        ('vary = "x=1..8"\nlimit = "1 KiB"\npoints = 1', r"\[\[law\]\] points is at least 2"),
        ('vary = "x=1..8"\nlimits = "1 KiB"', "limits"),
    ],
)
def test_a_law_of_a_suite_that_means_nothing_is_a_sentence(tmp_path, text, said) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(f"[[law]]\n{text}\n")

    with pytest.raises(InputError, match=said):
        suite.read(path)


def write(tmp_path, law: str, limits: str = 'peak = "1 GiB"\n') -> None:
    (tmp_path / "suite.toml").write_text(
        'models = ["scenario.json"]\nrepeats = 1\nwarmup = 0\nruns = 1\n[[variant]]\nname = "net"\nruntime = "synthetic"\n'
        f'[[variant]]\nname = "program"\ncmd = "{sys.executable} -c pass"\n{law}'
    )
    (tmp_path / "budgets.toml").write_text(limits)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('vary = "batch=1..8"', "--vary batch: neither scenario.json nor synthetic has such a dimension"),
        ('vary = "x=8..1"', "HIGH is not below LOW"),
        ('vary = "x=1..8"\nper = "y"', "per 'y': 'y' is no dimension that varies"),
        ('vary = ["x=1..8", "y=1..8"]', "x and y vary: per names the term"),
        ('vary = "x=3"', "nothing varies"),
        ('vary = "x=1..8"\nvariant = "program"', "guards nothing: a program has no dimensions to vary"),
        ('vary = "x=1..8"\nmodel = "other"', "guards nothing: no model and variant of the suite match"),
    ],
)
def test_a_law_that_cannot_be_measured_is_refused_before_anything_is(memprof, scenario, tmp_path, text, said) -> None:
    scenario()
    write(tmp_path, f'[[law]]\nlimit = "1 KiB"\n{text}\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl")

    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_suite_that_asks_for_a_law_holds_its_coefficient_and_keeps_the_runs(memprof, scenario, tmp_path, nothing_left) -> None:
    scenario(load=[{"allocate": "w", "bytes": {"": 30 * MIB, "x": MIB}}])
    laws = '[[law]]\nvary = "x=1..32"\nper = "x"\nlimit = "1.1 MiB"\npoints = 4\n[[law]]\nvary = "x=1..32"\nlimit = "0.5 MiB"\npoints = 3\n'
    write(tmp_path, laws)

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "out.jsonl", "--format", "json")

    assert done.returncode == 1, done.stderr
    rows = [row for row in json.loads(done.stdout)["rows"] if row["metric"] == "law_bytes"]
    assert {(row["variant"], row["phase"], row["verdict"], row["budget"]) for row in rows} == {
        ("net", "per x", "ok", int(1.1 * MIB)),
        ("net", "per x", "over", MIB // 2),
    }
    kept = store.load([tmp_path / "out.law.jsonl"]).runs
    assert len(kept) == 7 and {"net, x=1", "net, x=32"} <= {run.job.variant for run in kept}
