"""Inputs for a model, made from its signature: the same numbers in every run, without importing a random generator.

Needs numpy, which every runtime with a signature brings along; it is imported only when inputs are made.
"""

import os

from runtimes import Refused

_BLOCK = 1 << 16
_TEXT = "sixteen-letters-"  # more than fits into a std::string itself


def make(signature, shapes, path):
    """Arrays by input name.

    signature: (name, shape, dtype name) triples, a dimension None where unknown. shapes: by input name, replaces the model's own. path: an
    .npz file whose arrays are taken by name, or None; inputs that it lacks are made. Unknown dimensions are 1, integers and booleans 0, strings
    16 letters. Raises Refused if a name is not an input of the model.
    """
    import numpy

    names = [name for name, _, _ in signature]
    given = arrays(path) if path else {}
    for name in list(shapes) + list(given):
        if name not in names:
            raise Refused("the model has no input %r; it has %s" % (name, ", ".join(names) or "none"))
    return {
        name: given[name] if name in given else _filled(numpy, shapes.get(name, shape), dtype, seed)
        for seed, (name, shape, dtype) in enumerate(signature)
    }


def arrays(path):
    """The arrays of an .npz file by name. Raises Refused."""
    import zipfile  # numpy imports it here too

    import numpy

    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        # deflate makes at most 1,032 bytes of a byte; entries that lie over one another, or another method, make more.
        if unpacked > 1100 * os.path.getsize(path):
            raise ValueError("its arrays are larger than what such a file can hold")
        with numpy.load(path) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # numpy's, zipfile's and zlib's own
        raise Refused("%s cannot be read as .npz: %s" % (path, error)) from None


def save(path, arrays):
    """Write arrays to an .npz file under the names 0, 1, 2..., so that another run's can be compared with them."""
    import numpy

    numpy.savez(path, **{str(index): numpy.asarray(array) for index, array in enumerate(arrays)})


def _filled(numpy, shape, dtype, seed):
    shape = tuple(1 if size is None else size for size in shape)
    if dtype == "str":
        return numpy.full(shape, _TEXT, dtype=object)
    array = numpy.zeros(shape, dtype=dtype)
    if array.dtype.kind == "f":
        flat = array.reshape(-1)
        # A Weyl sequence in blocks: uniform in [0, 1), without a temporary as large as the input.
        for start in range(0, flat.size, _BLOCK):
            count = min(_BLOCK, flat.size - start)
            steps = numpy.arange(start + 1, start + 1 + count, dtype=numpy.uint64) * numpy.uint64(2654435769)
            flat[start : start + count] = ((steps + numpy.uint64(seed * 97)) & numpy.uint64(0xFFFFFF)) / 16777216.0
    return array
