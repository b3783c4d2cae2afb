"""Processes here: whether they can be ended and read, and the code that their interpreter executes before they begin."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..base.units import counted
from ..places.cgroups import read_or_none
from .checks import Finding

# Imports only modules that every child has imported already, so that no other is counted.
_QUESTION = """
import sys, site
folders = list(getattr(site, "getsitepackages", list)())
if site.ENABLE_USER_SITE:
    folders.append(site.getusersitepackages())
anon = [row.split()[1] for row in open("/proc/self/status") if row.startswith("RssAnon")]
print()
print(repr(("%d.%d.%d" % sys.version_info[:3], folders, len(sys.modules), int(anon[0]) if anon else 0)))
"""


def path_files(python: str) -> Finding:
    """The interpreter of the measured processes, and which .pth files run code in it whenever it starts."""
    version, folders, modules, anon_kib = _ask_interpreter(python)
    files = executed_path_files([Path(folder) for folder in folders])
    executed = list(dict.fromkeys(file.name for file in files))
    place = f"Python {version}, {python}"
    if not executed:
        return "ok", f"{place}, no .pth file runs code", "a child begins with nothing but its interpreter"
    _, _, least_modules, least_kib = _ask_interpreter(python, "-S")
    more = f"{counted(max(0, modules - least_modules), 'module')}, {max(0, anon_kib - least_kib) / 1024:.1f} MiB"
    facts = f"{place}, code runs from {', '.join(executed)}"
    remedy = ": install properly, without -e, to compare" if any(map(_is_editable, files)) else ""
    return "limited", facts, f"site-packages and these put {more} into every child and its baseline{remedy}"


def _ask_interpreter(python: str, *flags: str) -> tuple[str, list[str], int, int]:
    """A fresh interpreter's version, folders of site-packages, number of modules, and anonymous memory in KiB. Raises ValueError if it fails."""
    done = subprocess.run([python, *flags, "-c", _QUESTION], capture_output=True, text=True, timeout=10, cwd="/", check=False)
    if done.returncode != 0:
        raise ValueError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    answer: tuple[str, list[str], int, int] = ast.literal_eval(done.stdout.splitlines()[-1])
    return answer


def executed_path_files(folders: Sequence[Path]) -> list[Path]:
    """The .pth files of these folders that hold code: lines that begin with `import` and a blank, in a file that is not hidden (site.py)."""
    executed = []
    for folder in dict.fromkeys(folders):
        for file in sorted(folder.glob("*.pth")):
            with suppress(OSError):
                lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
                if not file.name.startswith(".") and any(line.startswith(("import ", "import\t")) for line in lines):
                    executed.append(file)
    return executed


def _is_editable(path_file: Path) -> bool:
    """Whether a package that was installed with -e lists this file. PEP 610's direct_url.json says how it was installed, RECORD lists its files."""
    for origin in path_file.parent.glob("*.dist-info/direct_url.json"):
        with suppress(OSError, ValueError, AttributeError):
            if json.loads(origin.read_text(encoding="utf-8")).get("dir_info", {}).get("editable"):
                rows = (origin.parent / "RECORD").read_text(encoding="utf-8").splitlines()
                if any(row.split(",", 1)[0] == path_file.name for row in rows):
                    return True
    return False


_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 2, 36, 37
_ADDR_NO_RANDOMIZE = 0x0040000


def ending() -> Finding:
    """Whether the kernel ends the processes that a killed memprof leaves. Each setting is read and set to the value that it has."""
    libc = ctypes.CDLL(None, use_errno=True)
    value = ctypes.c_int()
    works = {
        "PDEATHSIG": libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(value), 0, 0, 0)
        == 0
        == libc.prctl(_PR_SET_PDEATHSIG, value.value, 0, 0, 0),
        "subreaper": libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0) == 0
        and libc.prctl(_PR_SET_CHILD_SUBREAPER, value.value, 0, 0, 0) == 0,
        "pidfd": _has_pidfd(),
    }
    refused = [name for name, allowed in works.items() if not allowed]
    if not refused:
        return "ok", f"{', '.join(works)} work", "nothing is left running, however memprof ends"
    return "limited", f"{', '.join(refused)} refused", "a process that a killed memprof was measuring may go on until its next start"


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


def address_layout() -> Finding:
    """Whether address randomisation can be turned off. It is tried on this process and taken back; it would act at the next exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    now = libc.personality(ctypes.c_ulong(0xFFFFFFFF))
    allowed = now != -1 and libc.personality(ctypes.c_ulong(now | _ADDR_NO_RANDOMIZE)) != -1
    if allowed:
        libc.personality(ctypes.c_ulong(now))
        return "ok", "can be fixed", "--deterministic repeats a figure to the page, where the runtime does"
    return (
        "limited",
        "cannot be fixed (personality is refused)",
        "--deterministic is only partly so; Docker: --security-opt seccomp=unconfined",
    )


def ptrace(root: Path) -> Finding:
    """Whether the memory of a child can be read, tried on a child. Yama's setting, for other processes, stands beside it."""
    scope = (read_or_none(root, "/proc/sys/kernel/yama/ptrace_scope") or "").strip()
    yama = f"yama's ptrace_scope is {scope}" if scope else "no yama"
    if _can_read_a_child():
        return "ok", f"memory of a child can be read, {yama}", "weight copies can be counted in the running process"
    return "limited", f"memory of a child cannot be read, {yama}", "weight copies cannot be counted; Docker: --cap-add SYS_PTRACE"


def _can_read_a_child() -> bool:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            with open(f"/proc/{child.pid}/maps", encoding="ascii", errors="replace") as maps:
                address = int(maps.readline().partition("-")[0], 16)
            with open(f"/proc/{child.pid}/mem", "rb", buffering=0) as file:
                file.seek(address)
                return len(file.read(8)) == 8
        except PermissionError:
            return False
        finally:
            child.kill()
