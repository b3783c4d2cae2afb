"""The recorder in C (memprof/recorder/c): compiled on first use for the machine of the request, kept in the cache by content.

A compiler for musl is taken before one for glibc: glibc's static programs are eight times as large.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .. import recorder
from ..base.cache import cache_folder
from ..base.errors import InputError, os_reason
from . import native

# What `uname -m` says, and how compilers call that: with glibc, with musl.
_TARGETS = {
    "x86_64": ("x86_64-linux-gnu", "x86_64-linux-musl"),
    "aarch64": ("aarch64-linux-gnu", "aarch64-linux-musl"),
    "armv7l": ("arm-linux-gnueabihf", "arm-linux-musleabihf"),
    "armv8l": ("arm-linux-gnueabihf", "arm-linux-musleabihf"),  # a 64-bit kernel that talks to a 32-bit program
    "riscv64": ("riscv64-linux-gnu", "riscv64-linux-musl"),
}
_FLAGS = (
    "-std=c99",
    "-Werror=implicit-function-declaration",  # which gcc before 14 takes, and clang does not
    "-Os",
    "-D_FILE_OFFSET_BITS=64",
    "-D_GNU_SOURCE",
    "-static",
    "-s",
    "-fno-stack-protector",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
)
_SMALLER = ("-fno-sanitize=all", "-fomit-frame-pointer", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")


def built(architecture: str | None = None) -> Path:
    """The program for this machine, or for another architecture by the name that `uname -m` has for it.

    Raises InputError if there is no compiler for it, or if the compiler fails.
    """
    command, sources, program = _planned(architecture or platform.machine(), os.environ.get("CC"))
    if not program.exists():
        native.make(command, sources, program)
    return program


def is_built(architecture: str) -> bool:
    """Whether `built` need not compile. Raises InputError as that does."""
    return _planned(architecture, os.environ.get("CC"))[2].exists()


@cache
def _planned(machine: str, wanted: str | None) -> tuple[list[str], list[Path], Path]:
    """The words that start the compiler, the sources, and the program."""
    folder = Path(recorder.__path__[0]) / "c"
    sources = sorted(folder.glob("*.c"))
    try:
        texts = [path.read_bytes() for path in (*sources, *sorted(folder.glob("*.h")))]
    except OSError as error:
        raise InputError(f"{folder}: {os_reason(error)}") from None
    compiler = next(_compilers(machine, wanted), None)
    if compiler is None:
        gnu = _TARGETS.get(machine, (f"{machine}-linux-gnu",))[0]
        raise InputError(
            f"the recorder for {machine} is compiled on first use, and there is no compiler for it: pip install ziglang, or {gnu}-gcc"
        )
    command = [*compiler, *_FLAGS, *_SMALLER]
    facts = repr((texts, native.version(*compiler), command))
    program = cache_folder("native") / f"recorder-{machine}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    return command, sources, program


def _compilers(machine: str, wanted: str | None) -> Iterator[tuple[str, ...]]:
    here = machine == platform.machine()
    gnu, musl = _TARGETS.get(machine, (f"{machine}-linux-gnu", f"{machine}-linux-musl"))
    if here and wanted:
        path = shutil.which(wanted)
        if path is not None:
            yield (path,)
        return
    for name in (f"{musl}-gcc", *(("musl-gcc",) if here else ())):
        if (path := shutil.which(name)) is not None:
            yield (path,)
    if importlib.util.find_spec("ziglang") is not None:
        # Thumb-2 makes the program a quarter smaller, and each ARMv7 has it.
        yield sys.executable, "-m", "ziglang", "cc", "-target", musl.replace("arm-", "thumb-", 1)
    for name in (f"{gnu}-gcc", *(("cc", "gcc", "clang") if here else ())):
        if (path := shutil.which(name)) is not None:
            yield (path,)
