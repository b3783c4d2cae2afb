"""The picture of `memprof tune`: the front."""

from __future__ import annotations

from matplotlib.figure import Figure

from memprof.tune.answer import Tuned

from . import tradeoff


def picture(tuned: Tuned) -> Figure:
    """Latency against PEAK of the verified runs, and of all trials where nothing was verified."""
    return tradeoff.render(tuned.runs)
