"""A comparison one can trust: what is beyond noise is said to be, and nothing else."""

from __future__ import annotations

import json

import pytest
from support.sample_runs import MIB, USUAL, machine, of_program, run, runs

from memprof.base.errors import InputError, UndecidedError, UsageError
from memprof.records import settings, store
from memprof.records.types import PEAK, Outcome
from memprof.reports.tables import comparison, table
from memprof.verdicts import compare

STEADY = (0, 0.1, 0.2, 0.3, 0.4)
LOADS_MOST = {**USUAL, "MODEL_LOAD": (140, 300)}


def verdict(base, head, phase=PEAK, metric="rss_peak_bytes"):
    result = compare.compare(base, head, [metric])
    return next(row for row in result.differences if row.phase == phase)


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (STEADY, tuple(5 + extra for extra in STEADY), "more"),
        (tuple(5 + extra for extra in STEADY), STEADY, "less"),
        (STEADY, STEADY, "noise"),
        ((0,) * 5, (0,) * 5, "noise"),
        ((0,) * 5, (3,) * 5, "more"),
        ((3,) * 5, (0,) * 5, "less"),
        ((0,) * 5, (0.1,) * 5, "noise"),  # below the peaks' own bound
        (STEADY, (5, 5, 5, 5), "too few"),
        (STEADY[:2], STEADY, "too few"),
        (STEADY, (0.1, 5, 5, 5, 5), "noise"),  # one of five is no worse: p = 0.04 two-sided
        ((0, 4, 0, 4, 0), (4, 0, 4, 0, 4), "noise"),  # two modes on both sides, with other medians
        (STEADY, (5, 5.1, 5.2, 5.3, 5.4, 5.5, 5.6), "more"),  # groups of unequal size
    ],
)
def test_verdict_only_beyond_noise(base, head, expected):
    assert verdict(runs(extra_mib=base), runs(extra_mib=head)).verdict == expected


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        ((72, 114, 115, 157), (749, 900, 924, 1074), "more"),
        ((749, 900, 1074), (72, 114, 157), "less"),
        ((72, 114, 157), (240, 260, 280), "too few"),  # the gap is no wider than a side
        ((100, 101), (900, 901), "too few"),
        (STEADY, tuple(5 + extra for extra in STEADY), "more"),
        ((100, 100, 100), (100, 100, 100), "too few"),
    ],
)
def test_few_times_far_apart_decide(base, head, expected):
    assert compare.verdict_of_times(base, head) == expected


def test_figures_of_medians():
    result = verdict(runs(extra_mib=STEADY), runs(extra_mib=[27 + extra for extra in STEADY]))

    assert result.difference == pytest.approx(27 * MIB, abs=1)
    assert result.ratio == pytest.approx(297.2 / 270.2)
    assert result.interval[0] <= result.difference <= result.interval[1]
    assert result.interval[1] - result.interval[0] < MIB


def test_interval_of_constant_sides():
    assert verdict(runs(extra_mib=(0,) * 5), runs(extra_mib=(3,) * 5)).interval == (3 * MIB, 3 * MIB)


@pytest.mark.parametrize("name", ["fp16 @ cpu", "x (head)"])
def test_variant_compared_by_its_name(name):
    (row,) = [row for row in compare.compare(runs(name), runs(name), ["rss_peak_bytes"]).differences if row.phase == PEAK]
    assert (row.key.variant, row.key.version, row.key.side) == (name, None, None)


def test_versions_compared_as_shown():
    labelled = [*runs("fp16 @ cpu", STEADY, version="1.0"), *runs("fp16 @ cpu", [10 + extra for extra in STEADY], version="1.1")]
    result = compare.compare_variants(labelled, "fp16 @ cpu @ 1.0", "fp16 @ cpu @ 1.1", ["rss_peak_bytes"])
    assert result.differences[-1].verdict == "more"
    with pytest.raises(UsageError, match=r"there is no variant 'fp16 @ cpu'; there are fp16 @ cpu @ 1\.0; fp16 @ cpu @ 1\.1"):
        compare.compare_variants(labelled, "fp16 @ cpu", "fp16 @ cpu @ 1.1")
    assert compare.compare(labelled, labelled[5:], ["rss_peak_bytes"]).only_base[0].heading == "fp16 @ cpu @ 1.0"


