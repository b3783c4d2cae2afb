#!/usr/bin/env python3
"""`make bench-fleet`: how good the fleet is: `python ci/bench/fleet.py [PART ...]`, all of it by default.

    lab     a real scheduler and eight real workers in network namespaces of their own: a campaign of 64 sleeping jobs against the ideal
    desk    a desk that gets 100,000 runs with their timelines through a real scheduler, from places that make them up: its memory
    boards  the same with boards of tests/board (QEMU) behind two of the eight workers: every run once, and the time between two jobs
    same    the figures of one model measured here and through a fleet, in turn, judged as the gate does (on an idle machine)
    kills   a worker, the process that tends a place, the desk, the scheduler, and a board killed in the middle: every run once,
            no comparison mixed, nothing left running

All but `desk` need root (iproute2); without it the workers share the loopback. `--count N`: campaigns, or kills of each. Each part
prints its Markdown table and writes it into docs/fleet.md where that has a place for it; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shlex
import shutil
import signal
import socket
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
from typing import Any
from urllib.parse import urlsplit

import psutil

# bench is a package of scripts beside this one's folder; it is never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import docs, tools
from bench.table import aligned
from memprof.base.units import counted, format_bytes
from memprof.programs import recorder_build
from memprof.records import metrics, store
from memprof.records.types import PEAK, Run
from memprof.verdicts import baseline, verdicts

_COUNTS = {"lab": 5, "desk": 1, "boards": 1, "same": 30, "kills": 20}
_WORKERS, _BOARDS = 8, 2
_BOARD_PORT = 2200  # and above, for their ssh
_MEMPROF = str(Path(sys.executable).with_name("memprof"))  # the installed one, not that of the working folder
_NET = "10.213.77"
_SLEEP_S = 1.0
_JOBS, _EACH = 64, 4  # jobs, and how many of them are a comparison
_TAKERS = ("recorder and program", "place's process", "worker", "scheduler")  # of CPU time
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
_AT_THE_DESK = ((10_000, 10), (100_000, 10))  # runs of a campaign, and how many of them are a comparison
_MADE = 16  # places
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
    boards: dict[str, tuple[subprocess.Popen[bytes], int]] = field(default_factory=dict)  # by their worker, with the port of their ssh

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
        shutil.copy2(recorder_build.built(), native)  # it is compiled on first use, which is no part of a campaign
        words = [*_inside(netns), _MEMPROF, "worker", self.address, "--labels", f"name={name}"]
        if name in self.boards:
            env["PATH"] = f"{folder / 'board' / 'bin'}{os.pathsep}{env['PATH']}"
            words += ["--offer", f"ssh:root@127.0.0.1:{self.boards[name][1]}", "--remote-dir", "/tmp/memprof"]
        self.workers[name] = subprocess.Popen(words, env=env, stderr=(folder / "log").open("ab"))

    def boot(self, name: str, netns: str, port: int) -> None:
        """A board beside a worker, which ends with its holder's input."""
        folder = self.folder / name / "board"
        folder.mkdir(parents=True, exist_ok=True)
        words = [*_inside(netns), sys.executable, str(Path(__file__).with_name("board_behind.py")), str(folder), str(port)]
        holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.boards[name] = holder, port
        assert holder.stdout is not None
        if not holder.stdout.readline():
            raise SystemExit("the board does not boot")

    def unplug(self, name: str) -> int:
        """End a board in the middle of whatever it does; the port of its ssh."""
        holder, port = self.boards[name]
        for process in psutil.process_iter():
            if "qemu" in _words(process) and str(self.folder / name / "board") in _words(process):
                with suppress(psutil.Error):
                    process.kill()
        self.leave(holder)
        return port

    def leave(self, holder: subprocess.Popen[bytes]) -> None:
        """End a board's holder, and with it the board."""
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait(60)

    def there(self) -> list[dict[str, object]]:
        """The places of the fleet, as `memprof fleet` shows them."""
        done = subprocess.run(self.memprof("fleet", self.address, "--json"), capture_output=True, text=True, check=False)
        return json.loads(done.stdout)["places"] if done.returncode == 0 else []

    def cpu_ms(self) -> Counter[str]:
        """The CPU time that the fleet has taken; of recorders and programs, of those that have ended."""
        taken: Counter[str] = Counter()
        if self.scheduler is not None:
            taken["scheduler"] = _cpu_ms(psutil.Process(self.scheduler.pid).cpu_times())
        for worker in self.workers.values():
            taken["worker"] += _cpu_ms(psutil.Process(worker.pid).cpu_times())
            for tender in _tenders(worker.pid):
                times = tender.cpu_times()
                taken["place's process"] += _cpu_ms(times)
                taken["recorder and program"] += round(1000 * (times.children_user + times.children_system))
        return taken

    def measuring(self) -> list[psutil.Process]:
        """The recorders, and what they started, below all workers."""
        tenders = [child for worker in self.workers.values() if worker.poll() is None for child in _tenders(worker.pid)]
        below: list[psutil.Process] = []
        for tender in tenders:
            with suppress(psutil.Error):
                below += [child for child in tender.children(recursive=True) if child.name() != "ssh"]  # which stays as long as its board
        return below

    def measuring_board(self, output: Path) -> str | None:
        """A worker whose board has measured some of a comparison's runs, and not all."""
        runs = store.load([output]).runs
        counts = Counter((run.job.model.name, run.attempt.place) for run in runs if run.attempt)
        begun = {place for (_, place), count in counts.items() if count < _EACH and place}
        return next((name for name, (_, port) in self.boards.items() if any(f":{port} " in place for place in begun)), None)


