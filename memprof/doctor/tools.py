"""The profilers and debuggers that memprof calls, and whether they are installed; and whether memprof's distribution is the only one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from ..places.cgroups import read_or_none
from .checks import Finding

DISTRIBUTION, NAMESAKE = "ml-memprof", "memprof"
# By command: the use of having the tool, and the loss without it.
LOOKED_FOR: Mapping[str, tuple[str, str]] = {
    "valgrind": ("massif: each allocation with its stack, 2 to 10 times slower, vector code far more", "no heap profiles by massif"),
    "heaptrack": ("each allocation with its stack, 3 to 4 times slower", "no heap profiles by heaptrack"),
    "perf": ("page faults with their stacks", "no page faults with their stacks"),
    "gdb": ("stacks of a running or crashed runtime", "no stacks of a running or crashed runtime"),
}


class ToolAnswer(Struct, frozen=True):
    """A tool's path, None if it is not on PATH, and its version, None if it does not start."""

    path: str | None
    version: str | None


def tool_answers() -> dict[str, ToolAnswer]:
    """The answers of all tools, which are started side by side: gdb alone takes 0.2 s."""
    started: dict[str, tuple[str | None, subprocess.Popen[bytes] | None]] = {}
    for name in LOOKED_FOR:
        path, process = shutil.which(name), None
        if path is not None:
            with suppress(OSError):
                process = subprocess.Popen([path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        started[name] = (path, process)
    return {name: ToolAnswer(path, _version(process) if process else None) for name, (path, process) in started.items()}


def _version(process: subprocess.Popen[bytes]) -> str | None:
    """The last version number in the first line of its output: `GNU gdb (Debian 13.1-3) 13.1`."""
    with process:
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    numbers = re.findall(rb"\d+(?:\.\d+)+", output.split(b"\n", 1)[0])
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
    facts = f"{version}, perf_event_paranoid {level}"
    if os.geteuid() != 0 and int(level) > 2:
        return "limited", f"{facts}: for root only", lacks
    if not (root / "sys/kernel/tracing/events/kmem/rss_stat").exists():
        return "ok", facts, f"{gives}; growth of the resident set (kmem:rss_stat) needs root and tracefs mounted"
    return "ok", facts, f"{gives}, and growth of the resident set (kmem:rss_stat)"


def distribution() -> Finding:
    """The distribution that memprof comes from. PyPI's `memprof` is a stranger's package whose modules go into the same folder."""
    own, other = installed_version(DISTRIBUTION), installed_version(NAMESAKE)
    if other is not None:
        facts = f"{NAMESAKE} {other} is installed" + (f" beside {DISTRIBUTION} {own}" if own else "")
        remedy = f"pip uninstall {NAMESAKE} {DISTRIBUTION}, then install {DISTRIBUTION} again"
        return "limited", facts, f"another project's package, whose files go into the same folder: {remedy}"
    if own is None:
        return (
            "limited",
            f"{DISTRIBUTION} is not installed",
            "memprof runs from a folder on the path; hints that name an extra of it do not work",
        )
    return "ok", f"{DISTRIBUTION} {own}", "no other package writes into its folder"


def installed_version(name: str) -> str | None:
    """The version of a distribution on memprof's path, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
