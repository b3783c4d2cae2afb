"""Regressions that somebody has accepted, in a TOML file: each with a reason, and a day on which it ends.

    [[acknowledged]]
    model = "inception_*"             # globs (* ? [seq]); what is not named is any
    variant = "onert*"
    phase = "PREPARE"
    metric = "*_end_bytes"
    reason = "weights are repacked for the new kernels"
    until = 2027-01-31                # the last day on which it counts

Only regressions can be acknowledged: a budget that is exceeded is raised where it stands, and a run that fails is to be mended.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from .. import toml
from ..errors import InputError, UsageError, os_reason
from .verdicts import Judged


class Acknowledged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accepted regression: globs of the rows that it is about, why it is accepted, and its last day."""

    reason: str
    until: datetime.date
    model: str = "*"
    variant: str = "*"
    phase: str = "*"
    metric: str = "*"

    @property
    def words(self) -> str:
        """What it is about, as its reader finds it in the file."""
        where = [f"{name} {glob}" for name in ("model", "variant", "phase", "metric") if (glob := getattr(self, name)) != "*"]
        return ", ".join(where) or "all rows"

    def matches(self, row: Judged) -> bool:
        """Whether it is about this row."""
        spot = (row.key.model, row.key.variant, row.phase, row.metric)
        return all(fnmatchcase(name, glob) for name, glob in zip(spot, (self.model, self.variant, self.phase, self.metric), strict=True))


class _File(msgspec.Struct, forbid_unknown_fields=True):
    acknowledged: list[Acknowledged]


def read(path: Path) -> tuple[Acknowledged, ...]:
    """What a file acknowledges. Raises InputError where it cannot be read, UsageError for what it cannot say."""
    try:
        found: list[Acknowledged] = toml.read(path, _File).acknowledged
    except OSError as error:
        raise InputError(f"acknowledged {path}: {os_reason(error)}") from None
    except ValueError as error:
        raise UsageError(f"acknowledged {path}: {error}") from None
    for each in found:
        if not each.reason.strip():
            raise UsageError(f"acknowledged {path}: {each.words}: give a reason")
    return tuple(found)


def apply(accepted: Sequence[Acknowledged], rows: Sequence[Judged], today: datetime.date) -> tuple[list[Judged], list[str]]:
    """The rows, those that are accepted no longer regressions, and sentences on what has expired or is about nothing any more."""
    valid = [each for each in accepted if each.until >= today]
    said = [
        f"no longer acknowledged since {each.until}: {each.words} ({each.reason})"
        for each in accepted
        if each.until < today and any(row.verdict == "regressed" and each.matches(row) for row in rows)
    ]
    judged = []
    used = []
    for row in rows:
        match = next((each for each in valid if row.verdict == "regressed" and each.matches(row)), None)
        judged.append(row if match is None else _accepted(row, match))
        used += [match] if match else []
    said += [f"acknowledged, and no regression any more: {each.words}" for each in valid if each not in used]
    return judged, said


def _accepted(row: Judged, match: Acknowledged) -> Judged:
    return replace(row, verdict="acknowledged", reason=f"{row.reason}; acknowledged until {match.until}: {match.reason}")
