"""How far a recorded peak lies from the truth: a transient of 100 MiB, 0 to 100 ms long, in each phase, by one thread and by eight.

One transient a process, so that a tool without phases is judged by the same truth as a tool with phases: the resident set where the phase
begins and 100 MiB on top. The program is transient.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from memprof.subjects.order import Order

from . import tools
from .table import Row, Section, Setting, ratios

_BYTES = 100 << 20
_MIB = 1 << 20
_PAGE = 4096
_LIMIT = 0.4 * _MIB
_PHASES = {"load": "MODEL_LOAD", "prepare": "PREPARE", "execute": "EXECUTE"}
_HOLDS_MS = (0, 0.1, 1, 10, 100)
_THREADS = (1, 8)
_SETTLE_S = 0.03
_PEERS = (tools.MPROF, tools.MPROF_FASTEST, tools.PSRECORD_1MS, tools.PSRECORD)

# (memprof or a peer, threads, ms) -> (phase, recorded peak - truth) of each transient
Errors = dict[tuple[str, int, float], list[tuple[str, float]]]


def measure(setting: Setting) -> Section:
    """The worst error of each tool, by length of the transient and number of threads."""
    tools.require_peers()
    errors: Errors = defaultdict(list)
    repeats = setting.count(3, 1)
    for threads in _THREADS:
        for hold_ms in _HOLDS_MS:
            for phase in _PHASES:
                order = _order(setting.folder, phase, threads, hold_ms)
                for _ in range(repeats):
                    errors["memprof", threads, hold_ms].append((phase, _by_memprof(order, phase)))
                for peer in _PEERS:
                    errors[_name(peer), threads, hold_ms].append((phase, _by_peer(peer, order, phase)))
            setting.say(f"ladder, {threads} thread(s), {hold_ms:g} ms")
    raw = {f"{name}, {threads} threads, {hold_ms} ms": values for (name, threads, hold_ms), values in errors.items()}
    return Section(tuple(_row(errors, threads, hold_ms) for threads in _THREADS for hold_ms in _HOLDS_MS), _NOTES, raw)


_NOTES = (
    "Peak error: the worst of all three phases, in MiB, and of three transients in each for memprof, one for its peers. mprof polls every "
    "0.1 s (its default) / without a pause, psrecord every 1 ms / without a pause (its default). Ratios count an error below a page as one.",
)


def _order(folder: Path, phase: str, threads: int, hold_ms: float) -> Order:
    path = folder / f"{phase}-{threads}-{hold_ms}.json"
    scenario = {"phase": phase, "bytes": _BYTES, "threads": threads, "hold_s": hold_ms / 1000, "settle_s": _SETTLE_S}
    path.write_text(json.dumps(scenario))
    (order,) = tools.orders([path], Path(__file__).with_name("transient.py"), warmup=0, runs=1, repeats=1)
    return order


def _by_memprof(order: Order, phase: str) -> float:
    mark = tools.recorded(order).run.mark(_PHASES[phase])
    assert mark is not None and mark.rss_begin_bytes is not None
    return mark.rss_peak_bytes - (mark.rss_begin_bytes + _BYTES)


def _by_peer(peer: tools.Peer, order: Order, phase: str) -> float:
    seen = tools.under(peer, tools.program(order))
    return max(seen.rss, default=0) - (seen.mark(_PHASES[phase])["rss_begin_bytes"] + _BYTES)


def _name(peer: tools.Peer) -> str:
    return f"{peer.tool} {peer.label}"


def _row(errors: Errors, threads: int, hold_ms: float) -> Row:
    def worst(name: str) -> float:
        return max(abs(error) for _, error in errors[name, threads, hold_ms])

    own = worst("memprof")
    mprof, psrecord = ([worst(_name(peer)) for peer in _PEERS if peer.tool == tool] for tool in ("mprof", "psrecord"))
    return Row(
        subject=f"peak error, {hold_ms:g} ms transient, {threads} thread{'s' if threads > 1 else ''}",
        target=f"<= {_LIMIT / _MIB:g} MiB",
        memprof=f"{own / _MIB:.2f}",
        peer=" / ".join(f"{error / _MIB:.2f}" for error in mprof),
        other_peer=" / ".join(f"{error / _MIB:.2f}" for error in psrecord),
        ratio=ratios(max(own, _PAGE), mprof=_pages(mprof), psrecord=_pages(psrecord)),
        met=own <= _LIMIT,
    )


def _pages(errors: list[float]) -> list[float]:
    return [max(error, _PAGE) for error in errors]
