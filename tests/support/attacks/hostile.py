"""Hostile and broken files for every command that reads them.

Right is a command that refuses with a sentence within a second of processor time, or ends with a result within ten, with 200 MiB for its largest
process, and that has executed nothing which the file names.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import sandbox
from .sandbox import MODEL, Place

MIB = 1 << 20
MOST_S, MOST_TO_REFUSE_S, MOST_BYTES = 10.0, 1.0, 200 * MIB
_REFUSED = (2, 5)
_CODES = (0, 3, *_REFUSED)
_GRAPH = "small.onnx"
# Commands that read runs files; {} is the file.
_READ_RUNS = (
    ("table", "{}"),
    ("table", "{}", "--style", "swap"),
    ("page", "{}", "-o", "out.html"),
    ("trace", "{}", "-o", "out.json"),
    ("compare", "{}", "good.jsonl"),
    ("card", "{}"),
    ("gate", "{}", "--baseline", "good.jsonl"),
    ("baseline", "update", "{}", "-o", "base.json"),
    ("plot", "peaks", "{}", "-o", "out.png"),
    ("plot", "timeline", "{}", "-o", "out.png"),
    ("plot", "growth", "{}", "-o", "out.png"),
    ("merge", "{}", "good.jsonl", "-o", "out.jsonl"),
    ("history", "add", "{}", "--folder", "out.history"),
)
# Commands that read a history: the folder of the file.
_READ_HISTORY = (("show",), ("show", "--json"), ("check",), ("page", "-o", "out.site"), ("prune", "--keep", "1"))
# What a stranger changes in the jobs of a runs file, so that to measure them again executes it.
FOREIGN: tuple[dict[str, Any], ...] = (
    {"env": {"LD_PRELOAD": "/tmp/evil.so\x1b]0;x\x07"}},
    {"python": "./planted.py"},
    {"runtime": "./planted.py"},
    {"knobs": {"preload": "/tmp/evil.so"}},
)
# Commands with a device that never ends in the place of a file.
_READ_DEVICE = (
    ("table", "/dev/zero"),
    ("page", "/dev/zero", "-o", "out.html"),
    ("compare", "/dev/null", "/dev/zero"),
    ("gate", "/dev/zero", "--baseline", "/dev/zero"),
    ("import", "/dev/zero", "-o", "out.jsonl"),
    ("heap", "show", "/dev/zero"),
    ("plan", "show", "/dev/zero"),
    ("plan", "show", _GRAPH, "--order", "/dev/zero"),
    ("plan", "pack", "/dev/zero", "-o", "out.csv"),
    ("explain", "--from", "/dev/zero"),
)
_DEEP = 100_000
# Runs the words behind the first, and writes there what they took. It is small: a process is born with the peak of the one that starts it.
_METER = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
took = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    print(took.ru_utime + took.ru_stime, took.ru_maxrss * 1024, file=file)
sys.exit(code if code >= 0 else 128 - code)
"""
# A runtime that a stranger planted: it leaves a trace if it is only looked at.
_PLANTED = """#!/bin/sh
'''true'
touch executed
exit 0
'''
import pathlib
pathlib.Path(__file__).with_name("executed").touch()
class Runtime:
    formats = (".json",)
    def load(self, model, options): pass
    def prepare(self): pass
    def execute(self): pass
"""


@dataclass(frozen=True)
class Case:
    """A command with a file that is in its place. must_refuse: whether a result would be wrong."""

    kind: str
    words: tuple[str, ...]
    content: bytes
    name: str
    must_refuse: bool = False

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(self.words)}"


@dataclass(frozen=True)
class Tried:
    """What a command took, in seconds of processor time and bytes of its largest process, and all that was wrong with it."""

    seconds: float
    bytes: int
    wrongs: tuple[str, ...]


