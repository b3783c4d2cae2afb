"""Which memory of devices doctor says that a machine tells, by what the look at it has printed."""

from __future__ import annotations

import pytest

from memprof.doctor.devices import _LOOK, closed_drivers, dma_bufs, drm_clients, facts_of, kernel_parts
from memprof.recorder import devices as recorder

FD = "readable fd\n"
# In the documented form (Documentation/gpu/drm-usage-stats.rst).
PANTHOR = "client /dev/dri/renderD128\npos:\t0\ndrm-driver:\tpanthor\ndrm-client-id:\t3\ndrm-total-memory:\t12 KiB\n"
VGEM = "client /dev/dri/renderD129\npos:\t0\nflags:\t02100000\nmnt_id:\t6\nino:\t29\n"


@pytest.mark.parametrize(
    ("text", "release", "state", "word"),
    [
        (FD + "/sys/kernel/dmabuf/buffers\n", "6.6.1", "ok", "with a list of all buffers"),
        (FD + "/sys/kernel/debug/dma_buf/bufinfo\nreadable bufinfo\n", "6.1.0-50-arm64", "ok", "with a list of all buffers"),
        (FD + "/sys/kernel/debug/dma_buf/bufinfo\n", "6.1.0", "limited", "no list of all buffers"),
        (FD, "5.3.0", "limited", "no list of all buffers"),
        (FD, "4.19.191+", "missing", "a descriptor does not tell its buffer"),
        ("", "6.6.1", "missing", "/proc/PID/fd may not be read"),
    ],
)
def test_dma_bufs_by_kernel_and_lists(text: str, release: str, state: str, word: str) -> None:
    found = dma_bufs(facts_of(text), release)
    assert found[0] == state
    assert word in found[1]


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("", "missing", "no /dev/dri and no /dev/accel"),
        ("/dev/dri/card0\n", "limited", "no render node"),
        ("/dev/dri/renderD128\n" + PANTHOR, "ok", "renderD128: panthor"),
        ("/dev/dri/renderD129\n" + VGEM, "limited", "renderD129: a driver without a name; tells of no memory: /dev/dri/renderD129"),
        (
            "/dev/dri/renderD128\n/dev/dri/renderD129\n" + PANTHOR + VGEM,
            "limited",
            "renderD128: panthor, renderD129: a driver without a name; tells of no memory: /dev/dri/renderD129",
        ),
        ("/dev/dri/renderD128\nclosed /dev/dri/renderD128\n", "limited", "no render node; may not be opened: /dev/dri/renderD128"),
    ],
)
def test_drm_clients_by_their_fdinfo(text: str, state: str, words: str) -> None:
    assert drm_clients(facts_of(text))[:2] == (state, words)


def test_closed_drivers_named() -> None:
    assert closed_drivers(facts_of(FD))[0] == "ok"
    assert closed_drivers(facts_of("/dev/ion\n/dev/mali0\n" + FD))[:2] == ("limited", "/dev/ion, /dev/mali0")


@pytest.mark.parametrize("begin", [begin for begin in recorder._CLOSED if begin.startswith("/dev/") and "nvidia" not in begin])
def test_closed_drivers_of_recorder_named(begin: str) -> None:
    """Who reads descriptors knows these drivers: doctor looks for their files too."""
    assert f" {begin}* " in _LOOK
    assert closed_drivers(facts_of(begin + "0\n"))[:2] == ("limited", begin + "0")


@pytest.mark.parametrize(
    ("text", "state", "word"),
    [
        ("VmPTE:\t 60 kB\nHugetlbPages:\t 0 kB\n", "ok", "there"),
        ("VmPTE:\t 60 kB\n", "limited", "status has VmPTE of VmPTE and HugetlbPages"),
        ("", "limited", "status has none of VmPTE and HugetlbPages"),
    ],
)
def test_kernel_parts_by_status(text: str, state: str, word: str) -> None:
    assert kernel_parts(facts_of(text))[:2] == (state, word)
