"""The profilers and debuggers that memprof calls, and whether they are here; and whether memprof itself is installed alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..measuring.cgroups import read_or_none
from .checks import Finding

OURS, STRANGERS = "ml-memprof", "memprof"
LOOKED_FOR: Mapping[str, tuple[str, str]] = {
    "valgrind": ("massif: each allocation with its stack, 2 to 10 times slower, vector code far more", "no heap profiles by massif"),
    "heaptrack": ("each allocation with its stack, 3 to 4 times slower", "no heap profiles by heaptrack"),
    "perf": ("page faults with their stacks", "no page faults with their stacks"),
    "gdb": ("stacks of a running or crashed runtime", "no stacks of a running or crashed runtime"),
}


@dataclass(frozen=True)
class ToolAnswer:
    """Where a tool is, None for nowhere, and the version it says, None where it does not start."""

    path: str | None
    version: str | None


def asked_tools() -> dict[str, ToolAnswer]:
    """Asked side by side: gdb alone takes 0.2 s."""
    started: dict[str, tuple[str | None, subprocess.Popen[bytes] | None]] = {}
    for name in LOOKED_FOR:
        path, process = shutil.which(name), None
        if path is not None:
            with suppress(OSError):
                process = subprocess.Popen([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started[name] = (path, process)
    return {name: ToolAnswer(path, _version(process) if process else None) for name, (path, process) in started.items()}


def _version(process: subprocess.Popen[bytes]) -> str | None:
    """The last version number in the first line it says: `GNU gdb (Debian 13.1-3) 13.1`."""
    with process:
        try:
            said, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    numbers = re.findall(rb"\d+(?:\.\d+)+", said.split(b"\n", 1)[0])
    return numbers[-1].decode() if numbers and process.returncode == 0 else None


def tool(name: str, answer: ToolAnswer, root: Path) -> Finding:
    """A tool that memprof can call on."""
    gives, lacks = LOOKED_FOR[name]
    if answer.path is None:
        return "missing", "not on PATH", lacks
    if answer.version is None:
        return "limited", f"{answer.path} does not start", lacks
    return _perf(answer.version, root) if name == "perf" else ("ok", answer.version, gives)


def _perf(version: str, root: Path) -> Finding:
    """perf_event_paranoid: 2 leaves a user his own programs (user space only), Debian's 3 and 4 nothing; root may do everything."""
    gives, lacks = LOOKED_FOR["perf"]
    level = (read_or_none(root, "/proc/sys/kernel/perf_event_paranoid") or "").strip()
    if not level:
        return "limited", f"{version}, but a kernel without perf events", lacks
    found = f"{version}, perf_event_paranoid {level}"
    if os.geteuid() != 0 and int(level) > 2:
        return "limited", f"{found}: for root only", lacks
    if not (root / "sys/kernel/tracing/events/kmem/rss_stat").exists():
        return "ok", found, f"{gives}; growth of the resident set (kmem:rss_stat) needs root and tracefs mounted"
    return "ok", found, f"{gives}, and growth of the resident set (kmem:rss_stat)"


def distribution() -> Finding:
    """The distribution that memprof comes from. PyPI's `memprof` is a stranger's package whose modules go into the same folder."""
    ours, strangers = installed_version(OURS), installed_version(STRANGERS)
    if strangers is not None:
        found = f"{STRANGERS} {strangers} is installed" + (f" beside {OURS} {ours}" if ours else "")
        remedy = f"pip uninstall {STRANGERS} {OURS}, then install {OURS} again"
        return "limited", found, f"another project's package, whose files go into the same folder: {remedy}"
    if ours is None:
        return "limited", f"{OURS} is not installed", "memprof runs from a folder on the path; hints that name an extra of it do not work"
    return "ok", f"{OURS} {ours}", "no other package writes into its folder"


def installed_version(name: str) -> str | None:
    """The version of a distribution on memprof's own path, None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