def prepared(place: Place) -> list[Case]:
    """Put the files that commands read besides into the place; every file at every door that reads it."""
    for words in (
        ("run", MODEL, "-r", "synthetic", "--repeats", "5", "--warmup", "0", "--runs", "1", "-o", "good.jsonl"),
        ("zoo", "founding_example", "--format", "onnx", "-o", _GRAPH),
    ):
        if place.run(*words) != 0:
            raise SystemExit(f"memprof {' '.join(words)}: {place.output('stderr')}")
    planted = place.work / "planted.py"
    planted.write_text(_PLANTED)
    planted.chmod(0o755)
    commit = ("-c", "user.name=it", "-c", "user.email=it@localhost", "commit", "-q", "--allow-empty", "-m", "a commit")
    for arguments in (("init", "-q"), commit):  # history add needs one
        subprocess.run(["git", *arguments], cwd=place.work, check=True)
    if place.run("history", "add", "good.jsonl", "--folder", "history") != 0:
        raise SystemExit(f"memprof history add: {place.output('stderr')}")
    record = json.loads((place.work / "good.jsonl").read_text().splitlines()[0])
    return list(cases(record, next((place.work / "history").iterdir()).read_bytes()))


def tried(place: Place, case: Case) -> Tried:
    """Run a case's command and look at how it ended."""
    file, trace = place.work / case.name, place.work / "executed"
    if case.content:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(case.content)
    took = place.folder / "took"
    took.unlink(missing_ok=True)
    try:
        code = place.run(*case.words, before=(sys.executable, "-I", "-S", "-c", _METER, str(took)))
    except subprocess.TimeoutExpired:
        return Tried(0.0, 0, (f"it does not end within {sandbox.LONGEST_S:.0f} s",))
    seconds, size = map(float, took.read_text().split())
    talk = place.output("stderr")
    wrongs = []
    if code not in _CODES or (case.must_refuse and code != 5):
        wrongs.append(f"exit code {code}: {talk[-300:]!r}")
    elif code in _REFUSED and not (talk.splitlines() or [""])[-1].startswith("memprof: "):
        wrongs.append(f"no sentence: {talk[-300:]!r}")
    if "Traceback" in talk or "\x1b" in talk + place.output("stdout"):
        wrongs.append("a traceback or an escape sequence")
    if seconds > (MOST_TO_REFUSE_S if code in _REFUSED else MOST_S):
        wrongs.append(f"it takes {seconds:.2f} s")
    if size > MOST_BYTES:
        wrongs.append(f"it takes {size / MIB:.0f} MiB")
    if trace.exists():
        wrongs.append("it has executed what the file names")
    for path in (trace, *place.work.glob("out.*"), place.work / "base.json", *([file] if case.content else [])):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return Tried(seconds, int(size), tuple(wrongs))


# -- the files


def cases(record: dict[str, Any], point: bytes) -> Iterator[Case]:
    """Every file at every door that reads it. record: of a good run; point: a file of its history."""
    yield from strangers(record)
    yield from models()
    for name, content in runs_files(record).items():
        for words in _READ_RUNS:
            yield Case(name, tuple(word.format("bad.jsonl") for word in words), content, "bad.jsonl")
    for name, content in histories(point).items():
        for words in _READ_HISTORY:
            yield Case(name, ("history", *words, "--folder", "out.bad"), content, "out.bad/x.json")
    yield from packed()
    yield from profiles()
    yield from texts()
    for words in _READ_DEVICE:
        yield Case("a device without an end", words, b"", "", must_refuse=True)


def strangers(record: dict[str, Any]) -> Iterator[Case]:
    """Runs files of a stranger, for a command that measures again what they name, and for one that goes on with their figures."""
    for changes in FOREIGN:
        content = b"".join(_line({**record, "job": {**record["job"], **changes, "repeat": repeat}}) for repeat in range(1, 6))
        for words in (
            ("gate", "bad.jsonl", "--baseline", "bad.jsonl", "--prove", "-o", "out.jsonl"),
            ("tune", MODEL, "-r", "synthetic", "--try", "ballast=0,1048576", "--time", "1s", "-o", "bad.jsonl", "--append"),
        ):
            yield Case("a stranger's runs file", words, content, "bad.jsonl", must_refuse=words[0] == "gate")


