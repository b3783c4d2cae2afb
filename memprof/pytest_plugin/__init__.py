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

import pytest

from .fixture import memprof
from .isolation import pytest_runtest_protocol
from .limit import NO_GROWTH, PEAK_RSS
from .worker import pytest_runtest_call, pytest_runtest_logreport, pytest_sessionstart

__all__ = ["memprof", "pytest_runtest_call", "pytest_runtest_logreport", "pytest_runtest_protocol", "pytest_sessionstart"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{PEAK_RSS}(limit, above_baseline=False): the test's peak RSS must not exceed the limit, such as '120 MiB'; it runs in a separate "
        "process, or, with the memprof fixture, the limit is on the fixture's measurements. above_baseline: memory from before does not count.",
    )
    config.addinivalue_line(
        "markers",
        f"{NO_GROWTH}(per_call='0 B'): the test is called again and again in three separate processes, and their memory must not rise by more with "
        "each call. Its fixtures are set up once a process.",
    )
