"""What a gate compares: the samples of each row of each variant, from a runs file or from a baseline, a small file made to be committed.

A baseline is JSON with a row a line, so that a diff shows which row moved and by how much:

    {
     "memprof_baseline": 1,
     "memprof": "0.1.0",
     "machines": {NAME: Machine},
     "entries": [
      {"model": ..., "variant": ..., "threads": ..., "machine": NAME, "runtime": ..., "runtime_version": ..., ..., "rows": [
       {"phase": "PEAK", "metric": "rss_peak_bytes", "values": [...]},
       ...
      ]}
     ]
    }

Values are in the metric's unit (bytes, ns or a count), in the order of the repeats. It is decoded strictly.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, os_reason
from ..files import write_whole
from ..runs import metrics, store, summary
from ..runs.records import Machine, Run
from ..runs.settings import written
from ..runs.summary import Key, Row

# The version of a baseline, in its first field, "memprof_baseline".
#   1   2026-11   the first
SCHEMA = 1

DEFAULT_METRICS = ("rss_peak_bytes", "anon_end_bytes")

Place = tuple[str, str, int | None]


@dataclass(frozen=True)
class Entry:
    """A variant of a model: the samples of its rows, and where they come from.

    runs: how many were measured; failed: how many of them did not end well, failure: how the first of those ended, in words. settings: knobs,
    shapes and variables that were set. The two versions are None where no run got far enough to say them.
    """

    model: str
    variant: str
    threads: int | None
    machine: Machine
    runtime: str
    runtime_version: str | None
    python_version: str | None
    sha256: str
    cache: str
    settings: Mapping[str, str]
    runs: int
    failed: int
    failure: str | None
    rows: tuple[Row, ...]

    @property
    def place(self) -> Place:
        """What makes it the counterpart of another side's entry."""
        return self.model, self.variant, self.threads

    @property
    def key(self) -> Key:
        """Its key among Runs."""
        return Key(*self.place, self.machine.name)


@dataclass(frozen=True)
class Side:
    """One side of a gate: its entries, and sentences for the user. from_runs: the runs that they were made of, none for a baseline."""

    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()
    from_runs: tuple[Run, ...] = ()


# -- from Runs


def entries(runs: Sequence[Run], names: Sequence[str] = DEFAULT_METRICS) -> tuple[Entry, ...]:
    """An Entry for each variant, with these metrics in every phase. Raises InputError where one variant has runs of several machines."""
    rows = summary.summarise(runs, names)
    found = []
    for key, group in summary.groups(runs).items():
        found.append(_entry(key, group, tuple(row for row in rows if row.key == key)))
    for entry in found:
        others = sorted({other.machine.name for other in found if other.place == entry.place})
        if len(others) > 1:
            raise InputError(f"{entry.model}, {entry.variant}: one side has runs of {' and '.join(others)}; compare one machine at a time")
    return tuple(found)


def _entry(key: Key, group: Sequence[Run], rows: tuple[Row, ...]) -> Entry:
    first = group[0]
    failed = [run.outcome for run in group if not run.outcome.ok]
    about = next((run.about for run in group if run.about), None)
    job = first.job
    shapes = {f"shape of {name}": "x".join(map(str, shape)) for name, shape in job.shapes.items()}
    variables = {f"variable {name}": str(value) for name, value in job.env.items()}
    return Entry(
        model=key.model,
        variant=key.variant,
        threads=key.threads,
        machine=first.machine,
        runtime=os.path.basename(job.runtime),
        runtime_version=about.runtime_version if about else None,
        python_version=about.python_version if about else None,
        sha256=job.model.sha256,
        cache=job.cache,
        settings={**job.knobs, **shapes, **variables},
        runs=len(group),
        failed=len(failed),
        failure=failed[0].sentence if failed else None,
        rows=rows,
    )


# -- from files


class _FileRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    phase: str
    metric: str
    values: list[float]
    exact: bool = True


