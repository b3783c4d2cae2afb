"""The pytest plugin: a test in a process of its own, held to its limit; models and functions measured from a test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

from memprof.records import store

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _own_terminal(monkeypatch):
    """pytest's last lines have the whole of each message where these are set, and its first line otherwise."""
    for name in ("CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lean(monkeypatch):
    """Every pytest that follows loads this plugin alone: hypothesis's takes a second of each. How an installed plugin is found, other tests show."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "memprof.doors.pytest_plugin")


TESTS = """
import os, signal, time
import pytest

HELD = b"x" * (32 << 20)   # of the module: it is there before any test runs

@pytest.fixture(scope="session")
def made():
    return {"pid": os.getpid()}

@pytest.mark.memprof("40 MiB", above_baseline=True)
def test_small(made):
    assert made["pid"] == os.getpid() != int(os.environ["PARENT"])
    bytearray(b"x" * (10 << 20))

@pytest.mark.memprof("40 MiB", above_baseline=True)
def test_large_and_freed():
    len(b"x" * (50 << 20))

@pytest.mark.memprof("60 MiB")
def test_absolute():
    pass

@pytest.mark.memprof("1 GiB")
@pytest.mark.parametrize("name", ["[c]", "d::e f"])
def test_many(name):
    assert name != "[c]", "not c"

@pytest.mark.memprof("1 GiB")
def test_crash():
    os.kill(os.getpid(), signal.SIGSEGV)

@pytest.mark.memprof("1 GiB")
def test_skipped():
    pytest.skip("not today")

@pytest.mark.memprof("1 GiB")
@pytest.mark.xfail(strict=True)
def test_expected():
    raise ValueError

@pytest.mark.memprof("lots")
def test_unit():
    pass

@pytest.mark.memprof(above_baseline=True)
def test_nothing_said():
    pass

@pytest.mark.memprof(40)
def test_without_unit():
    pass

@pytest.mark.memprof(limt="1 GiB")
def test_misspelt(): ...

@pytest.mark.memprof("20 MiB above baseline")
def test_in_words_of_ini(): ...

@pytest.mark.timeout(2)
@pytest.mark.memprof(limit="1 GiB")
def test_late():
    time.sleep(60)

def test_unmarked():
    assert str(os.getpid()) == os.environ["PARENT"]
"""


def test_marked_test_limited_in_own_process(pytester, lean):
    pytester.makepyfile(TESTS)
    pytester.makeconftest("import os\nos.environ.setdefault('PARENT', str(os.getpid()))\n")
    pytester.makeini("[pytest]\naddopts = --strict-markers -x --maxfail=99 -p pytest_timeout\nfilterwarnings = error\n")

    done = pytester.runpytest_subprocess("--junitxml=out.xml", "-v", "-rA")

    done.assert_outcomes(passed=3, failed=5, errors=5, skipped=1, xfailed=1)
    done.stdout.fnmatch_lines_random(
        [
            "*test_small PASSED*",
            "*test_large_and_freed FAILED*",
            "*test_absolute FAILED*",
            "*test_many??c?? FAILED*",
            "*test_many?d::e f? PASSED*",
            "*the test's own process was ended by SIGSEGV before the test was done*",
            "*AssertionError: not c*",
            "@pytest.mark.memprof: 'lots' is not a size*",
            "@pytest.mark.memprof takes no limt; did you mean limit?",
            '@pytest.mark.memprof: "20 MiB above baseline" is written as "20 MiB", above_baseline=True',
            "@pytest.mark.memprof has no limit: write *",
            '@pytest.mark.memprof: the limit 40 has no unit, so it is in bytes: write "40 MiB"',
            "*Timeout (>2.0s) from pytest-timeout*",
            "*memprof runs this test in separate processes*",
        ]
    )
    done.stdout.re_match_lines_random(
        [
            r"(49|50)\.\d MiB, limit 40\.0 MiB: the test's peak RSS above the [\d.]+ MiB before it$",
            r"Its lines: folder=\$\(mktemp -d\) && memprof heap record --tool memray -o .* -- pytest test_\w+\.py::test_large_and_freed && .*",
            r"[\d.]+ MiB, limit 60\.0 MiB: the test's peak RSS\. The limit is less than the \d+\.\d MiB before the test: above_.*",
        ]
    )
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    small = {figure.get("name"): int(figure.get("value")) for figure in cases["test_small"].iter("property")}
    # bytes and bytearray are there together
    assert small["peak_rss_bytes"] - small["rss_before_bytes"] == pytest.approx(20 << 20, abs=1 << 20)


# A child holds its memory until memprof has seen it beside the test's: both have this much anonymous memory, less what the kernel sums late.
CHILDREN = """
import subprocess, sys
import pytest

HOLD = '''
import os, pathlib, time

def anonymous(pid):
    pages = [int(word) for word in pathlib.Path(f"/proc/{pid}/statm").read_text().split()]
    return (pages[1] - pages[2]) * os.sysconf("SC_PAGE_SIZE")

held = b"x" * (96 << 20)
draft, unseen = pathlib.Path("draft"), pathlib.Path("unseen")
draft.write_text(str(anonymous("self") + anonymous(os.getppid()) - (1 << 20)))
draft.rename(unseen)
while unseen.exists():
    time.sleep(0.01)
'''

@pytest.mark.memprof("40 MiB", above_baseline=True)
def test_program():
    subprocess.run([sys.executable, "-c", HOLD], check=True)

@pytest.mark.memprof("300 MiB")
def test_few():
    subprocess.run([sys.executable, "-c", HOLD], check=True)

@pytest.mark.memprof("40 MiB", above_baseline=True)
@pytest.mark.xfail
def test_expected():
    subprocess.run([sys.executable, "-c", HOLD], check=True)
    assert False
"""

NOTICING = """
import os, pathlib

def noticing(ask):
    unseen = pathlib.Path("unseen").absolute()

    def asking(job, message, token, live, *rest, **more):
        def seen(phase, rss_bytes):
            if unseen.exists() and rss_bytes >= int(unseen.read_text()):
                unseen.unlink()
            live(phase, rss_bytes)
        return ask(job, message, token, seen, *rest, **more)
    return asking

if "MEMPROF_PYTEST_REPORTS" not in os.environ:  # not in a test's own process
    from memprof.campaign import campaign
    campaign.ask = noticing(campaign.ask)
"""


def test_marked_test_includes_child_processes(pytester, lean):
    pytester.makepyfile(CHILDREN)
    pytester.makeconftest(NOTICING)

    done = pytester.runpytest_subprocess("--junitxml=out.xml", "-v")

    done.assert_outcomes(passed=1, failed=1, xfailed=1)
    done.stdout.fnmatch_lines_random(["*test_program FAILED*", "*test_few PASSED*"])
    said = r"(?m)^(\d+)\.\d MiB, limit 40\.0 MiB: the peak RSS of the test's process tree above .*\nThe lines of its own process: folder="
    (above,) = re.findall(said, done.stdout.str())
    assert 60 <= int(above) < 120
    few = next(case for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase") if case.get("name") == "test_few")
    peaks = {figure.get("name"): int(figure.get("value")) for figure in few.iter("property")}
    assert peaks["peak_rss_bytes"] - peaks["rss_before_bytes"] > 60 << 20


OPTIONS = """
import pytest, sys

@pytest.mark.memprof("1 GiB")
def test_options(request):
    assert request.config.getoption("mode") == "fast"
    assert request.config.getoption("level") == "3"
    assert "extra_plugin" in sys.modules
    assert request.config.getoption("verbose") == 2
    assert request.config.getoption("keyword") == "" and not request.config.getoption("xmlpath")
    assert request.config.getini("python_functions") == ["test"]
    assert str(request.config.rootpath).endswith("elsewhere")
"""


def test_marked_test_gets_command_line_options(pytester, lean):
    folder = pytester.mkdir("elsewhere")
    (folder / "test_it.py").write_text(OPTIONS)
    (folder / "mine.ini").write_text("[pytest]\naddopts = --level 3 -k test_options\npython_functions = test\n")
    pytester.makepyfile(extra_plugin="")
    options = "def pytest_addoption(parser):\n    parser.addoption('--mode')\n    parser.addoption('--level')\n"
    (folder / "conftest.py").write_text(options)
    pytester.syspathinsert()

    words = [
        "--mode",
        "fast",
        "-vv",
        "-p",
        "extra_plugin",
        "-c",
        "elsewhere/mine.ini",
        "--rootdir",
        "elsewhere",
        "--junitxml",
        "out.xml",
        "--lf",
    ]
    done = pytester.runpytest_subprocess(*words, "-k", "options", "elsewhere/test_it.py")

    done.assert_outcomes(passed=1)
    assert "test_options" in (pytester.path / "out.xml").read_text()


FIXTURE = """
import json, os, pytest

def hold(mib, times=1):
    return [b"x" * (mib << 20) for _ in range(times)]

def fail():
    raise ValueError("of its own")

def write(tmp_path):
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"load": [{"allocate": "w", "bytes": 30 << 20}], "execute": [{"spike": 20 << 20}]}))
    return path

