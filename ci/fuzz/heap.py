#!/usr/bin/env python3
"""`make fuzz`: throws damaged and invented profiles at each parser of memprof.heap until its time is over, and says how many it tried.

Each parser is fuzzed in a process of its own, by atheris (coverage-guided) where it is installed and by hypothesis (property-based) in any
case, starting from small real profiles. An input fails that ends in anything but a HeapProfile or a MemprofError of one line, that takes more
than 5 s, or that lifts the process above 1 GiB. What failed is kept in `fuzz-failures/`, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "tests" / "data" / "heap"
FAILURES = Path("fuzz-failures")
_SLOWEST_S = 5.0
_MOST_BYTES = 1 << 30
_LONGEST_INPUT = 20_000


def massif(data: bytes) -> None:
    """A massif file."""
    from memprof.heap import export
    from memprof.heap import massif as parser

    profile = parser.read(io.BytesIO(data), "input")
    again = parser.read(io.BytesIO("".join(export.massif(profile)).encode("utf-8", "replace")), "written")
    assert [each.total_bytes for each in again.snapshots] == [each.total_bytes for each in profile.snapshots]
    _look(profile)


def heaptrack(data: bytes) -> None:
    """A heaptrack recording, not compressed."""
    from memprof.heap import heaptrack as parser

    _look(parser.read(_file(data)))


def memray(data: bytes) -> None:
    """What memray_dump.py writes: the capture itself is read by memray, in a process of its own."""
    from memprof.heap import memray as parser

    _look(parser._profile(Path("input"), io.BytesIO(data)))


def phases(data: bytes) -> None:
    """phases.json beside a profile."""
    from memprof.heap import load

    profile = _file(b"desc: d\ncmd: c\ntime_unit: ms\nsnapshot=0\ntime=1\nmem_heap_B=1\nheap_tree=empty\n")
    (profile.parent / "phases.json").write_bytes(data)
    load(profile)


def container(data: bytes) -> None:
    """Any file at all, told by its content."""
    from memprof.heap import load

    if data[:6] not in (b"memray",):
        _look(load(_file(data)))


TARGETS: dict[str, Callable[[bytes], None]] = {each.__name__: each for each in (massif, heaptrack, memray, phases, container)}


def _look(profile: object) -> None:
    """What views do with every profile."""
    from memprof.heap.profile import HeapProfile
    from memprof.heap.shape import shape, sums

    assert isinstance(profile, HeapProfile)
    found = profile.peak_tree
    if found is not None and found[0].tree is not None and len(found[0].tree) < 20_000:
        tree = found[0].tree
        sums(profile, tree)
        shape(profile, tree)
        tree.inverted(50_000)


def _file(data: bytes) -> Path:
    path = Path(tempfile.gettempdir()) / f"memprof-fuzz-{os.getpid()}" / "input"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def seeds(name: str) -> list[bytes]:
    """Small real inputs."""
    if name == "massif":
        return [_head(gzip.decompress(path.read_bytes())) for path in sorted(DATA.glob("massif_*.gz"))]
    if name == "heaptrack":
        return [_head(gzip.decompress(path.read_bytes())) for path in sorted(DATA.glob("heaptrack_*.gz"))]
    if name == "memray":
        lines = gzip.decompress(next(DATA.glob("memray_*.gz")).read_bytes()).splitlines(True)
        small = {"kind": "snapshot", "time_ms": 5, "bytes": 300, "as": "peak", "stacks": [[[0, 1], 200, 2], [[1, -1], 100, 1]]}
        return [b"".join([*lines[:3], json.dumps(small).encode() + b"\n"])]
    if name == "phases":
        phase = {"name": "A", "begin_ns": 5, "end_ns": 9}
        record = {
            "memprof_heap": 1,
            "tool": "massif",
            "files": ["input"],
            "begin_ns": 5,
            "wall_offset_ns": 1,
            "partial": None,
            "phases": [phase],
        }
        return [json.dumps(record).encode()]
    return [seed for each in ("massif", "heaptrack") for seed in seeds(each)[:1]] + [
        gzip.compress(seeds("massif")[0], mtime=0),
        b"\x28\xb5\x2f\xfd",
    ]


def _head(data: bytes) -> bytes:
    if data.startswith(b"v "):
        return data[: data.rindex(b"\n", 0, _LONGEST_INPUT) + 1]
    at = data.find(b"heap_tree=detailed")
    header = data[: data.index(b"#-")]
    begin = data.rfind(b"#-----------\nsnapshot=", 0, at)
    return header + data[begin : begin + _LONGEST_INPUT - len(header)]


class _Tried:
    """Runs one input after another and counts them."""

    def __init__(self, name: str) -> None:
        self.target, self.name = TARGETS[name], name
        self.count = self.accepted = self.failed = 0

    def __call__(self, data: bytes) -> None:
        from memprof.errors import MemprofError

        self.count += 1
        begin = time.process_time()
        try:
            self.target(data)
            self.accepted += 1
        except MemprofError as error:
            if "\n" in str(error):
                self._fail(data, f"a sentence of several lines: {error}")
        except Exception as error:
            self._fail(data, repr(error)[:200])
        if time.process_time() - begin > _SLOWEST_S:
            self._fail(data, f"took {time.process_time() - begin:.1f} s")
        if self.count % 256 == 0 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > _MOST_BYTES:
            self._fail(data, "more than 1 GiB of memory")

    def _fail(self, data: bytes, reason: str) -> None:
        self.failed += 1
        FAILURES.mkdir(exist_ok=True)
        path = FAILURES / f"{self.name}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"{self.name}: {reason}; kept as {path}", file=sys.stderr, flush=True)
        if self.failed > 20:
            raise SystemExit(1)


def _with_atheris(name: str, seconds: float) -> _Tried:
    """Coverage-guided. atheris ends the process itself, so this one reports before that."""
    import atheris

    with atheris.instrument_imports(include=["memprof.heap", "memprof.errors"]):
        import memprof.heap.export
        import memprof.heap.files
        import memprof.heap.heaptrack
        import memprof.heap.massif
        import memprof.heap.memray
        import memprof.heap.names
        import memprof.heap.phases
        import memprof.heap.trees  # noqa: F401
    tried = _Tried(name)
    end = time.monotonic() + seconds

    def one(data: bytes) -> None:
        tried(data)
        if time.monotonic() > end:
            _report("atheris", tried)
            os._exit(1 if tried.failed else 0)

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds(name)):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup(["fuzz", f"-max_len={_LONGEST_INPUT}", "-verbosity=0", "-timeout=20", "-rss_limit_mb=2048", folder], one)
        atheris.Fuzz()
    return tried


def _with_hypothesis(name: str, seconds: float) -> _Tried:
    """Property-based: pieces of real inputs cut out, doubled, put elsewhere, and numbers made huge, small and wrong."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    tried = _Tried(name)
    real = seeds(name)
    odd = st.sampled_from(
        [b"", b"0", b"-1", b"9223372036854775808", b"9" * 5000, b"n9", b"\n", b" ", b"\x00", b"\xff\xfe", b"#", b"=", b"1e9"]
    )
    change = st.tuples(st.floats(0, 1), st.integers(0, 60), odd | st.binary(max_size=12))
    end = time.monotonic() + seconds

    @settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.sampled_from(real), st.lists(change, min_size=1, max_size=6))
    def some(seed: bytes, changes: list[tuple[float, int, bytes]]) -> None:
        data = seed
        for place, length, new in changes:
            at = int(place * len(data))
            data = data[:at] + new + data[at + length :]
        if time.monotonic() < end:
            tried(data)

    while time.monotonic() < end:
        some()
    return tried


