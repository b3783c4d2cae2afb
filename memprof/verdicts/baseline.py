"""Both sides of a gate: the samples of each row of each variant, from a runs file or from a baseline, a small file made to be committed.

A baseline is JSON with one row per line, so that a diff shows which row moved and by how much:

    {
     "memprof_baseline": 2,
     "memprof": "0.1.0",
     "machines": {NAME: Machine},
     "entries": [
      {"model": ..., "variant": ..., "threads": ..., "machine": NAME, ..., "settings": {"runtime": ..., "runs": ...}, ..., "rows": [
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
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ..base import files
from ..base.errors import InputError, os_reason
from ..records import metrics, settings, store, summary
from ..records.summary import Key, KeyFields, Row, VariantKey
from ..records.types import COMMAND, JobSide, Machine, Run

# The version of a baseline, in its first field, "memprof_baseline".
#   1   2026-11   the first
#   2   2026-11   settings hold all that makes figures comparable: warm-up, runs, versions of packages ...
#       since then optional: of a row whose pages were swapped out, `swapped` and its values `with_swap`; `machines`, of a row of
#       interchangeable machines; `version` and `side` of an entry; `missed`, of a row whose peaks polling saw
SCHEMA = 2
# Settings that a baseline of schema 1 lacks: those that each baseline of schema 2 has, and those that some have.
_SINCE_2 = {"warm-up", "runs", "deterministic", "hold"}
_MAY_BE_SINCE_2 = {"inputs", "command", "phases by symbol", "phases by output", "limit", "CPUs", "swap"}

_MOST = 1 << 63
_MOST_REPEATS = 2000  # of a row: the time of a verdict grows with them

DEFAULT_METRICS = ("rss_peak_bytes", "anon_end_bytes")


class BaselineEntry(KeyFields, Struct, frozen=True):
    """A variant of a model: the samples of its rows, and where they come from. The other side's entry with the same place is its counterpart.

    runs: how many were measured; failed: how many of them did not end well; failure: how the first of those ended, in words. settings: how
    they were measured (see memprof.records.settings), without paths that differ between checkouts.
    """

    model: str
    variant: str
    threads: int | None
    machine: Machine
    sha256: str
    settings: Mapping[str, str]
    runs: int
    failed: int
    failure: str | None
    rows: tuple[Row, ...]
    version: str | None = None
    side: JobSide | None = None

    @property
    def key(self) -> Key:
        """Its key among Runs."""
        return self.place.on(self.machine.name)


class GateSide(Struct, frozen=True):
    """A side of a gate: its entries, and sentences for the user. from_runs: the runs that they were made of, none for a baseline."""

    entries: tuple[BaselineEntry, ...]
    warnings: tuple[str, ...] = ()
    from_runs: tuple[Run, ...] = ()


# -- from Runs


def entries(runs: Sequence[Run], names: Sequence[str] = DEFAULT_METRICS) -> tuple[BaselineEntry, ...]:
    """A BaselineEntry for each variant, with these metrics in every phase. Raises InputError if a variant has runs of several machines."""
    rows = summary.summarise(runs, names)
    groups = summary.groups_of_one_machine(runs)
    return tuple(_entry(key, group, tuple(row for row in rows if row.key == key)) for key, group in groups.items())


def _entry(key: Key, group: Sequence[Run], rows: tuple[Row, ...]) -> BaselineEntry:
    first = group[0]
    failed = [run.outcome for run in group if not run.outcome.ok]
    return BaselineEntry(
        model=key.model,
        variant=key.variant,
        threads=key.threads,
        machine=first.machine,
        sha256=first.job.model.sha256,
        settings=portable(settings.of_repeats(group)),
        runs=len(group),
        failed=len(failed),
        failure=failed[0].sentence if failed else None,
        rows=rows,
        version=key.version,
        side=key.side,
    )


def portable(way: Mapping[str, str]) -> dict[str, str]:
    """How a run was measured (see settings.of_repeats), without where files lie and a program's content.

    These differ between two checkouts of the same code.
    """
    kept = {name: value for name, value in way.items() if name not in ("folder", "program")}
    for name in ("runtime", "inputs", "command"):
        if name in kept:
            kept[name] = " ".join(os.path.basename(word) if os.path.isabs(word) else word for word in kept[name].split(" "))
    return kept


# -- from files


class _FileRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    phase: str
    metric: str
    values: list[float]
    exact: bool = True
    swapped: int = 0
    with_swap: list[float] = []
    machines: list[str] = []
    missed: int = 0


class _FileEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    model: str
    variant: str
    threads: int | None
    machine: str
    sha256: str
    settings: dict[str, str]
    runs: int
    failed: int
    failure: str | None
    rows: list[_FileRow]
    version: str | None = None
    side: JobSide | None = None
    # of schema 1; since 2 they stand among the settings
    runtime: str | None = None
    runtime_version: str | None = None
    python_version: str | None = None
    cache: str | None = None


class _BaselineFile(msgspec.Struct, forbid_unknown_fields=True):
    memprof_baseline: int
    memprof: str
    machines: dict[str, Machine]
    entries: list[_FileEntry]


def load(paths: Sequence[str | Path], names: Sequence[str] = DEFAULT_METRICS) -> GateSide:
    """The entries in a baseline, or in one or several runs files, with these metrics as far as they have them.

    Raises InputError for a file that is missing, empty, torn, neither of the two, or from a newer memprof.
    """
    if len(paths) == 1 and not _holds_runs(Path(paths[0])):
        return GateSide(_with_metrics(read(Path(paths[0])), names))
    loaded = store.load(paths)
    return GateSide(entries(loaded.runs, names), loaded.warnings, loaded.runs)


def _holds_runs(path: Path) -> bool:
    try:
        pipe = stat.S_ISFIFO(path.stat().st_mode)
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    if pipe:
        raise InputError(f"{path} is a pipe: it is read more than once, so it must be a file")
    return store.is_runs_file(path)


def _with_metrics(entries: Iterable[BaselineEntry], names: Sequence[str]) -> tuple[BaselineEntry, ...]:
    return tuple(replace(entry, rows=tuple(row for row in entry.rows if row.metric in names)) for entry in entries)


def read(path: Path) -> tuple[BaselineEntry, ...]:
    """The entries of a baseline. Raises InputError."""
    try:
        data = files.content(path)
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    if not data:
        raise InputError(f"{path} is empty")
    file = _decoded(data, path)
    if not any(entry.rows or entry.failed for entry in file.entries):
        raise InputError(f"{path} is a baseline without a row")
    return tuple(_read_entry(entry, file.machines, path) for entry in file.entries)


def _decoded(data: bytes, path: Path) -> _BaselineFile:
    try:
        file = msgspec.json.decode(data, type=_BaselineFile)
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
        content: Any = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    version = content.get("memprof_baseline") if isinstance(content, dict) else None
    return version if isinstance(version, int) else None


def _read_entry(entry: _FileEntry, machines: Mapping[str, Machine], path: Path) -> BaselineEntry:
    place = VariantKey(entry.model, entry.variant, entry.threads, entry.version, entry.side)
    called = f"{path}: {entry.model}, {place.heading}"
    machine = machines.get(entry.machine)
    if machine is None:
        raise InputError(f"{called} comes from the machine {entry.machine!r}, which is not described")
    longest = max((len(row.values) for row in entry.rows), default=0)
    if longest > _MOST_REPEATS:
        raise InputError(f"{called}: {longest} repeats are more than can be judged; {_MOST_REPEATS} are the most")
    if not all(0 <= value < _MOST for row in entry.rows for value in (*row.values, *row.with_swap, row.swapped, row.missed)):
        raise InputError(f"{called}: a value is below 0, or larger than any that was measured")
    if any(len(row.with_swap) not in (0, len(row.values)) for row in entry.rows):
        raise InputError(f"{called}: a row has more or fewer values with_swap than without")
    if any(len(row.machines) not in (0, len(row.values)) for row in entry.rows):
        raise InputError(f"{called}: a row has more or fewer machines than values")
    bad = next((row for row in entry.rows if row.metric not in metrics.METRICS or not row.values), None)
    if bad is not None:
        what = "has no value" if bad.metric in metrics.METRICS else "is not a metric of this memprof"
        raise InputError(f"{called}, {bad.phase}: {bad.metric} {what}")
    rows = tuple(_read_row(place.on(machine.name), row) for row in entry.rows)
    first = {"runtime": entry.runtime, "runtime version": entry.runtime_version, "Python": entry.python_version, "page cache": entry.cache}
    facts = {name: getattr(entry, name) for name in BaselineEntry.__struct_fields__ if name not in ("machine", "rows", "settings")}
    way = {**{name: value for name, value in first.items() if value}, **settings.written(entry.settings)}
    return BaselineEntry(machine=machine, rows=rows, settings=way, **facts)


def _read_row(key: Key, row: _FileRow) -> Row:
    values, with_swap = tuple(row.values), tuple(row.with_swap)
    return summary.Row(key, row.phase, row.metric, values, row.exact, row.swapped, with_swap, tuple(row.machines), row.missed)


# -- into a file


class Updated(Struct, frozen=True):
    """What an update did: rows whose median changed (before and after; None for a row that is not there), and entries kept."""

    changed: tuple[tuple[Row | None, Row | None], ...]
    kept: tuple[BaselineEntry, ...]


def update(path: Path, measured: Sequence[BaselineEntry]) -> Updated:
    """Write these entries as the baseline at `path`; entries that it had for other variants stay.

    Raises InputError if the file is something else or cannot be written, or if an entry has no run that ended well.
    """
    for entry in measured:
        if entry.failed == entry.runs:
            raise InputError(f"{entry.label}: every run failed ({entry.failure}); a baseline needs runs that ended well")
    before = read(path) if path.exists() else ()
    places = {entry.place for entry in measured}
    kept = tuple(entry for entry in before if entry.place not in places)
    replaced = [entry for entry in before if entry.place in places]
    files.write(path, _encoded([*kept, *measured]))
    return Updated(_changed(replaced, measured), kept)


def _changed(before: Sequence[BaselineEntry], after: Sequence[BaselineEntry]) -> tuple[tuple[Row | None, Row | None], ...]:
    old = {(*entry.place, row.phase, row.metric): row for entry in before for row in entry.rows}
    new = {(*entry.place, row.phase, row.metric): row for entry in after for row in entry.rows}
    pairs = [(old.get(place), new.get(place)) for place in dict.fromkeys([*old, *new])]
    return tuple((row, now) for row, now in pairs if row is None or now is None or row.median != now.median)


def _encoded(entries: Sequence[BaselineEntry]) -> bytes:
    from importlib import metadata  # here: it loads email, and a gate only reads

    ordered = sorted(entries, key=lambda entry: (entry.model, entry.heading, entry.threads or 0))
    names: dict[str, Machine] = {}
    parts = [_encoded_entry(entry, _machine_name(entry.machine, names)) for entry in ordered]
    machines = ",\n".join(f"  {_json(name)}: {_json(to_builtins(machine))}" for name, machine in sorted(names.items()))
    head = f' "memprof_baseline": {SCHEMA},\n "memprof": {_json(metadata.version("ml-memprof"))},\n "machines": {{\n{machines}\n }}'
    text = "{\n" + head + ',\n "entries": [\n' + ",\n".join(parts) + "\n ]\n}\n"
    return text.encode()


def _machine_name(machine: Machine, names: dict[str, Machine]) -> str:
    """The name under which a machine is described; a machine that has changed since (another kernel) is described a second time."""
    count = 1
    while names.setdefault(name := machine.name if count == 1 else f"{machine.name} ({count})", machine) != machine:
        count += 1
    return name


def _encoded_entry(entry: BaselineEntry, machine: str) -> str:
    facts = {**to_builtins(replace(entry, rows=())), "machine": machine}
    for name in ("rows", *(name for name in ("version", "side") if facts[name] is None)):
        del facts[name]
    rows = [
        _FileRow(row.phase, row.metric, _plain(row.values), row.exact, row.swapped, _plain(row.with_swap), list(row.machines), row.missed)
        for row in entry.rows
    ]
    lines = ",\n".join(f"   {_json(row)}" for row in rows)
    return f'  {_json(facts)[:-1]},"rows":[\n{lines}\n  ]}}'


def _plain(values: Iterable[float]) -> list[float]:
    return [int(value) if value == int(value) else value for value in values]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


# -- other names


def renamed(base: Sequence[BaselineEntry], head: Sequence[BaselineEntry]) -> tuple[tuple[BaselineEntry, ...], tuple[str, ...]]:
    """Base's entries with the names that head has for models of the same content and for programs, and a sentence for each such name."""
    names = renames({entry.model: entry.sha256 for entry in base}, {entry.model: entry.sha256 for entry in head})
    entries = [
        _called(entry, name, name if entry.variant == entry.model else entry.variant)  # a program that names no model is both
        for entry in base
        for name in [names.get(entry.model, entry.model)]
    ]
    programs = _named_programs(entries, head)
    entries = [_called(entry, entry.model, entry.model if entry.model in programs else entry.variant) for entry in entries]
    remarks = (f"{name}: base's {old} is this program, which --name now names wholly" for name, old in programs.items())
    return tuple(entries), (*renaming_remarks(names), *remarks)


