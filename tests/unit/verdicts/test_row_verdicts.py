"""Verdicts: what is called worse is worse, what is not is not, and what cannot be known is said to be."""

from __future__ import annotations

import json
import random
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples
from support.sample_runs import MIB, USUAL, machine, run, runs

from memprof.base.errors import InputError, UsageError
from memprof.records.summary import Key, Row
from memprof.records.types import PEAK, Outcome
from memprof.reports.tables import gate as report
from memprof.verdicts import baseline, verdicts
from memprof.verdicts.verdicts import Limits, Report

STEADY = (0, 0.1, 0.2, 0.3, 0.4)
KEY = Key("net.onnx", "a", None, "here")


def judged(base, head, metric="rss_peak_bytes", limits=Limits(), bound=0):
    """The verdict on samples in MiB (or in the metric's unit)."""
    size = MIB if metric.endswith("bytes") else 1
    sides = [Row(KEY, PEAK, metric, tuple(value * size for value in side), True) for side in (base, head)]
    return verdicts.judge_row(*sides, bound, limits)


def report_of(base, head, **rest):
    return Report("head against base", verdicts.worst_first(verdicts.judge(baseline.entries(base), baseline.entries(head), **rest)))


LOW, HIGH = 189.8, 194.4


@pytest.mark.parametrize(
    ("base", "head", "expected", "why"),
    [
        ((100, 100.1, 100.2, 100.3, 100.4), (105, 105.1, 105.2, 105.3, 105.4), "regressed", "+5.0 MiB, +5.0%"),
        ((105, 105.1, 105.2, 105.3, 105.4), (100, 100.1, 100.2, 100.3, 100.4), "improved", "-5.0 MiB, -4.8%"),
        ((100, 100.1, 100.2, 100.3, 100.4), (100.8, 100.9, 101, 101.1, 101.2), "ok", "within the threshold of 1.0 MiB"),
        # zero spread, equal and other constants
        ((100,) * 5, (100,) * 5, "ok", "+0 B"),
        ((100,) * 5, (103,) * 5, "regressed", "p = 0.004"),
        ((103,) * 5, (100,) * 5, "improved", "p = 0.004"),
        ((100,) * 5, (100.4,) * 5, "ok", "within"),
        # noise: three standard deviations, and ranks that overlap
        ((100, 104, 96, 102, 98), (105, 109, 101, 107, 103), "ok", "within"),
        # too few, whatever they show; and unequal counts
        ((100,) * 4, (200,) * 9, "undecided", "4 repeats can never decide: 5 a side are the least"),
        ((100,) * 5, (200,), "undecided", "1 repeat can never decide"),
        ((100, 100.1, 100.2, 100.3, 100.4), (105, 105.1, 105.2, 105.3, 105.4, 105.5, 105.6, 105.7), "regressed", "+5.1 MiB"),
        # a lone outlier neither makes nor hides a regression
        ((100, 100, 100, 100, 100.1), (100, 100, 100, 100.1, 140), "ok", "within"),
        ((100, 100, 100, 100.1, 90), (105, 105, 105, 105.1, 105.2), "regressed", "+5.0 MiB"),
        ((100, 100, 100, 100.1, 140), (105, 105, 105, 105.1, 105.2), "undecided", "a repeat lies far from its like"),
        # one repeat of each side that also compiles makes the spread
        ((27.4, 9.8, 8, 10.4, 11), (27.7, 21.7, 21.9, 21.2, 23.1), "undecided", "but a repeat lies far from its like"),
        ((27.7, 21.7, 21.9, 21.2, 23.1), (27.4, 9.8, 8, 10.4, 11), "undecided", "but a repeat lies far from its like"),
        ((8, 8.4, 8.6, 9.1, 27), (20, 20.3, 20.9, 21.2, 21.4), "undecided", "but a repeat lies far from its like"),
        ((8, 8.4, 8.6, 9.1, 9.3), (22, 20.3, 20.9, 21.2, 5), "undecided", "but a repeat lies far from its like"),
        ((27.4, 9.8, 8, 10.4, 11), (27.7, 9.7, 8.2, 10.3, 11.4), "ok", "within"),
        # two modes
        ((LOW, LOW, HIGH, HIGH, HIGH), (LOW, LOW, LOW, HIGH, HIGH), "ok", "2 modes, the same on both sides"),
        ((LOW, LOW, LOW, LOW, HIGH), (LOW, HIGH, HIGH, HIGH, HIGH), "ok", "2 modes, the same on both sides"),
        ((LOW, LOW, HIGH, HIGH, HIGH), (HIGH,) * 5, "ok", "runs in each: 0, 5, in base 2, 3"),
        (
            (LOW,) * 5,
            (LOW, LOW, HIGH, HIGH, HIGH),
            "undecided",
            "deterministic = true in a suite, or --deterministic) or more repeats help",
        ),
        ((LOW,) * 5, (LOW, HIGH, HIGH, HIGH, HIGH), "undecided", "2 modes in head, 1 in base"),
        ((LOW, LOW, HIGH, HIGH, HIGH), (150, 150, LOW, HIGH, HIGH), "ok", "below all of base's"),
        ((LOW, LOW, HIGH, HIGH, HIGH), (192, 192, 192, 192, 192), "undecided", "one mode in head, 2 in base, 0 alike"),
        ((LOW, LOW, HIGH, HIGH, HIGH), (200, 200, 204, 204, 204), "regressed", "all of head is above all of base, by 5.6 MiB"),
        ((200, 200, 204, 204, 204), (LOW, LOW, HIGH, HIGH, HIGH), "improved", "all of head is below all of base"),
        (
            (LOW, LOW, HIGH, HIGH, HIGH),
            (LOW + 2.1, LOW + 2.1, LOW + 2.1, HIGH + 2.1, HIGH + 2.1),
            "regressed",
            "2 modes, all of which moved",
        ),
        ((LOW, LOW, LOW, LOW, HIGH), (LOW + 2.1, HIGH + 2.1, HIGH + 2.1, HIGH + 2.1, HIGH + 2.1), "undecided", "in too few repeats"),
        ((LOW, LOW, HIGH, HIGH, HIGH), (LOW + 4, LOW + 4, HIGH + 4, HIGH + 4, HIGH + 4), "undecided", "cannot be told apart"),
        ((LOW, LOW, HIGH, HIGH, HIGH), (LOW, LOW, HIGH + 30, HIGH + 30, HIGH + 30), "undecided", "cannot be told apart"),
        ((LOW,) * 9 + (HIGH,), (LOW,) + (HIGH,) * 9, "regressed", "runs in each: 1, 9, in base 9, 1"),
        # three modes (ONNX Runtime with all CPUs)
        ((82.5, 86.4, 86.5, 86.5, 90.5), (86.4, 86.4, 86.4, 86.5, 90.6), "ok", "the same on both sides"),
        ((82.5, 86.4, 86.5, 86.5, 90.5), (92.5, 96.4, 96.5, 96.5, 100.5), "regressed", "all of head is above"),
    ],
)
def test_verdict_by_shape_of_samples(base, head, expected, why):
    row = judged(base, head)

    assert (row.verdict, why in row.reason) == (expected, True), row.reason


