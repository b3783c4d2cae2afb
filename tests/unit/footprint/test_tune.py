"""`memprof tune` on a runtime of the test's own, whose knobs cost what the test says."""

import json
import statistics

import numpy
import pytest
from msgspec.structs import replace
from support import sample_runs
from support.suites import one
from support.tables import cells

from memprof.base.errors import UsageError
from memprof.campaign.outputs import output_error
from memprof.footprint.tune import candidates, search, tuner
from memprof.footprint.tune.answer import LeftOut, TunedRuntimes, TuneRequest, best_of, rivals
from memprof.footprint.tune.search import DEFAULT
from memprof.programs.runtimes import Knob, Runtime
from memprof.reports.tables.tune import render

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
    assert text.startswith("net, mine, 2 threads, x=1x3 (open dimensions taken as 1: --shape): ")


def test_budget_named_in_answer():
    """The limit stands in the sentence, in the table and in the picture, and how many settings keep within it."""
    best = replace(proposal(1, 109 * MIB), calls=("SessionOptions.enable_cpu_mem_arena = False",))
    answer = tuner.Tuned(
        *("net", "mine", search.Goal(budget=112 * MIB), proposal(0, 140 * MIB), (best, proposal(2, 120 * MIB)), best),
        *((), (), 9, True, True, 1e-3),
        within=(3, 20),
        remarks=("the machine is busy (100% of its CPUs): times will be too long",),
    )
    text = render(answer)
    said = "net, mine: fastest within 112.0 MiB: `copies=1`, which peaks at 109.0 MiB, 77.9% of the default's 140.0 MiB; "
    assert text.startswith(said + "an iteration takes the same time within noise; 3 of 20 settings that ran fit.")
    assert [row["within 112.0 MiB"] for row in cells(text, "").values()] == ["no", "yes", "no"]
    assert "\n- the machine is busy (100% of its CPUs)" in text
    assert text.endswith("In your program, for `copies=1`: `SessionOptions.enable_cpu_mem_arena = False`.")


def test_answer_names_what_search_may_miss():
    best = proposal(1, 90 * MIB)
    whole = tuner.Tuned(*("net", "mine", search.Goal(), proposal(0, 140 * MIB), (best,), best, (), (), 9, True, True, 1e-3), time_noise=0.1)
    end, noisy = "It may miss better settings that differ from these in three values or more.", "it may miss settings that are faster"
    assert end in render(whole) and noisy not in render(whole)
    busy = render(replace(whole, complete=False, time_noise=1.2))
    assert end not in busy and "The default's times differed by 120% in the search: it may miss settings that are faster" in busy


def test_unmet_budget_has_sentence():
    """Of several runtimes only if none keeps within it."""
    default, one = proposal(0, 140 * MIB), proposal(1, 90 * MIB)
    some = tuner.Tuned(*("net", "mnn", search.Goal(budget=112 * MIB), default, (one,), one, (), (), 9, True, True, 1e-3))
    none = replace(some, runtime="ort", proposals=(), best=None)
    assert some.unmet == replace(none, goal=search.Goal()).unmet == ""
    assert none.unmet == "net, ort: no settings were found that stay within 112.0 MiB"
    cut = replace(none, complete=False, values=22, untried=20, proposals=(replace(proposal(1, 120 * MIB)),))
    said = "net, ort: no settings were found that stay within 112.0 MiB: the time was up after 2 of 22 values"
    assert cut.unmet == said
    assert f"{said}; the least PEAK so far is 120.0 MiB, of `copies=1`." in render(cut)
    assert replace(cut, untried=0).unmet.endswith(": the time was up after 22 values and some of their combinations")
    assert TunedRuntimes((none, some)).unmet == "" and TunedRuntimes((none, none)).unmet == none.unmet


@pytest.mark.parametrize(
    ("peaks", "threads", "more"), [((394, 416), 2, "; --threads 1 may have one size"), ((394, 416), 1, ""), ((394, 395), 2, None)]
)
def test_peaks_apart_are_named(peaks, threads, more):
    default = replace(proposal(0, 405 * MIB), peaks=tuple(mib * MIB for mib in peaks))
    answer = tuner.Tuned(*("net", "mine", search.Goal(), default, (), None, (), (), 9, True, True, 1e-3), threads=threads)
    said = f"- PEAK of #0 was from 394.0 MiB to 416.0 MiB in its runs: a limit needs the largest{more}."
    assert (said in render(answer, format="text").splitlines()) == (more is not None)


