"""What is wrong in the words of a question, whatever its versions are: said before any of them is made, which takes minutes."""

from __future__ import annotations

import os
from pathlib import Path

from ...base.errors import UsageError, near_or_all
from ...growth.laws import coefficients
from ...growth.scale import scale
from ...records import metrics
from ...records.types import RELOAD
from ...subjects import dimensions
from ...subjects.orders import check_words
from ...subjects.suite import ALL, Suite, variants_of
from .bisect_request import BisectRequest

ITERATION = "iteration"  # the unit of growth if none is named


def check(request: BisectRequest) -> None:
    """Raises UsageError."""
    suite = request.suite
    if request.metric == metrics.GROWTH:
        check_growth(request)
    if request.metric == metrics.LAW:
        law_term(request)
    _check_names(suite, request.model, request.variant)
    check_words(suite)


def check_growth(request: BisectRequest) -> None:
    """Raises UsageError for words that ask for no growth of a model."""
    if request.vary:
        raise UsageError(f"--vary is for --metric {metrics.LAW}")
    programs = [variant.command is not None for variant in variants_of(request.suite)]
    if programs and all(programs):
        check_growth_of_program(request)
    elif request.per not in (None, ITERATION, RELOAD):
        raise UsageError(f"--per {request.per}: growth is by {ITERATION} or by {RELOAD}")


def check_growth_of_program(request: BisectRequest) -> None:
    """Raises UsageError for a unit: a program says itself what its units are."""
    if request.per is not None:
        raise UsageError(f"--per {request.per}: a program's growth is by the unit that it marks, or that --phase-regex names")


def law_term(request: BisectRequest) -> str:
    """The term of the law that is followed. Raises UsageError."""
    if not request.vary:
        raise UsageError(f"--metric {metrics.LAW} needs --vary: a dimension and its range, such as --vary batch=1..8")
    varying = [dimension for dimension in map(dimensions.parse, request.vary) if dimension.varies]
    scale.check_varying(varying)
    return coefficients.held_term([dimension.label for dimension in varying], request.per)


def _check_names(suite: Suite, model: str | None, variant: str | None) -> None:
    """Raises UsageError for a model or a variant that the suite does not name."""
    models = [suite.name or Path(path).name for path in suite.models]
    variants = [each.name or os.path.basename(each.runtime).removesuffix(".py") for each in variants_of(suite)]
    for kind, name, known in (("model", model, models), ("variant", variant, [] if ALL in suite.runtimes else variants)):
        if name is not None and known and name not in known:
            raise UsageError(f"--{kind} {name}: there is no such {kind}{near_or_all(name, known, '; ')}")
