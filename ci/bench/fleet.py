#!/usr/bin/env python3
"""`make bench-fleet`: how good the fleet is: `python ci/bench/fleet.py [PART ...]`, all of it by default.

    plan    the planner by simulation: makespan against the ideal, its time and memory, for 100,000 jobs on 2,000 machines
    lab     a real scheduler and eight real workers in network namespaces of their own: a campaign of 64 sleeping jobs against the ideal
    kills   a worker, the process that tends a place, and the desk killed in the middle: every run once, no comparison mixed, nothing left running

The parts `lab` and `kills` need root (iproute2); without it the workers share the loopback. `--count N`: campaigns, or kills of each. Each part
prints its Markdown table and writes it into docs/fleet.md where that has a place for it; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# bench is a package of scripts beside this one's folder; it is never installed. The simulation stands among the tests, which use it too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from simulated_fleet import simulate

from bench import docs
from bench.table import aligned
from memprof.runs import store
from memprof.runs.records import Run
from memprof.units import counted

_COUNTS = {"plan": 3, "lab": 1, "kills": 20}
_WORKERS = 8
_MEMPROF = str(Path(sys.executable).with_name("memprof"))  # the installed one, not that of the working folder
_NET = "10.213.77"
_SLEEP_S = 1.0
_JOBS, _EACH = 64, 4  # jobs, and how many of them are a comparison
_SHORT = ("-r", "synthetic", "--warmup", "0", "--runs", "1", "--repeats", str(_EACH))


def plan(count: int) -> None:
    """The planner by simulation."""
    rows = []
    for bound, called in ((False, "any machine"), (True, "a given kind")):
        results = [simulate(100_000, 2_000, bound=bound, seed=seed) for seed in range(count)]
        ratios = [result.makespan_s / result.ideal_s for result in results]
        rows.append(
            (
                called,
                f"{statistics.median(ratios):.3f}",
                f"{max(ratios):.3f}",
                f"{max(result.planning_s for result in results):.1f}",
                str(sum(result.lost for result in results) // count),
            )
        )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    table = aligned([("comparisons run on", "makespan / ideal", "worst", "planning (s)", "lost with a machine"), *rows])
    _show("fleet-plan", table, [f"{counted(count, 'campaign')} each. The process that planned and simulated had {memory} MiB at most."])


# -- the lab


@dataclass
class Lab:
    """A scheduler and workers. netns: the namespace of the scheduler and of the desk, empty for this process's own."""

    folder: Path
    address: str
    netns: str
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def words(self, *words: str) -> list[str]:
        """A command beside the scheduler."""
        return [*_inside(self.netns), *words]

    def memprof(self, *words: str) -> list[str]:
        return self.words(_MEMPROF, *words)

    def worker(self, name: str, netns: str) -> None:
        """Start a worker, with caches of its own."""
        folder = self.folder / name
        env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
        folder.mkdir(exist_ok=True)
        words = [*_inside(netns), _MEMPROF, "worker", self.address, "--insecure", "--labels", f"name={name}"]
        self.workers[name] = subprocess.Popen(words, env=env, stderr=(folder / "log").open("ab"))

    def there(self) -> list[dict[str, object]]:
        """The places of the fleet, as `memprof fleet` shows them."""
        done = subprocess.run(self.memprof("fleet", self.address, "--insecure", "--json"), capture_output=True, text=True, check=False)
        return json.loads(done.stdout)["places"] if done.returncode == 0 else []

    def measuring(self) -> list[psutil.Process]:
        """The probes, and what they started, below all workers."""
        tenders = [child for worker in self.workers.values() if worker.poll() is None for child in _tenders(worker.pid)]
        below: list[psutil.Process] = []
        for tender in tenders:
            with suppress(psutil.Error):
                below += tender.children(recursive=True)
        return below


