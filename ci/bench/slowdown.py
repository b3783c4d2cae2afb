"""How much polling slows onnxruntime's EXECUTE on inception_v3 down.

Pairs are blocks of iterations, one polled and one not, next to each other in one process (alternating.py), so that differences between
processes or from minute to minute do not show. The figure of a pair is the ratio of its two median iterations.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memprof.programs.runtimes import runners_path
from memprof.subjects.order import Order
from memprof.subjects.suite import MS

from . import tools
from .table import Row, Section, Setting, middle, ratios

_LIMIT = 1.01
_NONE, _DEFAULT, _FORCED, _POLLED = "NONE", "DEFAULT", "FORCED", "POLLED"
_AT_DEFAULTS = (tools.MPROF, tools.PSRECORD)
_AT_1MS = (tools.MPROF_1MS, tools.PSRECORD_1MS)

_NOTES = (
    "Slow-down: median of the pairs' ratios, and in brackets the quartiles. At their defaults memprof polls timed iterations every 5 ms, or "
    "not at all where the runtime uses every CPU (their peak is exact all the same), mprof every 0.1 s, psrecord without a pause. "
    "The last column compares the ratios themselves.",
)


def measure(setting: Setting) -> Section:
    """Slow-downs at the defaults and at 1 ms, with one thread and with every CPU."""
    tools.require_peers()
    cpus = len(os.sched_getaffinity(0))
    rows: list[Row] = []
    raw: dict[str, Any] = {}
    for threads, words in {1: "1 thread", cpus: f"{cpus} thread{'s' if cpus > 1 else ''}, every CPU"}.items():
        ratios_of = _with_threads(setting, threads)
        raw[f"{threads} threads"] = ratios_of
        shown = {name: ratio for name, (ratio, _) in ratios_of.items()}
        rows += [
            _row(f"slow-down at the defaults, {words}", shown, _DEFAULT, _AT_DEFAULTS, f"<= {_LIMIT}"),
            _row(f"slow-down at 1 ms, {words}", shown, _FORCED, _AT_1MS, ""),
        ]
    return Section(tuple(rows), _NOTES, raw)


def _with_threads(setting: Setting, threads: int) -> dict[str, tuple[list[float], dict[str, list[list[int]]]]]:
    """Ratios of the pairs, and the iterations behind them, by memprof's block or by peer."""
    rounds, iterations = setting.count(24, 4), setting.count(5, 3)
    (order,) = tools.orders([setting.model()], "onnxruntime", threads=(threads,), repeats=1)
    setting.say(f"slow-down, {threads} threads, memprof")
    child = _child(order, [_NONE, _DEFAULT, _FORCED], rounds, iterations, poller=False)
    intervals = {"": 0, _DEFAULT: order.job.iterations_interval_ns, _FORCED: MS}
    marks = [(mark.phase, mark.times_ns) for mark in tools.recorded(order, child=child, intervals=intervals).run.marks]
    pairs_of = {block: _paired(marks, block) for block in (_DEFAULT, _FORCED)}
    child = _child(order, [_NONE, _POLLED], rounds, iterations, poller=True)
    for peer in (*_AT_DEFAULTS, *_AT_1MS):
        setting.say(f"slow-down, {threads} threads, {peer.tool} {peer.label}")
        seen = [(mark["phase"], mark["times_ns"]) for mark in tools.under(peer, child).marks if mark["mark"] == "times"]
        pairs_of[_name(peer)] = _paired(seen, _POLLED)
    return pairs_of


def _child(order: Order, blocks: Sequence[str], rounds: int, iterations: int, *, poller: bool) -> tools.Program:
    job = {
        "runners": str(runners_path()),
        "runtime": order.job.runtime,
        "model": order.job.model.path,
        "threads": order.job.threads,
        "iterations": iterations,
        "rounds": rounds,
        "blocks": blocks,
        "poller": poller,
    }
    argv = (sys.executable, str(Path(__file__).with_name("alternating.py")))
    return tools.Program(argv, json.dumps(job).encode() + b"\n", tools.program(order).env)


def _paired(marks: Sequence[tuple[str, Sequence[int]]], block: str) -> tuple[list[float], dict[str, list[list[int]]]]:
    times = {name: [list(times_ns) for phase, times_ns in marks if phase == name] for name in (_NONE, block)}
    pairs = zip(times[block], times[_NONE], strict=True)
    return [statistics.median(polled) / statistics.median(alone) for polled, alone in pairs], times


def _name(peer: tools.Peer) -> str:
    return f"{peer.tool} {peer.label}"


def _row(subject: str, shown: dict[str, list[float]], block: str, peers: Sequence[tools.Peer], target: str) -> Row:
    own = middle(shown[block])[0]
    mprof, psrecord = (shown[_name(peer)] for peer in peers)
    return Row(
        subject=subject,
        target=target,
        memprof=_text(shown[block]),
        peer=_text(mprof),
        other_peer=_text(psrecord),
        ratio=ratios(own, mprof=[middle(mprof)[0]], psrecord=[middle(psrecord)[0]]),
        met=own <= _LIMIT if target else None,
    )


def _text(values: Sequence[float]) -> str:
    half, low, high = middle(values)
    return f"{half:.3f} ({low:.3f} to {high:.3f}; {len(values)} pairs)"
