"""The picture of `memprof tune`: the front."""

from __future__ import annotations

from matplotlib.figure import Figure

from memprof.footprint.tune.answer import Tuned, TunedRuntimes, shown

from ..tables import tune
from . import tradeoff


def picture(answer: Tuned | TunedRuntimes) -> Figure:
    """Latency against PEAK of the verified runs, and of all trials where nothing was verified, with the budget as a line."""
    answers = tune.each_of(answer)
    several = len(answers) > 1
    rows: dict[str, str] = {}
    left_out: list[str] = []
    for tuned in answers:
        prefix = f"{tuned.runtime} " if several else ""
        table = {each.number: each.settings for each in (tuned.default, *tuned.proposals)}
        apart = {each.number: each.settings for each in tuned.left_out}
        names = {f"{prefix}#{number} {shown(settings)}": number for number, settings in (table | apart).items()}
        rows |= {name: f"{prefix}#{number}" for name, number in names.items()}
        left_out += [name for name, number in names.items() if number in apart]
    runs = [run for tuned in answers for run in tuned.runs]
    return tradeoff.render(runs, rows=rows, left_out=left_out, limit_bytes=answers[0].goal.budget, finding=tune.of_picture(answer))
