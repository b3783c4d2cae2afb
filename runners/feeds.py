"""What a runtime is handed before each iteration that is repeated: the same input, one of several shapes, or new content.

Every kind hands it over anew before each iteration, as a program does that serves requests, so that two kinds of processes differ in nothing but
the content. Inputs are made before the first iteration, or overwritten in place.
"""

import inputs
from fresh_inputs import FreshInputs
from runtimes import Refused

_LEAST = 32  # contents: as many as a verdict needs units
_ENOUGH_LOG2 = 24.0  # so many contents do not repeat in a run


def feed_of(runtime, options, use):
    """The feed of a job's "use" (see repeated.py) for a runtime with a signature. Raises Refused."""
    signature = runtime.signature()
    given = inputs.arrays(options.inputs) if options.inputs else {}
    ranges = getattr(options, "ranges", {})
    items = []
    for shapes in use["shapes"] or [{}]:
        arrays = inputs.make(signature, dict(options.shapes, **shapes), options.inputs)
        items.append((named(shapes), FreshInputs(arrays, given, ranges) if use["fresh"] else Made(arrays)))
    return Feed(items, order(len(items), use["seed"]))


def named(shapes):
    """The name of these shapes of inputs, None for those of the model."""
    return "; ".join("%s=%s" % (name, ",".join(map(str, shape))) for name, shape in shapes.items()) or None


class Made:
    """Arrays by input name that keep their content."""

    def __init__(self, arrays):
        self.arrays, self.contents_log2 = arrays, 0.0

    def renew(self):
        """Leave them as they are."""


class Feed:
    """Inputs of each shape, with its name, in turn. notes: what the reader of the figures is told. Raises Refused for fresh ones that can hardly
    differ."""

    def __init__(self, items, turn):
        self._items, self._turn = items, turn
        self.notes = []
        contents_log2 = min(item.contents_log2 for _, item in items)
        if isinstance(items[0][1], FreshInputs) and contents_log2 < _ENOUGH_LOG2:
            contents = int(2**contents_log2)
            if contents < _LEAST:
                raise Refused(
                    "fresh inputs need an input whose content can vary: those of this model have %d different contents" % contents
                )
            self.notes = ["the inputs of this model have only %d different contents, so that fresh ones repeat" % contents]

    def hand_over(self, runtime):
        """Give the runtime the next inputs, and return the name of their shape."""
        name, item = self._items[next(self._turn)]
        item.renew()
        runtime.set_inputs(item.arrays)
        return name


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
