"""What an arena's simulation needs of a model and a runtime: its requests at a few places, and the heap as PREPARE leaves it; or the parts of a graph
that the runtime hands to another planner.

Requests are recorded in runs without the arena, with a library preloaded that writes them down. The heap is looked at in a run that is stopped at
the end of PREPARE, before it depends on any dimension. These runs are not measurements, and memprof does not keep them. The requests are, in a run of
the search (records.types.RequestTrace), so that kept runs make the same law again.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from ...base.errors import InputError, MemprofError
from ...base.units import counted
from ...campaign import campaign
from ...campaign.progress import Silent
from ...explain import glibc, memory_map
from ...programs import native
from ...records.types import EXECUTE, PREPARE, WARMUP, ArenaRequests, Arenas, Buffers, Job, Product, RequestTrace
from ...subjects.dimensions import SESSIONS, Dimension
from ...subjects.order import Order
from . import requests
from .delegation import Arena, Delegated
from .heap import MAPPED_BYTES, Heap
from .requests import Amount, Recording

_SOURCE = "requests.c"
_FILE, _PRELOAD = "MEMPROF_REQUESTS", "LD_PRELOAD"
# Settings under which there is one arena, which keeps what it has and is asked by one thread, and no other library that is preloaded.
_USUAL = {"arena_shrink": "off", "mode": "sequential", "provider": "cpu", "preload": None}
_LEAST_CHUNK_BYTES = 4096
_LOOKS = 3
_MOST_BYTES = 1 << 53  # no machine has as much
_MOST_BUFFERS, _HIGHEST_POWER = 20_000, 8  # of a graph that anybody runs
# Settings under which XNNPACK has what it takes of a graph, in parts as large as can be, and tensors share memory.
_DELEGATING = {"xnnpack": "on", "kernels": "optimized", "preserve_all_tensors": "off", "node_fusion": "on", "api": "interpreter"}


class Resident(NamedTuple):
    """What becomes resident at a place after PREPARE begins, in bytes: until the end of the first run, and until the last. doubt_bytes: by how much
    either may differ, where sizes at that place are not certain."""

    first: int
    last: int
    doubt_bytes: int = 0


Simulation = Callable[[Mapping[str, int]], Resident]


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


def unusual(order: Order) -> str:
    """The settings of an order whose runs cannot be simulated; empty where they can."""
    settings = _other(order, _USUAL)
    preloaded = [f"{_PRELOAD}={order.env[_PRELOAD]}"] if order.env.get(_PRELOAD) else []
    sessions = [counted(order.job.sessions, "session")] if order.job.sessions > 1 else []
    return ", ".join([*settings, *preloaded, *sessions])


def delegates(order: Order) -> bool:
    """Whether the runtime hands parts of the graph to XNNPACK as it does by default."""
    return not _other(order, _DELEGATING)


def _other(order: Order, wanted: Mapping[str, str | None]) -> list[str]:
    """The settings of an order that are not the wanted ones."""
    knobs = order.job.knobs
    return [f"{name}={knobs[name]}" for name, value in wanted.items() if knobs.get(name, value) != value]


def record(order: Order, inputs: tuple[int, ...]) -> Recording:
    """The requests of two runs of an order's job. inputs: the bytes of each. Raises InputError where they cannot be had: no compiler, or a run that
    fails."""
    knob = order.runtime.doubling
    assert knob is not None
    try:
        preloaded = native.preloaded(_SOURCE, order.env)
        with tempfile.TemporaryDirectory(prefix="memprof-") as folder:
            text = Path(folder) / "requests"
            job = replace(order.job, warmup=1, runs=1, knobs={**order.job.knobs, knob: "off"})
            (run,) = campaign.measure([replace(order, job=job, env={**order.env, **preloaded, _FILE: str(text)})], Silent(), _nothing)
            first, second = run.mark(WARMUP), run.mark(EXECUTE)
            if not run.outcome.ok or first is None or second is None:
                raise InputError(f"a run without the arena failed {run.outcome.sentence}")
            with text.open(encoding="ascii") as lines:
                return requests.parse(lines, (first.begin_ns, first.end_ns), (second.begin_ns, second.end_ns), inputs)
    except (OSError, ValueError, IndexError):
        raise InputError("what was asked of it could not be recorded") from None


def heap(order: Order) -> tuple[tuple[int, ...], int] | None:
    """The sizes of the heap's free chunks as PREPARE leaves them, and the size from which on a request is mapped; None where they are not seen.

    A process that is stopped has its memory where one that is measured has it, but what a runtime's threads do meanwhile may differ: what two
    processes have is taken, of three at most.
    """
    seen: list[tuple[tuple[int, ...], int]] = []

    def see(job: Job, phase: str, pid: int) -> None:
        if phase == PREPARE:
            mappings = memory_map.mappings(pid)
            pages = memory_map.present_pages(pid, mappings)
            chunks = glibc.walk(pid, mappings, pages)
            bound = glibc.mapped_from(pid, mappings, pages)
            if chunks.complete and bound is not None:
                pairs = zip(chunks.free.starts.tolist(), chunks.free.ends.tolist(), strict=True)
                # What is free but not resident, as the top is once it was trimmed, costs as much as fresh memory.
                free = [end - start for start, end in pairs if pages.resident(start, end) > (end - start) / 2]
                seen.append((tuple(size for size in free if size >= _LEAST_CHUNK_BYTES), bound))

    stopped = replace(order, job=replace(order.job, hold=True), until=PREPARE)
    for _ in range(_LOOKS):
        try:
            list(campaign.measure([stopped], Silent(), _nothing, look=see))
        except (MemprofError, OSError):
            return None
        if len(set(seen)) < len(seen):
            return seen[-1]
    return seen[0] if seen else None


def kept(recorded: Sequence[tuple[Mapping[str, int], Recording]], known_heap: tuple[tuple[int, ...], int] | None) -> RequestTrace | None:
    """What was recorded, as a run keeps it; None where other operators or another number of them ran from place to place."""
    recordings = [recording for _, recording in recorded]
    first = recordings[0]
    if any((other.first, other.second, other.sites) != (first.first, first.second, first.sites) for other in recordings):
        return None
    numbers = {site: number for number, site in enumerate(dict.fromkeys(first.sites))}
    return RequestTrace(
        first.first,
        first.second,
        tuple(numbers[site] for site in first.sites),
        tuple(ArenaRequests(at, recording.sizes, recording.inputs) for at, recording in recorded),
        *(known_heap if known_heap is not None else (None, None)),
    )


def replayed(known: RequestTrace | None, runs: int) -> Simulation | None:
    """The arena, from its requests, on the heap as it was seen; None where they do not tell those of other places. runs: of the model after the
    first."""
    if known is None or not _sound(known):
        return None
    sites = tuple(map(str, known.sites))
    told = requests.requests([(asked.at, Recording(known.first, known.second, asked.sizes, sites, asked.inputs)) for asked in known.places])
    if told is None:
        return None
    free, mapped_from = known.heap_free_bytes or (), known.mapped_from_bytes or MAPPED_BYTES

    @cache
    def resident(place: tuple[tuple[str, int], ...]) -> Resident:
        at = dict(place)
        sizes, *rivals = (told.resident_bytes(at, runs, Heap(free, mapped_from), rival) for rival in (None, *told.doubtful(at)))
        doubt = max((abs(other - size) for rival in rivals for other, size in zip(rival, sizes, strict=True)), default=0)
        return Resident(*sizes, doubt)

    return lambda at: resident(tuple(sorted(at.items())))


def planned(known: Delegated) -> Simulation:
    """The arenas of every session, from a graph and its parts."""
    labels = known.labels

    @cache
    def of_session(*values: int) -> int:
        return known.resident_bytes(dict(zip(labels, values, strict=True)))

    def resident(at: Mapping[str, int]) -> Resident:
        bytes = of_session(*(at[label] for label in labels)) * at.get(SESSIONS, 1)
        return Resident(bytes, bytes)

    return resident


def kept_arenas(known: Delegated) -> Arenas:
    """The buffers of a graph, as a run keeps them."""
    numbers: dict[Amount, int] = {}

    def buffers(arena: Arena) -> Buffers:
        return tuple((lower, upper, numbers.setdefault(amount, len(numbers))) for lower, upper, amount in arena)

    between, workspaces = buffers(known.between), tuple(map(buffers, known.workspaces))
    return Arenas(tuple(map(_products, numbers)), between, workspaces)


def _products(amount: Amount) -> tuple[Product, ...]:
    return tuple(Product(dict(powers), *Fraction(factor).as_integer_ratio()) for powers, factor in amount.terms)


def planned_again(kept: Arenas | None, labels: Sequence[str]) -> Simulation | None:
    """The arenas at any place of these dimensions, from what a run keeps; None where that cannot be a graph's."""
    if kept is None or not _fit(kept, labels):
        return None
    amounts = [
        Amount(tuple((tuple(product.powers.items()), Fraction(product.numerator, product.denominator)) for product in products))
        for products in kept.amounts
    ]

    def arena(buffers: Buffers) -> Arena:
        return tuple((lower, upper, amounts[number]) for lower, upper, number in buffers)

    return planned(Delegated(arena(kept.between), tuple(map(arena, kept.workspaces))))


