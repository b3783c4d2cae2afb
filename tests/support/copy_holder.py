"""Holds known copies of known tensors in memory, against which the scanner of `memprof explain` is judged.

In, one line of JSON on standard input: {"tensors": [{"path", "offset", "shape", "dtype", "copies": [LAYOUT, ...]}], "noise_bytes"}; LAYOUT is stored,
transposed, block8, block16, float16, padded or near (every value a little changed: no copy). Prints "ready" once all is there, and waits for the end
of its input. Copies are written straight to their place, so that no temporary is left that would be a copy too.
"""

import json
import sys

import numpy


def main():
    order = json.loads(sys.stdin.readline())
    held = []
    for tensor in order["tensors"]:
        source = numpy.memmap(tensor["path"], tensor["dtype"], "r", tensor["offset"], tuple(tensor["shape"]))
        held += [_copy(source, layout) for layout in tensor["copies"]]
        source._mmap.close()
    noise = numpy.frombuffer(numpy.random.default_rng(1).bytes(order.get("noise_bytes", 0)), "u1")
    print("ready", flush=True)
    sys.stdin.read()
    return held, noise


def _copy(source, layout):
    rows = source.reshape(source.shape[0], -1)
    if layout == "stored":
        return _filled(source.shape, source.dtype, source)
    if layout == "transposed":
        return _filled(rows.T.shape, source.dtype, rows.T)
    if layout in ("block8", "block16"):
        block = int(layout[5:])
        packed = numpy.zeros((-(-len(rows) // block), rows.shape[1], block), source.dtype)
        for number, panel in enumerate(packed):
            part = rows[number * block : (number + 1) * block]
            panel[:, : len(part)] = part.T
        return packed
    if layout == "float16":
        return _filled(source.shape, "float16", source)
    if layout == "padded":
        flat = source.reshape(-1, source.shape[-1])
        padded = numpy.zeros((len(flat), flat.shape[1] + 12), source.dtype)
        padded[:, : flat.shape[1]] = flat
        return padded
    near = _filled(source.shape, source.dtype, source)
    near *= numpy.float32(1.0001)
    return near


def _filled(shape, dtype, source):
    target = numpy.empty(shape, dtype)
    target[...] = source
    return target


if __name__ == "__main__":
    main()
