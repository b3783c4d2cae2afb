"""`memprof bisect` on a fleet that is made up: what is compared is of one machine, whatever its level, and what is lost is found out."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import sample_runs

from memprof.base.errors import InputError, UsageError
from memprof.campaign.fleet.message import Commits
from memprof.campaign.fleet.search_client import ComparisonResult
from memprof.campaign.fleet.version_transfer import CommitPayload, Releases
from memprof.campaign.progress import Silent
from memprof.records import store
from memprof.records.summary import Key, VariantKey
from memprof.records.types import About, Attempt, Outcome, Run
from memprof.regressions.bisect import bisect as bisecting
from memprof.regressions.bisect import bisect_request as asked
from memprof.regressions.bisect import search
from memprof.regressions.bisect.version_range import Versions
from memprof.subjects.suite import Build, Suite, Variant
from memprof.versions.measurement import Selection


def versions(count: int) -> Versions:
    labels = tuple(f"1.{number}" for number in range(count))

    @contextmanager
    def opened(number: int, say: Callable[[str], None]) -> Iterator[Suite]:
        raise AssertionError("nothing is opened at the desk")
        yield

    suite = Suite(models=("net.onnx",), variants=(Variant(runtime="engine", name="fp16 @ cpu"),))

    def travels(which: object, say: object) -> AbstractContextManager[Releases]:
        return nullcontext(Releases(suite, "engine"))

    return Versions("release", "engine", labels, opened, lambda number: labels[number], "key", {}, travels)


@dataclass
class Fleet:
    """Machines whose levels differ by 8 MiB. levels: of each version, in MiB. crash: versions that do not run. lacking: versions that no machine can
    install. asked: for each comparison how many runs of each version its machine had to measure, and its machine."""

    levels: Sequence[float]
    width: int = 4
    crash: tuple[int, ...] = ()
    lacking: tuple[int, ...] = ()
    name: str = "kind=x"
    stop_after: int = 10**9
    asked: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    turns: int = 0
    _machines: itertools.cycle[int] | None = None
    _keys: itertools.count[int] = field(default_factory=itertools.count)
    _kept: int = 0

    def check_hosts(self) -> None: ...

    def _turn(self, asked: Sequence[object]) -> Iterator[tuple[object, int]]:
        """What a turn asks, each with the number of its machine."""
        self.turns += 1
        self._machines = self._machines or itertools.cycle(range(self.width))
        return zip(asked, self._machines, strict=False)

    def measure(
        self, asked: Sequence[object], progress: object, keep: Callable[[bytes], None], stop: object = None
    ) -> Iterator[tuple[int, ComparisonResult]]:
        for number, (each, machine) in enumerate(self._turn(asked)):
            sought = each.sought
            repeats_here = sought.repeats_at.get(f"m{machine}", sought.repeats)
            assert each.suite.repeats == max(max(repeats, default=0) for repeats in each.sought.repeats.values())
            assert sought.package == "engine"
            numbers = {variant.name: int(variant.name.removeprefix("1.")) for variant in each.suite.variants}
            if any(version in self.lacking for version in numbers.values()):
                yield number, ComparisonResult(why="net.onnx failed 3 times, on 3 machines and is given up: m1: there is no wheel")
                continue
            key, runs = str(next(self._keys)), []
            count = sum(map(len, repeats_here.values()))
            for repeat in range(1, each.suite.repeats + 1):
                for name, version in numbers.items():
                    if repeat in repeats_here[name]:
                        runs.append(self._run(sought.variant, version, repeat, machine, Attempt(key, 1, count, f"m{machine}")))
                        keep(store.encode(runs[-1]))
                        self._kept += 1
                        if self._kept == self.stop_after:
                            raise KeyboardInterrupt
            self.asked.append((f"m{machine}", {str(numbers[name]): len(some) for name, some in repeats_here.items() if some}))
            yield number, ComparisonResult(tuple(runs), bool(runs))

    def _run(self, name: str, version: int, repeat: int, machine: int, attempt: Attempt) -> Run:
        outcome = Outcome("signal", "PREPARE", signal="SIGILL") if version in self.crash else None
        run = sample_runs.run(
            name, repeat, extra_mib=self.levels[version] + 8 * machine + 0.01 * repeat, outcome=outcome, version=f"1.{version}"
        )
        return replace(run, attempt=attempt, about=About("1.0", "3.11.0", packages={"numpy": "1" if version < 7 else "2"}))


class Boards(Fleet):
    def check_hosts(self) -> None:
        raise UsageError("there are boards")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def answered(fleet: Fleet, said: list[str] | None = None, of: Versions | None = None, **words: object) -> bisecting.Bisected:
    request = asked.BisectRequest(of or versions(len(fleet.levels)), fleet=fleet, **words)  # type: ignore[arg-type]
    return bisecting.bisect_versions(request, Silent(), None, (said if said is not None else []).append)


def stepped(count: int, *at: int) -> list[float]:
    return [20.0 * sum(number >= place for place in at) for number in range(count)]


@pytest.mark.parametrize(("width", "at"), [(1, 22), (2, 7), (4, 1), (4, 29)])
def test_step_found_across_machine_levels(width: int, at: int) -> None:
    fleet = Fleet(stepped(30, at), width)
    answer = answered(fleet)

    (step,) = answer.searched.steps
    assert (step.before, step.at, step.between) == (at - 1, at, ())
    assert step.judged.difference == pytest.approx(20 * sample_runs.MIB, rel=0.01)
    assert answer.also == ((("numpy 1 → 2",) if at == 7 else ()),)
    assert answer.sides[0][0].why.startswith("a step that a fleet found is not explained")
    # Each machine measures the ends once, both at once; a turn has as many versions as machines.
    assert fleet.asked[:width] == [(f"m{number}", {"0": 12, "29": 12}) for number in range(width)]
    assert fleet.turns <= {1: 7, 2: 6, 4: 5}[width]


def commits(count: int, several: bool = False) -> Versions:
    labels = tuple(f"c{number:02}" for number in range(count))
    told = Commits({}, "r", "sha1", "commits.pack", (), {}, "checkout", "suite.toml", Build(), Selection())

    def travels(which: Selection, say: object) -> AbstractContextManager[CommitPayload]:
        return nullcontext(CommitPayload(replace(told, hashes=dict(zip(labels, labels, strict=True)), which=which), (), several))

    return replace(versions(count), noun="commit", labels=labels, travels=travels)


@dataclass
class Builders(Fleet):
    """As Fleet, for commits of a suite of two variants, of which "b" moves. broken: commits that no machine can build, though it can others."""

    broken: tuple[int, ...] = ()
    followed: list[object] = field(default_factory=list)

    def measure(
        self, asked: Sequence[object], progress: object, keep: Callable[[bytes], None], stop: object = None
    ) -> Iterator[tuple[int, ComparisonResult]]:
        for number, (each, machine) in enumerate(self._turn(asked)):
            sought = each.sought
            repeats_here = sought.repeats_at.get(f"m{machine}", sought.repeats)
            self.followed.append(sought.commits.which.place)
            assert {label: label for label in sought.repeats} == sought.commits.hashes and each.sent == ()
            wanted = {label: some for label, some in repeats_here.items() if some}
            unmade = {label: f"m{machine}: {label} cannot be built" for label in wanted if int(label[1:]) in self.broken}
            if unmade:
                yield number, ComparisonResult(why="; ".join(unmade.values()), unmade=unmade)
                continue
            places = ["a", "b"] if sought.commits.which.place is None else [sought.commits.which.place.variant]
            key, count = str(next(self._keys)), sum(map(len, wanted.values())) * len(places)
            runs = [
                self._of(label, name, repeat, machine, Attempt(key, 1, count, f"m{machine}"))
                for repeat in range(1, 1 + max((max(some) for some in wanted.values()), default=0))
                for label, some in wanted.items()
                for name in places
                if repeat in some
            ]
            for run in runs:
                keep(store.encode(run))
                self._kept += 1
                if self._kept == self.stop_after:
                    raise KeyboardInterrupt
            self.asked.append((f"m{machine}", {label: len(some) for label, some in wanted.items()}))
            yield number, ComparisonResult(tuple(runs), bool(runs))

    def _of(self, label: str, name: str, repeat: int, machine: int, attempt: Attempt) -> Run:
        level = self.levels[int(label[1:])] if name == "b" else 0.0
        return replace(sample_runs.run(name, repeat, extra_mib=level + 8 * machine + 0.01 * repeat, version=label), attempt=attempt)


def test_commits_follow_most_different_variant() -> None:
    fleet, said = Builders(stepped(30, 12), width=3), list[str]()
    answer = answered(fleet, said, commits(30, several=True))

    (step,) = answer.searched.steps
    assert (step.before, step.at, answer.question.key.variant) == (11, 12, "b")
    # Both variants are measured a few times, on one machine; then only the one that is followed, as often as it takes.
    assert fleet.followed[0] is None and set(fleet.followed[1:]) == {VariantKey("net.onnx", "b", None)}
    assert fleet.asked[0] == ("m0", {"c00": 5, "c29": 5})
    assert dict(fleet.asked)["m0"] is not None and ("m0", {"c00": 7, "c29": 7}) in fleet.asked
    assert answer.sides[0][0].why.endswith("bisect of the two commits on one of its machines, without --on, explains it")


def test_unbuildable_commit_skipped() -> None:
    fleet = Builders(stepped(30, 12), width=2, broken=(0, 12, 29))
    answer = answered(fleet, of=commits(30, several=True))

    (step,) = answer.searched.steps
    assert (step.before, step.at, step.between) == (11, 13, (12,))
    assert answer.searched.skipped[12] in ("m0: c12 cannot be built", "m1: c12 cannot be built")
    assert (min(answer.searched.values), max(answer.searched.values)) == (1, 28)
    with pytest.raises(InputError, match=r"^no version near the bad end can be measured: m\d: c29 cannot be built$"):
        answered(Builders(stepped(30, 12), broken=(26, 27, 28, 29)), of=commits(30, several=True))


def test_commit_search_resumes() -> None:
    fleet, said = Builders(stepped(30, 12), width=2, stop_after=20 + 14 + 24 + 3), list[str]()
    with pytest.raises(KeyboardInterrupt):
        answered(fleet, of=commits(30, several=True))
    again = Builders(fleet.levels, width=2)
    assert answered(again, said, commits(30, several=True)).searched.steps[0].at == 12
    assert said == ["goes on where the search was stopped: 61 runs of 3 commits are known"]
    assert not any("c00" in measured or "c29" in measured for _, measured in again.asked)


def test_machine_levels_form_no_step() -> None:
    fleet = Fleet([0.0] * 30)
    answer = answered(fleet)

    assert not answer.searched.steps and answer.searched.ends.verdict == "ok"
    assert fleet.turns == 1 and sorted(answer.searched.values) == [0, 29]


def test_every_step_found() -> None:
    assert [step.at for step in answered(Fleet(stepped(14, 4, 10)), every=True).searched.steps] == [4, 10]


def test_unusable_versions_skipped() -> None:
    said: list[str] = []
    fleet = Fleet(stepped(30, 12), crash=(0, 12), lacking=(29, 11))
    answer = answered(fleet, said)

    (step,) = answer.searched.steps
    assert (step.before, step.at, step.between) == (10, 13, (11, 12))
    assert answer.searched.skipped[12] == "its run failed: ended by SIGILL in PREPARE"
    assert answer.searched.skipped[11].endswith("is given up: m1: there is no wheel")
    assert (min(answer.searched.values), max(answer.searched.values)) == (1, 28)


def test_search_without_usable_end() -> None:
    with pytest.raises(InputError, match=r"no version near the good end can be measured: net\.onnx failed 3 times"):
        answered(Fleet(stepped(30, 12), lacking=(0, 1, 2, 3)))


def test_fleet_giving_up_ends_search() -> None:
    class Fails(Fleet):
        def measure(self, asked: Sequence[object], *rest: object) -> Iterator[tuple[int, ComparisonResult]]:  # type: ignore[override]
            names = {variant.name for variant in asked[0].suite.variants}  # type: ignore[attr-defined]
            if names == {"1.1", "1.2"}:  # each of them was measured, but on another machine
                return iter([(0, ComparisonResult(why="net.onnx failed 3 times: x: full"))])
            return super().measure(asked, *rest)  # type: ignore[arg-type]

    with pytest.raises(InputError, match=r"^net\.onnx failed 3 times: x: full$"):
        answered(Fails(stepped(4, 2), width=2))


def test_version_search_resumes_whole_comparisons() -> None:
    fleet, said = Fleet(stepped(30, 12), width=2, stop_after=24 + 24 + 3), list[str]()
    with pytest.raises(KeyboardInterrupt):
        answered(fleet, said)
    again = Fleet(fleet.levels, width=2)
    answer = answered(again, said)

    assert answer.searched.steps[0].at == 12
    assert said == ["goes on where the search was stopped: 51 runs of 3 releases are known"]
    # The machines have the ends; of the version whose comparison was not seen to its end all is measured again.
    assert not any("0" in measured or "29" in measured for _, measured in again.asked)
    assert [sum(measured.values()) for _, measured in again.asked if measured][:2] == [6, 6]
    other = dataclasses.replace(again, name="kind=y", asked=[], turns=0)
    answered(other, said)
    assert len(said) == 1, "another kind of machine is another question"


@pytest.mark.parametrize(
    ("fleet", "words", "refusal"),
    [
        (Fleet([0.0] * 3), {"metric": "growth_bytes"}, "--metric growth_bytes is measured on this machine only"),
        (Boards([0.0] * 3), {}, "there are boards"),
        (Fleet([0.0] * 3), {"phase": "NONE"}, "--at-phase NONE: the runs have no such phase"),
    ],
)
def test_fleet_search_refusals(fleet: Fleet, words: dict[str, object], refusal: str) -> None:
    with pytest.raises(UsageError, match=refusal):
        answered(fleet, **words)


def test_turn_versions_divide_range() -> None:
    parts = search._StepSearch(
        30, lambda wants: [], 3, search.FigureQuestion(Key("net.onnx", "a", None, "here"), "PEAK", "rss_peak_bytes", 1), print, None
    )
    assert parts._inside(0, 28) == [7, 14, 21]
    assert parts._inside(0, 3) == [1, 2]
    assert parts._inside(3, 4) == []
    parts.skipped = {14: "", 15: ""}
    assert parts._inside(13, 17) == [16]
