"""The search for a version: right, certain and short on figures that are made up; then on real commits and with versions that cannot be had."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support.sample_runs import MIB, job, run

from memprof.base.errors import InputError, UndecidedError, UsageError
from memprof.campaign.progress import Silent
from memprof.explain.records import AGAIN, KEPT, LIBRARIES, MODEL_FILE, ONCE, Advice, PhaseFigures, PhaseLook, Slice
from memprof.growth.laws import laws
from memprof.growth.laws.terms import SizePoint
from memprof.places.place import HERE
from memprof.records import store
from memprof.records.summary import Key, Row, groups, highest_phases
from memprof.records.types import About, Job, Outcome
from memprof.regressions.bisect import bisect as bisecting
from memprof.regressions.bisect import search
from memprof.regressions.bisect.bisect_request import BisectRequest, SearchState, StepSide
from memprof.regressions.bisect.search import FigureQuestion, Look, Searched, Unable, Unanswered, VersionStep
from memprof.regressions.bisect.version_range import Versions
from memprof.reports.tables import bisect as report
from memprof.subjects.dimensions import parse
from memprof.subjects.order import Order
from memprof.subjects.suite import Suite, Variant
from memprof.verdicts import compare, growth, sample_distance
from memprof.verdicts.verdicts import Limits, judge_row
from memprof.versions import measurement

QUESTION = FigureQuestion(Key("net.onnx", "a", None, "here"), "PEAK", "rss_peak_bytes", 512 << 10)


def levels(*figures: float, seed: int = 0, modes: float = 0.0, noise: float = 0.0003) -> Look:
    """Versions with these peaks in MiB, with noise; modes: how far two modes lie apart, as a share."""
    draw = random.Random(seed)

    def look(place: int, repeats: int) -> tuple[float, ...]:
        level = figures[place] * MIB
        return tuple(round(draw.gauss(level, noise * level) + modes * level * draw.randint(0, 1)) for _ in range(repeats))

    return look


def stepped(count: int, at: int, size: float, level: float = 200) -> list[float]:
    return [level if place < at else level * (1 + size) for place in range(count)]


@pytest.mark.parametrize(("modes", "size"), [(0.0, 0.015), (0.024, 0.015), (0.024, -0.02), (0.024, 0.05)])
def test_search_finds_version_in_few_measurements(modes: float, size: float) -> None:
    searched = search.search(128, levels(*stepped(128, 77, size), modes=modes), QUESTION)
    (step,) = searched.steps
    assert (step.before, step.at, step.between) == (76, 77, ())
    assert len(searched.values) <= 7 + 3
    assert step.judged.difference == pytest.approx(size * 200 * MIB, rel=0.1) or modes
    assert not searched.skipped


def test_search_says_verdicts_and_time() -> None:
    said: list[str] = []
    hour_ns = 3600 * 10**9
    search.search(9, levels(*stepped(9, 5, 0.4)), QUESTION, say=said.append, began_ns=time.monotonic_ns() - hour_ns)

    assert said[0].startswith("the ends differ: +") and said[1] == "about 3 turns will follow, 5400 s in all"
    assert said[2] == "number 5 of 9 is like the good end"


def test_search_stops_at_alike_ends() -> None:
    searched = search.search(128, levels(*[200] * 128), QUESTION)
    assert (searched.steps, sorted(searched.values), searched.ends.verdict) == ((), [0, 127], "ok")


@pytest.mark.parametrize("seed", range(4))
def test_search_finds_step_between_modes(seed: int) -> None:
    """The upper mode of the one side lies where the lower of the other does, so that each has a mode that the other lacks."""
    searched = search.search(16, levels(*stepped(16, 7, -0.02), seed=seed, modes=0.02), QUESTION)
    assert (searched.ends.verdict, [step.at for step in searched.steps]) == ("improved", [7])


def test_search_respects_threshold() -> None:
    figures = stepped(16, 5, 0.006)
    assert not search.search(16, levels(*figures), QUESTION).steps
    fine = FigureQuestion(QUESTION.key, "PEAK", "rss_peak_bytes", 512 << 10, Limits(share=0.003))
    assert search.search(16, levels(*figures), fine).steps[0].at == 5


def test_search_ignores_small_change_beside_step() -> None:
    figures = [200.0] * 4 + [200.1] * 6 + [220.0] * 6
    for noise in (0.0, 0.00001):
        assert search.search(16, levels(*figures, noise=noise), QUESTION).steps[0].at == 10


def test_search_finds_first_or_every_step() -> None:
    figures = [200] * 20 + [210] * 20 + [230] * 20
    assert [step.at for step in search.search(60, levels(*figures), QUESTION).steps] == [20]
    assert [step.at for step in search.search(60, levels(*figures), QUESTION, every=True).steps] == [20, 40]


def test_search_range_around_unavailable_versions() -> None:
    whole = levels(*stepped(32, 20, 0.1))

    def look(place: int, repeats: int) -> tuple[float, ...] | Unable:
        return Unable("no wheel for this Python") if 18 <= place <= 22 else whole(place, repeats)

    searched = search.search(32, look, QUESTION)
    (step,) = searched.steps
    assert (step.before, step.at, step.between) == (17, 23, (18, 19, 20, 21, 22))
    assert set(searched.skipped.values()) == {"no wheel for this Python"}


def test_search_replaces_unavailable_end() -> None:
    whole = levels(*stepped(32, 20, 0.1))

    def look(place: int, repeats: int) -> tuple[float, ...] | Unable:
        return Unable("yanked") if place in (0, 1, 31) else whole(place, repeats)

    searched = search.search(32, look, QUESTION)
    assert (searched.steps[0].at, min(searched.values), max(searched.values)) == (20, 2, 30)
    with pytest.raises(Unanswered, match="no version near the good end can be measured: no network"):
        search.search(32, lambda place, repeats: Unable("no network"), QUESTION)


def test_search_reports_undecidable_noise() -> None:
    def three_modes(place: int, repeats: int) -> tuple[float, ...]:
        return tuple((200 + 10 * ((number * (place + 1)) % (2 + place % 2))) * MIB for number in range(repeats))

    with pytest.raises(Unanswered, match="the ends cannot be told apart from noise in 40 repeats each: 3 modes"):
        search.search(3, lambda place, repeats: three_modes(0 if place == 0 else 3, repeats), QUESTION)
    # One version is between both modes of noise: it is skipped, and the answer is a range.
    figures = levels(*stepped(16, 8, 0.05))

    def look(place: int, repeats: int) -> tuple[float, ...]:
        mixed = [figures(0 if number % 2 else 15, 1)[0] for number in range(repeats)]
        return tuple(mixed) if place == 7 else figures(place, repeats)

    searched = search.search(16, look, QUESTION)
    assert (searched.steps[0].before, searched.steps[0].at) in ((6, 7), (6, 8))


def test_search_ends_when_end_becomes_unavailable() -> None:
    figures, had = levels(*stepped(16, 8, 0.05)), dict.fromkeys(range(16), 0)

    def look(place: int, repeats: int) -> tuple[float, ...] | Unable:
        had[place] += repeats
        if place == 0 and had[0] > search.ENDS:
            return Unable("the disk is full")
        # Like both ends, so that more repeats are asked for, and more of the ends too.
        return (
            tuple(figures(0 if number % 2 else 15, 1)[0] for number in range(repeats)) if place not in (0, 15) else figures(place, repeats)
        )

    with pytest.raises(Unanswered, match="an end cannot be measured any more, as it could before: the disk is full"):
        search.search(16, look, QUESTION)


def test_search_repeats_only_where_needed() -> None:
    calm = search.search(64, levels(*stepped(64, 30, 0.05)), QUESTION)
    turns = [len(values) for place, values in calm.values.items() if place not in (0, 63, 29, 30)]
    assert set(turns) == {search.LOOKS[0]}
    noisy = search.search(64, levels(*stepped(64, 30, 0.03), noise=0.02), QUESTION)
    assert noisy.steps[0].at == 30
    assert max(map(len, noisy.values.values())) > search.LOOKS[1]


def test_likeness_keeps_level() -> None:
    draw = random.Random(3)

    def sample() -> list[float]:
        return [draw.gauss(200, 0.1) + 5 * draw.randint(0, 1) for _ in range(8)]

    values = [sample_distance.chance(sample(), sample(), 1.0) for _ in range(120)]
    assert sum(value <= 0.05 for value in values) <= 14
    assert statistics.median(values) > 0.3
    assert sample_distance.chance([1.0] * 6, [1.0] * 12, 1.0) == 1.0
    assert sample_distance.chance([200.0] * 6, [210.0] * 12, 1.0) < 1e-3


def fake(
    monkeypatch: pytest.MonkeyPatch,
    levels_mib: list[float],
    broken: dict[int, str] | None = None,
    crash: int | None = None,
    variants: Sequence[str] = ("a",),
) -> tuple[Versions, list[str]]:
    """Versions whose runs are made up, and a list that notes each version that is opened or measured."""
    noted: list[str] = []

    @contextmanager
    def opened(number: int, say: Callable[[str], None]) -> Iterator[Suite]:
        noted.append(f"open {number}")
        if number in (broken or {}):
            raise InputError((broken or {})[number])
        yield Suite(name=str(number))

    def of(job: Job) -> Suite:
        return Suite(models=("net.onnx",), variants=(Variant(job.runtime, job.variant, env=job.variables),))

    class Planned:
        def __init__(self, suite: Suite) -> None:
            orders = [job("net.onnx", name, env={"level": str(suite.name)}) for name in variants]
            self.orders = [Order(job, None, "python", {}, None, subject=of(job)) for job in orders]  # type: ignore[arg-type]

    def measure(orders: list[Order], progress: object, keep: Callable[[bytes], None]) -> Iterator[object]:
        for order in orders:
            number = int(str(order.job.env["level"]))
            noted.append(f"run {number}")
            outcome = Outcome("signal", "PREPARE", signal="SIGILL") if number == crash else None
            more = (levels_mib[number] - 200) * (order.job.variant == variants[-1])
            measured = replace(run(extra_mib=more + 0.01 * order.job.repeat, outcome=outcome), job=order.job)
            packages = {"an_engine": f"1.{number}", "numpy": "1.26.4" if number < 11 else "2.0.1"}
            measured = replace(measured, about=About("1.0", "3.11.0", packages=packages))
            keep(store.encode(measured))
            yield measured

    monkeypatch.setattr(measurement, "plan", Planned)
    monkeypatch.setattr(bisecting.campaign, "measure", measure)
    labels = tuple(f"1.{number}" for number in range(len(levels_mib)))
    return Versions("release", "engine", labels, opened, lambda number: labels[number], repr(levels_mib)), noted


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def answered(asked: Versions, said: list[str] | None = None, **rest: object) -> bisecting.Bisected:
    request = BisectRequest(asked, explain=False, **rest)  # type: ignore[arg-type]
    return bisecting.bisect_versions(request, Silent(), None, (said if said is not None else []).append)


def stopped(monkeypatch: pytest.MonkeyPatch, asked: Versions, after: int) -> None:
    """A search of these versions that is interrupted after so many runs."""
    measure, count = bisecting.campaign.measure, 0

    def interrupted(orders: list[Order], progress: object, keep: Callable[[bytes], None]) -> Iterator[object]:
        nonlocal count
        for measured in measure(orders, progress, keep):  # type: ignore[arg-type]
            yield measured
            count += 1
            if count == after:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bisecting.campaign, "measure", interrupted)
        answered(asked)


def test_report_has_form_of_manual(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200] * 11 + [220] * 20, broken={15: "1.15 needs numpy below 2", 10: "1.10 was yanked"})
    answer = answered(asked)
    line, also = report.sentences(answer)
    assert also == "Between them also differ: numpy 1.26.4 → 2.0.1, variable level 9 → 11."
    assert line.startswith(
        "engine 1.9 -> 1.11: PEAK 270.1 MiB -> 290.1 MiB (+7.4%), in PREPARE, first seen in MODEL_LOAD, net.onnx, a; it may lie at any of these too"
    )
    assert "which could not be measured: 1.10; 6 of 31 releases measured, 2 skipped, " in line
    text = report.render(answer)
    assert "| 1.15 " in text and "skipped: 1.15 needs numpy below 2" in text
    told = json.loads(report.render(answer, "json"))
    assert (told["steps"][0]["before"], told["steps"][0]["at"], told["steps"][0]["between"]) == ("1.9", "1.11", ["1.10"])
    assert told["sentences"] == [line, also]


def test_bisect_alike_ends_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, noted = fake(monkeypatch, [200] * 9)
    (line,) = report.sentences(answered(asked))
    assert "1.0 and 1.8 do not differ in RSS peak of PEAK" in line and "There is nothing to search (2 of 9 releases measured" in line
    assert {word for word in noted if word.startswith("open")} == {"open 0", "open 8"}


def test_bisect_skips_crashing_version(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200] * 4 + [220] * 5, crash=4)
    answer = answered(asked)
    assert answer.searched.skipped == {4: "its run failed: ended by SIGILL in PREPARE"}
    assert (answer.searched.steps[0].before, answer.searched.steps[0].at) == (3, 5)


def test_bisect_without_version_at_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, noted = fake(monkeypatch, [200] * 31, broken=dict.fromkeys(range(31), "pip cannot reach the index"))
    with pytest.raises(InputError, match="no version near the good end can be measured: pip cannot reach the index"):
        answered(asked)
    assert len(noted) == search.MOST_ENDS


def test_bisect_continues_after_interruption(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked, noted = fake(monkeypatch, [200] * 11 + [220] * 20, broken={15: "yanked"})
    stopped(monkeypatch, asked, 30)
    first = len(noted)
    said: list[str] = []
    assert answered(asked, said).searched.steps[0].at == 11
    assert said == ["goes on where the search was stopped: 30 runs of 3 releases are known"]
    again = noted[first:]
    assert not [word for word in again if word in ("run 0", "run 30", "open 15")]
    assert list((tmp_path / "cache/memprof/bisect").iterdir()) == [], "an answered question is forgotten"
    answered(asked, said)
    assert len(said) == 1


def test_bisect_not_continued_on_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, noted = fake(monkeypatch, [200] * 11 + [220] * 20)
    machine = replace(HERE.machine(), kernel="6.1.9", cpus=64)
    monkeypatch.setattr(HERE, "machine", lambda: machine)
    stopped(monkeypatch, asked, 1)
    monkeypatch.setattr(HERE, "machine", lambda: replace(machine, kernel="6.18.1", cpus=2))
    said: list[str] = []
    assert answered(asked, said).searched.steps[0].at == 11
    assert said == ["a search that was stopped is not continued: it was on another machine (kernel 6.1 against 6.18, CPUs 64 against 2)"]
    assert noted.count("run 0") > 6, "the run of the other machine is measured again"


def test_bisect_not_continued_with_other_model(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, noted = fake(monkeypatch, [200] * 11 + [220] * 20)
    stopped(monkeypatch, replace(asked, facts={"model net.onnx": "1", "Python": "3.11.7", "file x.py": "1"}), 1)
    said: list[str] = []
    assert answered(replace(asked, facts={"model net.onnx": "2", "Python": "3.11.9", "file x.py": "1"}), said).searched.steps[0].at == 11
    assert said == ["a search that was stopped is not continued: another since then: model net.onnx, Python"]
    assert noted.count("run 0") > 6, "the run of the other model is measured again"


def test_bisect_retries_failures_after_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200] * 4 + [220] * 5, broken=dict.fromkeys(range(9), "the build needs a tool"))
    with pytest.raises(InputError, match="the build needs a tool"):
        answered(asked)
    asked, _ = fake(monkeypatch, [200] * 4 + [220] * 5)
    assert answered(asked).searched.steps[0].at == 4


def test_bisect_keeps_names_of_variants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("fp16 @ cpu", "x (head)")
    asked, _ = fake(monkeypatch, [200] * 4 + [220] * 5, variants=names)
    answer = bisecting.bisect_versions(BisectRequest(asked, explain=False), Silent(), tmp_path / "runs.jsonl", [].append)
    assert (answer.question.key.variant, answer.searched.steps[0].at) == ("x (head)", 4)
    assert answered(asked, variant="fp16 @ cpu").searched.steps == ()

    loaded = store.load([tmp_path / "runs.jsonl"])
    assert {run.job.variant for run in loaded.runs} == set(names) and loaded.warnings == ()
    shown = [key.version for key in groups(loaded.runs) if key.variant == "x (head)"]
    assert shown == sorted(shown, key=lambda label: float(str(label))) and shown[-1] == "1.8"  # the newest was measured second
    # Each version is a row of its own, under the name that a table of these runs shows.
    (row,) = compare.compare_variants(loaded.runs, "x (head) @ 1.0", "x (head) @ 1.8", ("rss_peak_bytes",)).differences[-1:]
    assert (row.phase, row.verdict) == ("PEAK", "more")


def test_bisect_forgets_runs_without_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a memprof before the field kept them, with the version in the variant's name."""
    asked, noted = fake(monkeypatch, [200] * 4 + [220] * 5)
    state = SearchState(BisectRequest(asked, explain=False), [].append)
    state.keep(store.encode(run("a @ 1.0")))
    said: list[str] = []
    assert answered(asked, said).searched.steps[0].at == 4 and said == []
    assert noted.count("run 0") >= 6