def _called(entry: BaselineEntry, model: str, variant: str) -> BaselineEntry:
    return replace(
        entry,
        model=model,
        variant=variant,
        rows=tuple(replace(row, key=replace(row.key, model=model, variant=variant)) for row in entry.rows),
    )


def _named_programs(base: Sequence[BaselineEntry], head: Sequence[BaselineEntry]) -> dict[str, str]:
    """The only variant that base has of a program, by the name that head has for it and its model: --name once named the model alone."""
    old, new = ({entry.model: {each.variant for each in side if each.model == entry.model} for entry in side} for side in (base, head))
    programs = [entry.model for entry in head if new[entry.model] == {entry.model} and entry.settings.get("runtime") == COMMAND]
    return {name: next(iter(old[name])) for name in programs if len(old.get(name, ())) == 1 and old[name] != {name}}


def renames(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The new name of each name that is gone, if a new name has the same content. before, after: a content's hash by name."""
    fresh = {content: name for name, content in after.items() if name not in before}
    return {name: fresh.pop(content) for name, content in before.items() if name not in after and content in fresh}


def renaming_remarks(names: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each new name, by the old one."""
    return tuple(f"{new} is base's {old} under another name" for old, new in names.items())


# -- differences


def differing(base: Sequence[BaselineEntry], head: Sequence[BaselineEntry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Other differences between the entries that both sides have, in words: where they were measured, and how."""
    before = {entry.place: entry for entry in base}
    pairs = [(before[entry.place], entry) for entry in head if entry.place in before]
    surroundings, asked = settings.difference_remarks((entry.label, *_ways(old, entry)) for old, entry in pairs)
    changed = sorted({entry.model for old, entry in pairs if old.sha256 != entry.sha256})
    return surroundings, (*asked, *(f"{name} is not the same file on both sides" for name in changed))


def changes(base: BaselineEntry, head: BaselineEntry) -> tuple[str, ...]:
    """Other changes between two entries of one place, briefly: `numpy 1.26 → 2.0`."""
    return settings.changes(*_ways(base, head), head.model, base.sha256 == head.sha256)


def _ways(base: BaselineEntry, head: BaselineEntry) -> tuple[dict[str, str], dict[str, str]]:
    """How both were measured; if a side is a baseline of schema 1, only settings that it has too."""
    ways = [{**settings.of_machine(entry.machine), **entry.settings} for entry in (base, head)]
    if not all(way.keys() >= _SINCE_2 for way in ways):
        ways = [{name: value for name, value in way.items() if name not in (*_SINCE_2, *_MAY_BE_SINCE_2)} for way in ways]
    return ways[0], ways[1]
