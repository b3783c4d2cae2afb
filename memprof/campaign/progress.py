"""The listeners to the progress of a measurement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..base.units import counted, format_duration
from ..records.types import Job, Run

Keep = Callable[[bytes], None]  # takes each Run as a line of a runs file

WORTH_A_FORECAST_NS = 10_000_000_000  # of what is left to measure


def forecast(count: int, noun: str, left_ns: float) -> str:
    """How much is left to measure, and how long that may take, as a sentence without a full stop."""
    return f"about {counted(count, noun)} will follow, {format_duration(left_ns)} in all"


class Remarked(Protocol):
    """A frozen dataclass with sentences for its reader."""

    @property
    def remarks(self) -> tuple[str, ...]: ...


class Answer(Remarked, Protocol):
    """What a question ends with. interrupted: by Ctrl-C or SIGTERM."""

    @property
    def interrupted(self) -> bool: ...


class Progress(Protocol):
    """A listener to the progress."""

    def started(self, job: Job, index: int, total: int) -> None:
        """Job number `index` of `total`, from 1, starts."""

    def live(self, phase: str, rss_bytes: int) -> None:
        """The child is in this phase, with this resident set."""

    def finished(self, run: Run) -> None:
        """A job ended, well or not."""

    def say(self, sentence: str) -> None:
        """A sentence that the user should read."""


class Silent:
    """Tells nobody."""

    def started(self, job: Job, index: int, total: int) -> None: ...
    def live(self, phase: str, rss_bytes: int) -> None: ...
    def finished(self, run: Run) -> None: ...
    def say(self, sentence: str) -> None: ...
    def close(self) -> None: ...


class Quiet:
    """Passes on sentences and the current phase, but not how a run ended: the caller reports that itself. done: runs before these."""

    def __init__(self, progress: Progress, done: int = 0) -> None:
        self._progress, self._done = progress, done

    def started(self, job: Job, index: int, total: int) -> None:
        self._progress.started(job, self._done + index, self._done + total)

    def live(self, phase: str, rss_bytes: int) -> None:
        self._progress.live(phase, rss_bytes)

    def finished(self, run: Run) -> None:
        pass

    def say(self, sentence: str) -> None:
        self._progress.say(sentence)