def test_model(memprof, tmp_path):
    runs = memprof.model(write(tmp_path), "synthetic", repeats=2, set={"extra": "5MiB"})
    assert len(runs.runs) == 2
    assert runs.grown_bytes == pytest.approx(55 << 20, abs=1 << 20)
    assert runs.phase_peak_bytes("EXECUTE") == pytest.approx(runs.peak_bytes, abs=1 << 20)
    assert runs.phase_peak_bytes("MODEL_LOAD") < memprof.size("50 MiB")

def test_function(memprof):
    assert memprof.function(hold, 7, times=3).grown_bytes == pytest.approx(21 << 20, abs=1 << 20)

@pytest.mark.memprof("30 MiB")
def test_model_over(memprof, tmp_path):
    memprof.model(write(tmp_path), "synthetic")

@pytest.mark.memprof("30 MiB", above_baseline=True)
def test_function_over(memprof):
    memprof.function(hold, 10)
    memprof.function(hold, 40)

@pytest.mark.memprof("1 GiB")
def test_limit_without_a_measurement(memprof):
    pass

@pytest.mark.memprof("1 GiB")
def test_skipped_before_it_measures(memprof):
    pytest.skip("not today")

def test_function_that_grew(memprof):
    assert memprof.function(hold, 7).grown_bytes < memprof.size("1 MiB")