@pytest.mark.parametrize(
    ("base", "head", "missed", "expected"),
    [
        ((8.2, 4, 7.2, 9.8, 8.2), (7.2, 1.8, 4, 9.8, 7.9), 3, "undecided"),
        ((8.2, 4, 7.2, 9.8, 8.2), (7.2, 1.8, 4, 9.8, 7.9), 0.5, "ok"),  # less than the least difference that counts
        ((9.8, 9.8, 9.7, 9.8, 9.8), (9.8, 9.7, 9.8, 9.8, 9.7), 3, "ok"),  # the repeats agree
        ((8.2, 8, 7.2, 9.8, 8.2), (27.2, 21.8, 24, 29.8, 27.9), 3, "regressed"),
    ],
)
def test_peak_of_polling_in_verdict(base, head, missed, expected):
    sides = [
        Row(KEY, PEAK, "rss_peak_bytes", tuple(value * MIB for value in side), False, missed=int(missed * MIB)) for side in (base, head)
    ]
    judged = verdicts.judge_row(*sides, 0, verdicts.parse_limits(["10%"]))

    assert judged.verdict == expected, judged.reason
    assert ("up to 3.0 MiB more is possible: --recorder c" in judged.reason) == (expected == "undecided")
    assert "~" in report.render(Report("", (judged,))).splitlines()[2]


