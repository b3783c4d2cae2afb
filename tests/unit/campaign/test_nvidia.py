"""Memory of NVIDIA's driver by process, against a library of these tests' own: no NVIDIA device was measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from memprof.campaign import nvidia
from memprof.doctor.devices import facts_of, nvidia_driver

MIB = 1 << 20
Lists = Mapping[int, tuple[Mapping[int, int | None], Mapping[int, int | None]]]
Install = Callable[[Lists], None]


class FakeError(Exception):
    """NVMLError of the fake library."""


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """install(lists) -> nothing: a library with these processes, computing and drawing, by device; and a driver."""

    def put(lists: Lists) -> None:
        def processes(device: int, which: int) -> list[SimpleNamespace]:
            if device not in lists:
                raise FakeError("not supported")
            return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in lists[device][which].items()]

        library = ModuleType("pynvml")
        library.NVMLError = FakeError  # type: ignore[attr-defined]
        library.nvmlInit = lambda: None  # type: ignore[attr-defined]
        library.nvmlDeviceGetCount = lambda: max(lists, default=-1) + 1  # type: ignore[attr-defined]
        library.nvmlDeviceGetHandleByIndex = lambda number: number  # type: ignore[attr-defined]
        library.nvmlDeviceGetComputeRunningProcesses = lambda device: processes(device, 0)  # type: ignore[attr-defined]
        library.nvmlDeviceGetGraphicsRunningProcesses = lambda device: processes(device, 1)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pynvml", library)
        (tmp_path / "nvidiactl").touch()
        monkeypatch.setattr(nvidia, "_DEVICE", str(tmp_path / "nvidiactl"))

    return put


@pytest.mark.parametrize(
    ("lists", "fields"),
    [
        ({0: ({}, {})}, []),
        ({0: ({7: 5 * MIB}, {})}, [f"7:{5 * MIB}"]),
        ({0: ({7: 5 * MIB}, {7: 5 * MIB, 8: MIB})}, [f"7:{5 * MIB}", f"8:{MIB}"]),  # it computes and draws
        ({0: ({7: 5 * MIB}, {}), 1: ({7: 3 * MIB}, {})}, [f"7:{8 * MIB}"]),
        ({0: ({7: None}, {}), 1: ({7: 3 * MIB}, {})}, ["7:-"]),  # a driver that does not tell
        ({1: ({7: MIB}, {})}, [f"7:{MIB}"]),  # the first device has no such lists
    ],
)
def test_memory_by_process_of_all_devices(install: Install, lists: Lists, fields: list[str]) -> None:
    install(lists)
    found = nvidia.reader()
    assert found is not None
    line = found.line(border=True)
    assert line is not None
    assert line.decode().split()[3:] == fields


def test_polled_seldom_but_at_each_border(install: Install) -> None:
    install({0: ({}, {})})
    found = nvidia.reader()
    assert found is not None
    assert found.line(border=False) is not None
    assert found.line(border=False) is None  # 100 ms have not passed
    assert found.line(border=True) is not None


def test_machine_without_driver_or_library_not_asked(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvidia.reader() is None
    install({0: ({}, {})})
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvidia.reader() is None


def test_doctor_says_what_it_is_asked_with(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    there = facts_of("/dev/nvidiactl\n")
    assert nvidia_driver(facts_of(""), here=True)[0] == "missing"
    assert nvidia_driver(there, here=False)[0] == "limited"
    install({0: ({}, {}), 1: ({}, {})})
    assert nvidia_driver(there, here=True)[:2] == ("ok", "NVML, 2 devices")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "ml-memprof[nvidia]" in nvidia_driver(there, here=True)[2]


def test_library_that_is_broken_is_said(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise FakeError("Driver/library version mismatch")

    install({0: ({}, {})})
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", fail)
    assert nvidia_driver(facts_of("/dev/nvidiactl\n"), here=True)[:2] == ("limited", "NVML: Driver/library version mismatch")
    assert nvidia.reader() is None