def test_function_fails(memprof):
    memprof.function(fail)

def test_lambda(memprof):
    memprof.function(lambda: 1)

def test_argument(memprof):
    memprof.function(hold, open(os.devnull))
"""


def test_fixture_measures_models_and_functions(pytester, lean):
    pytester.makepyfile(FIXTURE)

    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--junitxml=out.xml")

    done.assert_outcomes(passed=2, failed=7, skipped=1)
    done.stdout.re_match_lines_random(
        [
            r"(39|40)\.\d MiB, limit 30\.0 MiB: hold's peak RSS above .*",
            r"E .*where \d+ = MeasureResult\(peak_bytes=\d+, grown_bytes=\d+\)\.grown_bytes",
            r"[56]\d\.\d MiB, limit 30\.0 MiB: net\.json's peak RSS\. .* there before: above_baseline=True leaves that out",
        ]
    )
    done.stdout.fnmatch_lines_random(
        [
            "fail: in EXECUTE: ValueError: of its own",
            "*cannot be imported by another process*",
            "*its arguments cannot be handed to another process*",
            "*memprof guards nothing: the test measures nothing with its memprof fixture",
        ]
    )
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    peaks = {name: [int(figure.get("value")) for figure in case.iter("property")] for name, case in cases.items()}
    assert [len(peaks[name]) for name in ("test_function", "test_function_over", "test_function_fails")] == [1, 1, 0]
    assert peaks["test_function_over"][0] - peaks["test_function"][0] == pytest.approx(19 << 20, abs=1 << 20)  # the larger of two
    assert "fixture.py" not in done.stdout.str()  # a traceback ends with the line of the test


def test_function_of_file_outside_path(pytester, lean, tmp_path):
    """As pytest's import mode importlib has it: no folder of sys.path leads to the file."""
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart/test_it.py").write_text(FIXTURE)

    words = ["--import-mode=importlib", f"--rootdir={tmp_path}", f"{tmp_path}/apart/test_it.py::test_function"]
    pytester.runpytest_subprocess(*words).assert_outcomes(passed=1)


MEASURED = """
import os
import pytest

CALLS = []

@pytest.mark.memprof("1 MiB", leaks="0 B")
def test_marked():
    CALLS.append(os.getpid())

def test_fixture(memprof): ...

def test_after():
    assert CALLS == [os.getpid()]
"""