def test_bisect_follows_most_different_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200] * 4 + [220] * 5, variants="abc")
    assert answered(asked).question.key.variant == "c"
    assert answered(asked, variant="a").searched.steps == ()
    with pytest.raises(InputError, match=r"there is no such model and variant; there are net\.onnx, a; net\.onnx, b"):
        answered(asked, variant="z")


def test_bisect_by_metric_and_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200] * 4 + [220] * 5)
    answer = answered(asked, metric="anon_end_bytes", phase="PREPARE")
    assert (answer.question.phase, answer.phases, answer.searched.steps[0].at) == ("PREPARE", ("PREPARE",), 4)
    with pytest.raises(UsageError, match="the runs have no such phase; did you mean PREPARE"):
        answered(asked, phase="PREPAER")
    with pytest.raises(UsageError, match="--metric shmem_end_bytes: PEAK has none"):
        answered(asked, metric="shmem_end_bytes", phase="PEAK")


def test_bisect_undecided_by_noisy_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200] * 9)

    def refuse(*words: object) -> None:
        raise Unanswered("the ends cannot be told apart")

    monkeypatch.setattr(bisecting.search, "search", refuse)
    with pytest.raises(UndecidedError, match="the ends cannot be told apart"):
        answered(asked)


def several(monkeypatch: pytest.MonkeyPatch, levels: list[float], broken: dict[int, str] | None = None) -> tuple[Versions, list[str]]:
    """Versions whose law of memory by batch has these bytes per unit, and the notes of `fake`; a level of -1 has batch x batch instead."""
    versions, noted = fake(monkeypatch, [200.0] * len(levels), broken)
    rng = random.Random(1)

    def scaled(request: object, progress: object, keep: object) -> object:
        variant = request.suite.only  # type: ignore[attr-defined]
        number = int(variant.env["level"])
        noted.append(f"law of {variant.name} at {request.suite.version}")  # type: ignore[attr-defined]
        power, size = (2, 1 << 20) if levels[number] < 0 else (1, levels[number])
        points = [SizePoint({"batch": batch}, 1e8 + size * batch**power + rng.uniform(-2000, 2000)) for batch in (1, 8, 16, 24, 32, 64)]
        law = laws.law(points, noise=(2000.0, 1e-5))
        return SimpleNamespace(interrupted=False, main="PEAK", law=law, unbelievable="it is narrow" if levels[number] > 1e6 else "")

    monkeypatch.setattr(bisecting.scale, "scale", scaled)
    monkeypatch.setattr(bisecting.scale, "check", lambda request: parse("batch=1..64"))
    return versions, noted


