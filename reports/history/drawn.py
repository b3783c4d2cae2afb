"""The figures of a history's page, packed: columns of little-endian numbers as base64, which the script unpacks when a line is shown."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np

from memprof.records import metrics
from memprof.versions.history_file import History, MetricLine

from .. import rows
from ..standalone import packed
from ..tables import grid
from ..tables.history import arrow, labels


def page(history: History, commit_url: str, run_url: str, with_run: Container[str] | None) -> dict[str, Any]:
    """All that the script draws. A line's steps refer to changes by their numbers.

    with_run: the hashes of the commits that have a page at run_url, None for all.
    """
    of_line: dict[int, list[list[Any]]] = {}
    for number, change in enumerate(history.changes):
        for hit in change.hits:
            of_line.setdefault(id(hit.line), []).append([number, hit.at, arrow(hit.step)])
    names = labels(history.lines)
    return {
        "commits": [
            [commit.hash, commit.time_s, commit.subject[:100], " ".join(commit.tags), int(with_run is None or commit.hash in with_run)]
            for commit in history.commits
        ],
        "commitUrl": commit_url,
        "runUrl": run_url,
        "metrics": {
            name: [metric.title, metric.unit]
            for name, metric in metrics.METRICS.items()
            if any(line.metric == name for line in history.lines)
        },
        "units": grid.UNITS,
        "lines": [
            {**_line(line), "name": name, "steps": of_line.get(id(line), [])} for line, name in zip(history.lines, names, strict=True)
        ],
        "changes": [[change.head.at, history.lines.index(change.head.line)] for change in history.changes],
    }


def _line(line: MetricLine) -> dict[str, Any]:
    sizes = np.asarray([len(samples) for samples in line.samples])
    if len(set(sizes.tolist())) == 1:
        table = np.sort(np.asarray(line.samples, dtype=float), axis=1)
        middles, low, high = np.median(table, axis=1), table[:, 0], table[:, -1]
    else:
        middles = np.asarray([np.median(samples) for samples in line.samples])
        low, high = (np.asarray([edge(samples) for samples in line.samples], dtype=float) for edge in (min, max))
    # The spread is drawn as a band: 16 bits of the widest are finer than a pixel.
    widest = float(max((high - middles).max(), (middles - low).max())) or 1.0
    first, last = line.places[0], line.places[-1]
    return {
        "variant": rows.label(line.key, ("variant", *(["threads"] if line.key.threads else []))),
        "model": line.key.model,
        "phase": line.phase,
        "metric": line.metric,
        "machine": line.machine,
        "first": first,
        # Commits without a gap need no list.
        "places": None if last - first + 1 == len(line.places) else packed(np.asarray(line.places), "<u4"),
        "middles": packed(middles, "<f4"),
        "widest": widest,
        "below": packed((middles - low) / widest * 65535, "<u2"),
        "above": packed((high - middles) / widest * 65535, "<u2"),
    }