def test_plugin_passive_where_pytest_is_measured(pytester, lean, memprof):
    pytester.makepyfile(MEASURED)
    pytester.makeini("[pytest]\naddopts = --strict-markers\nmemprof_limit = 1MiB\n")
    words = ("-m", "pytest", "--memprof", "-rs", "--junitxml=out.xml")

    done = memprof("exec", "--repeats", "1", "-o", "runs.jsonl", "--", sys.executable, *words, cwd=pytester.path)

    assert done.returncode == 0, done.stderr
    (run,) = store.load([pytester.path / "runs.jsonl"]).runs
    assert run.processes == ()  # of several, each would be there
    cases = {case.get("name"): [part.tag for part in case] for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    assert cases == {"test_marked": [], "test_fixture": ["skipped"], "test_after": []}


def test_plugin_says_that_pytest_is_measured(pytester, lean, monkeypatch):
    pytester.makepyfile(MEASURED)
    monkeypatch.setenv("MEMPROF_MARKS", "9:1:1")

    done = pytester.runpytest_subprocess("-rs")

    done.assert_outcomes(passed=2, skipped=1)
    done.stdout.fnmatch_lines(
        [
            "memprof: memprof measures this pytest from outside: a test with its mark runs once, here and without its limit, and *",
            "SKIPPED *: memprof measures this pytest from outside, and this test would start measurements of its own",
        ]
    )


def test_plugin_unused_imports_nothing(pytester):
    pytester.makepyfile(
        "import sys\ndef test(): assert not {'memprof.doors.api', 'memprof.campaign.campaign', 'psutil', 'msgspec'} & set(sys.modules)"
    )

    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)


GROWING = """
import json
import pytest

KEPT, TEXT = [], json.dumps("y" * 65536)

@pytest.fixture
def once():
    return []

@pytest.mark.memprof(leaks="0 B")
def test_steady(once):
    once.append(1)   # set up once a process, and not kept beyond it
    bytearray(b"x" * 65536)

@pytest.mark.memprof(leaks=0)
@pytest.mark.memprof("1 GiB")
def test_leaks():
    KEPT.append(bytearray(b"x" * 65536))
    KEPT.append(json.loads(TEXT))

@pytest.mark.memprof(leaks=0)
def test_fails_later():
    KEPT.append(1)
    assert len(KEPT) < 5, "the fifth call"

@pytest.mark.memprof(per_call="0 B")
def test_wrong_words(): ...

@pytest.mark.memprof("1 GiB", "2 GiB")
def test_two_limits(): ...

@pytest.mark.memprof(leaks=0)
def test_with_the_fixture(memprof): ...
"""


# Python 3.10 has no notes.
NOTED = ["*In call 5: memprof calls a test with leaks= many times in one process. *"] if sys.version_info >= (3, 11) else []


