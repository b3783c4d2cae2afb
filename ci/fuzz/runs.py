#!/usr/bin/env python3
"""`make fuzz`: throws damaged and invented runs files, timelines, baselines, budgets, suites and lists of what is acknowledged at the commands
that read them until its time is over, and says how many it tried.

Each kind is fuzzed in a process of its own, with an address space of 3 GiB. hypothesis puts odd values into real records, and cuts and
doubles pieces of real files. An input fails that ends in anything but a result or a MemprofError of one line, that takes more than 5 s, or that
lifts the process more than 1 GiB. A suite is read and no more: with one that was made up, a command would measure. What failed is kept in
`fuzz-failures/`, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import copy
import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import made

FAILURES = Path("fuzz-failures").absolute()
_SLOWEST_S = 5.0
_MOST_BYTES = 1 << 30
_ADDRESSES = 3 << 30

_STEADY = (0, 0.1, 0.2, 0.3, 0.4)
_SUITE = b"""models = ["a.onnx"]
repeats = 5
threads = [1, 2]
interval = "1ms"
[set]
arena = "off"
[[variant]]
name = "x"
runtime = "onnxruntime"
set = { mmap = true }
[[variant]]
cmd = "./app --model {model}"
cwd = "build"
[shape]
x = [1, 3]
[phase]
load = "main"
[build]
command = "true"
"""
_BUDGETS = b"""peak = "400 MiB"
[[budget]]
model = "net*"
variant = "a"
phase = "PREPARE"
anon_end_bytes = "300 MiB"
time_ns = "3 s"
minor_faults = 30
"""
_ACKNOWLEDGED = b"""[[acknowledged]]
model = "net*"
variant = "a"
phase = "PEAK"
metric = "rss_peak_bytes"
reason = "a larger cache"
until = 2027-01-31
"""


def command(*words: str) -> None:
    """A command of memprof in this process; what it says goes nowhere. Raises what is no MemprofError and no wrong usage."""
    import click

    from memprof.cli import group
    from memprof.errors import MemprofError

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            group.main(list(words), prog_name="memprof", standalone_mode=False)
    except MemprofError as error:
        if "\n" in str(error):
            raise AssertionError(f"a sentence of several lines: {error}") from error
    except (click.ClickException, click.exceptions.Exit):
        pass


def runs(data: bytes) -> None:
    """A runs file, through two of the commands that read one: which, its content says, so that a failure can be repeated."""
    Path("runs.jsonl").write_bytes(data)
    doors = (
        ["table", "runs.jsonl", "--json"],
        ["table", "runs.jsonl", "--style", "swap"],
        ["compare", "good.jsonl", "runs.jsonl"],
        ["compare", "runs.jsonl", "runs.jsonl", "--json"],
        [
            "gate",
            "runs.jsonl",
            "--baseline",
            "good.jsonl",
            "--budgets",
            "good.toml",
            "--also",
            "junit=gate.xml",
            "--also",
            "github=gate.txt",
        ],
        ["gate", "good.jsonl", "--baseline", "runs.jsonl", "--json"],
        ["baseline", "update", "runs.jsonl", "-o", "new.json"],
        ["trace", "runs.jsonl", "-o", "trace.json"],
        ["page", "runs.jsonl", "-o", "page.html"],
    )
    first = zlib.crc32(data) % len(doors)
    for words in (doors[first], doors[first - 3]):
        for name in ("new.json", "trace.json", "page.html"):
            Path(name).unlink(missing_ok=True)
        command(*words)


def baselines(data: bytes) -> None:
    """A baseline."""
    Path("base.json").write_bytes(data)
    command("gate", "good.jsonl", "--baseline", "base.json")
    command("gate", "good.jsonl", "--baseline", "base.json", "--json", "--strict")
    command("baseline", "update", "good.jsonl", "-o", "base.json")


def budgets(data: bytes) -> None:
    """A file of budgets."""
    Path("budgets.toml").write_bytes(data)
    command("gate", "good.jsonl", "--budgets", "budgets.toml")


def acknowledged(data: bytes) -> None:
    """A list of regressions that are accepted."""
    Path("acknowledged.toml").write_bytes(data)
    command("gate", "worse.jsonl", "--baseline", "good.jsonl", "--acknowledged", "acknowledged.toml")


def suites(data: bytes) -> None:
    """A suite, read."""
    from memprof.measuring import suite

    Path("suite.toml").write_bytes(data)
    suite.read(Path("suite.toml"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "runs": runs,
    "timelines": runs,
    "baselines": baselines,
    "budgets": budgets,
    "acknowledged": acknowledged,
    "suites": suites,
}


def prepare() -> dict[str, list[bytes]]:
    """Writes the good files into the working folder; seeds by target."""
    from memprof.judge import baseline
    from memprof.runs import store

    good = b"".join(store.encode(run) for run in made.runs())
    Path("good.jsonl").write_bytes(good)
    Path("worse.jsonl").write_bytes(b"".join(store.encode(run) for run in made.runs(extra_mib=[10 + extra for extra in _STEADY])))
    Path("good.toml").write_bytes(b'peak = "400 MiB"\n')
    baseline.update(Path("good.json"), baseline.entries(made.runs()))
    failed = store.encode(made.run(outcome=made.Outcome("signal", "PREPARE", signal="SIGSEGV")))
    varied = [*made.runs(), *made.runs("b", threads=2, knobs={"arena": "off"}, env={"A": "b"}, shapes={"x": (1, 2)})]
    several = b"".join(store.encode(run) for run in varied) + failed
    return {
        "runs": [good, several],
        "timelines": [good],
        "baselines": [Path("good.json").read_bytes()],
        "budgets": [_BUDGETS],
        "acknowledged": [_ACKNOWLEDGED],
        "suites": [_SUITE],
    }


class _Tried:
    """Runs one input after another and counts them."""

    def __init__(self, name: str) -> None:
        self.target, self.name = TARGETS[name], name
        self.count = self.failed = 0
        self.reasons: set[str] = set()

    def __call__(self, data: bytes) -> None:
        from memprof.errors import MemprofError

        self.count += 1
        begin = time.process_time()
        try:
            self.target(data)
        except MemprofError:
            pass
        except (Exception, RecursionError) as error:
            self._fail(data, error)
        if time.process_time() - begin > _SLOWEST_S:
            self._fail(data, TimeoutError(f"took {time.process_time() - begin:.1f} s"))
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > _MOST_BYTES:
            self._fail(data, MemoryError("more than 1 GiB of memory"))
            raise SystemExit(1)

    def _fail(self, data: bytes, error: BaseException) -> None:
        self.failed += 1
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
        if (reason := f"{type(error).__name__} at {where}") in self.reasons:
            return
        self.reasons.add(reason)
        FAILURES.mkdir(exist_ok=True)
        path = FAILURES / f"{self.name}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"{self.name}: {reason}: {str(error)[:150]}; kept as {path}", file=sys.stderr, flush=True)


_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 10**400, 0.5, -0.0, 1e99, 1e308, -1e308, 5e-324,
    "", "a", "-", "\x00", "\x1b]0;x\x07", "é\u202e", "\ud800", "|`<b>", "9" * 5000, "a" * 100_000, "PEAK", "STARTUP", "nan", "1e999",
    [], {}, [[]], [0] * 50, {"a": "b"}, ["a"], [1, 2, 3],
]  # fmt: skip


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value: what holds it, and its key there."""
    found: list[tuple[Any, Any]] = []
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in pairs:
        found += [(content, key), *_places(value)]
    return found


