"""Which lines of Python code hold more objects at the end than after the warm-up: tracemalloc, asked for by a job's "traced".

The answer is a JSON file: [[FILE, LINE, BYTES, BLOCKS], ...], the largest growth first. Tracing takes memory and time itself, so no other figure of
such a run is used. Stdlib only, Python 3.8 and later.
"""

import json
import tracemalloc

_MOST = 100


class Lines:
    """Traces from now on."""

    def __init__(self, path):
        self._path = path
        self._first = None
        tracemalloc.start()

    def look(self):
        """The end of a phase: the first, that of WARMUP, is kept; after each other one the difference from it is written again."""
        now = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__)]
        )
        if self._first is None:
            self._first = now
            return
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(grown(self._first, now), file)


def grown(first, last):
    """[file, line, bytes, blocks] of the lines whose objects grew, the largest first."""
    rows = [
        [change.traceback[0].filename, change.traceback[0].lineno, change.size_diff, change.count_diff]
        for change in last.compare_to(first, "lineno")
        if change.size_diff > 0
    ]
    return sorted(rows, key=lambda row: -row[2])[:_MOST]
