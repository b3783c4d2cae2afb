"""Odd surroundings: each command of memprof (a door) runs with a full or read-only disk, without a home, with closed descriptors, and in little
address space.

Right is a command that ends

- with its usual exit code and all of its usual output, or with 5 (4 where the fault reaches the measured program) and a sentence last,
- without a traceback, and not as a defect of memprof,
- with its inputs as they were, its output files whole or not there, and nothing left running or lying about.

Disks are file systems in memory that only root can mount; the rest is tried in any case.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from memprof.base.errors import MemprofError
from memprof.records import store

from . import sandbox
from .sandbox import MODEL, Place

DATA = Path(__file__).resolve().parents[2] / "data"
FAILED, REFUSED = 4, 5
_FILLING = "filling"
_ONE = ("-r", "synthetic", "--runs", "1")
# Every command with words that make it do all of its work in a few seconds. The files are those of `inputs`.
DOORS: Mapping[str, tuple[str, ...]] = {
    "run": ("run", MODEL, *_ONE, "--repeats", "1", "-o", "new.jsonl"),
    "exec": ("exec", "--repeats", "1", "-o", "new.jsonl", "--", "true"),
    "attach": ("attach", str(os.getpid()), "--for", "100ms", "-o", "new.jsonl"),
    "import": ("import", "mprof.dat", "-o", "new.jsonl"),
    "merge": ("merge", "runs.jsonl", "-o", "new.jsonl"),
    "table": ("table", "runs.jsonl"),
    "table -o": ("table", "runs.jsonl", "--format", "html", "-o", "table.html"),
    "plot": ("plot", "peaks", "runs.jsonl", "-o", "peaks.png"),
    "page": ("page", "runs.jsonl", "-o", "page.html"),
    "view": ("view", "runs.jsonl"),
    "trace": ("trace", "runs.jsonl", "-o", "trace.json"),
    "compare": ("compare", "runs.jsonl", "runs.jsonl"),
    "card": ("card", "runs.jsonl"),
    "gate": ("gate", "runs.jsonl", "--baseline", "base.json", "--also", "junit=gate.xml"),
    "gate --run": ("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "new.jsonl"),
    "baseline": ("baseline", "update", "runs.jsonl", "-o", "new.json"),
    "history": ("history", "add", "runs.jsonl", "--folder", "new"),
    "explain": ("explain", MODEL, *_ONE, "--keep-runs", "new.jsonl", "-o", "why.json"),
    "heap record": ("heap", "record", MODEL, *_ONE, "-o", "profile"),
    "heap show": ("heap", "show", "massif.gz"),
    "heap plot": ("heap", "plot", "massif.gz", "-o", "heap.png"),
    "heap view": ("heap", "view", "massif.gz", "-o", "heap.html"),
    "heap diff": ("heap", "diff", "massif.gz", "massif.gz"),
    "heap export": ("heap", "export", "massif.gz", "--format", "collapsed", "-o", "stacks.txt"),
    "tune": ("tune", MODEL, "-r", "synthetic", "--try", "ballast=0,1048576", "--time", "5s", "-o", "new.jsonl"),
    "fit": ("fit", MODEL, *_ONE, "--part", "load", "--by", "data", "-o", "new.jsonl"),
    "bisect": ("bisect", "--suite", "built.toml", "--good", "HEAD~1", "--no-explain", "-o", "new.jsonl"),
    "grow": ("grow", MODEL, "-r", "synthetic", "--budget", "200", "-o", "new.jsonl"),
    "scale": ("scale", MODEL, "-r", "synthetic", "--vary", "sessions=1..4", "-o", "new.jsonl"),
    "plan show": ("plan", "show", "model.onnx"),
    "plan reorder": ("plan", "reorder", "model.onnx", "-o", "better.onnx"),
    "plan residency": ("plan", "residency", "model.onnx"),
    "plan plot": ("plan", "plot", "model.onnx", "-o", "plan.html"),
    "plan pack": ("plan", "pack", "buffers.csv", "-o", "packed.csv"),
    "doctor": ("doctor",),
    "runtimes": ("runtimes",),
    "marks": ("marks",),
    "zoo": ("zoo", "founding_example", "--format", "onnx", "-o", "zoo.onnx"),
}


class Unavailable(Exception):
    """A fault that cannot be made here."""


@dataclass(frozen=True)
class Fault:
    """Surroundings for a command: a block within which they are there, which gives words for subprocess.Popen.

    reaches_child: whether a measured program meets them too, so that its failure is a right result. hides: the streams that show nothing.
    harmless: whether a command does all of its work in them.
    """

    block: Callable[[Place], AbstractContextManager[dict[str, Any]]]
    reaches_child: bool = False
    hides: tuple[str, ...] = ()
    harmless: bool = False


@dataclass(frozen=True)
class Usual:
    """A command without a fault: its exit code, its files with their last bytes, and whether it wrote to standard output."""

    code: int
    files: Mapping[str, bytes]
    speaks: bool


def tried_at(template: Place, door: str, faults: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The faults that were tried at a door, each with all that was wrong. template: a place with the files of `inputs`."""
    usual = usually(template, door)
    for name in faults:
        try:
            yield name, list(tried(template, door, FAULTS[name], usual))
        except Unavailable as error:
            print(f"{name}, {door}: not tried: {error}", file=sys.stderr, flush=True)


