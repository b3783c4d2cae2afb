"""Where a PEAK is, in each report: its figure and its phase are of one row, and phases that the kernel's bound leaves apart are told together."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.explanations import explanation
from support.sample_runs import MIB, machine, run, runs

from memprof.explain import engine
from memprof.records import metrics, summary
from memprof.records.types import About, Outcome
from memprof.reports import modes, trace
from memprof.reports.page import drawn, figures
from memprof.reports.pictures import peaks, timeline
from memprof.reports.tables import headline, table
from memprof.reports.tables.explain import lead
from memprof.verdicts import baseline, compare, verdicts

# PREPARE ends at 39.0 MiB, and WARMUP needs 0.48 MiB more: less than the bound of 0.5 MiB, and seen in the table.
NEAR = {"STARTUP": (15, 15), "MODEL_LOAD": (20, 20), "PREPARE": (39, 39), "WARMUP": (39.48, 39.48), "EXECUTE": (38.5, 38.6)}
BOTH = "PREPARE and WARMUP"


def near(variant="a", extra_mib=(0, 0, 0, 0, 0), **rest):
    return runs(variant, extra_mib, memory=NEAR, **rest)


@pytest.mark.parametrize(
    ("heights", "bound_bytes", "highest", "names"),
    [
        ([("PREPARE", 39.0), ("WARMUP", 39.4), ("EXECUTE", 38.0)], 0.5, "WARMUP", BOTH),
        ([("PREPARE", 39.0), ("WARMUP", 39.4), ("EXECUTE", 38.0)], 0, "WARMUP", "WARMUP"),
        ([("PREPARE", 39.0), ("WARMUP", 39.0)], 0, "PREPARE", "PREPARE and WARMUP"),
        (
            [("LOAD", 39.4), ("PREPARE", 30.0), ("WARMUP", 39.0)],
            0.5,
            "LOAD",
            "LOAD and WARMUP",
        ),
        ([(name, 9.0) for name in "abcde"], 64, "a", "a to e"),
        ([(name, 2.0 if name == "b" else 9.0) for name in "abcde"], 1, "a", "a, c, d and 1 more"),
        ([], 1, "", ""),
    ],
    ids=["within bound", "exact", "equal", "apart", "many", "many apart", "none"],
)
def test_phases_of_peak(heights, bound_bytes, highest, names):
    found = summary.highest_phases([(name, mib * MIB) for name, mib in heights], int(bound_bytes * MIB))
    assert (found.highest, found.names) == (highest, names)


@pytest.mark.parametrize(
    ("base", "head", "level"),
    [
        ((30.0, 39.4, 39.2), (30.0, 45.2, 45.4), ("WARMUP", "EXECUTE")),
        ((39.0, 39.4, 30.0), (52.0, 20.0, 20.0), ()),
        ((39.4, 39.0, 30.0), (52.0, 20.0, 20.0), ("PREPARE",)),
        ((52.0, 20.0, 20.0), (20.0, 20.0, 52.0), ()),
    ],
    ids=["level", "base is higher elsewhere", "highest of both", "apart"],
)
def test_phases_of_two_peaks(base, head, level):
    """A figure of one side never stands beside a phase that has less."""
    sides = [
        summary.highest_phases(list(zip(("PREPARE", "WARMUP", "EXECUTE"), (mib * MIB for mib in side), strict=True)), MIB // 2)
        for side in (base, head)
    ]
    assert sides[0].shared(sides[1]).level == sides[1].shared(sides[0]).level == level


def test_sentence_has_all_near_phases():
    assert f"PEAK is 39.5 MiB, in {BOTH}, 24.5 MiB above the baseline" in headline.of_runs(near())
    assert f"PEAK is 39.5 MiB, in {BOTH}, " in headline.of_picture(near())
    assert "PEAK is 39.5 MiB, in WARMUP, " in headline.of_runs(near(where=machine(peak_bound_bytes=4096)))


def test_note_where_figures_differ():
    note = "a: PEAK is in PREPARE and WARMUP: they differ by less than the 0.50 MiB to which peaks are exact"
    assert note in table.render(near(), brief=True)
    level = {**NEAR, "WARMUP": (39.02, 39.02), "EXECUTE": (38, 38.1)}
    assert "to which peaks are exact" not in table.render(runs("a", (0,) * 5, memory=level), brief=True)


def test_sentences_of_two_sides():
    """Compare's and the gate's: the memory at the end is that of the phase that both PEAKs are in."""
    base, head = near(), near(extra_mib=(9,) * 5)
    words = f"PEAK is 9.0 MiB more (39.5 MiB to 48.5 MiB), in {BOTH}; at the end of WARMUP anonymous memory is 9.0 MiB more"
    sides = baseline.entries(base), baseline.entries(head)
    report = verdicts.Report("head against base", tuple(verdicts.judge(*sides)), sources=(*sides[0], *sides[1]))
    assert words in headline.of_comparison(compare.compare(base, head))
    assert words in headline.of_gate(report)


def test_sentence_of_two_sides_apart():
    """Head peaks in PREPARE alone, which is not where base's figure is from."""
    head = runs(extra_mib=(0,) * 5, memory={**NEAR, "PREPARE": (39, 60)})
    words = "PEAK is 20.5 MiB more (39.5 MiB in PREPARE and WARMUP to 60.0 MiB in PREPARE)"
    assert words in headline.of_comparison(compare.compare(near(), head))


