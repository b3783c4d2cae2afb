"""Runs files: a Run a line, as JSON, appended as soon as it exists and decoded strictly.

A file whose last line is torn (the machine lost power, the disk was full) is read up to there with a warning, and mended before the
next Run is appended. Lines of several memprof processes that append to one file do not mix: each holds a lock while it writes.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from ..base.errors import InputError, os_reason
from ..base.files import opened
from . import attempts, settings
from .types import SCHEMA, Run, Timeline

_decoder = msgspec.json.Decoder(Run)
_encoder = msgspec.json.Encoder()


class FileRuns(Struct, frozen=True):
    """Runs of one or several files, and warnings about the files."""

    runs: tuple[Run, ...]
    warnings: tuple[str, ...] = ()


def load(paths: Iterable[str | Path]) -> FileRuns:
    """All Runs of the files, in their order.

    Raises InputError for a file that cannot be read, holds no Run, is no runs file, or was written by a newer memprof.
    """
    runs: list[Run] = []
    warnings: list[str] = []
    file_of: dict[int, str] = {}
    for path in paths:
        file_runs, file_warnings = _load_file(Path(path))
        runs += file_runs
        warnings += file_warnings
        file_of.update((id(run), str(path)) for run in file_runs)
    standing, left_out = attempts.standing(runs)
    apart, remarks = told_apart(standing, [file_of[id(run)] for run in standing])
    return FileRuns(apart, (*warnings, *left_out, *remarks))


def told_apart(runs: Sequence[Run], files: Sequence[str] = ()) -> tuple[tuple[Run, ...], list[str]]:
    """The runs, with a variant's name completed if runs of that name were measured in different ways, and a sentence for each such name.

    Without it they would be taken for repeats of one another and averaged. files: where each run comes from. Runs that differ in a content alone
    are named by their files, if these tell them apart.
    """
    same: dict[tuple[object, ...], list[int]] = {}
    for index, run in enumerate(runs):
        job = run.job
        same.setdefault((job.model.name, job.variant, job.version, job.side, job.threads, run.machine.name), []).append(index)
    apart, remarks = list(runs), []
    for places in same.values():
        ways = {index: _way(runs[index]) for index in places}
        repeating = all(runs[index].job.use for index in places)
        if repeating:
            _name_rounds(ways, {index: runs[index] for index in places})
        differing = sorted({name for way in ways.values() for name in way if _differs(name, list(ways.values()))})
        if (
            repeating
            and set(_OF_ROUNDS) <= set(differing)
            and len({_round(way) for way in ways.values()}) == len({way[_OF_ROUNDS[0]] for way in ways.values()})
        ):
            differing.remove("runs")  # the inputs tell the rounds apart
        alike = not differing
        if alike and any(runs[index].job.hold for index in places):
            differing = ["hold"]  # figures of a held run are not set beside those of a plain run in another file
        if "command" in differing:
            shown = _shortest({runs[index].job.argv for index in places} - {()})
            for index in places:
                if runs[index].job.argv:
                    ways[index]["command"] = shown[runs[index].job.argv]
        told = _files_of({index: files[index] for index in places}, ways, differing) if files else {}
        for index in places if differing else ():
            run = runs[index]
            words = told.get(index) or ", ".join(
                ways[index].get(name, f"{name} {'unknown' if name in _REPORTED else 'default'}") for name in differing
            )
            apart[index] = replace(run, job=replace(run.job, variant=run.job.variant + _completion(words)))
        # Processes of `memprof grow` differ in their units and inputs by design; reports on growth set them together again: rounds_together.
        if differing and not alike and not (set(differing) <= set(_OF_ROUNDS) and repeating):
            job = runs[places[0]].job
            remarks.append(f"{job.label}: runs that differ in {', '.join(differing)} are separate rows")
    return tuple(apart), remarks


_CONTENTS = frozenset({"model", "program"})  # settings whose value is a part of a hash


def _files_of(files: Mapping[int, str], ways: Mapping[int, Mapping[str, str]], differing: Collection[str]) -> dict[int, str]:
    """The name of the file of each run, as short as tells the files apart; none where runs differ in more than a content, or files hold several."""
    contents: dict[str, set[tuple[str | None, ...]]] = {}
    for index, file in files.items():
        contents.setdefault(file, set()).add(tuple(ways[index].get(name) for name in differing))
    held = {content for each in contents.values() for content in each}
    if not _CONTENTS.issuperset(differing) or len(held) < len(contents) or any(len(each) > 1 for each in contents.values()):
        return {}
    called = _tails(contents)
    return {index: called[file] for index, file in files.items()}


def rounds_together(runs: Iterable[Run]) -> list[Run]:
    """Runs of `memprof grow` under the name of their variant, without what told_apart added to it because rounds differ in units and inputs."""
    return [replace(run, job=replace(run.job, variant=_without_round(run))) for run in runs]


_MOST_UNITS_ROWS = 1 << 16  # of a curve of memory by units
_OF_ROUNDS = ("inputs of iterations", "runs")  # settings in which processes of one `memprof grow` may differ, sorted as told_apart has them


def _round(way: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(way.get(name) for name in _OF_ROUNDS)


def _name_rounds(ways: Mapping[int, dict[str, str]], runs: Mapping[int, Run]) -> None:
    """Gives a process that its time ended the units that it did, if others of the round were then given as many."""
    given = {_round(way) for way in ways.values()}
    for index, run in runs.items():
        with suppress(InputError):  # a damaged curve is the fault of a report that reads it
            inputs, runs_done = ways[index].get(_OF_ROUNDS[0]), _words("runs", str(units_done(run)))
            if (inputs, runs_done) in given:
                ways[index]["runs"] = runs_done


def units_done(run: Run) -> int:
    """How many units were done while the memory was followed, of the first unit that its Work counts; 0 where it has none. Raises InputError."""
    if not run.work:
        return 0
    called, longest = "a curve of memory by units", max(run.work, key=lambda record: record.rows)
    done = [rows[-1] for rows in numbers(unpacked_columns(longest.counts[:1], min(longest.rows, _MOST_UNITS_ROWS), called), called) if rows]
    return done[0] if done else 0


def _without_round(run: Run) -> str:
    way, name = _way(run), run.job.variant
    for runs in (way["runs"], _words("runs", str(units_done(run)))):
        for words in (f"{way.get(_OF_ROUNDS[0], '')}, {runs}", way.get(_OF_ROUNDS[0], ""), runs):
            if words and name.endswith(_completion(words)):
                return name.removesuffix(_completion(words))
    return name


def _completion(words: str) -> str:
    return f" ({words})"


def _shortest(commands: Collection[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A short form of each command: its program, then the words that not all commands have, an option before its value.

    The program has as much of its path as tells it from others, and is `…` where all commands have the same program.
    """
    programs = {words[0] for words in commands}
    called = _tails(programs)
    common = set.intersection(*(set(words[1:]) for words in commands))
    short = {}
    for words in commands:
        kept: list[str] = []
        for before, word in pairwise(words):
            if word not in common:
                kept += [before, word] if before in common and before.startswith("-") and not word.startswith("-") else [word]
        program = "…" if kept and len(programs) == 1 else shlex.quote(called.get(words[0], words[0]))
        short[words] = " ".join([program, *map(shlex.quote, kept)])
    return short if len(set(short.values())) == len(short) else {words: f"command {shlex.join(words)}" for words in commands}


