"""From a plan with one model and one variant to its Explanation: a plain run for the figures, a held one for the looks, the rules, the proof.

The plain run's peaks say at which RSS the held one is to be stopped inside a phase as well, so that a transient is seen while it is there.
No figure of the held run but what its looks saw is kept: once a process was looked at, its resident set is not what it would have been.
"""

from __future__ import annotations

import os
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import MeasurementError
from ..measuring import campaign
from ..measuring.orders import Order
from ..measuring.progress import Progress, Quiet
from ..models import inputs
from ..models.tensors import Unparsed, tensors
from ..runs import store
from ..runs.records import EXECUTE, STARTUP, Job, Run
from . import activations, findings, small, snippets, waterfall
from .records import SCHEMA, Explanation, Measured, Phase, TensorCopies
from .small import Small
from .snippets import Index
from .waterfall import Look, Seen

_TRIP_SHARE = 0.97
_TRIP_LEAST = 4 << 20
_TRIP_INTERVAL_NS = 500_000
_NAMED_TENSORS = 2000


def explain(order: Order, progress: Progress, keep: Callable[[bytes], None]) -> Explanation:
    """Measure one order plain, then held, and say what was found. keep: takes the plain Run, as a line of a runs file.

    Raises MeasurementError where a run fails, and what campaign.measure raises.
    """
    remarks: list[str] = []
    if order.job.assumed:
        progress.say(f"{order.job.model.name}: {inputs.remark(order.job.assumed)}")
    wanted, tiny = _index(order, remarks, progress)
    # Its iterations are polled as all else is: their growth is looked at, and no latency is taken from this run.
    polled = replace(order, job=replace(order.job, iterations_interval_ns=order.job.interval_ns))
    progress.say(f"{order.job.model.name}: measuring it as it is")
    (plain,) = campaign.measure([polled], Quiet(progress), keep)
    _must_be_ok(plain)
    looks = _held(order, plain, wanted, tiny, progress, remarks)
    files = _files(plain.job)
    base = next((one for one in looks if one.phase == STARTUP), None)
    seen = [waterfall.account(one, None if one is base else base, wanted, files, tiny) for one in looks]
    found = _explanation(order, plain, wanted, seen, remarks)
    for warning in found.warnings:
        progress.say(f"{order.job.model.name}: warning: {warning}")
    return found


def _index(order: Order, remarks: list[str], progress: Progress) -> tuple[Index | None, Small | None]:
    """The weights to look for: those whose copies are counted, and those too small for that. None for each where there are none."""
    path = Path(order.job.model.path)
    try:
        weights = tensors(path)
        progress.say(f"{order.job.model.name}: choosing what to look for in {len(weights)} tensors")
        index = snippets.index(weights)
        tiny = small.choose([one.tensor for one in index.weights if one.why_not])
    except Unparsed as error:
        remarks.append(f"{error}; copies of weights are not counted")
        return None, None
    if not len(index.keys):
        remarks.append("no tensor of this model can be told from other memory (tiny, constant or of low entropy): copies are not counted")
        return None, tiny
    return index, tiny


def _must_be_ok(run: Run) -> None:
    if not run.outcome.ok:
        raise MeasurementError(f"{run.job.model.name}, {run.job.variant}: {run.outcome.sentence}")


def measured(run: Run) -> tuple[Measured, ...]:
    """The phases of a plain run."""
    return tuple(
        Measured(
            mark.phase,
            mark.height_bytes,
            mark.rss_end_bytes,
            mark.time_ns,
            int(statistics.median(mark.times_ns)) if mark.times_ns else None,
        )
        for mark in run.marks
    )


def _iterations(plain: Run) -> list[int]:
    """RSS at the end of each iteration of EXECUTE, as far as it was polled."""
    mark = plain.mark(EXECUTE)
    if mark is None or not mark.samples:
        return []
    columns = store.unpack(plain.timeline)
    ends, at = [], mark.end_ns - sum(mark.times_ns)
    for time_ns in mark.times_ns:
        at += time_ns
        ends.append(columns.rss[max(0, bisect_right(columns.t_ns, at) - 1)])
    return ends


def _held(order: Order, plain: Run, wanted: Index | None, tiny: Small | None, progress: Progress, remarks: list[str]) -> list[Look]:
    """The looks of a held run. Memory that may not be read leaves the waterfall without copies, and a remark."""
    job = replace(order.job, hold=True, interval_ns=min(order.job.interval_ns, _TRIP_INTERVAL_NS))
    held = replace(order, job=job, hold_at=_trips(plain))
    looks: list[Look] = []

    def look(job: Job, phase: str, pid: int) -> None:
        progress.say(f"{job.model.name}: looking at {phase}")
        looking = (None, None) if phase == STARTUP else (wanted, tiny)
        looks.append(waterfall.take(pid, phase, *looking))

    (run,) = campaign.measure([held], Quiet(progress), lambda line: None, look)
    _must_be_ok(run)
    remarks += run.warnings
    ends = [mark.phase for mark in run.marks]
    missing = [phase for phase in ends if not any(one.phase == phase for one in looks)]
    if missing:
        remarks.append(
            f"the child did not stand still at the end of {', '.join(missing)}, so nothing is said of {'them' if len(missing) > 1 else 'it'}"
        )
    for phase in held.hold_at:
        if not any(one.phase == f"{phase}/peak" for one in looks):
            remarks.append(
                f"the transient of {phase} was over before the child could be stopped inside it: what it consists of is not known"
            )
    order_of = {phase: number for number, phase in enumerate(ends)}
    return sorted(looks, key=lambda one: (order_of.get(one.phase.partition("/")[0], 99), "/" not in one.phase))


