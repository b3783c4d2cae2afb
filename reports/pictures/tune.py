"""What `memprof tune` found: the proposals as a table with the command that measures each again, and the front as a picture."""

from __future__ import annotations

from matplotlib.figure import Figure

from memprof.seek.tune import Tuned


def picture(found: Tuned) -> Figure:
    """Latency against PEAK of the verified runs, and of all trials where nothing was verified."""
    from . import tradeoff

    return tradeoff.render(found.runs)