def _tails(paths: Collection[str]) -> dict[str, str]:
    """As much of the end of each path as tells it from the others."""
    most = max(len(path.split("/")) for path in paths)
    tails = ({path: "/".join(path.split("/")[-parts:]) for path in paths} for parts in range(1, most + 1))
    return next((tail for tail in tails if len(set(tail.values())) == len(paths)), {})


def _differs(name: str, ways: list[dict[str, str]]) -> bool:
    values = {way.get(name) for way in ways}
    # A run that failed early has not reported its versions.
    return len(values - {None} if name in _REPORTED else values) > 1


_PACKAGES = "packages"
_REPORTED = (*settings.VERSIONS, _PACKAGES)


def _way(run: Run) -> dict[str, str]:
    """How a run was measured, beyond its row's key: words by setting."""
    facts = settings.of_repeats([run])
    packages = [name for name in facts if name.startswith(settings.PACKAGE)]
    words = {name: _words(name, value) for name, value in facts.items() if name not in packages}
    if run.job.model.files or not run.job.program:  # else it is the program
        words["model"] = f"model {run.job.model.sha256[:8]}"
    if run.job.use is not None:
        words["inputs of iterations"] = settings.inputs_in_words(bool(run.job.use.shapes), run.job.use.fresh)
    if packages:
        words[_PACKAGES] = ", ".join(f"{name.removeprefix(settings.PACKAGE)} {facts[name]}" for name in packages)
    return words


