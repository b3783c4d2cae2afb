"""Reads single fields of a FlatBuffers file, such as .tflite, .circle and .pte files are, and no more of the file than these.

A table begins with the distance back to its vtable: two sizes (16 bits each), then each field's distance from the table, 0 for one that is not
there. A vector is its length and then its elements; of tables, the elements are distances to them.
"""

import struct


class FlatFile:
    """An open file. One that is damaged raises struct.error, IndexError or ValueError."""

    def __init__(self, file):
        self._file = file
        self._size = file.seek(0, 2)

    def values(self, form, place):
        """The values at a place, as struct has them."""
        if place < 0:
            raise IndexError
        self._file.seek(place)
        return struct.unpack("<" + form, self._file.read(struct.calcsize("<" + form)))

    def follow(self, place):
        """Where the distance at a place leads to."""
        return place + self.values("I", place)[0]

    def vector(self, table, number):
        """Where the first element of a table's vector stands, and how many there are; none where the table lacks it."""
        vtable, field = table - self.values("i", table)[0], 4 + 2 * number
        offset = self.values("H", vtable + field)[0] if field < self.values("H", vtable)[0] else 0
        if not offset:
            return 0, 0
        start = self.follow(table + offset)
        count = self.values("I", start)[0]
        if start + count > self._size:
            raise IndexError
        return start + 4, count

    def tables(self, table, number):
        """Where the tables of a vector stand."""
        start, count = self.vector(table, number)
        return [self.follow(start + 4 * index) for index in range(count)]

    def text(self, table, number):
        """A text of a table."""
        start, count = self.vector(table, number)
        return self.values("%ds" % count, start)[0].decode()
