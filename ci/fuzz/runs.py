#!/usr/bin/env python3
"""`make fuzz`: damaged and invented runs files, timelines, baselines, budgets, suites, histories and lists of accepted
regressions, for what reads them; see harness.py.

Odd values are put into real records, and pieces of real files are cut out and doubled. A suite is read and no more: with an invented suite a
command would measure.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import io
import json
import random
import shutil
import subprocess
import sys
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import harness

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support import sample_runs

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


def commands(*lines: Sequence[str]) -> None:
    """Commands of memprof in this process, their output dropped. Raises the first MemprofError once all were tried, any other error at once."""
    from memprof.base.errors import MemprofError

    refusals: list[MemprofError] = []
    for words in lines:
        try:
            _command(words)
        except MemprofError as error:
            if "\n" in str(error):
                raise
            refusals.append(error)
    if refusals:
        raise refusals[0]


def _command(words: Sequence[str]) -> None:
    import click

    from memprof.doors.cli import group

    silent = io.StringIO()
    with (
        contextlib.suppress(click.ClickException, click.exceptions.Exit),
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
    ):
        group.main(list(words), prog_name="memprof", standalone_mode=False)


def runs(data: bytes) -> None:
    """A runs file, through two of the commands that read such a file. Its content says which, so that a failure can be repeated."""
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
        ["merge", "runs.jsonl", "good.jsonl", "-o", "new.jsonl"],
        ["plot", "growth", "runs.jsonl", "-o", "new.svg"],
        ["history", "add", "runs.jsonl", "--folder", "new-history"],
    )
    first = zlib.crc32(data) % len(doors)
    for name in ("new.json", "trace.json", "page.html", "new.jsonl", "new.svg"):
        Path(name).unlink(missing_ok=True)
    shutil.rmtree("new-history", ignore_errors=True)
    commands(doors[first], doors[first - 3])


def baselines(data: bytes) -> None:
    """A baseline."""
    Path("base.json").write_bytes(data)
    gate = ["gate", "good.jsonl", "--baseline", "base.json"]
    commands(gate, [*gate, "--json", "--strict"], ["baseline", "update", "good.jsonl", "-o", "base.json"])


def budgets(data: bytes) -> None:
    """A file of budgets."""
    Path("budgets.toml").write_bytes(data)
    commands(["gate", "good.jsonl", "--budgets", "budgets.toml"])


def acknowledged(data: bytes) -> None:
    """A list of regressions that are accepted."""
    Path("acknowledged.toml").write_bytes(data)
    commands(["gate", "worse.jsonl", "--baseline", "good.jsonl", "--acknowledged", "acknowledged.toml"])


def histories(data: bytes) -> None:
    """A file of a history, beside a good one, through one of the commands that read it; see `runs`."""
    Path("history/x.json").write_bytes(data)
    doors = (["show"], ["show", "--json"], ["check"], ["page", "-o", "site"])
    commands(["history", *doors[zlib.crc32(data) % len(doors)], "--folder", "history"])


def suites(data: bytes) -> None:
    """A suite, read."""
    from memprof.subjects import suite

    Path("suite.toml").write_bytes(data)
    suite.read(Path("suite.toml"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "runs": runs,
    "timelines": runs,
    "baselines": baselines,
    "budgets": budgets,
    "acknowledged": acknowledged,
    "suites": suites,
    "histories": histories,
}


def seeds(name: str) -> list[bytes]:
    """Small real inputs. The good files that the commands read beside them are written into the working folder."""
    from memprof.records import store
    from memprof.verdicts import baseline

    good = b"".join(store.encode(run) for run in sample_runs.runs())
    Path("good.jsonl").write_bytes(good)
    Path("worse.jsonl").write_bytes(b"".join(store.encode(run) for run in sample_runs.runs(extra_mib=[10 + extra for extra in _STEADY])))
    Path("good.toml").write_bytes(b'peak = "400 MiB"\n')
    baseline.update(Path("good.json"), baseline.entries(sample_runs.runs()))
    failed = store.encode(sample_runs.run(outcome=sample_runs.Outcome("signal", "PREPARE", signal="SIGSEGV")))
    varied = [*sample_runs.runs(), *sample_runs.runs("b", threads=2, knobs={"arena": "off"}, env={"A": "b"}, shapes={"x": (1, 2)})]
    several = b"".join(store.encode(run) for run in varied) + failed
    by_name = {
        "runs": [good, several],
        "timelines": [good],
        "baselines": [Path("good.json").read_bytes()],
        "budgets": [_BUDGETS],
        "acknowledged": [_ACKNOWLEDGED],
        "suites": [_SUITE],
        "histories": _history(),
    }
    return by_name[name]


def _history() -> list[bytes]:
    """A point, beside which `history/good.json` is one of an earlier commit. The working folder is a repository from here on."""
    from memprof.verdicts import baseline
    from memprof.versions import series
    from memprof.versions.commits import Commit

    commit = ("-c", "user.name=it", "-c", "user.email=it@localhost", "commit", "-q", "--allow-empty", "-m", "a commit")
    for words in (("init", "-q"), commit):
        subprocess.run(["git", *words], check=True)
    Path("history").mkdir(exist_ok=True)
    Path("history/good.json").write_bytes(series.encoded(series.of(Commit("a" * 40, 7), baseline.entries(sample_runs.runs())))[1])
    later = baseline.entries(sample_runs.runs(extra_mib=[10 + extra for extra in _STEADY]))
    return [series.encoded(series.of(Commit("b" * 40, 8, ("a" * 40,), "subject", ("v1",)), later))[1]]


_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64, 10**400, 0.5, -0.0, 1e99, 1e308, -1e308, 5e-324,
    "", "a", "-", "\x00", "\x1b]0;x\x07", "é\u202e", "\ud800", "|`<b>", "9" * 5000, "a" * 100_000, "PEAK", "STARTUP", "nan", "1e999",
    [], {}, [[]], [0] * 50, {"a": "b"}, ["a"], [1, 2, 3],
]  # fmt: skip


def _places(content: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value: its holder, and its key there."""
    places: list[tuple[Any, Any]] = []
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in pairs:
        places += [(content, key), *_places(value)]
    return places


