"""Why a run failed, as far as its child's output tells: a runtime often prints the reason and raises something general."""

from __future__ import annotations

import re

from .records import Run

_TELLING = re.compile(
    r"unsupported|not supported|not implemented|error|fail|cannot|can't|could not|invalid|exception|terminate called|assert|abort|out of memory"
    r"|mismatch|expected|unknown|no such",
    re.IGNORECASE,
)
_GENERAL = re.compile(r"^(Traceback |\s+File |\s+at |#\d+ )")
_LONGEST = 200


def reason(run: Run) -> str:
    """The last line of a run's output that speaks of a failure; empty if no line does, or if the outcome has it already."""
    lines = [" ".join(line.split()) for line in (run.output_tail or "").splitlines() if not _GENERAL.match(line)]
    line = next((line for line in reversed(lines) if _TELLING.search(line)), "")
    if not line or line in (run.outcome.message or "") or (run.outcome.message or "\0") in line:
        return ""
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
