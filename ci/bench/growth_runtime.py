"""Runtimes of known growth for `ci/bench/growth.py`, in Python: the model is a file with the kind's name and a seed.

onnxruntime runs the zoo's mnist beside it, with a wrapper that keeps something of each iteration, or without.
"""

import os
import random


def _nothing():
    pass


def reload_bytes(seed):
    """What each load of `reload` keeps."""
    return random.Random(seed).randrange(8192, 65536)


class Runtime:
    """A small runtime whose loads or iterations keep memory."""

    version = "1"

    def load(self, model, options):
        with open(model, encoding="utf-8") as file:
            kind, seed = file.read().split()
        self._random, self._cache = random.Random(int(seed)), {}
        self._step = _nothing
        if kind == "reload":
            _KEPT.append(bytearray(reload_bytes(int(seed))))
        elif kind == "reload-freed":
            self._block = bytearray(self._random.randrange(1 << 20, 8 << 20))
        elif kind == "python":
            self._step = self._keep
        elif kind == "python-cache":
            self._step = self._remember
        else:
            self._session(model, kind == "wrapper")

    def prepare(self):
        pass

    def execute(self):
        self._step()

    def _keep(self):
        _KEPT.append(bytearray(4096))

    def _remember(self):
        self._cache[self._random.randrange(300)] = bytearray(4096)

    def _session(self, model, keeps):
        import numpy
        import onnxruntime

        session = onnxruntime.InferenceSession(os.path.join(os.path.dirname(model), "mnist.onnx"))
        given = session.get_inputs()[0]
        feed = {given.name: numpy.zeros([n if isinstance(n, int) else 1 for n in given.shape], numpy.float32)}

        def step():
            session.run(None, feed)
            if keeps:
                _KEPT.append(bytearray(4096))

        self._step = step


_KEPT = []
