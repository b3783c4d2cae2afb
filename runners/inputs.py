"""Inputs for a model, made from its signature: the same numbers in every run, without importing a random generator.

Needs numpy, which every runtime with a signature brings along; it is imported only when inputs are made.
"""

import os
from contextlib import contextmanager

from runtimes import Refused

_BLOCK = 1 << 16
_WIDE = ("int32", "int64", "uint32", "uint64")
_TEXT = "sixteen-letters-"  # more than fits into a std::string itself
_TOLD = 6  # inputs, in a remark


def make(signature, shapes, path, ranges=None):
    """Arrays by input name.

    signature: (name, shape, dtype name) triples, a dimension None where unknown. shapes: by input name, replaces the model's own. path: an
    .npz file whose arrays are taken by name, or None; inputs that it lacks are made. ranges: by input name, how many rows the graph indexes by it:
    its integers, or its floats as whole numbers, are spread over 0 to one less. Unknown dimensions are 1, other integers and booleans 0, strings 16
    letters. Raises Refused if a name is not an input of the model.
    """
    import numpy

    given = arrays(path) if path else {}
    check_names(signature, list(shapes) + list(given))
    limits = {name: rows_of(dtype, (ranges or {}).get(name)) for name, _, dtype in signature}
    return {
        name: given[name] if name in given else _filled(numpy, shapes.get(name, shape), dtype, seed, limits[name])
        for seed, (name, shape, dtype) in enumerate(signature)
    }


def remark(signature, path, ranges):
    """What the whole numbers in made inputs are, in a sentence; empty if there are none. Small integers that no table has are content, such as an
    image's, and get no word."""
    given = names_in(path)
    words = []
    for name, _, dtype in signature:
        rows = rows_of(dtype, ranges.get(name))
        if name not in given and rows is not None:
            numbers = format(rows - 1, ","), format(ranges[name], ",")
            words.append("%s is integers from 0 to %s, as the graph indexes %s rows by it" % (name, *numbers))
        elif name not in given and dtype in _WIDE:
            words.append("%s is all 0" % name)
    more = "; and %d more" % (len(words) - _TOLD) if len(words) > _TOLD else ""
    return "made inputs: " + "; ".join(words[:_TOLD]) + more if words else ""


def check_names(signature, names, where=""):
    """Raises Refused for a name that is no input of the model. where: what has it, with a colon."""
    known = [name for name, _, _ in signature]
    for name in names:
        if name not in known:
            raise Refused("%sthe model has no input %r; it has %s" % (where, name, ", ".join(known) or "none"))


def arrays(path):
    """The arrays of an .npz file by name. Raises Refused."""
    with _opened(path) as file:
        return {name: file[name] for name in file.files}


def names_in(path):
    """The names of the arrays in an .npz file, none for no file. Raises Refused."""
    if not path:
        return ()
    with _opened(path) as file:
        return tuple(file.files)


@contextmanager
def _opened(path):
    """An .npz file. What is read of it raises Refused where the file is damaged."""
    import zipfile  # numpy imports it here too

    import numpy

    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        # deflate makes at most 1,032 bytes of a byte; entries that lie over one another, or another method, make more.
        if unpacked > 1100 * os.path.getsize(path):
            raise ValueError("its arrays are larger than what such a file can hold")
        with numpy.load(path) as file:
            yield file
    except Exception as error:  # numpy's, zipfile's and zlib's own
        raise Refused("%s cannot be read as .npz: %s" % (path, error)) from None


def save(path, arrays):
    """Write arrays to an .npz file under the names 0, 1, 2..., so that another run's can be compared with them."""
    import numpy

    numpy.savez(path, **{str(index): numpy.asarray(array) for index, array in enumerate(arrays)})


def rows_of(dtype, rows):
    """How many of the rows numbers of a type can tell apart: all but those of small integers and floats. None for no numbers of rows."""
    if rows is None or dtype == "str":
        return None
    import numpy

    kind = numpy.dtype(dtype)
    if kind.kind not in "iuf":
        return None
    return min(rows, 1 << numpy.finfo(kind).nmant if kind.kind == "f" else int(numpy.iinfo(kind).max) + 1)


def _filled(numpy, shape, dtype, seed, rows):
    shape = tuple(1 if size is None else size for size in shape)
    if dtype == "str":
        return numpy.full(shape, _TEXT, dtype=object)
    array = numpy.zeros(shape, dtype=dtype)
    if array.dtype.kind == "f" or rows is not None:
        flat = array.reshape(-1)
        # A Weyl sequence in blocks: uniform in [0, 1), without a temporary as large as the input.
        for start in range(0, flat.size, _BLOCK):
            count = min(_BLOCK, flat.size - start)
            steps = numpy.arange(start + 1, start + 1 + count, dtype=numpy.uint64) * numpy.uint64(2654435769)
            steps = (steps + numpy.uint64(seed * 97)) & numpy.uint64(0xFFFFFF)
            flat[start : start + count] = steps / 16777216.0 if rows is None else steps * numpy.uint64(rows) >> numpy.uint64(24)
    return array
