"""`memprof tune` on a runtime of the test's own, whose knobs cost what the test says."""

import json
from dataclasses import replace

import numpy
import pytest
from support.suites import one

from memprof.base.errors import UsageError
from memprof.campaign.outputs import output_error
from memprof.programs.runtimes import Knob, Runtime
from memprof.reports.tables.tune import render
from memprof.tune import candidates, search, tuner
from memprof.tune.answer import LeftOut, TuneRequest, rivals
from memprof.tune.search import DEFAULT

MIB = 1 << 20


def test_sentence_agrees_with_table():
    answer = tuner.Tuned(
        "net",
        "mine",
        search.Goal(),
        *(proposal(0, 2000 * MIB), (proposal(1, 1234.4 * MIB),), proposal(1, 1234.4 * MIB), (), (), 9, True, True, 1e-3),
        threads=2,
        shapes={"x": (1, 3)},
        assumed={"x": (1, 3)},
    )
    for unit, said in (
        (None, "peaks at 1234 MiB, 61.7% of the default's 2000 MiB"),
        ("GiB", "peaks at 1.21 GiB, 61.7% of the default's 1.95 GiB"),
    ):
        text = render(answer, unit=unit)
        assert said in text
        assert "61.7%" in text.partition("| #1")[2]
    assert text.startswith("net, mine, 2 threads, x 1x3 (open dimensions taken as 1: --shape): ")


@pytest.mark.parametrize(
    ("verified", "left_out", "said"),
    [
        (True, LeftOut(2, frozenset({("copies", "2")}), rival=1), "measured again, it has no less PEAK and takes no less time than #1."),
        (
            False,
            LeftOut(2, frozenset({("copies", "2")}), rival=0),
            "by the medians, it has no less PEAK and takes no less time than the default.",
        ),
        (
            True,
            LeftOut(2, frozenset({("copies", "2")}), error="in EXECUTE: broken"),
            "failed when it was measured again: in EXECUTE: broken",
        ),
    ],
)
def test_missing_number_has_sentence(verified, left_out, said):
    answer = tuner.Tuned(
        *("net", "mine", search.Goal(), proposal(0, 2000 * MIB), (proposal(1, 1200 * MIB), proposal(3, 1300 * MIB)), None, (), (), 9, True),
        verified,
        1e-3,
        left_out=(left_out,),
    )

    assert any("#2 (copies=2)" in line and line.endswith(said) for line in render(answer, format="text").splitlines())
    assert json.loads(render(answer, format="json"))["left_out"][0]["number"] == 2


@pytest.mark.parametrize(
    ("needed_ns", "more"), [(0, ""), (61 * 10**9, " --time 2min tries each."), (60 * 10**9, " --time 1min tries each.")]
)
def test_search_without_time_says_what_was_not_tried(needed_ns, more):
    one = proposal(1, 1200 * MIB)
    for proposals, best, sentence in (
        ((), None, f"net, mine: the time was up with 23 values untried, and no better settings were found so far.{more}"),
        ((one,), one, "with more time it may find better settings. Not tried: 23 values." + more),
    ):
        answer = tuner.Tuned(*("net", "mine", search.Goal(), proposal(0, 2000 * MIB), proposals, best, (), (), 3, False, True, 1e-3))
        text = render(replace(answer, untried=23, needed_ns=needed_ns), format="text")
        assert any(line.endswith(sentence) for line in text.splitlines()), text


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [((100, 90, 80), {0: 2, 1: 2}), ((100, 100, 100), {}), ((100, 110, 90), {0: 2, 1: 2})],
)
def test_rival_is_least_peak(peaks, expected):
    assert rivals([proposal(number, peak) for number, peak in enumerate(peaks)]) == expected


def proposal(number, peak):
    settings = frozenset({("copies", str(number))}) if number else DEFAULT
    return tuner.Recommendation(number, settings, peak, 1e6, (peak,), (1e6,), None, False, "memprof run", {})


def test_output_error(tmp_path):
    def saved(name, *arrays):
        numpy.savez(tmp_path / name, **{str(index): array for index, array in enumerate(arrays)})
        return tmp_path / name

    outputs = saved("one.npz", numpy.array([1.0, -4.0]), numpy.array(["a"]))
    assert output_error(outputs, saved("same.npz", numpy.array([1.0, -4.0]), numpy.array(["a"]))) == 0
    assert output_error(outputs, saved("near.npz", numpy.array([1.0, -3.0]), numpy.array(["a"]))) == 0.25
    assert output_error(outputs, saved("shape.npz", numpy.array([[1.0, -4.0]]), numpy.array(["a"]))) == float("inf")
    assert output_error(outputs, saved("nan.npz", numpy.array([1.0, numpy.nan]), numpy.array(["a"]))) == float("inf")
    assert output_error(outputs, saved("text.npz", numpy.array([1.0, -4.0]), numpy.array(["b"]))) == float("inf")
    assert output_error(outputs, saved("fewer.npz", numpy.array([1.0, -4.0]))) == float("inf")


NEEDS = Runtime(
    "litert",
    knobs=(
        Knob("api", ("old", "new"), "old", "load", ""),
        Knob("cache", ("off", "on"), "off", "load", "", needs={"api": "new"}),
        Knob("fusion", ("on", "off"), "on", "load", "", needs={"api": "old"}),
    ),
)


def needing(fixed=None, tries=None):
    request = TuneRequest(one("net.tflite", "litert", set=fixed or {}), tries=tries or {})
    values = candidates.candidates_of(NEEDS, request)
    return values, {item: needs for item, needs in candidates.needs_of(NEEDS, values).items() if needs}


def test_knob_searched_with_needs():
    values, needs = needing()

    assert values == {"api": ("new",), "cache": ("on",), "fusion": ("off",)}
    assert needs == {("cache", "on"): {"api": "new"}, ("fusion", "off"): {"api": None}}


@pytest.mark.parametrize(
    ("fixed", "values", "needs"),
    [
        ({"api": "new"}, {"cache": ("on",)}, {}),
        ({"api": "old"}, {"fusion": ("off",)}, {}),
        ({"fusion": "off"}, {}, {}),
        ({"cache": "on", "api": "new"}, {}, {}),
    ],
)
def test_fixed_knobs_exclude_values(fixed, values, needs):
    assert needing(fixed) == (values, needs)


def test_tried_value_without_needs_refused():
    with pytest.raises(UsageError, match=r"^litert: cache=on needs api=new$"):
        needing({"api": "old"}, {"cache": ("on",)})
