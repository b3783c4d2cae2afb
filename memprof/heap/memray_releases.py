"""Which memray release reads a capture: the number of the format in its header tells it, for captures that the installed memray does not read.

A capture begins with `memray\\0` and that number, of 32 bits (HeaderRecord in memray's records.h). memray packs finished captures as LZ4 frames
(lz4_Frame_format.md), of which the first literals hold both. The table was found with captures of these releases: each reads its own format alone.
"""

from __future__ import annotations

import importlib.metadata
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from ..base.errors import InputError
from ..versions import installation

MAGIC, LZ4 = b"memray\x00", b"\x04\x22\x4d\x18"
_HEAD_BYTES = 64
# The newest release for each number, and the releases that write it.
_RELEASES = {
    8: ("1.3.1", "1.3"),
    9: ("1.6.0", "1.4 to 1.6"),
    10: ("1.10.0", "1.7 to 1.10"),
    11: ("1.18.0", "1.11 to 1.18"),
    12: ("1.19.3", "1.19"),
    13: ("1.20.0", "1.20"),
}
_PACKAGE = installation.PipPackage("memray", "memray")

Say = Callable[[str], None]


def format_of(path: Path) -> int | None:
    """The number of a capture's format; None if the file's begin is no capture's. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(LZ4):
        head = _first_literals(head)
    return int(struct.unpack_from("<i", head, len(MAGIC))[0]) if head.startswith(MAGIC) and len(head) >= len(MAGIC) + 4 else None


def _first_literals(head: bytes) -> bytes:
    """What an LZ4 frame begins with. Eleven bytes without a repetition of four, as a capture's first are, are always literals."""
    flags = head[4] if len(head) > 4 else 0
    at = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)  # the content's size and a dictionary's number are optional
    if len(head) < at + 5:
        return b""
    stored = head[at + 3] & 0x80
    at += 4
    if stored:
        return head[at:]
    count = head[at] >> 4
    at += 1
    while count >= 15 and at < len(head):
        more = head[at]
        count, at = count + more, at + 1
        if more < 255:
            break
    return head[at : at + count]


def interpreter(path: Path, install: Say | None) -> str:
    """The Python of an environment whose memray reads a capture that the memray beside memprof does not.

    install: where such an environment may be made, the listener to its progress. Raises InputError with the release that reads the capture.
    """
    number = format_of(path)
    if number is None:
        raise InputError(f"{path} is damaged: its header is no memray capture's")
    if number not in _RELEASES:
        known = f"memprof knows formats {min(_RELEASES)} to {max(_RELEASES)}, of memray 1.3 to {_RELEASES[max(_RELEASES)][1]}"
        hint = "a newer memray beside memprof may read it" if number > max(_RELEASES) else "read it with the memray that wrote it"
        raise InputError(f"{path} is a memray capture of format {number}: {known}; {hint}")
    release, writers = _RELEASES[number]
    made = installation.find("memray", release)
    if made is None and install is None:
        own = _own()
        here = f"memray {own} beside memprof does not read it" if own else "memray is not installed beside memprof"
        raise InputError(
            f"{path} is a capture of memray {writers} (format {number}), which memray {release} reads; {here}: --yes makes an environment with it"
        )
    if made is not None:
        return made.interpreter
    assert install is not None
    return installation.ensure(_PACKAGE, release, install, python=sys.executable).interpreter


def _own() -> str:
    try:
        return importlib.metadata.version("memray")
    except importlib.metadata.PackageNotFoundError:
        return ""