def _cpu_ms(times: Any) -> int:
    return round(1000 * (times.user + times.system))


def _tenders(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [child for child in psutil.Process(pid).children(recursive=True) if "worker_loop.run()" in _words(child)]
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
def lab(workers: int = _WORKERS, boards: int = 0) -> Iterator[Lab]:
    """All of it, gone at the end. boards: how many of the workers offer a board instead of this machine."""
    with tempfile.TemporaryDirectory(prefix="memprof-fleet-") as name, networks(workers) as (desk, others):
        host = f"{_NET}.1" if desk else "127.0.0.1"
        made, before = Lab(Path(name), f"tcp://{host}:8786", desk), os.getcwd()
        (made.folder / "memprof.toml").write_text("insecure-fleet = true\n")
        os.chdir(made.folder)
        try:
            made.begin_scheduler(host)
            time.sleep(2)
            for number, netns in enumerate(others):
                if number < boards:
                    made.boot(f"w{number}", netns, _BOARD_PORT + number)
                made.worker(f"w{number}", netns)
            _until(lambda: len(made.there()) == workers, 180)
            yield made
        finally:
            assert made.scheduler is not None
            for process in (*made.workers.values(), made.scheduler):
                process.terminate()
            for process in (*made.workers.values(), made.scheduler):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                process.kill()
            for holder, _ in made.boards.values():
                made.leave(holder)
            os.chdir(before)


def _until(ready: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > end:
            raise SystemExit("the lab did not come to be what it should")
        time.sleep(0.3)


def _campaign(made: Lab, output: Path, models: int, sleep_s: float, what: Sequence[str] = ()) -> list[str]:
    """A command that measures sleeping jobs on the fleet; `what` sleeps, or a runtime in Python, or on boards, which have none, a program."""
    scenarios = []
    for number in range(models):
        path = made.folder / f"m{number}.json"
        path.write_text(json.dumps({"load": [{"allocate": f"m{number}", "bytes": 1 << 20}], "execute": [{"sleep_s": sleep_s}]}))
        scenarios.append(str(path))
    what = what or (("--cmd", _NAP.format(seconds=sleep_s), *_ONCE) if made.boards else _SHORT)
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
    """From the first job's start to the last one's end: the desk's start and its tables are no part of a campaign."""
    return max(run.started_ns / 1e9 + _busy_s([run]) for run in runs) - min(run.started_ns for run in runs) / 1e9


def real(count: int) -> None:
    """Campaigns of sleeping jobs on real workers: on eight, which share the CPUs, and on as many as there are CPUs."""
    program = ("--cmd", _NAP.format(seconds=_SLEEP_S), *_ONCE)
    jobs = {
        "runtime in Python": _SHORT,
        "program": program,
        "program, recorder in C": (*program, "--recorder", "c"),
    }
    rows: list[tuple[str, ...]] = []
    cpu: list[tuple[str, ...]] = []
    for workers in sorted({_WORKERS, os.cpu_count() or 1}, reverse=True):
        models = _JOBS // _EACH * workers // _WORKERS
        with lab(workers) as made:
            for called, what in jobs.items():
                turns = [_measured(made, models, what, f"{called}{turn}") for turn in range(count)]
                row, taken = ([statistics.median(column) for column in zip(*side, strict=True)] for side in zip(*turns, strict=True))
                rows.append(
                    (
                        called,
                        str(workers),
                        str(models * _EACH),
                        *(form.format(amount) for form, amount in zip(_LAB.values(), row, strict=True)),
                    )
                )
                cpu.append((called, str(workers), *(f"{amount:.0f}" for amount in taken)))
                print(rows[-1], cpu[-1], file=sys.stderr)
    _show(
        "fleet-lab",
        aligned([("what sleeps", "workers", "jobs", *_LAB), *rows]),
        [
            f"Medians of {counted(count, 'campaign')}. Each job sleeps {_SLEEP_S:g} s; {_EACH} jobs are a comparison. Load of the machine: "
            f"{os.getloadavg()[0]:.0f}.",
            "Between two jobs: the end of the recorder, the way to the next job, and the start of the next recorder. At the ends: the first jobs of "
            "the workers do not begin at once, and their last ones do not end at once.",
            "Without a fleet: as many `memprof run` at once, each with its share of the jobs. Workers that share a CPU wait for one another when "
            "recorders and programs start: their jobs begin at the same moments.",
        ],
    )
    _show(
        "fleet-cpu",
        aligned([("what sleeps", "workers", *(f"{name} (ms)" for name in _TAKERS), "desk, all of it (ms)"), *cpu]),
        [
            "The CPU time a job, of the same campaigns. The recorder looks 200 times a second at a runtime that runs, and 1,000 times a second at a "
            "program without phases."
        ],
    )


def _measured(made: Lab, models: int, what: Sequence[str], called: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A campaign as a row of `_LAB`, and the CPU time in ms a job of each of `_TAKERS` and of the desk."""
    output, workers = made.folder / f"{called}.jsonl", len(made.workers)
    before, began, ended = made.cpu_ms(), time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(_campaign(made, output, models, _SLEEP_S, what), check=True, capture_output=True)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    desk_s = after.ru_utime + after.ru_stime - ended.ru_utime - ended.ru_stime
    taken = made.cpu_ms() - before
    runs = store.load([output]).runs
    span_s, ideal_s = _span_s(runs), _busy_s(runs) / workers
    overhead_ms, between_ms = 1000 * (span_s - ideal_s) * workers / len(runs), _idle_ms(runs)
    row = (ideal_s, span_s, span_s / ideal_s, overhead_ms, between_ms, overhead_ms - between_ms, _alone(made, models, what), wall_s)
    return row, (*(taken[name] / len(runs) for name in _TAKERS), 1000 * desk_s / len(runs))


def desk(count: int) -> None:
    """Large campaigns whose runs cost nothing: what the desk takes for them."""
    rows = []
    for runs, each in _AT_THE_DESK:
        for _ in range(count):
            rows.append(_desk(runs, each))
            print(rows[-1], file=sys.stderr)
    _show(
        "fleet-desk",
        aligned([("runs", "comparisons", "file", "peak of the desk", "CPU of the desk a run (ms)", "runs a second"), *rows]),
        [
            f"{_MADE} places make runs up, of 1,000 rows of a timeline each. The scheduler, the desk and all messages are real.",
            f"The whole `memprof run` was measured by memprof, its tables included. Load of the machine: {os.getloadavg()[0]:.0f}.",
        ],
    )


def _desk(runs: int, each: int) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(prefix="memprof-fleet-") as name:
        folder = Path(name)
        models = [folder / f"m{number}.json" for number in range(runs // each)]
        for number, path in enumerate(models):
            path.write_text(json.dumps({"load": [{"allocate": f"m{number}", "bytes": 1 << 20}]}))
        suite, output, measured = folder / "suite.toml", folder / "runs.jsonl", folder / "desk.jsonl"
        suite.write_text(f"models = {json.dumps(list(map(str, models)))}\nruntimes = ['synthetic']\nrepeats = {each}\n")
        env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        log = (folder / "log").open("wb")
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        words = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        scheduler = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)
        address = f"tcp://127.0.0.1:{port}"
        try:
            time.sleep(2)
            places = [sys.executable, str(Path(__file__).with_name("made_places.py")), address, str(_MADE), str(each)]
            workers = subprocess.Popen(places, stdout=log, stderr=log, env=env)
            try:
                made = Lab(folder, address, "")
                _until(lambda: len(made.there()) == _MADE, 60)
                asked = shlex.join(made.memprof("run", "--suite", str(suite), "--on", f"dask:{address}", "-o", str(output)))
                words = ["run", "--cmd", f"desk={asked}", "--repeats", "1", "--timeout", "5h"]
                if subprocess.run(made.memprof(*words, "-o", str(measured)), check=False, stdout=log, stderr=log).returncode:
                    raise SystemExit("\n".join(["the desk failed:", *(folder / "log").read_text().splitlines()[-20:]]))
            finally:
                workers.terminate()
                workers.wait()
        finally:
            scheduler.terminate()
            scheduler.wait()
        (run,) = store.load([measured]).runs
        with output.open("rb") as file:
            lines = sum(1 for _ in file)
        if lines != runs:
            raise SystemExit(f"{lines} runs of {runs} came back")
        (mark,) = run.marks
        return (
            f"{runs:,}",
            f"{runs // each:,}",
            format_bytes(output.stat().st_size),
            format_bytes(metrics.value(run, PEAK, metrics.METRICS["rss_peak_bytes"]) or 0),
            f"{(mark.cpu_ns or 0) / 1e6 / runs:.1f}",
            f"{runs * 1e9 / (mark.end_ns - mark.begin_ns):.0f}",
        )


def with_boards(count: int) -> None:
    """A campaign on workers of which some offer a board."""
    rows = []
    with lab(_WORKERS, _BOARDS) as made:
        for turn in range(count):
            output = made.folder / f"boards{turn}.jsonl"
            began = time.monotonic()
            subprocess.run(_campaign(made, output, _JOBS // _EACH, _SLEEP_S), check=True, capture_output=True)
            wall_s = time.monotonic() - began
            runs = store.load([output]).runs
            for where, of_boards in (("boards", True), ("this machine", False)):
                there = [run for run in runs if run.attempt and run.attempt.place and run.attempt.place.startswith("ssh:") is of_boards]
                right = "yes" if _once_unmixed(runs, _JOBS // _EACH) else "**no**"
                rows.append((where, str(len(there)), f"{_between_ms(there):.0f}", f"{wall_s:.1f}", right))
                print(rows[-1], file=sys.stderr)
    header = ("measured on", "jobs", "between two jobs (ms)", "the whole command (s)", "every run once, none mixed")
    _show(
        "fleet-boards",
        aligned([header, *rows]),
        [
            f"{_WORKERS} workers, {_BOARDS} of them with a board of tests/board: QEMU alone, busybox, the recorder in C. Each job is a "
            f"program that sleeps {_SLEEP_S:g} s. Load of the machine: {os.getloadavg()[0]:.0f}.",
        ],
    )


def _between_ms(runs: Sequence[Run]) -> float:
    """The median time from a job's end to the next one's begin at its place, inside a comparison. Each place has a clock of its own."""
    gaps = []
    for place in {run.attempt.place for run in runs if run.attempt}:
        there = sorted((run for run in runs if run.attempt and run.attempt.place == place), key=lambda run: run.started_ns)
        gaps += [
            (later.started_ns - run.started_ns) / 1e6 - 1000 * _busy_s([run])
            for run, later in itertools.pairwise(there)
            if run.job.model.name == later.job.model.name
        ]
    return statistics.median(gaps) if gaps else float("nan")


def same(count: int) -> None:
    """Models here twice and through a fleet once, in turn."""
    folder = Path(__file__).resolve().parents[2] / "build"
    rows = []
    with lab(1) as made:
        for runtime, ending in (("tflite", "tflite"), ("onnxruntime", "onnx")):
            model = tools.zoo("mobilenet_v2", folder / f"mobilenet_v2.{ending}")
            sides = _in_turn(made, runtime, model, count)
            rows += [(runtime, *row) for name in ("here again", "a fleet") for row in _judged(name, sides["here"], sides[name])]
    _show(
        "fleet-same",
        aligned([("runtime", "beside here", "phase", "metric", "here", "there", "difference", "the gate's verdict"), *rows]),
        [
            f"mobilenet_v2 of the zoo, deterministic, {count} runs a side, in turn; medians. Load of the machine: {os.getloadavg()[0]:.0f}.",
            "Here again: the same beside itself, the noise of this machine.",
        ],
    )


def _in_turn(made: Lab, runtime: str, model: Path, count: int) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {"here": [], "here again": [], "a fleet": []}
    for number in range(count):
        for name in [*runs][number % 3 :] + [*runs][: number % 3]:
            output = made.folder / f"same-{runtime}-{number}-{name.replace(' ', '-')}.jsonl"
            on = ("--on", f"dask:{made.address}") if name == "a fleet" else ()
            words = ("run", str(model), "-r", runtime, "--deterministic", "--runs", "20", "--repeats", "1", *on, "-o", str(output))
            subprocess.run(made.memprof(*words), check=True, capture_output=True)
            runs[name] += store.load([output]).runs
        print(f"same, {runtime}, {number + 1} of {count}", file=sys.stderr)
    return runs


def _judged(name: str, base: Sequence[Run], head: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    for judged in verdicts.judge(*(baseline.entries(side, ("rss_peak_bytes", "time_ns")) for side in (base, head))):
        if judged.base is not None and judged.head is not None and (judged.metric == "rss_peak_bytes" or judged.phase == "EXECUTE"):
            medians = [metrics.amount(judged.metric, row.median) for row in (judged.base, judged.head)]
            change = f"{judged.change:+.2%}" if judged.change is not None else "-"
            yield (name, judged.phase, judged.metric, *medians, change, judged.verdict)


def kills(count: int) -> None:
    """Kills in the middle."""
    rows = []
    for victims, boards in ((("worker", "tender", "desk", "scheduler"), 0), (("board",), 2)):
        with lab(3, boards) as made:
            for victim in victims:
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
    elif victim == "scheduler":
        assert made.scheduler is not None
        made.scheduler.kill()
        made.scheduler.wait()
        made.begin_scheduler(urlsplit(made.address).hostname or "")
        desk.wait(180)
        _until(lambda: len(made.there()) == len(made.workers) and not made.measuring(), 120)
        subprocess.run([*words, "--append"], capture_output=True, check=False, timeout=180)
    elif victim == "board":
        with suppress(SystemExit):  # it may be over
            _until(lambda: made.measuring_board(output), 30)
        name = made.measuring_board(output) or next(iter(made.boards))
        port = made.unplug(name)
        desk.wait(180)
        made.boot(name, _netns(made.workers[name]), port)
    else:
        with suppress(SystemExit):  # it may be over
            _until(made.measuring, 30)
        name = next((name for name, worker in made.workers.items() if _measures(worker.pid)), next(iter(made.workers)))
        worker = made.workers[name]
        if victim == "worker":
            for process in (*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)):
                if "memprof" in _words(process) and "worker_loop" not in _words(process):
                    process.send_signal(signal.SIGKILL)
            worker.wait()
            made.worker(name, _netns(worker))
        else:
            _tenders(worker.pid)[0].kill()
        desk.wait(180)
    runs = store.load([output]).runs
    lines = [store.decode(line, where) for where, line in store.lines(output, lambda _: None)]
    attempts = Counter((run.job.model.name, run.job.repeat, run.attempt.number) for run in lines if run.attempt)
    with suppress(SystemExit):
        _until(lambda: not made.measuring(), 20)
    right = _once_unmixed(runs, 6) and set(attempts.values()) == {1} and not made.measuring()
    _until(lambda: len(made.there()) == len(made.workers), 120)
    return right


def _once_unmixed(runs: Sequence[Run], models: int) -> bool:
    """Whether each run of a campaign is there once, and all of a comparison are of one place."""
    once = Counter((run.job.model.name, run.job.repeat) for run in runs)
    places = {(run.job.model.name, run.attempt.place) for run in runs if run.attempt}
    return len(once) == models * _EACH and set(once.values()) == {1} and len(places) == models


def _show(name: str, table: str, notes: Sequence[str]) -> None:
    print("\n".join([table, *(f"- {note}" for note in notes)]))
    with suppress(LookupError):
        docs.write(name, table, notes)


def main() -> None:
    parts = {"lab": real, "desk": desk, "boards": with_boards, "same": same, "kills": kills}
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
