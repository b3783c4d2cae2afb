"""Runs -> one HTML page that needs nothing else: no network, no server, no second file.

words.py says in sentences and tables what was found and under which conditions; drawn.py holds the figures that page.js draws and switches
between. standalone.py is why what comes from a runs file stays text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from memprof.errors import InputError
from memprof.explain.records import Explanation
from memprof.plan.measured import Measured
from memprof.runs.records import Run

from .. import standalone
from ..soundness import sound
from ..standalone import check
from ..tables import plan, table
from . import drawn, explained, words

__all__ = ["check", "render"]

# Where scripts do not run (a CI service's own viewer), these tables are what the page has.
_TABLES_WITHOUT_SCRIPT = ("rss_peak_bytes", "time_ns")


def render(
    runs: Sequence[Run],
    *,
    warnings: Sequence[str] = (),
    sources: Sequence[str] = (),
    explanations: Sequence[Explanation] = (),
    plans: Mapping[str, Sequence[Measured]] | None = None,
) -> str:
    """The page of these runs. warnings: what was wrong with their files; sources: the files' names; explanations: what explain found; plans: of
    their models, by name.

    Raises InputError where there is no run, or a run's timeline is damaged.
    """
    if not runs:
        raise InputError("there is no run to make a page of")
    sound(runs)
    by_model = [[run for run in runs if run.job.model.name == name] for name in dict.fromkeys(run.job.model.name for run in runs)]
    return standalone.render(
        __package__,
        "page",
        drawn.page(by_model),
        title=words.title(runs),
        subtitle=words.subtitle(runs),
        sources=sources,
        notices=words.notices(runs, warnings),
        models=[words.model(group) for group in by_model],
        plans=[plan.beside(group, (plans or {}).get(group[0].job.model.name, ())) for group in by_model],
        plain_tables=[table.sections(group, _TABLES_WITHOUT_SCRIPT)[0] for group in by_model],
        machines=words.machines(runs),
        exactness=words.exactness(runs),
        remarks=words.remarks(runs, warnings),
        explained=[Markup(explained.page_piece(found)) for found in explanations],
    )