def test_bisect_by_term_of_law(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, noted = several(monkeypatch, [65536.0] * 11 + [98304.0] * 9, {12: "it cannot be built"})

    answer = answered(asked, metric="law_bytes", vary=("batch=1..64",))

    (step,) = answer.searched.steps
    assert (step.before, step.at, answer.question.phase) == (10, 11, "per batch")
    assert len(answer.searched.values) <= 8
    assert {"law of a at 1.0", "law of a at 1.11"} <= set(noted)
    assert report.render(answer).startswith("engine 1.10 -> 1.11: Memory per batch 64.0 KiB -> 96.0 KiB (+50.")


@pytest.mark.parametrize(
    ("level", "reason"),
    [(-1.0, "the law of its PEAK has no term batch, but batch²"), (2e6, "the law of its PEAK is undecided: it is narrow")],
)
def test_bisect_by_law_without_term(monkeypatch: pytest.MonkeyPatch, level: float, reason: str) -> None:
    asked, _ = several(monkeypatch, [65536.0, 65536.0, level, 0.0, 0.0])

    answer = answered(asked, metric="law_bytes", vary=("batch=1..64",))

    (step,) = answer.searched.steps
    assert (step.before, step.at, step.between) == (1, 3, (2,))
    assert step.judged.verdict == "improved" and step.judged.head is not None and step.judged.head.median == 0
    assert answer.searched.skipped[2] == reason


def test_bisect_by_growth_continues_after_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200.0] * 9)
    calls: list[str] = []
    stop_at = 5

    def grown(request: object, progress: object, keep: object) -> object:
        variant = request.suite.only  # type: ignore[attr-defined]
        calls.append(request.suite.version)  # type: ignore[attr-defined]
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        rate = 4096.0 if int(variant.env["level"]) >= 6 else None
        each = growth.Growth("grows", "reload", rate, rate - 9, rate + 9) if rate else growth.Growth("steady", "reload", high=2.0)
        assert request.cycles == "reload"  # type: ignore[attr-defined]
        return SimpleNamespace(interrupted=False, verdict=growth.Verdict(each.word, "reload", each.slope, processes=(each,) * 3))

    monkeypatch.setattr(bisecting.grow, "grow", grown)
    with pytest.raises(KeyboardInterrupt):
        answered(asked, metric="growth_bytes", per="reload")
    stop_at, said = 0, []

    answer = answered(asked, said, metric="growth_bytes", per="reload")

    assert said == ["goes on where the search was stopped: 12 figures of 1 release are known"]
    (step,) = answer.searched.steps
    assert (step.before, step.at, answer.question.phase) == (5, 6, "per reload")
    assert step.judged.difference == 4096.0
    assert calls.count("1.0") == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"metric": "law_bytes"}, "--metric law_bytes needs --vary"),
        ({"metric": "growth_bytes", "vary": ("batch=1..8",)}, "--vary is for --metric law_bytes"),
        ({"metric": "growth_bytes", "per": "token"}, "--per token: growth is by iteration or by reload"),
        ({"metric": "law_bytes", "vary": ("batch=1..64",), "per": "width"}, "'width' is not a dimension that varies"),
    ],
)
def test_bisect_refuses_words_without_figure(monkeypatch: pytest.MonkeyPatch, words: dict[str, object], says: str) -> None:
    asked, _ = several(monkeypatch, [1.0, 1.0])
    with pytest.raises(UsageError, match=says):
        answered(asked, **words)


