"""The fixture: a model or a function measured in separate processes."""

from __future__ import annotations

import base64
import functools
import json
import os
import pickle
import secrets
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import pytest

from ...base.errors import MeasurementError, MemprofError, UsageError
from ...base.units import format_bytes, parse_bytes
from . import leaks
from .limit import MARK, ONLY_LINUX, OUTSIDE, MemoryLimit, measured_from_outside
from .table import PEAK

if TYPE_CHECKING:
    from ...records.types import Run
    from ...verdicts.growth import Verdict
    from ..api import Runs

__tracebackhide__ = True  # pytest leaves these lines out of a test's traceback
_BUDGET_NS = 60 * 10**9  # of memprof.grows
P = ParamSpec("P")
R = TypeVar("R")


def _shown(method: Callable[P, R]) -> Callable[P, R]:
    """The method, whose errors show the line of the test alone: what memprof did until then tells its reader nothing."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except MemprofError as error:
            raise error.with_traceback(None) from None

    return called


@dataclass(frozen=True)
class MeasureResult:
    """A measurement: its Runs, one a repeat, all of them ended well.

    peak_bytes: the largest RSS of all repeats and phases. grown_bytes: by how much the peak is above the memory before: for a model the baseline
    (its runtime imported), for a function the moment before the call; the largest of all repeats.
    """

    runs: Runs = field(repr=False)  # pytest shows what a failed assert was about
    peak_bytes: int
    grown_bytes: int

    def phase_peak_bytes(self, phase: str) -> int:
        """The largest RSS in a phase, over all repeats. Raises UsageError for an unknown phase."""
        peaks = [mark.height_bytes for run in self.runs for mark in run.marks if mark.phase == phase]
        if not peaks:
            raise UsageError(f"there is no phase {phase!r}")
        return max(peaks)


@dataclass(frozen=True)
class Grows:
    """Whether memory rises with the calls of a function: true if it does. verdict: memprof.verdicts.growth's, with the rate and its interval.
    reason: in a sentence. place: the line where what stays is kept or allocated, FILE:LINE, None if it was not found."""

    reason: str
    verdict: Verdict = field(repr=False)
    place: str | None = None

    def __repr__(self) -> str:
        """Short: pytest cuts the words of a failed assert in their middle, and shows them twice."""
        if not self:
            return f"Grows({self.verdict.word})"
        at = "" if self.place is None else f", {self.place}"
        return f"Grows({format_bytes(self.verdict.slope)} per call{at})"

    def __bool__(self) -> bool:
        return self.verdict.word == "grows"


class Memprof:
    """The fixture: measures in separate processes, and fails the test if a process does not end well or exceeds the test's limit."""

    def __init__(self, folder: Path, limit: MemoryLimit | None, root: Path) -> None:
        """folder: for files of its own. root: the folder to which paths in messages are relative."""
        self._folder, self._root = folder, root
        self._limit = limit
        self._peaks_bytes: list[int] = []
        self._growths: list[Verdict] = []
        self._reasons: list[str] = []

    def around(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around the test's call: its properties in JUnit XML, and a failure if it has a limit and measures nothing."""
        try:
            result = yield
        finally:
            item.user_properties += [(PEAK, max(self._peaks_bytes))] if self._peaks_bytes else []
            item.user_properties += leaks.properties(max(self._growths, key=_steepness)) if self._growths else []
            for reason in self._reasons:
                item.add_report_section("call", "memprof", reason)
            item.user_properties += [(leaks.REASON, "\n".join(self._reasons))] if self._reasons else []
        if self._limit is not None and self._limit.own and not self._peaks_bytes:
            pytest.fail(f"@pytest.mark.{MARK} guards nothing: the test measures nothing with its memprof fixture", pytrace=False)
        return result

    @staticmethod
    def size(text: str) -> int:
        """Bytes in `120 MiB`."""
        return parse_bytes(text)

    @_shown
    def model(
        self,
        model: str | Path,
        runtime: str,
        *,
        set: Mapping[str, str] | None = None,
        threads: int | None = None,
        warmup: int = 1,
        runs: int = 1,
        repeats: int = 1,
    ) -> MeasureResult:
        """Measure a model in a runtime, as `memprof run` does. Raises UsageError and InputError as that does."""
        from .. import api

        sweep = [threads] if threads else ()
        measured_runs = api.measure([model], [runtime], set=set, threads=sweep, warmup=warmup, runs=runs, repeats=repeats, release=False)
        return self._measured(measured_runs, Path(model).name, "STARTUP")

    @_shown
    def function(self, function: Callable[..., object], *args: object, repeats: int = 1, **kwargs: object) -> MeasureResult:
        """Call a function once a repeat, in a new interpreter that imports its module for it.

        Raises UsageError for a function that no other process can import (a lambda, a function inside a function) or whose arguments cannot be
        pickled.
        """
        from ...base.runners import runners_path
        from ...subjects.suite import Variant
        from .. import api

        name, path, environment = self._callable(function, args, kwargs)
        variant = Variant(str(runners_path() / "function.py"), env=environment)
        measured_runs = api.measure([path], variants=[variant], warmup=0, runs=1, repeats=repeats, release=False)
        return self._measured(measured_runs, name, "PREPARE")

    @_shown
    def grows(self, function: Callable[..., object], *args: object, **kwargs: object) -> Grows:
        """Whether memory rises when a function is called again and again, in three processes. It takes seconds, up to about a minute.

        If it rises, one more process finds the line of Python that allocates most of it, for the reason. Fails the test if that cannot
        be decided, or if the function fails. Raises UsageError as `function` does.
        """
        from msgspec.structs import replace

        from ...base.runners import runners_path
        from ...campaign.progress import Silent
        from ...growth.grow import cause, grow
        from ...subjects.suite import Suite, Variant
        from ...verdicts import growth_limits

        name, path, environment = self._callable(function, args, kwargs)
        variant = Variant(str(runners_path() / "function.py"), name, env=environment)
        request = grow.GrowRequest(Suite((str(path),), variants=(variant,)), budget=grow.UnitBudget(time_ns=_BUDGET_NS))
        try:
            answer = grow.grow(request, Silent(), lambda line: None)
            self._growths.append(answer.verdict)
            lines, calls = cause.lines(request, answer, Silent()) if answer.verdict.word == "grows" else ((), 1)
        except MeasurementError as error:
            pytest.fail(str(error), pytrace=False)
        verdict, outlook = answer.verdict, answer.would_change
        reason = growth_limits.words(replace(verdict, unit="call", needed=None))  # how many it calls is not for the test to say
        if verdict.word == "undecided":
            pytest.fail(f"{name}: {reason}", pytrace=False)
        place = None
        if verdict.word == "grows" and outlook is not None:
            told = "\n".join(leaks.told(lines, calls, verdict.slope, self._root))
            reason = f"{reason}. {outlook.unfilled_cache('call')}\n{told}"
            self._reasons.append(f"{name}: {reason}")
            place = leaks.largest_place(lines, calls, verdict.slope, self._root)
        return Grows(reason, verdict, place)

    def _callable(self, function: Callable[..., object], args: object, kwargs: object) -> tuple[str, Path, dict[str, str]]:
        """A function's name, the file that tells another process how to call it, and the variables of that process."""
        name = getattr(function, "__qualname__", "<>")
        if "<" in name:
            raise UsageError(f"{name} cannot be imported by another process: measure a function at the top of a module")
        try:
            call = base64.b64encode(pickle.dumps((args, kwargs))).decode()
        except Exception as error:
            raise UsageError(f"{name}: its arguments cannot be handed to another process: {error}") from None
        module = sys.modules.get(function.__module__)
        request = {"module": function.__module__, "file": getattr(module, "__file__", None), "name": name, "path": sys.path, "call": call}
        token = secrets.token_hex(16)  # the file's content is executed, so only this very file is taken
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps({**request, "token": token}), encoding="utf-8")
        return name, path, {"MEMPROF_FUNCTION": token}

    def _measured(self, runs: Runs, what: str, before: str) -> MeasureResult:
        failed = next((run.outcome for run in runs if not run.outcome.ok), None)
        if failed is not None:
            pytest.fail(f"{what}: {failed.sentence}", pytrace=False)
        measured = MeasureResult(runs, max(run.height_bytes for run in runs), max(run.height_bytes - _end(run, before) for run in runs))
        self._peaks_bytes.append(measured.peak_bytes)
        if self._limit is not None:
            worst = max(runs, key=lambda run: run.height_bytes)
            self._limit.check(worst.height_bytes, _end(worst, before), f"{what}'s peak RSS")
        return measured


def _steepness(verdict: Verdict) -> tuple[bool, bool, float]:
    """By which the worst of a test's verdicts is found: one that grows, the fastest, or else one that is undecided."""
    return verdict.word == "grows", verdict.word == "undecided", verdict.slope


def _end(run: Run, phase: str) -> int:
    mark = run.mark(phase)
    return mark.rss_end_bytes or 0 if mark else 0


@pytest.fixture
def memprof(request: pytest.FixtureRequest, tmp_path: Path) -> Memprof:
    """Measures a model or a function in a separate process: memprof.model(PATH, RUNTIME), memprof.function(FUNCTION, ...)."""
    if not sys.platform.startswith("linux"):
        pytest.skip(ONLY_LINUX)
    if measured_from_outside(os.environ):
        pytest.skip(f"{OUTSIDE}, and this test would start measurements of its own")
    try:
        return Memprof(tmp_path, MemoryLimit.of(request.node), request.config.rootpath)
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)
