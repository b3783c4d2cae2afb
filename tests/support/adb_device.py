"""What the tests of adb share."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memprof.places import adb
from support import adbd, recorder_runs


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    return adbd.tools(tmp_path_factory.mktemp("device") / "tools")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[dict[str, str]]:
    with adbd.serving(tmp_path_factory.mktemp("adb")) as environment:
        yield environment


def connect(device: adbd.Device) -> str:
    """What adb says when it is told to go to a device."""
    return subprocess.run(["adb", "connect", device.serial], capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.fixture
def plugged(server, tools, monkeypatch) -> Iterator[Callable[..., adbd.Device]]:
    """plugged(trusts=..., features=...) is a device that adb knows."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    devices, here = [], adbd.android(tools)

    def plug(shell: Callable[[str], list[str]] = here, **words) -> adbd.Device:
        device = adbd.Device(shell, **words)
        devices.append(device)
        device.listen()
        connect(device)
        recorder_runs.wait_for(lambda: adb._devices("adb:").get(device.serial) == ("device" if device.trusts else "unauthorized"))
        return device

    yield plug
    for device in devices:
        device.unplug()
        subprocess.run(["adb", "disconnect", device.serial], capture_output=True, timeout=120, check=False)
        recorder_runs.wait_for(lambda device=device: device.serial not in adb._devices("adb:"))  # the next test may see no other


@pytest.fixture
def device(plugged) -> adbd.Device:
    return plugged()


@pytest.fixture
def words(device, tmp_path) -> list[str]:
    """The words of a command that measures on the device."""
    return ["--on", f"adb:{device.serial}", "--remote-dir", str(tmp_path / "there")]