def test_bisect_growth_needs_one_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = fake(monkeypatch, [200.0] * 3, variants="ab")
    with pytest.raises(
        UsageError, match=r"follows one model and variant: --model and --variant name it; there are net.onnx, a; net.onnx, b"
    ):
        answered(asked, metric="growth_bytes")


def side_of(looks: dict[str, dict[str, int]], *advice: dict[str, str], record: str = "", **ends: tuple[int, int]) -> StepSide:
    """An explained side with these slices in MiB by look. ends: the end and the peak of phases in MiB."""
    phases = tuple(
        PhaseLook(name, sum(sizes.values()) * MIB, tuple(Slice(part, size * MIB, "") for part, size in sizes.items()))
        for name, sizes in looks.items()
    )
    figures = tuple(PhaseFigures(name, peak * MIB, end * MIB, 0) for name, (end, peak) in ends.items())
    finding = SimpleNamespace(proposals=tuple(Advice("", setting) for setting in advice))
    by_name = {phase.name: phase for phase in phases}
    explanation = SimpleNamespace(phases=phases, phase=by_name.get, findings=(finding,), measured=figures)
    return StepSide(explanation, heap_record=record)  # type: ignore[arg-type]


def stepped_answer(
    before_mib: int, after_mib: int, sides: tuple[StepSide, StepSide], first: str, heights: Sequence[dict[str, int]] = (), **question: str
) -> list[str]:
    """The sentences on one step. heights: the peaks of each side's phases in MiB."""
    question = {"phase": "PEAK", "metric": "rss_peak_bytes", **question}
    rows = [Row(QUESTION.key, question["phase"], question["metric"], (mib * MIB,) * 12, True) for mib in (before_mib, after_mib)]
    judged = judge_row(rows[0], rows[1], 512 << 10)
    peaks = [highest_phases([(name, mib * MIB) for name, mib in phases.items()], 512 << 10) for phases in heights or ({}, {})]
    versions = Versions("commit", "loader", ("v1", "v 2"), None, lambda number: ("v1", "v 2")[number], "")  # type: ignore[arg-type]
    step, asked = VersionStep(0, 1, judged), FigureQuestion(QUESTION.key, question["phase"], question["metric"], 512 << 10)
    searched = Searched(judged, (step,), {0: rows[0].values, 1: rows[1].values}, {})
    return report.sentences(
        bisecting.Bisected(versions, asked, searched, (first,), ((peaks[0], peaks[1]),), ((),), (sides,) if sides else (), (None,), 1.0)
    )