def test_rows_over_latency_are_marked():
    """They have no command; the default is never over."""
    times = {0: (1e8,) * 5, 1: (1.4e8,) * 5, 2: (1.05e8,) * 5}
    default, slow, best = (
        replace(proposal(number, size * MIB, times[number]), command=f"run {number}") for number, size in ((0, 90), (1, 60), (2, 70))
    )
    answer = tuner.Tuned(*("net", "mine", search.Goal(max_time=1.1), default, (slow, best), best, (), (), 9, True, True, 1e-3))
    text = render(answer)
    marked = [line for line in text.splitlines() if "over --max-latency" in line]
    assert len(marked) == 1 and "| #1 " in marked[0] and "140.0% (over --max-latency)" in marked[0]
    assert "    run 2" in text and "    run 1" not in text
    assert "over --max-latency" not in render(replace(answer, goal=search.Goal()))


def test_program_sets_threads_of_best():
    best = replace(proposal(1, 60 * MIB), calls=("so.threads = 1", "so.copies = 1"))
    answer = tuner.Tuned(*("net", "mine", search.Goal(), proposal(0, 90 * MIB), (best,), best, (), (), 9, True, True, 1e-3), threads=1)
    assert render(answer).endswith("In your program, for `copies=1,threads=1`: `so.threads = 1`; `so.copies = 1`.")


def test_answer_names_fit():
    best = proposal(1, 60 * MIB)
    answer = tuner.Tuned(
        *("net", "mine", search.Goal(), proposal(0, 90 * MIB), (best,), best, (), (), 9, True, True, 1e-3),
        fit_command="memprof fit net -r mine",
    )
    assert render(answer).endswith("The least memory in which these settings work is found by\n\n    memprof fit net -r mine")
    assert "is found by" not in render(replace(answer, fit_command=""))


def test_lines_are_of_quick_row():
    """The best may be slow for little memory: words, fit and gate are of the least PEAK at about the default's time, and the best stands beside."""
    default, slow, quick, noisy = (
        replace(proposal(number, size * MIB, (time,) * 4 + (last,)), calls=(f"so.row = {number}",))
        for number, size, time, last in ((0, 92, 1e8, 1.2e8), (1, 77, 2.9e8, 2.9e8), (2, 78, 1.05e8, 1.3e8), (3, 79, 1.4e8, 0.9e8))
    )
    runs = [
        replace(each, job=replace(each.job, verifies=True))
        for number, size in ((0, 91), (1, 60), (2, 70))
        for each in (sample_runs.run(f"#{number} x", repeat, memory={"EXECUTE": (10, size)}) for repeat in (1, 2, 3))
    ]
    answer = tuner.Tuned(
        *("net", "mine", search.Goal(), default, (slow, quick), slow, (), (), 9, True, True, 1e-3),
        runs=tuple(runs),
        gate_command=("memprof gate --budget", ""),
    )
    text = render(answer)
    assert "| #1 (best) |" in text and "In your program, for `copies=2`: `so.row = 2`." in text and "so.row = 1" not in text
    said = "are of #2, which has the least PEAK of all rows that take at most 10% more time, or the same within noise: 78.0 MiB."
    assert f"The lines below {said} #1 (best) peaks at 77.0 MiB, and an iteration takes 2.9 times as long." in text
    assert text.endswith("    memprof gate --budget 71MiB")
    plain = json.loads(render(answer, format="json"))
    assert (plain["best"], plain["offered"]) == ({"copies": "1"}, {"copies": "2"})

    assert replace(answer, proposals=(slow, noisy)).offered is noisy, "40% within noise is no cost that is known"
    for goal in (search.Goal(max_time=3.0), search.Goal(budget=90 * MIB)):
        assert replace(answer, goal=goal).offered is slow, "the user gave what it may cost"
    for others in ((slow,), (slow, replace(quick, changes_outputs=True)), (slow, replace(quick, peak=93.0 * MIB))):
        alone = replace(answer, proposals=others)
        assert alone.offered is default
        said = "#1 (best), `copies=1`, saves 15.0 MiB, and an iteration takes 2.9 times as long."
        text = render(alone)
        assert "The lines below are of the default: no row with less PEAK" in text and said in text
        assert "so.row = 0" in text and text.endswith("    memprof gate --budget 92MiB") and "#1 (best)" in text
        assert json.loads(render(alone, format="json"))["offered"] == {}
    assert replace(answer, proposals=(), best=None).offered is None


