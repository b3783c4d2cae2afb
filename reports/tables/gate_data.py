"""Head's figures of a gate in the formats of services that draw them over time.

    bencher            Bencher Metric Format: {BENCHMARK: {MEASURE: {value, lower_value, upper_value}}},
                       bencher.dev/docs/reference/bencher-metric-format
    github-benchmark   github-action-benchmark's customSmallerIsBetter: [{name, unit, value, range, extra}], as its README says
    openmetrics        OpenMetrics text 1.0: a gauge for each metric, with a label for the statistic

Values are medians of the repeats, with the least and the largest where a format has a place for them, in bytes, ns or a count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from memprof.base.units import counted
from memprof.records import metrics
from memprof.records.summary import Row, whole
from memprof.verdicts.verdicts import Report

from ..rows import place

_MOST_NAME = 1024  # letters of a benchmark's name that Bencher takes


def bencher(report: Report) -> str:
    """Head's figures as Bencher's adapter `json` reads them."""
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    for row in _rows(report):
        measures = benchmarks.setdefault(place(row.key, row.phase)[:_MOST_NAME], {})
        measures[row.metric.replace("_", "-")] = {"value": row.median, "lower_value": row.min, "upper_value": row.max}
    return json.dumps(benchmarks, indent=1)


def github_benchmark(report: Report) -> str:
    """Head's figures as github-action-benchmark reads them with tool: customSmallerIsBetter."""
    return json.dumps(
        [
            {
                "name": f"{place(row.key, row.phase)}: {metrics.described(row.metric).title}",
                "unit": metrics.described(row.metric).unit,
                "value": row.median,
                "range": f"± {row.stdev:.0f}",
                "extra": f"{counted(len(row.values), 'repeat')}, {row.min:.0f} to {row.max:.0f}, on {row.key.machine}",
            }
            for row in _rows(report)
        ],
        indent=1,
    )


def openmetrics(report: Report) -> str:
    """Head's figures, and the gate's exit code, as a textfile collector or a push gateway takes them."""
    families: dict[str, list[Row]] = {}
    for row in _rows(report):
        families.setdefault(row.metric, []).append(row)
    lines = []
    for metric, rows in families.items():
        lines += _family(f"memprof_{metric}", f"{metrics.described(metric).title}, in {metrics.described(metric).unit}.")
        for row in rows:
            facts = {"model": row.key.model, "variant": row.key.heading, "threads": str(row.key.threads or ""), "phase": row.phase}
            for statistic, value in (("median", row.median), ("min", row.min), ("max", row.max)):
                lines.append(f"memprof_{metric}{_labels({**facts, 'machine': row.key.machine, 'statistic': statistic})} {value}")
    lines += [*_family("memprof_gate_exit_code", "The exit code of the gate: 0 fine, 1 worse, 3 undecided, 4 not measured.")]
    return "\n".join([*lines, f"memprof_gate_exit_code {report.exit_code}", "# EOF"])


def _rows(report: Report) -> Sequence[Row]:
    return [whole(row) for row in report.figures]


def _family(name: str, help: str) -> list[str]:
    return [f"# TYPE {name} gauge", f"# HELP {name} {help}"]


def _labels(facts: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in facts.items() if text) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