def test_no_growth_test_called_repeatedly(pytester, lean, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    pytester.makepyfile(GROWING)
    pytester.makeconftest("from memprof.doors.pytest_plugin import isolation\nisolation._ROUNDS = (100, 300)\n")
    pytester.makeini("[pytest]\naddopts = --strict-markers\n")

    done = pytester.runpytest_subprocess("--junitxml=out.xml", "-v", "-rA", timeout=300)

    done.assert_outcomes(passed=1, failed=2, errors=3)
    done.stdout.fnmatch_lines_random(
        [
            "*test_steady PASSED*",
            "*test_leaks FAILED*",
            "12?.? KiB more per call, limit 0 B per call (95%: *). Memory rose by * MiB in * calls. It may be a cache that is not full yet: *",
            "At least 6?.? KiB of Python's objects per call stay, allocated by *repeatedly.py:18, held by the list `KEPT` of module test_*",
            "At least 6?.? KiB of Python's objects per call stay, allocated by test_no_growth_test_called_repeatedly.py:19 (in json/decoder.py:*",
            "*AssertionError: the fifth call*",
            *NOTED,
            "@pytest.mark.memprof takes no per_call; there are limit, above_baseline, repeats, leaks",
            '*write @pytest.mark.memprof("120 MiB", above_baseline=False, repeats=1, leaks="0 B"), each of them if *',
            "*with the memprof fixture write memprof.function(FUNCTION, repeats=N) and memprof.grows(FUNCTION)*",
        ]
    )
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    figures = {figure.get("name"): figure.get("value") for figure in cases["test_leaks"].iter("property")}
    assert figures["growth_verdict"] == "grows"
    assert float(figures["growth_bytes_per_call"]) == pytest.approx(2 * 65536, rel=0.1)


LIMITED = """
import os
import pytest

def test_large():
    bytearray(b"x" * (64 << 20))

@pytest.mark.memprof("1 GiB", repeats=2)
def test_repeats():
    with open("calls", "a") as file:
        file.write("x")
    if os.path.getsize("calls") == 1:
        held = bytes(bytearray(b"x" * (64 << 20)))

def test_fixture_without_measurement(memprof):
    assert memprof.size("1 KiB") == 1024
"""


def test_ini_limit_and_repeats(pytester, lean):
    pytester.makepyfile(LIMITED)
    pytester.makeini('[pytest]\nmemprof_limit = "100MiB"\n')

    done = pytester.runpytest_subprocess("--junitxml=out.xml", "-v")

    done.assert_outcomes(passed=2, failed=1)
    done.stdout.re_match_lines_random(
        [r".*test_large FAILED.*", r"[\d.]+ MiB, limit 100\.0 MiB: the test's peak RSS\. [\d.]+ MiB of it .*"]
    )
    assert (pytester.path / "calls").read_text() == "xx"
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    figures = {figure.get("name"): int(figure.get("value")) for figure in cases["test_repeats"].iter("property")}
    assert figures["peak_rss_bytes"] - figures["rss_before_bytes"] > 100 << 20  # the higher of the two


LIBRARY = """
import numpy

def widened(size):
    return numpy.ones(size, numpy.uint8).astype(numpy.float64)
"""
WIDENS = """
import pytest
from library import widened

@pytest.mark.memprof("30 MiB", above_baseline=True)
def test_widened():
    assert widened(8 << 20).sum() == 8 << 20
"""


@pytest.mark.long
def test_failed_limit_tells_how_to_see_lines(pytester, lean, monkeypatch):
    """The commands that a message ends with name the line which allocates, though numpy's C code does it: each time, and below pytest's root too."""
    pytest.importorskip("memray")
    folder = pytester.mkdir("deep")
    (folder / "library.py").write_text(LIBRARY.lstrip())
    (folder / "test_widens.py").write_text(WIDENS)
    pytester.makeini("[pytest]\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("of files")))

    failed = pytester.runpytest_subprocess()
    (words,) = re.findall(r"^Its lines: (.*)$", failed.stdout.str(), re.MULTILINE)
    for _ in range(2):
        done = subprocess.run(["sh", "-c", f"{words} --json"], cwd=folder, capture_output=True, text=True)

        assert done.returncode == 0, done.stderr
        site = json.loads(done.stdout.partition("\n")[2])["sites"][0]  # behind the name of the recorded file
        assert (site["source"], site["self_bytes"] >> 20) == ("library.py:4", 72)


def test_run_without_plugin_ends_where_required(pytester, monkeypatch):
    """The ini file's line that docs/pytest.md names: without it a mark would check nothing."""
    pytester.makeini("[pytest]\nrequired_plugins = ml-memprof\n")
    pytester.makepyfile("def test_it():\n    pass\n")

    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    done = pytester.runpytest_subprocess()

    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*Missing required plugins: ml-memprof*"])


ABOVE = """
import pytest

def test_large():
    bytearray(b"x" * (64 << 20))

@pytest.mark.memprof(repeats=1)
def test_marked():
    bytearray(b"x" * (64 << 20))

def test_small():
    bytearray(b"x" * (8 << 20))

@pytest.mark.memprof("1 GiB")
def test_of_own_limit():
    bytearray(b"x" * (64 << 20))

@pytest.mark.memprof("60 MiB")
def test_of_own_absolute_limit():
    bytearray(b"x" * (48 << 20))
"""


def test_ini_limit_above_baseline(pytester, lean):
    pytester.makepyfile(ABOVE)
    pytester.makeini("[pytest]\nmemprof_limit = 50MiB above baseline\n")

    done = pytester.runpytest_subprocess("-v")

    done.assert_outcomes(passed=2, failed=3)
    above = r"1?[0-9]{2,}\.\d MiB, limit 50\.0 MiB: the test's peak RSS above the [\d.]+ MiB before it"
    assert len(re.findall(above, done.stdout.str())) == 2
    done.stdout.re_match_lines_random([r"[\d.]+ MiB, limit 60\.0 MiB: the test's peak RSS\. .*", r".*test_small PASSED.*"])


def test_ini_limit_without_unit_is_sentence(pytester, lean):
    pytester.makepyfile("def test_any(): ...")
    pytester.makeini('[pytest]\nmemprof_limit = "300"\n')

    done = pytester.runpytest_subprocess()

    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines_random(['*memprof_limit: the limit 300 has no unit, so it is in bytes: write "300 MiB"'])


# What pytest-benchmark's fixture has that memprof uses: its name, a call, extra_info; and its plug-in's name and option.
BENCHMARK = """
import pytest

class Plugin:
    def pytest_addoption(self, parser):
        parser.addoption("--benchmark-disable", action="store_true")
        parser.addoption("--benchmark-json")

    def pytest_configure(self, config):
        config.addinivalue_line("markers", "x: y")

    @pytest.fixture
    def benchmark(self, request):
        once = request.config.getoption("--benchmark-disable")
        def call(function):
            for _ in range(1 if once else 3):
                function()
        call.extra_info = {}
        yield call
        if not once:
            with open("figures", "w") as file:
                file.write(str(sorted(call.extra_info)))

def pytest_addoption(parser, pluginmanager):
    plugin = Plugin()
    pluginmanager.register(plugin, "benchmark")
"""


def test_benchmark_peak_beside_times(pytester, lean):
    pytester.makeconftest(BENCHMARK)
    pytester.makepyfile(
        "def hold():\n    open('calls', 'a').write('x')\n    bytearray(b'x' * (32 << 20))\n"
        "def test_it(benchmark):\n    benchmark(hold)\n"
        "def test_other(): ...\n"
    )

    done = pytester.runpytest_subprocess("--memprof", "--benchmark-json", "times.json")

    done.assert_outcomes(passed=2)
    done.stdout.re_match_lines(
        [
            r"=+ memprof: the memory of each test =+",
            r" +peak RSS +in the test +per call +time  test",
            r" +[\d.]+ MiB +\+6[345]\.\d MiB +- +[\d.]+ m?s  .*::test_it$",
            r" +[\d.]+ MiB +\+.* +- +[\d.]+ m?s  .*::test_other$",
        ],
        consecutive=True,
    )
    assert (pytester.path / "calls").read_text() == "xxxx"  # once for its peak, three times for its times
    assert (pytester.path / "figures").read_text() == "['peak_rss_bytes', 'rss_before_bytes']"


def test_fixture_grows_of_functions(pytester, lean):
    pytester.makepyfile(
        work="KEPT = []\ndef leak(size):\n    KEPT.append(bytearray(b'x' * size))\ndef fine():\n    bytearray(b'x' * 65536)\n"
        "def fail():\n    raise ValueError('not today')\n"
    )
    pytester.makepyfile(
        test_it="import pytest\nimport work\nfrom memprof.doors.pytest_plugin import fixture\nfrom memprof.growth.grow import grow\n"
        "grow.FIRST_UNITS = 200\n"
        "fixture._BUDGET_NS = 60 * 10**9\n"
        "def test_leak(memprof):\n    grows = memprof.grows(work.leak, 65536)\n    assert 60000 < grows.verdict.slope < 70000\n    assert not grows\n"
        "def test_fine(memprof):\n    assert not memprof.grows(work.fine)\n"
        "def test_fails(memprof):\n    memprof.grows(work.fail)\n"
    )

    done = pytester.runpytest_subprocess("--memprof", "--junitxml=out.xml", timeout=300)

    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines_random(
        [
            "*assert not Grows(6?.? KiB per call, work.py:3)",
            "*Captured memprof call*",
            "leak: 6?.? KiB more per call (95%: *",
            "At least 6?.? KiB of Python's objects per call stay, allocated by work.py:3, held by the list `KEPT` of module work",
            "FAILED test_it.py::test_leak - assert not Grows(6?.? KiB per call, work.py:3)",
            "*ValueError: not today*",
            " *-            -     6?.? KiB *::test_leak",
            " *-            - * < *B *::test_fine",
            "Per call, `< N` is the verdict steady or bounded: growth below N per call could hide.",
        ]
    )
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    (reason,) = (each.get("value") for each in cases["test_leak"].iter("property") if each.get("name") == "growth_reason")
    assert "It may be a cache that is not full yet\n" in reason and "held by the list `KEPT` of module work" in reason


SHOWN = """
import os, time
import pytest

KEPT = []

def test_plain():
    time.sleep(0.2)
    bytearray(b"x" * (32 << 20))

@pytest.mark.memprof(leaks="1 MiB")
def test_leak():
    KEPT.append(bytearray(b"x" * 65536))

def test_fixture(memprof):
    memprof.function(os.getpid)

@pytest.mark.memprof("1 B", above_baseline=True)
def test_over():
    KEPT.append(b"x" * (8 << 20))
"""


FREED = """
import itertools, pytest

FREED = [float(number) for number in range(40_000)]  # memory of small objects that the interpreter keeps, and of large ones that glibc keeps
HOLES, LARGE = FREED[::97], [bytes(1000) for _ in range(4_000)]
del FREED, LARGE[1::2]
COUNT = itertools.count()
SEEN, LARGER = {}, []

@pytest.mark.memprof(leaks="0 B")
def test_small_objects():
    SEEN[f"text {next(COUNT)}"] = str(next(COUNT))

@pytest.mark.memprof(leaks="2 KiB")  # a test that fails takes one more process, for its lines
def test_large_objects():
    LARGER.append(bytes(1000))

@pytest.mark.memprof(leaks="0 B")
def test_steady():
    cycle = [bytes(100), {"text": str(next(COUNT))}]
    cycle.append(cycle)
"""


def test_leak_that_fills_freed_memory_found(pytester, lean):
    """The resident set of these tests does not move: memory that was freed before has room for all that they keep."""
    pytester.makepyfile(FREED)
    pytester.makeconftest("from memprof.doors.pytest_plugin import isolation\nisolation._ROUNDS = (1000,)\n")

    done = pytester.runpytest_subprocess("--junitxml=out.xml", timeout=300)

    done.assert_outcomes(passed=2, failed=1)
    cases = ElementTree.parse(pytester.path / "out.xml").iter("testcase")
    figures = {case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")} for case in cases}
    small, large = (float(figures[name]["growth_bytes_per_call"]) for name in ("test_small_objects", "test_large_objects"))
    assert 90 < small < 200  # two texts of 56 bytes and their place in a dict
    assert 1000 < large < 1100 and figures["test_large_objects"]["growth_verdict"] == "grows"
    assert figures["test_steady"]["growth_verdict"] == "steady"
    assert float(figures["test_steady"]["growth_hidden_bytes_per_call"]) < 16
    assert "held by the dict `SEEN` of module" in done.stdout.str()
    assert "looking for leaks" not in done.stdout.str(), "that is for a terminal"


ENDS = """
import os, tracemalloc

from memprof.doors.pytest_plugin import isolation, worker

isolation._ROUNDS = (100,)

def pytest_sessionfinish():  # where plugins import
    if worker.LINES in os.environ:
        with open("end.txt", "w") as file:
            file.write(str(tracemalloc.is_tracing()))
"""


ON_TERMINAL = """
def pytest_runtestloop(session):
    session.config.pluginmanager.get_plugin("terminalreporter").isatty = True
"""


def test_trace_of_leak_ends_before_session(pytester, lean):
    """Imports under tracemalloc take many times as long. A terminal is told what takes time."""
    pytester.makepyfile(
        'import pytest\nKEPT = []\n@pytest.mark.memprof(leaks="0 B")\ndef test_leak(): KEPT.append(bytearray(b"x" * 65536))\n'
    )
    pytester.makeconftest(ENDS + ON_TERMINAL)

    done = pytester.runpytest_subprocess()

    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "memprof: test_leak: looking for leaks: 3 processes, up to 100 calls in each",
            "memprof: test_leak: it leaks: one more process finds the lines that allocate what stays",
            "*held by the list `KEPT` of module *",
        ]
    )
    assert (pytester.path / "end.txt").read_text() == "False"


def test_memprof_option_shows_each_test(pytester, lean):
    pytester.makepyfile(SHOWN)
    pytester.makeconftest("from memprof.doors.pytest_plugin import isolation\nisolation._ROUNDS = (100, 300)\n")

    done = pytester.runpytest_subprocess("--memprof", "--junitxml=out.xml", "--durations=0")

    done.assert_outcomes(passed=3, failed=1)
    done.stdout.re_match_lines_random(
        [
            r" +[\d.]+ MiB +\+6[345]\.\d MiB +- +[\d.]+ m?s  .*::test_plain$",  # bytes and bytearray are there together
            r" +[\d.]+ MiB +\+.* +6\d\.\d KiB +[\d.]+ m?s  .*::test_leak$",
            r" +[\d.]+ MiB +- +- +[\d.]+ m?s  .*::test_fixture$",
        ]
    )
    assert "could hide" not in done.stdout.str()  # of steady tests alone
    assert "Leaks were not looked for" not in done.stdout.str()
    cases = {case.get("name"): case for case in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    figures = {name: {each.get("name"): each.get("value") for each in case.iter("property")} for name, case in cases.items()}
    assert figures["test_leak"]["growth_verdict"] == "grows"
    (shown,) = re.findall(r"(?m)^ +[\d.]+ MiB +\+(.*?)  .*::test_over$", done.stdout.str())
    assert f"{shown}, limit 1 B: the test's peak RSS above the " in done.stdout.str()  # the table has what was judged
    # Four processes and their starts, of which each call by itself takes microseconds.
    assert float(cases["test_leak"].get("time")) > 4 * 0.05
    done.stdout.re_match_lines([r"\d+\.\d\ds call .*::test_leak"])


@pytest.mark.parametrize("style", ["auto", "line", "no"])
def test_memprof_option_has_commands_once(pytester, lean, style):
    """The message of a test over its limit has them, if pytest shows it; leaks are looked for where a mark or a fixture does."""
    pytester.makepyfile('import pytest\n@pytest.mark.memprof("1 MiB")\ndef test_over(): pass\n')

    done = pytester.runpytest_subprocess("--memprof", f"--tb={style}")

    done.assert_outcomes(failed=1)
    shown = done.stdout.str()
    assert shown.count("memprof heap record") == 1
    assert 'Leaks were not looked for: @pytest.mark.memprof(leaks="0 B") or memprof.grows of the fixture looks for them.' in shown


def test_memprof_option_names_reason_for_nothing(pytester, lean):
    pytester.makepyfile("import pytest\ndef test_any(): pytest.skip()\n")

    done = pytester.runpytest_subprocess("--memprof")

    done.stdout.fnmatch_lines(
        ["*memprof: the memory of each test*", "No test was measured: those that ran were skipped, failed, or *"], consecutive=True
    )


def test_mark_for_several_tests(pytester, lean):
    mark = "pytest.mark.memprof('1 MiB', above_baseline=True)"
    tests = "def test_any(): bytearray(b'x' * (8 << 20))\n@pytest.mark.memprof('1 GiB')\ndef test_own(): bytearray(b'x' * (8 << 20))\n"
    pytester.makepyfile(test_module=f"import pytest\npytestmark = {mark}\n{tests}", test_hook=f"import pytest\n{tests}")
    pytester.makeconftest(
        "import pytest\ndef pytest_collection_modifyitems(items):\n    for item in items:\n"
        f"        if item.path.stem == 'test_hook':\n            item.add_marker({mark})\n"
    )

    done = pytester.runpytest_subprocess("-rA")

    done.assert_outcomes(passed=2, failed=2)
    for file in ("test_module.py", "test_hook.py"):
        done.stdout.fnmatch_lines_random([f"PASSED {file}::test_own", f"FAILED {file}::test_any *"])


def test_verbose_costs_no_memory(pytester, lean):
    pytester.makeconftest("KEPT = []\ndef pytest_report_header(config):\n    KEPT.append(b'x' * (config.option.verbose << 26))\n")
    pytester.makepyfile("import pytest, conftest\n@pytest.mark.memprof('1 GiB')\ndef test_header(): assert not conftest.KEPT\n")

    pytester.runpytest_subprocess("-v").assert_outcomes(passed=1)


def test_ci_example_keeps_figures(pytester, lean):
    example = Path(__file__).parents[2] / "docs" / "examples" / "github" / "memprof-pytest.yml"
    *_, tests, upload = yaml.safe_load(example.read_text())["jobs"]["tests"]["steps"]
    pytest_word, *words = tests["run"].split()
    pytester.makepyfile("import pytest\n@pytest.mark.memprof('1 GiB')\ndef test_it(): ...\n")

    done = pytester.runpytest_subprocess(*words)

    done.assert_outcomes(passed=1)
    assert pytest_word == "pytest"
    assert "peak_rss_bytes" in (pytester.path / upload["with"]["path"]).read_text()