def test_variants_of_same_file_compared():
    result = compare.compare_variants([*runs("copied", STEADY), *runs("mapped", [-50 + extra for extra in STEADY])], "copied", "mapped")

    peak = next(row for row in result.differences if (row.phase, row.metric) == (PEAK, "rss_peak_bytes"))
    assert peak.verdict == "less"
    assert peak.key.variant == "copied → mapped"


@pytest.mark.parametrize(("model", "shown"), [("old", "old → new"), ("svc", "svc, old → new")])
def test_programs_without_model_compared(model, shown):
    """The first of two programs gives both rows its name, which is not that of the pair; a name of the user's own (`--name svc`) stays."""
    old = of_program(runs("old", STEADY, model=model), "old", "a")
    new = of_program(runs("new", [-50 + extra for extra in STEADY], model=model), "new", "b")

    result = compare.compare_variants([*old, *new], "old", "new", ["rss_peak_bytes"])

    assert {row.key.label for row in result.differences} == {shown}
    assert any("program differs" in remark for remark in result.remarks)
    assert not any("is not the same file" in remark for remark in result.remarks)


def test_rows_only_on_single_side():
    result = compare.compare([*runs("a"), *runs("gone")], [*runs("a"), *runs("new")])

    assert [key.variant for key in result.only_base] == ["gone"]
    assert [key.variant for key in result.only_head] == ["new"]


def test_sides_without_common_rows_refused():
    with pytest.raises(InputError, match="no model and variant in common"):
        compare.compare(runs("a"), runs("b"))
    with pytest.raises(UsageError, match="there is no variant 'z'; there is a"):
        compare.compare_variants(runs("a"), "a", "z")


def test_side_of_two_machines_refused():
    with pytest.raises(InputError, match="one side has runs of here and there"):
        compare.compare(runs(), [*runs(), *runs(where=machine("there"))])


@pytest.mark.parametrize(
    ("facts", "difference"),
    [
        ({"arch": "aarch64"}, "architecture x86_64 against aarch64"),
        ({"kernel": "6.19.1"}, "kernel 6.18 against 6.19"),
        ({"cpus": 8}, "CPUs 2 against 8"),
        ({"memory_bytes": 1 << 30}, "memory 8.00 GiB against 1.00 GiB"),
        ({"arch": "aarch64", "cpus": 4}, "architecture x86_64 against aarch64, CPUs 2 against 4"),
        ({"kernel": "6.18.44-azure", "memory_bytes": (8 << 30) - (300 << 20), "cpu": "another", "libc": "musl"}, None),
        ({"kernel": "", "cpus": 0, "memory_bytes": 0, "arch": ""}, None),  # an imported log
    ],
)
def test_sides_of_different_machines_undecided(facts, difference):
    there = machine("there", **facts)
    assert settings.other_machine(machine(), there) == difference
    if difference is None:
        assert compare.compare(runs(), runs(where=there)).differences
        return
    for compared in (
        lambda **asked: compare.compare(runs(), runs(where=there), **asked),
        lambda **asked: compare.compare_variants([*runs(), *runs("b", where=there)], "a", "b", **asked),
    ):
        with pytest.raises(UndecidedError, match=f"the sides come from different machines \\({difference}\\); --across-machines"):
            compared()
        assert compared(across_machines=True).differences


