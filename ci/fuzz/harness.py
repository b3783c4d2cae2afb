"""The parts that all fuzzers share: damaged inputs for readers until their time is over, limits, and counts.

Each reader is fuzzed in a separate process, in an empty folder, by atheris (coverage-guided) where it is installed and by hypothesis
(property-based) in any case, starting from small real inputs. An input must end in a result or in a MemprofError of one line, within 5 s of
processor time and 1 GiB; else it has failed. The first input of each failure is kept in `fuzz-failures/`, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FAILURES = Path("fuzz-failures").absolute()
LONGEST_INPUT = 20_000
FOR_DOCS_S = 180.0  # for each reader: then the counts are those of a campaign
_MOST_FAILURES = 20
_SLOWEST_S = 5.0
_MOST_BYTES = 1 << 30
# Numbers and words out of every format, made huge, small, deep and wrong.
_ODD = [
    b"", b"0", b"-1", b"9223372036854775808", b"9" * 5000, b"1e9", b"1e999", b"NaN", b"nan", b"inf", b"true", b"2026-02-30",
    b"\n", b" ", b"#", b"=", b'"', b"'''", b'{"', b"..", b"/", b"a." * 5000, b"[" * 5000, b'{"a":' * 5000, b"[a]\n" * 3000,
    b"\x00", b"\x00" * 4, b"\xff" * 4, b"\xff\xfe", b"\xff\xff\xff\x7f", b"\x01\x00\x00\x00", b"\xff" * 9 + b"\x01", b"\x80\x80\x80\x80\x08",
]  # fmt: skip


def _by_pieces(name: str, seed: bytes, draw: random.Random) -> bytes | None:
    return None


@dataclass(frozen=True)
class Readers:
    """The readers of a fuzzer.

    targets: functions that take an input, by name. seeds: small real inputs for a name; it may write files beside them into the working folder.
    modules: imported before anything else, and watched by atheris. script: the fuzzer itself, which is started again for each reader. damage:
    makes an input of a seed, or returns None where pieces are to be cut out, doubled and put elsewhere. guided: whether atheris takes part.
    """

    targets: dict[str, Callable[[bytes], None]]
    seeds: Callable[[str], list[bytes]]
    modules: Sequence[str]
    script: Path
    damage: Callable[[str, bytes, random.Random], bytes | None] = _by_pieces
    guided: bool = True


def file(data: bytes, name: str = "input") -> Path:
    """The input as a file in the working folder."""
    path = Path(name).absolute()
    path.write_bytes(data)
    return path


class _TooSlow(BaseException):
    """An input takes longer than any may. No reader may catch it."""


class _Tried:
    """Runs one input after another and counts them."""

    def __init__(self, readers: Readers, name: str) -> None:
        self.target, self.name = readers.targets[name], name
        self.count = self.accepted = self.failed = 0
        self.reasons: set[str] = set()
        signal.signal(signal.SIGPROF, _too_slow)

    def __call__(self, data: bytes) -> None:
        from memprof.base.errors import MemprofError

        self.count += 1
        signal.setitimer(signal.ITIMER_PROF, _SLOWEST_S)
        try:
            self.target(data)
            self.accepted += 1
        except MemprofError as error:
            if "\n" in str(error):
                self._fail(data, "a sentence of several lines", error)
        except _TooSlow as error:
            self._fail(data, f"took more than {_SLOWEST_S:.0f} s", error)
        except Exception as error:
            self._fail(data, type(error).__name__, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > _MOST_BYTES:
            self._fail(data, "more than 1 GiB of memory", None)

    def _fail(self, data: bytes, kind: str, error: BaseException | None) -> None:
        """Count a failure, and keep the input if it is the first for this reason. Raises SystemExit where there are too many reasons."""
        self.failed += 1
        reason = kind + _place(error)
        if reason in self.reasons:
            return
        self.reasons.add(reason)
        FAILURES.mkdir(exist_ok=True)
        path = FAILURES / f"{self.name}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"{self.name}: {reason}: {str(error or '')[:150]!r}; kept as {path}", file=sys.stderr, flush=True)
        if len(self.reasons) > _MOST_FAILURES:
            raise SystemExit(1)


def _place(error: BaseException | None) -> str:
    """` at FILE:LINE`, where it was raised."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""


def _too_slow(*_: object) -> None:
    raise _TooSlow