def test_bold_figure_is_peak():
    figure = peaks.render(near())
    weights = {text.get_text(): text.get_weight() for axes in figure.axes for text in axes.texts}
    assert (weights["39.0"], weights["39.5"]) == ("normal", "bold")


def test_bold_figures_of_level_phases():
    figure = peaks.render(runs("a", (0,) * 5, memory={**NEAR, "WARMUP": (39.02, 39.02), "PREPARE": (39.01, 39.01), "EXECUTE": (38, 38.1)}))
    weights = [text.get_weight() for axes in figure.axes for text in axes.texts if text.get_text() == "39.0"]
    assert weights == ["bold", "bold"]


def test_bar_of_peak_adds_up():
    (bar,) = figures.figures(near()).bars["PEAK"]
    assert (bar.value, bar.where) == ("39.5 MiB", "WARMUP")
    assert [part.words for part in bar.parts] == ["29.5 MiB anonymous", "10.0 MiB file-backed"], "nothing was given back"


def test_timeline_and_trace_of_peak():
    made = near()[0]
    shown = drawn.page([[made]]).models[0].groups[0].traces[0]
    at_phase = next(phase.peak_bytes for phase in shown.phases if phase.name == shown.peak_phase)
    assert (shown.peak_phase, at_phase) == ("WARMUP", shown.peak_bytes)
    assert timeline._drawn("a", [made], ()).peak.phase == "WARMUP"
    assert "PEAK: 39.5 MiB in WARMUP" in [event.get("name") for event in json.loads(trace.render([made]))["traceEvents"]]


def test_explanation_of_peak():
    made = near()[0]
    explained = explanation(measured=engine.measured(made), peak_bound_bytes=made.machine.peak_bound_bytes, looked_peak_bytes=None)
    assert explained.peak is not None and (explained.peak.name, explained.peak.rss_peak_bytes) == ("WARMUP", explained.peak_bytes)
    assert lead(explained).startswith(f"PEAK 39.5 MiB, in {BOTH}")


def test_phase_by_medians_of_runs():
    """Most runs peak in WARMUP, and the median of PREPARE is higher: PEAK's median is beside the phase that has it."""
    odd = [run(memory={**NEAR, "PREPARE": (39, prepare), "WARMUP": (39, warmup)}) for prepare, warmup in ((50, 51), (50, 51), (50, 12))]
    found = summary.peak_phases(odd)
    assert metrics.values(odd, "WARMUP", metrics.METRICS["rss_peak_bytes"])[0] == 51 * MIB and found.highest == "WARMUP"
    odd = [
        run(memory={**NEAR, "PREPARE": (39, prepare), "WARMUP": (39, warmup)})
        for prepare, warmup in ((50, 12), (50, 51), (12, 51), (60, 9))
    ]
    assert summary.peak_phases(odd).highest == "PREPARE"