def test_report_names_slices_at_first_change() -> None:
    def side(kept: int, later: int, *advice: dict[str, str]) -> StepSide:
        return side_of({"PREPARE": {LIBRARIES: 100, KEPT: kept}, "EXECUTE": {LIBRARIES: 100, KEPT: later}}, *advice)

    before, after = side(5, 5, {"arena": "off"}), side(25, 65, {"arena": "off"}, {"malloc_trim": "on"}, {})
    assert stepped_answer(105, 125, (before, after), "PREPARE")[1:] == [
        "What changed at the end of PREPARE: kept by the allocator +20.0 MiB; all slices together +20.0 MiB, the step +20.0 MiB.",
        "Only the newer side has the advice: --set malloc_trim=on.",
    ]
    assert stepped_answer(105, 165, (before, after), "STARTUP")[1].startswith(
        "What changed at the end of EXECUTE: kept by the allocator +60.0 MiB;"
    )
    assert stepped_answer(105, 125, (before, StepSide(None, "the model is gone")), "PEAK")[1:] == [
        "What changed is not known: the model is gone."
    ]


RECORDS = [f"memprof heap record -o heap-{label} -- ./app" for label in ("v1", "v 2")]
PROFILES = f"Two heap profiles show who allocates it: {RECORDS[0]} && {RECORDS[1]} && memprof heap diff heap-v1 'heap-v 2'"
LOADED = {"MODEL_LOAD": {LIBRARIES: 1, ONCE: 60}, "EXECUTE": {LIBRARIES: 1, ONCE: 60}}
MAPPED = {"MODEL_LOAD": {LIBRARIES: 1}, "EXECUTE": {LIBRARIES: 1, MODEL_FILE: 60}}
POPULATED = {name: {LIBRARIES: 1, MODEL_FILE: 60} for name in LOADED}
TWICE = {"MODEL_LOAD/peak": {LIBRARIES: 1, ONCE: 60, AGAIN: 60}, **LOADED}
STEADY, TRANSIENT = {"MODEL_LOAD": (61, 61), "EXECUTE": (61, 61)}, {"MODEL_LOAD": (61, 121), "EXECUTE": (61, 61)}


