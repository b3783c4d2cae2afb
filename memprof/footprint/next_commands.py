"""The command lines that go on from an answer of `tune` or `fit`: one that searches settings within a limit, one that finds the least limit of
settings, and one that holds a size in CI."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from ..subjects import suite as suites
from ..subjects.order import Order
from ..subjects.settings import options
from ..subjects.suite import Suite


def tune_line(suite: Suite, order: Order, budget: str) -> str:
    """The words for a shell that search settings whose PEAK is at most the budget. suite: of one subject, as it was given. order: that of it."""
    return _of_one("tune", suite, order, "--budget", budget)


def fit_line(suite: Suite, order: Order) -> str:
    """The words for a shell that find the least limit under which a subject works as a whole, as a container limits it. suite, order: see above."""
    return _of_one("fit", suite, order, *(() if order.argv is not None else ("--part", "whole")))


def _of_one(command: str, suite: Suite, order: Order, *more: str) -> str:
    given = [*options(_given(suite, order)), *more]
    if order.argv is not None:
        return shlex.join(["memprof", command, *given, "--", *order.job.argv])
    return shlex.join(["memprof", command, *suite.models, "-r", suite.only.runtime, *given])


def gate_line(suite: Suite, order: Order) -> tuple[str, str]:
    """The words for a shell that measure a subject again and hold its PEAK to a budget, before and behind the budget's size. suite, order: see
    above."""
    if order.argv is not None:
        return shlex.join(["memprof", "gate", *options(_given(suite, order)), "--budget"]), shlex.join(["--", *order.job.argv])
    return suites.gate_line(suite), ""


def _given(suite: Suite, order: Order) -> Mapping[str, Any]:
    """The settings of a subject by the fields of a Suite. A program's words have every value filled in, and its variables are settings."""
    given = asdict(suite.together)
    if order.argv is None:
        return given
    env = {name: value for name, value in order.env.items() if value is not None}
    counts = {} if suite.drive is not None else {"warmup": None, "runs": None}
    return given | {"env": env, "set": {}, "threads": (), "cwd": order.job.cwd, **counts}
