"""What the tests of gate growth share."""

from __future__ import annotations

from msgspec.structs import replace

from memprof.records.types import Run, Use
from support import sample_runs


def followed(repeat: int, slope: int, units: int = 400, **changes: object) -> Run:
    done = list(range(units + 1))
    curve = sample_runs.worked(done, [(60 << 20) + slope * unit // 4096 * 4096 for unit in done])
    return replace(sample_runs.run("a", repeat, use=Use(units, **changes), runs=units), work=(curve,))  # type: ignore[arg-type]
