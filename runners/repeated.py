"""Work that is repeated while its memory is followed: iterations, iterations with inputs of several shapes, or a runtime loaded again and again.

The job's "use": {"iterations": at most, "time_ns": at most, 0 for any, "cycles": null or "reload", "runs": iterations a cycle, "shapes":
[{INPUT: [N, ...]}, ...], "seed": of the order of shapes, null for one after another, "fresh": whether each iteration gets new content}. All that
this needs is made before the first unit.
"""

import gc
import time

from runtimes import created


def iterations(marks, runtime, work, feed, use):
    """Do a runtime's work as often as the job says. work: see `work_of` of __main__; feed: see feeds.py, None for a runtime that makes its inputs."""
    begin_ns = time.monotonic_ns()
    for _ in range(use["iterations"]):
        name = feed.hand_over(runtime) if feed is not None else None
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
