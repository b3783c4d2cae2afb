"""Frames without a symbol: their names by module and offset, as gdb and addr2line take them, and how much of a peak they hold.

memray tells where each library was mapped. heaptrack's and massif's files have only addresses, which differ from run to run, so where a library was
mapped is found in its file: a return address stands behind a call, and only at one page do all of a profile's addresses.
"""

from __future__ import annotations

import os
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from ..base.errors import MemprofError
from ..base.files import Data, mapped
from ..base.units import format_bytes
from .frames import NO_MODULE, UNKNOWN, Frame
from .names import is_allocator
from .profile import HeapProfile, Snapshot

_PAGE = 4096
_MOST_PAGES = 1 << 18  # of a library's code, 1 GiB
_SAMPLE = 48  # return addresses
_CALL_ENDS = 1 / 30  # the share of places in code behind a call: 1.5% to 3.4% in glibc 2.36, libstdc++ 12, gdb 13 and ONNX Runtime 1.32
_CHANCE = 0.001  # that the addresses stand behind calls of a file that is not the run's: a larger one is no evidence
_MANY = 12  # addresses, from which on some need not stand behind a call
_MISSES = 0.1  # the share of addresses that need not stand behind a call: a signal's frame, a function that begins a thread
_X86_64, _AARCH64 = 62, 183  # e_machine
_INDIRECT = (2, 3, 4, 6, 7)  # the lengths of x86-64's `call r/m64` (FF /2) without prefixes
_LONGEST = 8  # bytes before a return address that are looked at
_SHARE = 0.05  # of the peak's bytes, below which there is no remark
_OFFSET = re.compile(r".+[+@]0x[0-9a-f]+", re.DOTALL)


def offset_name(module: str, offset: int) -> str:
    """`libonnxruntime.so.1.32.0+0x109da80`."""
    return f"{os.path.basename(module) or module}+{offset:#x}"


def is_unnamed(function: str, module: str | None) -> bool:
    """Whether a frame's function stands for a name: `???`, or the module with an offset or an address."""
    own = module is not None and function.startswith(os.path.basename(module)) and _OFFSET.fullmatch(function) is not None
    return function == UNKNOWN or own


def located(profile: HeapProfile) -> HeapProfile:
    """The profile with its nameless frames called by module and offset; by module and address where the module's file is not that of the run."""
    addresses: dict[str, set[int]] = defaultdict(set)
    for frame in profile.frames:
        if frame.module and frame.address:
            addresses[frame.module].add(frame.address)
    nameless = {frame.module for frame in profile.frames if _nameless(frame)}
    bases = {module: _base(module, sorted(addresses[module])) for module in nameless if module}

    def called(frame: Frame) -> Frame:
        if not _nameless(frame) or frame.module is None or frame.address is None:
            return frame
        base = bases[frame.module]
        name = f"{os.path.basename(frame.module)}@{frame.address:#x}" if base is None else offset_name(frame.module, frame.address - base)
        return replace(frame, function=name)

    return replace(profile, frames=tuple(map(called, profile.frames))) if bases else profile


def _nameless(frame: Frame) -> bool:
    return frame.kind == "unknown" and frame.function == UNKNOWN and bool(frame.module and frame.address) and frame.module != NO_MODULE


def _base(module: str, addresses: Sequence[int]) -> int | None:
    """Where a library was mapped in the run, None if its file does not tell."""
    sample = addresses[:: max(1, len(addresses) // _SAMPLE)]
    if not os.path.isfile(module):  # a hostile profile may name a pipe
        return None
    try:
        with mapped(Path(module)) as data:
            return _where_calls_end(data, sample, addresses[0], addresses[-1])
    except (OSError, MemprofError, struct.error, IndexError, ValueError):
        return None


def _where_calls_end(data: Data, sample: Sequence[int], low: int, high: int) -> int | None:
    """The one base at which the addresses, or the bytes after them (valgrind gives the call's last byte), stand behind calls in an ELF file."""
    if bytes(data[:6]) != b"\x7fELF\x02\x01":
        return None
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    ends = {_X86_64: _ends_call, _AARCH64: _ends_branch}.get(machine)
    if ends is None:
        return None
    allowed = int(len(sample) * _MISSES) if len(sample) > _MANY else 0
    found, left = set(), _MOST_PAGES
    for number in range(count):
        kind, flags, offset, start, _, length = struct.unpack_from("<IIQQQQ", data, table + number * size)
        pages = (length - (high - low)) // _PAGE + 1
        if kind != 1 or not flags & 1 or not 0 < pages <= left:  # PT_LOAD, PF_X
            continue
        left -= pages
        if 2 * pages * _CALL_ENDS ** len(sample) > _CHANCE:  # each page, and the byte behind
            return None
        last = (low - start) // _PAGE * _PAGE
        for base in range(last, last - (pages + 1) * _PAGE, -_PAGE):
            if base >= 0 and any(_matches(data, ends, sample, offset - start - base + after, allowed) for after in (0, 1)):
                found.add(base)
    return found.pop() if len(found) == 1 else None


def _matches(data: Data, ends: Callable[[Data, int], bool], sample: Sequence[int], shift: int, allowed: int) -> bool:
    """Whether all but so many addresses, shifted to places in the file, stand behind calls."""
    misses = 0
    for address in sample:
        place = address + shift
        misses += not (_LONGEST <= place < len(data) and ends(data, place))
        if misses > allowed:
            return False
    return True


def _ends_call(data: Data, at: int) -> bool:
    """Whether an x86-64 call ends before this byte: E8 with a distance of four bytes, or FF /2."""
    return data[at - 5] == 0xE8 or any(data[at - length] == 0xFF and data[at - length + 1] >> 3 & 7 == 2 for length in _INDIRECT)


def _ends_branch(data: Data, at: int) -> bool:
    """Whether BL or BLR of aarch64 stands before this byte."""
    word = int.from_bytes(data[at - 4 : at], "little")
    return word >> 26 == 0x25 or word & 0xFFFFFC1F == 0xD63F0000


def remark(profile: HeapProfile, snapshot: Snapshot) -> str | None:
    """A sentence on the library without symbols that holds most of a snapshot's bytes; None where nameless frames hold next to nothing."""
    tree = snapshot.tree
    if tree is None or not tree.bytes[0]:
        return None
    held: dict[str | None, int] = defaultdict(int)
    for stack, size in tree.stacks():
        site = next((frame for number in stack if not is_allocator(frame := profile.frames[number])), None)
        if site is not None and site.kind == "unknown":
            held[None if site.module == NO_MODULE else site.module] += size
    whole = sum(held.values())
    if whole < _SHARE * tree.bytes[0]:
        return None
    module = max(held, key=lambda module: held[module])
    share = f"{100 * held[module] / tree.bytes[0]:.0f}% of the tree's bytes ({format_bytes(held[module])})"
    if module is None:
        return f"{share} are allocated in frames without a name, of libraries that {profile.tool} does not tell"
    return (
        f"{os.path.basename(module)} has no symbols: {share} are allocated in its frames without a name; build it with -g, or install its "
        "debug symbols"
    )
