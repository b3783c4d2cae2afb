"""Memory profiling and benchmarking for machine-learning runtimes.

    import memprof

    runs = memprof.measure(models=["model.onnx"], runtimes=["onnxruntime"], repeats=5)
    runs = memprof.load("runs.jsonl")
    memprof.summarise(runs)

Names are imported when they are first used (PEP 562), so that importing memprof costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base.errors import InputError, MeasurementError, MemprofError, UndecidedError, UsageError
    from .doors.api import Runs, Summary, load, measure, summarise
    from .records.summary import Row
    from .records.types import Job, Machine, Mark, Model, Outcome, Run, Timeline
    from .subjects.suite import Suite, Variant

_HOME = {
    **dict.fromkeys(("Runs", "Summary", "load", "measure", "summarise"), "doors.api"),
    **dict.fromkeys(("InputError", "MeasurementError", "MemprofError", "UndecidedError", "UsageError"), "base.errors"),
    **dict.fromkeys(("Job", "Machine", "Mark", "Model", "Outcome", "Run", "Timeline"), "records.types"),
    **dict.fromkeys(("Suite", "Variant"), "subjects.suite"),
    "Row": "records.summary",
}

__all__ = [
    "InputError",
    "Job",
    "Machine",
    "Mark",
    "MeasurementError",
    "MemprofError",
    "Model",
    "Outcome",
    "Row",
    "Run",
    "Runs",
    "Suite",
    "Summary",
    "Timeline",
    "UndecidedError",
    "UsageError",
    "Variant",
    "load",
    "measure",
    "summarise",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'memprof' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)
