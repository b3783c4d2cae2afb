"""Measuring over ssh beside measuring here: what a job costs more, whether its figures are the same, what is sent, what a pulled cable does."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from memprof.places.place import HERE
from memprof.records.types import STARTUP, Run
from memprof.subjects.suite import Suite, Variant, parse_cmd
from memprof.verdicts.compare import compare

from . import elsewhere, tools
from .elsewhere import sshd
from .table import aligned

_MS_MORE = 30
_PHASES = (STARTUP, "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE")
_LEFT_S = 10
_SCENARIO = '{"load": [{"sleep_s": 0.5}], "prepare": [{"sleep_s": 0.5}], "execute": [{"sleep_s": 0.5}]}'
Part = tuple[str, tuple[str, ...]]


def jobs(count: int) -> Part:
    """The time of short jobs, here and there in turn."""
    times: dict[str, list[float]] = {"here": [], "there": []}
    with elsewhere.loopback() as server, elsewhere.reached(server) as place:
        orders = {
            name: elsewhere.order(Suite(variants=(parse_cmd("/bin/true"),), repeats=1, place=where))
            for name, where in (("here", HERE), ("there", place))
        }
        for order in orders.values():
            elsewhere.measured_well(order)  # the recorder is sent, and its shell started
        for number in range(count):
            for name in list(orders)[:: 1 if number % 2 else -1]:
                begin = time.perf_counter()
                elsewhere.measured_well(orders[name])
                times[name].append((time.perf_counter() - begin) * 1000)
    more = statistics.median(there - here for here, there in zip(times["here"], times["there"], strict=True))
    rows = [("what", "target", "here", "over ssh", "more", "")]
    rows.append(
        (
            "a short job, median",
            f"<= {_MS_MORE} ms more",
            *_ms(map(statistics.median, times.values())),
            f"{more:.1f} ms",
            verdict(more <= _MS_MORE),
        )
    )
    rows.append(("a short job, least", "-", *_ms(map(min, times.values())), f"{min(times['there']) - min(times['here']):.1f} ms", ""))
    return aligned(rows), (
        f"{count} jobs a side, in turn, of `/bin/true` by the recorder in Python, over OpenSSH on loopback; more: the median of the pairs.",
    )


def _ms(values: object) -> Sequence[str]:
    return [f"{value:.1f} ms" for value in values]  # type: ignore[attr-defined]


def same(count: int) -> Part:
    """The figures of a model, here twice and there once, in turn, judged as `memprof compare` does."""
    model = tools.zoo("mnist", Path(__file__).resolve().parents[2] / "build" / "mnist.onnx")
    runs: dict[str, list[Run]] = {"here": [], "again": [], "there": []}
    with elsewhere.loopback() as server, elsewhere.reached(server) as place:
        orders = {
            name: elsewhere.order(
                Suite(models=(str(model),), runtimes=("onnxruntime",), repeats=1, warmup=1, runs=3, threads=(1,), place=where)
            )
            for name, where in (("here", HERE), ("again", HERE), ("there", place))
        }
        for number in range(count):
            for name in [*orders][number % 3 :] + [*orders][: number % 3]:
                runs[name].append(elsewhere.measured_well(orders[name]))
                print(f"same, {name}, {number + 1} of {count}", file=sys.stderr)
    alone, across = (
        {row.phase: row for row in compare(runs["here"], runs[name], ("rss_peak_bytes",)).differences} for name in ("again", "there")
    )
    rows = [("peak in", "target", "here", "here again - here", "there - here", "")]
    for phase, row in across.items():
        mark = "" if row.verdict == "too few" else verdict(row.verdict == "noise")
        figures = (f"{row.base.median / 2**20:.2f} MiB", _kib(alone[phase].difference), _kib(row.difference))
        rows.append((phase, "noise", *figures, mark))
    return aligned(rows), (
        f"mnist of the zoo in onnxruntime, {count} repeats a side, in turn; medians; noise: by the rank test of `memprof compare`.",
    )


def _kib(size: float) -> str:
    return f"{size / 1024:+.0f} KiB"


def sent(size: int) -> Part:
    """A model of this size, in two campaigns."""
    rows = [("campaign", "target", "time to the first run", "bytes of files sent", "rate", "")]
    with elsewhere.loopback() as server:
        model = server.folder.parent / "large.onnx"
        model.write_bytes(os.urandom(size))
        for number, target in enumerate((f">= {size / 1e6:.0f} MB", "0"), 1):
            begin = time.perf_counter()
            with elsewhere.reached(server) as place:
                order = elsewhere.order(Suite(models=(str(model),), variants=(parse_cmd("/bin/true {model}"),), repeats=1, place=place))
                seconds, moved = time.perf_counter() - begin, place.sent
                elsewhere.measured_well(order)
                later = place.sent - moved
            met = size <= moved + later < size + 10_000_000 if number == 1 else moved + later == 0
            rate = f"{moved / seconds / 1e6:.0f} MB/s" if moved else "-"
            rows.append((str(number), target, f"{seconds:.2f} s", f"{(moved + later) / 1e6:.1f} MB", rate, verdict(met)))
    return aligned(rows), (
        "From the log-in on, hashing included, over OpenSSH on loopback; the first campaign sends the recorder too. Random bytes do not compress.",
    )


class _Cutter:
    """Progress that cuts the connection when the child is in a phase, and knows the processes that were there."""

    def __init__(self, server: sshd.Server, phase: str) -> None:
        self._server, self._phase = server, phase
        self.there: list[psutil.Process] = []
        self.at = 0.0

    def started(self, job: object, index: int, total: int) -> None: ...
    def finished(self, run: Run) -> None: ...
    def say(self, sentence: str) -> None: ...

    def live(self, phase: str, rss_bytes: int) -> None:
        if not self.there and phase == ("-" if self._phase == STARTUP else self._phase):
            server = psutil.Process(self._server.process.pid)
            self.there = [process for process in server.children(recursive=True) if not process.name().startswith("sshd")]
            self.at = time.monotonic()
            self._server.cut()


def cable(count: int) -> Part:
    """The connection killed in each phase, so often."""
    rows = [("phase", "target", "cut", "runs lost", f"processes left after {_LEFT_S} s", "ended within, at most", "")]
    with elsewhere.loopback() as server:
        model = server.folder.parent / "model.json"
        model.write_text(_SCENARIO)
        for phase in _PHASES:
            missing = left = cut = 0
            longest = 0.0
            with elsewhere.reached(server) as place:
                suite = Suite(models=(str(model),), variants=(Variant("synthetic"),), repeats=1, warmup=1, runs=3, place=place)
                order = elsewhere.order(suite)
                for number in range(count):
                    print(f"cable, {phase}, {number + 1} of {count}", file=sys.stderr)
                    cutter = _Cutter(server, phase)
                    run = elsewhere.measured(order, cutter)
                    cut += bool(cutter.there)
                    missing += not (run.outcome.status == "lost" and (run.outcome.message or "").endswith(" broke"))
                    _, alive = psutil.wait_procs(cutter.there, max(0, cutter.at + _LEFT_S - time.monotonic()))
                    if cutter.there:
                        longest = max(longest, time.monotonic() - cutter.at)
                    left += len(alive)
                elsewhere.measured_well(order)  # the connection is made again
            met = cut == count and not missing and not left
            rows.append((phase, "0 and 0", str(cut), str(missing), str(left), f"{longest:.1f} s", verdict(met)))
    return aligned(rows), (
        "The server's side of the connection is killed. A run is lost if no record of it says that the connection broke. A good run ends each row.",
    )


def verdict(met: bool) -> str:
    """A target's cell."""
    return "met" if met else "**missed**"
