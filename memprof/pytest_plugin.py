"""The pytest plugin: a limit on a test's peak RSS, and a fixture that measures a model or a function in a separate process.

    @pytest.mark.peak_rss("120 MiB")
    def test_loading(): ...                    # the test runs in a separate process, whose peak meanwhile must not exceed the limit

    @pytest.mark.peak_rss("120 MiB")
    def test_model(memprof):                   # with the fixture, the limit is on the fixture's measurements; there must be at least one
        memprof.model("net.onnx", "onnxruntime")

    def test_function(memprof):
        assert memprof.function(build_index, 10_000).grown_bytes < memprof.size("20 MiB")
        assert not memprof.grows(build_index, 10_000)

    @pytest.mark.no_growth(per_call="0 B")
    def test_request(): ...                    # called again and again in three processes, whose memory must not rise with the calls

A marked test's process is a pytest that runs this one test: fixtures are set up anew there, session fixtures too. Processes that the test
starts count: the limit is on the sum. Options of the command line and of addopts reach it, except those that choose among tests, spread them over
processes, stop in a debugger or write reports. Marked tests and the fixture are skipped on systems other than Linux.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import runpy
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .errors import MeasurementError, MemprofError, UsageError
from .units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from .api import Runs
    from .judge.growth import Verdict
    from .runs.records import Run

_REPORTS = "MEMPROF_PYTEST_REPORTS"  # in a marked test's own process: the file where its reports go
_MARKS = "MEMPROF_PYTEST_MARKS"  # in that process too: the file that writes marks
_CALLS = "MEMPROF_PYTEST_CALLS"  # in the process of a test that must not grow: how often it is called at most
_MARK = "peak_rss"
_NO_GROWTH = "no_growth"
_ROUNDS = (1000, 8000)  # calls a process; the second only if the first does not decide
_ROUND_S, _LEAST_CALLS = 15, 64  # a process calls for so long, but so often at least
_BUDGET_NS = 60 * 10**9  # of memprof.grows
_PHASE = "TEST"
_CHILD = """
import json, os, sys
with open(sys.argv[1]) as file:
    words = json.load(file)
sys.path[:] = words["path"]
for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
    os.environ.pop(name, None)
