"""Progress on standard error while a command measures: a bar on a terminal, else one line per repeat.

It is drawn only when there is something new, and by no thread: on a small machine a clock that ticks is work too.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from ...base.terminal_text import plain
from ...base.units import counted, format_bytes, format_duration
from ...campaign.progress import Keep, Progress
from ...records import store
from ...records.metrics import METRICS, exact, swapped, value
from ...records.types import PEAK, Job, Run

if TYPE_CHECKING:
    from ...places.sending import Sending

_REDRAW_S = 0.2
_LONG_S = 10.0  # without a line
_WORTH_A_LINE = 1 << 20  # bytes


def described(job: Job) -> str:
    """A job in a few words."""
    threads = f", {counted(job.threads, 'thread')}" if job.threads else ""
    return plain(f"{job.label}{threads}")


def ended(run: Run) -> str:
    """How a run ended, in a few words."""
    seen = f"peak {size}" if (size := _peak(run)) else "no peak was seen"
    if run.outcome.ok:
        return seen
    return f"{seen}; failed: {run.outcome.sentence}" if run.complete else f"failed: {run.outcome.sentence}"


def _peak(run: Run) -> str:
    """Its PEAK as tables have it, empty if none was seen."""
    metric = METRICS["rss_peak_bytes"]
    peak = value(run, PEAK, metric)
    sign = "≥" if swapped(run, PEAK, metric) else "" if exact(run, PEAK, metric) else "~"
    return f"{sign}{format_bytes(peak)}" if peak else ""


class Plain:
    """Lines for logs: one per repeat of all variants of a model, and sooner where that takes long. A run that fails has a line of its own, which says
    no more than that if its variant failed in the same way before."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}  # of each variant that failed, in words
        self._place = self._told_place = ""
        self._is_last = False
        self._together: list[Run] = []  # that ended well, and have no line yet
        self._said_s = time.monotonic()

    def started(self, job: Job, index: int, total: int) -> None:
        before = self._together[-1].job if self._together else job
        if (job.model.name, job.repeat) != (before.model.name, before.repeat):
            self._tell()
        self._place, self._is_last = f"[{index}/{total}]", index == total

    def live(self, phase: str, rss_bytes: int) -> None:
        pass

    def finished(self, run: Run) -> None:
        if run.outcome.ok:
            self._together.append(run)
            self._told_place = self._place
            if self._is_last or time.monotonic() - self._said_s >= _LONG_S:
                self._tell()
            return
        words = ended(run)
        name = described(run.job)
        again, self._failures[name] = words == self._failures.get(name), words
        self.say(f"{self._place} {name}, repeat {run.job.repeat}: {'failed in the same way' if again else words}")

    def _tell(self) -> None:
        runs, self._together = self._together, []
        if not runs:
            return
        job = runs[0].job
        if len(runs) == 1:
            self.say(f"{self._told_place} {described(job)}, repeat {job.repeat}: {ended(runs[0])}")
        else:
            # The names of variants without the model's, which all of them have.
            peaks = "; ".join(f"{described(run.job).removeprefix(f'{plain(job.model.name)}, ')} {_peak(run) or '-'}" for run in runs)
            self.say(f"{self._told_place} {plain(job.model.name)}, repeat {job.repeat}: peaks {peaks}")

    def say(self, sentence: str) -> None:
        self._tell()
        self._said_s = time.monotonic()
        click.echo(plain(sentence), err=True)

    def close(self) -> None:
        self._tell()


class ProgressBar:
    """A bar with the current model, variant, phase and resident set."""

    def __init__(self) -> None:
        # Here, because a log needs none of it.
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        self._progress = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)
        self._drawn = 0.0
        self._progress.start()

    def started(self, job: Job, index: int, total: int) -> None:
        self._what = described(job)
        self._progress.update(self._task, total=total, completed=index - 1, description=self._what)
        self._progress.refresh()

    def live(self, phase: str, rss_bytes: int) -> None:
        if time.monotonic() - self._drawn < _REDRAW_S:
            return
        self._drawn = time.monotonic()
        self._progress.update(self._task, description=f"{self._what}: {plain(phase)} {format_bytes(rss_bytes)}")
        self._progress.refresh()

    def finished(self, run: Run) -> None:
        self._progress.update(self._task, advance=1)
        if not run.outcome.ok:
            self.say(f"{described(run.job)}, repeat {run.job.repeat}: {ended(run)}")

    def say(self, sentence: str) -> None:
        self._console.print(plain(sentence), markup=False, highlight=False, emoji=False)

    def close(self) -> None:
        self._progress.stop()


class Transfers:
    """Files on their way to another machine: a line that grows on a terminal, and a line for each large file that was sent."""

    def __init__(self) -> None:
        self._drawn = 0.0
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def tell(self, sending: Sending) -> None:
        """See memprof.places.remote.Remote."""
        if sending.total < _WORTH_A_LINE:
            return
        done = sending.sent >= sending.total
        if not done and (not self._terminal or time.monotonic() - self._drawn < _REDRAW_S):
            return
        self._drawn = time.monotonic()
        rate = f"{format_bytes(int(sending.sent / max(sending.time_s, 1e-9)))}/s"
        name = plain(f"{sending.name} to {sending.place}")
        if done:
            text = f"{name}: {format_bytes(sending.total)} sent in {format_duration(sending.time_s * 1e9)}, {rate}"
        else:
            text = f"{name}: {100 * sending.sent // sending.total}% of {format_bytes(sending.total)}, {rate}"
        click.echo(f"\r\033[K{text}" if self._terminal else text, err=True, nl=done)


def showing_output(keep: Keep, progress: Progress) -> Keep:
    """`keep`, which also shows the kept output of a run that failed: the last 4 KiB that its child printed."""

    def kept(line: bytes) -> None:
        keep(line)
        run = store.decode(line, "a run")
        if not run.outcome.ok:
            for text in (run.output_tail or "").splitlines():
                progress.say(f"  | {text}")

    return kept


def chosen() -> Plain | ProgressBar:
    """The progress that suits standard error."""
    return ProgressBar() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Plain()
