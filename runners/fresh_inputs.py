"""New content for arrays that are inputs, written into the same memory again and again: the same numbers in every process.

The numbers are those of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): output `index` of turn
`turn` is the mix of a counter, so that they come in blocks, without a generator's state for each array.
"""

import numpy
from inputs import rows_of

_BLOCK = 1 << 16  # numbers at once
_WORD = (1 << 64) - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BITS = 24  # of a number in [0, 1): as many as a float32 holds
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LENGTH = 16  # of a string that nobody gave: more than fits into a std::string itself


class FreshInputs:
    """Arrays by input name, of which `renew` overwrites all content. Nothing that it takes grows with the number of turns.

    given: the names of the arrays whose content is a user's: floats stay in the span of theirs, integers too, strings have their lengths. Other
    floats are in [0, 1), other strings have 16 letters, other integers are 0 or 1. ranges: by input name, how many rows the graph indexes by it: its
    numbers, of whatever type, are whole and below that.
    contents_log2: the logarithm of how many different contents there can be.
    """

    def __init__(self, arrays, given=(), ranges=None):
        self.arrays = {name: numpy.array(array, order="C") for name, array in arrays.items()}  # a user's may be read-only
        self._turn = 0
        self._counter, self._mixed, self._shifted = (numpy.zeros(_BLOCK, dtype=numpy.uint64) for _ in range(3))
        self._counter[:] = numpy.arange(1, _BLOCK + 1, dtype=numpy.uint64)
        self._counter *= numpy.uint64(_STEP)
        self._ways = []
        self.contents_log2 = 0.0
        for name, array in self.arrays.items():
            flat = array.reshape(-1)
            way = _way(flat, name in given, rows_of(flat.dtype, (ranges or {}).get(name)))
            if way is not None:
                self._ways.append((flat, way))
                self.contents_log2 += way.contents_log2

    def renew(self):
        """Overwrite all arrays with the content of the next turn."""
        self._turn += 1
        for place, (flat, way) in enumerate(self._ways):
            begin = (self._turn << 40) + (place << 34)  # far apart: no two arrays take the same numbers
            for start in range(0, flat.size, _BLOCK):
                count = min(_BLOCK, flat.size - start)
                way.write(flat, start, self._numbers(begin + start, count))

    def _numbers(self, begin, count):
        """So many numbers of 64 bits from this place of the sequence on, in memory that the next call overwrites."""
        mixed, shifted = self._mixed[:count], self._shifted[:count]
        numpy.add(self._counter[:count], numpy.uint64(begin * _STEP & _WORD), out=mixed)
        for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
            numpy.right_shift(mixed, numpy.uint64(shift), out=shifted)
            numpy.bitwise_xor(mixed, shifted, out=mixed)
            numpy.multiply(mixed, numpy.uint64(factor), out=mixed)
        return mixed


def _way(array, is_given, rows):
    """How a flat array is overwritten, None for one whose content cannot vary."""
    kind = array.dtype.kind
    if array.size == 0:
        return None
    if kind in "OUS":
        return _Strings(array, is_given)
    if rows is not None and not is_given:
        return _Integers(array.size, 0, rows - 1) if rows > 1 else None
    if kind in "biu":
        low, high = (int(array.min()), int(array.max())) if is_given else (0, 1)
        return _Integers(array.size, low, high) if high > low else None
    if kind == "f":
        finite = array[numpy.isfinite(array)] if is_given else array[:0]
        least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        return _Floats(array, least, most) if most > least else None
    return None


class _Floats:
    def __init__(self, array, low, high):
        self._low, self._span = low, high - low
        self.contents_log2 = array.size * float(min(numpy.finfo(array.dtype).nmant, _BITS))
        self._values = numpy.zeros(_BLOCK, dtype=numpy.float64)

    def write(self, flat, start, numbers):
        numpy.right_shift(numbers, numpy.uint64(64 - _BITS), out=numbers)
        values = self._values[: len(numbers)]
        numpy.multiply(numbers, self._span / (1 << _BITS), out=values)
        numpy.add(values, self._low, out=values)
        flat[start : start + len(numbers)] = values


class _Integers:
    def __init__(self, size, low, high):
        self._low, self._count = low, min(high - low + 1, 1 << 32)
        self.contents_log2 = size * float(numpy.log2(self._count))

    def write(self, flat, start, numbers):
        numpy.right_shift(numbers, numpy.uint64(32), out=numbers)
        numpy.multiply(numbers, numpy.uint64(self._count), out=numbers)
        numpy.right_shift(numbers, numpy.uint64(32), out=numbers)
        values = numbers.view(numpy.int64)
        numpy.add(values, self._low, out=values)
        numpy.copyto(flat[start : start + len(numbers)], values, casting="unsafe")


class _Strings:
    def __init__(self, array, is_given):
        self._in_bytes = array.dtype.kind == "S" or isinstance(array[0], bytes)
        self._lengths = [len(text) for text in array] if is_given else [_LENGTH] * array.size
        self.contents_log2 = sum(self._lengths) * float(numpy.log2(len(_LETTERS)))

    def write(self, flat, start, numbers):
        for place, number in enumerate(numbers.tolist(), start):
            text = _letters(number, self._lengths[place])
            flat[place] = text.encode() if self._in_bytes else text


def _letters(number, length):
    """A word of so many letters: the digits of numbers, each of them made of the one before."""
    letters = []
    for _ in range(length):
        letters.append(_LETTERS[(number >> 33) % len(_LETTERS)])
        number = following(number)
    return "".join(letters)


def following(number):
    """The number after this one in Knuth's MMIX generator, a linear congruence modulo 2^64 whose upper bits are those to take."""
    return (number * 6364136223846793005 + 1442695040888963407) & _WORD