import pytest
sys.exit(pytest.main(words["args"]))
"""
_MONTH_NS = 30 * 24 * 3600 * 10**9
# Options for the first process alone: they choose among tests, spread them, stop in a debugger, or write reports and caches.
_FLAGS = {
    *("-d", "--pdb", "--trace", "--lf", "--last-failed", "--ff", "--failed-first", "--nf", "--new-first", "--sw", "--stepwise"),
    *("--sw-skip", "--stepwise-skip", "--sw-reset", "--stepwise-reset", "--cache-clear", "--pyargs"),
}
_VALUED = {
    *("-k", "-m", "-n", "--numprocesses", "--maxprocesses", "--dist", "--tx", "--lfnf", "--last-failed-no-failures", "--deselect"),
    *("--ignore", "--ignore-glob", "--junitxml", "--junit-xml", "--report-log", "--html", "--log-file", "--cov", "--cov-report"),
}
_ONLY_LINUX = "memprof measures on Linux only"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARK}(limit, above_baseline=False): the test's peak RSS must not exceed the limit, such as '120 MiB'; it runs in a separate "
        "process, or, with the memprof fixture, the limit is on the fixture's measurements. above_baseline: memory from before does not count.",
    )
    config.addinivalue_line(
        "markers",
        f"{_NO_GROWTH}(per_call='0 B'): the test is called again and again in three separate processes, and their memory must not rise by more with "
        "each call. Its fixtures are set up once a process.",
    )


@dataclass(frozen=True)
class Limit:
    """The limit of a mark: a size in bytes, and whether it is on the peak or on its growth above the memory before."""

    bytes: int
    above_baseline: bool = False

    @classmethod
    def of(cls, item: pytest.Item) -> Limit | None:
        """The limit of a test, None if it has no mark. Raises UsageError for a mark with other arguments."""
        mark = item.get_closest_marker(_MARK)
        if mark is None:
            return None
        words = dict(mark.kwargs)
        above = words.pop("above_baseline", False)
        if len(mark.args) != 1 or words or not isinstance(mark.args[0], str | int):
            raise UsageError(f'{item.nodeid}: write @pytest.mark.{_MARK}("120 MiB")')
        return cls(parse_bytes(str(mark.args[0])), bool(above))

    def check(self, peak_bytes: int, before_bytes: int, what: str = "the test") -> None:
        """Fail the test if the limit is exceeded."""
        size_bytes = peak_bytes - before_bytes if self.above_baseline else peak_bytes
        if size_bytes > self.bytes:
            where = f" above the {format_bytes(before_bytes)} before it" if self.above_baseline else ""
            pytest.fail(f"{what}'s peak RSS is {format_bytes(size_bytes)}{where}; the limit is {format_bytes(self.bytes)}", pytrace=False)


# -- marked tests: in the first process


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test in a separate process, and pass on its reports."""
    grows = item.get_closest_marker(_NO_GROWTH) is not None
    alone = item.get_closest_marker(_MARK) is not None and "memprof" not in getattr(item, "fixturenames", ())
    if os.environ.get(_REPORTS) or not (grows or alone):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _growth_reports(item) if grows else _reports(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item) -> list[pytest.TestReport]:
    if not sys.platform.startswith("linux"):
        return [_report(item, "setup", "skipped", (str(item.path), 0, f"Skipped: {_ONLY_LINUX}"))]
    try:
        Limit.of(item)
    except UsageError as error:
        return [_report(item, "setup", "failed", str(error))]
    from .measuring.leftovers import scratch

    try:
        with scratch("pytest") as work:
            run, reports = _measured_reports(item, work.folder)
    except MemprofError as error:
        return [_report(item, "setup", "failed", str(error))]
    for report in reports:
        _judge_all_processes(item, report, run)
    return reports


def _measured_reports(item: pytest.Item, folder: Path, **environment: str) -> tuple[Run, list[pytest.TestReport]]:
    """The run of a test in its own process, and the test's reports from there."""
    path = folder / "reports.jsonl"
    path.unlink(missing_ok=True)
    run = _measured_test(item, folder, path, environment)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    reports = [item.config.hook.pytest_report_from_serializable(config=item.config, data=json.loads(line)) for line in lines]
    for report in reports:
        report.nodeid, report.location = item.nodeid, item.location
        if isinstance(report.longrepr, list):  # a skip's place and reason, a tuple until it was JSON
            report.longrepr = tuple(report.longrepr)
    if [report.when for report in reports][-1:] != ["teardown"]:
        reports.append(_report(item, "call", "failed", _ended(run)))
    return run, reports


def _growth_reports(item: pytest.Item) -> list[pytest.TestReport]:
    """The reports of a test that must not grow: those of its last process, or of the first in which it did not pass."""
    if not sys.platform.startswith("linux"):
        return [_report(item, "setup", "skipped", (str(item.path), 0, f"Skipped: {_ONLY_LINUX}"))]
    from .judge import growing, growth
    from .judge.growing import Measured
    from .measuring.leftovers import scratch
    from .runs import work
    from .runs.summary import key

    try:
        limit = growing.Limit("call", _per_call(item))
        with scratch("pytest") as space:
            for calls in _ROUNDS:
                series = []
                for _ in range(growth.LEAST_PROCESSES):
                    run, reports = _measured_reports(item, space.folder, **{_CALLS: str(calls), "MEMPROF_WORK": "1"})
                    if any(report.outcome != "passed" for report in reports) or not run.work:
                        return reports
                    series.append(growth.series(work.unpack(max(run.work, key=lambda record: record.rows)), run.machine.page_bytes))
                verdict = growth.judge(series)
                if verdict.word != "undecided" or verdict.tail < calls - 1:  # its time ended before its calls
                    break
    except MemprofError as error:
        return [_report(item, "setup", "failed", str(error))]
    row = growing.judged(Measured(key(run), "call", verdict), limit)
    for report in reports:
        report.user_properties = [*report.user_properties, ("growth_bytes_per_call", verdict.slope)]
        if report.when == "call" and row.verdict != "ok" and not hasattr(report, "wasxfail"):
            report.outcome, report.longrepr = "failed", f"the test's memory: {row.reason}"
    return reports