def models() -> Iterator[Case]:
    """Small ONNX models that ask onnx's own code for gigabytes, and one whose data lies elsewhere."""
    import onnx
    from onnx import TensorProto, helper

    for kind, extent in ((TensorProto.INT64, 2147483648), (TensorProto.FLOAT, 50_000_000)):
        node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
        ends = helper.make_tensor_value_info("x", kind, [extent]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [extent])
        content = helper.make_model(helper.make_graph([node], "g", [ends[0]], [ends[1]])).SerializeToString()
        yield Case("a small model of a large tensor", ("plan", "show", "bad.onnx"), content, "bad.onnx")
    weight = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../../../../../../etc/passwd")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    ends = (helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]))
    content = helper.make_model(helper.make_graph([node], "g", [ends[0]], [ends[1]], [weight])).SerializeToString()
    for words in (("plan", "show", "bad.onnx"), ("run", "bad.onnx", "-r", "synthetic", "-o", "out.jsonl")):
        yield Case("a model with data outside its folder", words, content, "bad.onnx", must_refuse=True)


def runs_files(record: dict[str, Any]) -> dict[str, bytes]:
    """Runs files by their kind."""
    line = _line(record)
    packer = zlib.compressobj(9)
    column = base64.b64encode(b"".join(packer.compress(bytes(MIB)) for _ in range(190)) + packer.flush()).decode()
    columns = dict.fromkeys(("t_ns", "rss", "file", "vms"), column)
    long = {**record, "machine": {**record["machine"], "memory_bytes": 1234567890123}}
    names = {**record, "job": {**record["job"], "variant": "=cmd|' /C calc'!A0\x1b]0;title\x07\u202e`@user`"}}
    return {
        "a timeline that unpacks to 760 MiB": _line({**record, "timeline": {**record["timeline"], **columns, "samples": 1 << 40}}),
        "a runs file nested 100,000 deep": b"[" * _DEEP + b"\n",
        "a number of 5,000 digits": _line(long).replace(b"1234567890123", b"9" * 5000),
        "a runs file cut off": line + line[: len(line) // 2],
        "a picture in place of runs": b"\x89PNG\r\n\x1a\n" + os.urandom(1000),
        "a line of 1 MiB without an end": b'{"a":"' + b"x" * MIB,
        "names with escapes and formulas": _line(names),
    }


def histories(point: bytes) -> dict[str, bytes]:
    """Files of a history by their kind."""
    content = json.loads(point)
    (entry,) = content["entries"]
    row = entry["rows"][0]
    odd = "=cmd\x1b]0;title\x07\u202e`@user`<script>"
    named = {**content, "commit": {**content["commit"], "subject": odd, "tags": [odd]}, "entries": [{**entry, "model": odd}]}
    many = {**row, "values": [row["values"][0] + number * 7919 % 100_000 for number in range(100_000)]}
    same = [{**row, "values": row["values"][:1]}] * 12_000
    later = {**content, "commit": {**content["commit"], "time_s": 1 << 60}}
    return {
        "a history of odd names": json.dumps(named).encode(),
        "a history of 100,000 repeats": json.dumps({**content, "entries": [{**entry, "rows": [many]}]}).encode(),
        "a history of 12,000 rows": json.dumps({**content, "entries": [{**entry, "rows": same}]}).encode(),
        "a history without figures": json.dumps({**content, "entries": []}).encode(),
        "a broken history": json.dumps(later).encode(),
        "a history nested 100,000 deep": b'{"memprof_history":1,"commit":' + b"[" * _DEEP,
    }


def packed() -> Iterator[Case]:
    """A file that unpacks to much more than it is: a thousand times the same member."""
    content = gzip.compress(b"desc: x\ncmd: y\ntime_unit: i\n") + gzip.compress(b"#" * MIB) * 1024
    yield Case("a packed profile of 1 GiB", ("heap", "show", "bad.gz"), content, "bad.gz")


def profiles() -> Iterator[Case]:
    """Heap profiles of pprof, jemalloc and torch that claim more than they hold, or ask for what is no value."""
    import pickle

    sample_type = b"\x0a\x04\x08\x01\x10\x02"
    texts = b"".join(b"\x32" + bytes([len(text)]) + text for text in (b"", b"inuse_space", b"bytes"))
    cycle: list[Any] = []
    cycle.append(cycle)
    shared: list[Any] = []
    for _ in range(100):  # 2 ** 100 values, were they walked through
        shared = [shared, shared]
    of_gzip = gzip.compress(sample_type + texts) + gzip.compress(b"\x12\x00" * MIB) * 512
    for name, content in {
        "a packed profile of pprof of 1 GiB": of_gzip,
        "a profile of pprof with a message of 2^60 bytes": sample_type + b"\x12" + b"\xff" * 8 + b"\x0f",
        "a profile of pprof with 2^62 bytes a sample": sample_type + texts + (b"\x12\x0a\x10" + b"\xff" * 8 + b"\x3f") * 9,
        "a profile of pprof with a stack of a million": sample_type + texts + b"\x12\xc4\x84\x3d\x0a\xc0\x84\x3d" + b"\x01" * 1_000_000,
        "a heap profile of 2^60 blocks": b"heap_v2/524288\n  t*: 1152921504606846976: 1 [0: 0]\n@ 0x1\n  t*: 1152921504606846976: 1 [0: 0]\n",
        "a heap profile of 30,000 stacks": b"heap_v2/1\n" + b"".join(b"@ 0x%x\n t*: 1: 1 [0: 0]\n" % place for place in range(1, 30_001)),
        "a pickle that calls": b"\x80\x04cos\nsystem\n\x8c\x0ctouch executed\x85R.",
        "a pickle that calls by its stack": b"\x80\x04\x95\x30\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93\x8c\x0ctouch executed\x85R.",
        "a pickle of a memo of 2^32": b"\x80\x02]r\xff\xff\xff\xff.",
        "a pickle of a text of 2^60 bytes": b"\x80\x04\x8d" + (1 << 60).to_bytes(8, "little"),
        "a pickle that holds itself": pickle.dumps({"segments": cycle, "device_traces": cycle}),
        "a pickle of doubled lists": pickle.dumps({"segments": shared, "device_traces": []}),
        "a pickle nested 200,000 deep": b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".",
        "a pickle of tuples nested 200,000 deep as a key": b"\x80\x04})" + b"\x85" * 200_000 + b"Ns.",
        "a pickle of a million marks": b"\x80\x04" + b"(" * MIB,
    }.items():
        yield Case(name, ("heap", "show", "bad.profile"), content, "bad.profile")


def texts() -> Iterator[Case]:
    """Suites, budgets, logs and offset problems."""
    deep = b"a = " + b"[" * _DEEP
    number = b"peak = " + b"9" * 5000
    for content in (deep, number, b"[a]\n" * 3000, b"\xff\xfe" * 100):
        yield Case(
            "a broken suite or budget", ("gate", "--run", "bad.toml", "--budgets", "bad.toml", "-o", "out.jsonl"), content, "bad.toml"
        )
        yield Case("a broken suite or budget", ("gate", "good.jsonl", "--budgets", "bad.toml"), content, "bad.toml")
    for content in (b"[" * _DEEP, b"9" * 5000, b"x" * MIB, b"\n" * MIB):
        yield Case("a broken log", ("import", "bad.log", "-o", "out.jsonl"), content, "bad.log")
        yield Case("a broken baseline", ("gate", "good.jsonl", "--baseline", "bad.json"), content, "bad.json")
        yield Case("a broken offset problem", ("plan", "pack", "bad.csv", "-o", "out.csv"), b"id,lower,upper,size\n" + content, "bad.csv")
    for name in ("/dev/null", ".", "missing"):
        yield Case("no file of runs", ("table", name), b"", name, must_refuse=True)


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"
