"""Regressions that somebody has accepted, in a TOML file: each with a reason and a last day.

    [[acknowledged]]
    model = "inception_*"             # globs (* ? [seq]); a field that is left out means any
    variant = "onert*"
    phase = "PREPARE"
    metric = "*_end_bytes"
    reason = "weights are repacked for the new kernels"
    until = 2027-01-31                # the last day on which it counts

Only regressions can be acknowledged. A budget that is exceeded is raised in its own file, and a run that fails is mended.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ..base import toml
from ..base.errors import UsageError
from .verdicts import Judged


class Acknowledged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An accepted regression: globs of its rows, why it is accepted, and its last day."""

    reason: str
    until: datetime.date
    model: str = "*"
    variant: str = "*"
    phase: str = "*"
    metric: str = "*"

    @property
    def words(self) -> str:
        """Its rows, in words that a reader finds in the file."""
        where = [f"{name} {glob}" for name in ("model", "variant", "phase", "metric") if (glob := getattr(self, name)) != "*"]
        return ", ".join(where) or "all rows"

    def matches(self, row: Judged) -> bool:
        """Whether this row is among its rows."""
        spot = (row.key.model, row.key.heading, row.phase, row.metric)
        return all(fnmatchcase(name, glob) for name, glob in zip(spot, (self.model, self.variant, self.phase, self.metric), strict=True))


class _AcknowledgementFile(msgspec.Struct, forbid_unknown_fields=True):
    acknowledged: list[Acknowledged]


def read(path: Path) -> tuple[Acknowledged, ...]:
    """The regressions that a file acknowledges. Raises InputError if it cannot be read, UsageError if its content is wrong."""
    accepted: list[Acknowledged] = toml.read_named("acknowledged", path, _AcknowledgementFile).acknowledged
    for regression in accepted:
        if not regression.reason.strip():
            raise UsageError(f"acknowledged {path}: {regression.words}: give a reason")
    return tuple(accepted)


def apply(accepted: Sequence[Acknowledged], rows: Sequence[Judged], today: datetime.date) -> tuple[list[Judged], list[str]]:
    """The rows, with accepted regressions marked as such, and remarks on entries that have expired or that no regression matches any more."""
    valid = [entry for entry in accepted if entry.until >= today]
    remarks = [
        f"no longer acknowledged since {entry.until}: {entry.words} ({entry.reason})"
        for entry in accepted
        if entry.until < today and any(row.verdict == "regressed" and entry.matches(row) for row in rows)
    ]
    judged = []
    used = []
    for row in rows:
        match = next((entry for entry in valid if row.verdict == "regressed" and entry.matches(row)), None)
        judged.append(row if match is None else _accepted(row, match))
        used += [match] if match else []
    remarks += [f"acknowledged, and no regression any more: {entry.words}" for entry in valid if entry not in used]
    return judged, remarks


def _accepted(row: Judged, match: Acknowledged) -> Judged:
    return replace(row, verdict="acknowledged", reason=f"{row.reason}; acknowledged until {match.until}: {match.reason}")
