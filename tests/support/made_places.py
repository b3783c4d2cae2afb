"""Offers made-up places to a scheduler: ADDRESS PLACES RUNS [SECONDS].

They are memprof's own workers in all but the measuring: a comparison of RUNS runs is answered after SECONDS, at once without them, with a timeline of
its own for each run.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import sys
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

# The tests' folder is no package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from memprof.campaign.fleet import message, scheduler, security, worker
from memprof.campaign.fleet.message import ComparisonTask, Event, Offered, Result
from memprof.campaign.fleet.worker import Station
from memprof.places.place import HERE
from memprof.records import store
from memprof.records.types import Run
from support import sample_runs

_ROWS = 1000  # of a timeline
_TIMELINES = 5  # that differ


def measure(comparison: ComparisonTask, task: str, events: str) -> None:
    """In place of worker.measure: runs of nothing."""
    from distributed import get_worker
    from distributed.utils import sync

    here: Any = get_worker()

    def tell(**words: Any) -> None:
        data = pickle.dumps(Event(comparison.key, task, here.address, **words))
        sync(here.loop, here.scheduler.queue_put, name=events, data=data, timeout=None)

    tell(begins=True, plan=_RUNS_EACH)
    time.sleep(_SECONDS)
    for repeat in range(1, _RUNS_EACH + 1):
        tell(run=store.encode(_made(comparison, repeat, here.name.partition(" ")[0])))
    tell(end=Result())


def _made(comparison: ComparisonTask, repeat: int, machine: str) -> Run:
    run = _RUNS[random.randrange(_TIMELINES)]
    assert comparison.model is not None
    return replace(run, job=replace(run.job, model=comparison.model, repeat=repeat), machine=replace(run.machine, name=machine))


async def offer(address: str, number: int) -> None:
    """Offer a place until its scheduler is gone."""
    labels = {"kind": "made", "place": f"made{number}"}
    offered = Offered(f"made{number}", "nowhere", f"made{number}", labels, message.PROTOCOL, message.version())
    station = Station(offered, HERE)
    await worker.connected(address, station, security.security(address, "worker", print))
    print(f"{offered.place} is offered", flush=True)
    await station.worker.finished()


def _run() -> Run:
    """A run of about 12 KB as JSON."""
    samples, rss = [(0, 0, 0, 0)], 0
    for _ in range(_ROWS):
        rss += random.randrange(64) * 4096
        samples.append((samples[-1][0] + random.randrange(10**6, 2 * 10**6), rss, rss // 10, 2 * rss))
    return sample_runs.run(samples=samples)


_RUNS = [_run() for _ in range(_TIMELINES)]


_ADDRESS, _PLACES, _RUNS_EACH, _SECONDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]) if sys.argv[4:] else 0.0


async def main() -> None:
    """See the module's text."""
    scheduler.calm()
    worker.measure = measure
    await asyncio.gather(*(offer(_ADDRESS, number) for number in range(_PLACES)))


if __name__ == "__main__":
    asyncio.run(main())
