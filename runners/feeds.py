"""What a runtime is handed before each iteration that is repeated: the same input, one of several shapes, or new content.

Every kind hands it over again before each iteration, as a program does that serves requests, so that two kinds of processes differ in nothing but
the content. Inputs are made before the first iteration, or overwritten in place.
"""

import inputs
import streams
from fresh_inputs import FreshInputs, following
from runtimes import Refused, in_words

_LEAST = 32  # contents: as many as a verdict needs units
_ENOUGH_LOG2 = 24.0  # so many contents do not repeat in a run


def feed_of(runtime, options, use):
    """The feed of a job's "use" (see repeated.py) for a runtime with a signature. Raises Refused."""
    signature = runtime.signature()
    entries = streams.entries_of(signature, options, use)
    if entries is not None:
        return _of_stream(signature, options, use, entries)
    given = inputs.given_names(options)
    items = []
    for shapes in use["shapes"] or [{}]:
        arrays = inputs.make(signature, options, dict(options.shapes, **shapes))
        items.append((in_words(shapes) or None, FreshInputs(arrays, given, options.ranges) if use["fresh"] else Made(arrays)))
    feed = Feed(items, order(len(items), use["seed"]))
    made = "" if use["fresh"] else inputs.remark(signature, options)
    feed.notes += [made] if made else []
    return feed


def _of_stream(signature, options, use, entries):
    """The feed of a stream, or of its first entry where all iterations get the same."""
    if use["shapes"]:
        raise Refused("several shapes and a stream of inputs: the arrays of a stream have shapes of their own")
    first = next(entries, None)
    if first is None:
        raise Refused("the stream of inputs is empty")
    made = inputs.make(signature, options, but=first)
    if use["fresh"]:
        return streams.InputStream(first, entries, made, entries.close)
    entries.close()
    return Feed([(None, Made(dict(made, **first)))], order(1, None))


class Made:
    """Arrays by input name that keep their content."""

    def __init__(self, arrays):
        self.arrays, self.contents_log2 = arrays, 0.0

    def renew(self):
        """Leave them as they are."""


class Feed:
    """Inputs of each shape, with its name, one after another. notes: sentences for the reader of the figures. Raises Refused for fresh ones that
    differ too little."""

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

    def __iter__(self):
        return self

    def __next__(self):
        """The name of a shape, None for the model's own, and arrays by input name."""
        name, item = self._items[next(self._turn)]
        item.renew()
        return name, item.arrays

    def close(self):
        """Nothing is open."""


def order(count, seed):
    """Places below `count`, without end: one after another, or as by chance."""
    place, state = 0, seed
    while True:
        if seed is None:
            yield place
            place = (place + 1) % max(count, 1)
        else:
            state = following(state)
            yield (state >> 33) % max(count, 1)