def _tenders(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [child for child in psutil.Process(pid).children(recursive=True) if "tending.run()" in _words(child)]
    return []


def _measures(worker: int) -> bool:
    with suppress(psutil.Error):
        return any(tender.children() for tender in _tenders(worker))
    return False


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):  # it has ended since it was listed
        return " ".join(process.cmdline())
    return ""


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
def lab(workers: int = _WORKERS) -> Iterator[Lab]:
    """All of it, gone at the end."""
    with tempfile.TemporaryDirectory(prefix="memprof-fleet-") as name, networks(workers) as (desk, others):
        host = f"{_NET}.1" if desk else "127.0.0.1"
        made = Lab(Path(name), f"tcp://{host}:8786", desk)
        log = (made.folder / "scheduler").open("wb")
        words = ["-m", "distributed.cli.dask_scheduler", "--host", host, "--port", "8786", "--no-dashboard"]
        scheduler = subprocess.Popen(made.words(sys.executable, *words), stdout=log, stderr=log)
        try:
            time.sleep(2)
            for number, netns in enumerate(others):
                made.worker(f"w{number}", netns)
            _until(lambda: len(made.there()) == workers, 180)
            yield made
        finally:
            for process in (*made.workers.values(), scheduler):
                process.terminate()
            for process in (*made.workers.values(), scheduler):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()


