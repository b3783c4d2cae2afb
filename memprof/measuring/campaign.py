"""From Orders to Runs: each in a fresh process under a probe, one after another, each Run handed over as soon as it exists.

Where a probe runs is the only thing that could vary here; today it is this machine. What an earlier memprof could not clean up because it was
killed with its probe is found by the token in its environment, and ended, before anything is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import psutil

from ..models import inputs
from ..runs import failures, store
from ..runs.records import MODEL_LOAD, STARTUP, Job, Run
from .converting import converted
from .leftovers import TOKEN, end_leftovers, new_token
from .message import Message, Start
from .orders import Order, intervals, offset
from .probing import ask, input_copy, message, signed
from .progress import Progress


def measure(
    orders: Sequence[Order], progress: Progress, keep: Callable[[bytes], None], look: Callable[[Job, str, int], None] | None = None
) -> Iterator[Run]:
    """Convert what must be converted, then measure the orders one after another; each Run is given to `keep` as a line of a runs file.

    Raises InputError when the disk refuses, once the Run that could not be kept was yielded, OSError when no process can be started;
    KeyboardInterrupt passes through. In each case no child is left. An order with an error is a failed Run at once. look: called with (job,
    phase, pid) while the child of a job that holds stands still at the end of a phase, or inside it (PHASE/peak); what it raises ends the
    child and passes through.
    """
    ended = end_leftovers()
    if ended:
        progress.say(f"{ended} process(es) of a memprof that was killed were still running and have been ended")
    with new_token() as token:
        ready = converted(orders, token, progress)
        seen: set[str] = set()
        at = offset(0)
        for index, (order, failed) in enumerate(ready, 1):
            progress.started(order.job, index, len(ready))
            with input_copy(order, at) as given:
                order_message = message(order, seen, token, given)
                run, line = failed or ask(order.job, order_message, token, progress.live, look, given=given, say=progress.say)
            if hints := _hints(run):
                run = replace(run, outcome=replace(run.outcome, hints=hints))
                line = store.encode(run)
            run, line = signed(run, line)
            try:
                keep(line)
            finally:
                progress.finished(run)
                yield run


def _hints(run: Run) -> tuple[str, ...]:
    """What else may tell why a run failed."""
    if run.outcome.ok:
        return ()
    reason = failures.reason(run)
    shapes = inputs.remark(run.job.assumed) if run.outcome.phase not in (STARTUP, MODEL_LOAD) else ""
    return tuple(hint for hint in (f"it printed: {reason}" if reason else "", shapes) if hint)


def measure_program(job: Job, start: Start, progress: Progress) -> Run:
    """Measure one program that is no runtime of memprof's. start: how it is started, without memprof's own variable.

    Raises OSError when no process can be started; KeyboardInterrupt passes through.
    """
    with new_token() as token:
        marked = replace(start, env={**start.env, TOKEN: token})
        run, _ = ask(job, Message(job, marked, job.timeout_ns, intervals(job)), token, progress.live)
        return run


def surroundings(total_model_bytes: int) -> list[str]:
    """What about this machine, right now, would spoil a figure."""
    remarks = []
    busy = psutil.cpu_percent(interval=0.3)
    if busy > 25:
        remarks.append(f"the machine is busy ({busy:.0f}% of its CPUs): times will be too long")
    available = psutil.virtual_memory().available
    if available < 4 * total_model_bytes:
        remarks.append(f"only {available >> 20} MiB of memory are free, for models of {total_model_bytes >> 20} MiB")
    return remarks