def test_headline_never_fine_beside_undecided():
    key = replace(KEY, variant="other")
    hidden = judged((27.4, 9.8, 8, 10.4, 11), (27.7, 21.7, 21.9, 21.2, 23.1), limits=verdicts.parse_limits(["10%"]))
    fine = replace(judged((10,) * 5, (10,) * 5), key=key)

    text = report.render(Report("head against base", (fine, hidden)))

    assert text.splitlines()[:3] == [
        "### memprof gate: undecided",
        "",
        "net.onnx, a: PEAK is 11.5 MiB more (10.4 MiB to 21.9 MiB, undecided).",
    ]
    assert "Nothing changed" not in text


def test_needed_change_of_modes_is_beyond_them():
    """A change of 4.6 MiB stayed undecided beside a needed change of 1.9 MiB."""
    row = judged((LOW, LOW, LOW, HIGH, HIGH), (HIGH, HIGH, HIGH + 3, HIGH + 3, HIGH + 3))
    assert row.verdict == "undecided" and "modes" in row.reason
    assert row.threshold == pytest.approx((4.6 + 0.01 * LOW) * MIB) and row.difference > 7 * MIB


def test_threshold_largest_of_parts():
    assert judged((10,) * 5, (10.4,) * 5).threshold == 512 << 10
    assert judged((1000,) * 5, (1001,) * 5).threshold == pytest.approx(10 * MIB)
    assert judged((10,) * 5, (10.4,) * 5, bound=4 * MIB).threshold == 4 * MIB
    assert judged((10,) * 5, (10.4,) * 5, metric="anon_end_bytes", bound=4 * MIB).threshold == 512 << 10  # no peak
    assert judged((100, 104, 96, 102, 98), (100,) * 5).threshold == pytest.approx(3 * 5**0.5 * MIB, rel=0.01)
    assert judged((100,) * 5, (103,) * 5, limits=verdicts.parse_limits(["4%"])).verdict == "ok"
    assert judged((100,) * 5, (103,) * 5, limits=verdicts.parse_limits(["1%", "4MiB"])).verdict == "ok"


def test_latency_without_byte_floor():
    row = judged((100e6, 101e6, 102e6, 103e6, 104e6), (200e6, 201e6, 202e6, 203e6, 204e6), metric="time_ns")

    assert (row.verdict, row.reason[:14]) == ("regressed", "+100 ms, +98.0")


@pytest.mark.parametrize("words", [["-1%"], ["two%"], ["1MB/s"], ["nan%"]])
def test_threshold_invalid(words):
    with pytest.raises(UsageError):
        verdicts.parse_limits(words)


@pytest.mark.parametrize("word", ["5", " 0.5", "100000"])
def test_threshold_without_unit(word):
    with pytest.raises(UsageError, match=rf"--threshold {word!r} has no unit: write {word.strip()}% or {word.strip()}MiB$"):
        verdicts.parse_limits([word])
    assert verdicts.parse_limits(["0", "0%"]) == Limits(0.0, 0)


@given(st.lists(st.integers(0, 400), min_size=10, max_size=10), st.integers(500, 4000))
@examples(20)
def test_difference_beyond_samples_always_seen(extra, shift):
    base, head = [1000 + value for value in extra[:5]], [1000 + value for value in extra[5:]]
    far = [value + 400 + 10 * shift for value in head]

    assert judged(base, far).verdict == "regressed"
    assert judged(far, base).verdict == "improved"
    assert judged(base, base).verdict == "ok"


@pytest.mark.parametrize("more", [2, 3.8, 10])
def test_increase_of_two_percent_seen(more):
    draw = random.Random(2)
    size = more / 0.02 if more > 2 else 80
    verdicts = []
    for _ in range(300):
        base, head = ([size + add + draw.gauss(0, 0.001 * size) for _ in range(5)] for add in (0, more))
        verdicts.append(judged(base, head).verdict)

    assert verdicts.count("regressed") == len(verdicts)


