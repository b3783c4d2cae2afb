"""Runs -> one HTML page that needs nothing else: no network, no server, no second file.

finding.py, conditions.py and words.py have the page's sentences, figures.py its tables and bars, drawn.py the figures that page.js draws.
standalone.py sees to it that text from a runs file stays text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from memprof.base.errors import InputError
from memprof.base.terminal_text import plain
from memprof.explain.records import Explanation
from memprof.plan.measured import Measured
from memprof.records import summary
from memprof.records.metrics import METRICS
from memprof.records.types import Run

from .. import standalone
from ..rows import baseline_words, by_model
from ..soundness import check as check_figures
from ..soundness import sound
from ..standalone import check
from ..tables import devices, explain, planned, release
from ..tables.grid import TextTable
from . import conditions, drawn, figures, words

__all__ = ["check", "render"]

# The metrics whose tables are seen where no scripts run, as in a CI service's viewer.
_WITHOUT_SCRIPT = ("rss_peak_bytes", "time_ns")


def render(
    runs: Sequence[Run],
    *,
    warnings: Sequence[str] = (),
    sources: Sequence[str] = (),
    explanations: Sequence[Explanation] = (),
    plans: Mapping[str, Sequence[Measured]] | None = None,
) -> str:
    """The page of these runs.

    warnings: on their files. sources: the files' names. explanations: results of `memprof explain`. plans: of the runs' models, by name.
    Raises InputError where there is no run, a run's timeline is damaged, or an explanation's figures are none.
    """
    if not runs:
        raise InputError("there is no run to make a page of")
    sound(runs)
    for explanation in explanations:
        check_figures(explanation, f"the explanation of {explanation.model.name}")
    runs = _by_place(runs)
    models = by_model(runs)
    laws = _laws(runs)
    # Runs of a search are no rivals: what they found is their law. It stands beside the plan of each place already.
    found = {law.model: [each.sentences[0] for each in laws if each.model == law.model] for law in laws}
    found = {name: sentences for name, sentences in found.items() if all(run.job.at for run in models[name])}
    curves = drawn.page(list(models.values()))
    return standalone.render(
        __package__,
        "page",
        curves,
        title=words.title(runs),
        subtitle=words.subtitle(runs),
        sources=sources,
        notices=words.notices(runs, warnings),
        models=[words.model(group, found.get(name, ())) for name, group in models.items()],
        plans=[None if name in found else planned.beside(group, (plans or {}).get(name, ())) for name, group in models.items()],
        figures=[figures.figures(group) for group in models.values()],
        metrics=METRICS.values(),
        baseline=baseline_words(runs),
        without_script=_WITHOUT_SCRIPT,
        devices=[devices.tables(summary.groups(group), None) for group in models.values()],
        devices_drawn=any(trace.device for model in curves.models for group in model.groups for trace in group.traces),
        kept=[release.tables(summary.groups(group), None) for group in models.values()],
        growth=_growth(runs),
        laws=laws,
        machines=conditions.machines(runs),
        exactness=words.exactness(runs),
        remarks=words.remarks(runs, warnings),
        explanations=explanations,
        explain=explain,
    )


def _by_place(runs: Sequence[Run]) -> list[Run]:
    """The runs, those of `memprof scale` by their place instead of in the order in which places were chosen."""

    def order(run: Run) -> tuple[object, ...]:
        return run.job.variant.rpartition(", ")[0], run.job.version or "", *run.job.at.items()

    places = sorted((run for run in runs if run.job.at), key=order)
    left = iter(places)
    return [next(left) if run.job.at else run for run in runs]


def _growth(runs: Sequence[Run]) -> dict[str, object] | None:
    """What runs of `memprof grow` tell: the picture as base64 of an SVG, and the verdicts in words; None if there are none."""
    followed = [run for run in runs if run.followed]
    if not followed:
        return None
    from ..pictures import growth, saving  # bring matplotlib along, which no other page needs

    panels = growth.panels(followed)
    return {"picture": saving.embedded(growth.draw(panels)), "sentences": [panel.title for panel in panels]}


class _Law(Struct, frozen=True):
    """The picture of a law as base64 of an SVG, what it is of, the law and what is beside it in words, and what was asked: places and limits."""

    model: str
    picture: str
    title: str
    sentences: Sequence[str]
    tables: Sequence[TextTable]


def _laws(runs: Sequence[Run]) -> list[_Law]:
    """What runs of `memprof scale` tell."""
    if not any(run.job.at for run in runs):
        return []
    from memprof.growth.scale import predictions  # brings scipy along, which no other page needs

    from ..pictures import saving, scale
    from ..tables.scale import answers, finding, notes

    return [
        _Law(
            search.model,
            saving.embedded(scale.picture(search)),
            f"{search.model} in {scale.title(search)}",
            [*finding(search, plain).split("\n\n"), *notes(search)],
            answers(search),
        )
        for search in predictions.of_runs(runs)
    ]
