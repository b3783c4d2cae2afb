"""`memprof doctor`: known allocations against what is said of them on this machine, and every look at files against roots made for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support import sample_runs
from support.doctor_roots import Root, root  # noqa: F401  (the fixture)

from memprof.doctor import kernel, known_allocations, process, tools
from memprof.doctor import report as doctor
from memprof.doctor.known_allocations import KnownAllocations, Transient
from memprof.doctor.machine import emulation, huge_pages, load, memory, processors, swap
from memprof.doctor.report import mirror
from memprof.places import cgroups
from memprof.records.store import TimelineColumns

MIB = 1 << 20
MS = 1_000_000
Memprof = Callable[..., subprocess.CompletedProcess[str]]


def test_missing_interpreter_refused(memprof: Memprof) -> None:
    done = memprof("doctor", "--python", "/nowhere/python")
    assert (done.returncode, done.stdout) == (5, "")
    assert "/nowhere/python: no such interpreter" in done.stderr


def test_help_example(memprof: Memprof) -> None:
    assert "Example: memprof doctor" in memprof("doctor", "--help").stdout


def known_run() -> KnownAllocations:
    """A run with a sample every millisecond: 100 MiB touched in 10 ms and freed in PREPARE; the same in EXECUTE, held for 100 ms."""
    samples, marks = [(0, 0, 0, 0)], []
    for index, (phase, held) in enumerate((("PREPARE", 0), ("EXECUTE", 100)), 1):
        mark = sample_runs.mark(phase, index, 0, 100)
        samples += [(mark.begin_ns + ms * MS, min(10 * ms, 100) * MIB if ms <= 10 + held else 0, 0, 0) for ms in range(13 + held)]
        marks.append(replace(mark, end_ns=samples[-1][0], hwm_bytes=120 * MIB))
    return KnownAllocations(((1, 0), (1, 100 * MS)), replace(sample_runs.run(), marks=tuple(marks), timeline=sample_runs.timeline(samples)))


def test_slow_polling_misses_short_transient() -> None:
    short, long = known_allocations.compared([known_run()], 100 * MIB)
    assert (short.polled_1ms_error_bytes, short.polled_50ms_error_bytes, short.polled_50ms_median_error_bytes) == (
        0,
        -100 * MIB,
        -100 * MIB,
    )
    assert (long.polled_1ms_error_bytes, long.polled_50ms_error_bytes, long.polled_50ms_median_error_bytes) == (0, 0, 0)
    assert {(seen.took_ns // MS, seen.peak_error_bytes, seen.hwm_error_bytes) for seen in (short, long)} == {
        (12, 0, 20 * MIB),
        (112, 0, 20 * MIB),
    }


def test_comparison_reports_worst_repeat() -> None:
    better, worse = known_run(), known_run()
    marks = tuple(replace(mark, rss_peak_bytes=99 * MIB) for mark in worse.run.marks)
    worse = replace(worse, run=replace(worse.run, marks=marks))
    assert {(seen.repeats, seen.peak_error_bytes) for seen in known_allocations.compared([better, worse, better], 100 * MIB)} == {(3, -MIB)}


def test_polled_peaks_depend_on_start() -> None:
    # 10 ms at 100, within 100 ms at 1.
    columns = TimelineColumns(t_ns=[0, 40 * MS, 50 * MS, 100 * MS], rss=[1, 100, 1, 1], file=[], vms=[])
    peaks = known_allocations.polled_peaks(columns, 0, 100 * MS, 50 * MS)
    assert sorted(set(peaks)) == [1, 100]
    assert peaks.count(100) == 10
    assert known_allocations.polled_peaks(columns, 0, 100 * MS, 10 * MS) == [100] * len(peaks)


def test_polled_peaks_of_short_phase() -> None:
    columns = TimelineColumns(t_ns=[0, 2 * MS, 3 * MS], rss=[7, 100, 7], file=[], vms=[])
    peaks = known_allocations.polled_peaks(columns, 1 * MS, 4 * MS, 50 * MS)
    assert set(peaks) == {7, 100}
    assert peaks.count(100) == 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 100))
def test_polled_peaks_never_above_maximum(rss: list[int], period: int) -> None:
    columns = TimelineColumns(t_ns=list(range(len(rss))), rss=rss, file=[], vms=[])
    assert max(known_allocations.polled_peaks(columns, 0, len(rss) - 1, period)) <= max(rss)
    assert known_allocations.polled_peaks(columns, 0, len(rss) - 1, 1)[0] == max(rss)


def transient(peak: int | None, slow: int | None = -50 * MIB) -> Transient:
    return Transient(1, 0, 100 * MIB, 3, 80 * MS, peak, 20 * MIB, -1 * MIB, slow, slow)


@pytest.mark.parametrize(
    ("errors", "bound", "exact", "sentence"),
    [
        ([-0.1], 0.25, True, "peaks are exact to 0.25 MiB here (polling every 50 ms: up to 50 MiB missed)"),
        ([-0.301, 0.1], 0.25, True, "peaks are exact to 0.31 MiB here (polling every 50 ms: up to 50 MiB missed)"),
        ([-0.1, None], 32, True, "peaks are exact to 32.00 MiB here (polling every 50 ms: up to 50 MiB missed)"),
        ([-3.5, 0], 0.25, False, "peaks are not exact here: the high-water mark cannot be reset, and polling was 3.5 MiB off"),
    ],
)
def test_verdict_of_larger_error_or_bound(errors: list[float | None], bound: float, exact: bool, sentence: str) -> None:
    transients = [transient(None if error is None else int(error * MIB)) for error in errors]
    assert doctor.verdict(transients, int(bound * MIB), exact, None) == sentence


def test_verdict_of_failure() -> None:
    assert doctor.verdict([], MIB, False, "no recorder") == "nothing could be measured here: no recorder"


@pytest.mark.parametrize(
    ("peak", "exact", "sentence"),
    [
        (99.6, True, "peaks of programs are exact to 0.50 MiB here (a program that holds 100.0 MiB was measured with 99.6 MiB)"),
        (99.4, True, "peaks are not exact here: a program that holds 100.0 MiB was measured with 99.4 MiB"),
        (101, False, "peaks are not exact here: a program that holds 100.0 MiB was measured with 101.0 MiB"),
    ],
)
def test_verdict_by_program(peak: float, exact: bool, sentence: str) -> None:
    assert doctor.program_verdict(int(peak * MIB), 100 * MIB, MIB // 2, exact, None) == sentence
    by_thread = doctor.program_verdict(int(peak * MIB), 100 * MIB, MIB // 2, exact, None, by_thread=True)
    assert by_thread == sentence.replace(" MiB here", " MiB for each thread here")
    assert doctor.program_verdict(0, MIB, MIB, False, "no recorder") == "nothing could be measured here: no recorder"


@pytest.mark.parametrize(
    ("release", "state", "word"),
    [
        ("6.18.44-fc-v657", "ok", "exact sums"),
        ("6.17", "ok", "exact sums"),
        ("6.12.48+deb13-amd64", "limited", "each CPU"),
        ("6.2.0", "limited", "each CPU"),
        ("6.1.0-18-arm64", "limited", "each thread"),
        ("4.19.191+", "limited", "each thread"),
        ("strange", "unknown", "cannot be told"),
    ],
)
def test_counters_by_kernel_release(release: str, state: str, word: str) -> None:
    finding = kernel.counters(release)
    assert finding[0] == state
    assert word in finding[1]


V1_MOUNT = "35 31 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
NO_LIMIT = "9223372036854771712\n"


def test_cgroup_v1_least_parent_limit(root: Root) -> None:
    folder = "/sys/fs/cgroup/memory"
    place = root(
        {
            "/proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/job/step\n0::/\n",
            "/proc/self/mountinfo": V1_MOUNT + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            f"{folder}/memory.limit_in_bytes": NO_LIMIT,
            f"{folder}/job/memory.limit_in_bytes": f"{512 * MIB}\n",
            f"{folder}/job/step/memory.limit_in_bytes": NO_LIMIT,
        }
    )
    group = cgroups.memory_group(place)
    assert group == cgroups.MemoryGroup(1, place / "sys/fs/cgroup/memory/job/step", 512 * MIB)
    state, fact, _ = kernel.control_group(place)
    # A new folder of a real cgroup holds files; here it holds none, so that the reset was not tried.
    assert (state, fact) == ("limited", "v1, limit 512.0 MiB, groups can be made, peak not tried")
    assert [entry.name for entry in group.folder.iterdir()] == ["memory.limit_in_bytes"]


def test_cgroup_v2_without_new_groups(root: Root) -> None:
    place = root(
        {
            "/proc/self/cgroup": "0::/user.slice\n",
            "/proc/self/mountinfo": V2_MOUNT,
            "/sys/fs/cgroup/user.slice/cgroup.controllers": "cpu memory pids\n",
            "/sys/fs/cgroup/user.slice/memory.max": "max\n",
            "/sys/fs/cgroup/user.slice/memory.peak": "1\n",
            f"/sys/fs/cgroup/user.slice/memprof-doctor-{os.getpid()}": "in the way",
        }
    )
    assert kernel.control_group(place)[:2] == ("limited", "v2, no limit, no groups can be made, peak can be reset")


def test_cgroup_of_container(root: Root) -> None:
    place = root(
        {
            "/proc/self/cgroup": "4:memory:/docker/abc\n",
            "/proc/self/mountinfo": V1_MOUNT.replace("0:31 / ", "0:31 /docker/abc "),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{MIB}\n",
        }
    )
    assert cgroups.memory_group(place) == cgroups.MemoryGroup(1, place / "sys/fs/cgroup/memory", MIB)


def test_cgroup_memory_controller_missing(root: Root) -> None:
    files = {"/proc/self/cgroup": "0::/\n", "/proc/self/mountinfo": V2_MOUNT, "/sys/fs/cgroup/cgroup.controllers": "cpu pids\n"}
    assert kernel.control_group(root(files))[0] == "missing"
    assert kernel.control_group(root({**files, "/proc/self/mountinfo": ""}))[0] == "missing"


def test_transient_size_under_small_limit(root: Root) -> None:
    files = {
        "/proc/meminfo": "MemAvailable: 9000000 kB\n",
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": V2_MOUNT,
        "/sys/fs/cgroup/cgroup.controllers": "memory\n",
    }
    assert known_allocations.transient_bytes(root(files)) == 100 * MIB
    assert known_allocations.transient_bytes(root({**files, "/sys/fs/cgroup/memory.max": f"{256 * MIB}"})) == 8 * MIB
    assert known_allocations.transient_bytes(root({**files, "/proc/meminfo": "MemAvailable: 100000 kB\n"})) == 8 * MIB


@pytest.mark.parametrize(
    ("text", "state", "fact"),
    [
        ("[always] madvise never\n", "limited", "always"),
        ("always [madvise] never\n", "ok", "madvise"),
        ("always madvise [never]\n", "ok", "never"),
        ("strange\n", "unknown", "cannot be told ('strange')"),
    ],
)
def test_huge_pages_states(root: Root, text: str, state: str, fact: str) -> None:
    folder = "/sys/kernel/mm/transparent_hugepage"
    place = root({f"{folder}/enabled": text, f"{folder}/hpage_pmd_size": "33554432\n"})
    assert huge_pages(place)[:2] == (state, fact)
    assert "32.0 MiB" in huge_pages(place)[2] or fact != "always"


def test_hidden_sys_files_unknown(root: Root) -> None:
    assert huge_pages(root({}))[0] == kernel.idle_pages(root({}))[0] == "unknown"
    place = root({"/sys/kernel/mm/ksm/run": "0\n"})
    assert huge_pages(place)[:2] == ("ok", "not in this kernel")
    assert kernel.idle_pages(place)[0] == "missing"


@pytest.mark.parametrize(
    ("total", "free", "state", "fact"),
    [
        (0, 0, "ok", "none"),
        (1048576, 1048576, "ok", "0 B of 1.00 GiB used"),
        (1048576, 524288, "limited", "512.0 MiB of 1.00 GiB used"),
    ],
)
def test_swap_use_limits(root: Root, total: int, free: int, state: str, fact: str) -> None:
    assert swap(root({"/proc/meminfo": f"SwapTotal: {total} kB\nSwapFree: {free} kB\n"}))[:2] == (state, fact)


@pytest.mark.parametrize(("devices", "ending"), [(["zram0"], ", zram alone"), (["zram0", "sda2"], ", zram among it"), (["sda2"], " used")])
def test_swap_on_zram(root: Root, devices: list[str], ending: str) -> None:
    lines = "".join(f"/dev/{name} partition 524284 0 -2\n" for name in devices)
    place = root(
        {"/proc/meminfo": "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB\n", "/proc/swaps": f"Filename Type Size Used Priority\n{lines}"}
    )
    assert swap(place)[1].endswith(ending)


class Answers:
    """A place whose programs print this, by their last word."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def run(self, words: list[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        text = self._texts.get(words[-1])
        return subprocess.CompletedProcess(words, text is None, (text or "").encode(), b"")