def _per_call(item: pytest.Item) -> int:
    """The limit of a test that must not grow. Raises UsageError for a mark with other arguments, and beside another way of measuring."""
    mark = item.get_closest_marker(_NO_GROWTH)
    assert mark is not None
    words = dict(mark.kwargs)
    size = words.pop("per_call", "0 B")
    if mark.args or words or not isinstance(size, str | int):
        raise UsageError(f'{item.nodeid}: write @pytest.mark.{_NO_GROWTH}(per_call="0 B")')
    if item.get_closest_marker(_MARK) is not None:
        raise UsageError(f"{item.nodeid}: {_MARK} and {_NO_GROWTH} are for a test each: the second calls it again and again")
    if "memprof" in getattr(item, "fixturenames", ()):
        raise UsageError(f"{item.nodeid}: with the memprof fixture write memprof.grows(FUNCTION), without the mark {_NO_GROWTH}")
    return parse_bytes(str(size))


def _measured_test(item: pytest.Item, folder: Path, reports: Path, more: Mapping[str, str]) -> Run:
    """Run the test in its own process, which is polled from outside with all that it starts."""
    from .measuring import campaign
    from .measuring.orders import plan
    from .measuring.progress import Silent
    from .measuring.suite import Suite, Variant
    from .programs.commands import Command
    from .programs.runtimes import runners_path
    from .runs.records import COMMAND

    words = folder / "words.json"
    words.write_text(json.dumps({"path": sys.path, "args": _arguments(item)}), encoding="utf-8")
    environment = {_REPORTS: str(reports), _MARKS: str(runners_path() / "memprof_marks.py"), **more}
    command = Command("test", (sys.executable, "-c", _CHILD, str(words)), environment, str(item.config.invocation_params.dir))
    suite = Suite(variants=(Variant(COMMAND, "test", command=command),), repeats=1, cache="asis", timeout_ns=_MONTH_NS)
    (run,) = campaign.measure(plan(suite).orders, Silent(), lambda line: None)
    return run


def _judge_all_processes(item: pytest.Item, report: pytest.TestReport, run: Run) -> None:
    """Hold the sum of a test's processes to its limit: its own process has judged itself alone."""
    mark, limit = run.mark(_PHASE), Limit.of(item)
    if mark is None or limit is None or len(run.processes) < 2 or mark.rss_peak_bytes is None:
        return
    properties = dict(report.user_properties)  # those of the test, repeated in each report
    peak = max(mark.rss_peak_bytes, int(str(properties.get("peak_rss_bytes", 0))))
    report.user_properties = [(name, peak if name == "peak_rss_bytes" else value) for name, value in report.user_properties]
    if report.when == "call" and report.outcome == "passed" and not hasattr(report, "wasxfail"):
        try:
            limit.check(peak, mark.rss_begin_bytes or 0, "the test's process tree")
        except pytest.fail.Exception as error:
            report.outcome, report.longrepr = "failed", str(error)


