"""How little memory a model could run in if all it does not need yet were elsewhere: the question of memory swap, answered by a simulation.

At each operator its results are resident, and everything that it and the `lookahead` operators after it read, weights and activations alike. The rest
lies on a device. An item is moved in when it enters and, if it was changed and is still wanted, out when it leaves. Transfers go over one
channel, first come first served, while operators run. Those of an operator begin when it enters the window and must be done when it starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .graphs.graph import Graph
from .graphs.reduced import Mapped
from .orders.problem import peak

# Without any allowance a single operator of a microsecond would ask for a device as fast as memory.
_UNNOTICED = 0.01


class Residency(Struct, frozen=True):
    """The memory that is resident while a model runs.

    min, mean and max in bytes; the mean is weighted by the operators' times, as shares of the whole. before_bytes: moved in
    before the first operator can start. in_bytes, out_bytes: moved in a whole run, before_bytes included. speed: bytes that must be moved in
    the time of one run so that it is slowed down by no more than 1%, None with a lookahead of 0, where nothing overlaps. all_bytes: with
    everything resident. resident, shares (of the time) and loads (bytes that a step asks for): a value a step.
    """

    lookahead: int
    min_bytes: int
    mean_bytes: int
    max_bytes: int
    max_operator: str
    all_bytes: int
    before_bytes: int
    in_bytes: int
    out_bytes: int
    speed: float | None
    resident: tuple[int, ...]
    shares: tuple[float, ...]
    loads: tuple[int, ...]

    def bandwidth(self, run_ns: float) -> float | None:
        """Bytes a second that the device must move so that a run of this duration is not slowed down; None where every device slows it down."""
        return self.speed / (run_ns / 1e9) if self.speed is not None else None

    def slowed_ns(self, run_ns: float, bandwidth: float) -> float:
        """The duration of a run with a device of that bandwidth (bytes a second)."""
        return _finish(self.loads, self.shares, self.lookahead, run_ns, bandwidth / 1e9)


def times(mapped: Mapped, weight_bytes: Sequence[int]) -> tuple[float, ...]:
    """Each operator's share of a run's time, by its work and the bytes it touches. A multiply-add counts as a byte; where no rule gives the work,
    the bytes count alone."""
    sizes = mapped.problem.sizes
    costs = []
    for number in range(mapped.problem.count):
        touched = sum(sizes[tensor] for tensor in {*mapped.problem.reads[number], *mapped.problem.writes[number]})
        costs.append(1 + touched + sum(weight_bytes[weight] for weight in mapped.weights[number]) + (mapped.work[number] or 0))
    total = sum(costs) or 1
    return tuple(cost / total for cost in costs)


def residency(
    graph: Graph,
    mapped: Mapped,
    order: Sequence[int],
    lookahead: int = 0,
    shares: Sequence[float] | None = None,
    updates: Sequence[tuple[int, ...]] = (),
    states: int = 0,
) -> Residency:
    """The memory that is resident in each step of an order.

    shares: each operator's part of a run's time, by the problem's numbers (see times). updates: for each operator the weights that it
    changes. states: how many values an optimizer keeps for each of these weights' values.
    """
    problem = mapped.problem
    weight_bytes = [weight.bytes or 0 for weight in graph.weights]
    base = len(problem.sizes)
    state = base + len(weight_bytes)
    size = [*problem.sizes, *weight_bytes, *(states * bytes for bytes in weight_bytes)]
    changes = list(updates) or [()] * problem.count

    def reads(op: int) -> set[int]:
        items = {*problem.reads[op], *(base + weight for weight in mapped.weights[op])}
        return items | {state + weight for weight in changes[op]} if states else items

    def writes(op: int) -> set[int]:
        changed = {base + weight for weight in changes[op]}
        return {*problem.writes[op], *changed, *({state + weight for weight in changes[op]} if states else ())}

    last: dict[int, int] = {}
    for place, op in enumerate(order):
        last.update(dict.fromkeys(reads(op), place))
    kept = {*problem.kept, *range(base, len(size))}
    exists = {*problem.given, *range(base, len(size))}
    dirty: set[int] = set()
    held_before: set[int] = set()
    resident, loads, in_bytes, out_bytes = [], [], 0, 0
    window = [reads(op) for op in order]
    for place, op in enumerate(order):
        written = writes(op)
        wanted = set().union(*window[place : place + 1 + lookahead]) & exists
        held = wanted | written
        entering = wanted - held_before
        leaving = {item for item in held_before - held if item in dirty and (item in kept or last.get(item, -1) > place)}
        dirty -= leaving
        dirty |= written
        exists |= written
        moved_in, moved_out = sum(size[item] for item in entering), sum(size[item] for item in leaving)
        in_bytes += moved_in
        out_bytes += moved_out
        loads.append(moved_in + moved_out)
        resident.append(sum(size[item] for item in held))
        held_before = held
    out_bytes += sum(size[item] for item in held_before if item in dirty and item in kept)
    parts = list(shares) if shares is not None else list(times(mapped, weight_bytes))
    # No operator takes no time: a share of 0 would ask for a device without a limit.
    parts = [max(parts[op], 1e-6) for op in order]
    total = sum(parts)
    parts = [share / total for share in parts]
    used = {item for op in order for item in (*reads(op), *writes(op)) if item >= base}
    most = max(range(len(order)), key=lambda place: resident[place], default=-1)
    return Residency(
        lookahead=lookahead,
        min_bytes=min(resident, default=0),
        mean_bytes=round(sum(share * bytes for share, bytes in zip(parts, resident, strict=True))),
        max_bytes=max(resident, default=0),
        max_operator=mapped.operators[order[most]] if order else "",
        all_bytes=peak(problem, order) + sum(size[item] for item in used),
        before_bytes=loads[0] if loads else 0,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        speed=_speed(loads, parts, lookahead),
        resident=tuple(resident),
        shares=tuple(parts),
        loads=tuple(loads),
    )


def _speed(loads: Sequence[int], shares: Sequence[float], lookahead: int) -> float | None:
    """The least speed, in bytes per run, that slows it down by no more than `_UNNOTICED`; None where nothing can overlap. By bisection."""
    if lookahead < 1:
        return None
    if not any(loads[1:]):
        return 0.0
    low, high = 0.0, float(sum(loads))
    while _waits(loads, shares, lookahead, high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _waits(loads, shares, lookahead, middle):
            low = middle
        else:
            high = middle
    return high


def _waits(loads: Sequence[int], shares: Sequence[float], lookahead: int, speed: float) -> bool:
    return _finish(loads, shares, lookahead, 1.0, speed) > 1 + _UNNOTICED


def _finish(loads: Sequence[int], shares: Sequence[float], lookahead: int, run: float, speed: float) -> float:
    """The duration of a run, without its first transfers, in the unit of `run`; speed in bytes per that unit.

    With a lookahead of N the transfers that step i asks for begin with it and must be over before step i + N begins; with 0, before step i.
    """
    clock = channel = 0.0
    due: list[float] = []
    for place, share in enumerate(shares):
        if lookahead == 0:
            clock += (loads[place] / speed if place else 0.0) + share * run
            continue
        needed = due[place - lookahead] if place >= lookahead else 0.0
        clock = max(clock, needed)
        channel = max(channel, clock) + (loads[place] / speed if place else 0.0)
        due.append(channel)
        clock += share * run
    return clock
