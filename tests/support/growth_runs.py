"""Runs and answers of `memprof grow` that nothing measured."""

from __future__ import annotations

from msgspec.structs import replace

from memprof.growth.grow.grow import GrowthAnswer
from memprof.records.types import Run, Use
from memprof.verdicts.growth import Verdict
from support import sample_runs

KIB = 1 << 10


def followed(repeat: int, slope: int, units: int = 400, **changes: object) -> Run:
    done = list(range(units + 1))
    curve = sample_runs.worked(done, [(60 << 20) + slope * unit // 4096 * 4096 for unit in done])
    return replace(sample_runs.run("a", repeat, use=Use(units, **changes), runs=units), work=(curve,))  # type: ignore[arg-type]


def grows(units: int = 400, each: int = 64 * KIB, unit: str = "iteration") -> GrowthAnswer:
    """An answer of `memprof grow`: processes that grew by so much with each of so many units."""
    run = replace(sample_runs.run(), work=(sample_runs.worked(range(units + 1), [each * done for done in range(units + 1)]),))
    return GrowthAnswer("m", "r", "", "", Verdict("grows", unit, slope=float(each), tail=units), (), runs=(run,))