def _limit_memory() -> None:
    """An allocation beyond the limit is a MemoryError, which is a failure. Memory that is mapped already does not count."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MOST_BYTES, resource.RLIM_INFINITY))


def _with_atheris(readers: Readers, name: str, seconds: float) -> _Tried:
    """Coverage-guided. atheris ends the process itself, so this one reports before that. libFuzzer's own limits stand in for those here."""
    import atheris

    with atheris.instrument_imports(include=[*readers.modules, "memprof.base.errors"]):
        for module in readers.modules:
            importlib.import_module(module)
    tried = _Tried(readers, name)
    end = time.monotonic() + seconds

    def fuzzed(data: bytes) -> None:
        tried(data)
        if time.monotonic() > end:
            _report("atheris", tried)
            shutil.rmtree(Path.cwd(), ignore_errors=True)
            os._exit(1 if tried.failed else 0)

    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(readers.seeds(name)):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup(["fuzz", f"-max_len={LONGEST_INPUT}", "-verbosity=0", "-timeout=60", "-rss_limit_mb=2048", folder], fuzzed)
        atheris.Fuzz()
    return tried


def _with_hypothesis(readers: Readers, name: str, seconds: float) -> _Tried:
    """Property-based: real inputs damaged in the fuzzer's way, or by pieces cut out, doubled, put elsewhere, and odd words put in."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    for module in readers.modules:
        importlib.import_module(module)
    tried = _Tried(readers, name)
    real = readers.seeds(name)
    # So many bytes go and others come. None: the new bytes lie over the old, so that all behind them stays in its place, as binary formats need.
    lengths = st.none() | st.none() | st.integers(0, 4) | st.integers(0, 60)
    change = st.tuples(st.floats(0, 1), lengths, st.sampled_from(_ODD) | st.binary(min_size=1, max_size=2) | st.binary(max_size=12))
    end = time.monotonic() + seconds
    _limit_memory()

    @settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.sampled_from(real), st.lists(change, min_size=1, max_size=6), st.randoms(use_true_random=True))
    def some(seed: bytes, changes: list[tuple[float, int | None, bytes]], draw: random.Random) -> None:
        if time.monotonic() > end:
            return
        data = readers.damage(name, seed, draw)
        if data is None:
            data = seed
            for place, length, new in changes:
                at = int(place * len(data))
                data = data[:at] + new + data[at + (len(new) if length is None else length) :]
        tried(data)

    for seed in real:
        tried(seed)
    while time.monotonic() < end:
        some()
    return tried


def _report(how: str, tried: _Tried) -> None:
    row = {"reader": tried.name, "how": how, "inputs": tried.count, "accepted": tried.accepted, "failed": tried.failed}
    print(json.dumps(row), flush=True)


def main(readers: Readers, about: str) -> None:
    """Fuzz each reader in a separate process and print the table."""
    parser = argparse.ArgumentParser(description=about)
    known = ", ".join(readers.targets)
    parser.add_argument("names", nargs="*", choices=[*readers.targets, []], metavar="READER", help=f"of {known}.  [default: all]")
    parser.add_argument("--seconds", type=float, default=30, help="for each reader and way.  [default: 30]")
    parser.add_argument("--way", choices=["atheris", "hypothesis"], help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.way:
        with tempfile.TemporaryDirectory(prefix="memprof-fuzz-") as folder:
            os.chdir(folder)
            tried = (_with_atheris if words.way == "atheris" else _with_hypothesis)(readers, words.names[0], words.seconds)
        _report(words.way, tried)
        sys.exit(1 if tried.failed else 0)
    ways = ["hypothesis"]
    if readers.guided and importlib.util.find_spec("atheris"):
        ways.insert(0, "atheris")
    rows, bad, broken = [], False, False
    for name in words.names or readers.targets:
        for how in ways:
            command = [sys.executable, str(readers.script.absolute()), name, "--way", how, "--seconds", str(words.seconds)]
            done = subprocess.run(command, capture_output=True, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            sys.stderr.write("".join(line + "\n" for line in done.stderr.splitlines() if line.startswith(f"{name}:")))
            if not lines or done.returncode not in (0, 1):
                broken = True
                FAILURES.mkdir(exist_ok=True)
                log = FAILURES / f"{name}-{how}.log"
                log.write_text(done.stderr)
                sys.stderr.write(f"{name}, {how}: the fuzzer itself ended with {done.returncode}; its words are in {log}\n")
            bad = bad or done.returncode != 0
            rows += [json.loads(line) for line in lines[-1:]]
    lines = ["| reader | fuzzed with | inputs | of them accepted | failed |", "|---|---|---:|---:|---:|"]
    lines += [f"| {row['reader']} | {row['how']} | {row['inputs']:,} | {row['accepted']:,} | {row['failed']} |" for row in rows]
    total = f"{sum(row['inputs'] for row in rows):,} inputs tried, {sum(row['failed'] for row in rows)} failed"
    print("\n".join([*lines, "", total]))
    if not words.names and words.seconds >= FOR_DOCS_S and not broken:
        _write_docs(readers.script.stem, f"{total}: `python ci/fuzz/{readers.script.name} --seconds {words.seconds:g}`.")
    sys.exit(1 if bad or broken else 0)


def _write_docs(name: str, text: str) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # bench is a package of scripts; it is never installed
    from bench import docs

    docs.write(f"fuzz-{name}", text)