def test_metrics_and_phases_all_judged():
    judgement = report_of(runs(), runs(extra_mib=[10 + extra for extra in STEADY]))

    places = {(row.phase, row.metric) for row in judgement.rows}
    phases = ("STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE")
    assert places == {(phase, metric) for phase in phases for metric in baseline.DEFAULT_METRICS} | {(PEAK, "rss_peak_bytes")}
    assert {row.phase for row in judgement.rows if row.verdict == "ok"} == {"STARTUP"}
    assert judgement.exit_code == 1
    assert [row.verdict for row in judgement.rows] == sorted((row.verdict for row in judgement.rows), key=verdicts.WORST_FIRST.index)


def test_rows_only_on_single_side():
    both = report_of([*runs(), *runs("gone")], [*runs(), *runs("fresh")])

    assert {row.verdict for row in both.rows if row.key.variant == "fresh"} == {"new"}
    assert {(row.verdict, row.reason) for row in both.rows if row.key.variant == "gone"} == {
        ("gone", "in the baseline, but not measured now")
    }
    assert both.exit_code == 3
    assert report_of(runs(), [*runs(), *runs("fresh")]).exit_code == 0


def test_sides_without_common_row():
    judgement = report_of(runs("a"), runs("b"))

    assert {row.verdict for row in judgement.rows} == {"gone", "new"}
    assert (judgement.exit_code, replace(judgement, allow_gone=True).exit_code) == (3, 0)
    assert "11 rows gone, 11 new rows" in report.tally(judgement)


def test_variant_gone_summed_in_line():
    judgement = report_of([*runs(), *runs("b"), *runs("c", threads=2)], runs())

    text = report.render(judgement)
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- **- gone** net.onnx, b; in the baseline, but not measured now (11 rows)",
        "- **- gone** net.onnx, c, 2 threads; in the baseline, but not measured now (11 rows)",
    ]
    assert text.count(" - gone |") == 22
    assert [row["verdict"] for row in json.loads(report.render(judgement, "json"))["rows"]].count("gone") == 22
    assert report.render(judgement, "junit").count("<skipped ") == 22
    assert report.render(judgement, "github").count("::warning ") == 2


def test_rows_gone_named_singly():
    judgement = report_of(runs(), runs(memory={phase: USUAL[phase] for phase in ("STARTUP", "MODEL_LOAD", "PREPARE", "EXECUTE")}))

    lines = [line for line in report.render(judgement).splitlines() if line.startswith("- ")]
    assert [line.partition(";")[0] for line in lines] == [
        f"- **- gone** net.onnx, a, WARMUP, {metric}" for metric in ("RSS peak", "Anonymous memory at the end")
    ]


def test_summary_of_single_row():
    judgement = report_of(runs(), runs())

    assert "<summary>All 11 rows<" in report.render(judgement)
    assert "<summary>1 row<" in report.render(replace(judgement, rows=judgement.rows[:1]))


def crashed(repeats=5):
    outcome = Outcome("signal", "PREPARE", signal="SIGSEGV")
    return [run(repeat=repeat, outcome=outcome) for repeat in range(1, repeats + 1)]


def test_failed_run_new_or_old():
    now = report_of(runs(), crashed())
    assert (now.exit_code, now.rows[0].verdict) == (1, "failed")
    assert "5 of 5 runs failed: ended by SIGSEGV in PREPARE" in now.rows[0].reason
    assert not [row for row in now.rows if "not measured now" in row.reason]

    one_of_five = report_of(runs(), [*runs(extra_mib=STEADY[:4]), *crashed(1)])
    assert (one_of_five.exit_code, one_of_five.rows[0].verdict) == (1, "failed")

    always = report_of(crashed(), crashed())
    assert (always.exit_code, always.rows[0].verdict) == (4, "failing")

    mended = report_of(crashed(), runs())
    assert (mended.exit_code, mended.rows[0].verdict) == (3, "undecided")
    assert mended.rows[0].reason == "nothing to compare with: each run of base failed (ended by SIGSEGV in PREPARE)"
    assert "base failed: ended by SIGSEGV" in next(row for row in mended.rows if row.verdict == "new").reason


