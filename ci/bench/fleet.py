"""What a fleet costs: `python ci/bench/fleet.py [--count N]`, N campaigns of each kind.

A real scheduler and real workers in network namespaces of their own measure 64 sleeping jobs, against the ideal. Namespaces need root (iproute2);
without it the workers share the loopback. The table is printed and written into docs/evidence/claims.md; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs
from bench.table import aligned
from memprof.base.units import counted
from memprof.programs import recorder_build
from memprof.records import store
from memprof.records.types import Run

_WORKERS = 8
_MEMPROF = str(Path(sys.executable).with_name("memprof"))  # the installed one, not that of the working folder
_NET = "10.213.77"
_SLEEP_S = 1.0
_JOBS, _EACH = 64, 4  # jobs, and how many of them are a comparison
_LAB = {
    "ideal (s)": "{:.1f}",
    "campaign (s)": "{:.1f}",
    "ratio": "{:.2f}",
    "overhead a job (ms)": "{:.0f}",
    "of it between two jobs": "{:.0f}",
    "of it at the ends": "{:.0f}",
    "between two jobs without a fleet (ms)": "{:.0f}",
    "the whole command (s)": "{:.1f}",
}
_ONCE = ("--warmup", "0", "--runs", "1", "--repeats", str(_EACH))
_SHORT = ("-r", "synthetic", *_ONCE)
_NAP = "nap=/bin/sh -c 'sleep {seconds:g}' {{model}}"  # it takes the model so that each has a comparison


# -- the lab


@dataclass
class Lab:
    """A scheduler and workers. netns: the namespace of the scheduler and of the desk, empty for this process's own."""

    folder: Path
    address: str
    netns: str
    scheduler: subprocess.Popen[bytes] | None = None
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def words(self, *words: str) -> list[str]:
        """A command beside the scheduler."""
        return [*_inside(self.netns), *words]

    def memprof(self, *words: str) -> list[str]:
        return self.words(_MEMPROF, *words)

    def begin_scheduler(self, host: str) -> None:
        words = ["-m", "distributed.cli.dask_scheduler", "--host", host, "--port", "8786", "--no-dashboard"]
        log = (self.folder / "scheduler").open("ab")
        self.scheduler = subprocess.Popen(self.words(sys.executable, *words), stdout=log, stderr=log)

    def worker(self, name: str, netns: str) -> None:
        """Start a worker, with caches of its own."""
        folder = self.folder / name
        env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
        native = folder / "cache" / "memprof" / "native"
        native.mkdir(parents=True, exist_ok=True)
        shutil.copy2(recorder_build.built(), native)  # it is compiled on first use, which does not count as the campaign
        words = [*_inside(netns), _MEMPROF, "worker", self.address, "--labels", f"name={name}"]
        self.workers[name] = subprocess.Popen(words, env=env, stderr=(folder / "log").open("ab"))

    def places(self) -> list[dict[str, object]]:
        """The places of the fleet, as `memprof fleet` shows them."""
        done = subprocess.run(self.memprof("fleet", self.address, "--json"), capture_output=True, text=True, check=False)
        return json.loads(done.stdout)["places"] if done.returncode == 0 else []


def _inside(netns: str) -> list[str]:
    return ["ip", "netns", "exec", netns] if netns else []


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


@contextmanager
def networks(count: int) -> Iterator[tuple[str, list[str]]]:
    """A namespace for the scheduler, joined to `count` others by a bridge in it; empty names where that is not permitted."""
    mark = f"mpf{os.getpid()}"
    desk, others = f"{mark}d", [f"{mark}w{number}" for number in range(count)]
    if not _ip("netns", "add", desk):
        print("network namespaces are not permitted here: the workers share the loopback", file=sys.stderr)
        yield "", [""] * count
        return
    try:
        _ip("-n", desk, "link", "set", "lo", "up")
        _ip("-n", desk, "link", "add", "br0", "type", "bridge")
        _ip("-n", desk, "addr", "add", f"{_NET}.1/24", "dev", "br0")
        _ip("-n", desk, "link", "set", "br0", "up")
        for number, name in enumerate(others):
            _ip("netns", "add", name)
            _ip("-n", desk, "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", desk, "link", "set", f"v{number}", "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{_NET}.{number + 10}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")
        yield desk, others
    finally:
        for name in (*others, desk):
            _ip("netns", "del", name)


@contextmanager
def lab(workers: int) -> Iterator[Lab]:
    """All of it, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="memprof-fleet-") as name, networks(workers) as (desk, others):
        host = f"{_NET}.1" if desk else "127.0.0.1"
        made, before = Lab(Path(name), f"tcp://{host}:8786", desk), os.getcwd()
        (made.folder / "memprof.toml").write_text("insecure_fleet = true\n")
        os.chdir(made.folder)
        try:
            made.begin_scheduler(host)
            time.sleep(2)
            for number, netns in enumerate(others):
                made.worker(f"w{number}", netns)
            _until(lambda: len(made.places()) == workers, 180)
            yield made
        finally:
            assert made.scheduler is not None
            for process in (*made.workers.values(), made.scheduler):
                process.terminate()
            for process in (*made.workers.values(), made.scheduler):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
            os.chdir(before)


def _until(ready: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end:
            raise SystemExit("the lab did not come to be what it should")
        time.sleep(0.3)


def _campaign(made: Lab, output: Path, models: int, what: Sequence[str]) -> list[str]:
    """A command that measures sleeping jobs on the fleet; `what` sleeps."""
    scenarios = []
    for number in range(models):
        path = made.folder / f"m{number}.json"
        path.write_text(json.dumps({"load": [{"allocate": f"m{number}", "bytes": 1 << 20}], "execute": [{"sleep_s": _SLEEP_S}]}))
        scenarios.append(str(path))
    return made.memprof("run", *scenarios, *what, "--on", f"dask:{made.address}", "-o", str(output))


def _netns(worker: subprocess.Popen[bytes]) -> str:
    """The namespace that a worker is in, empty for this process's own."""
    return next((str(word) for word in worker.args if str(word).startswith("mpf")), "")  # type: ignore[union-attr]


