"""Statistics over repeats, and tables made of them, from made-up Runs."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.sample_runs import MIB, machine, run, runs
from support.tables import cells

import memprof
from memprof.base.errors import UsageError
from memprof.records import metrics, summary
from memprof.records.types import PEAK, Outcome
from memprof.reports import frame, run_rows
from memprof.reports.tables import table

CRASH = Outcome("signal", phase="PREPARE", signal="SIGSEGV", rss_last_bytes=200 * MIB)


def row(made, phase, metric):
    return next(line for line in summary.summarise(made, [metric]) if line.phase == phase)


def test_row_statistics_of_repeats():
    prepare = row(runs(extra_mib=(0, 1, 2, 3, 10)), "PREPARE", "rss_peak_bytes")

    assert prepare.values == tuple((270 + extra) * MIB for extra in (0, 1, 2, 3, 10))
    assert (prepare.min, prepare.median, prepare.max) == (270 * MIB, 272 * MIB, 280 * MIB)
    assert prepare.mean == pytest.approx(273.2 * MIB)
    assert prepare.stdev == pytest.approx(math.sqrt(62.8 / 4) * MIB)


def test_peak_is_largest_phase():
    assert row(runs(), PEAK, "rss_peak_bytes").values[0] == 270 * MIB


def test_failed_run_counts_finished_phases():
    made = [*runs(extra_mib=(0,)), run(repeat=2, extra_mib=50, outcome=CRASH)]

    assert len(row(made, "MODEL_LOAD", "rss_peak_bytes").values) == 2
    assert len(row(made, "PREPARE", "rss_peak_bytes").values) == 1
    assert len(row(made, PEAK, "rss_peak_bytes").values) == 1


def test_summary_keeps_keys_apart():
    made = [run("a"), run("b"), run("a", threads=2), run("a", model="other.onnx"), run("a", where=machine("there"))]

    assert len({line.key for line in summary.summarise(made, ["rss_peak_bytes"])}) == 5


def test_row_inexact_by_one_repeat():
    assert not row([run(), run(repeat=2, exact=False)], "EXECUTE", "rss_peak_bytes").exact


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=30), st.floats(0, 1))
def test_percentile_agrees_with_numpy(values, share):
    numpy = pytest.importorskip("numpy")

    assert metrics.percentile(values, share) == pytest.approx(float(numpy.percentile(values, share * 100)), rel=1e-9, abs=1e-6)


def test_metric_unknown_suggests_near_name():
    with pytest.raises(UsageError, match="did you mean rss_peak_bytes"):
        summary.summarise(runs(), ["rss_peak_byte"])


def test_cell_median_and_farthest_repeat():
    text = table.render([*runs("a", (0, 1, 2, 3, 10)), *runs("b", (5,))])

    shown = cells(text, "RSS peak (MiB)")
    assert shown["a"]["PREPARE"] == "272.0 ±8.0"
    assert shown["b"]["PREPARE"] == "275.0"
    assert shown["a"]["baseline"] == "40.0 ±0.0"
    assert shown["a"]["PEAK"] == "272.0 ±8.0"


def test_heading_counts_repeats():
    some = [*runs("a"), *runs("b", (0, 0.1, 0.2))]

    assert "\n\nnet.onnx, warming up 5 & running 5, 3 to 5 repeats\n" in table.render(some)
    assert "\n\nnet.onnx, warming up 5 & running 5, 1 repeat\n" in table.render(some[:1])


def test_above_baseline_subtracts_runtime():
    shown = cells(table.render(runs(), above_baseline=True), "RSS peak above the baseline (MiB)")

    assert shown["a"]["MODEL_LOAD"] == "110.2 ±0.2"


def test_failure_in_cell_and_note():
    made = [*runs("a"), *(run("b", repeat, outcome=CRASH) for repeat in (1, 2))]

    text = table.render(made)

    shown = cells(text, "RSS peak (MiB)")["b"]
    assert (shown["MODEL_LOAD"], shown["PREPARE"], shown["EXECUTE"], shown["PEAK"]) == ("150.0 ±0.0", "failed (SIGSEGV)", "-", "-")
    assert "b: failed in 2 of 2 repeats: ended by SIGSEGV in PREPARE, its RSS last 200.0 MiB" in text


def test_failure_phase_as_column():
    built = Outcome("error", phase="BUILD", message="no converter")

    text = table.render([run("a"), memprof.Run(1, run("b").job, machine(), 0, built, run().timeline)])

    assert cells(text, "RSS peak (MiB)")["b"]["BUILD"] == "failed (error)"
    assert list(cells(text, "RSS peak (MiB)")["b"])[1:4] == ["BUILD", "baseline", "MODEL_LOAD"]  # it ran before all others


def in_order(*names):
    return dict.fromkeys(names, (40, 50))


def test_phases_in_order_of_run():
    made = run("app.py", memory=in_order("STARTUP", "MODEL_LOAD", "PREPROCESS", "EXECUTE"))

    assert summary.phases([made]) == ["STARTUP", "MODEL_LOAD", "PREPROCESS", "EXECUTE"]
    for title in ("RSS peak (MiB)", "Latency (ms)", "Anonymous memory at the end (MiB)"):
        columns = list(cells(table.render([made]), title)["app.py"])
        assert columns.index("PREPROCESS") < columns.index("EXECUTE"), title
    frame_of_runs = frame.timeline_frame([made])
    assert list(frame_of_runs["phase"].cat.categories)[1:] == ["STARTUP", "MODEL_LOAD", "PREPROCESS", "EXECUTE"]


def test_outer_phase_before_inner():
    outer, inner = (run(memory=in_order(name)).marks[0] for name in ("OUTER", "INNER"))
    inner = replace(inner, begin_ns=inner.begin_ns + 10, end_ns=inner.end_ns - 10)

    assert summary.phases([replace(run(), marks=(inner, outer))]) == ["OUTER", "INNER"]  # a phase is kept where it ends


@pytest.mark.parametrize(
    ("courses", "wanted"),
    [
        (["xzy"], "xzy"),
        (["xz", "xyz"], "xyz"),
        (["xy", "yz", "zw"], "xyzw"),
        (["abc", "axc"], "abxc"),
        (["ab", "ba"], "ab"),
        (["abc", "cab"], "abc"),
        ([""], ""),
    ],
)
def test_merge_agrees_with_each_course(courses, wanted):
    assert "".join(summary.merged(courses)) == wanted


@pytest.mark.parametrize(
    ("courses", "wanted"),
    [
        (["STARTUP EXECUTE", "STARTUP PREPARE WARMUP"], "STARTUP PREPARE WARMUP EXECUTE"),
        (["STARTUP EXECUTE", "STARTUP TOKENS"], "STARTUP TOKENS EXECUTE"),
        (["STARTUP MODEL_LOAD EXECUTE RELEASE", "RUN", "BUILD"], "BUILD STARTUP MODEL_LOAD EXECUTE RUN RELEASE"),
        (["STARTUP EXECUTE DUMP", "STARTUP EXECUTE RELEASE"], "STARTUP EXECUTE DUMP RELEASE"),
        (["EXECUTE EPOCH", "EPOCH EXECUTE"], "EXECUTE EPOCH"),
    ],
)
def test_merge_without_order_by_usual_place(courses, wanted):
    assert summary.merged(course.split() for course in courses) == wanted.split()


@given(st.permutations(["STARTUP", "EXECUTE", "RELEASE", *"abcde"]), st.lists(st.sets(st.integers(0, 7)), max_size=5))
def test_merge_keeps_order_of_all(order, chosen):
    courses = [[order[place] for place in sorted(places)] for places in chosen]

    merged = summary.merged(courses)

    assert sorted(merged) == sorted({name for course in courses for name in course})
    for course in courses:
        assert [name for name in merged if name in course] == course


def test_inexact_peak_marked_and_noted():
    text = table.render([run(exact=False)])

    assert cells(text, "RSS peak (MiB)")["a"]["PEAK"] == "~270.0"
    assert "the high-water mark was not reset" in text


@pytest.mark.parametrize("name", ["a|b", "a<script>b", "a\nb", "`a`", "ü漢字", "x" * 200])
def test_names_stay_text(name):
    text = table.render([run(name, model=name)])

    for block in text.split("\n\n"):
        if block.startswith("|"):
            lines = block.splitlines()
            assert len(lines) == 3
            assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
            assert all(line.endswith("|") for line in lines)
    assert "<script" not in re.sub("`[^`]*`", "", text.replace("\\`", "")), "a tag stands in code alone"


def test_threads_column_only_in_sweep():
    swept = table.render([run(threads=1), run(threads=2)])
    plain = table.render([run(threads=1)])

    assert "| variant | threads |" in swept
    assert "threads |" not in plain
    assert "1 thread, warming up 5 & running 5, 1 repeat" in plain


def test_metric_absent_noted_without_table():
    text = table.render(runs())

    assert "PSS at the end (" not in text
    assert "- PSS: -, /proc/PID/smaps\\_rollup".replace("\\", "") in text


def test_csv_row_per_run_and_phase():
    made = [*runs("a", (0, 1)), run("b", outcome=CRASH)]

    rows = list(csv.DictReader(io.StringIO(table.render(made, format="csv"))))

    assert tuple(rows[0])[:8] == run_rows.KEYS
    assert {"time_p90_ns", "time_geomean_ns", "hwm_bytes", "vms_peak_bytes", "rss_peak_bytes"} <= set(rows[0])
    assert [(line["variant"], line["phase"], line["outcome"]) for line in rows][-3:] == [
        ("b", "STARTUP", "ok"),
        ("b", "MODEL_LOAD", "ok"),
        ("b", "PREPARE", "SIGSEGV"),
    ]
    assert rows[1]["rss_peak_bytes"] == str(150 * MIB)


def test_csv_names_settings_and_failure():
    made = run("b", outcome=CRASH, knobs={"mmap": "on", "malloc_mmap_threshold": "65536"}, shapes={"x": (1, 3)})

    rows = list(csv.DictReader(io.StringIO(table.render([made], format="csv"))))

    assert {(row["knobs"], row["shapes"], row["model_sha256"], row["runtime_version"]) for row in rows} == {
        ("mmap=on,malloc_mmap_threshold=64KiB", "x=1x3", "00" * 32, "1.0")
    }
    assert rows[0]["time_ns"] == "400000000"  # a whole number


def test_json_omits_absent_fields():
    rows = json.loads(table.render(runs("a", (0,)), ["rss_peak_bytes", "pss_end_bytes"], format="json"))

    assert rows[1] == {
        "model": "net.onnx",
        "runtime": "onnxruntime",
        "variant": "a",
        "machine": "here",
        "repeat": 1,
        "phase": "MODEL_LOAD",
        "outcome": "ok",
        "rss_peak_bytes": 150 * MIB,
    }


def test_timeline_frame_with_phases():
    columns = frame.timeline_frame([run(samples=[(0, 5, 1, 9), (1_100_000_000, 6, 1, 9), (5_000_000_000, 7, 1, 9)])])

    assert list(columns["phase"]) == ["STARTUP", "MODEL_LOAD", ""]
    assert list(columns["t_ns"]) == [0, 1_100_000_000, 5_000_000_000]


def test_groups_versions_in_order_of_history() -> None:
    """A search measures its ends first; the versions of each variant stay where that variant is."""
    measured = [("a", "v1", 0), ("a", "v3", 2), ("b", None, None), ("c", "v3", 2), ("a", "v2", 1), ("c", "v1", 0)]
    searched = [run(variant, version=version, version_number=number) for variant, version, number in measured]
    order = [(key.variant, key.version) for key in summary.groups(searched)]
    assert order == [("a", "v1"), ("a", "v2"), ("b", None), ("c", "v1"), ("a", "v3"), ("c", "v3")]
    older = [run("a", version=version) for version in ("v1", "v3", "v2")]  # of a file without places
    assert [key.version for key in summary.groups(older)] == ["v1", "v3", "v2"]