def test_exit_code_precedence():
    slow = runs("b", extra_mib=[50 + extra for extra in STEADY])
    assert report_of([*crashed(), *runs("b")], [*crashed(), *slow]).exit_code == 1
    assert report_of([*crashed(), *runs("b")], [*crashed(), *runs("b", extra_mib=(0,))]).exit_code == 4


def test_side_of_two_machines_refused():
    with pytest.raises(InputError, match="runs of elsewhere and here"):
        baseline.entries([*runs(), *runs(where=machine("elsewhere"))])


def test_other_machine_matched_and_named():
    foreign, _ = baseline.differing(baseline.entries(runs()), baseline.entries(runs(where=machine("there", kernel="7.0"))))

    assert foreign == ("machine differs: base here (a CPU, 2 CPUs), head there (a CPU, 2 CPUs)", "kernel differs: base 6.18, head 7.0")
    assert report_of(runs(), runs(where=machine("there"))).exit_code == 0


def test_base_of_other_machine_undecided():
    head = [*runs("a", extra_mib=[20] * 5, where=machine("board", arch="aarch64")), *runs("b")]
    base = [*runs("a"), *runs("b")]

    report = report_of(base, head)

    assert report.exit_code == 3
    (row,) = (row for row in report.rows if row.key.variant == "a")
    assert (row.verdict, row.metric) == ("undecided", "outcome")
    assert row.reason.startswith("base is from another machine (architecture x86_64 against aarch64): ")
    assert all(row.verdict == "ok" for row in report.rows if row.key.variant == "b")
    assert report_of(base, head, across_machines=True).exit_code == 1


def test_failed_run_on_other_machine():
    head = [
        *runs(extra_mib=STEADY[:4], where=machine(cpus=8)),
        run(repeat=5, where=machine(cpus=8), outcome=Outcome("signal", signal="SIGSEGV")),
    ]
    assert {row.verdict for row in report_of(runs(), head).rows} == {"failed", "undecided"}


def test_changed_settings_and_models_named():
    base = runs()
    head = [
        replace(measured, job=replace(measured.job, knobs={"arena": "off"}, model=replace(measured.job.model, sha256="ff" * 32)))
        for measured in base
    ]

    _, asked = baseline.differing(baseline.entries(base), baseline.entries(head))

    assert asked == ("net.onnx, a: arena differs: base default, head off", "net.onnx is not the same file on both sides")


def risen(by_phase, metric=None):
    """Rows of head against base where each phase named is higher by so many MiB."""

    def side(more):
        memory = {phase: (end + more.get(phase, 0), peak + more.get(phase, 0)) for phase, (end, peak) in USUAL.items()}
        return [run(repeat=repeat, memory=memory, extra_mib=extra) for repeat, extra in enumerate(STEADY, 1)]

    return verdicts.with_causes(verdicts.judge(baseline.entries(side({})), baseline.entries(side(by_phase))))


def test_cause_in_first_risen_phase():
    rows = risen({"MODEL_LOAD": 10, "PREPARE": 10, "WARMUP": 10, "EXECUTE": 10})

    causes = [row for row in rows if row.verdict == "regressed" and row.cause is None]
    assert [(row.phase, row.metric) for row in causes] == [("MODEL_LOAD", "rss_peak_bytes")]
    assert {row.cause for row in rows if row.verdict == "regressed"} == {None, ("MODEL_LOAD", "rss_peak_bytes")}
    assert {row.cause for row in rows if row.verdict != "regressed"} == {None}
    judgement = Report("a against b", verdicts.worst_first(rows))
    lines = [line for line in report.render(judgement).splitlines() if line.startswith("- ")]
    assert len(lines) == 1 and "MODEL_LOAD, RSS peak: 150.2 MiB → 160.2 MiB" in lines[0]
    anonymous, peaks = "MODEL_LOAD, PREPARE, WARMUP, EXECUTE", "PEAK, PREPARE, WARMUP, EXECUTE"
    assert lines[0].endswith(f". It explains 8 further rows: Anonymous memory at the end of {anonymous}; RSS peak of {peaks}")
    assert "9 regressions of one cause" in report.tally(judgement)
    assert report.render(judgement, "github").count("::error ") == 1
    only_said = report.render(replace(judgement, report_only=True), "github")
    assert "::error " not in only_said and only_said.count("::warning ") == 1 + report.render(judgement, "github").count("::warning ")
    assert (
        sum(
            row["cause"] == {"phase": "MODEL_LOAD", "metric": "rss_peak_bytes"}
            for row in json.loads(report.render(judgement, "json"))["rows"]
        )
        == 8
    )
    assert "follows from MODEL_LOAD, RSS peak" in report.render(judgement, "junit")