class _FileEntry(msgspec.Struct, forbid_unknown_fields=True):
    model: str
    variant: str
    threads: int | None
    machine: str
    runtime: str
    runtime_version: str | None
    python_version: str | None
    sha256: str
    cache: str
    settings: dict[str, str]
    runs: int
    failed: int
    failure: str | None
    rows: list[_FileRow]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    memprof_baseline: int
    memprof: str
    machines: dict[str, Machine]
    entries: list[_FileEntry]


def load(paths: Sequence[str | Path], names: Sequence[str] = DEFAULT_METRICS) -> Side:
    """The entries in a baseline, or in one or several runs files, with these metrics where they have them.

    Raises InputError for a file that is missing, empty, torn, neither of the two, or from a newer memprof.
    """
    if len(paths) == 1 and not _holds_runs(Path(paths[0])):
        return Side(_only(read(Path(paths[0])), names))
    loaded = store.load(paths)
    return Side(entries(loaded.runs, names), loaded.warnings, loaded.runs)


def _holds_runs(path: Path) -> bool:
    try:
        pipe = stat.S_ISFIFO(path.stat().st_mode)
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    if pipe:
        raise InputError(f"{path} is a pipe: it is read more than once, so it must be a file")
    return store.is_runs_file(path)


def _only(found: Iterable[Entry], names: Sequence[str]) -> tuple[Entry, ...]:
    return tuple(replace(entry, rows=tuple(row for row in entry.rows if row.metric in names)) for entry in found)


