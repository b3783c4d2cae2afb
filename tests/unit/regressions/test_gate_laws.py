"""The gate's limits on the terms of laws, which a suite asks for."""

from __future__ import annotations

import pytest

from memprof.base.errors import InputError, UsageError
from memprof.base.units import parse_bytes
from memprof.growth.laws import coefficients, laws
from memprof.growth.laws.coefficients import LawAtLimit
from memprof.growth.laws.terms import SizePoint
from memprof.records.summary import Key
from memprof.subjects import suite

KEY = Key("net.onnx", "a", None, "here")
KIB, MIB = 1024, 1024 * 1024
NOISE = (4096.0, 1e-4)


def law_of(size):
    """The law of memory by batch and length, 1 to 64 each."""
    places = [{"batch": batch, "length": length} for batch in (1, 8, 24, 64) for length in (1, 16, 64)]
    law = laws.law([SizePoint(place, size(**place)) for place in places], noise=NOISE)
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
def test_coefficient_interval_against_limit(law, per, limit, word, reason) -> None:
    (row,) = coefficients.judge([LawAtLimit(KEY, per, parse_bytes(limit), "PEAK", "batch=1..64", law)])

    assert (row.verdict, row.phase, row.metric, row.budget) == (word, f"per {per}", "law_bytes", parse_bytes(limit))
    assert reason in row.reason


def test_undecided_law_stays_undecided() -> None:
    (row,) = coefficients.judge([LawAtLimit(KEY, "batch", 1 << 30, "PEAK", "batch=1..2", LINEAR, undecided="widen the range")])

    assert (row.verdict, row.reason) == ("undecided", "widen the range; the limit is 1.00 GiB per batch")


def test_runtime_failed_everywhere() -> None:
    (row,) = coefficients.judge([LawAtLimit(KEY, "batch", 0, failure="no place could be measured: it crashed")])

    assert (row.verdict, row.reason) == ("failing", "no place could be measured: it crashed")


def test_held_term_sole_or_named() -> None:
    assert coefficients.held_term(["batch"], None) == "batch"
    assert coefficients.held_term(["batch", "length"], "length² x batch") == "length² x batch"
    with pytest.raises(UsageError, match="batch and length vary: per names the term, such as 'batch x length'"):
        coefficients.held_term(["batch", "length"], None)
    with pytest.raises(UsageError, match=r"'lenght' is not a dimension that varies.*length"):
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
def test_suite_law_refusals(tmp_path, text, said) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(f"[[law]]\n{text}\n")

    with pytest.raises(InputError, match=said):
        suite.read(path)
