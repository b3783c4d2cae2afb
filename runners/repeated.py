"""Work that is repeated while its memory is followed: iterations, iterations with inputs of several shapes, or a runtime loaded again and again.

The job's "use": {"iterations": at most, "time_ns": at most, 0 for any, "cycles": null or "reload", "runs": iterations a cycle, "shapes":
[{INPUT: [N, ...]}, ...], "seed": of the order of shapes, null for one after another, "fresh": whether each iteration gets new content, "folder":
of .npz files that iterations get one after another, or null, "feeder": the words of a program that prints inputs, or []}. All that this needs is made
before the first unit, but for the entries of a stream.
"""

import gc
import time
from itertools import islice, repeat

from runtimes import created


def iterations(marks, runtime, work, feed, use):
    """Do a runtime's work as often as the job says, or until the feed ends. work: see `work_of` of __main__; feed: see feeds.py, None for a runtime
    that makes its own inputs."""
    begin_ns = time.monotonic_ns()
    for name, arrays in islice(feed or repeat((None, None)), use["iterations"]):
        if arrays is not None:
            runtime.set_inputs(arrays)
        try:
            units = work()
        except Exception as error:
            told = name or ("fresh inputs" if use["fresh"] else None)
            if told is None:
                raise
            raise type(error)("with %s: %s" % (told, error)) from None
        marks.iteration(name, **units)
        if use["time_ns"] and time.monotonic_ns() - begin_ns > use["time_ns"]:
            break


def reloads(marks, runtime_class, model, options, give_inputs, work_of, use):
    """Load the model, prepare it, do its work a few times and drop it, again and again in this process."""
    begin_ns = time.monotonic_ns()
    for _ in range(use["iterations"]):
        runtime = created(runtime_class, model, options)
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
