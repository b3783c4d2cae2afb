"""Offers made-up places to a scheduler: ADDRESS PLACES RUNS [SECONDS].

They are memprof's own workers in all but the measuring: a comparison of RUNS runs is answered after SECONDS, at once without them, with a timeline of
its own for each run.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

# The tests' folder is no package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from memprof.fleet import message, worker
from memprof.fleet.message import Event, Offered, Result, Task
from memprof.fleet.worker_slots import Slot
from memprof.records import store
from memprof.records.types import Run
from support import sample_runs

_ROWS = 1000  # of a timeline
_TIMELINES = 50  # that differ


class Made(Slot):
    """A place without a machine behind it. runs: how many a comparison has. seconds: how long it takes."""

    runs: int = 0
    seconds: float = 0.0

    def open(self) -> None:
        labels = {"kind": "made", "place": self.offer}
        self.offered = Offered(self.offer, "nowhere", self.offer, labels, message.PROTOCOL, message.version())

    def close(self) -> None:
        pass

    def measure(self, task: Task, cancelled: Callable[[], bool]) -> Iterator[Event]:
        yield Event(plan=self.runs)
        time.sleep(self.seconds)
        for repeat in range(1, self.runs + 1):
            yield Event(run=store.encode(self._run(task, repeat)).decode())
        yield Event(end=Result(self.runs))

    def _run(self, task: Task, repeat: int) -> Run:
        run = _RUNS[random.randrange(_TIMELINES)]
        assert task.model is not None
        job = replace(run.job, model=task.model, repeat=repeat)
        return replace(run, job=job, machine=replace(run.machine, name=self.offer))


def _run() -> Run:
    """A run of about 12 KB as JSON."""
    samples, rss = [(0, 0, 0, 0)], 0
    for _ in range(_ROWS):
        rss += random.randrange(64) * 4096
        samples.append((samples[-1][0] + random.randrange(10**6, 2 * 10**6), rss, rss // 10, 2 * rss))
    return sample_runs.run(samples=samples)


_RUNS = [_run() for _ in range(_TIMELINES)]


def main() -> None:
    """See the module's text."""
    address, places, runs, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]) if sys.argv[4:] else 0.0
    slots: list[Any] = []
    for number in range(places):
        slots.append(Made(f"made{number}", None, None, {}))
        slots[-1].runs, slots[-1].seconds = runs, seconds
    asyncio.run(worker.serve(address, slots, lambda sentence: print(sentence, flush=True)))


if __name__ == "__main__":
    main()