def test_cause_of_larger_rise_separate():
    rows = risen({"MODEL_LOAD": 10, "PREPARE": 30, "WARMUP": 30, "EXECUTE": 10})

    causes = [row for row in rows if row.verdict == "regressed" and row.cause is None]
    assert [(row.phase, row.metric) for row in causes] == [("MODEL_LOAD", "rss_peak_bytes"), ("PREPARE", "rss_peak_bytes")]
    peak = next(row for row in rows if row.phase == PEAK)
    assert peak.cause == ("PREPARE", "rss_peak_bytes")


def shown(form, variant="a", **rest):
    head = runs(variant, extra_mib=[10 + extra for extra in STEADY])
    return report.render(report_of(runs(variant), head, **rest), form)


def test_markdown_worst_first():
    text = shown("markdown")

    lines = text.splitlines()
    assert lines[0] == "### memprof gate: worse"
    assert lines[2].startswith("net.onnx, a: PEAK is 10.0 MiB more (270.2 MiB to 280.2 MiB), in PREPARE; ")
    assert lines[4] == "head against base: 9 regressions, 2 fine."
    assert lines[6].startswith(
        "- **✗ regressed** net.onnx, a, MODEL_LOAD, Anonymous memory at the end: 130.2 MiB → 140.2 MiB; +10.0 MiB, +7.7%"
    )
    assert text.index("<details><summary>All 11 rows</summary>") < text.index("| model ")


@pytest.mark.parametrize(("exact", "notes"), [(True, 0), (False, 1)])
def test_report_says_once_what_its_sign_means(exact, notes):
    text = report.render(report_of(runs("a"), runs("a", exact=exact)))

    assert text.count("~ not exact: it may have been higher.") == notes
    assert text.count("~") > notes or exact


def test_rows_ordered_by_variant_and_phase():
    base = [*runs("fine"), *runs("little"), *runs("much")]
    head = [*runs("fine"), *runs("little", [10 + extra for extra in STEADY]), *runs("much", [40 + extra for extra in STEADY])]

    rows = report_of(base, head).rows

    worse = [(row.key.variant, row.phase, row.metric[:4]) for row in rows if row.verdict == "regressed"]
    assert [variant for variant, _, _ in worse] == ["much"] * 9 + ["little"] * 9
    # +40 MiB of 130.2, of 150.2; of 250.2 (twice, 255.2 MiB at the end of WARMUP and EXECUTE); of PEAK's 270.2 and those about as high
    assert worse[:2] == [("much", "MODEL_LOAD", "anon"), ("much", "MODEL_LOAD", "rss_")]
    assert [phase for _, phase, _ in worse[2:9]] == ["PREPARE", "WARMUP", "EXECUTE", "WARMUP", "EXECUTE", "PEAK", "PREPARE"]
    assert [row.phase for row in worse_of(rows, "little")][2:] == ["PREPARE", "WARMUP", "EXECUTE", "PEAK", "PREPARE", "WARMUP", "EXECUTE"]
    fine = [(row.key.variant, row.phase) for row in rows if row.verdict == "ok"]
    phases = ["PEAK", *(phase for phase in ("STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE") for _ in baseline.DEFAULT_METRICS)]
    assert fine == [*(("fine", phase) for phase in phases), *(("little", "STARTUP"),) * 2, *(("much", "STARTUP"),) * 2]
    assert verdicts.worst_first(rows) == rows


