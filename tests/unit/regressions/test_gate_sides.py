"""The sides of a gate, and what it measures again: each Run has its side in a field, and its variant's name as the user wrote it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.gate_files import STEADY
from support.sample_runs import job, run, runs

from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.records import store
from memprof.records.types import Job, JobSide, Outcome, Run
from memprof.regressions.gate import decide
from memprof.regressions.gate.confirmation import Checks
from memprof.regressions.gate.interleaving import measure_sides, orders_at
from memprof.regressions.gate.request import BASE, HEAD, GateRequest, GateSides
from memprof.reports.tables import table
from memprof.subjects.order import Order
from memprof.verdicts import baseline, verdicts
from memprof.verdicts.verdicts import Limits, Proof

NAMES = ("fp16 @ cpu", "x (head)")
GROWN = 10  # MiB that head has more


class Told(Silent):
    """Notes the headings of what is measured."""

    def __init__(self) -> None:
        self.headings: list[str] = []

    def started(self, job: Job, index: int, total: int) -> None:
        self.headings.append(job.heading)


def orders(level: int, variants: Sequence[str] = NAMES) -> tuple[Order, ...]:
    """Five repeats of each variant, of a side with so many MiB more."""
    jobs = [job(variant=name, repeat=repeat, env={"level": str(level)}) for repeat in range(1, 6) for name in variants]
    return tuple(Order(each, None, "python", {}, None) for each in jobs)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No order is a process: its Run has the level of its side, and its ballast."""

    def measure(orders: Sequence[Order], progress: Silent, keep: Callable[[bytes], None], failures: object = None) -> Iterator[Run]:
        for number, order in enumerate(orders, 1):
            progress.started(order.job, number, len(orders))
            more = int(str(order.job.env["level"])) + int(order.job.knobs.get("ballast", 0)) / (1 << 20)
            made = replace(run(extra_mib=more + STEADY[order.job.repeat - 1]), job=order.job)
            keep(store.encode(made))
            yield made

    monkeypatch.setattr(campaign, "measure", measure)
    monkeypatch.setattr(campaign, "surroundings", lambda *_: [])


def both_sides() -> dict[JobSide, Sequence[Order]]:
    return {BASE: orders(0), HEAD: orders(GROWN)}


def test_sides_keep_names_of_variants(tmp_path: Path) -> None:
    told = Told()
    files: dict[JobSide, Path] = {BASE: tmp_path / "base.jsonl", HEAD: tmp_path / "head.jsonl"}
    measured = measure_sides(both_sides(), files, told)

    assert told.headings[:4] == ["fp16 @ cpu (base)", "fp16 @ cpu (head)", "x (head) (base)", "x (head) (head)"]
    for side, path in files.items():
        loaded = store.load([path]).runs
        assert {(made.job.variant, made.job.side) for made in loaded} == {(name, None) for name in NAMES}
        assert loaded == tuple(measured[side])
    rows = verdicts.judge(*(baseline.entries(measured[side]) for side in (BASE, HEAD)))
    assert {row.key.variant for row in rows if row.verdict == "regressed"} == set(NAMES)


def checks(tmp_path: Path, limits: Limits = Limits()) -> tuple[Checks, Sequence[Run]]:
    measured = measure_sides(both_sides(), {BASE: tmp_path / "base.jsonl", HEAD: tmp_path / "head.jsonl"}, Silent())
    sides = {side: baseline.GateSide(baseline.entries(some), from_runs=tuple(some)) for side, some in measured.items()}
    known = GateSides("", sides[BASE], sides[HEAD], lambda side, place: orders_at(both_sides()[side], place))
    kept: list[Run] = []
    return Checks(GateRequest(limits=limits), known, Silent(), lambda line: kept.append(store.decode(line, "a run"))), kept


