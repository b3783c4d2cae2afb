"""TFLite and circle models are flatbuffers: their tables read from the mapped file without any package, each access checked.

A table begins with the distance back to its vtable: two sizes of 16 bits, then each field's offset in the table, 0 where it is absent
(flatbuffers.dev/internals). Which field has which number stands where they are read.
"""

from __future__ import annotations

import mmap
import struct

_LONGEST_TEXT = 1 << 16
# A model's vectors are read a few times each.
_EACH, _LEAST = 16, 1 << 16


class Torn(Exception):
    """The file ends, or points outside itself."""


class Flat:
    """A flatbuffer, every access of which stays inside. Raises Torn."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self.data = data
        self.length = len(data)
        # Vectors may lie over one another, and tables in several vectors: a small file can say any number of them, a model does not.
        self._left = _EACH * self.length + _LEAST

    def spend(self, elements: int) -> None:
        """Count what is read. Raises Torn where that is many times what the file can hold."""
        self._left -= elements + 1
        if self._left < 0:
            raise Torn

    def number(self, layout: str, at: int) -> int:
        """The number of that struct layout there."""
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
        """Where a table's field lies, 0 where it has none."""
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
        """What an offset points at."""
        return at + self.number("<I", at)

    def child(self, table: int, number: int) -> int:
        """A table's table, 0 where it has none."""
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
        if width > 1 or count <= _LONGEST_TEXT:  # of longer bytes only the place is taken
            self.spend(count)
        return vector + 4, count

    def tables(self, table: int, number: int) -> list[int]:
        """The tables of a table's vector."""
        begin, count = self.vector(table, number, 4)
        return [self.follow(begin + 4 * index) for index in range(count)]

    def integers(self, table: int, number: int) -> tuple[int, ...]:
        """A table's vector of 32-bit integers."""
        begin, count = self.vector(table, number, 4)
        return struct.unpack_from(f"<{count}i", self.data, begin)

    def text(self, table: int, number: int) -> str:
        """A table's text, empty where it has none."""
        begin, count = self.vector(table, number, 1)
        return self.data[begin : begin + count].decode("utf-8", "replace") if count <= _LONGEST_TEXT else ""
