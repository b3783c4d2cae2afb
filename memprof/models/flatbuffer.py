"""TFLite and circle models are flatbuffers: their tables read from the mapped file without any package, each access checked.

A table begins with the distance back to its vtable: two sizes of 16 bits, then each field's offset in the table, 0 where it is absent
(flatbuffers.dev/internals). The fields' numbers stand where they are read.
"""

from __future__ import annotations

import mmap
import struct

from ..base.files import Torn

_LONGEST_TEXT = 1 << 16
# Elements that may be read: a model's vectors are read a few times each.
_READS_PER_BYTE, _LEAST_READS = 16, 1 << 16


class Flat:
    """A flatbuffer. Every access stays inside the file; the methods raise Torn."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data = data
        self.length = len(data)
        # Vectors may overlap and share tables: a small file can name any number of elements, a model does not.
        self._left = _READS_PER_BYTE * self.length + _LEAST_READS

    def spend(self, elements: int) -> None:
        """Count the elements read. Raises Torn where they are many times more than the file can hold."""
        self._left -= elements + 1
        if self._left < 0:
            raise Torn

    def number(self, layout: str, at: int) -> int:
        """The number at `at`, in that layout of struct."""
        if at < 0:
            raise Torn
        try:
            return int(struct.unpack_from(layout, self.data, at)[0])
        except struct.error:
            raise Torn from None

    def root(self) -> int:
        """The root table."""
        return self.number("<I", 0)

    def field(self, table: int, number: int) -> int:
        """Where a table's field lies, 0 where the table lacks it."""
        vtable = table - self.number("<i", table)
        slot = 4 + 2 * number
        if slot + 2 > self.number("<H", vtable):
            return 0
        offset = self.number("<H", vtable + slot)
        return table + offset if offset else 0

    def scalar(self, table: int, number: int, layout: str, default: int = 0) -> int:
        """A table's number."""
        at = self.field(table, number)
        return self.number(layout, at) if at else default

    def follow(self, at: int) -> int:
        """The place that the offset at `at` points to."""
        return at + self.number("<I", at)

    def child(self, table: int, number: int) -> int:
        """The table in a table's field, 0 where it is absent."""
        at = self.field(table, number)
        return self.follow(at) if at else 0

    def vector(self, table: int, number: int, width: int) -> tuple[int, int]:
        """Where the elements of a table's vector begin, and how many there are."""
        at = self.field(table, number)
        if not at:
            return 0, 0
        vector = self.follow(at)
        count = self.number("<I", vector)
        if vector + 4 + count * width > self.length:
            raise Torn
        if width > 1 or count <= _LONGEST_TEXT:  # longer bytes are only located, not read
            self.spend(count)
        return vector + 4, count

    def tables(self, table: int, number: int) -> list[int]:
        """The tables in a table's vector."""
        begin, count = self.vector(table, number, 4)
        return [self.follow(begin + 4 * index) for index in range(count)]

    def integers(self, table: int, number: int) -> tuple[int, ...]:
        """A table's vector of 32-bit integers."""
        begin, count = self.vector(table, number, 4)
        return struct.unpack_from(f"<{count}i", self.data, begin)

    def text(self, table: int, number: int) -> str:
        """A table's text, empty where it is absent or too long for a name."""
        begin, count = self.vector(table, number, 1)
        return self.data[begin : begin + count].decode("utf-8", "replace") if count <= _LONGEST_TEXT else ""
