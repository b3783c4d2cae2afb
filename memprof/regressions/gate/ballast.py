"""A known increase of what is measured, for the positive control of a gate: a runtime's knob, or a library that is preloaded into a program.

The library is runners/native/ballast.c. It reaches only a program that the loader of the C library starts, so what is linked statically is refused
before anything is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ...base.errors import MemprofError, UsageError
from ...programs import commands, elf, native
from ...programs.commands import Command
from ...records.types import Process
from ...subjects.order import Order

# Where the library is in LD_PRELOAD and no process holds it: ld.so(8) leaves it out of these.
NOT_PRELOADED = "it is not in the process whose peak counts: a program on the way is linked statically, is setuid or clears LD_PRELOAD"
IN_SEVERAL = "more than one process holds them, and memprof adds up their memory"


def check(orders: Sequence[Order]) -> None:
    """Raises UsageError or InputError if no variant of these can hold more, with the first reason."""
    reasons = []
    for order in (order for order in orders if order.error is None):
        try:
            heavier(order, 0, ())
            return
        except MemprofError as error:
            reasons.append(error)
    if reasons:
        raise reasons[0]


def heavier(order: Order, more: int, processes: Sequence[Process]) -> Order:
    """The order of a job that holds so many bytes more. processes: those of an earlier run, if it was more than one: its largest holds them.

    Raises UsageError and InputError for a program that nothing can be preloaded into.
    """
    if order.command is None:
        held = int(order.job.knobs.get("ballast", 0))
        return replace(order, job=replace(order.job, knobs={**order.job.knobs, "ballast": str(held + more)}))
    order.place.only_here("--prove of a program")
    program = _program(order)
    file = elf.read(str(program))
    if file is not None and not file.needed:
        raise UsageError(
            f"--prove preloads a library into the program, and {program.name} is linked statically: nothing can be preloaded into it"
        )
    ballast = {**native.preloaded("ballast.c", order.env), "MEMPROF_BALLAST": str(more)}
    if processes:
        ballast["MEMPROF_BALLAST_PROGRAM"] = max(processes, key=lambda process: process.rss_peak_bytes).name
    return replace(order, env={**order.env, **ballast})


def _program(order: Order) -> Path:
    """The file of the program that a command runs, behind `env`, `timeout 60` and their like."""
    job = order.job
    env = {name: value for name, value in job.env.items() if value is not None}
    return commands.program(Command("", tuple(commands.launched(job.argv)), env, job.cwd))