def read(path: Path) -> tuple[Entry, ...]:
    """The entries of a baseline. Raises InputError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    if not data:
        raise InputError(f"{path} is empty")
    file = _decoded(data, path)
    if not any(entry.rows or entry.failed for entry in file.entries):
        raise InputError(f"{path} is a baseline without a row")
    return tuple(_read_entry(entry, file.machines, path) for entry in file.entries)


def _decoded(data: bytes, path: Path) -> _File:
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        version = _version(data)
        if version is None and data.lstrip()[:18].startswith(b'{\n "memprof_baseli'[: len(data.lstrip()[:18])]):
            raise InputError(f"{path} is torn: {error}") from None
        if version is None:
            raise InputError(f"{path} is neither a runs file nor a baseline of memprof") from None
        if version > SCHEMA:
            raise InputError(f"{path} was written by a newer memprof (schema {version}; this one reads up to {SCHEMA})") from None
        raise InputError(f"{path}: {error}") from None
    if file.memprof_baseline > SCHEMA:
        raise InputError(f"{path} was written by a newer memprof (schema {file.memprof_baseline}; this one reads up to {SCHEMA})")
    return file


def _version(data: bytes) -> int | None:
    try:
        found: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    version = found.get("memprof_baseline") if isinstance(found, dict) else None
    return version if isinstance(version, int) else None


def _read_entry(entry: _FileEntry, machines: Mapping[str, Machine], path: Path) -> Entry:
    machine = machines.get(entry.machine)
    if machine is None:
        raise InputError(f"{path}: {entry.model}, {entry.variant} comes from the machine {entry.machine!r}, which is not described")
    bad = next((row for row in entry.rows if row.metric not in metrics.METRICS or not row.values), None)
    if bad is not None:
        what = "has no value" if bad.metric in metrics.METRICS else "is no metric of this memprof"
        raise InputError(f"{path}: {entry.model}, {entry.variant}, {bad.phase}: {bad.metric} {what}")
    key = Key(entry.model, entry.variant, entry.threads, machine.name)
    rows = tuple(summary.row(key, row.phase, row.metric, tuple(row.values), row.exact) for row in entry.rows)
    facts = {name: getattr(entry, name) for name in entry.__struct_fields__ if name not in ("machine", "rows")}
    return Entry(machine=machine, rows=rows, **facts)


# -- into a file


@dataclass(frozen=True)
class Updated:
    """What an update did: rows whose median is another one (before and after; None for a row that only one of them has), and entries kept."""

    changed: tuple[tuple[Row | None, Row | None], ...]
    kept: tuple[Entry, ...]


def update(path: Path, found: Sequence[Entry]) -> Updated:
    """Write these entries as the baseline at `path`; entries that it had for other variants stay.

    Raises InputError where the file is something else, or cannot be written, or where an entry has no run that ended well.
    """
    for entry in found:
        if entry.failed == entry.runs:
            raise InputError(f"{entry.model}, {entry.variant}: every run failed ({entry.failure}); a baseline needs runs that ended well")
    before = read(path) if path.exists() else ()
    places = {entry.place for entry in found}
    kept = tuple(entry for entry in before if entry.place not in places)
    replaced = [entry for entry in before if entry.place in places]
    write_whole(path, _encoded([*kept, *found]))
    return Updated(_changed(replaced, found), kept)


def _changed(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[tuple[Row | None, Row | None], ...]:
    old = {(*entry.place, row.phase, row.metric): row for entry in before for row in entry.rows}
    new = {(*entry.place, row.phase, row.metric): row for entry in after for row in entry.rows}
    pairs = [(old.get(place), new.get(place)) for place in dict.fromkeys([*old, *new])]
    return tuple((one, other) for one, other in pairs if one is None or other is None or one.median != other.median)


def _encoded(found: Sequence[Entry]) -> bytes:
    ordered = sorted(found, key=lambda entry: (entry.model, entry.variant, entry.threads or 0))
    names: dict[str, Machine] = {}
    parts = [_encoded_entry(entry, _machine_name(entry.machine, names)) for entry in ordered]
    machines = ",\n".join(f"  {_json(name)}: {_json(asdict(machine))}" for name, machine in sorted(names.items()))
    head = f' "memprof_baseline": {SCHEMA},\n "memprof": {_json(metadata.version("ml-memprof"))},\n "machines": {{\n{machines}\n }}'
    text = "{\n" + head + ',\n "entries": [\n' + ",\n".join(parts) + "\n ]\n}\n"
    return text.encode()


def _machine_name(machine: Machine, names: dict[str, Machine]) -> str:
    """The name under which a machine is described; one that has changed since (another kernel) is described a second time."""
    count = 1
    while names.setdefault(name := machine.name if count == 1 else f"{machine.name} ({count})", machine) != machine:
        count += 1
    return name


def _encoded_entry(entry: Entry, machine: str) -> str:
    facts = {**asdict(replace(entry, rows=())), "machine": machine}
    del facts["rows"]
    rows = [_FileRow(row.phase, row.metric, [_plain(value) for value in row.values], row.exact) for row in entry.rows]
    lines = ",\n".join(f"   {_json(row)}" for row in rows)
    return f'  {_json(facts)[:-1]},"rows":[\n{lines}\n  ]}}'


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# -- the same machine?


def differing(base: Sequence[Entry], head: Sequence[Entry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What else differs between the entries that both sides have, in words: where they were measured, and what was asked for."""
    before = {entry.place: entry for entry in base}
    pairs = [(before[entry.place], entry) for entry in head if entry.place in before]
    facts: dict[str, Callable[[Entry], str | None]] = {
        "machine": lambda entry: f"{entry.machine.name} ({entry.machine.cpu}, {entry.machine.cpus} CPUs)",
        "kernel": lambda entry: entry.machine.kernel,
        "C library": lambda entry: entry.machine.libc,
        "runtime version": lambda entry: f"{entry.runtime} {entry.runtime_version}" if entry.runtime_version else None,
        "Python": lambda entry: entry.python_version,
    }
    foreign = []
    for name, fact in facts.items():
        both = dict.fromkeys((fact(one), fact(other)) for one, other in pairs)
        said = [f"{one} against {other}" for one, other in both if one != other and None not in (one, other)]
        foreign += [f"{name} differs: {', '.join(said)}"] if said else []
    asked = [sentence for one, other in pairs for sentence in _settings(one, other)]
    changed = sorted({one.model for one, other in pairs if one.sha256 != other.sha256})
    return tuple(foreign), (*asked, *(f"{name} is not the same file on both sides" for name in changed))


def _settings(one: Entry, other: Entry) -> Iterator[str]:
    sides = [{**written(entry.settings), "page cache": entry.cache} for entry in (one, other)]
    for name in sorted({**sides[0], **sides[1]}):
        values = [side.get(name, "default") for side in sides]
        if values[0] != values[1]:
            yield f"{one.model}, {one.variant}: {name} differs: {values[0]} against {values[1]}"
