"""What an arena's simulation needs of a model and a runtime: its requests at a few places, and the heap as PREPARE leaves it; or the parts of a graph
that the runtime hands to another planner.

Requests are recorded in runs without the arena, with a library preloaded that writes them down. The heap is looked at in a run that is stopped at
the end of PREPARE, before it depends on any dimension. None of these runs is a measurement, and nothing of them is kept.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ..errors import MemprofError
from ..explain import glibc, look
from ..measuring import campaign
from ..measuring.order import Order
from ..measuring.progress import Silent
from ..plan.arenas import requests
from ..plan.arenas.heap import MAPPED_BYTES, Heap
from ..plan.arenas.requests import Recording, Requests
from ..plan.delegated import Delegated
from ..programs import native
from ..programs.runtimes import runners_path
from ..runs.records import EXECUTE, PREPARE, WARMUP, Job
from .dimensions import SESSIONS, Dimension

_SOURCE = "requests.c"
_FILE, _PRELOAD = "MEMPROF_REQUESTS", "LD_PRELOAD"
# Settings under which there is one arena, which keeps what it has and is asked by one thread, and no other library that is preloaded.
_USUAL = {"arena_shrink": "off", "mode": "sequential", "provider": "cpu", "preload": None}
_LEAST_CHUNK_BYTES = 4096
_LOOKS = 3  # at the heap, in a run each
# Settings under which XNNPACK has what it takes of a graph, in parts as large as can be, and tensors share memory.
_DELEGATING = {"xnnpack": "on", "kernels": "optimized", "preserve_all_tensors": "off", "node_fusion": "on", "api": "interpreter"}


class Simulation(Protocol):
    """What a runtime's arenas need at any place."""

    def resident_bytes(self, at: Mapping[str, int]) -> tuple[int, int]:
        """What becomes resident at a place after PREPARE begins: until the end of the first run, and until the last."""


class Replayed:
    """An arena at any place, from its requests. free, mapped_from: of the heap (see plan.arenas.heap); runs: of the model after the first."""

    def __init__(self, known: Requests, free: tuple[int, ...], mapped_from: int, runs: int) -> None:
        self._requests, self._free, self._mapped_from, self._runs = known, free, mapped_from, runs
        self._known: dict[tuple[tuple[str, int], ...], tuple[int, int]] = {}

    def resident_bytes(self, at: Mapping[str, int]) -> tuple[int, int]:
        """What becomes resident at a place after PREPARE: until the end of the first run, and until the last."""
        key = tuple(sorted(at.items()))
        if key not in self._known:
            self._known[key] = self._requests.resident_bytes(at, self._runs, Heap(self._free, self._mapped_from))
        return self._known[key]


class Planned:
    """The arenas of every session at any place, from a graph and its parts."""

    def __init__(self, known: Delegated, axes: Sequence[Dimension]) -> None:
        self._delegated, self._axes = known, [each.label for each in axes]
        self._known: dict[tuple[int, ...], int] = {}

    def resident_bytes(self, at: Mapping[str, int]) -> tuple[int, int]:
        """See Simulation."""
        key = tuple(at[label] for label in self._axes)
        if key not in self._known:
            self._known[key] = self._delegated.resident_bytes(dict(zip(self._axes, key, strict=True)))
        bytes = self._known[key] * at.get(SESSIONS, 1)
        return bytes, bytes


def places(varying: Sequence[Dimension]) -> list[dict[str, int]]:
    """Where to record: places enough to tell the products of dimensions that a size follows from one another.

    They are low in the ranges, for sizes are exact, and odd where they may be, or sizes that are rounded up would look as if they were not.
    """
    if len(varying) == 1:
        return _each([{varying[0].label: _between(varying[0], share)} for share in (0, 1 / 4, 1 / 2, 3 / 4)])
    middle = {each.label: _between(each, 1 / 3) for each in varying}
    ends = [(each.low, _between(each, 2 / 3)) for each in varying]
    corners = [{each.label: value for each, value in zip(varying, chosen, strict=True)} for chosen in itertools.product(*ends)]
    return _each([middle, *corners])


