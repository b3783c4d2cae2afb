"""What the tests of scale share."""

from __future__ import annotations

from msgspec.structs import replace

from memprof.growth.laws import laws
from memprof.growth.laws.arena import ArenaLaw
from memprof.growth.scale.answer import ANONYMOUS, Named, PlaceRun, Scaled
from memprof.records.types import PEAK
from memprof.subjects.dimensions import parse
from support.law_points import QUIET, SIX, line, measured
from support.sample_runs import MIB


def made(truth=lambda a, s: 80 + 0.02 * a * s + 0.0001 * a * s * s, **changes):
    points = measured(truth, SIX)
    law = laws.law(points, noise=(1000.0, 1e-5))
    answer = Scaled(
        model="net.onnx",
        runtime="onnxruntime",
        settings="arena=off",
        dimensions=(parse("a=1..16"), parse("s=16..512")),
        points=tuple(PlaceRun(point.at, {PEAK: int(point.bytes), ANONYMOUS: 40 * MIB}) for point in points),
        main=PEAK,
        laws=(Named(PEAK, law),),
        threads=2,
    )
    return replace(answer, **changes)


def falling(batch):
    """MiB of an arena in steps: it needs less at a batch of 28 than at one of 27, and much more from 32 on."""
    step = 0 if batch < 28 else -70 if batch < 32 else 60
    return 138 + 8.5 * batch + (6 if batch % 8 == 6 else 0) + step


def in_arena(doubles=True, **changes):
    """The answer about an arena that is simulated, or planned."""
    points = measured(falling, line("batch", 1, 2, 4, 6, 7, 8))
    arena = ArenaLaw(size=lambda at: (falling(**at) - 138) * MIB, doubles=doubles)
    answer = made(
        dimensions=(parse("batch=1..8"),),
        points=tuple(PlaceRun(point.at, {PEAK: int(point.bytes)}) for point in points),
        laws=(Named(PEAK, laws.law(points, noise=QUIET, arena=arena)),),
        settings="",
    )
    return replace(answer, **changes)