def test_beaten_settings_are_named():
    best = proposal(1, 60 * MIB)
    beaten = [search.TrialPoint(frozenset({("level", str(number))}), (60 + number) * MIB, 2e8, 1) for number in range(1, 6)]
    answer = tuner.Tuned(
        *("net", "mine", search.Goal(), proposal(0, 90 * MIB), (best,), best, (), (), 9, True, True, 1e-3), beaten=tuple(beaten)
    )
    assert "in the search: level=1 (61.0 MiB, 200 ms); level=2 (62.0 MiB, 200 ms); level=3 (63.0 MiB, 200 ms) and 2 more." in render(answer)
    assert json.loads(render(answer, format="json"))["beaten"][4]["settings"] == {"level": "5"}
    assert "Not measured again" not in render(replace(answer, beaten=()))


@pytest.mark.parametrize("budget", [None, 64 * MIB])
def test_answer_ends_with_gate(budget):
    best = proposal(1, 60 * MIB)
    runs = [
        replace(each, job=replace(each.job, verifies=True))
        for each in (sample_runs.run("#1 copies=1", repeat, memory={"EXECUTE": (10, 60)}) for repeat in (1, 2, 3))
    ]
    answer = tuner.Tuned(
        *("net", "mine", search.Goal(budget=budget), proposal(0, 90 * MIB), (best,), best, (), (), 9, True, True, 1e-3),
        runs=tuple(runs),
        gate_command=("memprof gate --budget", "-- net"),
    )
    assert render(answer).endswith(f"To keep it so in CI:\n\n    memprof gate --budget {'64MiB' if budget else '61MiB'} -- net")
    assert "To keep it so" not in render(replace(answer, runs=(), goal=search.Goal()))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((1e8, 1e8, 1e8, 1e8, 1e8), "an iteration takes the same time within noise"),
        ((1.14e8, 1e8, 1.4e8, 6e8, 5e8), "an iteration takes 40% more time by the medians, which is within noise."),
    ],
)
def test_wide_times_are_not_the_same(times, said):
    default, best = proposal(0, 90 * MIB, (1.2e8, 0.9e8, 1e8, 4e8, 0.8e8)), proposal(1, 60 * MIB, times)
    answer = tuner.Tuned(*("net", "mine", search.Goal(), default, (best,), best, (), (), 9, True, True, 1e-3))
    assert said in render(answer)


def test_baseline_is_named():
    answer = tuner.Tuned(
        *("net", "mine", search.Goal(), proposal(0, 67.8 * MIB), (), None, (), (), 9, True, True, 1e-3), baseline=52.0 * MIB
    )
    assert "- 52.0 of the default's 67.8 MiB are the baseline, which is there before a model is loaded" in render(answer)
    assert json.loads(render(answer, format="json"))["baseline_bytes"] == 52.0 * MIB
    assert "are the baseline" not in render(replace(answer, baseline=None))


def test_wide_times_are_a_range():
    """Half of the value and less to the farthest is a distance, more than the value would reach below zero."""
    near, far = proposal(0, 67 * MIB, (0.5e6, 0.681e6, 0.7e6)), proposal(1, 66 * MIB, (0.66e6, 0.681e6, 5.956e6))
    text = render(tuner.Tuned(*("net", "mine", search.Goal(), near, (far,), far, (), (), 9, True, True, 1e-3)))
    assert "0.681 ±0.181" in text and "0.681 (0.660 to 5.96)" in text


def test_several_runtimes_in_one_answer():
    one = tuner.Tuned(*("net", "mnn", search.Goal(), proposal(0, 140 * MIB), (), None, (), (), 9, True, True, 1e-3))
    best = proposal(1, 90 * MIB)
    other = tuner.Tuned(*("net", "ort", search.Goal(), proposal(0, 150 * MIB), (best,), best, (), (), 9, True, True, 1e-3))
    one = replace(one, untried=3, needed_ns=70 * 10**9)
    answer = TunedRuntimes((one, other), {"tvm": "net, tvm: the default settings fail: no compiler"})
    text = render(answer)
    assert text.startswith("Of 2 runtimes, ort needs least: `copies=1`, with a PEAK of 90.0 MiB.")
    assert list(cells("\n\n" + text.split("\n\n", 2)[2], "")) == ["mnn #0", "ort #0", "ort #1 (best)"]
    assert text.count("--time") == 1 and "- They share the time: --time 3min tries each value in each runtime." in text
    assert "- tvm: net, tvm: the default settings fail: no compiler" in text
    assert json.loads(render(answer, format="json"))["best_runtime"] == "ort"
    assert TunedRuntimes(tuple(replace(each, goal=search.Goal(budget=80 * MIB)) for each in (one, replace(other, best=None)))).best is None


