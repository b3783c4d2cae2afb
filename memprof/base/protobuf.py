"""Protobuf messages read where they lie, in a mapped file or in bytes, without any package. Every access stays inside the message.

The wire format is protobuf.dev/programming-guides/encoding. The fields' numbers stand where they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from .files import Data, Torn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# protobuf's own limit for messages inside messages.
DEEPEST = 100


class Field(Struct, frozen=True):
    """A field of a message: where it begins with its tag, and where its value begins and ends."""

    number: int
    wire: int
    start: int
    begin: int
    end: int


def fields(data: Data, start: int, end: int) -> Iterator[Field]:
    """The fields of the message that lies from start to end. Raises Torn."""
    at = start
    while at < end:
        key, begin = varint(data, at, end)
        number, wire = key >> 3, key & 7
        if wire == BYTES:
            length, begin = varint(data, begin, end)
            stop = begin + length
        elif wire == VARINT:
            _, stop = varint(data, begin, end)
        elif wire in (FIXED64, FIXED32):
            stop = begin + (8 if wire == FIXED64 else 4)
        else:
            raise Torn
        if stop > end or not number:
            raise Torn
        yield Field(number, wire, at, begin, stop)
        at = stop


def parts(data: Data, message: Field, wanted: Collection[int]) -> Iterator[Field]:
    """The wanted fields of a message that have a length: texts, bytes and further messages. Raises Torn."""
    return (part for part in fields(data, message.begin, message.end) if part.wire == BYTES and part.number in wanted)


def root(data: Data) -> Field:
    """The outermost message: all of the bytes."""
    return Field(0, BYTES, 0, 0, len(data))


def text(data: Data, part: Field) -> str:
    """A field's text. Raises Torn where it is not UTF-8."""
    try:
        return data[part.begin : part.end].decode()
    except UnicodeDecodeError:
        raise Torn from None


def varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends. Raises Torn."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Torn


def signed(data: Data, part: Field) -> int:
    """A field's number, signed and of 64 bits. Raises Torn."""
    return as_signed(varint(data, part.begin, part.end)[0])


def as_signed(number: int) -> int:
    """A number of 64 bits as one with a sign."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


def varints(data: Data, part: Field) -> NDArray[np.int64]:
    """A field's packed numbers, signed and of 64 bits. They are decoded at once, for typed data often holds a million. Raises Torn."""
    import numpy as np

    raw = np.frombuffer(data[part.begin : part.end], np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if len(raw) and (not len(ends) or ends[-1] != len(raw) - 1):
        raise Torn
    starts = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    place = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    bits = (raw & 0x7F).astype(np.uint64) << (7 * np.minimum(place, 9)).astype(np.uint64)
    return np.add.reduceat(bits, starts).view(np.int64) if len(ends) else np.zeros(0, np.int64)


def _encoded(value: int) -> bytes:
    """A number as varint writes it."""
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def opening(number: int, length: int) -> bytes:
    """The bytes before the content of a field with a length: its tag and that length."""
    return _encoded(number << 3 | BYTES) + _encoded(length)


def field(number: int, content: bytes) -> bytes:
    """A field with a length, as it is written."""
    return opening(number, len(content)) + content
