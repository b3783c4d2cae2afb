"""The folder of a history: files that are only ever added, and removed by `prune` alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from ..base import files
from ..base.errors import InputError, os_reason
from ..records import store
from ..records.types import Run
from ..verdicts import baseline
from ..verdicts.baseline import DEFAULT_METRICS
from . import series
from .commits import Commit
from .series import CommitPoint


class FolderPoints(Struct, frozen=True):
    """The points of a folder, by the path of each file."""

    points: dict[Path, CommitPoint]

    @property
    def commits(self) -> dict[str, Commit]:
        """Each commit by its hash, with all tags that files know."""
        known: dict[str, Commit] = {}
        for point in self.points.values():
            held = known.get(point.commit.hash)
            if held is None or len(point.commit.tags) > len(held.tags):
                known[point.commit.hash] = point.commit
        return known


def load(folder: Path) -> FolderPoints:
    """All points of a folder. Raises InputError if it is missing or empty, or for the first file that cannot be used."""
    try:
        names = sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(".json") and not entry.name.startswith("."))
    except OSError as error:
        raise InputError(f"{folder}: {os_reason(error)}; memprof history add RUNS.jsonl makes it") from None
    if not names:
        raise InputError(f"{folder} holds no history yet: memprof history add RUNS.jsonl begins it")
    loaded = {}
    with _without_collector():
        for name in names:
            path = Path(name)
            try:
                data = files.content(path)
            except OSError as error:
                raise InputError(f"{name}: {os_reason(error)}") from None
            loaded[path] = series.decoded(data, path)
    return FolderPoints(loaded)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Nothing that is read has cycles, and looking for them again and again takes as long as reading."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def add(
    folder: Path, commit: Commit, runs_files: Sequence[str], names: Sequence[str] = ()
) -> tuple[list[Path], list[Path], tuple[str, ...]]:
    """Add what these runs files hold as measurements of a commit: the files written, those that were there already, and warnings.

    Raises InputError for files that cannot be used, and if no run ended well.
    """
    loaded = store.load(runs_files)
    machines: dict[str, list[Run]] = {}
    for run in loaded.runs:
        machines.setdefault(series.machine_key(run.machine), []).append(run)
    all_entries = [baseline.entries(runs, tuple(names) or DEFAULT_METRICS) for runs in machines.values()]
    flat = [entry for entries in all_entries for entry in entries]
    if all(entry.failed == entry.runs for entry in flat):
        raise InputError(f"every run failed ({flat[0].label}: {flat[0].failure}): there is nothing to add")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {os_reason(error)}") from None
    written, known = [], []
    for entries in all_entries:
        name, content = series.encoded(series.of(commit, entries))
        path = folder / name
        if path.exists():
            series.decoded(files.content(path), path)  # torn by a power cut, it must not count as being there
            known.append(path)
        else:
            files.write(path, content)
            written.append(path)
    return written, known, loaded.warnings


def remove(paths: Iterable[Path]) -> None:
    """Remove files. Raises InputError."""
    for path in paths:
        try:
            path.unlink()
        except OSError as error:
            raise InputError(f"{path} cannot be removed: {os_reason(error)}") from None