def _words(name: str, value: str) -> str:
    kind, _, subject = name.partition(" ")
    if name in ("runtime", "runtime version", "hold") or name.startswith("phases by"):
        return value
    if name in _NAMED:
        return f"{name} {value}"
    return f"{subject.removeprefix('of ') if kind in ('shape', 'value', 'integers', 'variable') else name}={value}"


_NAMED = ("Python", "warm-up", "runs", "page cache", "deterministic", "inputs", "program", "command", "folder", "limit", "CPUs", "swap")


def _load_file(path: Path) -> tuple[list[Run], list[str]]:
    warnings: list[str] = []
    return [decode(line, where) for where, line in lines(path, warnings.append)], warnings


def lines(path: Path, warn: Callable[[str], None]) -> Iterator[tuple[str, bytes]]:
    """The lines of a runs file, each with the words that name it in an error, before they are decoded. warn: told of a torn last line.

    Raises InputError for a file that cannot be read, holds no complete line, or is no runs file.
    """
    count, torn = 0, b""
    try:
        with opened(path) as file:
            for number, line in enumerate(_each_line(file), 1):
                if not line.endswith(b"\n") and not _is_whole(line):
                    torn = line
                elif line.strip():
                    count += 1
                    yield f"{path}, line {number}", line.rstrip(b"\n")
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    if torn:
        warn(f"{path}: the last line is torn and was left out")
    if not count:
        if torn and not _looks_like_a_run(torn):
            raise InputError(f"{path} is not a memprof runs file")
        raise InputError(f"{path} holds no complete run")


