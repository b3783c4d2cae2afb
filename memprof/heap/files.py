"""Opens a profile's file, tells by its first bytes which tool wrote it, and hands it to the parser for it."""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from ..base import file_kinds
from ..base.errors import InputError, os_reason
from . import heaptrack, massif
from .phases import spans, with_phases
from .profile import HeapProfile

_LZ4 = b"\x04\x22\x4d\x18"
_XZ = b"\xfd7zXZ\x00"
_MEMRAY = b"memray\x00"
_MOST_NAMED = 6


def read(path: Path, split: tuple[str, int] | None = None) -> HeapProfile:
    """See memprof.heap.load. split: a phase, and the number of equal parts of its time of which memray's and heaptrack's readers keep the stacks."""
    try:
        if path.is_dir():
            raise InputError(_within(path))
        with path.open("rb") as file:
            return demangled(with_phases(_read(file, path, split), path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {os_reason(error)}") from None


def _read(file: BinaryIO, path: Path, split: tuple[str, int] | None) -> HeapProfile:
    head = _peek(file, 8)
    if head.startswith((_MEMRAY, _LZ4)):
        from . import memray

        return memray.read(path, spans(path, "ms", 0, split))
    if head.startswith(heaptrack.ZSTD):
        return _heaptrack(path, split)
    if head.startswith((heaptrack.GZIP, _XZ)):
        return _compressed(cast(BinaryIO, gzip.open(file) if head.startswith(heaptrack.GZIP) else lzma.open(file)), path, split)
    if _is_heaptrack(head):
        return _heaptrack(path, split)
    return _massif(file, path)


def _massif(file: BinaryIO, path: Path) -> HeapProfile:
    head = file.read(file_kinds.HEAD_BYTES)
    if not head.startswith(b"desc:"):
        kind = file_kinds.kind_of_head(head)
        raise InputError(f"{path} is {f'{kind}, and not' if kind else 'not'} a profile of massif, heaptrack or memray")
    file.seek(0)
    return massif.read(cast(massif.Stream, file), str(path))


def _heaptrack(path: Path, split: tuple[str, int] | None) -> HeapProfile:
    return heaptrack.read(path, spans(path, "ms", None, split))


def _compressed(file: BinaryIO, path: Path, split: tuple[str, int] | None) -> HeapProfile:
    try:
        head = file.read(8)
        if _is_heaptrack(head):
            return _heaptrack(path, split)
        file.seek(0)
        return _massif(file, path)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error):
        raise InputError(f"{path}: the compressed file is damaged") from None


def _is_heaptrack(head: bytes) -> bool:
    # The first line holds `v`, heaptrack's version and its format's, in hexadecimal: `v 10400 3`.
    return head[:2] == b"v " and head[2:3].isalnum()


def _within(folder: Path) -> str:
    """The sentence for a folder, which names the profiles in it."""
    profiles = [path for path in sorted(folder.iterdir()) if path.is_file() and _may_be_profile(path)]
    if not profiles:
        return f"{folder} is a folder, and no profile lies in it"
    more = f" and {len(profiles) - _MOST_NAMED} more" if len(profiles) > _MOST_NAMED else ""
    named = ", ".join(map(str, profiles[:_MOST_NAMED])) + more
    return f"{folder} is a folder: name the profile in it, {named}" if len(profiles) == 1 else f"{folder} is a folder: name one of {named}"


def _may_be_profile(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return False
    return head.startswith((_MEMRAY, _LZ4, heaptrack.ZSTD, heaptrack.GZIP, _XZ, b"desc:")) or _is_heaptrack(head)


def _peek(file: BinaryIO, count: int) -> bytes:
    head = file.read(count)
    file.seek(0)
    return head


_MANGLED = re.compile(r"_{1,2}Z[\w.$]{1,4000}$|_R[A-Z][\w.$]{1,4000}$", re.ASCII)
_FILTER_S = 20


def demangled(profile: HeapProfile) -> HeapProfile:
    """The profile with the names that its tool left mangled (`_ZN3app4growEi`, Rust's too) as their author wrote them.

    binutils' c++filt does it, if installed: as a separate process, so that a hostile name can at worst stay as it is.
    """
    names = sorted({frame.function for frame in profile.frames if _MANGLED.match(frame.function)})
    program = shutil.which("c++filt") if names else None
    if program is None:
        return profile
    try:
        done = subprocess.run(
            [program],
            input="".join(f"{name}\n" for name in names).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_FILTER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return profile
    readable = done.stdout.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
    if len(readable) != len(names):
        return profile
    known = dict(zip(names, readable, strict=True))
    return replace(
        profile,
        frames=tuple(replace(frame, function=known[frame.function]) if frame.function in known else frame for frame in profile.frames),
    )
