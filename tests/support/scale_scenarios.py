"""What the tests of scale share."""

from __future__ import annotations

from msgspec.structs import replace

from memprof.growth.laws import laws
from memprof.growth.scale.answer import ANONYMOUS, Named, PlaceRun, Scaled
from memprof.records.types import PEAK
from memprof.subjects.dimensions import parse
from support.law_points import SIX, measured
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