def _until(ready: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end:
            raise SystemExit("the lab did not come to be what it should")
        time.sleep(0.3)


def _campaign(made: Lab, output: Path, models: int, sleep_s: float) -> list[str]:
    scenarios = []
    for number in range(models):
        path = made.folder / f"m{number}.json"
        path.write_text(json.dumps({"load": [{"allocate": f"m{number}", "bytes": 1 << 20}], "execute": [{"sleep_s": sleep_s}]}))
        scenarios.append(str(path))
    return made.memprof("run", *scenarios, *_SHORT, "--on", f"dask:{made.address}", "--insecure", "-o", str(output))


def _netns(worker: subprocess.Popen[bytes]) -> str:
    """The namespace that a worker is in, empty for this process's own."""
    return next((str(word) for word in worker.args if str(word).startswith("mpf")), "")  # type: ignore[union-attr]


def _alone(made: Lab, models: int) -> float:
    """What a job of the last campaign costs besides its own time, in ms, if each machine measures its share without a fleet, all at once."""
    workers = len(made.workers)
    shares = [[str(made.folder / f"m{number}.json") for number in range(first, models, workers)] for first in range(workers)]
    files = [made.folder / f"alone{number}.jsonl" for number in range(workers)]
    processes = [
        subprocess.Popen(
            [*_inside(_netns(worker)), _MEMPROF, "run", *share, *_SHORT, "-o", str(file)],
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


def _busy_s(runs: Sequence[Run]) -> float:
    return sum((run.marks[-1].end_ns - run.marks[0].begin_ns) / 1e9 for run in runs)


def _span_s(runs: Sequence[Run]) -> float:
    """From the first job's start to the last one's end: the desk's start and its tables are no part of a campaign."""
    return max(run.started_ns / 1e9 + _busy_s([run]) for run in runs) - min(run.started_ns for run in runs) / 1e9


def real(count: int) -> None:
    """A campaign of sleeping jobs on real workers: on eight, which share the CPUs, and on as many as there are CPUs."""
    rows = []
    for workers in sorted({_WORKERS, os.cpu_count() or 1}, reverse=True):
        models = _JOBS // _EACH * workers // _WORKERS
        with lab(workers) as made:
            for turn in range(count):
                rows.append(_measured(made, models, turn))
                print(rows[-1], file=sys.stderr)
    header = (
        "workers",
        "jobs",
        "ideal (s)",
        "campaign (s)",
        "ratio",
        "overhead a job (ms)",
        "the same without a fleet (ms)",
        "the whole command (s)",
    )
    _show(
        "fleet-lab",
        aligned([header, *rows]),
        [
            f"Each job sleeps {_SLEEP_S:g} s; {_EACH} jobs are a comparison. Load of the machine: {os.getloadavg()[0]:.0f}.",
            "Without a fleet: as many `memprof run` at once, each with its share of the jobs. That is the start of the probes and of the "
            "programs. Workers that share a CPU wait for one another there: their jobs begin at the same moments.",
        ],
    )


def _measured(made: Lab, models: int, turn: int) -> tuple[str, ...]:
    """A campaign as a row of the table."""
    output, workers = made.folder / f"lab{turn}.jsonl", len(made.workers)
    began = time.monotonic()
    subprocess.run(_campaign(made, output, models, _SLEEP_S), check=True, capture_output=True)
    wall_s = time.monotonic() - began
    runs = store.load([output]).runs
    span_s, ideal_s = _span_s(runs), _busy_s(runs) / workers
    overhead_ms = 1000 * (span_s - ideal_s) * workers / len(runs)
    return (
        str(workers),
        str(len(runs)),
        f"{ideal_s:.1f}",
        f"{span_s:.1f}",
        f"{span_s / ideal_s:.2f}",
        f"{overhead_ms:.0f}",
        f"{_alone(made, models):.0f}",
        f"{wall_s:.1f}",
    )


def kills(count: int) -> None:
    """Kills in the middle."""
    rows = []
    with lab(3) as made:
        for victim in ("worker", "tender", "desk"):
            right = sum(_kill(made, victim, turn) for turn in range(count))
            rows.append((victim, str(count), str(right)))
            print(rows[-1], file=sys.stderr)
    _show("fleet-kills", aligned([("killed", "tried", "right"), *rows]), [f"`python ci/bench/fleet.py kills --count {count}`"])


def _kill(made: Lab, victim: str, turn: int) -> bool:
    output = made.folder / f"{victim}{turn}.jsonl"
    words = _campaign(made, output, 6, 0.3)
    desk = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _until(lambda: desk.poll() is not None or (output.exists() and output.read_bytes().count(b"\n") >= 3), 90)
    if victim == "desk":
        for process in (*psutil.Process(desk.pid).children(recursive=True), psutil.Process(desk.pid)):
            process.kill()
        desk.wait()
        _until(lambda: not made.measuring(), 30)
        subprocess.run([*words, "--append"], capture_output=True, check=False, timeout=180)
    else:
        with suppress(SystemExit):  # it may be over
            _until(made.measuring, 30)
        name = next((name for name, worker in made.workers.items() if _measures(worker.pid)), next(iter(made.workers)))
        worker = made.workers[name]
        if victim == "worker":
            for process in (*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)):
                if "memprof" in _words(process) and "tending" not in _words(process):
                    process.send_signal(signal.SIGKILL)
            worker.wait()
            made.worker(name, _netns(worker))
        else:
            _tenders(worker.pid)[0].kill()
        desk.wait(180)
    runs = store.load([output]).runs
    once = Counter((run.job.model.name, run.job.repeat) for run in runs)
    lines = [store.decode(line, where) for where, line in store.lines(output, lambda _: None)]
    attempts = Counter((run.job.model.name, run.job.repeat, run.attempt.number) for run in lines if run.attempt)
    mixed = any(len({run.attempt.place for run in runs if run.attempt and run.job.model.name == name}) > 1 for name, _ in once)
    with suppress(SystemExit):
        _until(lambda: not made.measuring(), 20)
    right = len(once) == 6 * _EACH and set(once.values()) == {1} and set(attempts.values()) == {1} and not mixed and not made.measuring()
    _until(lambda: len(made.there()) == len(made.workers), 120)
    return right


def _show(name: str, table: str, notes: Sequence[str]) -> None:
    print("\n".join([table, *(f"- {note}" for note in notes)]))
    with suppress(LookupError):
        docs.write(name, table, notes)


def main() -> None:
    parts = {"plan": plan, "lab": real, "kills": kills}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--count", type=int)
    words = parser.parse_args()
    for name in words.parts or parts:
        if name not in parts:
            parser.error(f"there is no part {name!r}; there are {', '.join(parts)}")
        parts[name](words.count or _COUNTS[name])


if __name__ == "__main__":
    main()