def _report(how: str, tried: _Tried) -> None:
    row = {"parser": tried.name, "how": how, "inputs": tried.count, "profiles": tried.accepted, "failed": tried.failed}
    print(json.dumps(row), flush=True)


def main() -> None:
    """Fuzz each parser in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description="Fuzz the parsers of memprof heap.")
    parser.add_argument("names", nargs="*", choices=[*TARGETS, []], metavar="PARSER", help=f"of {', '.join(TARGETS)}.  [default: all]")
    parser.add_argument("--seconds", type=float, default=30, help="for each parser and way.  [default: 30]")
    parser.add_argument("--one", choices=["atheris", "hypothesis"], help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.one:
        tried = (_with_atheris if words.one == "atheris" else _with_hypothesis)(words.names[0], words.seconds)
        _report(words.one, tried)
        sys.exit(1 if tried.failed else 0)
    ways = ["hypothesis"]
    with contextlib.suppress(ImportError):
        import atheris  # noqa: F401

        ways.insert(0, "atheris")
    rows, bad = [], False
    for name in words.names or TARGETS:
        for how in ways:
            command = [sys.executable, str(Path(__file__)), name, "--one", how, "--seconds", str(words.seconds)]
            done = subprocess.run(command, capture_output=True, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            sys.stderr.write("".join(line + "\n" for line in done.stderr.splitlines() if line.startswith(f"{name}:")))
            if not lines or done.returncode not in (0, 1):
                bad = True
                sys.stderr.write(f"{name}, {how}: ended with {done.returncode}\n{done.stderr[-1500:]}\n")
            bad = bad or done.returncode != 0
            rows += [json.loads(line) for line in lines[-1:]]
    print("| parser | fuzzed with | inputs | of them profiles | failed |\n|---|---|---:|---:|---:|")
    for row in rows:
        print(f"| {row['parser']} | {row['how']} | {row['inputs']:,} | {row['profiles']:,} | {row['failed']} |")
    print(f"\n{sum(row['inputs'] for row in rows):,} inputs tried, {sum(row['failed'] for row in rows)} failed")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
