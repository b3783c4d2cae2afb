"""A user's own stream of inputs: arrays with one axis more than the model's, a folder of .npz files, or what a program prints.

A program prints a line for each iteration: JSON, {INPUT: nested lists}, or the path of an .npz file. Entries are read one after another, when their
iteration is due, and copied into the same arrays as long as they have the same shapes.
"""

import itertools
import json
import mmap
import os
import subprocess
import zlib

import inputs
import numpy
from runtimes import Refused

_SEEN_BITS = 1 << 23  # of the record of contents, which a stream of any length shares: one bit an entry


def entries_of(signature, options, use):
    """An iterator of arrays by input name, None where the job has no stream. Raises Refused, and its iterator does."""
    if use["folder"]:
        return _of_folder(signature, use["folder"])
    if use["feeder"]:
        return _of_program(signature, use["feeder"])
    if options.inputs:
        return _of_stacks(signature, inputs.arrays(options.inputs), options.inputs)
    return None


class InputStream:
    """What iterations are handed, in the order of the stream: see Feed in feeds.py. first, rest: its entries. made: arrays for the inputs that no
    entry has. close: ends what the stream comes from."""

    def __init__(self, first, rest, made, close):
        self._entries, self._made, self._buffers = itertools.chain([first], rest), made, {}
        self.close = close
        self._seen = bytearray(_SEEN_BITS // 8)
        # All memory that this takes is touched before the first unit.
        for place in range(0, len(self._seen), mmap.PAGESIZE):
            self._seen[place] = 0
        for name, array in first.items():
            self._kept(name, array)
        self._repeated = self._count = 0

    @property
    def notes(self):
        """How many inputs came again, so far."""
        if not self._repeated:
            return []
        return ["%d of the %d inputs of the stream repeat an earlier one" % (self._repeated, self._count)]

    def __iter__(self):
        return self

    def __next__(self):
        """None, the name of no shape, and arrays by input name."""
        entry = next(self._entries)
        arrays = dict(self._made)
        for name, array in entry.items():
            arrays[name] = self._kept(name, array)
        self._record(arrays)
        return None, arrays

    def _kept(self, name, array):
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != array.shape or buffer.dtype != array.dtype:
            buffer = self._buffers[name] = numpy.array(array, order="C")
        else:
            numpy.copyto(buffer, array)
        return buffer

    def _record(self, arrays):
        """Count this content, and whether a content with the same checksums was there before: the record has the same size for any count."""
        first = second = 0
        for name in sorted(arrays):
            content = _content(arrays[name])
            first, second = zlib.crc32(content, first), zlib.adler32(content, second)
        place = (first << 32 | second) % (_SEEN_BITS - 9)  # a prime
        byte, bit = place >> 3, 1 << (place & 7)
        self._count += 1
        if self._seen[byte] & bit:
            self._repeated += 1
        self._seen[byte] |= bit


def _content(array):
    """The bytes of an array's content, without a copy but for strings."""
    if array.dtype.kind == "O":
        return "\0".join(map(str, array.flat)).encode("utf-8", "replace")
    return memoryview(array.reshape(-1).view(numpy.uint8))


def _of_stacks(signature, arrays, path):
    """Entries of arrays that have one axis more than the model's inputs, None where none has."""
    ranks = {name: len(shape) for name, shape, _ in signature}
    stacks = {name: array for name, array in arrays.items() if array.ndim == ranks.get(name, array.ndim) + 1}
    if not stacks:
        return None
    counts = {len(array) for array in stacks.values()}
    if len(counts) > 1:
        told = ", ".join("%s has %d" % (name, len(array)) for name, array in stacks.items())
        raise Refused("%s: the arrays of a stream have as many entries as each other: %s" % (path, told))
    return ({name: array[place] if name in stacks else array for name, array in arrays.items()} for place in range(min(counts)))


def _of_folder(signature, folder):
    for name in sorted(os.listdir(folder)):
        if name.endswith(".npz"):
            path = os.path.join(folder, name)
            yield _checked(signature, inputs.arrays(path), path)


def _of_program(signature, words):
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Refused("the feeding program %s could not be started: %s" % (words[0], error.strerror)) from None
    try:
        lines = process.stdout or ()
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _of_line(signature, line.strip(), "line %d of the feeding program" % number)
        if process.wait():
            raise Refused("the feeding program ended with exit code %d" % process.returncode)
    finally:
        process.kill()
        process.communicate()


def _of_line(signature, line, where):
    """The arrays that a line names, or has."""
    if not line.startswith(b"{"):
        path = os.fsdecode(line)
        return _checked(signature, inputs.arrays(path), path)
    dtypes = {name: object if dtype == "str" else dtype for name, _, dtype in signature}
    try:
        content = json.loads(line.decode())
        return _checked(signature, {name: numpy.array(values, dtype=dtypes.get(name)) for name, values in content.items()}, where)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Refused("%s is neither a path nor JSON with an array for each input: %s" % (where, error)) from None


def _checked(signature, arrays, where):
    inputs.check_names(signature, arrays, where + ": ")
    return arrays
