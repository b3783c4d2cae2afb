"""What `bisect` is asked, and what is known of that question: from an earlier memprof that was stopped, and from this one.

Every run is kept in the cache as soon as it exists, under the question's hash, and so is the reason why a version could not be measured. The same
question goes on where an earlier memprof was stopped, if machine, models and interpreters are those of then; once it is answered all is removed. If
an error ended the search, it tries again what could not be measured: there may be a network or a tool now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields

from ...base import files
from ...base.cache import cache_folder
from ...base.units import counted
from ...campaign.fleet.search_client import Machines
from ...explain.records import Explanation
from ...places.place import HERE
from ...records import settings, store
from ...records.types import Machine, Run
from ...subjects.suite import Suite
from ...verdicts.verdicts import Limits
from .version_range import Versions


class BisectRequest(Struct, frozen=True):
    """What is asked. variant, model: the place to follow, None for the one that differs most between the ends. explain: whether both sides are
    explained at the end. vary, per: of a law or of growth. fleet: the machines to measure on, None for this machine."""

    versions: Versions
    metric: str = "rss_peak_bytes"
    phase: str | None = None
    model: str | None = None
    variant: str | None = None
    limits: Limits = field(default_factory=Limits)
    every: bool = False
    explain: bool = True
    vary: tuple[str, ...] = ()
    per: str | None = None
    fleet: Machines | None = None

    @property
    def suite(self) -> Suite:
        """What is measured of each version, as it was asked."""
        return self.versions.suite


class StepSide(Struct, frozen=True):
    """A side of a step, explained; why: the reason if it could not be. heap_record: the command that profiles its heap, as far as its build stays."""

    explanation: Explanation | None
    why: str = ""
    heap_record: str = ""


def heap_folder(label: str) -> str:
    """The folder for the heap profile of a version."""
    return f"heap-{label}"


class SearchConditions(Struct, frozen=True):
    """What figures of a search hold for: the machine, None on a fleet, whose labels are in the question, and the facts of `Versions`."""

    machine: Machine | None
    facts: dict[str, str]


class SearchState:
    """What is known of a question from an earlier memprof and from this one, in files of the cache."""

    def __init__(self, request: BisectRequest, say: Callable[[str], None]) -> None:
        # The place is left out: it is this machine, and its text is an address that differs in each process.
        words = {each.name: getattr(request.suite, each.name) for each in fields(request.suite) if each.name != "place"}
        asked = f"{request.versions.key} {words} {request.metric} {request.phase} {request.model} {request.variant} {request.vary} {request.per}"
        if request.fleet is not None:
            asked += f" {request.fleet.name}"
        stem = cache_folder("bisect") / hashlib.sha256(asked.encode()).hexdigest()[:32]
        self._runs_path, self._failures_path, self._values_path, self._conditions_path = (
            stem.with_suffix(end) for end in (".jsonl", ".json", ".values.json", ".conditions.json")
        )
        self.runs: dict[str, list[Run]] = {}
        self.failures: dict[str, str] = {}
        self.values: dict[str, list[float]] = {}
        self._under(SearchConditions(HERE.machine() if request.fleet is None else None, dict(request.versions.facts)), say)
        with suppress(OSError, msgspec.DecodeError):
            self.failures = msgspec.json.decode(self._failures_path.read_bytes(), type=dict[str, str])
        with suppress(OSError, msgspec.DecodeError):
            self.values = msgspec.json.decode(self._values_path.read_bytes(), type=dict[str, list[float]])
        if self._runs_path.exists() and self._runs_path.stat().st_size:
            for run in store.load([self._runs_path]).runs:
                # One of an older memprof has its version in the variant's name.
                if run.job.version is not None and (run.outcome.ok or run.job.version in self.failures):
                    self.runs.setdefault(run.job.version, []).append(run)
        if self.runs or self.failures or self.values:
            kept, word = (self.values, "figure") if self.values else (self.runs, "run")
            count = sum(map(len, kept.values()))
            known = f"{counted(count, word)} of {counted(len(kept), request.versions.noun)} {'is' if count == 1 else 'are'} known"
            say(f"goes on where the search was stopped: {known}")

    def _under(self, now: SearchConditions, say: Callable[[str], None]) -> None:
        """Forget what was measured under other conditions: its figures must not be set beside new ones."""
        then = None
        with suppress(OSError, msgspec.DecodeError):
            then = msgspec.json.decode(self._conditions_path.read_bytes(), type=SearchConditions)
        if then is None:  # nothing was measured yet, or nobody knows under which conditions
            self.forget()
        elif then.machine and now.machine and (differs := settings.other_machine(then.machine, now.machine)) is not None:
            say(f"a search that was stopped is not continued: it was on another machine ({differs})")
            self.forget()
        elif changed := [name for name in {**then.facts, **now.facts} if then.facts.get(name) != now.facts.get(name)]:
            say(f"a search that was stopped is not continued: another since then: {', '.join(changed)}")
            self.forget()
        files.write(self._conditions_path, msgspec.json.encode(now))

    def keep(self, line: bytes) -> None:
        """Append a Run to the file."""
        store.RunsWriter(self._runs_path, append=True).write(line)

    def failed(self, label: str, reason: str) -> None:
        """Note that a version cannot be measured."""
        self.failures[label] = reason
        files.write(self._failures_path, msgspec.json.encode(self.failures))

    def try_again(self) -> None:
        """Forget which versions cannot be measured."""
        self._failures_path.unlink(missing_ok=True)

    def measured(self, label: str, values: Sequence[float]) -> None:
        """Keep figures of a version that no run has alone."""
        self.values.setdefault(label, []).extend(values)
        files.write(self._values_path, msgspec.json.encode(self.values))

    def forget(self) -> None:
        """Remove the files: the question is answered."""
        for path in (self._runs_path, self._failures_path, self._values_path, self._conditions_path):
            path.unlink(missing_ok=True)