def test_report_names_transient_without_look() -> None:
    before, after = side_of(POPULATED, record=RECORDS[0], **STEADY), side_of(LOADED, record=RECORDS[1], **TRANSIENT)
    heights = {"MODEL_LOAD": 61, "EXECUTE": 61}, {"MODEL_LOAD": 121, "EXECUTE": 61}
    line, *said = stepped_answer(61, 121, (before, after), "MODEL_LOAD", heights)
    assert "PEAK 61.0 MiB -> 121.0 MiB (+98.4%), in MODEL_LOAD, " in line
    changed, transient, unsummed, profiles = said
    assert changed.startswith("What changed at the end of MODEL_LOAD: ")
    assert "weights, one copy +60.0 MiB" in changed and changed.endswith("all slices together +0 B, the step +60.0 MiB.")
    assert unsummed == "The slices do not sum to the step: 60.0 MiB lie between them."
    assert transient == "The peak of v 2 lies 60.0 MiB above the end of MODEL_LOAD: a transient, which slices at the end do not show."
    assert profiles == PROFILES
    # The same step for the better: the transient is the older side's.
    assert stepped_answer(121, 61, (after, before), "MODEL_LOAD", heights[::-1])[2] == transient.replace("v 2", "v1")


def test_report_of_transient_names_both_phases() -> None:
    """The older side peaks where it first reads the mapped file, and the newer where it copies it."""
    before, after = side_of(MAPPED, MODEL_LOAD=(1, 1), EXECUTE=(61, 61)), side_of(LOADED, **TRANSIENT)
    heights = {"MODEL_LOAD": 1, "EXECUTE": 61}, {"MODEL_LOAD": 121, "EXECUTE": 61}
    line, changed, transient, unsummed = stepped_answer(61, 121, (before, after), "MODEL_LOAD", heights)
    assert "PEAK 61.0 MiB in EXECUTE -> 121.0 MiB in MODEL_LOAD (+98.4%), net.onnx, a;" in line
    assert changed.startswith("What changed from the end of EXECUTE (v1) to the end of MODEL_LOAD (v 2): ")
    assert "60.0 MiB" in unsummed and "lies 60.0 MiB above the end of MODEL_LOAD" in transient


