"""Hints at why a run failed: what its child printed, and what memprof made of the model's inputs.

Nothing here is measured again, so a hint says only what is known: whether other inputs would have run is not.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..models import indexed_tables, inputs
from ..records import failures
from ..records.types import MODEL_LOAD, RELEASE, STARTUP, Job, Run

_BEFORE_INPUTS = (STARTUP, MODEL_LOAD, RELEASE)


def of(run: Run) -> tuple[str, ...]:
    """The hints of a run, none for one that ended well."""
    if run.outcome.ok:
        return ()
    printed = failures.reason(run)
    hints = [f"it printed: {printed}"] if printed else []
    if run.outcome.phase not in _BEFORE_INPUTS:
        hints += made_inputs(run.job, f"{run.outcome.message or ''} {printed}")
    return tuple(hints)


def made_inputs(job: Job, error: str) -> list[str]:
    """What memprof chose of the inputs, as a sentence, if it chose anything; and the inputs among them that the runtime's own words name."""
    path = Path(job.model.path)
    scalars = [name for name in inputs.scalars(path) if name not in {*job.given, *job.values, *job.ranges}]
    values = [f"{', '.join(scalars)} {'is' if len(scalars) == 1 else 'are'} made up (--input {scalars[0]}=VALUE)"] if scalars else []
    made = [text for text in (inputs.remark(job.assumed, path), indexed_tables.remark(job.ranges, path), *values) if text]
    if not made:
        return []
    chosen = [name for name in dict.fromkeys([*job.assumed, *job.ranges, *scalars]) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", error)]
    named = (
        f"the error names {' and '.join(chosen)}, which memprof chose" if chosen else "memprof chose inputs, which may be the cause or not"
    )
    return [f"{named}: {'; '.join(made)}"]
