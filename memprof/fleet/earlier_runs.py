"""Which comparisons of a fleet's campaign a runs file holds already, so that a desk that begins again measures only the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ..base.errors import InputError
from ..records import store


def comparisons_in(path: Path, say: Callable[[str], None]) -> dict[str, tuple[int, bool]]:
    """The comparisons in a runs file: by their hash, the number of the last attempt, and whether one of them is complete.

    The file is read a line at a time. Raises InputError.
    """
    counts: Counter[tuple[str, int]] = Counter()
    wanted: dict[tuple[str, int], int] = {}
    try:
        for where, line in store.lines(path, say):
            run = store.decode(line, where)
            if run.attempt is not None:
                counts[run.attempt.comparison, run.attempt.number] += 1
                wanted[run.attempt.comparison, run.attempt.number] = run.attempt.runs
    except InputError:
        if counts:
            raise
        return {}  # an empty file, or a torn line: whoever adds to it looks at that
    known: dict[str, tuple[int, bool]] = {}
    for (comparison, number), count in counts.items():
        before, complete = known.get(comparison, (0, False))
        known[comparison] = max(before, number), complete or count >= wanted[comparison, number] > 0
    return known
