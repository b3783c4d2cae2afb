"""`memprof bisect` by growth and by law of a program: its words are filled in by the question, in each version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.sample_runs import job

from memprof.base.errors import UsageError
from memprof.campaign.progress import Silent
from memprof.growth.laws import laws
from memprof.growth.laws.terms import SizePoint
from memprof.programs.commands import RUNTIME, of_words
from memprof.records.types import COMMAND
from memprof.regressions.bisect import bisect as bisecting
from memprof.regressions.bisect.bisect_request import BisectRequest, SearchState
from memprof.regressions.bisect.search import VersionStep
from memprof.regressions.bisect.step_sides import also
from memprof.regressions.bisect.version_range import Versions
from memprof.subjects import drive
from memprof.subjects.order import Order
from memprof.subjects.suite import Suite, Variant
from memprof.verdicts import growth
from memprof.versions import measurement


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Versions:
    """Four releases of an engine that a program uses; its name among the words is the release's number."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    class Planned:
        def __init__(self, suite: Suite) -> None:
            asked = job(
                "served", "served", runtime=COMMAND, phase_regexes=dict(suite.phase_regexes), drive=suite.drive and suite.drive.words
            )
            self.orders = [Order(asked, RUNTIME, "", {}, None, subject=suite)]

    @contextmanager
    def opened(number: int, say: Callable[[str], None]) -> Iterator[Suite]:
        command = of_words(["served", str(number), "{runs}", "{minutes}"])
        yield Suite(variants=(Variant(COMMAND, "served", command=command),), phase_regexes={"request": "^served"})

    monkeypatch.setattr(measurement, "plan", Planned)
    labels = tuple(f"1.{number}" for number in range(4))
    return Versions(
        "release",
        "engine",
        labels,
        opened,
        lambda number: labels[number],
        "key",
        packages=lambda number: {"engine": "1", "numpy": f"2.{number}"},
    )


def answered(versions: Versions, **words: object) -> bisecting.Bisected:
    return bisecting.bisect_versions(BisectRequest(versions, explain=False, **words), Silent(), None, lambda line: None)


def test_bisect_by_growth_of_program(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    def grown(request: object, progress: object, keep: object) -> object:
        command = request.command  # type: ignore[attr-defined]
        assert command.has("runs") and request.cycles is None  # type: ignore[attr-defined]
        rate = 4096.0 if int(command.argv[1]) >= 2 else None
        each = growth.Growth("grows", "request", rate, rate - 9, rate + 9) if rate else growth.Growth("steady", "request", high=2.0)
        return SimpleNamespace(interrupted=False, verdict=growth.Verdict(each.word, "request", each.slope, processes=(each,) * 3))

    monkeypatch.setattr(bisecting.grow, "grow", grown)

    answer = answered(versions, metric="growth_bytes")

    (step,) = answer.searched.steps
    assert (step.before, step.at, answer.question.phase) == (1, 2, "per request")
    with pytest.raises(UsageError, match="--per reload: a program's growth is by the unit that it marks"):
        answered(versions, metric="growth_bytes", per="reload")


def test_unit_of_driven_program_is_request(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def opened(number: int, say: Callable[[str], None]) -> Iterator[Suite]:
        yield Suite(variants=(Variant(COMMAND, "served", command=of_words(["served"])),), drive=drive.parse("openai:8080"))

    steady = growth.Growth("steady", "request", high=2.0)
    verdict = growth.Verdict("steady", "request", processes=(steady,) * 3)
    monkeypatch.setattr(bisecting.grow, "grow", lambda *words: SimpleNamespace(interrupted=False, verdict=verdict))

    assert answered(replace(versions, open=opened), metric="growth_bytes").question.phase == "per request"


def test_bisect_by_law_of_program(versions: Versions, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(request: object, progress: object, keep: object) -> object:
        size = (1 << 20) * (2 if int(request.suite.only.command.argv[1]) >= 3 else 1)  # type: ignore[attr-defined]
        points = [SizePoint({"minutes": minutes}, 1e8 + size * minutes) for minutes in (1, 8, 16, 24, 32, 64)]
        return SimpleNamespace(interrupted=False, main="PEAK", law=laws.law(points, noise=(2000.0, 1e-5)), unbelievable="")

    monkeypatch.setattr(bisecting.scale, "scale", scaled)
    monkeypatch.setattr(bisecting.scale, "check", lambda request: None)

    answer = answered(versions, metric="law_bytes", vary=("minutes=1..64",))

    (step,) = answer.searched.steps
    assert (step.before, step.at, answer.question.phase) == (2, 3, "per minutes")


def test_search_known_by_words(versions: Versions) -> None:
    SearchState(BisectRequest(versions), print).failed("1.1", "it cannot be installed")

    assert SearchState(BisectRequest(versions), print).failures == {"1.1": "it cannot be installed"}
    assert not SearchState(BisectRequest(replace(versions, suite=Suite(warmup=3))), print).failures


def test_packages_around_program_told(versions: Versions) -> None:
    step = VersionStep(1, 2, None)
    assert also(versions, step, [], []) == ("numpy 2.1 → 2.2",)
