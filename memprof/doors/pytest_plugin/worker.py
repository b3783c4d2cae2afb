"""Marked tests, in their own process: the test is measured and judged here, and its reports go to a file.

A test with the fixture runs in the first process, and its call passes here too.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import runpy
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from . import benchmarks
from .fixture import Memprof
from .limit import REPORTS, TEST_PEAK, MemoryLimit
from .table import BEFORE, PEAK

MARKS = "MEMPROF_PYTEST_MARKS"  # the variable that names the file that writes marks
CALLS = "MEMPROF_PYTEST_CALLS"  # the variable that says how often a test that must not grow is called at most
LINES = "MEMPROF_PYTEST_LINES"  # the variable that names the file for the lines whose objects grew in the second half of those calls
PHASE = "TEST"
_ROUND_S, LEAST_CALLS = 15, 64  # a process calls for so long, but so often at least


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get(REPORTS)
    if path and _own_config is not None:
        data = _own_config.hook.pytest_report_to_serializable(config=_own_config, report=report)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")


_own_config: pytest.Config | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    global _own_config
    if os.environ.get(REPORTS):
        _own_config = session.config


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Around a test with the fixture: keep the largest peak that it measured. Around a marked test in its own process: measure and judge it."""
    fixture = getattr(item, "funcargs", {}).get("memprof")
    if isinstance(fixture, Memprof):
        return (yield from fixture.around(item))
    benchmarks.tell(item)
    if os.environ.get(CALLS):
        return (yield from _called_again(item, int(os.environ[CALLS])))
    if not os.environ.get(REPORTS):
        return (yield)
    limit = MemoryLimit.of(item) or MemoryLimit()
    with _phase():
        exact = _forget_peak()
        before = _status("VmRSS")
        result = yield
        peak = max(_status("VmHWM"), _status("VmRSS"))
    item.user_properties += [(PEAK, peak), (BEFORE, before)]
    what = TEST_PEAK if exact else f"{TEST_PEAK} since its process began (the kernel does not let it be reset)"
    limit.check(peak, before, what, item.config.cwd_relative_nodeid(item.nodeid))
    return result


def _called_again(item: pytest.Item, most: int) -> Generator[None, object, object]:
    """Call the test again and again, with its memory after each call told to the process that measures this one."""
    marks: dict[str, Any] = runpy.run_path(os.environ[MARKS])
    path = os.environ.get(LINES)
    tracing: Any = _traced(item, path) if path else None
    with marks["phase"](PHASE):
        result = yield
        marks["iteration"](calls=1)
        end_s = time.monotonic() + _ROUND_S
        for called in range(1, most):
            if tracing is None and called >= LEAST_CALLS and time.monotonic() > end_s:
                break
            if tracing is not None and called == most // 2:
                tracing.look()
            try:
                item.runtest()
            except Exception as error:
                if hasattr(error, "add_note"):  # from Python 3.11 on
                    error.add_note(
                        f"In call {called + 1}: memprof calls a test with leaks= many times in one process. Its fixtures are set up once."
                    )
                raise
            if gc.isenabled():
                gc.collect(
                    1
                )  # of the young objects, which takes microseconds: cycles that wait for the collector are no leak, and would hide one
            marks["iteration"](calls=1)
    if tracing is not None:
        tracing.look()
        tracing.end()  # plugins import at the session's end: hypothesis's did for half a minute under tracemalloc
    return result


def _traced(item: pytest.Item, path: str) -> Any:
    """The look at the lines of Python that allocate while the test is called."""
    tracer = runpy.run_path(str(Path(os.environ[MARKS]).with_name("tracing.py")))
    function = getattr(item, "obj", None)
    if inspect.isroutine(function) and not inspect.iscoroutinefunction(function):
        item.obj = tracer["apart"](function)  # type: ignore[attr-defined]
    return tracer["Lines"](path)


def _phase() -> AbstractContextManager[object]:
    """The marks of the test's start and end, for the process that polls this process."""
    path = os.environ.get(MARKS)
    if not path:
        return nullcontext()
    marks: dict[str, Any] = runpy.run_path(path)
    phase: AbstractContextManager[object] = marks["phase"](PHASE)
    return phase


def _forget_peak() -> bool:
    """Reset this process's high-water mark (man 5 proc, clear_refs); False if that is not permitted."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":")), 0)