def _between(dimension: Dimension, share: float) -> int:
    """A value of the dimension, by the logarithm of its range."""
    value = dimension.low * (dimension.high / dimension.low) ** share
    steps = int((value - dimension.low) / dimension.step + 0.5)
    chosen = dimension.low + dimension.step * steps
    return min(chosen | 1, dimension.high) if dimension.step == 1 and steps else chosen


def _each(every: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    return [at for number, at in enumerate(every) if at not in every[:number]]


def possible(order: Order) -> bool:
    """Whether an order's runs can be simulated, as far as its settings tell."""
    knobs = order.job.knobs
    return (
        all(knobs.get(name, usual) == usual for name, usual in _USUAL.items()) and not order.env.get(_PRELOAD) and order.job.sessions == 1
    )


def delegates(order: Order) -> bool:
    """Whether the runtime hands parts of the graph to XNNPACK as it does by default."""
    knobs = order.job.knobs
    return all(knobs.get(name, usual) == usual for name, usual in _DELEGATING.items())


def record(order: Order, inputs: tuple[int, ...]) -> Recording | None:
    """The requests of two runs of an order's job, None where they cannot be had: no compiler, or a run that fails. inputs: the bytes of each."""
    knob = order.runtime.doubling
    assert knob is not None
    try:
        library = native.compiled(runners_path() / "native" / _SOURCE, library=True)
        with tempfile.TemporaryDirectory(prefix="memprof-") as folder:
            text = Path(folder) / "requests"
            job = replace(order.job, warmup=1, runs=1, knobs={**order.job.knobs, knob: "off"})
            (run,) = campaign.measure(
                [replace(order, job=job, env={**order.env, _PRELOAD: str(library), _FILE: str(text)})], Silent(), _nothing
            )
            first, second = run.mark(WARMUP), run.mark(EXECUTE)
            if not run.outcome.ok or first is None or second is None:
                return None
            with text.open(encoding="ascii") as lines:
                return requests.parse(lines, (first.begin_ns, first.end_ns), (second.begin_ns, second.end_ns), inputs)
    except (MemprofError, OSError, ValueError, IndexError):
        return None


def heaps(order: Order) -> list[tuple[tuple[int, ...], int]]:
    """The sizes of the heap's free chunks as PREPARE leaves them, and the size from which on a request is mapped, in each of a few runs; those in
    which they were seen."""
    seen: list[tuple[tuple[int, ...], int]] = []

    def see(job: Job, phase: str, pid: int) -> None:
        if phase == PREPARE:
            mappings = look.mappings(pid)
            pages = look.present_pages(pid, mappings)
            chunks = glibc.walk(pid, mappings, pages)
            bound = glibc.mapped_from(pid, mappings, pages)
            if chunks.complete and bound is not None:
                pairs = zip(chunks.free.starts.tolist(), chunks.free.ends.tolist(), strict=True)
                # What is free but not resident, as the top is once it was trimmed, costs as much as fresh memory.
                free = [end - start for start, end in pairs if pages.resident(start, end) > (end - start) / 2]
                seen.append((tuple(size for size in free if size >= _LEAST_CHUNK_BYTES), bound))

    try:
        list(campaign.measure([replace(order, job=replace(order.job, hold=True), until=PREPARE)] * _LOOKS, Silent(), _nothing, look=see))
    except (MemprofError, OSError):
        pass
    return seen


def simulations(recorded: Requests, heaps: Sequence[tuple[tuple[int, ...], int]], runs: int) -> list[Replayed]:
    """The arena on each heap as it was seen, and on one without free memory: PREPARE's end differs from run to run, also in how its free memory is
    cut, and a region comes to lie in a piece that is large enough."""
    bound = heaps[0][1] if heaps else MAPPED_BYTES
    return [Replayed(recorded, free, bound, runs) for free in dict.fromkeys((*(free for free, _ in heaps), ()))]


def _nothing(line: bytes) -> None:
    """Keeps no line of a run that is no measurement."""
