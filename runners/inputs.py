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


def make(signature, options, shapes=None, but=()):
    """Arrays by input name.

    signature: (name, shape, dtype name) triples, a dimension None where unknown. options: of the job (see runtimes.Options). Its shapes replace the
    model's own; the arrays of its file of inputs are taken by name, and its values fill inputs. Other inputs are made: ranges say by name how many
    rows the graph indexes by an input, whose integers, or floats as whole numbers, are spread over 0 to one less. Unknown dimensions are 1, other
    floats in [0, 1), other integers and booleans 0, strings 16 letters. shapes: in place of the options'. but: names of inputs that have arrays
    already. Raises Refused if a name is not an input of the model, or for a value that an input cannot have.
    """
    import numpy

    shapes = options.shapes if shapes is None else shapes
    values, given = options.values, arrays(options.inputs) if options.inputs and not but else {}
    check_names(signature, [*shapes, *given, *values])
    made = {}
    for seed, (name, shape, dtype) in enumerate(signature):
        if name in but:
            continue
        if name in given:
            made[name] = given[name]
        elif name in values:
            made[name] = _of_value(numpy, name, values[name], shapes.get(name, shape), dtype)
        else:
            made[name] = _filled(numpy, shapes.get(name, shape), dtype, seed, rows_of(dtype, options.ranges.get(name)))
    return made


def given_names(options):
    """The names of the inputs that are not made: those in the file of inputs, and those that have a value. Raises Refused."""
    return {*names_in(options.inputs), *options.values}


def remark(signature, options):
    """What the whole numbers and the scalars among made inputs are, in a sentence; empty if there are none. Small integers that no table has are
    content, such as an image's, and get no word."""
    given = given_names(options)
    words = []
    for seed, (name, shape, dtype) in enumerate(signature):
        rows = rows_of(dtype, options.ranges.get(name))
        if name in given:
            continue
        scalar = "" if len(options.shapes.get(name, shape)) else _scalar(dtype, seed)
        if rows is not None:
            numbers = format(rows - 1, ","), format(options.ranges[name], ",")
            words.append("%s is integers from 0 to %s, as the graph indexes %s rows by it" % (name, *numbers))
        elif scalar:
            words.append("%s is %s, a scalar (--input %s=VALUE sets it)" % (name, scalar, name))
        elif dtype in _WIDE:
            words.append("%s is all 0" % name)
    more = "; and %d more" % (len(words) - _TOLD) if len(words) > _TOLD else ""
    return "made inputs: " + "; ".join(words[:_TOLD]) + more if words else ""


def _scalar(dtype, seed):
    """The value of a scalar that is made, as text; empty for a string, and for a type that numpy has not."""
    import numpy

    try:
        return "" if dtype == "str" else "%.3g" % _filled(numpy, (), dtype, seed, None)
    except TypeError:
        return ""


def check_names(signature, names, where=""):
    """Raises Refused for a name that the model's inputs lack. where: what has it, with a colon."""
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


def _of_value(numpy, name, text, shape, dtype):
    """An array of which each element has this value. Raises Refused for a text that is no value of the type."""
    shape = tuple(1 if size is None else size for size in shape)
    if dtype == "str":
        return numpy.full(shape, text, dtype=object)
    kind = numpy.dtype(dtype)
    word = {"true": "1", "on": "1", "false": "0", "off": "0"}.get(text, text) if kind.kind == "b" else text
    try:
        value = float(word) if kind.kind == "f" else int(word)
        limits = None if kind.kind in "fb" else numpy.iinfo(kind)
        if (kind.kind == "b" and value not in (0, 1)) or (limits is not None and not limits.min <= value <= limits.max):
            raise ValueError
    except ValueError:
        raise Refused("--input %s=%s: %s has the type %s, which has no such value" % (name, text, name, dtype)) from None
    return numpy.full(shape, value, dtype=kind)


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