# -- differences of figures in modes


def of_release(version, baseline_mib, extra_mib):
    """Runs with this baseline, and a PEAK of 60 MiB and so much more."""
    memory = {"STARTUP": (baseline_mib, baseline_mib), "MODEL_LOAD": (50, 50), "PREPARE": (60, 60), "EXECUTE": (55, 55)}
    made = [run(f"litert@{version}", repeat, memory=memory, extra_mib=extra) for repeat, extra in enumerate(extra_mib, 1)]
    return [replace(each, about=About(version, "3.11.2")) for each in made]


def of_variant(made, name="a"):
    return [replace(each, job=replace(each.job, variant=name)) for each in made]


IN_MODES = (11.2, 11.2, 15.2, 15.2, 15.2)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            of_release("1.0", 20, IN_MODES),
            of_release("1.1", 36.2, (31.9,) * 5),
            (
                "PEAK is 16.7 MiB or 20.7 MiB more (71.2 MiB or 75.2 MiB to 91.9 MiB)",
                "its baseline has 16.2 MiB more, and above it PEAK is 512.0 KiB or 4.5 MiB more",
            ),
        ),
        (
            of_release("1.0", 20, (31.9,) * 5),
            of_release("1.1", 20, IN_MODES),
            ("PEAK is 16.7 MiB or 20.7 MiB less (91.9 MiB to 71.2 MiB or 75.2 MiB)",),
        ),
    ],
    ids=["base in modes", "head in modes"],
)
def test_differences_of_modes_are_named(before, after, expected):
    """The difference of two medians is one that no two runs have."""
    sides = baseline.entries(of_variant(before)), baseline.entries(of_variant(after))
    report = verdicts.Report("head against base", tuple(verdicts.judge(*sides)), sources=(*sides[0], *sides[1]))
    sentences = (
        headline.of_runs([*before, *after]),
        headline.of_comparison(compare.compare(of_variant(before), of_variant(after))),
        headline.of_gate(report),
    )
    for words in expected:
        for sentence in sentences:
            assert words in sentence


@pytest.mark.parametrize(
    ("changes", "least", "words"),
    [
        ((27.0,), 0, "27.0 MiB more"),
        ((-27.0,), 1, "27.0 MiB less"),
        ((0.5,), 1, "the same"),
        ((0.5, -0.5), 1, "the same"),
        ((0.5, 4.5), 1, "512.0 KiB or 4.5 MiB more"),
        ((0.0, 8.0), 1, "the same or 8.0 MiB more"),
        ((-4.0, 8.0), 0, "4.0 MiB less or 8.0 MiB more"),
        ((4.0, 2.0, 8.0, 6.0), 0, "from 2.0 MiB to 8.0 MiB more"),
    ],
)
def test_words_of_differences(changes, least, words):
    assert modes.change("rss_peak_bytes", [mib * MIB for mib in changes], least * MIB) == words


def test_baseline_in_modes_has_caution():
    before = [each for mib in (20, 20, 28, 28, 28) for each in of_release("1.0", mib, (10,))]
    sentence = headline.of_runs([*before, *of_release("1.1", 40, (40,) * 5)])
    assert "its baseline has 12.0 MiB or 20.0 MiB more, so that no figure tells how PEAK differs above it" in sentence


def test_times_of_modes_are_named():
    rest = [each for extra, name in ((140, "b"), (5, "c")) for each in runs(name, (extra,) * 5, memory=NEAR)]
    sentence = headline.of_runs([*near(extra_mib=(0, 0, 0, 11, 11)), *of_variant(rest[:5], "b")])
    assert "179.5 MiB (b), 3.6 or 4.5 times as much" in sentence


# -- names of variants


def test_failed_variants_stand_apart():
    failed = Outcome("signal", "EXECUTE", signal="SIGKILL")
    made = [run("tflite", threads=1), run("mnn", threads=1, outcome=failed), run("tflite_micro", threads=1, outcome=failed)]
    words = "2 of 3 variants failed in every run: mnn; tflite_micro. "
    assert headline.of_runs(made).startswith(words)
