"""Who is told how measuring goes."""

from __future__ import annotations

from typing import Protocol

from ..runs.records import Job, Run


class Progress(Protocol):
    """Who is told how it goes."""

    def started(self, job: Job, index: int, total: int) -> None:
        """Job number `index` of `total`, from 1, starts."""

    def live(self, phase: str, rss_bytes: int) -> None:
        """The child is in this phase and this large."""

    def finished(self, run: Run) -> None:
        """A job ended, well or not."""

    def say(self, sentence: str) -> None:
        """Something the user should know."""


class Quiet:
    """Passes on what is said and where it is, but not how a run ended: whoever asked has words of its own for that. done: runs before these."""

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