def test_confirmed_sides_are_fields(tmp_path: Path) -> None:
    fresh, kept = checks(tmp_path)
    judged = verdicts.judge(fresh.known.base.entries, fresh.known.head.entries)

    confirmed = [fresh.confirmed(row) for row in judged]

    assert {row.key.variant for row in confirmed if "; confirmed: +10.0 MiB" in row.reason} == set(NAMES)
    sides = ("base, measured again", "head, measured again")
    assert {(made.job.variant, made.job.side) for made in kept} == {(name, side) for name in NAMES for side in sides}
    assert len(kept) == 2 * 2 * 5


def test_proof_sides_are_fields(tmp_path: Path) -> None:
    fresh, kept = checks(tmp_path)

    proof = fresh.proof()

    assert isinstance(proof, Proof) and proof.seen and proof.silent and proof.key.variant == "fp16 @ cpu"
    sides = {"as it is", "measured again", "5% more"}
    assert {(made.job.variant, made.job.side) for made in kept} == {("fp16 @ cpu", side) for side in sides}
    assert {row.key.heading for row in proof.rows} == {"fp16 @ cpu (measured again)", "fp16 @ cpu (5% more)"}


def test_proof_of_blind_gate(tmp_path: Path) -> None:
    proof = checks(tmp_path, Limits(share=0.2))[0].proof()

    assert isinstance(proof, Proof) and (proof.seen, proof.silent) == (False, True)


@pytest.mark.parametrize(
    ("heavier", "says"),
    [
        (
            lambda run: replace(run, job=replace(run.job, knobs={})),
            " does not hold the .* MiB more",
        ),
        (
            lambda run: replace(run, outcome=Outcome("signal", phase="PREPARE", signal="SIGKILL")),
            ": the runs with .* more failed: ended by SIGKILL in PREPARE",
        ),
    ],
)
def test_control_without_effect_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heavier: Callable[[Run], Run], says: str) -> None:
    fresh, _ = checks(tmp_path)
    measure = campaign.measure

    def without(orders: Sequence[Order], *rest: Any) -> Iterator[Run]:
        light = [replace(order, job=replace(order.job, knobs={})) for order in orders]
        for made, order in zip(measure(light, *rest), orders, strict=True):
            yield heavier(made) if order.job.side == "5% more" else made

    monkeypatch.setattr(campaign, "measure", without)

    refusal = fresh.proof()

    assert isinstance(refusal, str) and re.fullmatch(rf"fp16 @ cpu{says}", refusal), refusal


def test_checks_are_separate_rows(tmp_path: Path) -> None:
    fresh, kept = checks(tmp_path)
    fresh.proof()
    (tmp_path / "checks.jsonl").write_bytes(b"".join(map(store.encode, kept)))

    loaded = store.load([tmp_path / "checks.jsonl"])

    assert loaded.warnings == ()
    shown = table.render(loaded.runs)
    assert all(f"fp16 @ cpu ({side})" in shown for side in ("as it is", "measured again", "5% more"))


def test_baseline_keeps_version_and_side(tmp_path: Path) -> None:
    labelled = [*runs("a", version="1.0"), *runs("a", version="1.1"), *runs("a", side="5% more"), *runs("a @ 1.0")]
    made = baseline.entries(labelled)
    assert [entry.heading for entry in made] == ["a @ 1.0", "a @ 1.1", "a (5% more)", "a @ 1.0"]
    baseline.update(tmp_path / "base.json", made)
    assert {entry.place: entry for entry in baseline.read(tmp_path / "base.json")} == {entry.place: entry for entry in made}

    baseline.update(tmp_path / "plain.json", baseline.entries(runs()))
    assert '"version"' not in (tmp_path / "plain.json").read_text()


def test_other_names_found_by_heading() -> None:
    sides = [baseline.GateSide(baseline.entries(runs("a", version=label))) for label in ("1.0", "1.1")]
    remarks = decide._other_names(SimpleNamespace(base=sides[0], head=sides[1], gone=()))  # type: ignore[arg-type]
    assert remarks == ["net.onnx: variant a @ 1.0 is gone and variant a @ 1.1 is new: this may be one variant under another name"]
