"""Runs of interchangeable machines: a difference between machines is none between sides, and a machine that differs is named."""

from __future__ import annotations

import itertools
import statistics

import pytest
from msgspec.structs import replace
from support.sample_runs import machine, run

from memprof.base.errors import InputError
from memprof.records import store, summary
from memprof.records.types import Attempt
from memprof.reports.tables import table
from memprof.verdicts import baseline, machine_spread
from memprof.verdicts.compare import compare
from memprof.verdicts.ranks import stratified_p
from memprof.verdicts.verdicts import judge

PEAK = ("PEAK", "rss_peak_bytes")


def runs_on(name: str, *extra_mib: float, kind: str | None = "pi5", variant: str = "a"):
    """A run for each of these additions, on a machine of a kind."""
    made = [run(variant, repeat, extra_mib=extra, where=machine(name)) for repeat, extra in enumerate(extra_mib, 1)]
    return [replace(one_run, attempt=Attempt("c", 1, 99, kind=kind)) for one_run in made]


def peak_difference(runs, base):
    differences = compare(base, runs, ("rss_peak_bytes",)).differences
    return next(row for row in differences if (row.phase, row.metric) == PEAK)


def test_machines_of_kind_share_row():
    runs = [*runs_on("p", 0, 1), *runs_on("q", 10, 11)]

    (row,) = [row for row in summary.summarise(runs, ("rss_peak_bytes",)) if row.phase == "PEAK"]
    assert (row.key.machine, row.machines) == ("pi5", ("p", "p", "q", "q"))
    assert len(summary.groups([*runs_on("p", 0, kind=None), *runs_on("q", 0, kind=None)])) == 2


def test_machine_difference_is_not_side_difference():
    # Base and head are the same on each machine, but base has more repeats on the machine that needs more.
    base = [*runs_on("p", 0, 0.1), *runs_on("q", *[40 + 0.1 * n for n in range(20)])]
    head = [*runs_on("p", *[0.1 * n for n in range(20)]), *runs_on("q", 40, 40.1)]

    assert peak_difference(head, base).verdict == "noise"
    without_kind = [[replace(kept, attempt=None, machine=machine()) for kept in side] for side in (base, head)]
    assert peak_difference(without_kind[1], without_kind[0]).verdict == "less"  # what it would be without the machines
    (verdict,) = [row.verdict for row in judged(base, head) if (row.phase, row.metric) == PEAK]
    assert verdict == "ok"


def test_rise_on_every_machine_found():
    base = [*runs_on("p", 0, 0.1, 0.2), *runs_on("q", 40, 40.1, 40.2), *runs_on("r", 80, 80.1, 80.2)]
    head = [*runs_on("p", 5, 5.1, 5.2), *runs_on("q", 45, 45.1, 45.2), *runs_on("r", 85, 85.1, 85.2)]

    assert peak_difference(head, base).verdict == "more"
    (row,) = [row for row in judged(base, head) if (row.phase, row.metric) == PEAK]
    assert row.verdict == "regressed"
    assert "on 3 machines, each compared with itself" in row.reason


def test_repeats_on_one_machine_each_undecided():
    base, head = runs_on("p", *[0.1 * n for n in range(9)]), runs_on("q", *[5 + 0.1 * n for n in range(9)])

    assert peak_difference(head, base).verdict == "too few"
    (row,) = [row for row in judged(base, head) if (row.phase, row.metric) == PEAK]
    assert row.verdict == "undecided"
    assert "between 1 machine of base and 1 of head" in row.reason


def test_five_machines_per_side_decide():
    base = list(itertools.chain(*(runs_on(f"b{n}", n, n + 0.1) for n in range(6))))
    head = list(itertools.chain(*(runs_on(f"h{n}", 30 + n, 30 + n + 0.1) for n in range(6))))

    assert peak_difference(head, base).verdict == "more"
    assert peak_difference(base, base).verdict == "noise"


def test_sides_stratified_by_machine():
    base, head = [*runs_on("p", 0, 1, 2), *runs_on("q", 50, 51)], [*runs_on("p", 5, 6), *runs_on("q", 55, 56, 57)]
    rows = [next(row for row in summary.summarise(side, ("rss_peak_bytes",)) if row.phase == "PEAK") for side in (base, head)]

    test = machine_spread.sides(*rows)

    assert test is not None
    assert test.p == stratified_p([(rows[0].values[:3], rows[1].values[:2]), (rows[0].values[3:], rows[1].values[2:])])
    assert test.difference == statistics.median([4.5 * (1 << 20), 5.5 * (1 << 20)])


def test_machine_deviating_from_kind_named():
    runs = [*runs_on("p", 0, 0.1), *runs_on("q", 0, 0.2), *runs_on("r", 0.1, 0.1), *runs_on("odd", 40, 40.1)]

    (sentence,) = machine_spread.deviating(runs)

    assert sentence == "odd differs from the other 3 machines of pi5: +40.0 MiB, +14.8% in PEAK of net.onnx, a"
    assert sentence in table.render(runs)
    assert machine_spread.deviating([*runs_on("p", 0), *runs_on("q", 40)]) == []  # nobody can say which of two is odd
    assert machine_spread.deviating([replace(kept, attempt=None) for kept in runs]) == []


def judged(base, head):
    return judge(baseline.entries(base, ("rss_peak_bytes",)), baseline.entries(head, ("rss_peak_bytes",)))


def test_baseline_keeps_machines(tmp_path):
    base = [*runs_on("p", 0, 0.1, 0.2), *runs_on("q", 40, 40.1, 40.2)]
    path = tmp_path / "baseline.json"
    baseline.update(path, baseline.entries(base, ("rss_peak_bytes",)))

    (entry,) = baseline.read(path)

    assert {row.machines for row in entry.rows} == {("p",) * 3 + ("q",) * 3}
    path.write_text(path.read_text().replace('"machines":["p","p",', '"machines":["p",'))
    with pytest.raises(InputError, match="a row has more or fewer machines than values"):
        baseline.read(path)


def test_runs_of_kind_round_trip(tmp_path):
    runs = runs_on("p", 0, 1)
    (tmp_path / "runs.jsonl").write_bytes(b"".join(map(store.encode, runs)))

    assert list(store.load([tmp_path / "runs.jsonl"]).runs) == runs
