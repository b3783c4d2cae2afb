"""A comparison at its place: from its words and files to Runs, which name files as its desk does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from ...base.errors import InputError, MemprofError, UsageError, os_reason
from ...base.units import format_bytes
from ...places.place import Place
from ...programs import runtimes
from ...records import store
from ...records.types import Job, Run
from ...subjects.order import Order
from ...subjects.orders import plan
from ...subjects.suite import Suite
from ...versions import packages
from .. import campaign
from ..outputs import Outputs
from ..progress import Silent
from . import remote_builds
from .message import ComparisonTask, Repeats, Result, SearchRequest
from .remote_builds import Unmade
from .worker_files import Ask, folder_of

_MOST_OUTPUTS = 64 << 20


class Tell(Protocol):
    """Tells the desk what an Event of these words says."""

    def __call__(self, **words: Any) -> None: ...


class PlaceLost(Exception):
    """The place cannot be reached any more."""


def measure(comparison: ComparisonTask, place: Place, name: str, tell: Tell, ask: Ask) -> Result:
    """Measure a comparison; how that ended. name: the place's, in the fleet. ask: for files, see worker_files. Raises PlaceLost."""
    before = os.getcwd()
    try:
        with folder_of(comparison.files, ask) as folder:
            for each in comparison.names.keys() - {file.name for file in comparison.files}:  # folders that commands run in
                (folder / each).mkdir(parents=True, exist_ok=True)
            os.chdir(folder)
            try:
                _measure(comparison, place, name, folder, tell)
            finally:
                os.chdir(before)
        return Result()
    except UsageError as error:
        return Result("usage", str(error))
    except Unmade as error:
        return Result("unmade", "; ".join(error.reasons.values()), error.reasons)
    except MemprofError as error:
        runtimes.forget()  # what was lacking may be installed before the next comparison comes
        return Result("refused", str(error))


def _measure(comparison: ComparisonTask, place: Place, name: str, folder: Path, tell: Tell) -> None:
    sought = comparison.sought or SearchRequest()
    repeats = sought.repeats_at.get(name, sought.repeats)
    outputs = Outputs(folder / "outputs.npz", folder / (sought.reference or "default.npz"))
    names = {str(folder.resolve() / each): path for each, path in comparison.names.items()}
    teller = _Teller(tell)
    with _orders(comparison, sought, repeats, place, folder, teller.say) as orders:
        tell(plan=len(orders))
        if sought.outputs:
            orders = outputs.asked(orders)
        try:
            for run in campaign.measure(orders, teller, lambda line: None):
                if run.outcome.cut == "connection":
                    raise PlaceLost(run.outcome.message)
                if sought.outputs:
                    run = outputs.compared(run, run.job.variant == orders[0].job.variant)
                tell(run=store.encode(_as_at_desk(run, comparison, names)))
        except OSError as error:
            raise InputError(f"{error.filename or 'measuring'}: {os_reason(error)}") from None
    if sought.outputs == "sent":
        _send(outputs.reference, tell)


class _Teller(Silent):
    """Passes sentences on."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def say(self, sentence: str) -> None:
        self._tell(remark=sentence)


@contextmanager
def _orders(
    comparison: ComparisonTask, sought: SearchRequest, repeats: Repeats, place: Place, folder: Path, say: Callable[[str], None]
) -> Iterator[Sequence[Order]]:
    """The orders of a comparison, of its commits or of its suite's words."""
    if sought.commits is not None:
        place.only_here("a commit, which is built first,")
        with remote_builds.built(sought.commits, repeats, folder.resolve(), say) as orders:
            yield orders
        return
    suite = replace(comparison.suite, place=place)
    planned = plan(_with_releases(suite, sought, place, say) if sought.package else suite)
    if comparison.sought is None:  # a search says its own
        for remark in planned.remarks:
            say(remark)
    wanted = [
        order for order in planned.orders if order.job.repeat in repeats.get(order.job.variant, comparison.repeats or (order.job.repeat,))
    ]
    yield [replace(order, job=_asked(order.job, sought)) for order in wanted]


def _asked(job: Job, sought: SearchRequest) -> Job:
    if sought.variant:
        job = replace(job, variant=sought.variant, version=job.variant)
    return replace(job, at=dict(sought.at), sessions=sought.sessions, verifies=sought.verifies, planned_bytes=sought.planned_bytes)


def _with_releases(suite: Suite, sought: SearchRequest, place: Place, say: Callable[[str], None]) -> Suite:
    """The suite with the environment of each release, which is made if it is missing. Raises UsageError and InputError."""
    variants = []
    for variant in suite.variants:
        place.only_here(f"{sought.package} {variant.name}, which is installed first,")
        runtime = variant.runtime if variant.command is None else None
        package = packages.parse(sought.package, runtime, sought.beside, suite.python)
        variants.append(packages.inside(variant, package, package.ensure(variant.name, say)))
    return replace(suite, variants=tuple(variants))


def _send(outputs: Path, tell: Tell) -> None:
    """Hand the default's outputs to the desk, if they are there and not too large for it."""
    size = outputs.stat().st_size if outputs.exists() else 0
    if size > _MOST_OUTPUTS:
        tell(
            remark=f"the model's outputs have {format_bytes(size)}, more than the {format_bytes(_MOST_OUTPUTS)} that travel: they are compared "
            "only when the proposals are verified"
        )
    elif size:
        tell(outputs=outputs.read_bytes())


def _as_at_desk(run: Run, comparison: ComparisonTask, names: Mapping[str, str]) -> Run:
    """The Run with the desk's names of files. names: by their paths here."""
    job = msgspec.convert(_renamed(msgspec.to_builtins(run.job), names), Job)
    return replace(run, job=replace(job, model=comparison.model) if comparison.model is not None else job)


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return names.get(os.path.abspath(value), value) if os.sep in value else value
    if isinstance(value, dict):
        return {key: _renamed(each, names) for key, each in value.items()}
    return [_renamed(each, names) for each in value] if isinstance(value, (list, tuple)) else value
