"""The cost of polling at 1 ms: CPU and memory of the poller, and how well it keeps the interval while a progress bar is drawn.

The program is the same for all: onnxruntime on inception_v3 with one thread. memprof's interval is that of the command `memprof run` on a
terminal; its memory is read at the very end of a recorder, when the Run is ready and only waits to be read.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from itertools import pairwise
from pathlib import Path

import psutil

from memprof.records import store
from memprof.records.types import Polling
from memprof.subjects.suite import MS

from . import tools
from .table import Row, Section, Setting, ratios

_MIB = 1 << 20
_CPU_LIMIT, _MEMORY_LIMIT, _P99_LIMIT_MS = 0.04, 12 * _MIB, 1.5
_PEERS = (tools.MPROF_1MS, tools.PSRECORD_1MS)
_NOTE = (
    "Poller: at 1 ms each, memprof's under `memprof run` on a terminal with its bar drawn; onnxruntime with one thread. Memory is the "
    "high-water mark of the process that polls; `memprof run` itself waits meanwhile. psrecord logs times to the millisecond, mprof to 0.1 ms. "
    "The least a Python process can take for this, waking from select(2) and reading one statm a millisecond: {:.1%} of a core here."
)
_LEAST = """
import os, select, sys, time
statm, (silent, _) = os.open("/proc/self/statm", os.O_RDONLY), os.pipe()
begin = due = time.monotonic()
spent = time.process_time()
while due < begin + 2:
    due = max(due + 0.001, time.monotonic())
    select.select([silent], (), (), max(0, due - time.monotonic()))
    os.pread(statm, 128, 0)
print((time.process_time() - spent) / (time.monotonic() - begin))
"""


def measure(setting: Setting) -> Section:
    """CPU, memory and achieved interval."""
    tools.require_peers()
    runs = setting.count(40, 6)
    (order,) = tools.orders([setting.model()], "onnxruntime", threads=(1,), warmup=1, runs=runs, repeats=1, interval_ns=MS)
    setting.say("poller, memprof with its bar")
    polling, recorder, bar = _on_a_terminal(setting, runs)
    setting.say("poller, the recorder alone")
    alone = tools.recorded(order, look=True).cost
    assert alone is not None
    peer_costs: list[tuple[tools.Cost, float]] = []
    for peer in _PEERS:
        setting.say(f"poller, {peer.tool}")
        seen = tools.under(peer, tools.program(order), watch=True)
        assert seen.cost is not None
        peer_costs.append((seen.cost, _p99_ms(seen.t_s)))
    least = float(subprocess.run([sys.executable, "-I", "-S", "-c", _LEAST], check=True, capture_output=True).stdout)
    raw = {"least": least, "polling": polling, "recorder": recorder, "memprof run": bar, "recorder at its end": alone, "peers": peer_costs}
    shares = [cost.cpu_share for cost, _ in peer_costs]
    rows = (
        _cpu("the poller's CPU at 1 ms, of one core", f"<= {_CPU_LIMIT:.0%}", recorder.cpu_share, shares),
        _cpu("the same with memprof's bar", "", recorder.cpu_share + bar.cpu_share, shares),
        _memory(alone.hwm_bytes, [cost.hwm_bytes for cost, _ in peer_costs]),
        _interval(polling, [p99_ms for _, p99_ms in peer_costs]),
    )
    return Section(rows, (_NOTE.format(least),), raw)


def _cpu(subject: str, target: str, own: float, peers: list[float]) -> Row:
    return Row(
        subject,
        target,
        *(f"{share:.1%}" for share in (own, *peers)),
        ratio=ratios(own, mprof=peers[:1], psrecord=peers[1:]),
        met=own <= _CPU_LIMIT if target else None,
    )


def _memory(own: int, peers: list[int]) -> Row:
    return Row(
        "the poller's memory (VmHWM)",
        f"<= {_MEMORY_LIMIT / _MIB:.0f} MiB",
        *(f"{size / _MIB:.1f} MiB" for size in (own, *peers)),
        ratio=ratios(own, mprof=peers[:1], psrecord=peers[1:]),
        met=own <= _MEMORY_LIMIT,
    )


def _interval(polling: Polling, peers: list[float]) -> Row:
    own_ms = polling.p99_ns / MS
    return Row(
        "achieved interval at 1 ms, 99th percentile, bar on",
        f"<= {_P99_LIMIT_MS} ms",
        f"{own_ms:.2f} ms (median {polling.median_ns / MS:.3f})",
        *(f"{p99_ms:.2f} ms" for p99_ms in peers),
        ratio=ratios(own_ms, mprof=peers[:1], psrecord=peers[1:]),
        met=own_ms <= _P99_LIMIT_MS,
    )


def _p99_ms(t_s: tuple[float, ...]) -> float:
    steps = sorted(later - earlier for earlier, later in pairwise(t_s))
    return 1000 * steps[min(len(steps) - 1, len(steps) * 99 // 100)] if steps else float("nan")


def _on_a_terminal(setting: Setting, runs: int) -> tuple[Polling, tools.Cost, tools.Cost]:
    """The polling that `memprof run` achieved with its bar drawn, the cost of its recorder, and its own cost."""
    output = setting.folder / "bar.jsonl"
    words = ["run", str(setting.model()), "-r", "onnxruntime", "--threads", "1", "--interval", "1ms", "--warmup", "1", "--runs", str(runs)]
    own_end, their_end = os.openpty()
    fcntl.ioctl(their_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.set_blocking(own_end, False)
    process = subprocess.Popen(
        [tools.script("memprof"), *words, "--repeats", "1", "-o", str(output)],
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=their_end,
        stdout=subprocess.DEVNULL,
        stderr=their_end,
        start_new_session=True,
    )
    os.close(their_end)
    with tools.ended(process):
        drawn, (recorder, bar) = tools.watched(process, [_recorder_of(process), process.pid], own_end)
    os.close(own_end)
    if b"EXECUTE" not in drawn:
        raise SystemExit(f"bench: memprof drew no bar: {drawn[-500:]!r}")
    polling = store.load([output]).runs[0].polling
    assert polling is not None
    return polling, recorder, bar


def _recorder_of(process: subprocess.Popen[bytes]) -> int:
    """The process id of the recorder that a memprof has started, once it has; describing the runtimes comes before."""
    while process.poll() is None:
        for child in psutil.Process(process.pid).children():
            try:
                if any(Path(word).suffix == ".zip" for word in child.cmdline()):
                    return child.pid
            except psutil.Error:
                continue
        try:
            process.wait(timeout=0.02)
        except subprocess.TimeoutExpired:
            continue
    raise SystemExit("bench: memprof ended without a recorder")
