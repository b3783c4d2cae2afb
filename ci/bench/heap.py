"""Profiles read to the full model, beside msparser and ms_print on the same files: two real massif files, and 100 MB and 1 GB made by repeating.

Each reading is a separate process, timed inside from the open file to the last node. ms_print, which also prints, is timed from outside. A
repetition has other sizes, so that no tree and next to no line is that of another. Memory is the growth of
the process's high-water mark.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from memprof.base.units import format_bytes

from . import tools
from .table import Row, Section, Setting, middle

REAL = Path(__file__).resolve().parents[2] / "tests" / "data" / "heap" / "massif_onnxruntime_inception_v3.gz"
_FASTER_THAN_MSPARSER = 5.0
_MOST_BYTES = 300 << 20

_PYTHON = "of a Python program"
_PROGRAM = "import json, re, zlib; data = [bytearray(1 << 12) for _ in range(2000)]; text = json.dumps([list(range(99))] * 999); del data"

_MEMPROF = """
import json, resource, sys, time
import memprof.heap.files, memprof.heap.phases
from memprof.heap import load
path = sys.argv[1]
begin = time.perf_counter()
profile = load(path)
seconds = time.perf_counter() - begin
nodes = sum(len(snapshot.tree.bytes) for snapshot in profile.snapshots if snapshot.tree is not None)
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, nodes]))
"""
_MSPARSER = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import msparser
path = sys.argv[1]
begin = time.perf_counter()
data = msparser.parse_file(path)
seconds = time.perf_counter() - begin
def count(tree):
    return 1 + sum(count(child) for child in tree["children"])
nodes = sum(count(snapshot["heap_tree"]) for snapshot in data["snapshots"] if snapshot["heap_tree"])
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, nodes]))
"""


def measure(setting: Setting) -> Section:
    """The real file and 100 MB beside the peers, interleaved; 1 GB with memprof alone, whose peers would need tens of GB or many minutes."""
    plans = [
        ("of onnxruntime", 0, setting.count(15, 2), True),
        (_PYTHON, 0, setting.count(15, 2), True),
        ("100 MB", 100 * 10**6, setting.count(3, 1), True),
        ("1 GB", 10**9, 1, False),
    ]
    if setting.quick:
        plans = [plans[0], ("10 MB", 10**7, 1, True)]
    rows, raw = [], {}
    for name, size, count, peers in plans:
        path = setting.folder / f"{name.replace(' ', '')}.massif"
        if name == _PYTHON:
            of_python(setting, path)
        else:
            make(path, size)
        setting.say(f"heap, {name}: {format_bytes(path.stat().st_size)}")
        readings = _read(path, count, peers)
        raw[name] = readings
        rows += _rows(name, path.stat().st_size, readings)
        path.unlink()
    notes = (
        "Heap: seconds to read a massif file to its full model, medians of interleaved processes; in the place of mprof stands msparser, in that "
        "of psrecord ms_print. Both models were counted to have the same number of nodes. Memory: the reading process's peak RSS.",
    )
    return Section(tuple(rows), notes, raw, ("msparser", "ms_print"))


def of_python(setting: Setting, path: Path) -> None:
    """massif's file of a Python program, with a tree in every other snapshot: about 5 MB."""
    setting.say("massif of a Python program")
    options = ["--detailed-freq=2", "--threshold=0.1", f"--massif-out-file={path}"]
    subprocess.run(["valgrind", "--tool=massif", *options, sys.executable, "-c", _PROGRAM], check=True, stderr=subprocess.DEVNULL)


def make(path: Path, size: int) -> None:
    """Write a massif file of at least so many bytes: the real one, its trees repeated with other sizes."""
    with gzip.open(REAL, "rt") as file:
        head, _, body = file.read().partition("#-----------")
    with path.open("w") as out:
        out.write(head)
        number = 0
        while number == 0 or out.tell() < size:
            out.write("#-----------" + (body if number == 0 else _again(body, number)))
            number += 1


def _again(body: str, number: int) -> str:
    """The snapshots with other numbers, other sizes in their trees, and without a second peak, which ms_print refuses."""
    body = body.replace("mem_heap_B=", "mem_heap_B=99999")  # ms_print wants no place to hold more than all
    body = body.replace(": 1", f": {number}1").replace(": 2", f": {number}2").replace("heap_tree=peak", "heap_tree=detailed")
    return re.sub(r"^snapshot=(\d+)", lambda match: f"snapshot={int(match[1]) + 51 * number}", body, flags=re.MULTILINE)


def _read(path: Path, count: int, peers: bool) -> dict[str, list[Any]]:
    programs = {"memprof": _MEMPROF} | ({"msparser": _MSPARSER} if peers else {})
    readings: dict[str, list[Any]] = {name: [] for name in programs}
    printer = shutil.which("ms_print") if peers else None
    for _ in range(count):
        for name, program in programs.items():
            done = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, check=True)
            readings[name].append(json.loads(done.stdout))
        if printer:
            readings.setdefault("ms_print", []).append([tools.wall_ns([printer, str(path)]) / 1e9, None, None])
    counts = {row[2] for rows in readings.values() for row in rows if row[2] is not None}
    assert len(counts) == 1, f"not the same trees: {counts}"
    return readings


def _rows(name: str, size: int, readings: dict[str, list[Any]]) -> list[Row]:
    seconds = {tool: middle([row[0] for row in rows])[0] for tool, rows in readings.items()}
    own = seconds["memprof"]
    shown = {tool: f"{value:.3g} s" for tool, value in seconds.items()}
    peers = [f"{tool} {seconds[tool] / own:.1f}x" for tool in ("msparser", "ms_print") if tool in seconds]
    met = None
    if "msparser" in seconds:
        met = seconds["msparser"] >= _FASTER_THAN_MSPARSER * own and seconds.get("ms_print", own + 1) > own
    subject = f"read massif, {name} ({format_bytes(size)})"
    target = "5x msparser, beat ms_print" if peers else ""
    rows = [
        Row(
            subject,
            target,
            shown["memprof"],
            shown.get("msparser", "-"),
            shown.get("ms_print", "-"),
            ratio=", ".join(peers) or "-",
            met=met,
        )
    ]
    memory = max(row[1] for row in readings["memprof"])
    peer = f"{format_bytes(max(row[1] for row in readings['msparser']))}" if "msparser" in readings else "-"
    limit = _MOST_BYTES if size >= 9 * 10**8 else None
    rows.append(
        Row(f"memory for it, {name}", "<= 300 MiB" if limit else "", format_bytes(memory), peer, met=memory <= limit if limit else None)
    )
    return rows
