"""The pytest plugin: a mark for a test's memory, and a fixture that measures a model or a function in a separate process.

    @pytest.mark.memprof("120 MiB")
    def test_loading(): ...                    # the test runs in a separate process, whose peak meanwhile must not exceed the limit

    @pytest.mark.memprof(repeats=5, leaks="0 B")
    def test_request(): ...                    # its peak is that of one call, in five processes; and it is called again and again in three others,
                                               # whose memory must not rise with the calls. A cache keyed by its input grows by new inputs alone

    @pytest.mark.memprof("120 MiB")
    def test_model(memprof):                   # with the fixture, the limit is on the fixture's measurements; there must be at least one
        memprof.model("net.onnx", "onnxruntime")

    def test_function(memprof):                # a function by itself, without pytest around it
        assert memprof.function(build_index, 10_000).grown_bytes < memprof.size("20 MiB")
        assert not memprof.grows(build_index, 10_000)

`memprof_limit = 500MiB`, or `60MiB above baseline`, in pytest's ini file is the limit of every test that names none. `pytest --memprof` measures the
peak of every test in a separate process, and shows them in a table. Tests of pytest-benchmark then run here too, for their times.

A marked test's process is a pytest that runs this one test: fixtures are set up again there, session fixtures too. Processes that the test
starts count: the limit is on the sum. Options of the command line and of addopts reach it, except those that choose among tests, spread them over
processes, stop in a debugger or write reports. Marked tests and the fixture are skipped on systems other than Linux. Where memprof measures the
whole pytest (`memprof gate -- pytest`), a marked test runs once in its process without its limit, and a test with the fixture is skipped.
"""

from __future__ import annotations

import pytest

from .fixture import memprof
from .isolation import pytest_runtest_protocol
from .limit import INI, MARK
from .table import OPTION, pytest_report_header, pytest_terminal_summary
from .worker import pytest_runtest_call, pytest_runtest_logreport, pytest_sessionstart

__all__ = [
    "memprof",
    "pytest_report_header",
    "pytest_runtest_call",
    "pytest_runtest_logreport",
    "pytest_runtest_protocol",
    "pytest_sessionstart",
    "pytest_terminal_summary",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("memprof")
    group.addoption(
        OPTION,
        action="store_true",
        help="Run each test in a separate process, and show how much memory and time it took. Limits hold as without it.",
    )
    parser.addini(
        INI,
        "The limit on the peak RSS of every test that names none, such as 500MiB, or '60MiB above baseline', where memory from before the test "
        "does not count. Each test then runs in a separate process.",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}(limit=None, above_baseline=False, repeats=1, leaks=None): the test runs in a separate process, whose peak RSS must not exceed the "
        "limit, such as '120 MiB'. above_baseline: memory from before the test does not count. repeats: in so many processes. leaks: three more "
        "processes call the test again and again, and each call may keep so much, such as '0 B' for no leak at all. A test that uses the memprof "
        "fixture runs as usual, and what the fixture measures must not exceed the limit.",
    )
