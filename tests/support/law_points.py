"""What the tests of laws share."""

from __future__ import annotations

import itertools
import random

from memprof.growth.laws.terms import SizePoint

MIB = 1 << 20
QUIET = (1000.0, 1e-5)


def measured(law, places, noise=0.0, seed=1):
    """Points of a law, a function of a place to MiB, with noise in MiB."""
    generator = random.Random(seed)
    return [SizePoint(place, law(**place) * MIB + generator.gauss(0, noise) * MIB) for place in places]


def line(name, *values):
    return [{name: value} for value in values]


def grid(**values):
    return [dict(zip(values, place, strict=True)) for place in itertools.product(*values.values())]


SIX = [*grid(a=(1, 16), s=(16, 512)), {"a": 6, "s": 200}, {"a": 16, "s": 250}]
