"""What the fuzzers share: throwing damaged inputs at readers until their time is over, with limits, and saying how many were tried.

Each reader is fuzzed in a process of its own, by atheris (coverage-guided) where it is installed and by hypothesis (property-based) in any case,
starting from small real inputs. An input fails that ends in anything but a result or a MemprofError of one line, that takes more than 5 s of
processor time, or that wants more than 1 GiB. A failed input is kept in `fuzz-failures/`, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FAILURES = Path("fuzz-failures")
LONGEST_INPUT = 20_000
_SLOWEST_S = 5.0
_MOST_BYTES = 1 << 30
# A number out of every format, made huge, small and wrong.
_ODD = [
    b"",
    b"0",
    b"-1",
    b"9223372036854775808",
    b"9" * 5000,
    b"1e999",
    b"NaN",
    b"\n",
    b" ",
    b"\x00",
    b"\xff\xfe",
    b"#",
    b"=",
    b"1e9",
    b"[" * 2000,
]
_ODD += [
    b"\x00" * 4,
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"\x01\x00\x00\x00",
    b"\xff" * 9 + b"\x01",
    b"\x80\x80\x80\x80\x08",
    b'{"',
    b"..",
    b"/",
]


@dataclass(frozen=True)
class Readers:
    """The readers of a fuzzer.

    targets: what takes an input, by name. seeds: small real inputs for a name. modules: what atheris watches, imported before anything else.
    script: the fuzzer itself, which is started again for each reader.
    """

    targets: dict[str, Callable[[bytes], None]]
    seeds: Callable[[str], list[bytes]]
    modules: Sequence[str]
    script: Path


def file(data: bytes, name: str = "input") -> Path:
    """The input as a file, in a folder of this process."""
    path = Path(tempfile.gettempdir()) / f"memprof-fuzz-{os.getpid()}" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


class _TooSlow(BaseException):
    """An input takes longer than any may. No reader may catch it."""


class _Tried:
    """Runs one input after another and counts them."""

    def __init__(self, readers: Readers, name: str) -> None:
        self.target, self.name = readers.targets[name], name
        self.count = self.accepted = self.failed = 0
        signal.signal(signal.SIGPROF, _too_slow)

    def __call__(self, data: bytes) -> None:
        from memprof.errors import MemprofError

        self.count += 1
        signal.setitimer(signal.ITIMER_PROF, _SLOWEST_S)
        try:
            self.target(data)
            self.accepted += 1
        except MemprofError as error:
            if "\n" in str(error):
                self._fail(data, f"a sentence of several lines: {error}")
        except _TooSlow:
            self._fail(data, f"took more than {_SLOWEST_S:.0f} s")
        except Exception as error:
            self._fail(data, repr(error)[:200])
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
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


def _too_slow(*_: object) -> None:
    raise _TooSlow


def _limit_memory() -> None:
    """An allocation beyond the limit is a MemoryError, which is a failure; what is mapped already is not counted."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MOST_BYTES, resource.RLIM_INFINITY))


def _with_atheris(readers: Readers, name: str, seconds: float) -> _Tried:
    """Coverage-guided. atheris ends the process itself, so this one reports before that. libFuzzer's own limits stand in for those here."""
    import atheris

    with atheris.instrument_imports(include=[*readers.modules, "memprof.errors"]):
        for module in readers.modules:
            importlib.import_module(module)
    tried = _Tried(readers, name)
    end = time.monotonic() + seconds

    def one(data: bytes) -> None:
        tried(data)
        if time.monotonic() > end:
            _report("atheris", tried)
            os._exit(1 if tried.failed else 0)

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(readers.seeds(name)):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup(["fuzz", f"-max_len={LONGEST_INPUT}", "-verbosity=0", "-timeout=60", "-rss_limit_mb=2048", folder], one)
        atheris.Fuzz()
    return tried


def _with_hypothesis(readers: Readers, name: str, seconds: float) -> _Tried:
    """Property-based: pieces of real inputs cut out, doubled, put elsewhere, and numbers made huge, small and wrong."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    tried = _Tried(readers, name)
    real = readers.seeds(name)
    # So many bytes go and others come; None: those that come lie over others, so that what follows stays in its place, as binary formats need.
    lengths = st.none() | st.none() | st.integers(0, 4) | st.integers(0, 60)
    change = st.tuples(st.floats(0, 1), lengths, st.sampled_from(_ODD) | st.binary(min_size=1, max_size=2) | st.binary(max_size=12))
    end = time.monotonic() + seconds
    _limit_memory()

    @settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.sampled_from(real), st.lists(change, min_size=1, max_size=6))
    def some(seed: bytes, changes: list[tuple[float, int | None, bytes]]) -> None:
        data = seed
        for place, length, new in changes:
            at = int(place * len(data))
            data = data[:at] + new + data[at + (len(new) if length is None else length) :]
        if time.monotonic() < end:
            tried(data)

    while time.monotonic() < end:
        some()
    return tried


def _report(how: str, tried: _Tried) -> None:
    row = {"reader": tried.name, "how": how, "inputs": tried.count, "accepted": tried.accepted, "failed": tried.failed}
    print(json.dumps(row), flush=True)


def main(readers: Readers, about: str) -> None:
    """Fuzz each reader in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=about)
    known = ", ".join(readers.targets)
    parser.add_argument("names", nargs="*", choices=[*readers.targets, []], metavar="READER", help=f"of {known}.  [default: all]")
    parser.add_argument("--seconds", type=float, default=30, help="for each reader and way.  [default: 30]")
    parser.add_argument("--one", choices=["atheris", "hypothesis"], help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.one:
        tried = (_with_atheris if words.one == "atheris" else _with_hypothesis)(readers, words.names[0], words.seconds)
        _report(words.one, tried)
        sys.exit(1 if tried.failed else 0)
    ways = ["hypothesis"]
    with contextlib.suppress(ImportError):
        import atheris  # noqa: F401

        ways.insert(0, "atheris")
    rows, bad = [], False
    for name in words.names or readers.targets:
        for how in ways:
            command = [sys.executable, str(readers.script), name, "--one", how, "--seconds", str(words.seconds)]
            done = subprocess.run(command, capture_output=True, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            sys.stderr.write("".join(line + "\n" for line in done.stderr.splitlines() if line.startswith(f"{name}:")))
            if not lines or done.returncode not in (0, 1):
                bad = True
                sys.stderr.write(f"{name}, {how}: ended with {done.returncode}\n{done.stderr[-1500:]}\n")
            bad = bad or done.returncode != 0
            rows += [json.loads(line) for line in lines[-1:]]
    print("| reader | fuzzed with | inputs | of them accepted | failed |\n|---|---|---:|---:|---:|")
    for row in rows:
        print(f"| {row['reader']} | {row['how']} | {row['inputs']:,} | {row['accepted']:,} | {row['failed']} |")
    print(f"\n{sum(row['inputs'] for row in rows):,} inputs tried, {sum(row['failed'] for row in rows)} failed")
    sys.exit(1 if bad else 0)
