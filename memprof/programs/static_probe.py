"""The probe without Python (memprof/probe/static): compiled on first use for the machine that is asked for, kept in the cache by content.

A compiler for musl is taken before one for glibc: glibc's static programs are eight times as large.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from .. import probe
from ..cache import cache_folder
from ..errors import InputError, UsageError, os_reason
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
    "-static",
    "-s",
    "-fno-stack-protector",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
)
_SMALLER = ("-fno-sanitize=all", "-fomit-frame-pointer", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")
# Of a pattern in Python's syntax all that pattern.c may not know.
_TOKENS = re.compile(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^]\\])*\])|(?P<group>\(\?(?!:|P<).{0,2})|(?P<possessive>(?:[*+?]|\{[0-9,]+\})\+)", re.DOTALL
)
_ESCAPE = re.compile(r"\\([0-9A-Za-z])")
_ESCAPES_IN_SET = "dDsSwWbtnrfvaxu"
_ESCAPES = _ESCAPES_IN_SET + "ABZ"


def built(architecture: str | None = None) -> Path:
    """The program for this machine, or for another architecture by the name that `uname -m` has for it.

    Raises InputError if there is no compiler for it, or if the compiler fails.
    """
    return _compiled(architecture or platform.machine(), os.environ.get("CC"))


def is_built(architecture: str) -> bool:
    """Whether `built` need not compile. Raises InputError as that does."""
    return _planned(architecture, os.environ.get("CC"))[2].exists()


@cache
def _planned(machine: str, wanted: str | None) -> tuple[list[str], list[Path], Path]:
    """The words that start the compiler, the sources, and the program."""
    folder = Path(probe.__path__[0]) / "static"
    sources = sorted(folder.glob("*.c"))
    try:
        texts = [path.read_bytes() for path in (*sources, *sorted(folder.glob("*.h")))]
    except OSError as error:
        raise InputError(f"{folder}: {os_reason(error)}") from None
    compiler = next(_compilers(machine, wanted), None)
    if compiler is None:
        gnu = _TARGETS.get(machine, (f"{machine}-linux-gnu",))[0]
        raise InputError(
            f"the probe for {machine} is compiled on first use, and there is no compiler for it: pip install ziglang, or {gnu}-gcc"
        )
    command = [*compiler, *_FLAGS, *_SMALLER]
    facts = repr((texts, native.version(*compiler), command))
    program = cache_folder("native") / f"probe-{machine}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    return command, sources, program


@cache
def _compiled(machine: str, wanted: str | None) -> Path:
    command, sources, program = _planned(machine, wanted)
    if not program.exists():
        native.make(command, sources, program)
    return program


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


def check_regexes(regexes: Mapping[str, str]) -> None:
    """Refuse the parts of Python's syntax that the probe's pattern.c does not read. Raises UsageError."""
    for phase, regex in regexes.items():
        for token in _TOKENS.finditer(regex.removeprefix("(?i)")):
            letters = _ESCAPES_IN_SET if token["set"] else _ESCAPES
            escapes = _ESCAPE.findall(token["set"] or token["escape"] or "")
            if token["group"] or token["possessive"] or any(letter not in letters for letter in escapes):
                raise UsageError(
                    f"{phase}: the static probe cannot read '{token[0]}' in '{regex}': it knows no references to groups, no look-ahead or "
                    "look-behind, no possessive repeats and no flags but (?i) at the begin; --probe python knows them"
                )
