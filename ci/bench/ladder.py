"""How far a recorded peak lies from the truth, beside mprof and psrecord: `python ci/bench/ladder.py [--quick]`.

A transient of 100 MiB, 0 to 100 ms long, in each phase, by one thread and by eight. There is one transient in a process, so that a tool without
phases is judged by the same truth as a tool with phases: the resident set where the phase begins and 100 MiB on top. The program is transient.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs, peers, tools
from bench.table import aligned
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite

_BYTES = 100 << 20
_MIB = 1 << 20
_LIMIT = 0.4 * _MIB
_PHASES = {"load": "MODEL_LOAD", "prepare": "PREPARE", "execute": "EXECUTE"}
_HOLDS_MS = (0, 0.1, 1, 10, 100)
_THREADS = (1, 8)
_SETTLE_S = 0.03
_PEERS = (peers.MPROF, peers.MPROF_FASTEST, peers.PSRECORD_1MS, peers.PSRECORD)
_NOTE = (
    "Peak error: the worst of all three phases, in MiB, and of three transients in each for memprof, one for its peers. mprof polls every "
    "0.1 s (its default) / without a pause, psrecord every 1 ms / without a pause (its default)."
)


def main() -> None:
    """Print the worst error of each tool, by length of the transient and number of threads, and write it into the manual."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one transient of each kind, to try the bench itself; nothing is written")
    quick = parser.parse_args().quick
    peers.require()
    rows: list[tuple[str, ...]] = [("peak error", "target", "memprof", "mprof", "psrecord", "")]
    with tempfile.TemporaryDirectory(prefix="memprof-bench-") as folder:
        for threads in _THREADS:
            for hold_ms in _HOLDS_MS:
                print(f"{threads} thread(s), {hold_ms:g} ms", file=sys.stderr)
                rows.append(_row(Path(folder), threads, hold_ms, 1 if quick else 3))
    print(aligned(rows))
    if not quick:
        docs.write("ladder", aligned(rows), [_NOTE])


def _row(folder: Path, threads: int, hold_ms: float, repeats: int) -> tuple[str, ...]:
    errors: dict[str, list[float]] = defaultdict(list)
    for phase in _PHASES:
        order = _order(folder, phase, threads, hold_ms)
        errors["memprof"] += [_by_memprof(order, phase) for _ in range(repeats)]
        for peer in _PEERS:
            errors[f"{peer.tool} {peer.label}"].append(_by_peer(peer, order, phase))
    worst = {name: max(map(abs, values)) for name, values in errors.items()}
    mprof, psrecord = (
        " / ".join(f"{worst[f'{peer.tool} {peer.label}'] / _MIB:.2f}" for peer in _PEERS if peer.tool == tool)
        for tool in ("mprof", "psrecord")
    )
    name = f"{hold_ms:g} ms transient, {threads} thread{'s' if threads > 1 else ''}"
    met = tools.verdict(worst["memprof"] <= _LIMIT)
    return name, f"<= {_LIMIT / _MIB:g} MiB", f"{worst['memprof'] / _MIB:.2f}", mprof, psrecord, met


def _order(folder: Path, phase: str, threads: int, hold_ms: float) -> Order:
    path = folder / f"{phase}-{threads}-{hold_ms}.json"
    path.write_text(json.dumps({"phase": phase, "bytes": _BYTES, "threads": threads, "hold_s": hold_ms / 1000, "settle_s": _SETTLE_S}))
    runtime = str(Path(__file__).with_name("transient.py"))
    (order,) = plan(Suite(models=(str(path),), runtimes=(runtime,), warmup=0, runs=1, repeats=1)).orders
    return order


def _by_memprof(order: Order, phase: str) -> float:
    """The distance of the recorded peak from the truth, in bytes."""
    mark = tools.measured(order).mark(_PHASES[phase])
    assert mark is not None and mark.rss_begin_bytes is not None
    return mark.rss_peak_bytes - (mark.rss_begin_bytes + _BYTES)


def _by_peer(peer: peers.Peer, order: Order, phase: str) -> float:
    seen = peers.under(peer, peers.program(order))
    return max(seen.rss, default=0) - (seen.mark(_PHASES[phase])["rss_begin_bytes"] + _BYTES)


if __name__ == "__main__":
    main()
