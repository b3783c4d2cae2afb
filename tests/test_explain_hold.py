"""The hold: a child that stands still at the end of each phase, is looked at, and goes on."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import failing
import made
import psutil
import pytest

from memprof.measuring import campaign, probing
from memprof.measuring.orders import plan
from memprof.measuring.suite import Suite
from memprof.runs import store
from memprof.runs.records import Run

MIB = 1 << 20
PHASES = ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE"]


def order_of(model: Path, hold: bool = True, hold_at: dict[str, int] | None = None, runtime: str = "synthetic", **words: object):
    (order,) = plan(
        Suite(models=(str(model),), runtimes=(runtime,), repeats=1, **{"warmup": 1, "runs": 2, "release": False, **words})
    ).orders
    return replace(order, job=replace(order.job, hold=hold), hold_at=hold_at or {})


def held(order, look=lambda job, phase, pid: None):
    (run,) = campaign.measure([order], failing.Silent(), lambda line: None, look)
    return run


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stands_still(pid: int) -> bool:
    try:
        return state(pid) == "T"
    except OSError:  # it has ended
        return False


def one_stands_still() -> bool:
    for process in failing.children():
        try:
            if process.status() == psutil.STATUS_STOPPED:
                return True
        except psutil.Error:  # it ended meanwhile
            continue
    return False


def test_the_child_stands_still_at_the_end_of_each_phase_and_goes_on(scenario, nothing_left) -> None:
    seen = []
    model = scenario(load=[{"allocate": "a", "bytes": 4 * MIB}])
    run = held(order_of(model), lambda job, phase, pid: seen.append((phase, state(pid))))
    assert seen == [(phase, "T") for phase in PHASES]
    assert run.outcome.ok, run.outcome.sentence
    assert run.job.hold
    assert not run.warnings
    assert [mark.phase for mark in run.marks] == PHASES


def test_a_plain_job_is_never_stopped(scenario) -> None:
    seen = []
    run = held(order_of(scenario(), hold=False), lambda job, phase, pid: seen.append(phase))
    assert run.outcome.ok
    assert seen == []


def test_a_transient_is_held_inside_its_phase(scenario, nothing_left) -> None:
    sizes = {}

    def look(job, phase: str, pid: int) -> None:
        sizes[phase] = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096

    def attempt(hold_s: float) -> Run:
        sizes.clear()
        return held(order_of(scenario(load=[{"spike": 60 * MIB, "hold_s": hold_s}]), hold_at={"MODEL_LOAD": 60 * MIB}), look)

    run = failing.with_time(attempt, lambda run: "MODEL_LOAD/peak" in sizes, 0.3, 3, 30)
    assert run.outcome.ok
    assert list(sizes) == ["STARTUP", "MODEL_LOAD/peak", *PHASES[1:]]
    assert sizes["MODEL_LOAD/peak"] - sizes["MODEL_LOAD"] > 30 * MIB


def test_standing_still_does_not_count_against_the_time_limit(scenario) -> None:
    def attempt(limit_ns: int) -> Run:
        return held(order_of(scenario(), timeout_ns=limit_ns), lambda job, phase, pid: time.sleep(limit_ns / 3e9))

    run = failing.with_patience(attempt, lambda run: run.outcome.ok)
    assert run.outcome.ok, run.outcome.sentence  # though it stood still for longer than its limit


def test_a_hold_that_nobody_ends_has_a_limit(scenario, monkeypatch: pytest.MonkeyPatch, nothing_left) -> None:
    monkeypatch.setattr(probing, "_HOLD_LIMIT_NS", 200_000_000)

    def look(job, phase: str, pid: int) -> None:
        if phase == "MODEL_LOAD":
            failing.wait_for(lambda: not stands_still(pid))

    run = held(order_of(scenario()), look)
    assert run.outcome.ok
    assert any("MODEL_LOAD: it was held" in warning for warning in run.warnings)


def test_a_child_killed_while_it_is_held_is_a_result(scenario, nothing_left) -> None:
    run = held(order_of(scenario()), lambda job, phase, pid: os.kill(pid, signal.SIGKILL) if phase == "PREPARE" else None)
    assert run.outcome.status == "signal"
    assert run.outcome.signal == "SIGKILL"


def test_what_a_look_raises_ends_the_child(scenario, nothing_left) -> None:
    def look(job, phase: str, pid: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held(order_of(scenario()), look)


# memprof whose first look at a child that stands still does not end.
LOOKING = """
import time
from memprof import cli
from memprof.explain import waterfall
waterfall.take = lambda *words: time.sleep(600)
cli.main()
"""


def looking(folder: Path, *words: str | Path):
    """memprof in the background, which looks for ever."""
    (folder / "looking.py").write_text(LOOKING)
    return failing.started(folder, *words, program=("looking.py",))


def test_nothing_is_left_when_memprof_is_killed_while_it_holds(scenario, tmp_path: Path, nothing_left) -> None:
    with looking(tmp_path, "explain", scenario(), "-r", "synthetic") as process:
        failing.wait_for(one_stands_still)
        process.kill()
        process.wait()
        failing.wait_for(failing.all_gone)


def test_ctrl_c_while_a_child_is_held_ends_everything(scenario, tmp_path: Path, nothing_left) -> None:
    with looking(tmp_path, "explain", scenario(), "-r", "synthetic", "-o", "why.json", "--keep-runs", "runs.jsonl") as process:
        failing.wait_for(one_stands_still)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "memprof: interrupted"
    assert out == ""
    assert not (tmp_path / "why.json").exists()
    assert len(failing.runs_in(tmp_path / "runs.jsonl")) == 1  # the plain run was measured


def test_a_wrapped_process_is_held_too(tmp_path: Path, scenario, nothing_left) -> None:
    import sys

    wrapper = failing.script(tmp_path / "python", f'#!/bin/sh\n{failing.PYTHON} "$@"\nexit $?\n')
    assert sys.executable
    seen = []
    run = held(order_of(scenario(), python=str(wrapper)), lambda job, phase, pid: seen.append((phase, state(pid))))
    assert run.outcome.ok, run.outcome.sentence
    assert seen == [(phase, "T") for phase in PHASES]


def test_held_runs_are_rows_of_their_own() -> None:
    runs = [made.run("a", 1), made.run("a", 2, hold=True)]
    apart, said = store.told_apart(runs)
    assert [run.job.variant for run in apart] == ["a (plain)", "a (held)"]
    assert said
    (alone,), _ = store.told_apart(runs[1:])
    assert alone.job.variant == "a (held)"
    (plain,), said = store.told_apart(runs[:1])
    assert (plain.job.variant, said) == ("a", [])