def test_swap_of_other_machine(tmp_path: Path) -> None:
    swaps = "Filename Type Size Used Priority\n/dev/zram0 partition 524284 0 -2\n"
    place: Any = Answers({"/proc/meminfo": "SwapTotal: 1048576 kB\nSwapFree: 1048576 kB\n", "/proc/swaps": swaps})
    mirror(place, tmp_path)
    assert swap(tmp_path)[1].endswith("zram alone")


@pytest.mark.parametrize(
    ("exe", "state", "fact"),
    [
        ("/bin/busybox", "ok", "none"),
        ("/usr/libexec/qemu-binfmt/qemu-aarch64-static", "limited", "QEMU's user mode (qemu-aarch64-static)"),
        ("", "unknown", "is not known"),
    ],
)
def test_emulation_recognised(exe: str, state: str, fact: str) -> None:
    """By what a shell's child reads: a container of arm64 under QEMU 7.2 says the second, and /proc/cpuinfo there is the host's."""
    place: Any = Answers({"readlink /proc/$$/exe; :": f"{exe}\n"})
    found = emulation(place)
    assert found[0] == state and found[1].startswith(fact)


def test_memory_shortage_limits(root: Root) -> None:
    assert memory(root({"/proc/meminfo": "MemTotal: 1048576 kB\nMemAvailable: 102400 kB\n"}))[0] == "limited"
    assert memory(root({"/proc/meminfo": "MemTotal: 1048576 kB\nMemAvailable: 1024000 kB\n"}))[0] == "ok"