@pytest.mark.parametrize(
    ("verified", "left_out", "said"),
    [
        (
            True,
            LeftOut(2, frozenset({("copies", "2")}), rival=1),
            "measured again, it has no less PEAK and takes no less time than #1 beyond noise.",
        ),
        (
            False,
            LeftOut(2, frozenset({("copies", "2")}), rival=0),
            "by the medians, it has no less PEAK and takes no less time than the default beyond noise.",
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
        ((), None, f"no settings were found that stay below the default's peak: the time was up after 2 of 25 values.{more}"),
        ((one,), one, "with more time it may find better settings. Not tried: 23 values." + more),
    ):
        answer = tuner.Tuned(*("net", "mine", search.Goal(), proposal(0, 2000 * MIB), proposals, best, (), (), 3, False, True, 1e-3))
        text = render(replace(answer, values=25, untried=23, needed_ns=needed_ns), format="text")
        assert any(line.endswith(sentence) for line in text.splitlines()), text


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [((100, 90, 80), {0: 2, 1: 2}), ((100, 100, 100), {1: 0, 2: 0}), ((100, 110, 90), {0: 2, 1: 2})],
)
def test_rival_is_least_peak(peaks, expected):
    assert rivals([proposal(number, peak) for number, peak in enumerate(peaks)]) == expected


def test_fewer_knobs_win_within_noise():
    """A knob that makes no difference beyond noise is none of the best settings, whatever the medians say; one that does stays."""
    one = proposal(1, 1200 * MIB, times=(100, 120, 150, 260, 240))
    two = proposal(2, 1199.8 * MIB, times=(95, 118, 149, 230, 238), more=("format",))
    three = proposal(3, 1100 * MIB, times=(96, 119, 149, 231, 239), more=("arena", "trim"))
    default = proposal(0, 2000 * MIB, times=(98, 110, 140, 170, 160))

    assert rivals([default, one, two]) == {2: 1}
    assert rivals([default, one, three]) == {1: 3}
    assert best_of(search.Goal(), default, (one, three)) is three


def test_budget_takes_plainest_of_equally_fast():
    default = proposal(0, 140 * MIB, times=(98, 110, 140, 170, 160))
    plain = proposal(1, 109 * MIB, times=(120, 176, 190, 150, 200))
    long = proposal(2, 96 * MIB, times=(129, 142, 155, 243, 110), more=("arena", "format"))
    fast = proposal(3, 111 * MIB, times=(10, 11, 12, 13, 14), more=("mode",))
    goal = search.Goal(budget=112 * MIB)

    assert best_of(goal, default, (plain, long)) is plain
    assert best_of(goal, default, (plain, long, fast)) is fast
    assert best_of(search.Goal(budget=100 * MIB), default, (plain, long, fast)) is long


def proposal(number, peak, times=(1e6,), more=()):
    settings = frozenset({("copies", str(number)), *((name, "on") for name in more)}) if number else DEFAULT
    peaks = (peak,) * len(times)
    return tuner.Recommendation(number, settings, peak, statistics.median(times), peaks, times, None, False, "memprof run", {})


def test_output_error(tmp_path):
    def saved(name, *arrays):
        numpy.savez(tmp_path / name, **{str(index): array for index, array in enumerate(arrays)})
        return tmp_path / name

    outputs = saved("one.npz", numpy.array([1.0, -4.0]), numpy.array(["a"]))
    assert output_error(outputs, saved("same.npz", numpy.array([1.0, -4.0]), numpy.array(["a"]))) == 0
    assert output_error(outputs, saved("near.npz", numpy.array([1.0, -3.0]), numpy.array(["a"]))) == 0.25
    nothing = saved("nothing.npz", numpy.array([1e-7, 0.0]))
    assert output_error(nothing, saved("rounded.npz", numpy.array([0.0, 1e-7]))) == pytest.approx(1e-4)
    assert output_error(nothing, saved("found.npz", numpy.array([0.0, 0.5]))) == pytest.approx(500)
    assert output_error(saved("none.npz", numpy.array([0, 0])), saved("further.npz", numpy.array([0, 1]))) == 1, "integers have no rounding"
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