def _arguments(item: pytest.Item) -> list[str]:
    """The words of the pytest that runs this one test: the words of this pytest, as far as they concern a test, and the test's place."""
    config = item.config
    name = item.nodeid.partition("::")[2]
    given_words = [*config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    for positional in reversed(getattr(config.option, "file_or_dir", None) or []):
        if positional in given_words:
            del given_words[len(given_words) - 1 - given_words[::-1].index(positional)]
    words = [*_heeded(given_words), f"{item.path}::{name}", "--rootdir", str(config.rootpath), "-p", "no:cacheprovider", "-o", "addopts="]
    words += ["-c", str(config.inipath)] if config.inipath else []
    if item.get_closest_marker(_NO_GROWTH) is not None:  # these keep what each call says, which would be growth of theirs
        words += ["-p", "no:warnings", *([] if "caplog" in getattr(item, "fixturenames", ()) else ["-p", "no:logging"])]
    return [*words, f"--import-mode={config.getoption('importmode')}"]


def _heeded(given_words: Sequence[str]) -> Iterator[str]:
    """The words without options for the first process alone, and without their values."""
    words = iter(given_words)
    for word in words:
        option, equals, _ = word.partition("=")
        if option in _VALUED:
            if not equals:
                next(words, None)
        elif option not in _FLAGS and not (word[:2] in ("-k", "-m", "-n") and not word.startswith("--")):
            yield word


def _ended(run: Run) -> str:
    how = f"was ended by {run.outcome.signal}" if run.outcome.signal else f"ended with exit code {run.outcome.exit_code or 0}"
    return f"the test's own process {how} before the test was done\n{(run.output_tail or run.outcome.message or '').strip()[-1500:]}"


def _report(item: pytest.Item, when: Any, outcome: Any, words: Any) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), outcome, words, when)


# -- marked tests: in their own process


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    path = os.environ.get(_REPORTS)
    if path and _own_config is not None:
        data = _own_config.hook.pytest_report_to_serializable(config=_own_config, report=report)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")


_own_config: pytest.Config | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    global _own_config
    if os.environ.get(_REPORTS):
        _own_config = session.config


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Around a test with the fixture: keep the largest peak that it measured. Around a marked test in its own process: measure and judge it."""
    fixture = getattr(item, "funcargs", {}).get("memprof")
    if isinstance(fixture, Memprof):
        return (yield from fixture.around(item))
    if os.environ.get(_CALLS):
        return (yield from _called_again(item, int(os.environ[_CALLS])))
    limit = Limit.of(item) if os.environ.get(_REPORTS) else None
    if limit is None:
        return (yield)
    with _phase():
        exact = _forget_peak()
        before = _status("VmRSS")
        result = yield
        peak = max(_status("VmHWM"), _status("VmRSS"))
    item.user_properties += [("peak_rss_bytes", peak), ("rss_before_bytes", before)]
    what = "the test" if exact else "since its process began (the kernel does not let it be reset), the test"
    limit.check(peak, before, what)
    return result


def _called_again(item: pytest.Item, most: int) -> Generator[None, object, object]:
    """Call the test again and again, with its memory after each call told to the process that measures this one."""
    marks: dict[str, Any] = runpy.run_path(os.environ[_MARKS])
    with marks["phase"](_PHASE):
        result = yield
        marks["iteration"](calls=1)
        end_s = time.monotonic() + _ROUND_S
        for called in range(1, most):
            if called >= _LEAST_CALLS and time.monotonic() > end_s:
                break
            item.runtest()
            marks["iteration"](calls=1)
    return result


def _phase() -> AbstractContextManager[object]:
    """The marks of the test's start and end, for the process that polls this process."""
    path = os.environ.get(_MARKS)
    if not path:
        return nullcontext()
    marks: dict[str, Any] = runpy.run_path(path)
    phase: AbstractContextManager[object] = marks["phase"](_PHASE)
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


# -- the fixture


@dataclass(frozen=True)
class Measured:
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
    """Whether memory rises with the calls of a function: true if it does. verdict: memprof.judge.growth's, with the rate and its interval."""

    reason: str
    verdict: Verdict = field(repr=False)

    def __bool__(self) -> bool:
        return self.verdict.word == "grows"