def _changed(line: bytes, draw: Any) -> bytes:
    """A line of JSON with some of its values odd, missing or those of another place."""
    content = json.loads(line)
    for _ in range(draw.randint(1, 4)):
        places = _places(content)
        holder, key = draw.choice(places)
        if draw.random() < 0.1 and isinstance(holder, dict):
            del holder[key]
        elif draw.random() < 0.2:
            other, from_key = draw.choice(places)
            holder[key] = copy.deepcopy(other[from_key])
        else:
            holder[key] = draw.choice(_ODD)
    return json.dumps(content).encode()


@cache
def _constant(step: int, size: int) -> bytes:
    return zlib.compress((array("q", [step]) * size).tobytes())


def _odd_column(draw: Any) -> str:
    size = draw.choice([0, 1, 5, 5, 5, 100, 20_000, 20_001, 1 << 21])
    data = _constant(draw.choice([0, 1, -1, 4096, 10**9, 1 << 62, -(1 << 62)]), size)
    if size == 5:
        steps = [draw.choice([0, 1, -5, 4096, 10**9, 10**8, (1 << 63) - 1, -(1 << 63)]) for _ in range(5)]
        data = zlib.compress(array("q", steps).tobytes())
    if draw.random() < 0.2:
        data = data[: draw.randint(0, len(data))] + draw.randbytes(draw.randint(0, 5))
    return base64.b64encode(data).decode() + draw.choice(["", "", "", "=", "\n", "é"])