def test_pressure_stalls_limit(root: Root) -> None:
    assert kernel.pressure(root({}))[0] == "missing"
    assert kernel.pressure(root({"/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"}))[0] == "ok"
    state, fact, _ = kernel.pressure(root({"/proc/pressure/memory": "some avg10=12.50 avg60=0.00 avg300=0.00 total=9\n"}))
    assert state == "limited"
    assert "12.50%" in fact


@pytest.mark.parametrize(
    ("cpus", "usable", "bound", "state"), [(2, 2, MIB // 4, "ok"), (8, 2, MIB, "limited"), (64, 64, 32 * MIB, "limited")]
)
def test_processors_widen_bound(cpus: int, usable: int, bound: int, state: str) -> None:
    finding = processors(cpus, usable, bound, by_thread=False)
    assert finding[0] == state
    assert f"{bound / MIB:.2f} MiB;" in finding[2]
    assert f"{bound / MIB:.2f} MiB for each thread;" in processors(cpus, usable, bound, by_thread=True)[2]


def test_load_limits() -> None:
    assert load(3.0)[0] == "ok"
    assert load(60.0)[:2] == ("limited", "60% of the CPUs are busy")


def test_path_files_with_code(tmp_path: Path) -> None:
    for name, text in {
        "__editable__.thing.pth": "import __editable___thing_finder; __editable___thing_finder.install()",
        "path.pth": "/somewhere/src\n# import this\nimportant\n",
        "tab.pth": "/somewhere\nimport\tos\n",
        ".hidden.pth": "import os\n",
        "import.txt": "import os\n",
    }.items():
        (tmp_path / name).write_text(text)
    executed = process.executed_path_files([tmp_path, tmp_path, tmp_path / "missing"])
    assert [file.name for file in executed] == ["__editable__.thing.pth", "tab.pth"]


def test_process_checks_change_nothing() -> None:
    before = Path("/proc/self/personality").read_text()
    assert process.address_layout()[0] in ("ok", "limited")
    assert process.ending()[0] in ("ok", "limited")
    assert Path("/proc/self/personality").read_text() == before
    # A death signal that stayed would kill pytest with whoever started it.
    assert "subreaper" in process.ending()[1] or process.ending()[0] == "limited"


@pytest.mark.parametrize(("level", "user", "state"), [("2", 1000, "ok"), ("4", 1000, "limited"), ("4", 0, "ok"), ("", 0, "limited")])
def test_perf_by_kernel_permission(root: Root, monkeypatch: pytest.MonkeyPatch, level: str, user: int, state: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    place = root({"/proc/sys/kernel/perf_event_paranoid": f"{level}\n"})
    assert tools.tool("perf", tools.ToolAnswer("/usr/bin/perf", "6.1"), place)[0] == state


@pytest.mark.parametrize(
    ("versions", "state", "fact"),
    [
        ({"ml-memprof": "0.1.0"}, "ok", "ml-memprof 0.1.0"),
        ({"ml-memprof": "0.1.0", "memprof": "0.3.6"}, "limited", "memprof 0.3.6 is installed beside ml-memprof 0.1.0"),
        ({"memprof": "0.3.6"}, "limited", "memprof 0.3.6 is installed"),
        ({}, "limited", "ml-memprof is not installed"),
    ],
)
def test_foreign_memprof_package_reported(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], state: str, fact: str) -> None:
    monkeypatch.setattr(tools, "installed_version", versions.get)

    check = tools.distribution()

    assert check[:2] == (state, fact)
    assert ("pip uninstall memprof ml-memprof" in check[2]) == ("memprof" in versions)
