"""Marked tests, in the first process: each runs in a separate process, whose reports are passed on."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...base.errors import MemprofError, UsageError
from . import benchmarks, leaks
from .limit import INI, ONLY_LINUX, REPORTS, TEST_PEAK, TREE_PEAK, MemoryLimit, measured_from_outside, words_of
from .table import BEFORE, OPTION, PEAK
from .worker import CALLS, LEAST_CALLS, LINES, MARKS, PHASE

if TYPE_CHECKING:
    from ...records.types import Run
    from ...verdicts.growth import Verdict

_ROUNDS = (1000, 8000)  # calls a process; the second only if the first does not decide
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
_SLOWER = "memprof runs this test in separate processes, one after another, and with leaks= many times: it needs more time than by itself"
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
# Options of pytest-benchmark without a value; all others have one. None of them is for a process that calls the function once.
_BENCHMARK_FLAGS = {
    f"--benchmark-{word}" for word in ("only", "skip", "enable", "disable", "disable-gc", "autosave", "save-data", "verbose", "quiet")
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a limited test in separate processes, and pass on their reports; of a benchmark, have its peak before pytest runs it here."""
    if os.environ.get(REPORTS) or measured_from_outside(os.environ):
        return None
    benchmarked = benchmarks.FIXTURE in getattr(item, "fixturenames", ())
    if not _is_isolated(item) and not _is_shown(item):
        return None
    begin_s = time.monotonic()
    reports = _reports(item, _limited_reports if _is_isolated(item) or not benchmarked else _benchmark_reports)
    if benchmarks.measured in item.stash:
        return None
    for report in reports:
        if report.when == "call":  # all that the test took here, in as many processes as it ran
            report.duration = time.monotonic() - begin_s - sum(other.duration for other in reports if other is not report)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _is_isolated(item: pytest.Item) -> bool:
    """Whether the test runs in processes of its own: it has a limit, and does not measure by the fixture."""
    given = words_of(item)
    if given is None and not (item.config.getini(INI) and isinstance(item, pytest.Function)):
        return False
    return "memprof" not in getattr(item, "fixturenames", ()) or (given is not None and not {"repeats", "leaks"}.isdisjoint(given))


def _is_shown(item: pytest.Item) -> bool:
    """Whether the test's peak is wanted for the table, and the test does not measure by the fixture."""
    return bool(item.config.getoption(OPTION)) and isinstance(item, pytest.Function) and "memprof" not in item.fixturenames


def _reports(item: pytest.Item, measure: Callable[[pytest.Item, Path], list[pytest.TestReport]]) -> list[pytest.TestReport]:
    if not sys.platform.startswith("linux"):
        return [_report(item, "setup", "skipped", (str(item.path), 0, f"Skipped: {ONLY_LINUX}"))]
    from ...base.leftovers import scratch

    try:
        with scratch("pytest") as work:
            return measure(item, work.folder)
    except MemprofError as error:
        return [_report(item, "setup", "failed", str(error))]
    except pytest.fail.Exception as error:  # of a plugin that limits a test's time in this process, such as pytest-timeout
        return [_report(item, "call", "failed", f"{error}\n{_SLOWER}")]


def _limited_reports(item: pytest.Item, folder: Path) -> list[pytest.TestReport]:
    """The reports of the process in which a test's peak was highest, or of the first in which it did not pass. Raises UsageError."""
    limit = MemoryLimit.of(item) or MemoryLimit()
    if "memprof" in getattr(item, "fixturenames", ()):
        raise UsageError("with the memprof fixture write memprof.function(FUNCTION, repeats=N) and memprof.grows(FUNCTION)")
    reports: list[pytest.TestReport] = []
    if limit.bytes is not None or limit.leaks_bytes is None or limit.repeats > 1 or _is_shown(item):
        for _ in range(limit.repeats):
            run, fresh = _measured_reports(item, folder)
            _judge_from_outside(item, fresh, run)
            if any(report.outcome != "passed" for report in fresh):
                return fresh
            reports = max(reports, fresh, key=_peak)
    return reports if limit.leaks_bytes is None else _growth_reports(item, folder, limit.leaks_bytes, reports)