def _fit(kept: Arenas, labels: Sequence[str]) -> bool:
    products = [product for products in kept.amounts for product in products]
    buffers = [buffer for arena in (kept.between, *kept.workspaces) for buffer in arena]
    return (
        len(buffers) <= _MOST_BUFFERS
        and all(0 <= lower < upper <= _MOST_BUFFERS and 0 <= number < len(kept.amounts) for lower, upper, number in buffers)
        and all(abs(product.numerator) <= _MOST_BYTES and 1 <= product.denominator <= _MOST_BYTES for product in products)
        and all(name in labels and 1 <= power <= _HIGHEST_POWER for product in products for name, power in product.powers.items())
    )


def _sound(known: RequestTrace) -> bool:
    """Whether requests from a file can have been recorded."""
    count = len(known.sites)
    labels, inputs = {frozenset(asked.at) for asked in known.places}, {len(asked.inputs) for asked in known.places}
    sizes = [size for asked in known.places for size in (*asked.sizes, *asked.inputs)]
    return (
        all(0 <= (step if step >= 0 else ~step) < count for step in (*known.first, *known.second))
        and len(labels) == len(inputs) == 1
        and all(len(asked.sizes) == count for asked in known.places)
        and all(0 <= size <= _MOST_BYTES for size in (*sizes, *(known.heap_free_bytes or ()), known.mapped_from_bytes or 0))
        and all(1 <= value <= _MOST_BYTES for asked in known.places for value in asked.at.values())
    )


def _nothing(line: bytes) -> None:
    """Keeps no line: its runs are not measurements."""