def inputs(place: Place) -> None:
    """Make the files that the doors read."""
    variants = ("--variant", "a=synthetic", "--variant", "b=synthetic,ballast=4MiB")
    commit = ("-c", "user.name=it", "-c", "user.email=it@localhost", "commit", "-q", "--allow-empty", "-m")
    for words in (("init", "-q"), (*commit, "first"), (*commit, "second")):
        subprocess.run(["git", *words], cwd=place.work, check=True)
    for words in (
        ("run", MODEL, *variants, "--repeats", "5", "--warmup", "1", "--runs", "2", "-o", "runs.jsonl"),
        ("baseline", "update", "runs.jsonl", "-o", "base.json"),
        ("zoo", "founding_example", "--format", "onnx", "-o", "model.onnx"),
    ):
        if place.run(*words) != 0:
            raise SystemExit(f"memprof {' '.join(words)}: {place.output('stderr')}")
    shutil.copy(DATA / "mprof.dat", place.work)
    shutil.copy(DATA / "heap" / "massif_tflite_mobilenet_v2.gz", place.work / "massif.gz")
    (place.work / "buffers.csv").write_text("id,lower,upper,size\n0,0,3,4\n1,1,4,4\n2,3,9,8\n3,4,9,4\n")
    (place.work / "budgets.toml").write_text('peak = "1 GiB"\n')
    suite = f'models = ["{MODEL}"]\nrepeats = 1\nwarmup = 0\nruns = 1\n[[variant]]\nname = "a"\nruntime = "synthetic"\n'
    (place.work / "suite.toml").write_text(suite)
    (place.work / "built.toml").write_text(f'{suite}[build]\ncommand = "true"\n')


@contextmanager
def prepared(template: Place) -> Iterator[Place]:
    """A place with the doors' files in it."""
    with sandbox.place() as place:
        shutil.copytree(template.work, place.work, dirs_exist_ok=True)
        yield place


def usually(template: Place, door: str) -> Usual:
    """The command without a fault."""
    with prepared(template) as place:
        before = set(place.work.rglob("*"))
        code = place.run(*DOORS[door], env=variables(place))
        files = {str(path.relative_to(place.work)): _tail(path) for path in set(place.work.rglob("*")) - before if path.is_file()}
        if code not in (0, 1) or not all(files.values()):
            raise SystemExit(f"memprof {' '.join(DOORS[door])} ends with {code} and {files} without a fault: {place.output('stderr')}")
        return Usual(code, files, bool(place.output("stdout")))