def _peak(reports: Sequence[pytest.TestReport]) -> int:
    return max((int(str(value)) for report in reports for name, value in report.user_properties if name == PEAK), default=-1)


def _benchmark_reports(item: pytest.Item, folder: Path) -> list[pytest.TestReport]:
    """Keep the figures of a benchmark that another process has run once; its reports there are passed on only if it did not pass."""
    run, reports = _measured_reports(item, folder)
    _judge_from_outside(item, reports, run)
    if all(report.outcome == "passed" for report in reports):
        properties = dict(reports[-1].user_properties)
        item.stash[benchmarks.measured] = {name: int(str(properties[name])) for name in (PEAK, BEFORE)}
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


def _growth_reports(item: pytest.Item, folder: Path, most_bytes: int, earlier: Sequence[pytest.TestReport]) -> list[pytest.TestReport]:
    """The reports of a test that must not grow: those of its last process, or of the first in which it did not pass. earlier: those of its peak."""
    from ...verdicts import growth

    for calls in _ROUNDS:
        _say(item, f"looking for leaks: {growth.LEAST_PROCESSES} processes, up to {calls:,} calls in each")
        runs = []
        for _ in range(growth.LEAST_PROCESSES):
            run, reports = _measured_reports(item, folder, **{CALLS: str(calls), "MEMPROF_WORK": "1"})
            if any(report.outcome != "passed" for report in reports) or not run.work:
                return reports
            runs.append(run)
        answer = leaks.judge(runs)
        done = answer.verdict.warmup + answer.verdict.tail
        if not answer.needs_more(most_bytes) or done < calls - 1:  # its time ended before its calls
            break
    failure = answer.failure(run, most_bytes, _ROUNDS[-1])
    if failure is not None and answer.verdict.word == "grows":
        _say(item, "it leaks: one more process finds the lines that allocate what stays")
        failure = "\n".join([failure, *_allocating_lines(item, folder, answer.verdict)])
    peaks = earlier[-1].user_properties if earlier else []
    for report in reports:
        report.user_properties = [*peaks, *report.user_properties, *leaks.properties(answer.verdict)]
        if report.when == "call" and failure is not None and not hasattr(report, "wasxfail"):
            report.outcome, report.longrepr = "failed", failure
    return reports


def _say(item: pytest.Item, words: str) -> None:
    """On a terminal, what takes the next seconds: pytest itself writes nothing until a test has ended."""
    reporter: Any = item.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.isatty and reporter.config.get_verbosity() >= 0:
        reporter.ensure_newline()
        reporter.write_line(f"memprof: {item.name}: {words}")


