"""Offers made-up places to a scheduler, for the fleet's bench of the desk: ADDRESS PLACES RUNS.

They are memprof's own workers in all but the measuring: a comparison of RUNS runs is answered at once, with a timeline of its own for each run.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

# The tests' folder is no package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support import sample_runs

from memprof.fleet import message, worker
from memprof.fleet.message import Offered, Result, Task
from memprof.fleet.worker_slots import Stand
from memprof.records import store
from memprof.records.types import Attempt, Run

_ROWS = 1000  # of a timeline
_TIMELINES = 50  # that differ


class Made(Stand):
    """A place without a machine behind it. runs: how many a comparison has."""

    runs: int = 0

    def open(self) -> None:
        labels = {"kind": "made", "place": self.offer}
        self.offered = Offered(self.offer, "nowhere", self.offer, labels, message.PROTOCOL, message.version())

    def close(self) -> None:
        pass

    def measure(self, task: Task, tell: Callable[..., None], cancelled: Callable[[], bool]) -> Result:
        tell(plan=self.runs)
        for repeat in range(1, self.runs + 1):
            tell(run=store.encode(self._run(task, repeat)).decode())
        return Result(self.runs)

    def _run(self, task: Task, repeat: int) -> Run:
        run = _RUNS[random.randrange(_TIMELINES)]
        assert task.model is not None and self.offered is not None
        job = replace(run.job, model=task.model, repeat=repeat)
        attempt = Attempt(task.comparison, task.attempt, self.runs)
        return replace(run, job=job, machine=replace(run.machine, name=self.offer), attempt=attempt)


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
    address, places, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    stands: list[Any] = []
    for number in range(places):
        stands.append(Made(f"made{number}", None, None, {}))
        stands[-1].runs = runs
    asyncio.run(worker.serve(address, stands, lambda sentence: print(sentence, flush=True)))


if __name__ == "__main__":
    main()
