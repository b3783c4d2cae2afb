"""What is said of the machine before a measurement, on machines made up by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from memprof.campaign import campaign


def place(busy_percent: float, available_bytes: int = 1 << 40) -> Any:
    machine = SimpleNamespace(memory_bytes=1 << 40)
    return SimpleNamespace(busy=lambda: (busy_percent, available_bytes), machine=lambda: machine)


@pytest.mark.parametrize(
    ("busy_percent", "timed", "remarks"),
    [
        (90.0, True, ["the machine is busy (90% of its CPUs): times will be too long, and ratios of times mean nothing"]),
        (90.0, False, []),
        (3.0, True, []),
    ],
)
def test_busy_machine_named_beside_times_alone(busy_percent: float, timed: bool, remarks: list[str]) -> None:
    assert campaign.surroundings(0, place(busy_percent), timed=timed) == remarks


def test_full_machine_named_without_times() -> None:
    (remark,) = campaign.surroundings(1 << 30, place(90.0, 1 << 30), timed=False)

    assert remark == "only 1024 MiB of memory are free, for models of 1024 MiB"
