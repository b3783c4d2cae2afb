"""`memprof doctor`: known allocations against what is said of them on this machine, and every look at files against roots made for it."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.doctor_roots import Root, printed, report, root  # noqa: F401  (the fixtures)

from memprof.doctor import process
from memprof.doctor import report as doctor
from memprof.doctor.machine import emulation
from memprof.doctor.report import DoctorReport
from memprof.doors.cli.doctor import command
from memprof.places.machine import this_machine
from memprof.places.place import HERE

pytestmark = pytest.mark.xdist_group("doctor")  # one worker makes what its tests share

Memprof = Callable[..., subprocess.CompletedProcess[str]]


def test_checks_have_state_and_meaning(report: DoctorReport) -> None:
    names = {check.name for check in report.checks}
    assert len(names) == len(report.checks)
    assert names >= {
        "high-water mark",
        "polling",
        "smaps_rollup",
        "allocator",
        "statm, status",
        "cgroup memory",
        "soft-dirty",
        "idle pages",
    }
    assert names >= {"pressure (PSI)", "CPUs", "load", "memory", "swap", "huge pages", "interpreter", "end of processes", "address layout"}
    assert names >= {"ptrace", "memprof", "valgrind", "heaptrack", "perf", "gdb"}
    for check in report.checks:
        assert check.found
        assert check.meaning or check.state == "unknown"


def test_doctor_with_unwritable_cache(memprof: Memprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    done = memprof("doctor", "--json")
    content = json.loads(done.stdout)
    assert done.returncode == 4
    assert content["verdict"].startswith("nothing could be measured here: ")
    assert "XDG_CACHE_HOME" in content["failure"]
    states = {check["name"]: check["state"] for check in content["checks"]}
    assert states["high-water mark"] == "unknown"
    assert states["CPUs"] != "unknown"


def test_doctor_imports_nothing_heavy() -> None:
    code = "import sys, memprof.doctor, memprof.doors.cli.doctor, memprof.doors.cli.progress; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pandas", "numpy", "matplotlib", "scipy"} & set(loaded)


def test_emulation_none_on_native_machine() -> None:
    assert emulation(HERE)[:2] == ("ok", "none")


def test_looks_without_readable_files(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    machine = this_machine()
    checks = {check.name: check for check in doctor.looks("/nowhere/python", machine, root({}))}
    for name in ("cgroup memory", "memory", "swap", "huge pages", "idle pages", "interpreter"):
        assert checks[name].state == "unknown"
        assert checks[name].found.startswith("cannot be told (")
    assert {checks[name].state for name in ("valgrind", "heaptrack", "perf", "gdb")} == {"missing"}


def test_path_files_name_editable_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    venv.create(tmp_path / "other", symlinks=True)
    python = tmp_path / "other/bin/python"
    assert process.path_files(str(python))[0] == "ok"
    (packages,) = (tmp_path / "other").glob("lib/python*/site-packages")
    (packages / "thing.pth").write_text("import decimal, email.message, http.client\n")
    assert "without -e" not in process.path_files(str(python))[2]
    facts = packages / "thing-1.0.dist-info"
    facts.mkdir()
    (facts / "direct_url.json").write_text('{"url": "file:///thing", "dir_info": {"editable": true}}')
    (facts / "RECORD").write_text("thing.pth,sha256=x,1\nthing-1.0.dist-info/RECORD,,\n")
    state, fact, meaning = process.path_files(str(python))
    assert state == "limited"
    assert str(python) in fact
    assert "thing.pth" in fact
    assert int(meaning.partition("put ")[2].split()[0]) >= 10
    assert "without -e" in meaning


def test_interpreter_check_quotes_failure(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    broken.chmod(0o755)
    machine = this_machine()
    checks = {check.name: check for check in doctor.looks(str(broken), machine)}
    assert checks["interpreter"].found == "cannot be told (ValueError: no such thing)"


def test_tools_by_version_output(root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in {
        "valgrind": "echo valgrind-3.99.1",
        "gdb": "echo 'GNU gdb (Debian 13.1-3) 14.2'; echo more",
        "perf": "echo 'WARNING: perf not found for kernel 6.1.0'; exit 2",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = this_machine()
    checks = {check.name: (check.state, check.found) for check in doctor.looks(sys.executable, machine, root({}))}
    assert checks["valgrind"] == ("ok", "3.99.1")
    assert checks["gdb"] == ("ok", "14.2")
    assert checks["perf"] == ("limited", f"{tmp_path}/perf does not start")
    assert checks["heaptrack"] == ("missing", "not on PATH")


MIB = 1 << 20


MS = 1_000_000


def test_transients_of_every_length(report: DoctorReport) -> None:
    kinds = [(seen.threads, seen.held_ns) for seen in report.transients]
    assert kinds == [(1, 0), (1, MS // 10), (1, MS), (1, 10 * MS), (1, 100 * MS), (8, 0), (8, MS), (8, 100 * MS)]
    assert all(seen.repeats >= 1 and seen.took_ns > seen.held_ns for seen in report.transients)


def test_peak_error_within_bound(report: DoctorReport) -> None:
    if not report.peak_exact:
        pytest.skip("the high-water mark cannot be reset here")
    bound = max(0.4 * MIB, report.machine.peak_bound_bytes)
    for seen in report.transients:
        if seen.threads == 1:
            assert seen.peak_error_bytes is not None
        # Stacks of threads can be huge pages of their own.
        if seen.peak_error_bytes is not None and (seen.threads == 1 or report.machine.huge_pages != "always"):
            assert abs(seen.peak_error_bytes) <= bound, seen


def test_unreset_hwm_reports_earlier_peak(report: DoctorReport) -> None:
    for seen in report.transients:
        if seen.threads == 1:
            assert seen.hwm_error_bytes is not None
            assert 0.15 * seen.bytes < seen.hwm_error_bytes < 0.25 * seen.bytes


def test_polling_error_never_above_peak(report: DoctorReport) -> None:
    """How much less it shows is up to the machine: a busy one lets nobody poll for as long as a transient is there."""
    bound = max(0.4 * MIB, report.machine.peak_bound_bytes)
    for seen in report.transients:
        assert seen.polled_1ms_error_bytes is not None
        assert seen.threads > 1 or -seen.bytes - bound <= seen.polled_1ms_error_bytes <= bound, seen
        assert seen.polled_50ms_error_bytes is not None
        assert seen.polled_50ms_median_error_bytes is not None


def test_polling_interval(report: DoctorReport) -> None:
    assert report.polling is not None
    assert report.polling.polls > 10
    assert 0.9 * MS < report.polling.median_ns <= report.polling.p99_ns


def test_verdict_never_finer_than_bound(report: DoctorReport) -> None:
    if report.peak_exact:
        assert report.verdict.startswith("peaks are exact to ")
        assert float(report.verdict.split()[4]) * MIB >= max(report.machine.peak_bound_bytes, abs(report.peak_error_bytes or 0))


@pytest.mark.parametrize("width", [80, 120])
def test_printed_report_fits_width(report: DoctorReport, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_: report)
    done = CliRunner().invoke(command, [], env={"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"}, standalone_mode=False)
    lines = done.stdout.splitlines()
    assert done.return_value == 0
    assert max(map(len, lines)) <= width
    assert "\x1b" not in done.stdout
    assert all(line == line.rstrip() for line in lines)
    flat = " ".join(done.stdout.split())
    for check in report.checks:
        assert f"{check.state} {check.name} {check.found.split()[0]}" in flat
        assert "".join(check.meaning.split()) in "".join(flat.split())
    assert flat.endswith(report.verdict)
