"""A search on a fleet: the comparisons that it asks for at one time are measured at once, each whole on one machine of a kind.

A search sets figures of its comparisons beside one another, so its machines must be interchangeable: all of one kind, as far as labels say.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.errors import InputError, MemprofError, UsageError
from ..base.units import counted
from ..campaign.progress import Keep, Progress
from ..records.types import Run
from . import payload, scheduler
from .message import OWN, Labels
from .payload import SearchTrial
from .scheduler_client import SchedulerClient


@dataclass(frozen=True)
class ComparisonResult:
    """The result of a comparison. runs: in the order in which they were measured. complete: whether these are all. why: a sentence if the fleet gave
    it up. outputs: the default's, if the search asked for them and they were small enough. seconds: from the question to the last Run. unmade: why
    commits cannot be built, by their labels."""

    runs: tuple[Run, ...] = ()
    complete: bool = False
    why: str = ""
    outputs: bytes = b""
    seconds: float = 0.0
    unmade: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machines:
    """The machines of a fleet that have these labels. client: of the scheduler. kind: all labels of their kind, None while that is not chosen."""

    client: Any
    labels: Labels
    kind: Labels | None = None

    def pinned(self) -> Machines:
        """Those of the kind that is there now: a machine of a second kind that joins later gets none of the search's points, also one that has
        further labels.

        Raises InputError if there is none, UsageError if they are of several kinds.
        """
        kind = self._fitting()[0].offered.labels_of_kind
        return replace(self, labels=self.labels | kind, kind=kind)

    @property
    def width(self) -> int:
        """How many comparisons can be measured at once. Raises InputError if none can."""
        return len(self._fitting())

    @property
    def are_hosts(self) -> bool:
        """Whether each is the machine of its worker, and not a board beside it."""
        return all(place.offered.place == "here" for place in self._fitting())

    def check_hosts(self) -> None:
        """Raises UsageError if versions cannot be made on each."""
        if not self.are_hosts:
            raise UsageError(f"versions are made on the machines of workers (--offer here), and there are boards with {self.name}")

    @property
    def name(self) -> str:
        """Their labels, for people."""
        return scheduler.described(self.labels)

    def _fitting(self) -> list[scheduler.FleetPlace]:
        there, sentences = scheduler.places(self.client)
        fitting = [
            place for place in there if self.labels <= place.offered.labels.items() and self.kind in (None, place.offered.labels_of_kind)
        ]
        if not fitting:
            raise InputError(sentences[0] if sentences and not there else self._none(there))
        kinds = Counter(place.kind for place in fitting)
        if len(kinds) > 1:
            raise UsageError(
                f"a search measures on machines of one kind, and these are of {len(kinds)}, as their labels say: "
                + "; ".join(self._how_chosen(kind, fitting) for kind in sorted(kinds))
            )
        return fitting

    def _how_chosen(self, kind: str, fitting: Sequence[scheduler.FleetPlace]) -> str:
        """What to write for the places of one kind among others."""
        these = [place.offered.labels.items() for place in fitting if place.kind == kind]
        words = _choosing(these, [place.offered.labels.items() for place in fitting if place.kind != kind])
        named = f"{counted(len(these), 'place')} with {kind or 'no labels'}"
        if words is None:
            return f"no --machines chooses {named}, because others have all that too: give the workers one more label (--labels)"
        chosen = ",".join(f"{label}={value}" for label, value in sorted(self.labels | words))
        return f"--machines {chosen} chooses {named}"

    def _none(self, there: Sequence[scheduler.FleetPlace]) -> str:
        return f"no place of the fleet has {scheduler.described(self.labels)}: {scheduler.offered_words(there)}"

    def measure(
        self,
        asked: Sequence[SearchTrial],
        progress: Progress,
        keep: Keep,
        stop: Callable[[Sequence[Run]], bool] = lambda runs: False,
    ) -> Iterator[tuple[int, ComparisonResult]]:
        """The answer to each comparison by its number, in their order, once all are there. Each Run is given to `keep` as soon as it exists.

        stop: is asked every second, with all Runs so far, whether the search still waits; what is not complete then is answered as far as it came.
        Raises InputError if the fleet is lost, and what `keep` raises; KeyboardInterrupt passes through. The complete answers come before that.
        """
        self._fitting()
        packed = [payload.sought(each, self.labels, number) for number, each in enumerate(asked)]
        runs: list[Run] = []
        began = time.monotonic()
        last: dict[str, float] = {}
        desk = SchedulerClient(self.client, packed, progress, keep, stop=lambda: stop(runs), kind=self.kind)
        ended: BaseException | None = None
        try:
            for run in desk.runs():
                runs.append(run)
                if run.attempt is not None:
                    last[run.attempt.comparison] = time.monotonic() - began
        except (KeyboardInterrupt, MemprofError, OSError) as error:
            ended = error
        for number, one in enumerate(packed):
            key = one.key
            mine, of = _last_attempt(runs, key)
            complete = 0 < of <= len(mine) and key not in desk.failed
            if ended is None or complete:
                why, outputs, unmade = desk.failed.get(key, ""), desk.outputs.get(key, b""), desk.unmade.get(key, {})
                yield number, ComparisonResult(mine, complete, why, outputs, last.get(key, 0.0), unmade)
        if ended is not None:
            raise ended


def _choosing(these: Sequence[Set[tuple[str, str]]], others: Sequence[Set[tuple[str, str]]]) -> Labels | None:
    """Labels that all of these places have, and that none of the others has all of: none could be left out. None if there are no such."""
    words = frozenset.intersection(*map(frozenset, these))
    if any(words <= labels for labels in others):
        return None
    for word in sorted(words, key=lambda word: (word[0] not in OWN, word)):  # what names a kind tells more than what names a machine
        if not any(words - {word} <= labels for labels in others):
            words -= {word}
    return words


def _last_attempt(runs: Sequence[Run], comparison: str) -> tuple[tuple[Run, ...], int]:
    """The Runs of the last attempt at a comparison, and how many it has when it is complete. Earlier ones were lost with their machines."""
    attempts = [run.attempt for run in runs if run.attempt is not None and run.attempt.comparison == comparison]
    last = max(attempts, key=lambda attempt: attempt.number, default=None)
    if last is None:
        return (), 0
    mine = (run for run in runs if run.attempt is not None and (run.attempt.comparison, run.attempt.number) == (comparison, last.number))
    return tuple(mine), last.runs