@pytest.mark.parametrize(
    ("mapped", "load", "moment"),
    [(POPULATED, 61, "at the peak of MODEL_LOAD"), (MAPPED, 1, "from the end of EXECUTE (v1) to the peak of MODEL_LOAD (v 2)")],
)
def test_report_compares_looks_near_peaks(mapped: dict[str, dict[str, int]], load: int, moment: str) -> None:
    """A side whose peak is at the end of its phase needs no look of its own there."""
    before = side_of(mapped, record=RECORDS[0], MODEL_LOAD=(load, load), EXECUTE=(61, 61))
    heights = {"MODEL_LOAD": load, "EXECUTE": 61}, {"MODEL_LOAD": 121, "EXECUTE": 61}
    _, *said = stepped_answer(61, 121, (before, side_of(TWICE, record=RECORDS[1], **TRANSIENT)), "MODEL_LOAD", heights)
    assert len(said) == 1 and said[0].startswith(f"What changed {moment}: ")
    assert "weights, further copies +60.0 MiB" in said[0] and said[0].endswith("all slices together +60.0 MiB, the step +60.0 MiB.")


def test_report_says_early_look() -> None:
    early = {**TWICE, "MODEL_LOAD/peak": {LIBRARIES: 1, ONCE: 60, AGAIN: 40}}
    _, changed, unsummed = stepped_answer(61, 121, (side_of(POPULATED, **STEADY), side_of(early, **TRANSIENT)), "MODEL_LOAD")
    assert changed.startswith("What changed at the peak of MODEL_LOAD: ")
    assert unsummed == (
        "The slices do not sum to the step: 20.0 MiB lie between them; the look at v 2 came on the way to the peak, at 101.0 MiB of 121.0 MiB."
    )