def _each_line(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. A last one without an end may be half of one that another memprof writes just now: it is read again when that is done."""
    while line := file.readline():
        if not line.endswith(b"\n"):
            with suppress(ImportError, OSError):  # no locks in this system or on this disk, or no file
                import fcntl

                fcntl.flock(file, fcntl.LOCK_SH)
                file.seek(-len(line), os.SEEK_CUR)
                line = file.readline()
                fcntl.flock(file, fcntl.LOCK_UN)
        if line:
            yield line


def decode(line: bytes, where: str) -> Run:
    """The Run of a line. Raises InputError, naming `where` and the bad field."""
    try:
        if _MAY_BE_LARGE.search(line) and _is_large(msgspec.json.decode(line)):
            raise InputError(f"{where}: a number in it is larger than any that was measured")
        run = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        version = _version(line)
        if version is None:
            raise InputError(f"{where}: not a run of memprof") from None
        if version > SCHEMA:
            raise InputError(f"{where}: written by a newer memprof (schema {version}; this one reads up to {SCHEMA})") from None
        raise InputError(f"{where}: {error}") from None
    check(run, where)
    return run


def check(run: Run, where: str) -> None:
    """Raises InputError, naming `where` and the figure, where a run has one that nothing can have measured."""
    odd = _odd(run)
    if odd:
        raise InputError(f"{where}: {odd} is below 0, or larger than any that was measured")


# Amounts of memory and durations are whole numbers that a float holds exactly: 8 PiB, 104 days. Times since the machine's start may be later.
_MOST = 1 << 53
_TIMES = ("begin_ns", "end_ns")


def _odd(run: Run) -> str | None:
    """The name of the first figure of a run that cannot have been measured, None if all can."""
    for record in (run.job, run.job.model, run.machine, run.timeline, *run.marks):
        for name, value in asdict(record).items():
            if isinstance(value, int) and not 0 <= value < (_MOST << 10 if name in _TIMES else _MOST):
                return name
    for mark in run.marks:
        if not all(0 <= time_ns < _MOST for time_ns in (mark.time_ns, min(mark.times_ns, default=0), max(mark.times_ns, default=0))):
            return f"a time of {mark.phase[:40]!r}"
    return None


# Numbers that no clock and no memory has, and that arithmetic cannot hold: whole numbers beyond 64 bits, others beyond 1e100.
_MAY_BE_LARGE = re.compile(rb"[:\[,]\s*-?(?:[0-9]{19}|[0-9.]+[eE]\+?[0-9]{3})")


def _is_large(content: Any) -> bool:
    if isinstance(content, dict | list):
        return any(map(_is_large, content.values() if isinstance(content, dict) else content))
    return isinstance(content, int | float) and abs(content) >= (1 << 63 if isinstance(content, int) else 1e100)


def _version(line: bytes) -> int | None:
    try:
        content: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    version = content.get("memprof") if isinstance(content, dict) else None
    return version if isinstance(version, int) else None


def _is_whole(line: bytes) -> bool:
    """Whether a last line lacks nothing but its end, which an editor may have taken off."""
    return line.startswith(b"{") and line.endswith(b"}") and _version(line) is not None


def _looks_like_a_run(line: bytes) -> bool:
    return line.startswith(b'{"memprof":') or b'{"memprof":'.startswith(line)


def is_runs_file(path: Path) -> bool:
    """Whether a file that exists begins as a runs file does. A pipe is no runs file: reading it would take from it, or wait for ever."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(32)
            return bool(head) and _looks_like_a_run(head)
    except OSError:
        return False


def encode(run: Run) -> bytes:
    """A Run as one line, its end included."""
    return _encoder.encode(run) + b"\n"


class RunsWriter:
    """Appends Runs to a file, each whole or not at all.

    append: whether to add to a file that exists, None where the user has no such choice. option: how the user makes that choice. Raises InputError if
    the file exists and nothing is to be added to it, if it is no runs file, or if it cannot be written; earlier lines stay.
    """

    def __init__(self, path: Path, *, append: bool | None, option: str = "--append") -> None:
        self.path = path
        self.written = 0
        self._created = _create(path)
        if not self._created and not append:
            raise InputError(f"{path} exists: {'' if append is None else f'{option} adds to it, or '}name another file")
        self.mended = not self._created and _mend(path)

    def write(self, line: bytes) -> None:
        """Append one encoded Run."""
        try:
            with _locked(self.path, "ab") as file:
                size = os.fstat(file.fileno()).st_size
                try:
                    _write_all(file.fileno(), line)
                finally:
                    if os.fstat(file.fileno()).st_size < size + len(line):  # the disk is full, or someone pressed Ctrl-C
                        os.ftruncate(file.fileno(), size)
                self.written += 1
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {os_reason(error)}") from None

    def discard_if_empty(self) -> None:
        """Remove the file if this RunsWriter made it and nobody ever wrote to it."""
        if not self._created:
            return
        with suppress(OSError), _locked(self.path, "r+b") as file:
            if os.fstat(file.fileno()).st_size == 0:
                self.path.unlink()


def _create(path: Path) -> bool:
    """Make an empty file; False if there is one, which another memprof may have made a moment ago. Raises InputError."""
    try:
        path.open("xb").close()
    except FileExistsError:
        return False
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None
    return True


@contextmanager
def _locked(path: Path, mode: str) -> Iterator[IO[bytes]]:
    """The file, unbuffered, with no other memprof writing to it."""
    import fcntl  # here, because runs are read on systems that lack it too

    while True:
        with open(path, mode, buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:  # else another memprof has just discarded it
                yield file
                return


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _mend(path: Path) -> bool:
    """Cut a torn last line off; True if there was one. Raises InputError if this memprof cannot add to the file."""
    if not path.is_file():
        raise InputError(f"{path} is not a file that runs can be added to")
    try:
        with _locked(path, "r+b") as file:
            data = file.read()
            whole, end, torn = data.rpartition(b"\n")
            first = whole.split(b"\n", 1)[0] or torn
            version = _version(first)
            if first and version is None and (whole or not _looks_like_a_run(first)):
                raise InputError(f"{path} is not a memprof runs file; nothing was added to it")
            if version is not None and version > SCHEMA:
                raise InputError(f"{path} was written by a newer memprof; nothing was added to it")
            if _is_whole(torn):
                file.seek(0, os.SEEK_END)
                file.write(b"\n")
                return False
            file.truncate(len(whole) + len(end))
            return bool(torn)
    except FileNotFoundError:
        return False  # the other memprof that made it has had nothing to write
    except OSError as error:
        raise InputError(f"{path} cannot be written: {os_reason(error)}") from None


# A timeline without a sample, for a Run whose recorder was ended.
_NO_COLUMN = base64.b64encode(zlib.compress(b"")).decode()
NOTHING_SEEN = Timeline(_NO_COLUMN, _NO_COLUMN, _NO_COLUMN, _NO_COLUMN, 0, 0, 0, 0)


class TimelineColumns(Struct, frozen=True):
    """A timeline's columns, unpacked: t_ns on CLOCK_MONOTONIC, the others in bytes; all of one length."""

    t_ns: Sequence[int]
    rss: Sequence[int]
    file: Sequence[int]
    vms: Sequence[int]


# The most rows that the recorder keeps of a run. Imported logs have more, but then no two rows are alike: packed they take their room.
_USUAL_ROWS = 20_000
_MOST_TIMES = 100


def unpack(timeline: Timeline) -> TimelineColumns:
    """The columns of a timeline. Raises InputError if they are damaged."""
    return TimelineColumns(*numbers(unpacked(timeline), "a timeline"))


def unpacked(timeline: Timeline, called: str = "a timeline") -> tuple[bytes, ...]:
    """The columns as the differences between neighbours, all of one length. Raises InputError if they are damaged, with `called` as their name.

    A few bytes can be packed so that they unpack to gigabytes. So no column may have more rows than there were samples, and beyond _USUAL_ROWS
    all columns together may be at most _MOST_TIMES as long as they are packed.
    """
    texts = (timeline.t_ns, timeline.rss, timeline.file, timeline.vms)
    # Three quarters of the text are the packed bytes.
    most = min(timeline.samples, max(_USUAL_ROWS, _MOST_TIMES * sum(map(len, texts)) * 3 // 4 // 32))
    columns = unpacked_columns(texts, most, called)
    if timeline.samples and not columns[0]:
        raise InputError(f"{called} is damaged: there is no row in it")
    return columns


def unpacked_devices(timeline: Timeline, called: str = "a timeline") -> tuple[bytes, ...]:
    """The columns of device memory, t_ns and bytes, as `unpacked` gives the others; two empty ones if there are none."""
    if timeline.device_t_ns is None or timeline.device is None:
        return b"", b""
    return unpacked_columns((timeline.device_t_ns, timeline.device), _USUAL_ROWS, called)


def unpacked_columns(texts: Sequence[str], most: int, called: str) -> tuple[bytes, ...]:
    """Packed columns of at most that many rows, as the differences between neighbours, all of one length. Raises InputError as `unpacked` does."""
    columns: list[bytes] = []
    try:
        for text in texts:
            stream = zlib.decompressobj()
            columns.append(stream.decompress(base64.b64decode(text, validate=True), 8 * most + 1))
            if len(columns[-1]) > 8 * most:
                raise InputError(f"{called} is damaged: it unpacks to more than {most} rows")
            if not stream.eof or len(columns[-1]) % 8:
                raise InputError(f"{called} is damaged: a column of it is cut off")
    except (ValueError, zlib.error) as error:
        raise InputError(f"{called} is damaged: {error}") from None
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"{called} is damaged: its columns differ in length")
    return tuple(columns)


def numbers(columns: Iterable[bytes], called: str) -> list[array[int]]:
    """The values of columns of differences. Raises InputError if they are larger than any that was measured."""
    try:
        return [array("q", accumulate(_steps(data))) for data in columns]
    except OverflowError:
        raise InputError(f"{called} is damaged: its numbers are larger than any that was measured") from None


def _steps(data: bytes) -> array[int]:
    steps = array("q")
    steps.frombytes(data)
    if array("H", [1]).tobytes()[0] == 0:
        steps.byteswap()
    return steps
