"""A gate's figures in other services' formats, each held to what its service publishes."""

from __future__ import annotations

import json
import re

import pytest
from support.sample_runs import MIB, runs

from memprof.records import summary
from memprof.reports.tables import gate
from memprof.verdicts import baseline, verdicts
from memprof.verdicts.verdicts import Report

# The grammar of OpenMetrics 1.0 (Overall Structure, ABNF), as far as a gauge without timestamps goes.
NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?"
TYPE, HELP = rf"# TYPE ({NAME}) gauge", rf"# HELP ({NAME}) [^\n]*"
SAMPLE = rf"({NAME})(?:\{{{LABEL}(?:,{LABEL})*\}})? {NUMBER}"


@pytest.fixture
def report():
    """A gate of three variants, one of them with letters that formats must escape; the peak of a is 270.0 to 270.4 MiB."""
    measured = [*runs("a"), *runs('"b"\\\n', threads=4), *runs("c", [5, 5, 5, 5, 9])]
    entries = baseline.entries(measured)
    rows = verdicts.worst_first(verdicts.judge(entries, entries))
    return Report("head", rows, figures=summary.summarise(measured, baseline.DEFAULT_METRICS))


def test_bencher_metric_format(report):
    benchmarks = json.loads(gate.render(report, "bencher"))

    assert benchmarks["net.onnx, a, PEAK"] == {
        "rss-peak-bytes": {"value": 270.2 * MIB // 1, "lower_value": 270 * MIB, "upper_value": 270.4 * MIB // 1}
    }
    assert len(benchmarks) == 3 * 6
    for name, measures in benchmarks.items():
        assert 0 < len(name) <= 1024 and measures
        for measure, figures in measures.items():  # a slug: small letters and hyphens, at most 64
            assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", measure) and len(measure) <= 64
            assert set(figures) == {"value", "lower_value", "upper_value"}
            assert figures["lower_value"] <= figures["value"] <= figures["upper_value"]


def test_github_benchmark_smaller_is_better(report):
    benches = json.loads(gate.render(report, "github-benchmark"))

    assert benches[0].keys() == {"name", "unit", "value", "range", "extra"}
    assert len({bench["name"] for bench in benches}) == len(benches)  # a name is a line of its chart
    for bench in benches:
        assert {key: type(value) for key, value in bench.items()} in (
            {"name": str, "unit": str, "value": kind, "range": str, "extra": str} for kind in (int, float)
        )
    (peak,) = [bench for bench in benches if bench["name"] == "net.onnx, a, PEAK: RSS peak"]
    assert (peak["value"], peak["extra"]) == (270.2 * MIB // 1, "5 repeats, 283115520 to 283534950, on here")


def test_openmetrics_text(report):
    text = gate.render(report, "openmetrics") + "\n"  # as the file has it
    *lines, last, nothing = text.split("\n")

    assert (last, nothing) == ("# EOF", "")
    family, seen = "", set()
    for line in lines:
        if typed := re.fullmatch(TYPE, line):
            family = typed[1]
            assert family not in seen  # a family's lines stand together
            seen.add(family)
        else:
            match = re.fullmatch(HELP, line) or re.fullmatch(SAMPLE, line)
            assert match and match[1] == family, line
    samples = [line for line in lines if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in samples}) == len(samples)
    where = 'model="net.onnx",variant="a",phase="PEAK",machine="here",statistic="max"'
    assert f"memprof_rss_peak_bytes{{{where}}} 283534950" in samples
    assert samples[-1] == "memprof_gate_exit_code 0"
    assert 'variant="\\"b\\"\\\\\\n",threads="4"' in text


@pytest.mark.parametrize(("form", "text"), [("bencher", "{}"), ("github-benchmark", "[]")])
def test_report_without_figures_is_empty(form, text):
    assert gate.render(Report("head", ()), form) == text