def variables(place: Place) -> dict[str, str]:
    """The environment of a door. `view` asks a browser that is content with anything."""
    return {**place.environment, "BROWSER": "true"}


def tried(template: Place, door: str, fault: Fault, usual: Usual) -> Iterator[str]:
    """Run a command amid a fault, and say all that is wrong afterwards. Raises Unavailable."""
    with prepared(template) as place:
        before = contents(place)
        with fault.block(place) as options:
            try:
                code = place.run(*DOORS[door], **{"env": variables(place), **options})
            except subprocess.TimeoutExpired:
                yield "it does not end"
                return
            yield from wrong_words(place, door, fault, usual, code)
            yield from wrong_files(place, before, usual, code)
            if left := [name for name in place.leftovers() if not _stays(door, name)]:
                yield f"left: {', '.join(left)}"


def _stays(door: str, name: str) -> bool:
    """Whether a file in the temporary folder is no leftover: the one that fills the disk, the cache without a home, a page that a browser reads."""
    return name in (f"tmp/{_FILLING}", f"tmp/memprof-{os.geteuid()}") or (door.endswith("view") and name.startswith("tmp/"))


def contents(place: Place) -> dict[str, str]:
    """The hash of every file of the working folder."""
    files = [path for path in place.work.rglob("*") if path.is_file() and path.name != _FILLING]
    return {str(path.relative_to(place.work)): sha256(path.read_bytes()).hexdigest() for path in files}


def wrong_words(place: Place, door: str, fault: Fault, usual: Usual, code: int) -> Iterator[str]:
    """Sentences on a wrong exit code and on wrong words. doctor says in its report why nothing can be measured."""
    talk = place.output("stderr")
    codes = {usual.code, *([] if fault.harmless else [REFUSED]), *([FAILED] if fault.reaches_child or door == "doctor" else [])}
    if code not in codes:
        yield f"exit code {code}: {talk[-300:]!r}"
    if "Traceback" in talk or "defect of memprof" in talk:
        yield f"no sentence: {talk[-300:]!r}"
    elif code == REFUSED and "stderr" not in fault.hides and not (talk.splitlines() or [""])[-1].startswith("memprof: "):
        yield f"the last line is no sentence: {talk[-300:]!r}"
    if code == usual.code and usual.speaks and "stdout" not in fault.hides and not place.output("stdout"):
        yield "all is well, and nothing on standard output"


def wrong_files(place: Place, before: Mapping[str, str], usual: Usual, code: int) -> Iterator[str]:
    """Sentences on inputs that changed and on outputs that are missing or torn. If the command says that all is well, all outputs must be there."""
    after = contents(place)
    if changed := [name for name in before if after.get(name) != before[name]]:
        yield f"changed: {', '.join(changed)}"
    new = set(after) - set(before)
    if code == usual.code and (missing := {name for name in usual.files if not _varies(name)} - new):
        yield f"all is well without {', '.join(sorted(missing))}"
    for name in sorted(new):
        if name not in usual.files and not _varies(name):
            yield f"an odd file {name}"
        elif reason := torn(place.work / name, usual.files.get(name)):
            yield f"{name}: {reason}"


def _varies(name: str) -> bool:
    return name.startswith("profile/")  # a profiler's files have the process id in their names


def torn(path: Path, tail: bytes | None) -> str | None:
    """Why a file is not whole, or None. tail: its usual last bytes, where they are known. A runs file may be empty: nothing was measured."""
    try:
        if path.suffix == ".jsonl":
            warnings = store.load([path]).warnings if path.stat().st_size else ()
            return ", ".join(warning for warning in warnings if "torn" in warning) or None
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        elif tail is not None and _tail(path) != tail:
            return f"it ends in {_tail(path)!r} and not in {tail!r}"
    except (MemprofError, ValueError) as error:
        return str(error)
    return None


