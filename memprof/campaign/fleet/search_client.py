"""A search on a fleet: the comparisons that it asks for at one time are measured at once, each whole on one machine of a kind.

A search sets figures of its comparisons beside one another, so its machines must be interchangeable: all of one kind, as far as labels say.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ...base.errors import InputError, MemprofError, UsageError
from ...base.units import counted
from ...records.types import Run
from ..progress import Keep, Progress
from . import payload, scheduler
from .message import Labels
from .payload import SearchTrial
from .scheduler_client import SchedulerClient


class ComparisonResult(Struct, frozen=True):
    """The result of a comparison. runs: in the order in which they were measured. complete: whether these are all. why: a sentence if the fleet gave
    it up. outputs: the default's, if the search asked for them and they were small enough. seconds: from the question to the last Run. unmade: why
    commits cannot be built, by their labels."""

    runs: tuple[Run, ...] = ()
    complete: bool = False
    why: str = ""
    outputs: bytes = b""
    seconds: float = 0.0
    unmade: Mapping[str, str] = field(default_factory=dict)


class Machines(Struct, frozen=True):
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
        kinds = Counter(place.offered.labels_of_kind for place in fitting)
        if len(kinds) > 1:
            chosen = sorted(f"--machines {scheduler.described(kind)} ({counted(count, 'place')})" for kind, count in kinds.items())
            more = any(one < other for one in kinds for other in kinds)
            label = "; some have all labels of others: give each kind of worker a label of its own (--labels)" if more else ""
            raise UsageError(
                f"a search measures on machines of one kind, and these are of {len(kinds)}, as their labels say: {', '.join(chosen)}{label}"
            )
        return fitting

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
        runs: dict[str, list[Run]] = {one.key: [] for one in packed}  # of the last attempt; earlier ones were lost with their machines
        seconds: dict[str, float] = {}
        began = time.monotonic()

        def stops() -> bool:
            return stop([run for mine in runs.values() for run in mine])

        desk = SchedulerClient(self.client, packed, progress, keep, stop=stops, kind=self.kind)
        ended: BaseException | None = None
        try:
            for run in desk.runs():
                assert run.attempt is not None
                mine = runs[run.attempt.comparison]
                if mine and mine[-1].attempt != run.attempt:
                    mine.clear()
                mine.append(run)
                seconds[run.attempt.comparison] = time.monotonic() - began
        except (KeyboardInterrupt, MemprofError, OSError) as error:
            ended = error
        for number, (key, mine) in enumerate(runs.items()):
            why = desk.failed.get(key, "")
            complete = bool(mine) and len(mine) == mine[0].attempt.runs and not why  # type: ignore[union-attr]
            if ended is None or complete:
                outputs, unmade = desk.outputs.get(key, b""), desk.unmade.get(key, {})
                yield number, ComparisonResult(tuple(mine), complete, why, outputs, seconds.get(key, 0.0), unmade)
        if ended is not None:
            raise ended