def test_report_of_end_ignores_peak() -> None:
    sides = (side_of({"MODEL_LOAD/peak": {LIBRARIES: 1, KEPT: 10}, "MODEL_LOAD": {LIBRARIES: 1}}, **TRANSIENT), side_of(TWICE, **TRANSIENT))
    _, *said = stepped_answer(1, 61, sides, "MODEL_LOAD", phase="MODEL_LOAD", metric="rss_end_bytes")
    assert said == [
        "What changed at the end of MODEL_LOAD: weights, one copy +60.0 MiB; all slices together +60.0 MiB, the step +60.0 MiB."
    ]


def test_report_without_difference_of_looks() -> None:
    sides = side_of(LOADED, record=RECORDS[0], **STEADY), side_of(LOADED, record=RECORDS[1], **STEADY)
    assert stepped_answer(61, 71, sides, "MODEL_LOAD")[1:] == [
        "The looks at both sides see no difference.",
        "The slices do not sum to the step: 10.0 MiB lie between them.",
        PROFILES,
    ]
    assert PROFILES not in stepped_answer(61, 71, (replace(sides[0], heap_record=""), sides[1]), "MODEL_LOAD")


def test_report_says_where_step_begins() -> None:
    heights = {"MODEL_LOAD": 20, "EXECUTE": 61}, {"MODEL_LOAD": 40, "EXECUTE": 81}
    (line,) = stepped_answer(61, 81, (), "MODEL_LOAD", heights)  # type: ignore[arg-type]
    assert "81.0 MiB (+32.8%), in EXECUTE, first seen in MODEL_LOAD, net.onnx" in line
