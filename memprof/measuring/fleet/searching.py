"""A search on a fleet: the points that it asks for at one time are measured at once, each on one machine of a kind.

A search sets figures of its points beside one another, so its machines must be interchangeable: all of one kind, as far as labels say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InputError, UsageError
from ...runs.attempts import standing
from ...runs.records import Run
from ..progress import Progress
from ..suite import Suite
from . import packing, scheduler
from .desk import Desk
from .message import Sought
from .planning import Labels


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
        kind = self._fitting()[0].labels_of_kind
        return replace(self, labels=self.labels | kind, kind=kind)

    def _fitting(self) -> list[scheduler.There]:
        there, sentences = scheduler.places(self.client)
        fitting = [place for place in there if self.labels <= place.offered.labels.items() and self.kind in (None, place.labels_of_kind)]
        if not fitting:
            raise InputError(sentences[0] if sentences and not there else self._none(there))
        kinds = sorted({place.kind or "no labels" for place in fitting})
        if len(kinds) > 1:
            raise UsageError(
                f"a search measures on machines of one kind, and these are of several: {'; '.join(kinds)}; choose with --machines"
            )
        return fitting

    def _none(self, there: Sequence[scheduler.There]) -> str:
        return f"no place of the fleet has {scheduler.described(self.labels)}: {scheduler.offered_words(there)}"

    def measure(
        self,
        points: Sequence[tuple[Suite, Sought]],
        progress: Progress,
        keep: Callable[[bytes], None],
        came: Callable[[int, Run], None] = lambda number, run: None,
    ) -> list[Run | str]:
        """The Run of each point, in their order, once all are there; each is given to `keep` as soon as it exists, and to `came` with the number of
        its point. A point that was given up has a sentence instead.

        Raises InputError if the fleet is lost, and KeyboardInterrupt.
        """
        self._fitting()
        packed = [packing.sought(suite, asked, self.labels) for suite, asked in points]
        numbers = {point.request.key: number for number, point in enumerate(packed)}
        desk = Desk(self.client, packed, progress, keep, kind=self.kind)
        runs = []
        for run in desk.runs():
            runs.append(run)
            if run.attempt is not None:
                came(numbers[run.attempt.comparison], run)
        runs, _ = standing(runs)
        answers: dict[str, Run | str] = {**desk.failed}
        answers.update((run.attempt.comparison, run) for run in runs if run.attempt is not None)
        return [answers[point.request.key] for point in packed]