def _trips(plain: Run) -> dict[str, int]:
    """At which RSS to stop inside a phase: shortly below its peak, where that lies clearly above where it began and ended."""
    found = {}
    for mark in plain.marks:
        ground = max(mark.rss_begin_bytes or 0, mark.rss_end_bytes or 0)
        if mark.phase not in (STARTUP, EXECUTE) and mark.rss_end_bytes and mark.height_bytes - ground >= _TRIP_LEAST:
            found[mark.phase] = ground + int(_TRIP_SHARE * (mark.height_bytes - ground))
    return found


def _files(job: Job) -> frozenset[tuple[int, int]]:
    """Device and inode of every file that holds the model, as it is given or as it was converted."""
    paths = [Path(file.path) for file in job.model.files]
    if job.built is not None:
        paths += [path for path in Path(job.built).parent.iterdir() if path.is_file() and path.name != "built.json"]
    found = set()
    for path in paths:
        try:
            facts = os.stat(path)
        except OSError:
            continue
        found.add((facts.st_dev, facts.st_ino))
    return frozenset(found)


def _explanation(order: Order, plain: Run, wanted: Index | None, seen: Sequence[Seen], remarks: list[str]) -> Explanation:
    job = plain.job
    phases = tuple(one.phase for one in seen)
    shapes = _shapes(job)
    counted_bytes, counted_tensors, others = waterfall.counted(wanted) if wanted is not None else (0, 0, {})
    facts = findings.Facts(
        runtime=order.runtime,
        knobs={**{knob.name: knob.default for knob in order.runtime.knobs if knob.default is not None}, **job.knobs},
        measured=measured(plain),
        phases=phases,
        plan_bytes=activations.highest(Path(job.model.path), shapes) if shapes is not None else None,
        iterations=_iterations(plain),
        threads=job.threads,
        shapes=", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in (shapes or {}).items()),
    )
    return Explanation(
        memprof_explain=SCHEMA,
        model=job.model,
        runtime=job.runtime,
        runtime_version=plain.about.runtime_version if plain.about is not None else "",
        knobs=job.knobs,
        threads=job.threads,
        machine=plain.machine.name,
        measured=tuple(facts.measured),
        phases=phases,
        weight_bytes=sum(one.tensor.bytes * one.instances for one in wanted.weights) if wanted is not None else None,
        counted_bytes=counted_bytes if wanted is not None else None,
        counted_tensors=counted_tensors,
        not_counted=others,
        tensors=_tensors(wanted, seen) if wanted is not None else (),
        findings=findings.find(facts),
        remarks=(
            *(plain.about.notes if plain.about is not None else ()),
            *plain.warnings,
            *dict.fromkeys([*remarks, *_doubts(plain, phases)]),
            findings.sight(facts),
        ),
        shapes=shapes or {},
        assumed=job.assumed,
        warnings=findings.doubts(facts),
    )


def _shapes(job: Job) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the model's inputs as they ran; None where they are not known, and no plan can be set beside what ran."""
    path = Path(job.model.path)
    shapes = inputs.shapes_that_run(path, job.shapes, job.inputs)
    # A runtime of the user's own may make its inputs itself, and in other sizes than 1.
    return None if job.runtime.endswith(".py") and inputs.taken_as_one(path, job.shapes, job.inputs) else shapes


def _doubts(plain: Run, phases: Iterable[Phase]) -> list[str]:
    """Where the held run was not as the plain one."""
    found = []
    for phase in phases:
        mark = plain.mark(phase.name)
        if mark is not None and mark.rss_end_bytes and abs(phase.rss_bytes - mark.rss_end_bytes) > max(8 << 20, 0.05 * mark.rss_end_bytes):
            share = phase.rss_bytes / mark.rss_end_bytes - 1
            found.append(f"{phase.name}: the process that was held was {share:+.0%} as large as the plain run's at its end")
    return found


def _tensors(wanted: Index, seen: Sequence[Seen]) -> tuple[TensorCopies, ...]:
    """Tensors with what was found of them in each phase, those first of which most is held; of a model with very many only the largest."""
    found = []
    for number, weight in enumerate(wanted.weights):
        if not weight.why_not:
            tensor = weight.tensor
            per = {one.phase.name: one.copies[number] for one in seen if number in one.copies}
            found.append(TensorCopies(tensor.name, tensor.dtype, tensor.shape, tensor.bytes, weight.instances, per))
    return tuple(sorted(found, key=lambda one: -one.bytes)[:_NAMED_TENSORS])
