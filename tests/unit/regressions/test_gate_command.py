"""The gate of one command: what judges it, the baseline that its first run makes, and how often its verdicts are wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.sample_runs import MIB, machine, mark, run

from memprof.base.errors import UsageError
from memprof.campaign.progress import Silent
from memprof.places.place import HERE, Here
from memprof.programs.commands import of_words
from memprof.records.summary import Key, Row
from memprof.records.types import PEAK, JobSide, Outcome, Run
from memprof.regressions.gate import decide, two_builds
from memprof.regressions.gate.request import BASE, GateRequest
from memprof.reports.tables import gate as report
from memprof.subjects.order import Order
from memprof.subjects.suite import Build, Suite, of_command
from memprof.verdicts import baseline, budget_proposal, budgets, verdicts

STEADY = (100, 100.1, 100.2, 100.3, 100.4)
FAILED = Outcome("exit", phase="RUN", message="nope", exit_code=3)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """Judge a command whose repeats have these peaks in MiB, None for a failed one; before: those of the other side."""
    monkeypatch.chdir(tmp_path)

    def judge(peaks, before=(), failure=FAILED, **words):
        def measure(
            orders: Mapping[JobSide, Sequence[Order]], outputs: Mapping[JobSide, Path], progress: Silent
        ) -> dict[JobSide, list[Run]]:
            return {side: [made(order, before if side == BASE else peaks, failure) for order in some] for side, some in orders.items()}

        monkeypatch.setattr(two_builds, "measure_sides", measure)
        command = Suite(variants=(of_command(of_words(["MODE=fast", "sh", "-c", "exit"])),), repeats=len(peaks))
        if "budget" in words:
            words["budget"] = budgets.of_peak(words["budget"])
        return decide.judge(GateRequest(command=command, **words), Silent())

    return judge


def made(order, peaks, failure):
    peak = peaks[order.job.repeat - 1]
    if peak is None:
        return replace(run(outcome=failure, memory={}), job=order.job, machine=HERE.machine())
    return replace(run(memory={}), job=order.job, machine=HERE.machine(), marks=(mark("RUN", 1, peak - 1, peak),))


@pytest.mark.parametrize(
    ("peaks", "budget", "code", "says"),
    [
        (STEADY, "110MiB", 0, "100.4 MiB, the worst of 5, is within the budget of 110.0 MiB"),
        (STEADY, "100.2MiB", 1, "is above the budget of 100.2 MiB by 204.8 KiB"),
        # a budget is what a device has: one repeat above it is one too many
        ((*STEADY[:4], 140), "110MiB", 1, "140.0 MiB, the worst of 5"),
        ((100,), "110MiB", 0, "100.0 MiB is within the budget"),
        ((100, 100, None, None, None), "110MiB", 4, "3 of 5 runs failed: ended with exit code 3 in RUN (nope)"),
        ((None,) * 5, "110MiB", 4, "5 of 5 runs failed"),
    ],
)
def test_budget_of_command(gate, peaks, budget, code, says):
    judged = gate(peaks, budget=budget)

    assert (judged.exit_code, judged.title) == (code, f"exit, measured now, against a budget of {budget}")
    assert any(says in row.reason for row in judged.rows)


def test_report_only_names_exit_code(gate):
    assert gate(STEADY, budget="50MiB", report_only=True).remarks[0] == "report only: without --report-only the exit code would be 1"
    assert gate(STEADY, budget="50MiB").remarks == ()


def test_program_without_phases_has_one_row(gate):
    gate(STEADY, base=Path("memprof.json"))
    judged = gate([peak + 20 for peak in STEADY], base=Path("memprof.json"), metrics=("rss_peak_bytes",))
    text = report.render(judged)

    assert [(row.phase, row.metric, row.cause) for row in judged.rows] == [(PEAK, "rss_peak_bytes", None)]
    assert "exit: PEAK is 20.0 MiB more (100.2 MiB to 120.2 MiB)." in text
    assert ": 1 regression.\n" in text and "explains" not in text and "<summary>1 row<" in text


def test_command_alone_gets_proposal(gate):
    judged = gate(STEADY)

    assert judged.exit_code == 0
    assert report.render(judged).startswith("### memprof gate: measured\n")
    assert report.tally(judged) == "2 rows measured"
    ((why, command),) = judged.commands.items()
    assert command == "memprof gate --budget 102MiB -- MODE=fast sh -c exit"
    assert why == "A budget of 102MiB would hold: the highest of 5 repeats is 100.4 MiB, and a gate counts no difference below 1.0 MiB:"
    assert gate((None,) * 5).commands == {}


@pytest.mark.parametrize(
    ("peaks", "word", "says"),
    [
        ((100,) * 5, "101MiB", "a gate counts no difference below 1.0 MiB"),
        ((93, 97, 100, 104, 107), "135MiB", "5 standard deviations of its noise are 27.7 MiB"),
        ((2, 2, 2, 2, 2), "2.5MiB", "below 512.0 KiB"),
        (
            (100,),
            "101MiB",
            "the only repeat is 100.0 MiB, and a gate counts no difference below 1.0 MiB; one repeat does not show the noise",
        ),
    ],
)
def test_proposal_is_peak_and_noise(peaks, word, says):
    made = budget_proposal.proposal(entry_of(peaks))

    assert made is not None and (made.word, says in made.sentence) == (word, True), made.sentence
    assert budgets.of_peak(made.word).limit >= max(peaks) * MIB


def entry_of(peaks):
    repeats = [replace(run(repeat=repeat, memory={}), marks=(mark("RUN", 1, peak, peak),)) for repeat, peak in enumerate(peaks, 1)]
    return baseline.entries([replace(each, machine=machine(peak_bound_bytes=0)) for each in repeats])[0]


def test_baseline_made_by_first_run(gate):
    path = Path("memprof.json")

    first = gate(STEADY, base=path)
    assert first.exit_code == 0
    assert first.remarks == ("memprof.json is made from this run: commit it, and later runs are compared with it",)
    assert report.render(first).startswith("### memprof gate: measured\n")
    kept = path.read_bytes()

    assert gate(STEADY, base=path).exit_code == 0
    assert gate([peak + 5 for peak in STEADY], base=path).exit_code == 1
    assert gate(STEADY[:3], base=path).exit_code == 3
    assert path.read_bytes() == kept


def test_baseline_missing_in_ci_is_undecided(gate):
    path = Path("memprof.json")
    for words in ({}, {"budget": "110MiB"}):
        first = gate(STEADY, base=path, in_ci=True, **words)
        text = report.render(first)

        assert first.exit_code == 3
        assert "exit: PEAK is 100.2 MiB (memprof.json is not in this checkout, so nothing judges this run)." in text
        assert "- memprof.json is made from this run: commit it, and later runs are compared with it" in text
        assert gate(STEADY, base=path, in_ci=True, **words).exit_code == 0
        path.unlink()
    assert gate(STEADY, base=path, in_ci=True, budget="50MiB").exit_code == 1


def test_baseline_of_failed_run_not_made(gate):
    judged = gate((100, 100, 100, 100, None), base=Path("memprof.json"))

    assert judged.exit_code == 4
    assert judged.remarks == ("memprof.json is not made: 1 of 5 runs failed: ended with exit code 3 in RUN (nope)",)
    assert not Path("memprof.json").exists()


@pytest.mark.parametrize("message", ["EOFError: EOF when reading a line", "stty: 'standard input': Inappropriate ioctl for device"])
def test_failure_without_terminal_gets_hint(gate, message):
    judged = gate((None,) * 5, failure=replace(FAILED, message=message), budget="110MiB")

    assert judged.remarks == (
        "exit may need a terminal, and memprof gives a program none: script -qec 'MODE=fast sh -c exit' /dev/null gives it one",
    )


def test_left_processes_are_named(gate, monkeypatch):
    said = "processes that outlived the measured one and were ended: 1 (sleep)"
    usual = made
    monkeypatch.setitem(globals(), "made", lambda *words: replace(usual(*words), warnings=(said,)))

    assert gate(STEADY, budget="110MiB").remarks == (f"exit: {said}",)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"heads": (Path("a.jsonl"),)}, "give the runs to judge, or --run SUITE.toml or -- PROGRAM WORD... to measure them now"),
        ({"against": "main", "base": Path("b.json")}, "--against goes with -- PROGRAM WORD..., and takes the place of --baseline"),
        ({"against": " "}, "--against is empty: name a branch, a tag or a commit"),
        ({"base_ref": "main"}, "--base-ref goes with --run, and takes the place of --baseline"),
        ({"base": Path("b.json"), "confirm": True}, "b.json does not exist yet: the first run makes it, and has nothing to compare with"),
    ],
)
def test_words_that_exclude_each_other(gate, words, says):
    with pytest.raises(UsageError) as error:
        gate(STEADY, **words)
    assert str(error.value) == says


def test_build_runs_here_alone():
    command = Suite(variants=(of_command(of_words(["true"])),), build=Build("make"))

    with pytest.raises(UsageError, match=r"^--build goes without --on: it runs on this machine$"):
        GateRequest(command=command, on=Here()).check()


# -- how often it is wrong, with the noise of hand-written gates' cases

KEY = Key("app", "app", None, "here")


def peaks(draw: random.Random, noise: float, factor: float = 1.0) -> list[float]:
    """Five repeats around 100 MiB with this standard deviation in percent."""
    return [draw.gauss(100, noise) * factor for _ in range(5)]


def judged(before: Sequence[float], after: Sequence[float]) -> verdicts.Judged:
    base, head = (Row(KEY, PEAK, "rss_peak_bytes", tuple(peak * MIB for peak in side), True) for side in (before, after))
    return verdicts.judge_row(base, head, 0)


def verdict(before: Sequence[float], after: Sequence[float]) -> str:
    return judged(before, after).verdict


@pytest.mark.parametrize(
    ("noise", "modes", "repeats", "spike", "undecided"),
    [
        (0.3, (0,), 5, 0, 0),
        (1, (0,), 5, 0, 0.02),
        (7, (0,), 5, 0, 0.035),
        (0.05, (0, 4.6), 5, 0, 0.04),
        (0.05, (0, 4, 8), 5, 0, 0.2),
        (0.3, (0,), 20, 30, 0.04),
    ],
)
def test_same_build_never_called_worse(noise, modes, repeats, spike, undecided):
    """spike: of one repeat of each side, in MiB. undecided: the largest share of pairs that is bearable."""
    draw = random.Random(39)

    def side() -> list[float]:
        values = [draw.gauss(100, noise) + draw.choice(modes) for _ in range(repeats)]
        values[draw.randrange(repeats)] += spike
        return values

    found = [verdict(side(), side()) for _ in range(1000)]

    assert found[:200].count("regressed") == 0
    assert found.count("undecided") <= undecided * len(found)


@pytest.mark.parametrize("noise", [0.3, 0.8])
def test_five_percent_found(noise):
    draw = random.Random(39)

    assert [verdict(peaks(draw, noise), peaks(draw, noise, 1.05)) for _ in range(100)].count("regressed") >= 95


def test_five_percent_below_noise_not_called():
    """Five repeats cannot tell 5% from noise of 7%: the row says which change it needs, and is no false certainty."""
    draw = random.Random(39)
    found = [judged(peaks(draw, 7), peaks(draw, 7, 1.05)) for _ in range(100)]

    assert sum((row.threshold or 0) > 5 * MIB for row in found) >= 95


def test_proposed_budget_holds():
    draw = random.Random(39)
    broken = 0
    for _ in range(200):
        made = budget_proposal.proposal(entry_of(peaks(draw, 0.3)))
        assert made is not None
        broken += max(peaks(draw, 0.3)) * MIB > budgets.of_peak(made.word).limit

    assert broken == 0


def test_baseline_keeps_what_polling_may_have_missed(tmp_path):
    polled = replace(mark("RUN", 1, 8, 8), rss_peak_exact=False, rss_peak_high_bytes=11 * MIB)
    (entry,) = baseline.entries([replace(run(repeat=repeat, memory={}), marks=(polled,)) for repeat in range(5)])
    assert {row.missed for row in entry.rows if row.metric == "rss_peak_bytes"} == {3 * MIB}

    baseline.update(tmp_path / "b.json", [entry])

    assert [row.missed for row in baseline.read(tmp_path / "b.json")[0].rows] == [row.missed for row in entry.rows]
