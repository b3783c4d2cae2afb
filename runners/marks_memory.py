"""What marks read and write, in memory that stays where it is.

Python takes each object above 512 bytes from malloc. If a mark made such objects, their sizes would follow the digits of its figures, and glibc
would cut the program's heap another way from run to run: ONNX Runtime's arena then fits into what is free there, or does not, which is 50 MiB
of a ResNet-50. So texts lie in two buffers of one size, and all else is small.
"""

import json
import os
import select

_SEEN = bytearray(8192)  # of a file of /proc
_LINE = bytearray(select.PIPE_BUF)  # of a mark


def read(path):
    """Read a file of /proc; how many bytes `row` and `place` find, 0 if it cannot be read. They are there until the next one is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0  # some kernels and containers lack it
    try:
        return os.readv(descriptor, [_SEEN])
    except OSError:
        return 0
    finally:
        os.close(descriptor)


def row(name, length):
    """The first word of the row of that name, which a colon follows, as a number; None without such a row."""
    begin = _SEEN.find(b"\n%s:" % name, 0, length) + 1
    if begin == 0 and not (length and _SEEN.startswith(b"%s:" % name)):
        return None
    begin += len(name) + 1
    end = _SEEN.find(b"\n", begin, length)
    return int(_SEEN[begin : end if end >= 0 else length].split()[0])


def words(count, length):
    """The first words of the file, none if it is empty."""
    return _SEEN[: min(length, 200)].split(None, count)[:count]


def line(values):
    """The values, numbers, texts, lists and dicts by name, as a line of JSON; None if it is longer than a pipe takes at once.

    It lies in the buffer until the next line.
    """
    try:
        filled = _put(b"\n", _value(values, 0))
    except OverflowError:
        return None
    return memoryview(_LINE)[:filled]


def joined(*pieces):
    """The pieces as one line, in the same way. Raises OverflowError."""
    filled = 0
    for piece in pieces:
        filled = _put(piece, filled)
    return memoryview(_LINE)[:filled]


def _value(value, filled):
    if isinstance(value, dict):
        for at, (name, part) in enumerate(value.items()):
            filled = _value(part, _put(b"%s%s:" % (b"," if at else b"{", json.dumps(name).encode()), filled))
        return _put(b"}" if value else b"{}", filled)
    if isinstance(value, list):
        for at, part in enumerate(value):
            filled = _value(part, _put(b"," if at else b"[", filled))
        return _put(b"]" if value else b"[]", filled)
    return _put(json.dumps(value).encode(), filled)


def _put(piece, filled):
    if filled + len(piece) > len(_LINE):
        raise OverflowError
    _LINE[filled : filled + len(piece)] = piece
    return filled + len(piece)
