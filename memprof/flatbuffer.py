"""The few steps through a FlatBuffers file that TFLite and circle models need, on a mapped file.

A table begins with the distance back to its vtable: two sizes of 16 bits, then each field's offset in the table, 0 where it is absent
(FlatBuffers' internals). A damaged file raises struct.error or IndexError.
"""

from __future__ import annotations

import mmap
import struct


def u32(data: mmap.mmap, at: int) -> int:
    """An unsigned 32-bit number."""
    return int(struct.unpack_from("<I", data, at)[0])


def place(data: mmap.mmap, table: int, field: int) -> int | None:
    """Where a table's field lies, None where it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * field
    if vtable < 0 or slot >= struct.unpack_from("<H", data, vtable)[0]:
        return None
    offset = struct.unpack_from("<H", data, vtable + slot)[0]
    return table + offset if offset else None


def target(data: mmap.mmap, table: int, field: int) -> int | None:
    """What a field that is a reference refers to, None where it is absent."""
    at = place(data, table, field)
    return at + u32(data, at) if at is not None else None