class Memprof:
    """The fixture: measures in separate processes, and fails the test if a process does not end well or exceeds the test's limit."""

    def __init__(self, folder: Path, limit: Limit | None) -> None:
        self._folder = folder
        self._limit = limit
        self._peaks_bytes: list[int] = []

    def around(self, item: pytest.Item) -> Generator[None, object, object]:
        """Around the test's call: its property in JUnit XML, and a failure if it has a limit and measures nothing."""
        try:
            result = yield
        finally:
            item.user_properties += [("peak_rss_bytes", max(self._peaks_bytes))] if self._peaks_bytes else []
        if self._limit is not None and not self._peaks_bytes:
            pytest.fail(f"@pytest.mark.{_MARK} guards nothing: the test measures nothing with its memprof fixture", pytrace=False)
        return result

    @staticmethod
    def size(text: str) -> int:
        """Bytes in `120 MiB`."""
        return parse_bytes(text)

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
    ) -> Measured:
        """Measure a model in a runtime, as `memprof run` does. Raises UsageError and InputError as that does."""
        from . import api

        sweep = [threads] if threads else ()
        measured_runs = api.measure([model], [runtime], set=set, threads=sweep, warmup=warmup, runs=runs, repeats=repeats, release=False)
        return self._measured(measured_runs, Path(model).name, "STARTUP")

    def function(self, function: Callable[..., object], *args: object, repeats: int = 1, **kwargs: object) -> Measured:
        """Call a function once a repeat, in a new interpreter that imports its module for it.

        Raises UsageError for a function that no other process can import (a lambda, a function inside a function) or whose arguments cannot be
        pickled.
        """
        from . import api
        from .measuring.suite import Variant
        from .programs.runtimes import runners_path

        name, path, environment = self._callable(function, args, kwargs)
        variant = Variant(str(runners_path() / "function.py"), env=environment)
        measured_runs = api.measure([path], variants=[variant], warmup=0, runs=1, repeats=repeats, release=False)
        return self._measured(measured_runs, name, "PREPARE")

    def grows(self, function: Callable[..., object], *args: object, **kwargs: object) -> Grows:
        """Whether memory rises when a function is called again and again, in three processes. It takes seconds, up to about a minute.

        Fails the test if that cannot be decided, or if the function fails. Raises UsageError as `function` does.
        """
        from .judge import growing
        from .measuring.progress import Silent
        from .programs.runtimes import runners_path
        from .runs.summary import Key
        from .seek import grow

        name, path, environment = self._callable(function, args, kwargs)
        request = grow.GrowRequest(
            str(path), str(runners_path() / "function.py"), budget=grow.Budget(time_ns=_BUDGET_NS), env=environment, variant=name
        )
        try:
            verdict = grow.grow(request, Silent(), lambda line: None).verdict
        except MeasurementError as error:
            pytest.fail(str(error), pytrace=False)
        row = growing.judged(growing.Measured(Key(name, name, None, ""), "iteration", verdict), growing.Limit("iteration", 0))
        reason = row.reason.replace("iteration", "call").removesuffix("; the limit is 0 B per call")
        if verdict.word == "undecided":
            pytest.fail(f"{name}: {reason}", pytrace=False)
        return Grows(reason, verdict)

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

    def _measured(self, runs: Runs, what: str, before: str) -> Measured:
        failed = next((run.outcome for run in runs if not run.outcome.ok), None)
        if failed is not None:
            pytest.fail(f"{what}: {failed.sentence}", pytrace=False)
        measured = Measured(runs, max(map(_peak, runs)), max(_peak(run) - _end(run, before) for run in runs))
        self._peaks_bytes.append(measured.peak_bytes)
        if self._limit is not None:
            worst = max(runs, key=_peak)
            self._limit.check(_peak(worst), _end(worst, before), what)
        return measured


def _peak(run: Run) -> int:
    return max(mark.height_bytes for mark in run.before_release)


def _end(run: Run, phase: str) -> int:
    mark = run.mark(phase)
    return mark.rss_end_bytes or 0 if mark else 0


@pytest.fixture
def memprof(request: pytest.FixtureRequest, tmp_path: Path) -> Memprof:
    """Measures a model or a function in a separate process: memprof.model(PATH, RUNTIME), memprof.function(FUNCTION, ...)."""
    if not sys.platform.startswith("linux"):
        pytest.skip(_ONLY_LINUX)
    return Memprof(tmp_path, Limit.of(request.node))
