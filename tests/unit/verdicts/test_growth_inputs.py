"""What two kinds of processes tell together: with the same input, and with inputs that vary."""

from __future__ import annotations

import pytest

from memprof.verdicts.growth import Verdict
from memprof.verdicts.growth_inputs import InputsVerdict, judge

STEADY, BOUNDED, UNDECIDED = (Verdict(word, "iteration") for word in ("steady", "bounded", "undecided"))


def grows(slope: float, unit: str = "iteration") -> Verdict:
    return Verdict("grows", unit, slope=slope, low=0.9 * slope, high=1.1 * slope)


@pytest.mark.parametrize(
    ("same", "varied", "varies", "expected"),
    [
        (STEADY, STEADY, "input", InputsVerdict("input", "varied")),
        (STEADY, BOUNDED, "input", InputsVerdict("input", "varied")),
        (BOUNDED, STEADY, "input", InputsVerdict("input", "same")),
        (BOUNDED, BOUNDED, "shape", InputsVerdict("shape", "varied")),
        (STEADY, grows(1900), "input", InputsVerdict("input", "varied", "new input")),
        (BOUNDED, grows(1900), "input", InputsVerdict("input", "varied", "new input")),
        (STEADY, grows(1900), "shape", InputsVerdict("shape", "varied", "new shape")),
        (grows(1900), STEADY, "input", InputsVerdict("input", "same", "same input")),
        (grows(1900), BOUNDED, "shape", InputsVerdict("shape", "same", "same shape")),
        (grows(1900), grows(1950), "input", InputsVerdict("input", "same", "iteration")),
        (grows(100), grows(1900), "input", InputsVerdict("input", "varied", "iteration", 1800.0)),
        (grows(1900), grows(100), "input", InputsVerdict("input", "same", "iteration")),
        (grows(100), grows(1900, "token"), "input", InputsVerdict("input", "same", "iteration")),
        (grows(100), grows(1900), "shape", InputsVerdict("shape", "same", "iteration")),
        (UNDECIDED, grows(1900), "input", InputsVerdict("input", "same")),
        (UNDECIDED, UNDECIDED, "input", InputsVerdict("input", "same")),
        (grows(1900), UNDECIDED, "input", InputsVerdict("input", "varied")),
        (STEADY, UNDECIDED, "shape", InputsVerdict("shape", "varied")),
    ],
)
def test_two_kinds_verdict(same, varied, varies, expected):
    assert judge(same, varied, varies) == expected


def test_added_rate_needs_separate_intervals():
    wide = Verdict("grows", "iteration", slope=1900, low=80, high=4000)

    assert judge(grows(100), wide, "input").more == 0.0
