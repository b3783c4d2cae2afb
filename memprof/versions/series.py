"""A file of a history: what was measured of a commit on a machine.

    {"memprof_history": 1, "memprof": "0.1.0",
     "commit": {"hash": ..., "time_s": ..., "parents": [...], "subject": ..., "tags": [...]},
     "machine": Machine,
     "entries": [
      {"model": ..., "variant": ..., "threads": ..., "sha256": ..., "settings": {...}, "runs": 5, "failed": 0, "failure": null, "rows": [
       {"phase": "PEAK", "metric": "rss_peak_bytes", "values": [...]}]}]}

Values are in the metric's unit, in the order of the repeats; pages that were swapped out are in them. The file's name has the commit, the
machine and a hash of the content: no file is ever changed, so that two branches that both add files merge without a conflict.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ..base.errors import InputError
from ..records import metrics, summary
from ..records.summary import VariantKey
from ..records.types import JobSide, Machine
from ..verdicts.baseline import BaselineEntry
from .commits import Commit

# The version of a file, in its first field, "memprof_history".
#   1   2026-11   the first
#       since then optional: `version` and `side` of an entry
SCHEMA = 1
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOST = 1 << 63
_YEAR_10000_S = 253_402_300_800


# Structs without a place in Python's search for cycles, which would take most of the time: a history has many of them.
class MetricSamples(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The samples of a metric in a phase. exact: no value comes from polling alone."""

    phase: str
    metric: str
    values: tuple[float, ...]
    exact: bool = True


class CommitEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A variant of a model at a commit; see `memprof.verdicts.baseline.BaselineEntry`."""

    model: str
    variant: str
    threads: int | None
    sha256: str
    settings: Mapping[str, str]
    runs: int
    failed: int
    failure: str | None
    rows: tuple[MetricSamples, ...]
    version: str | None = None
    side: JobSide | None = None

    @property
    def place(self) -> VariantKey:
        """What it is measured of, on whatever machine."""
        return VariantKey(self.model, self.variant, self.threads, self.version, self.side)


class CommitPoint(Struct, frozen=True):
    """A file's content."""

    commit: Commit
    machine: Machine
    entries: tuple[CommitEntry, ...]


class _PointFile(msgspec.Struct, forbid_unknown_fields=True):
    memprof_history: int
    memprof: str
    commit: Commit
    machine: Machine
    entries: tuple[CommitEntry, ...]


class _Version(msgspec.Struct):
    memprof_history: int


_DECODER = msgspec.json.Decoder(_PointFile)


def of(commit: Commit, entries: Sequence[BaselineEntry]) -> CommitPoint:
    """The point of these entries, which come from one machine."""
    measured = tuple(
        CommitEntry(
            entry.model,
            entry.variant,
            entry.threads,
            entry.sha256,
            dict(entry.settings),
            entry.runs,
            entry.failed,
            entry.failure,
            tuple(MetricSamples(row.phase, row.metric, _plain(summary.whole(row).values), row.exact) for row in entry.rows),
            entry.version,
            entry.side,
        )
        for entry in sorted(entries, key=lambda entry: (entry.model, entry.heading, entry.threads or 0))
    )
    return CommitPoint(commit, entries[0].machine, measured)


def _plain(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(int(value) if value == int(value) else value for value in values)


def encoded(point: CommitPoint) -> tuple[str, bytes]:
    """The file's name and content."""
    head = {
        "memprof_history": SCHEMA,
        "memprof": metadata.version("ml-memprof"),
        "commit": asdict(point.commit),
        "machine": asdict(point.machine),
    }
    parts = []
    for entry in point.entries:
        facts = msgspec.to_builtins(msgspec.structs.replace(entry, rows=()))
        del facts["rows"]
        rows = ",\n".join(f"   {_json(row)}" for row in entry.rows)
        parts.append(f'  {_json(facts)[:-1]},"rows":[\n{rows}\n  ]}}')
    text = _json(head)[:-1] + ',\n "entries":[\n' + ",\n".join(parts) + "\n ]}\n"
    content = text.encode()
    # Tags may come later, and another memprof may write the same figures: neither makes them other figures.
    digest = hashlib.sha256(_json([point.commit.hash, asdict(point.machine), point.entries]).encode())
    machine = re.sub(r"[^A-Za-z0-9]+", "-", point.machine.name).strip("-")[:32] or "machine"
    return f"{point.commit.hash[:12]}-{machine}-{digest.hexdigest()[:12]}.json", content


def machine_key(machine: Machine) -> str:
    """Text that is the same for the same machine."""
    return _json(asdict(machine))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def decoded(data: bytes, path: Path) -> CommitPoint:
    """The point in a file. Raises InputError for a file that is torn, of a newer memprof, or something else."""
    try:
        file = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(_why(data, path, error)) from None
    if file.memprof_history > SCHEMA:
        raise InputError(_newer(path, file.memprof_history))
    if not _HASH.fullmatch(file.commit.hash):
        raise InputError(f"{path}: {file.commit.hash!r} is no commit's hash")
    if not 0 <= file.commit.time_s < _YEAR_10000_S:
        raise InputError(f"{path}: {file.commit.time_s} s is no commit's time")
    for entry in file.entries:
        for row in entry.rows:
            if row.metric not in metrics.METRICS or not row.values:
                what = "has no value" if row.metric in metrics.METRICS else "is no metric of this memprof"
                raise InputError(f"{path}: {entry.place.label}, {row.phase}: {row.metric} {what}")
            if not (min(row.values) >= 0 and max(row.values) < _MOST):
                raise InputError(f"{path}: {entry.place.label}: a value is below 0, or larger than any that was measured")
    return CommitPoint(file.commit, file.machine, file.entries)


def _why(data: bytes, path: Path, error: Exception) -> str:
    if not data:
        return f"{path} is empty: it was not written to its end; remove it and add its runs again"
    try:
        version = msgspec.json.decode(data, type=_Version).memprof_history
    except (ValueError, RecursionError):
        if data.lstrip().startswith(b'{"memprof_history"'):
            return f"{path} is torn: {error}; remove it and add its runs again"
        marks = any(line in data for line in (b"\n<<<<<<< ", b"\n>>>>>>> ")) or data.startswith(b"<<<<<<< ")
        return f"{path} has the marks of a merge conflict" if marks else f"{path} is not a file of a memprof history"
    return _newer(path, version) if version > SCHEMA else f"{path}: {error}"


def _newer(path: Path, version: int) -> str:
    return f"{path} was written by a newer memprof (schema {version}; this one reads up to {SCHEMA})"
