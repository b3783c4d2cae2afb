"""A runtime whose memory follows what it is fed, for `ci/bench/growth.py`: the model is a file with the kind's name and a seed."""

import random
from collections import OrderedDict

_BLOCK = 8192


class Runtime:
    """A runtime with caches keyed by content or by shape."""

    version = "1"

    def load(self, model, options):
        with open(model, encoding="utf-8") as file:
            self._kind, seed = file.read().split()
        self._entries = random.Random(int(seed)).randrange(100, 3000)
        self._cache, self._kept, self._shape = OrderedDict(), [], None

    def prepare(self):
        pass

    def signature(self):
        return [("x", (1, None), "float32")]

    def set_inputs(self, arrays):
        self._array = arrays["x"]

    def execute(self):
        if self._kind.startswith("content"):
            self._cache.setdefault(self._array.tobytes(), bytearray(_BLOCK))
            if self._kind == "content-bounded" and len(self._cache) > self._entries:
                self._cache.popitem(last=False)
        if self._kind == "content-beside-leak":
            self._kept.append(bytearray(_BLOCK))
        if self._kind == "shape-cache":
            self._cache.setdefault(self._array.shape, bytearray(_BLOCK))
        if self._kind == "shape-change" and self._array.shape != self._shape:
            self._kept.append(bytearray(_BLOCK))
        self._shape = self._array.shape