def _changed(line: bytes, draw: random.Random) -> bytes:
    """A line of JSON with some of its values odd, missing or those of another place."""
    content = json.loads(line)
    for _ in range(draw.randint(1, 4)):
        places = _places(content)
        if not places:  # a short message has lost all its fields
            break
        holder, key = draw.choice(places)
        if draw.random() < 0.1 and isinstance(holder, dict):
            del holder[key]
        elif draw.random() < 0.2:
            other, from_key = draw.choice(places)
            holder[key] = copy.deepcopy(other[from_key])
        else:
            holder[key] = copy.deepcopy(draw.choice(_ODD))  # a list may be changed next, and must not come to hold itself
    return json.dumps(content).encode()


@cache
def _constant(step: int, size: int) -> bytes:
    return zlib.compress((array("q", [step]) * size).tobytes())


def _odd_column(draw: random.Random) -> str:
    size = draw.choice([0, 1, 5, 5, 5, 100, 20_000, 20_001, 1 << 21])
    data = _constant(draw.choice([0, 1, -1, 4096, 10**9, 1 << 62, -(1 << 62)]), size)
    if size == 5:
        steps = [draw.choice([0, 1, -5, 4096, 10**9, 10**8, (1 << 63) - 1, -(1 << 63)]) for _ in range(5)]
        data = zlib.compress(array("q", steps).tobytes())
    if draw.random() < 0.2:
        data = data[: draw.randint(0, len(data))] + draw.randbytes(draw.randint(0, 5))
    return base64.b64encode(data).decode() + draw.choice(["", "", "", "=", "\n", "é"])


def _timeline(line: bytes, draw: random.Random) -> bytes:
    content = json.loads(line)
    shared = _odd_column(draw)
    for name in ("t_ns", "rss", "file", "vms"):
        if draw.random() < 0.7:
            content["timeline"][name] = shared if draw.random() < 0.6 else _odd_column(draw)
    for name in ("samples", "rss_min_bytes", "rss_mean_bytes", "rss_max_bytes"):
        if draw.random() < 0.6:
            content["timeline"][name] = draw.choice([0, 1, 5, -5, 20_000, 1 << 24, (1 << 63) - 1])
    for mark in content["marks"]:
        if draw.random() < 0.3:
            mark[draw.choice(["begin_ns", "end_ns"])] = draw.choice([0, -1, 10**9, (1 << 63) - 1])
    return json.dumps(content).encode()


def damage(name: str, seed: bytes, draw: random.Random) -> bytes | None:
    """Odd values and timelines in real records; None for the formats that are not JSON, and now and then for the others."""
    if name == "timelines" or (name == "runs" and draw.random() < 0.7):
        lines = seed.splitlines()
        for _ in range(draw.randint(1, 3)):
            place = draw.randrange(len(lines))
            lines[place] = (_timeline if name == "timelines" else _changed)(lines[place], draw)
        return b"\n".join(lines) + b"\n"
    if name in ("baselines", "histories") and draw.random() < 0.7:
        return _changed(seed, draw)
    return None


if __name__ == "__main__":
    # All that the commands import: the limit on memory is set after that.
    modules = [
        f"memprof.{name}"
        for name in ("doors.cli.gate", "doors.cli.table", "verdicts.compare", "reports.page", "reports.trace", "subjects.suite")
    ]
    harness.main(
        harness.Readers(TARGETS, seeds, [*modules, "pandas"], Path(__file__), damage, guided=False),
        "Fuzz the files that memprof's judgement reads.",
    )
