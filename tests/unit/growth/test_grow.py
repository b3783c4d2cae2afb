"""`memprof grow`: rounds, budgets and what goes wrong, on simulated processes; then real programs and runtimes whose growth is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support import sample_runs
from support.recorder_runs import Silent
from support.suites import one, program

from memprof.base.errors import MeasurementError, UsageError
from memprof.growth.grow import grow
from memprof.growth.grow.grow import GrowRequest, UnitBudget, parse_budget, parse_shapes
from memprof.growth.grow.kinds import kind_of, kinds_of
from memprof.records import store
from memprof.records.types import Outcome, Run, Use
from memprof.reports.tables import growth as growth_table
from memprof.reports.tables import table as runs_table
from memprof.reports.tables.growth import words
from memprof.subjects.suite import Suite

MIB, PAGE = 1 << 20, 4096
Size = Callable[[int], float]


class Simulated:
    """Processes whose memory after each unit is a function; the clock stands still but for `seconds` a process."""

    def __init__(self, size: Size, monkeypatch: pytest.MonkeyPatch, *, seconds: float = 0.0, fails: Callable[[Run], Run] | None = None):
        self.size, self.seconds, self.fails = size, seconds, fails
        self.rounds: list[int] = []
        self.now_ns = 10**12
        monkeypatch.setattr(grow.campaign, "measure", self.measure)
        monkeypatch.setattr(grow.time, "monotonic_ns", lambda: self.now_ns)

    def measure(self, orders: Any, progress: Any, keep: Any, so_far: Any) -> Iterator[Run]:
        (order,) = orders
        assert so_far is not None
        units = order.job.use.iterations
        if order.job.repeat == 1:
            self.rounds.append(units)
        self.now_ns += int(self.seconds * 1e9)
        done = list(range(units + 1))
        rss = [int(60 * MIB + self.size(unit)) // PAGE * PAGE for unit in done]
        run = replace(sample_runs.run("a"), job=order.job, work=(sample_runs.worked(done, rss),))
        run = self.fails(run) if self.fails else run
        keep(store.encode(run))
        yield run


def asked(tmp_path: Path, **fields: Any) -> GrowRequest:
    """A request for a command that is never started."""
    return GrowRequest(program("/bin/true {runs}"), **fields)


def answered(request: GrowRequest) -> grow.GrowthAnswer:
    return grow.grow(request, Silent(), lambda line: None)  # type: ignore[arg-type]


def test_flat_work_decided_in_one_round(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 0, monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("steady", [2000])
    assert words(grown.verdict) == "steady. 0 B (95%: at most 3 B) per iteration over 2,000."


@pytest.mark.parametrize(("freed", "told"), [(64 * MIB, True), (3 * MIB, False), (None, False)])
def test_freed_memory_before_work_told(tmp_path, monkeypatch, freed, told):
    """`memprof run` showed 222 MiB and `memprof grow` 254 MiB, for a freed tensor that glibc kept in one and not in the other."""

    def with_freed(run: Run) -> Run:
        return replace(run, marks=tuple(replace(mark, heap_free_end_bytes=freed) for mark in run.marks))

    Simulated(lambda unit: 0, monkeypatch, fails=with_freed)

    remarks = " ".join(answered(asked(tmp_path)).remarks)

    assert ("At the end of PREPARE glibc's heap holds 64.0 MiB of freed memory" in remarks) == told
    assert ("malloc_mmap_threshold=64KiB" in remarks) == told


def test_freed_memory_told_in_table_of_runs():
    made = sample_runs.run("a")
    made = replace(made, marks=tuple(replace(mark, heap_free_end_bytes=64 * MIB) for mark in made.marks))
    of_grow = replace(made, job=replace(made.job, use=Use(100, 10**9)))
    assert "at the end of PREPARE glibc's heap holds 64.0 MiB of freed memory" in runs_table.render([of_grow])
    assert "of freed memory" not in runs_table.render([made])


def test_growth_confirmed_by_longer_round(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: unit * 65536, monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("grows", [2000, 8000])
    assert words(grown.verdict).startswith(
        "grows. 64.0 KiB per iteration (95%: 64.0 KiB to 64.0 KiB), from the 1st iteration on; at this rate 1 GiB"
    )


def test_sawtooth_is_no_growth(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: unit % 2600 * 4096, monkeypatch)

    grown = answered(asked(tmp_path, budget=UnitBudget(units=8000)))

    assert simulated.rounds == [2000, 8000] and grown.verdict.word != "grows"


def test_late_step_lengthens_rounds(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 20 * MIB * (unit > 1500), monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("bounded", [2000, 8000])
    assert words(grown.verdict).startswith("bounded. 20.0 MiB in the first 1,501 iterations, then 0 B")


def test_budget_of_units_leaves_undecided(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 20 * MIB * (unit > 1500), monkeypatch)

    grown = answered(asked(tmp_path, budget=UnitBudget(units=3000)))

    assert (grown.verdict.word, simulated.rounds) == ("undecided", [3000])
    assert "undecided after 3,000 iterations: it rose late, in few steps; a run of 12,000 would decide it" in words(grown.verdict)


@pytest.mark.parametrize(
    ("budget", "rounds", "word"),
    [
        (UnitBudget(), [2000, 8000], "grows"),
        (UnitBudget(units=8000), [2000, 8000], "grows"),
        (UnitBudget(units=15_000), [2000, 15_000], "undecided"),
        (UnitBudget(units=20_000), [2000, 8000, 20_000], "bounded"),
    ],
)
def test_budget_of_units_used_for_cache(tmp_path, monkeypatch, budget, rounds, word):
    simulated = Simulated(lambda unit: min(unit, 10_000) * 4096, monkeypatch)

    grown = answered(asked(tmp_path, budget=budget))

    assert (grown.verdict.word, simulated.rounds) == (word, rounds)
    if word == "bounded":
        assert words(grown.verdict).startswith("bounded. 39.1 MiB in the first 9,9")
        assert grown.verdict.warmup == pytest.approx(10_000, rel=0.02)


@pytest.mark.parametrize(("full", "rounds"), [(400, [2000]), (1000, [2000, 8000]), (1700, [2000, 8000])])
def test_late_bound_confirmed_by_longer_round(tmp_path, monkeypatch, full, rounds):
    simulated = Simulated(lambda unit: min(unit, full) * 65536, monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("bounded", rounds)
    assert grown.verdict.warmup == pytest.approx(full, rel=0.02)


def test_leak_with_pause_grows(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: (unit // 2000 * 1000 + min(unit % 2000, 1000)) * 65536, monkeypatch)

    grown = answered(asked(tmp_path, budget=UnitBudget(units=16_000)))

    assert (grown.verdict.word, simulated.rounds) == ("grows", [2000, 8000, 16_000])


def test_budget_of_units_outlasts_default_time(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: min(unit, 10_000) * 4096, monkeypatch, seconds=90)

    grown = answered(asked(tmp_path, budget=UnitBudget(units=20_000)))
    assert (grown.verdict.word, simulated.rounds) == ("bounded", [2000, 8000, 20_000])

    simulated.rounds.clear()
    grown = answered(asked(tmp_path, budget=UnitBudget(units=20_000, time_ns=300 * 10**9)))
    assert (grown.verdict.word, simulated.rounds) == ("grows", [2000])


def test_slow_iterations_leave_undecided(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 20 * MIB * (unit > 1500), monkeypatch, seconds=50)

    grown = answered(asked(tmp_path, budget=UnitBudget(time_ns=200 * 10**9)))

    assert (grown.verdict.word, simulated.rounds) == ("undecided", [2000])
    assert grown.verdict.needed == 8000


@pytest.mark.parametrize(
    ("done", "sentence"),
    [
        (9, "undecided after 9 iterations: 9 are too few; a run of 128 would decide it."),
        (
            2000,
            "undecided after 2,000 iterations: it rose late, in few steps; a run of 8,000 would decide it. Memory has risen by 20.0 MiB so far.",
        ),
    ],
)
def test_slow_program_judged_when_ended(tmp_path, monkeypatch, done, sentence):
    def slow(run: Run) -> Run:
        units = list(range(done + 1))
        work = sample_runs.worked(units, [int(60 * MIB + 20 * MIB * (unit > 1500)) for unit in units])
        return replace(run, work=(work,), outcome=Outcome("timeout", "EXECUTE"))

    simulated = Simulated(lambda unit: 0, monkeypatch, fails=slow)
    grown = answered(asked(tmp_path))

    assert (words(grown.verdict), len(grown.verdict.processes)) == (sentence, 3)
    assert simulated.rounds == [2000]
    assert grown.remarks[0] == f"Process 1 was ended after {done:,} units: it had used its share of the budget's time."


def test_large_leak_not_confirmed(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: unit * (64 << 20), monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("grows", [2000])


def ended(run: Run, **how: Any) -> Run:
    return replace(run, outcome=Outcome(phase="EXECUTE", **how))


def test_process_out_of_memory_judged(tmp_path, monkeypatch):
    Simulated(lambda unit: unit * MIB, monkeypatch, fails=lambda run: ended(run, status="signal", signal="SIGKILL", out_of_memory=True))

    grown = answered(asked(tmp_path))

    assert grown.verdict.word == "grows"
    (remark,) = grown.remarks
    assert remark.startswith("Process 1 ended early, after 2000 units: ended by SIGKILL in EXECUTE")
    assert "the kernel killed it for lack of memory; this machine has 8.00 GiB" in remark


def test_process_flat_early_death_undecided(tmp_path, monkeypatch):
    Simulated(lambda unit: 0, monkeypatch, fails=lambda run: ended(run, status="signal", signal="SIGSEGV"))

    verdict = answered(asked(tmp_path)).verdict

    assert (verdict.word, verdict.reason) == ("undecided", "1 of 3 processes were measured")


def test_process_death_at_once_fails(tmp_path, monkeypatch):
    Simulated(lambda unit: 0, monkeypatch, fails=lambda run: ended(replace(run, work=()), status="exit", exit_code=3))

    with pytest.raises(MeasurementError, match=r"true: ended with exit code 3 in EXECUTE"):
        answered(asked(tmp_path))


def test_program_without_units_refused(tmp_path, monkeypatch):
    Simulated(lambda unit: 0, monkeypatch, fails=lambda run: replace(run, work=()))

    with pytest.raises(MeasurementError, match=r"true: it counted no unit. Mark its iterations inside a phase with memprof_iteration\(\)"):
        answered(asked(tmp_path))
    with pytest.raises(MeasurementError, match=r"no line that it printed matches '\^served', so that no unit was counted"):
        answered(GrowRequest(program("/bin/true {runs}", phase_regexes={"request": "^served"})))


def test_swap_moves_counted(tmp_path, monkeypatch):
    def swapped(run: Run) -> Run:
        done = list(range(run.job.use.iterations + 1))  # type: ignore[union-attr]
        moved = [unit * PAGE for unit in done]
        return replace(run, work=(sample_runs.worked(done, [64 * MIB - size for size in moved], swap=moved),))

    Simulated(lambda unit: 0, monkeypatch, fails=swapped)
    grown = answered(asked(tmp_path))

    assert grown.verdict.word == "steady"
    assert grown.remarks == ("Pages were swapped out or in meanwhile: resident and swapped pages are judged together.",)


def test_interruption_keeps_earlier_rounds(tmp_path, monkeypatch):
    def stops(run: Run) -> Run:
        if run.job.use.iterations > 2000:  # type: ignore[union-attr]
            raise KeyboardInterrupt
        return run

    Simulated(lambda unit: unit * 65536, monkeypatch, fails=stops)
    grown = answered(asked(tmp_path))

    assert grown.interrupted and grown.verdict.word == "grows" and len(grown.runs) == 3


def test_shapes_of_all_size_combinations():
    shapes, seed = parse_shapes("input=1,3,H,W; mask=1,H; H,W in 224,320 (random, seed 7)")

    assert seed == 7 and len(shapes) == 4
    assert {"input": (1, 3, 320, 224), "mask": (1, 320)} in shapes
    assert parse_shapes("x=N; N in 1, 2,3") == (({"x": (1,)}, {"x": (2,)}, {"x": (3,)}), None)
    assert parse_shapes("x=N; N in 1,2 (in turn)")[1] is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x=1,2", "no dimension varies"),
        ("x=1,H", r"which sizes has H\? Write H in 224,320"),
        ("x=1,H; H,W in 1,2", "no input has a dimension W"),
        ("x=1,H; H in 0,1", "names no size of 1 or more"),
        ("x; H in 1,2", "is neither INPUT=1,3,H,W nor H,W in 224,320"),
        (f"x=1,H; H in 1,{1 << 63}", "a size of x is above 9223372036854775807, the most that a dimension can have"),
        (f"x={1 << 63},H; H in 1,2", "a size of x is above 9223372036854775807"),
        ("x=1,H; H in 1," + "9" * 5000, "a number of so many digits"),
        ("x=1,H; H in 1,2 (random, seed " + "9" * 5000 + ")", "a number of so many digits"),
        ("x=A,B; A,B in 1,2,3,4,5,6,7,8,9", "these are 81 shapes, and 64 is the most"),
    ],
)
def test_shapes_invalid_refused(text, sentence):
    with pytest.raises(UsageError, match=sentence):
        parse_shapes(text)


def test_shapes_beside_reload_refused():
    request = GrowRequest(Suite(models=("m.onnx",), runtimes=("onnxruntime",)), ({"x": (1,)}, {"x": (2,)}), cycles="reload")

    with pytest.raises(UsageError, match="--shapes and --cycles are two experiments: a reload takes the one shape of --shape"):
        answered(request)


def test_shape_of_varied_input_refused():
    suite = Suite(models=("m.onnx",), runtimes=("onnxruntime",), shapes={"x": (4,)})

    with pytest.raises(UsageError, match="--shapes varies x, to which --shape gives one shape: leave one of them out"):
        answered(GrowRequest(suite, ({"x": (1,)}, {"x": (2,)})))


def test_budget_in_units_or_time():
    assert parse_budget("20000") == UnitBudget(units=20000)
    assert parse_budget("10min") == UnitBudget(time_ns=600 * 10**9)
    with pytest.raises(UsageError, match="32 units are the least"):
        parse_budget("5")
    with pytest.raises(UsageError, match="not a duration"):
        parse_budget("soon")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["-r", "onnxruntime"], "name a model to measure"),
        (["s.json"], "name a runtime, -r NAME, or a program, -- PROGRAM WORD..."),
        (["-r", "tflite", "--", "true"], "-r NAME or -- PROGRAM: a runtime, or a program"),
        (["s.json", "-r", "synthetic", "--phase-regex", "a=b"], "--phase-regex is for a program"),
        (["--cycles", "reload", "--", "true"], "a program does its own work"),
    ],
)
def test_grow_conflicting_words_refused(memprof, tmp_path, given, sentence):
    (tmp_path / "s.json").write_text("{}")

    done = memprof("grow", *given)

    assert done.returncode == 2 and sentence in done.stderr


def test_order_has_version_of_suite() -> None:
    job = grow.work_order(grow.request_of(program("hold=true", version="1.0"), "iteration"), 10).job

    assert (job.variant, job.version, job.heading) == ("hold", "1.0", "hold @ 1.0")


class TwoKinds(Simulated):
    """Simulated processes whose memory after each unit depends on their kind."""

    def __init__(self, same: Size, varied: Size, monkeypatch: pytest.MonkeyPatch, **rest: Any):
        super().__init__(same, monkeypatch, **rest)
        order = grow.work_order(GrowRequest(program("/bin/true {runs}")), 1)
        monkeypatch.setattr(grow, "order_of", lambda request: order)
        self.same, self.varied = same, varied
        self.measured: list[tuple[str, int, int]] = []

    def measure(self, orders: Any, progress: Any, keep: Any, so_far: Any) -> Iterator[Run]:
        (order,) = orders
        use = order.job.use
        self.size = self.varied if use.fresh or use.shapes else self.same
        self.measured.append((kind_of(use).words, order.job.repeat, use.iterations))
        yield from super().measure(orders, progress, keep, so_far)


def leak(unit: int) -> int:
    return unit * 65536


def flat(unit: int) -> int:
    return 0


def test_kinds_take_turns_until_each_is_decided(monkeypatch):
    simulated = TwoKinds(flat, leak, monkeypatch)

    grown = answered(GrowRequest(one("m.json"), wish="both"))

    in_turn = [(words, repeat, 2000) for repeat in (1, 2, 3) for words in ("the same input", "fresh inputs")]
    assert simulated.measured == [*in_turn, *(("fresh inputs", repeat, 8000) for repeat in (1, 2, 3))]
    assert grown.inputs is not None
    assert (grown.verdict.word, grown.inputs.by, grown.fresh) == ("grows", "new input", True)
    assert [(kind.inputs, kind.verdict.word, len(kind.runs)) for kind in grown.kinds] == [
        ("the same input", "steady", 3),
        ("fresh inputs", "grows", 3),
    ]
    content = json.loads(growth_table.render(grown, format="json"))
    assert content["inputs"] == {"varies": "input", "decides": "varied", "by": "new input", "more": 0.0}
    assert [kind["verdict"]["word"] for kind in content["kinds"]] == ["steady", "grows"] and "runs" not in content["kinds"][0]
    assert "| fresh inputs   | 3       | grows   |" in growth_table.render(grown)


@pytest.mark.parametrize(
    ("same", "varied", "sentence"),
    [
        (flat, flat, " It is steady with the same input and with fresh inputs."),
        (leak, leak, " It grows with each iteration, with the same input and with fresh inputs."),
        (
            leak,
            lambda unit: 3 * leak(unit),
            " It grows with each iteration, and a new input adds 128.0 KiB. With the same input: grows. 64.0 KiB ",
        ),
        (leak, flat, " It grows with the same input only. With fresh inputs: steady. 0 B "),
        (flat, lambda unit: MIB * min(unit, 100), " With the same input: steady. 0 B "),
        (lambda unit: MIB * min(unit, 100), flat, " With fresh inputs: steady. 0 B "),
        (flat, lambda unit: 20 * MIB * (unit > 300), " With the same input: steady. 0 B "),
    ],
)
def test_sentence_of_two_kinds(monkeypatch, same, varied, sentence):
    TwoKinds(same, varied, monkeypatch)

    grown = answered(GrowRequest(one("m.json"), wish="both", budget=UnitBudget(units=400)))

    assert sentence in growth_table.sentence(grown, str)


def test_budget_too_short_for_two_kinds(monkeypatch):
    simulated = TwoKinds(flat, lambda unit: 20 * MIB * (unit > 1500), monkeypatch, seconds=30)

    grown = answered(GrowRequest(one("m.json"), wish="both", budget=UnitBudget(time_ns=200 * 10**9)))

    assert grown.verdict.word == "undecided" and len(simulated.measured) == 6
    assert grown.remarks == (grow.TWO_KINDS,)
    alone = answered(GrowRequest(one("m.json"), wish="fresh", budget=UnitBudget(time_ns=200 * 10**9)))
    assert alone.remarks == () and alone.kinds == ()


def test_fresh_kind_that_fails_is_left_out(monkeypatch):
    def refuses(run: Run) -> Run:
        fresh = run.job.use.fresh  # type: ignore[union-attr]
        return (
            replace(run, work=(), outcome=Outcome("error", "EXECUTE", message="with fresh inputs: index 1 is out of range"))
            if fresh
            else run
        )

    simulated = TwoKinds(flat, leak, monkeypatch, fails=refuses)

    grown = answered(GrowRequest(one("m.json"), wish="both"))

    assert [words for words, _, _ in simulated.measured] == ["the same input", "fresh inputs", "the same input", "the same input"]
    assert (grown.verdict.word, grown.inputs, grown.kinds) == ("steady", None, ())
    (remark,) = grown.remarks
    assert remark == (
        "Every iteration got the same input, because fresh ones failed: in EXECUTE: with fresh inputs: index 1 is out of range."
    )
    with pytest.raises(MeasurementError, match="index 1 is out of range"):
        answered(GrowRequest(one("m.json"), wish="fresh"))


@pytest.mark.parametrize(
    ("wish", "varied", "fixed", "expected"),
    [
        ("both", False, "", ["the same input", "fresh inputs"]),
        ("both", True, "", ["the same input", "several shapes"]),
        ("same", False, "", ["the same input"]),
        ("same", True, "", ["several shapes"]),
        ("fresh", False, "", ["fresh inputs"]),
        ("fresh", True, "", ["several shapes and fresh inputs"]),
        ("both", False, "a program makes its own inputs", ["the same input"]),
    ],
)
def test_kinds_of_wish(wish, varied, fixed, expected):
    assert [kind.words for kind in kinds_of(wish, varied, fixed)] == expected
