"""Memory of NVIDIA's driver by process, as NVML tells it (nvidia-ml-py, NVML API reference: nvmlDeviceGetComputeRunningProcesses).

memprof asks for it, and not the recorder: the library is NVIDIA's, and answers slowly. So the figures are of a moment soon after a phase's border,
and of every 100 ms in between: they are approximate. NVML counts by the process ids of the machine, not by those of a container.
"""

from __future__ import annotations

import os
import time
from typing import Any

_DEVICE = "/dev/nvidiactl"
_EVERY_NS = 100_000_000


class NvidiaMemory:
    """Readings of all processes. Raises ImportError without nvidia-ml-py, and OSError where NVML does not answer."""

    def __init__(self) -> None:
        import pynvml

        self._nvml: Any = pynvml
        self._next_ns = 0
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._devices = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        except pynvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from None

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return len(self._devices)

    def line(self, border: bool) -> bytes | None:
        """The line `nvidia` of a recording, without its end: at a phase's border, and else where the time for a reading has come."""
        begin_ns = time.monotonic_ns()
        if not border and begin_ns < self._next_ns:
            return None
        self._next_ns = begin_ns + _EVERY_NS
        fields = [b"%d:%s" % (pid, b"-" if size is None else b"%d" % size) for pid, size in sorted(self._sizes().items())]
        return b" ".join([b"nvidia %d %d" % (begin_ns, time.monotonic_ns() - begin_ns), *fields])

    def _sizes(self) -> dict[int, int | None]:
        """Bytes by process, None where NVML does not know them."""
        sizes: dict[int, int | None] = {}
        for device in self._devices:
            # A process that computes and draws is in both lists, with the same size.
            here: dict[int, int | None] = {}
            for ask in (self._nvml.nvmlDeviceGetComputeRunningProcesses, self._nvml.nvmlDeviceGetGraphicsRunningProcesses):
                try:
                    here.update((process.pid, process.usedGpuMemory) for process in ask(device))
                except self._nvml.NVMLError:  # a device without such processes, or one that was taken away
                    continue
            for pid, size in here.items():
                before = sizes.get(pid, 0)
                sizes[pid] = None if size is None or before is None else before + size
        return sizes


def reader() -> NvidiaMemory | None:
    """The readings, None where there is no such driver, or nothing to ask it with: `memprof doctor` says which."""
    if not os.path.exists(_DEVICE):
        return None
    try:
        return NvidiaMemory()
    except (ImportError, OSError):
        return None