def worse_of(rows, variant):
    return [row for row in rows if (row.verdict, row.key.variant) == ("regressed", variant)]


def test_markdown_list_of_many_rows():
    names = [f"v{number}" for number in range(4)]
    head = [measured for name in names for measured in runs(name, [10 + extra for extra in STEADY])]

    text = report.render(report_of([measured for name in names for measured in runs(name)], head))

    lines = text.splitlines()
    assert lines[4] == "head against base: 36 regressions, 8 fine."
    assert sum(line.startswith("- **✗ regressed** ") for line in lines) == 20
    assert lines[26] == "- and 16 more **✗ regressed**: all rows are below"
    assert sum(line.startswith("| net.onnx") for line in lines) == 44


def test_json_every_row_with_samples():
    content = json.loads(shown("json"))

    assert (next(iter(content)), content["memprof_gate"]) == ("memprof_gate", 1)
    assert (content["exit_code"], content["counts"]["regressed"], len(content["rows"])) == (1, 9, 11)
    peak = next(row for row in content["rows"] if row["phase"] == PEAK)
    assert len(peak["base"]) == len(peak["head"]) == 5
    assert peak["difference"] == pytest.approx(10 * MIB, abs=1)


def test_junit_failures_with_any_name():
    name = 'a <b> & "c" \x1b\ud800'
    root = ElementTree.fromstring(shown("junit", name))

    (suite,) = root.findall("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("11", "9", "0")
    assert suite.get("name") == 'net.onnx, a <b> & "c" \ufffd\ufffd'
    assert len(suite.findall("testcase/failure")) == 9
    assert "+10.0 MiB" in suite.find("testcase/failure").get("message")


def test_junit_skips_undecided_rows():
    judgement = report_of(runs(), runs(extra_mib=(0, 0, 0)))

    suites = ElementTree.fromstring(report.render(judgement, "junit")).findall("testsuite")

    assert {(suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) for suite in suites} == {
        ("11", "0", "0", "11")
    }
    assert "3 repeats can never decide" in suites[0].find("testcase/skipped").get("message")


def test_junit_two_outcomes_of_variant():
    twice = [verdicts.Judged(KEY, "", verdicts.OUTCOME, verdict, "why") for verdict in ("failing", "undecided")]

    cases = ElementTree.fromstring(report.render(Report("", tuple(twice)), "junit")).findall("testsuite/testcase")

    assert [case.get("name") for case in cases] == ["outcome", "outcome (2)"]


def test_annotations_without_terminal_escapes():
    assert "\x1b" not in shown("github", "a\x1b]0;x\x07") and "a\ufffd]0;x\ufffd" in shown("github", "a\x1b]0;x\x07")


def test_annotations_escaped_and_limited():
    lines = shown("github", "a\n::warning::b").splitlines()

    assert len(lines) == 9
    assert all(line.startswith("::error title=memprof%3A regressed::net.onnx, a%0A::warning::b, ") for line in lines)
    many = Report("", tuple(verdicts.judge(baseline.entries(runs()), baseline.entries(runs(extra_mib=[10] * 5)))) * 2)
    text = report.render(many, "github")
    assert text.count("::error ") == 10
    assert text.endswith("::9 more: see the job's summary")


def test_improvement_reported_as_fine():
    judgement = report_of(runs(extra_mib=[10 + extra for extra in STEADY]), runs())

    assert judgement.exit_code == 0
    assert "✓ improved" in report.render(judgement)
    assert "::notice title=memprof%3A improved::" in report.render(judgement, "github")


def test_failed_proof_always_shown():
    proof = verdicts.Proof(KEY, 5 * MIB, seen=False, silent=True)
    judgement = replace(report_of(runs(), runs()), proof=proof)

    assert judgement.exit_code == 3
    assert "were NOT seen; the same build measured twice was silent" in report.render(judgement)
    assert "::error title=memprof%3A positive control::" in report.render(judgement, "github")
    assert ElementTree.fromstring(report.render(judgement, "junit")).find("testsuite[@name='positive control']").get("failures") == "1"