def _allocating_lines(item: pytest.Item, folder: Path, verdict: Verdict) -> Iterator[str]:
    """Which lines of Python allocate what the test leaves behind, from one more process, where Python traces its objects."""
    from ...records.python_lines import read_lines

    path, calls = folder / "lines.json", max(LEAST_CALLS // 2, verdict.warmup)
    _measured_reports(item, folder, **{CALLS: str(2 * calls), LINES: str(path)})
    if path.exists():  # or the test failed there
        yield from leaks.told(read_lines(path), calls, verdict.slope, item.config.rootpath)


def _measured_test(item: pytest.Item, folder: Path, reports: Path, more: Mapping[str, str]) -> Run:
    """Run the test in its own process, which is polled from outside with every process that it starts."""
    from ...base.runners import runners_path
    from ...campaign import campaign
    from ...campaign.progress import Silent
    from ...programs.commands import Command
    from ...records.types import COMMAND
    from ...subjects.orders import plan
    from ...subjects.suite import Suite, Variant

    words = folder / "words.json"
    words.write_text(json.dumps({"path": sys.path, "args": _arguments(item, grows=CALLS in more)}), encoding="utf-8")
    environment = {REPORTS: str(reports), MARKS: str(runners_path() / "memprof_marks.py"), **more}
    command = Command("test", (sys.executable, "-c", _CHILD, str(words)), environment, str(item.config.invocation_params.dir))
    suite = Suite(variants=(Variant(COMMAND, "test", command=command),), repeats=1, cache="asis", timeout_ns=_MONTH_NS)
    (run,) = campaign.measure(plan(suite).orders, Silent(), lambda line: None)
    return run


def _judge_from_outside(item: pytest.Item, reports: Sequence[pytest.TestReport], run: Run) -> None:
    """Hold a test that passed to the peak that was seen from outside: that of all its processes together, and what its own process did not see yet of
    itself, because the kernel counts late. A test that failed by its own figure keeps that."""
    mark, limit = run.mark(PHASE), MemoryLimit.of(item) or MemoryLimit()
    if mark is None or mark.rss_peak_bytes is None or any(report.outcome != "passed" for report in reports):
        return
    own = _peak(reports)
    peak = max(mark.rss_peak_bytes, own)
    several = len(run.processes) > 1 and peak - own > run.machine.peak_bound_bytes
    for report in reports:
        report.user_properties = [(name, peak if name == PEAK else value) for name, value in report.user_properties]
        if report.when == "call" and not hasattr(report, "wasxfail"):
            try:
                what = TREE_PEAK if several else TEST_PEAK
                limit.check(peak, mark.rss_begin_bytes or 0, what, item.config.cwd_relative_nodeid(item.nodeid))
            except pytest.fail.Exception as error:
                report.outcome, report.longrepr = "failed", str(error)


def _arguments(item: pytest.Item, grows: bool) -> list[str]:
    """The words of the pytest that runs this one test: the words of this pytest, as far as they concern a test, and the test's place."""
    config = item.config
    name = item.nodeid.partition("::")[2]
    given_words = [*config.getini("addopts"), *shlex.split(os.environ.get("PYTEST_ADDOPTS", "")), *map(str, config.invocation_params.args)]
    for positional in reversed(getattr(config.option, "file_or_dir", None) or []):
        if positional in given_words:
            del given_words[len(given_words) - 1 - given_words[::-1].index(positional)]
    words = [*_heeded(given_words), f"{item.path}::{name}", "--rootdir", str(config.rootpath), "-p", "no:cacheprovider", "-o", "addopts="]
    words += ["--no-header"]  # with -v hypothesis imports itself for its line there, which is 11 MiB
    words += ["-c", str(config.inipath)] if config.inipath else []
    if config.pluginmanager.hasplugin("benchmark"):  # pytest-benchmark's name; called once, its function needs what it needs
        words += ["--benchmark-disable"]
    if grows:  # these keep what each call says, which would be growth of theirs
        words += ["-p", "no:warnings", *([] if "caplog" in getattr(item, "fixturenames", ()) else ["-p", "no:logging"])]
    return [*words, f"--import-mode={config.getoption('importmode')}"]


def _heeded(given_words: Sequence[str]) -> Iterator[str]:
    """The words without options for the first process alone, and without their values."""
    words = iter(given_words)
    for word in words:
        option, equals, _ = word.partition("=")
        if option in _VALUED or (option.startswith("--benchmark-") and option not in _BENCHMARK_FLAGS):
            if not equals:
                next(words, None)
        elif option not in _FLAGS and option not in _BENCHMARK_FLAGS and not (word[:2] in ("-k", "-m", "-n") and not word.startswith("--")):
            yield word


def _ended(run: Run) -> str:
    how = f"was ended by {run.outcome.signal}" if run.outcome.signal else f"ended with exit code {run.outcome.exit_code or 0}"
    return f"the test's own process {how} before the test was done\n{(run.output_tail or run.outcome.message or '').strip()[-1500:]}"


def _report(item: pytest.Item, when: Any, outcome: Any, words: Any) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, dict.fromkeys(item.keywords, 1), outcome, words, when)
