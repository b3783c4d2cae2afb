"""Work that is repeated while its memory is followed: iterations, iterations with inputs of several shapes, or a runtime loaded again and again.

The job's "use": {"iterations": at most, "time_ns": at most, 0 for any, "cycles": null or "reload", "runs": iterations a cycle, "shapes":
[{INPUT: [N, ...]}, ...], "seed": of the order of shapes, null for one after another}. All that this needs is made before the first unit.
"""

import gc
import time

from runtimes import Refused, created, in_words


def iterations(marks, runtime, work, feeds, turn, use):
    """Do a runtime's work as often as the job says. work: see `work_of` of __main__; feeds: what `feeds_of` made; turn: whose turn it is, from
    `order`."""
    many = len(feeds) > 1
    begin_ns = time.monotonic_ns()
    for _ in range(use["iterations"]):
        if feeds:
            name, arrays = feeds[next(turn)]
            if many:
                runtime.set_inputs(arrays)
        else:
            name = None
        try:
            units = work()
        except Exception as error:
            if name is None:
                raise
            raise type(error)("with %s: %s" % (name, error)) from None
        marks.iteration(name, **units)
        if use["time_ns"] and time.monotonic_ns() - begin_ns > use["time_ns"]:
            break


def feeds_of(runtime, options, use):
    """The inputs of each shape, with its name, all at once. Raises Refused where the runtime takes none."""
    if not use["shapes"]:
        return []
    if not hasattr(runtime, "signature"):
        raise Refused("this runtime makes its own inputs: shapes have no effect on it")
    import inputs

    signature = runtime.signature()
    feeds = []
    for shapes in use["shapes"]:
        name = in_words(shapes)
        feeds.append((name, inputs.make(signature, dict(options.shapes, **shapes), options.inputs, options.ranges)))
    return feeds


def reloads(marks, runtime_class, model, options, give_inputs, work_of, use):
    """Load the model, prepare it, do its work a few times and drop it, again and again in this process."""
    begin_ns = time.monotonic_ns()
    for _ in range(use["iterations"]):
        runtime = created(runtime_class, model)
        runtime.load(model, options)
        runtime.prepare()
        give_inputs(runtime, options)
        work = work_of(runtime)
        for _ in range(use["runs"]):
            work()
        if callable(getattr(runtime, "release", None)):
            runtime.release()
        del runtime, work
        gc.collect()
        marks.iteration(reloads=1)
        if use["time_ns"] and time.monotonic_ns() - begin_ns > use["time_ns"]:
            break


def order(count, seed):
    """Places below `count`, without end: one after another, or by a generator of Lehmer's kind (Knuth's MMIX numbers)."""
    place, state = 0, seed
    while True:
        if seed is None:
            yield place
            place = (place + 1) % max(count, 1)
        else:
            state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            yield (state >> 33) % max(count, 1)