def _alone(made: Lab, models: int, what: Sequence[str]) -> float:
    """What a job of the last campaign costs besides its own time, in ms, if each machine measures its share without a fleet, all at once."""
    workers = len(made.workers)
    shares = [[str(made.folder / f"m{number}.json") for number in range(first, models, workers)] for first in range(workers)]
    files = [made.folder / f"alone{number}.jsonl" for number in range(workers)]
    processes = [
        subprocess.Popen(
            [*_inside(_netns(worker)), _MEMPROF, "run", *share, *what, "-o", str(file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for worker, share, file in zip(made.workers.values(), shares, files, strict=True)
    ]
    for process in processes:
        process.wait()
    idle_s, count = 0.0, 0
    for file in files:
        runs = store.load([file]).runs
        file.unlink()
        idle_s, count = idle_s + _span_s(runs) - _busy_s(runs), count + len(runs)
    return 1000 * idle_s / count


def _idle_ms(runs: Sequence[Run]) -> float:
    """The same of the campaign itself: what its machines do between their first and their last job but the jobs, a job."""
    places = {run.attempt.place for run in runs if run.attempt}
    there = [[run for run in runs if run.attempt and run.attempt.place == place] for place in places]
    return 1000 * sum(_span_s(part) - _busy_s(part) for part in there) / len(runs)


def _busy_s(runs: Sequence[Run]) -> float:
    return sum((run.marks[-1].end_ns - run.marks[0].begin_ns) / 1e9 for run in runs)


def _span_s(runs: Sequence[Run]) -> float:
    """From the first job's start to the last one's end: the desk's start and its tables do not count as the campaign."""
    return max(run.started_ns / 1e9 + _busy_s([run]) for run in runs) - min(run.started_ns for run in runs) / 1e9


def main(count: int) -> None:
    """Campaigns of sleeping jobs on real workers: on eight, which share the CPUs, and on as many as there are CPUs."""
    program = ("--cmd", _NAP.format(seconds=_SLEEP_S), *_ONCE)
    jobs = {
        "runtime in Python": _SHORT,
        "program": program,
        "program, recorder in C": (*program, "--recorder", "c"),
    }
    rows: list[tuple[str, ...]] = []
    for workers in sorted({_WORKERS, os.cpu_count() or 1}, reverse=True):
        models = _JOBS // _EACH * workers // _WORKERS
        with lab(workers) as made:
            for called, what in jobs.items():
                turns = [_measured(made, models, what, f"{called}{turn}") for turn in range(count)]
                figures = [
                    form.format(statistics.median(column)) for form, column in zip(_LAB.values(), zip(*turns, strict=True), strict=True)
                ]
                rows.append((called, str(workers), str(models * _EACH), *figures))
                print(rows[-1], file=sys.stderr)
    table = aligned([("what sleeps", "workers", "jobs", *_LAB), *rows])
    print(table)
    docs.write(
        "fleet-lab",
        table,
        [
            f"Medians of {counted(count, 'campaign')}. Each job sleeps {_SLEEP_S:g} s; {_EACH} jobs are a comparison. Load of the machine: "
            f"{os.getloadavg()[0]:.0f}.",
            "Between two jobs: the end of the recorder, the way to the next job, and the start of the next recorder. At the ends: the first jobs of "
            "the workers do not begin at once, and their last ones do not end at once.",
            "Without a fleet: as many `memprof run` at once, each with its share of the jobs. Workers that share a CPU wait for one another when "
            "recorders and programs start: their jobs begin at the same moments.",
        ],
    )


def _measured(made: Lab, models: int, what: Sequence[str], called: str) -> tuple[float, ...]:
    """A campaign as a row of `_LAB`."""
    output, workers = made.folder / f"{called}.jsonl", len(made.workers)
    began = time.monotonic()
    subprocess.run(_campaign(made, output, models, what), check=True, capture_output=True)
    wall_s = time.monotonic() - began
    runs = store.load([output]).runs
    span_s, ideal_s = _span_s(runs), _busy_s(runs) / workers
    overhead_ms, between_ms = 1000 * (span_s - ideal_s) * workers / len(runs), _idle_ms(runs)
    return ideal_s, span_s, span_s / ideal_s, overhead_ms, between_ms, overhead_ms - between_ms, _alone(made, models, what), wall_s


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5, metavar="N")
    main(parser.parse_args().count)
