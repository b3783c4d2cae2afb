"""The atlas on a fleet: all releases of a runtime over one model are a comparison, and stay on one machine; models and runtimes are measured at once
on machines of one kind, whose workers install the releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from memprof.campaign.fleet.message import SearchRequest
from memprof.campaign.fleet.payload import SearchTrial
from memprof.campaign.fleet.search_client import Machines
from memprof.campaign.progress import Progress
from memprof.records.types import Run
from memprof.subjects.suite import Suite
from memprof.versions.commits import Commit

from . import subjects


@dataclass(frozen=True)
class Wanted:
    """The releases of a runtime that are missing, and the models to measure them with, by their names on the page."""

    runtime: str
    releases: tuple[Commit, ...]
    models: Mapping[str, Path]


def unable(fleet: Machines, every: Sequence[Wanted], progress: Progress) -> dict[str, str]:
    """The releases that no worker could install and start, with the reason: each is run once. By `runtime version`."""
    releases = [(wanted, release) for wanted in every for release in wanted.releases]
    asked = [_asked(wanted, next(iter(wanted.models)), [release], 1) for wanted, release in releases]
    return {releases[number][1].subject: answer.why for number, answer in fleet.measure(asked, progress, _drop) if answer.why}


def measured(
    fleet: Machines, every: Sequence[Wanted], repeats: int, progress: Progress
) -> Iterator[tuple[Wanted, Mapping[str, Sequence[Run]], str]]:
    """Each runtime with the runs of its releases by their subjects; or none of them, and why a model of it was given up.

    If the fleet is lost or the user interrupts, those come whose models are all measured, and then the error.
    """
    asked = [(wanted, _asked(wanted, name, wanted.releases, repeats)) for wanted in every for name in wanted.models]
    answers: dict[int, list[Run]] = {number: [] for number in range(len(every))}
    left = {number: len(wanted.models) for number, wanted in enumerate(every)}
    for place, answer in fleet.measure([words for _, words in asked], progress, _drop):
        number = next(index for index, wanted in enumerate(every) if wanted is asked[place][0])
        left[number] -= 1
        answers[number] += answer.runs
        if answer.why:
            left[number] = -1  # it never becomes whole
            yield every[number], {}, answer.why
        elif not left[number]:
            yield every[number], _by_release(every[number], answers.pop(number)), ""


def _asked(wanted: Wanted, name: str, releases: Sequence[Commit], repeats: int) -> SearchTrial:
    variants = tuple(replace(subjects.variant(wanted.runtime, None), name=release.tags[0]) for release in releases)
    suite = Suite(models=(str(wanted.models[name]),), variants=variants, name=name, warmup=1, runs=2, repeats=repeats)
    return SearchTrial(suite, SearchRequest(package=wanted.runtime, variant=wanted.runtime))


def _by_release(wanted: Wanted, runs: Sequence[Run]) -> dict[str, list[Run]]:
    return {release.subject: [run for run in runs if run.job.version == release.tags[0]] for release in wanted.releases}


def _drop(line: bytes) -> None:
    """Runs are kept once they are named."""