def test_remarks_on_machine_and_failures():
    crash = Outcome("signal", phase="PREPARE", signal="SIGSEGV")
    head = [
        *runs(extra_mib=STEADY[:4], where=machine("there", kernel="5.4")),
        run(repeat=5, where=machine("there", kernel="5.4"), outcome=crash),
    ]

    remarks = compare.compare(runs(), head, across_machines=True).remarks

    assert any("machine differs: base here" in remark for remark in remarks)
    assert "kernel differs: base 6.18, head 5.4" in remarks
    assert any("1 of the head failed" in remark for remark in remarks)


def test_remarks_on_changed_setting():
    remarks = compare.compare(runs(), runs(knobs={"xnnpack": "off"})).remarks

    assert "net.onnx, a: xnnpack differs: base default, head off" in remarks


def test_geometric_means_over_models():
    base = [*runs(model="one.onnx", extra_mib=(0,) * 5), *runs(model="two.onnx", extra_mib=(0,) * 5)]
    head = [*runs(model="one.onnx", extra_mib=(270,) * 5), *runs(model="two.onnx", extra_mib=(0,) * 5)]

    means = compare.compare(base, head, ["rss_peak_bytes"]).geometric_means()

    assert means["rss_peak_bytes", PEAK] == pytest.approx(2**0.5)


def test_table_folds_rows_within_noise():
    result = compare.compare(runs(), [run("a", repeat, extra_mib=extra) for repeat, extra in enumerate((0, 0.1, 0.2, 0.3, 0.5), 1)])

    folded, unfolded = comparison.render(result), comparison.render(result, all_rows=True)

    assert "rows are the same or within noise, and left out" in folded
    assert "| within noise |" not in folded
    assert unfolded.count("within noise |") == len(result.differences)
    assert "Geometric mean of the ratios" not in folded  # of one row it is the ratio
    two = compare.compare([*runs(), *runs("b")], [*runs(), *runs("b")])
    assert "Geometric mean of the ratios" in comparison.render(two)


def test_table_has_all_phases_of_variant_that_differs():
    """A phase that stays the same counts too: of peaks and latency a variant that differs has every phase, of other metrics what differs."""
    base = [*runs("a"), *runs("b")]
    head = [*runs("a", memory={**USUAL, "PREPARE": (269, 279)}), *runs("b")]
    text = comparison.render(compare.compare(base, head, ["rss_peak_bytes", "anon_end_bytes"]))
    peaks, anonymous = text.partition("Geometric mean")[0].split("Anonymous memory")
    assert peaks.count("| a ") == len(USUAL) + 1 and anonymous.count("| a ") == 1
    assert "| b " not in text


def test_difference_below_last_digit_is_the_same():
    base, head = ([run("a", repeat, extra_mib=extra) for repeat in range(1, 6)] for extra in (0, 0.004))
    text = comparison.render(compare.compare(base, head, ["anon_end_bytes"]), all_rows=True)
    assert "the same |" in text and "more |" not in text and "less |" not in text
    assert "the same" not in comparison.render(compare.compare(base, head, ["anon_end_bytes"])).partition("left out")[2]


def test_phases_in_order_of_run():
    sides = [[run(name, memory=dict.fromkeys(phases, (40, size))) for name, phases in (("a", "xzy"), ("b", "xwz"))] for size in (50, 60)]

    text = comparison.render(compare.compare(*sides, ["rss_peak_bytes"]))

    assert "| metric   |     x |     w |     z |     y |  PEAK |" in text


def test_sentence_counts_one_thread():
    text = comparison.render(compare.compare(runs(threads=1), runs(threads=1), ["rss_peak_bytes"]))

    assert text.startswith("net.onnx, a, 1 thread: PEAK")


def peak_row(base, head):
    """The cells of the row of peaks."""
    text = comparison.render(compare.compare(base, head, ["rss_peak_bytes"]))
    return [cell.strip() for cell in next(line for line in text.splitlines() if "| PEAK " in line).strip("|").split("|")]