def _timeline(line: bytes, draw: Any) -> bytes:
    content = json.loads(line)
    same = _odd_column(draw)
    for name in ("t_ns", "rss", "file", "vms"):
        if draw.random() < 0.7:
            content["timeline"][name] = same if draw.random() < 0.6 else _odd_column(draw)
    for name in ("samples", "rss_min_bytes", "rss_mean_bytes", "rss_max_bytes"):
        if draw.random() < 0.6:
            content["timeline"][name] = draw.choice([0, 1, 5, -5, 20_000, 1 << 24, (1 << 63) - 1])
    for mark in content["marks"]:
        if draw.random() < 0.3:
            mark[draw.choice(["begin_ns", "end_ns"])] = draw.choice([0, -1, 10**9, (1 << 63) - 1])
    return json.dumps(content).encode()


def _damaged(name: str, seed: bytes, changes: list[tuple[float, int, bytes]], draw: Any) -> bytes:
    if name == "timelines" or (name == "runs" and draw.random() < 0.7):
        lines = seed.splitlines()
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(lines))
            lines[place] = (_timeline if name == "timelines" else _changed)(lines[place], draw)
        return b"\n".join(lines) + b"\n"
    if name == "baselines" and draw.random() < 0.7:
        return _changed(seed, draw)
    for place, length, new in changes:
        at = int(place * len(seed))
        seed = seed[:at] + new + seed[at + length :]
    return seed


def fuzz(name: str, seconds: float) -> _Tried:
    """Try inputs of one kind for so long."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    seeds = prepare()[name]
    tried = _Tried(name)
    odd = st.sampled_from(
        [b"", b"0", b"-1", b"9223372036854775808", b"9" * 5000, b"[" * 5000, b'{"a":' * 5000, b"[a]\n" * 3000, b"a." * 5000, b"\n", b"\x00",
         b"\xff\xfe", b'"', b"=", b"1e999", b"nan", b"inf", b"2026-02-30", b"true", b"'''"]
    )  # fmt: skip
    change = st.tuples(st.floats(0, 1), st.integers(0, 60), odd | st.binary(max_size=12))
    end = time.monotonic() + seconds

    @settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.sampled_from(seeds), st.lists(change, min_size=1, max_size=4), st.randoms(use_true_random=True))
    def some(seed: bytes, changes: list[tuple[float, int, bytes]], draw: Any) -> None:
        if time.monotonic() < end:
            tried(_damaged(name, seed, changes, draw))

    for seed in seeds:
        tried(seed)
    while time.monotonic() < end:
        some()
    return tried


def main() -> None:
    """Fuzz each kind in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description="Fuzz what memprof's judgement reads.")
    parser.add_argument("names", nargs="*", choices=[*TARGETS, []], metavar="KIND", help=f"of {', '.join(TARGETS)}.  [default: all]")
    parser.add_argument("--seconds", type=float, default=30, help="for each kind.  [default: 30]")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.one:
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        with tempfile.TemporaryDirectory(prefix="memprof-fuzz-") as folder:
            os.chdir(folder)
            tried = fuzz(words.names[0], words.seconds)
        print(json.dumps({"kind": tried.name, "inputs": tried.count, "failed": tried.failed}), flush=True)
        sys.exit(1 if tried.failed else 0)
    rows, bad = [], False
    for name in words.names or TARGETS:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).absolute()), name, "--one", "--seconds", str(words.seconds)], capture_output=True, text=True
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        sys.stderr.write("".join(line + "\n" for line in done.stderr.splitlines() if line.startswith(f"{name}:")))
        if not lines or done.returncode not in (0, 1):
            sys.stderr.write(f"{name}: ended with {done.returncode}\n{done.stderr[-1500:]}\n")
        bad = bad or not lines or done.returncode != 0
        rows += [json.loads(line) for line in lines[-1:]]
    print("| kind | inputs | failed |\n|---|---:|---:|")
    for row in rows:
        print(f"| {row['kind']} | {row['inputs']:,} | {row['failed']} |")
    print(f"\n{sum(row['inputs'] for row in rows):,} inputs tried, {sum(row['failed'] for row in rows)} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
