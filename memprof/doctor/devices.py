"""Memory of devices that no resident set counts: which of it this machine tells, and what it cannot tell, so that silence is never taken for zero."""

from __future__ import annotations

import re

from msgspec import Struct

from ..base.units import counted
from ..campaign import nvidia
from ..places.place import Place
from .checks import Finding
from .kernel import version_of

# Each file that is there, then the fdinfo of a descriptor of each DRM render node behind its name.
_LOOK = r"""
ls -d /dev/dri/* /dev/accel/* /dev/dma_heap/* /dev/udmabuf /dev/ion /dev/mali* /dev/kgsl* /dev/rknpu* /dev/galcore* /dev/kfd \
    /dev/nvidiactl /sys/kernel/dmabuf/buffers /sys/kernel/debug/dma_buf/bufinfo 2>/dev/null
head -c 1 /sys/kernel/debug/dma_buf/bufinfo >/dev/null 2>&1 && echo readable bufinfo
ls /proc/self/fd >/dev/null 2>&1 && echo readable fd
grep -E '^(VmPTE|HugetlbPages):' /proc/self/status
for node in /dev/dri/render* /dev/accel/accel*; do
    [ -e "$node" ] || continue
    { (exec 3<"$node" && echo "client $node" && cat /proc/self/fdinfo/3) || echo "closed $node"; } 2>/dev/null
done
true
"""
_CLOSED = ("/dev/mali", "/dev/kgsl", "/dev/rknpu", "/dev/galcore", "/dev/ion")


class DeviceFacts(Struct, frozen=True):
    """What a look at a machine found: its lines up to the clients, and the fdinfo of each client by its node, None where that may not be opened."""

    lines: tuple[str, ...]
    clients: dict[str, str | None]

    def nodes(self, *begins: str) -> list[str]:
        """The files that begin so."""
        return [line for line in self.lines if line.startswith(begins)]


def device_facts(place: Place) -> DeviceFacts:
    """A look at a place. Raises InputError."""
    return facts_of(place.run(["sh", "-c", _LOOK], 20).stdout.decode("utf-8", "replace"))


def facts_of(text: str) -> DeviceFacts:
    """The facts of what the look has printed."""
    head, *parts = re.split(r"(?m)^(?=(?:client|closed) /dev/)", text)
    clients: dict[str, str | None] = {}
    for part in parts:
        first, _, rest = part.partition("\n")
        word, _, node = first.partition(" ")
        clients[node] = rest if word == "client" else None
    return DeviceFacts(tuple(head.splitlines()), clients)


def dma_bufs(facts: DeviceFacts, release: str) -> Finding:
    """Whether dma-bufs have a size, and whether those that no process holds are shown."""
    version = version_of(release)
    if "readable fd" not in facts.lines:
        return "missing", "/proc/PID/fd may not be read", "no dma-buf and no DRM client can be seen: device figures are absent"
    if version < (5, 3):
        return "missing", f"Linux {release}: a descriptor does not tell its buffer", "dma-bufs are in no figure (Linux 5.3 and later tell)"
    if facts.nodes("/sys/kernel/dmabuf/buffers") or "readable bufinfo" in facts.lines:
        return "ok", f"Linux {release}, with a list of all buffers", "each is counted once, by descriptors and mappings of all processes"
    return (
        "limited",
        f"Linux {release}, no list of all buffers (CONFIG_DMABUF_SYSFS_STATS, debugfs)",
        "counted by descriptors and mappings; a buffer that a driver alone holds is in no figure",
    )


def drm_clients(facts: DeviceFacts) -> Finding:
    """Whether the DRM drivers here tell how much memory a client has."""
    if not facts.nodes("/dev/dri/", "/dev/accel/"):
        return "missing", "no /dev/dri and no /dev/accel", "no DRM driver is here, so there is nothing to count"
    found = {node: _driver(text) for node, text in facts.clients.items() if text is not None}
    silent = [node for node, (_, tells) in found.items() if not tells]
    refused = [node for node, text in facts.clients.items() if text is None]
    names = ", ".join(f"{node.rpartition('/')[2]}: {name}" for node, (name, _) in found.items()) or "no render node"
    if found and not silent and not refused:
        return "ok", names, "memory of each client by region, each client once"
    why = f"{names}; tells of no memory: {', '.join(silent)}" if silent else f"{names}; may not be opened: {', '.join(refused)}"
    return "limited", why if silent or refused else names, "what such a driver holds is in no figure, unless it is a dma-buf"


def _driver(fdinfo: str) -> tuple[str, bool]:
    name = re.search(r"(?m)^drm-driver:\s*(\S+)", fdinfo)
    tells = re.search(r"(?m)^drm-(total|resident|memory)-", fdinfo)
    return name[1] if name else "a driver without a name", tells is not None


def nvidia_driver(facts: DeviceFacts, here: bool) -> Finding:
    """Whether NVIDIA's driver tells of memory by process, which memprof asks NVML for on its own machine alone."""
    if not facts.nodes("/dev/nvidiactl"):
        return "missing", "no NVIDIA driver", "there is nothing to count"
    if not here:
        return "limited", "there, and not asked", "NVML is asked on memprof's own machine alone: memory of this driver is in no figure"
    try:
        count = nvidia.NvidiaMemory().devices
    except ImportError:
        return (
            "limited",
            "nvidia-ml-py is not installed",
            "pip install 'ml-memprof[nvidia]'; until then memory of this driver is in no figure",
        )
    except OSError as error:
        return "limited", str(error), "memory of this driver is in no figure until NVML answers"
    return "ok", f"NVML, {counted(count, 'device')}", "memory by process at phases' borders and every 100 ms, marked approximate"


def closed_drivers(facts: DeviceFacts) -> Finding:
    """Drivers that hide their memory from other programs."""
    found = facts.nodes(*_CLOSED)
    if not found:
        return "ok", "none (Mali, Adreno, Rockchip's and Vivante's NPUs, ION of old kernels)", "no memory is hidden by one"
    return (
        "limited",
        ", ".join(found),
        "what they hold is in no figure, unless it is a dma-buf that a process has by a descriptor or a mapping",
    )


def kernel_parts(facts: DeviceFacts) -> Finding:
    """Whether the kernel tells of page tables and huge pages of a process."""
    told = [name for name in ("VmPTE", "HugetlbPages") if any(line.startswith(name) for line in facts.lines)]
    if len(told) == 2:
        return "ok", "there", "page tables and pages of hugetlbfs, which RSS lacks, by process"
    return "limited", f"status has {' and '.join(told) or 'none'} of VmPTE and HugetlbPages", "what it lacks is in no figure"