def _tail(path: Path) -> bytes:
    return path.read_bytes()[-8:]


# -- the faults


@contextmanager
def disk(folder: str, place: Place, *, read_only: bool = False) -> Iterator[dict[str, Any]]:
    """A file system in memory in the place of a folder: with all that was there, and full or read-only. Raises Unavailable."""
    target = place.folder / folder
    aside = place.folder / "aside"
    shutil.copytree(target, aside)
    size = sum(path.stat().st_size + 4096 for path in aside.rglob("*")) + (64 << 10)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(target)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(done.stderr.strip() or "mount failed")
    try:
        shutil.copytree(aside, target, dirs_exist_ok=True)
        if read_only:
            subprocess.run(["mount", "-o", "remount,ro", str(target)], check=True)
        else:
            _fill(target / _FILLING)
        yield {}
    finally:
        subprocess.run(["umount", "--lazy", str(target)], check=True)
        shutil.rmtree(aside)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


@contextmanager
def limited(kind: int, size: int, place: Place) -> Iterator[dict[str, Any]]:
    """A resource limit for the command and all that it starts."""
    yield {"preexec_fn": partial(resource.setrlimit, kind, (size, size))}


@contextmanager
def closed(numbers: tuple[int, ...], place: Place) -> Iterator[dict[str, Any]]:
    """Standard streams that are closed."""

    def close() -> None:
        for number in numbers:
            os.close(number)

    yield {"preexec_fn": close}


@contextmanager
def full_output(place: Place) -> Iterator[dict[str, Any]]:
    """A standard output to which nothing can be written."""
    with open("/dev/full", "wb") as full:
        yield {"stdout": full}


@contextmanager
def homeless(place: Place) -> Iterator[dict[str, Any]]:
    """A home that cannot be made, and no other place for caches and state."""
    kept_variables = {name: value for name, value in variables(place).items() if not name.startswith("XDG_")}
    yield {"env": {**kept_variables, "HOME": "/dev/null/home"}}


@contextmanager
def home_read_only(place: Place) -> Iterator[dict[str, Any]]:
    """A home in which nothing can be made, and no other place for caches and state."""
    with disk("home", place, read_only=True), homeless(place) as options:
        yield {"env": {**options["env"], "HOME": str(place.folder / "home")}}


@contextmanager
def bare(place: Place) -> Iterator[dict[str, Any]]:
    """Only the variables that name the place's folders, and the locale C without Python's help."""
    kept_variables = {name: value for name, value in variables(place).items() if name == "PATH" or value.startswith(str(place.folder))}
    yield {"env": {**kept_variables, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}}


FAULTS: Mapping[str, Fault] = {
    "full-disk": Fault(partial(disk, "work")),
    "full-temporary-folder": Fault(partial(disk, "tmp"), reaches_child=True),
    "full-cache": Fault(partial(disk, "cache")),
    "full-output": Fault(full_output, hides=("stdout",)),
    "small-files": Fault(partial(limited, resource.RLIMIT_FSIZE, 2048), reaches_child=True),
    "read-only-folder": Fault(partial(disk, "work", read_only=True)),
    "read-only-home": Fault(home_read_only),
    "no-home": Fault(homeless),
    "no-variables": Fault(bare),
    "closed-input": Fault(partial(closed, (0,)), harmless=True),
    "closed-output": Fault(partial(closed, (1,)), hides=("stdout",), harmless=True),
    "closed-error": Fault(partial(closed, (2,)), hides=("stderr",), harmless=True),
    "all-closed": Fault(partial(closed, (0, 1, 2)), hides=("stdout", "stderr"), harmless=True),
    "addresses-30MiB": Fault(partial(limited, resource.RLIMIT_AS, 30 << 20), reaches_child=True),
    "addresses-200MiB": Fault(partial(limited, resource.RLIMIT_AS, 200 << 20), reaches_child=True),
}
