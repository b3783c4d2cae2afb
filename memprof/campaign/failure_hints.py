"""Hints at why a run failed: what its child printed, and what memprof made of the model's inputs.

Nothing here is measured again, so a hint says only what is known: whether other inputs would have run is not.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..models import indexed_tables, inputs
from ..records import failures
from ..records.types import BUILD, MODEL_LOAD, PREPARE, RELEASE, STARTUP, Job, Outcome, Run

_BEFORE_INPUTS = (STARTUP, MODEL_LOAD, RELEASE)
_BEFORE_VALUES = (BUILD, PREPARE)  # inputs have a shape there, and no content yet
# In the words of TFLite 2.21, ONNX Runtime 1.32, OpenVINO 2026.4 and TVM 0.27.
_LACKS_OPERATOR = re.compile(
    r"unresolved custom op|could not find an implementation|not a registered function/op|not support the following|operators are not supported",
    re.IGNORECASE,
)


def of(run: Run) -> tuple[str, ...]:
    """The hints of a run, none for one that ended well."""
    if run.outcome.ok:
        return ()
    printed = failures.reason(run)
    hints = [f"it printed: {printed}"] if printed else []
    if run.outcome.phase not in _BEFORE_INPUTS:
        error = f"{run.outcome.message or ''} {printed}"
        hints += _made_inputs(run.job, run.outcome, error)
        hints += _fixed_by_file(run.job) if _may_come_from_inputs(run.job, run.outcome, error) else []
    return tuple(hints)


def _made_inputs(job: Job, outcome: Outcome, error: str) -> list[str]:
    """What memprof chose of the inputs, as a sentence, if it chose anything that this failure can come from; and the inputs among them that the
    runtime's own words name."""
    path, with_values = Path(job.model.path), outcome.phase not in _BEFORE_VALUES
    ranges = job.ranges if with_values else {}
    scalars = [name for name in inputs.scalars(path) if with_values and name not in {*job.given, *job.values, *job.ranges}]
    values = [f"{', '.join(scalars)} {'is' if len(scalars) == 1 else 'are'} made up (--input {scalars[0]}=VALUE)"] if scalars else []
    made = [text for text in (inputs.remark(job.assumed, path), indexed_tables.remark(ranges, path), *values) if text]
    chosen = [name for name in dict.fromkeys([*job.assumed, *ranges, *scalars]) if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", error)]
    if not made or not (chosen or _may_come_from_inputs(job, outcome, error)):
        return []
    named = (
        f"the error names {' and '.join(chosen)}, which memprof chose" if chosen else "memprof chose inputs, which may be the cause or not"
    )
    return [f"{named}: {'; '.join(made)}"]


def _fixed_by_file(job: Job) -> list[str]:
    """What the model's file fixes, as a sentence, if an input got another size there."""
    own = {declared.name: declared.shape for declared in inputs.inputs(Path(job.model.path))}
    given = {**job.shapes, **job.given}
    other = [
        name for name, shape in given.items() if any(None is not size != new for size, new in zip(own.get(name, ()), shape, strict=False))
    ]
    words = inputs.fixed_words(Path(job.model.path)) if other else ""
    return [words] if words else []


def _may_come_from_inputs(job: Job, outcome: Outcome, error: str) -> bool:
    """Whether other inputs may mend a failure whose words name no input. They do not where memprof says the cause itself, and not under a limit on
    memory, where the same inputs run without it, and not where the words name a setting and its value."""
    killed = outcome.signal == "SIGKILL" or outcome.out_of_memory is not False
    told = _LACKS_OPERATOR.search(error) or _names_setting(job, error)
    return outcome.status in ("error", "exit", "signal") and not killed and job.limit is None and not told


def _names_setting(job: Job, error: str) -> bool:
    """Whether an error names a setting of the job and its value, in words too: `memory efficient topological order` of order=memory_efficient."""
    return any(
        all(re.search(rf"(?<!\w){re.escape(word).replace('_', '[ _-]')}(?!\w)", error, re.IGNORECASE) for word in setting)
        for setting in job.knobs.items()
    )
