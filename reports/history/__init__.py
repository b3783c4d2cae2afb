"""A history as one HTML page and a badge: lines by phase and variant over the commits, steps marked, and links to the commits.

drawn.py packs the figures that history.js draws. The page needs nothing else: no network, no server, no second file.
"""

from __future__ import annotations

import statistics
from collections.abc import Container, Sequence

from memprof.base.units import counted
from memprof.records import metrics
from memprof.records.types import PEAK
from memprof.versions.history_file import History, SharedStep

from .. import standalone
from ..standalone import check
from ..tables.grid import TextTable
from ..tables.history import sentence
from . import drawn

__all__ = ["BADGE", "badge", "check", "render"]

BADGE = b"<!-- badge of memprof"
_MOST_LISTED = 300


def render(
    history: History,
    title: str,
    commit_url: str = "",
    run_url: str = "",
    *,
    with_run: Container[str] | None = None,
    noun: str = "commit",
    tables: Sequence[TextTable] = (),
    notices: Sequence[str] = (),
) -> str:
    """The page. commit_url, run_url: addresses in which {commit} stands for a commit's hash; clicks lead to run_url, or else to commit_url.

    with_run: the hashes of the commits that have a page at run_url, None for all. noun: the history's commits, in a word.
    tables, notices: to stand above the steps, and above everything else.
    """
    listed = [_listed(number, change, history, commit_url) for number, change in enumerate(history.changes)]
    newest = history.commits[-1]
    many = f"{counted(len(history.commits), noun)}, {counted(len(history.lines), 'line')}, {counted(len(history.changes), 'step')}"
    return standalone.render(
        __package__,
        "history",
        drawn.page(history, commit_url, run_url, with_run),
        title=title,
        subtitle=f"{many}; the newest is {newest.short}" if newest.time_s else many,  # releases have no time
        notices=(*history.remarks, *notices),
        noun=noun,
        tables=tables,
        changes=listed[::-1][:_MOST_LISTED],
        left=max(0, len(listed) - _MOST_LISTED),
        machines=[machine.words for machine in history.machines],
    )


def _listed(number: int, change: SharedStep, history: History, commit_url: str) -> dict[str, object]:
    """A change in the page's list. number: its place among all changes, which the script knows."""
    head = change.head
    return {
        "number": number,
        "text": sentence(change, history),
        "url": commit_url.replace("{commit}", history.commits[head.at].hash),
        "worse": head.step.size > 0 and not head.step.undoes and head.until is None,
    }


def badge(history: History) -> str:
    """The newest commit's largest peak as an SVG picture."""
    newest = len(history.commits) - 1
    peaks = [line for line in history.lines if (line.metric, line.phase) == ("rss_peak_bytes", PEAK) and line.places[-1] == newest]
    largest = max((statistics.median(line.samples[-1]) for line in peaks), default=None)
    text = metrics.amount("rss_peak_bytes", largest) if largest is not None else "not measured"
    worse = any(line.steps and line.places[line.steps[-1].at] == newest and line.steps[-1].size > 0 for line in peaks)
    # About 7 px a letter at 11 px, as Verdana and DejaVu Sans have it.
    left, right = 78, 14 + 7 * len(text)
    colour = "#a93b00" if worse else "#0a5ea8"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="peak memory: {text}">'
        f"<!-- badge of memprof --><title>peak memory: {text}</title>"
        f'<rect width="{left}" height="20" rx="3" fill="#444c56"/><rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>'
        f'<rect x="{left}" width="6" height="20" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">peak memory</text><text x="{left + right / 2}" y="14">{text}</text></g></svg>'
    )
