"""Why a run failed, as far as its child's output tells: a runtime often prints the reason and raises something general."""

from __future__ import annotations

import re

from ..base.terminal_text import shortened
from .types import Run

_TELLING = re.compile(
    r"unsupported|not supported|not implemented|error|fail|cannot|can't|could not|invalid|exception|terminate called|assert|abort|out of memory"
    r"|mismatch|expected|unknown|no such",
    re.IGNORECASE,
)
# A runtime looks for accelerators that are not installed, and goes on without them. The error of an import that needs such a library names it.
_LOOKED_FOR = re.compile(r"cannot open shared object file|could not load shared library", re.IGNORECASE)
_GENERAL = re.compile(r"^(Traceback |\s+File |\s+at |#\d+ )")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_LONGEST = 200
_TELLS_ENOUGH = 20


def reason(run: Run) -> str:
    """The last line of a run's output that speaks of a failure; empty if no line does, or if the outcome has it already."""
    printed = _COLOURS.sub("", run.output_tail or "")
    lines = [" ".join(line.split()) for line in printed.splitlines() if not _GENERAL.match(line)]
    message = run.outcome.message or ""
    line = next((line for line in reversed(lines) if _TELLING.search(line) and not (message and _LOOKED_FOR.search(line))), "")
    logged = line.rpartition("] ")[2]  # without a time and a place in the source, as onnxruntime writes in front
    if not line or line in message or (message or "\0") in line or (len(logged) >= _TELLS_ENOUGH and logged in message):
        return ""
    return shortened(line, _LONGEST)
