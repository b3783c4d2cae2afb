"""Several runs files as one: every line checked and kept as it is, runs that two files have taken once, and what contradicts itself refused.

Lines are read one at a time, so files may be larger than memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, UsageError
from . import attempts, store


class Merged(Struct, frozen=True):
    """How many runs were kept, and how many were left out because an earlier file has them."""

    kept: int
    duplicates: int


def merge(paths: Sequence[Path], keep: Callable[[bytes], object], say: Callable[[str], None]) -> Merged:
    """Give each run of the files to `keep`, a line at a time, once. say: told of a torn last line.

    A job that one file holds several times was measured several times. Raises InputError, before anything is kept, for a file that cannot be
    read, for two files that hold different runs of a job, and for two models of one name.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a file is named twice: name each part once")
    left_out = _duplicates(paths, say)
    kept = 0
    for path in paths:
        for where, line in store.lines(path, lambda _: None):
            if where not in left_out:
                keep(line + b"\n")
                kept += 1
    return Merged(kept, len(left_out))


def _duplicates(paths: Sequence[Path], say: Callable[[str], None]) -> set[str]:
    """The lines, as `store.lines` names them, that an earlier file has."""
    seen: dict[str, dict[bytes, str]] = {}  # by run: the content of each line, and where it was met first
    models: dict[str, tuple[str, str]] = {}
    left_out = set()
    for path in paths:
        here: dict[str, dict[bytes, str]] = {}
        for where, content, name, sha256, identity in _facts(path, say):
            known, first = models.setdefault(name, (sha256, where))
            if known != sha256:
                raise InputError(f"{name} is not the same file in {first} and {where}: their rows would look the same")
            if content in seen.get(identity, ()):
                left_out.add(where)
            here.setdefault(identity, {})[content] = where
        for identity, contents in here.items():
            before = seen.setdefault(identity, {})
            if before and not (contents.keys() <= before.keys() or before.keys() <= contents.keys()):
                first, second = next(iter(before.values())), next(where for content, where in contents.items() if content not in before)
                raise InputError(f"{first} and {second} are different runs of the same job: a job belongs in one part")
            before.update({content: where for content, where in contents.items() if content not in before})
    return left_out


def _facts(path: Path, say: Callable[[str], None]) -> Iterator[tuple[str, bytes, str, str, str]]:
    for where, line in store.lines(path, say):
        run = store.decode(line, where)
        yield where, hashlib.sha256(line).digest(), run.job.model.name, run.job.model.sha256, attempts.identity(run)