@pytest.mark.parametrize(
    ("base", "head", "cells"),
    [
        (runs(extra_mib=(0,) * 5), runs(extra_mib=(27,) * 5), ["270.0", "297.0", "+27.0", "1.100", "+27.0 to +27.0", "more"]),
        (runs(extra_mib=(0,) * 5, exact=False), runs(extra_mib=(27,) * 5), ["~270.0", "297.0", "+27.0", "1.100", "+27.0 to +27.0", "more"]),
        (runs(extra_mib=(0, 1)), runs(extra_mib=(27, 29)), ["270.5", "298.0", "+27.5", "1.102", "-", "too few repeats"]),
    ],
    ids=["exact", "polled", "too few"],
)
def test_table_difference_ratio_interval(base, head, cells):
    assert peak_row(base, head) == ["net.onnx", "a", "PEAK", *cells]


def test_table_exactness_ignores_failed_repeats():
    """A repeat that failed has no peak of the run: its phases say nothing of the others'."""
    failed = run(repeat=6, exact=False, outcome=Outcome("signal", "EXECUTE", signal="SIGSEGV"))
    shown = table.render([*runs(extra_mib=(0,) * 5), failed], ["rss_peak_bytes"])

    peaks = next(line for line in shown.splitlines() if line.startswith("| a "))
    assert peaks.split("|")[-2].strip() == "270.0 ±0.0"
    assert peak_row([*runs(extra_mib=(0,) * 5), failed], runs(extra_mib=(27,) * 5))[3] == "270.0"


def test_json_every_row_with_values():
    shown = json.loads(comparison.render(compare.compare(runs(), runs()), format="json"))

    assert {"base", "head", "difference", "ratio", "interval", "verdict", "phase", "metric"} <= set(shown["differences"][0])
    assert all(row["verdict"] == "noise" for row in shown["differences"])


def test_json_phases_of_both_peaks():
    shown = json.loads(comparison.render(compare.compare(runs(), runs(memory=LOADS_MOST)), format="json"))

    peaks = {row["phase"]: row.get("peak_phases") for row in shown["differences"] if row["metric"] == "rss_peak_bytes"}
    assert peaks.pop(PEAK) == [["PREPARE"], ["MODEL_LOAD"]]
    assert peaks and set(peaks.values()) == {None}


def written(path, made):
    path.write_bytes(b"".join(map(store.encode, made)))


def test_command_with_files_or_variants(memprof, tmp_path):
    written(tmp_path / "base.jsonl", runs(extra_mib=(0,) * 5))
    written(tmp_path / "head.jsonl", [*runs(extra_mib=(27,) * 5), *runs("b", extra_mib=(0,) * 5)])

    of_files = memprof("compare", "base.jsonl", "head.jsonl")
    of_variants = memprof("compare", "head.jsonl", "--variant", "a", "--variant", "b", "--json")

    assert "only in the head: net.onnx, b" in of_files.stdout
    assert "more |" in of_files.stdout
    assert json.loads(of_variants.stdout)["differences"][0]["variant"] == "a → b"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["base.jsonl"], "base.jsonl has one variant, a: give two files, or one file with two variants"),
        (
            ["many.jsonl"],
            "many.jsonl has the variants a; b c; d: name two of them, base first: memprof compare many.jsonl --variant a --variant 'b c'",
        ),
        (["many.jsonl", "--variant", "a"], "many.jsonl has the variants a; b c; d: name two of them, base first: "),
        (
            ["base.jsonl", "base.jsonl", "--variant", "a", "--variant", "b"],
            "--variant goes with one file; of two files the variants of one name are compared",
        ),
    ],
)
def test_command_usage(memprof, tmp_path, words, says):
    written(tmp_path / "base.jsonl", runs(variant="a"))
    written(tmp_path / "many.jsonl", [*runs(variant="a"), *runs(variant="b c"), *runs(variant="d")])

    done = memprof("compare", *words)

    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
