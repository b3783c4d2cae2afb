"""`memprof fit`: limits on what the synthetic runtime is known to need, and that no control group stays behind."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import made as made_up
import psutil
import pytest
from failing import measured, runtime_file, wait_for

from memprof.cli import seeking
from memprof.errors import InputError
from memprof.measuring import campaign, cgroups, leftovers, limits, orders
from memprof.measuring.places.place import HERE, boot
from memprof.measuring.progress import Silent
from memprof.measuring.suite import Suite
from memprof.reports.pictures import fit as report
from memprof.reports.tables.fit import render
from memprof.runs import store
from memprof.runs.records import EXECUTE, MODEL_LOAD, PREPARE, Outcome
from memprof.seek import fit
from memprof.seek.fit import PARTS, At, Fitted, Part

MIB = 1 << 20


def grouped():
    """Where control groups are made here; without them the test is skipped, or fails where CI promises to have them."""
    try:
        return limits.find("cgroup")
    except InputError as error:
        pytest.skip(str(error))


def left():
    """Groups that this test made: their owner, whose pid is in the name, is this process, was started by it, or has ended."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    groups = [group.name.split("-") for group in grouped().folder.glob(f"{limits.PREFIX}-*-*-*-*")]
    return {"-".join(words) for words in groups if int(words[2]) in ours or not psutil.pid_exists(int(words[2]))}


@pytest.fixture
def clean():
    before = left()
    yield
    wait_for(lambda: not left() - before)


@pytest.fixture
def held(scenario):
    def make(mib, **more):
        return scenario(f"{mib}.json", load=[{"allocate": "w", "bytes": mib * MIB}], **more)

    return make


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """As near as the tests need, which is 1 MiB, and believed at once."""
    for name, value in (("_NEAREST", MIB), ("CONFIRMATIONS", 1), ("_PLAIN_RUNS", 1), ("_CURVE", ())):
        monkeypatch.setattr(fit, name, value)
    # On a busy machine a run near its limit takes seconds, and would count as failed.
    monkeypatch.setattr(fit, "_LEAST_PATIENCE_NS", 60 * 10**9)


@pytest.fixture
def imagined(monkeypatch):
    """No trial is a process: each Run is of a model that works in 45 MiB and takes ten times as long in less than 70."""

    def measure(orders, progress, keep, look):
        (order,) = orders
        limit = int(order.job.limit.split()[-2]) if order.job.limit else 100 * MIB
        outcome = None if limit >= 45 * MIB else Outcome("signal", MODEL_LOAD, signal="SIGKILL", out_of_memory=True)
        run = made_up.run(memory=dict.fromkeys((MODEL_LOAD, PREPARE, EXECUTE), (100, 100)), outcome=outcome)
        time_ns = 10**7 if limit >= 70 * MIB else 10**8
        yield replace(run, job=order.job, marks=tuple(replace(mark, times_ns=(time_ns,)) for mark in run.marks))

    monkeypatch.setattr(fit.campaign, "measure", measure)


@pytest.fixture
def lucky(monkeypatch, imagined):
    """A model that works in less than 50 MiB three times, and fails from then on. Gives the outcomes of its runs, by limit."""
    outcomes = {}
    whole = fit.campaign.measure

    def measure(orders, progress, keep, look):
        for run in whole(orders, progress, keep, look):
            limit = int(run.job.limit.split()[-2]) if run.job.limit else None
            before = outcomes.setdefault(limit, [])
            if limit and limit < 50 * MIB and len(before) >= 3 and run.outcome.ok:
                run = replace(run, outcome=Outcome("signal", EXECUTE, signal="SIGKILL", out_of_memory=True))
            before.append(run.outcome.ok)
            yield run

    monkeypatch.setattr(fit.campaign, "measure", measure)
    for name, value in (("CONFIRMATIONS", 3), ("_PLAIN_RUNS", 3), ("_CURVE", (1.0, 1.1))):
        monkeypatch.setattr(fit, name, value)
    return outcomes


@pytest.fixture
def coarser(coarse, monkeypatch):
    """For tests to which the limit itself does not matter."""
    monkeypatch.setattr(fit, "_NEAREST", 8 * MIB)


def least(path, part=fit.WHOLE, **words):
    fitted = fit.fit(fit.FitRequest(str(path), "synthetic", parts=(part,), runs=1, **words), Silent(), lambda line: None)
    return fitted.parts[0].least_bytes


def test_what_a_program_holds_is_found_within_2_mib(held, clean):
    small, large = least(held(40)), least(held(90))

    assert abs(large - small - 50 * MIB) <= 2 * MIB


@pytest.mark.long
def test_a_transient_of_one_phase_limits_that_phase_alone(held, clean):
    path = held(20, prepare=[{"spike": 60 * MIB, "hold_s": 0.0}])

    fitted = fit.fit(fit.FitRequest(str(path), "synthetic", parts=PARTS[1:], runs=1), Silent(), lambda line: None)
    load, prepare, execute = (part.least_bytes for part in fitted.parts)

    assert abs(prepare - load - 60 * MIB) <= 2 * MIB
    assert abs(execute - load) <= 2 * MIB


@pytest.mark.long
def test_the_command_says_limits_working_sets_and_the_curve(held, memprof, tmp_path, monkeypatch, clean):
    # Above the least limit, which two trials confirmed, a run may fail; 4 MiB above it none does.
    monkeypatch.setattr(fit, "_CURVE", (1.0, 1.06))
    monkeypatch.setattr(fit, "_NEAREST", 2 * MIB)
    done = memprof(
        "fit",
        held(60),
        "-r",
        "synthetic",
        "--phase",
        "whole",
        "--phase",
        "load",
        "--runs",
        "2",
        "-o",
        "fit.jsonl",
        "--plot",
        "fit.png",
        "--json",
    )

    assert done.returncode == 0, done.stderr
    expected = next(line for line in done.stderr.splitlines() if line.startswith("about "))
    count = int(expected.split()[1])
    assert "runs will follow" in expected
    assert " in all" in expected
    fitted = json.loads(done.stdout)
    whole, load = fitted["parts"]
    assert (whole["name"], load["name"]) == ("whole run", "MODEL_LOAD")
    assert 60 * MIB < whole["least_bytes"] < whole["rss_peak_bytes"] + MIB
    assert load["touched_bytes"] >= 60 * MIB
    assert fitted["curve"][-1]["limit_bytes"] is None
    assert fitted["curve"][0]["limit_bytes"] == pytest.approx(whole["least_bytes"], abs=MIB)
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    assert count / 2 < len(store.load([tmp_path / "fit.jsonl"]).runs) < count * 2
    limited = [run for run in store.load([tmp_path / "fit.jsonl"]).runs if run.job.limit]
    assert any(run.outcome.out_of_memory for run in limited)
    assert all(run.charged is not None and run.charged.peak_bytes for run in limited if run.outcome.ok)


def test_a_limit_that_makes_it_too_slow_does_not_count(held, imagined):
    path = held(40)

    assert abs(least(path) - 45 * MIB) <= 2 * MIB
    assert abs(least(path, max_time=2.0) - 70 * MIB) <= 2 * MIB


def test_no_later_run_failed_in_the_least_limit(held, lucky):
    fitted = fit.fit(fit.FitRequest(str(held(40)), "synthetic", parts=(fit.WHOLE,), runs=1), Silent(), lambda line: None)
    least_bytes = fitted.parts[0].least_bytes

    assert 50 * MIB <= least_bytes <= 52 * MIB
    assert lucky[least_bytes] == [True] * 6
    assert fitted.curve[0].limit_bytes == least_bytes
    assert fitted.curve[0].time_ns
    assert fitted.curve[0].ended is None
    assert "; the least limit of the whole run has worked 6 times." in render(fitted)


def test_the_search_ends_where_no_limit_works_often_enough(held, lucky):
    # Every second iteration is too slow by chance, whatever the limit.
    said = []
    fitter = fit._Fitter(fit.FitRequest(str(held(40)), "synthetic", parts=(fit.WHOLE,), runs=1), Silent(), lambda line: None)
    turns = iter([None, True] * 1000)
    fitter._worked = lambda limit, part: said.append(limit) or (next(turns) and object())

    assert fitter._least(fit.WHOLE, 100 * MIB)[0] is None
    assert max(said) < 200 * MIB
    assert "no limit that was tried works 6 times in a row" in fitter._remarks[0]


def test_a_runtime_that_fails_anyway_is_a_failed_measurement(scenario, memprof):
    done = memprof("fit", scenario(load=[{"raise": "no weights"}]), "-r", "synthetic")

    assert done.returncode == 4
    assert "it fails without any limit: in MODEL_LOAD: RuntimeError: no weights" in done.stderr


@pytest.mark.long
def test_a_limit_under_which_it_never_ends_is_ended_and_said(scenario, coarser, monkeypatch, clean):
    trial = fit._Fitter._trial

    def stuck(self, limit, **rest):
        # What thrashes makes no progress: stood in for by a scenario that hangs where the limit is low.
        hangs = limit is not None and limit < 45 * MIB
        Path(self._order.job.model.path).write_text(json.dumps(HANGING if hangs else HOLDING))
        self._patience_ns = (1 if hangs else 60) * 10**9  # a busy machine may need long for a run that does not hang
        return trial(self, None if hangs else limit, **rest)

    monkeypatch.setattr(fit._Fitter, "_trial", stuck)

    fitted = fit.fit(fit.FitRequest(str(scenario(**HOLDING)), "synthetic", parts=(fit.WHOLE,), runs=1), Silent(), lambda line: None)

    assert "whole run: with too little memory runs took longer than 1 s; they were ended and count as failed." in fitted.remarks
    assert fitted.parts[0].least_bytes >= 45 * MIB


HOLDING = {"load": [{"allocate": "w", "bytes": 40 * MIB}]}
HANGING = {"load": [{"hang": True}]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_group_stays_behind(held, number, tmp_path, clean, nothing_left):
    # The fifth run in a group, which is the second with a limit, and those after it hold until they are ended.
    grouped_runs = tmp_path / "grouped runs"
    load = f"""if "/{limits.PREFIX}-" in open("/proc/self/cgroup").read():
    with open({str(grouped_runs)!r}, "a") as file:
        file.write("x")
    while os.path.getsize({str(grouped_runs)!r}) >= 5:
        time.sleep(0.01)"""
    runtime_file(tmp_path, load=load)
    process = subprocess.Popen(
        [sys.executable, "-m", "memprof", "fit", held(20), "-r", "./mine.py"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert any("works" in line for line in process.stderr)
    wait_for(lambda: grouped_runs.stat().st_size >= 5 and left())
    process.send_signal(number)
    process.communicate(timeout=120)

    assert process.returncode == (-9 if number == signal.SIGKILL else 130)


@pytest.fixture
def folder():
    """A folder for groups that no memprof beside this test cleans up."""
    made = grouped().folder / f"{limits.PREFIX}-test-{os.getpid()}"
    made.mkdir()
    yield made
    for group in (*made.glob("*/"), made):
        wait_for(lambda: limits.remove(group) or not group.exists())  # noqa: B023  (called before the next)


def test_a_group_whose_owner_is_gone_is_removed_and_others_are_kept(folder):
    own = folder / f"{limits.PREFIX}-{HERE.owner()}-99"
    gone = folder / f"{limits.PREFIX}-{boot()}-{os.getpid()}-1-1"
    foreign = folder / f"{limits.PREFIX}-mine"
    for group in (own, gone, foreign):
        group.mkdir()
    sleeper = subprocess.Popen(["sleep", "60"])
    (gone / "cgroup.procs").write_text(str(sleeper.pid))
    try:
        limits.remove_orphans(folder)

        assert not gone.exists()
        assert sleeper.wait(timeout=120) == -signal.SIGKILL
        assert own.exists()
        assert foreign.exists()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_the_next_memprof_of_any_kind_removes_a_group_whose_owner_is_gone(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gone = folder / f"{limits.PREFIX}-{boot()}-{os.getpid()}-1-1"
    gone.mkdir()
    leftovers.end_leftovers()
    assert gone.exists(), "nothing is noted, so nothing is looked at"

    limits._usable(folder, grouped().version)  # what makes groups there, or tries to, notes the folder
    leftovers.end_leftovers()

    assert not gone.exists()


def test_a_note_on_groups_of_another_container_is_left_alone_and_one_on_a_folder_that_is_gone_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    group = tmp_path / f"{limits.PREFIX}-{boot()}-{os.getpid()}-1-1"
    group.mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(limits, "pid_namespace", lambda: "another/1")
        limits._note(tmp_path)
    limits._note(tmp_path / "gone")

    limits.remove_noted_orphans()

    assert group.exists()
    (note,) = (tmp_path / "memprof" / "groups").iterdir()
    assert note.read_text() == f"another/1\n{tmp_path}"


def test_the_group_of_a_killed_recorder_is_removed_at_once(scenario, tmp_path):
    made = grouped().folder

    run = measured(scenario(), runtime_file(tmp_path, load="os.kill(os.getppid(), 9)"), no_swap=True)

    assert run.outcome.status == "lost"
    assert not list(made.glob(f"{limits.PREFIX}-{HERE.owner()}-*"))


def test_without_a_group_the_second_best_is_said(held, coarser, monkeypatch):
    monkeypatch.setattr(limits, "hierarchies", list)

    with pytest.raises(InputError, match="no control group"):
        limits.find("cgroup")
    fitted = fit.fit(fit.FitRequest(str(held(40)), "synthetic", parts=(fit.WHOLE,), runs=1), Silent(), lambda line: None)

    assert not fitted.exact
    assert "which counts allocated and not resident memory" in fitted.limiter
    assert fitted.parts[0].least_bytes > 40 * MIB


def test_where_systemd_hands_groups_out_a_scope_is_the_limit(held, coarser, monkeypatch, tmp_path):
    # One that says what it was asked for, and becomes the program as the real one does.
    fake = tmp_path / "systemd-run"
    fake.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/asked"\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(limits, "hierarchies", lambda: [(2, tmp_path / "mount", tmp_path / "nothing")])
    limiter = limits.find()
    group = tmp_path / "mount" / Path("/proc/self/cgroup").read_text().rsplit("0::", 1)[1].strip().lstrip("/")
    group.mkdir(parents=True, exist_ok=True)

    limiter.change(os.getpid(), 64 * MIB)
    low = (group / "memory.max").read_text()
    limiter.change(os.getpid(), None)
    fitted = fit.fit(fit.FitRequest(str(held(40)), "synthetic", parts=(fit.WHOLE,), runs=1), Silent(), lambda line: None)

    assert limiter.exact
    assert low == str(64 * MIB)
    assert (group / "memory.max").read_text() == "max"
    assert fitted.limiter == "the control group of a systemd scope"
    assert f"-p MemoryMax={fitted.parts[0].least_bytes} -p MemorySwapMax=0 -- " in (tmp_path / "asked").read_text()


def test_a_limit_of_the_address_space_can_be_lowered_for_a_phase(held, coarser):
    assert least(held(40), fit.MODEL_LOAD, by="address-space") > 40 * MIB


HIERARCHIES = {
    "version 1": (
        "4:memory:/a/b\n",
        "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        [(1, "/sys/fs/cgroup/memory/a/b")],
    ),
    "version 2": ("0::/user.slice/x\n", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", [(2, "/sys/fs/cgroup/user.slice/x")]),
    "a container's root": ("4:memory:/docker/1\n", "30 25 0:26 /docker/1 /cg rw - cgroup cgroup rw,memory\n", [(1, "/cg")]),
    "outside the mount": ("4:memory:/other\n", "30 25 0:26 /docker/1 /cg rw - cgroup cgroup rw,memory\n", [(1, "/cg")]),
    "no memory controller": ("3:cpu:/\n", "30 25 0:26 / /cg rw - cgroup cgroup rw,cpu\n", []),
}


@pytest.mark.parametrize(("memberships", "mounts", "expected"), HIERARCHIES.values(), ids=HIERARCHIES)
def test_where_this_process_is_in_the_hierarchies(memberships, mounts, expected, tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(memberships)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)

    assert [(version, str(own)) for version, _, own in cgroups.hierarchies(tmp_path)] == [
        (version, f"{tmp_path}{own}") for version, own in expected
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fit", "none.json", "-r", "synthetic"], 5, "none.json"),
        (["fit", "s.json", "-r", "synthetik"], 2, "did you mean synthetic?"),
        (["fit", "s.json", "-r", "synthetic", "--max-latency", "2"], 2, "is not a ratio"),
        (["fit", "s.json", "-r", "synthetic", "--append"], 2, "--append needs -o"),
        (["fit", "s.json", "-r", "synthetic", "--plot", "x.bmp"], 2, "bmp"),
        (["fit", "s.json", "-r", "synthetic", "--plot", "x.png", "--phase", "load"], 2, "add --phase whole"),
        (["fit", "s.json", "-r", "synthetic", "--unit", "XiB"], 2, "'XiB' is not a unit"),
    ],
)
def test_what_cannot_be_done_is_said(words, code, said, memprof, tmp_path):
    (tmp_path / "s.json").write_text("{}")

    done = memprof(*words)

    assert done.returncode == code
    assert said in done.stderr


def made(**changes):
    parts = (Part("whole run", 52 * MIB, 60 * MIB, None, 12),)
    curve = (At(52 * MIB, 2e7, 100.0, 3.0), At(60 * MIB, None, None, None, "SIGKILL"), At(None, 1e7, 0.0, 0.0))
    facts = {"model": "a|b.onnx", "runtime": "x", "settings": "", "limiter": "control group", "exact": True, "parts": parts, "curve": curve}
    return Fitted(**{**facts, "charged_bytes": None, "max_time": None, "remarks": ("slow",), **changes})


def test_the_report_says_what_is_absent_and_how_it_ended():
    text = render(made())

    assert "a\\|b.onnx, x: runs in 52.0 MiB; its RSS peak with no limit is 60.0 MiB." in text
    assert [cell.strip() for cell in text.splitlines()[6].strip("|").split("|")] == ["whole run", "52.0", "60.0", "-"]
    assert "SIGKILL |" in text
    assert "- slow" in text
    assert "2.00x" in text
    assert "refaults" not in text
    again = render(made(curve=(At(52 * MIB, 2e7, 100.0, 3.0, None, 4096.0), At(None, 1e7, 0.0, 0.0))))
    rows = [[cell.strip() for cell in line.split("|")] for line in again.splitlines() if "2.00x" in line or "1.00x" in line]
    assert [row[6] for row in rows] == ["4096", "-"] and "| refaults |" in again


@pytest.mark.parametrize(
    ("bytes_", "unit", "said", "cells"),
    [
        (2000.4 * MIB, None, "runs in 2000 MiB; its RSS peak with no limit is 2100 MiB", ["2000", "2100"]),
        (2000.4 * MIB, "GiB", "runs in 1.95 GiB; its RSS peak with no limit is 2.05 GiB", ["1.95", "2.05"]),
        (5.126 * MIB, None, "runs in 5.13 MiB; its RSS peak with no limit is 105.1 MiB", ["5.13", "105.1"]),
    ],
)
def test_the_sentence_and_the_table_say_the_same(bytes_, unit, said, cells):
    parts = (Part("whole run", int(bytes_), int(bytes_ + 100 * MIB), None, 12),)
    text = render(made(parts=parts, threads=1, shapes={"x": (1, 8)}, assumed={"x": (1, 8)}), unit=unit)

    assert text.startswith("a\\|b.onnx, x, 1 thread, x 1x8 (open dimensions taken as 1: --shape): ")
    assert said in text
    assert [cell.strip() for cell in text.splitlines()[6].strip("|").split("|")][1:3] == cells


def test_figures_of_the_runs_that_did_not_fail_are_told_apart():
    curve = (
        At(52 * MIB, 2e7, 100.0, 3.0),
        At(54 * MIB, 1e7, 5.0, 0.0, "1 of 3 failed"),
        At(60 * MIB, 1e7, 5.0, 0.0),
        At(None, 1e7, 0.0, 0.0),
    )
    mixed = made(curve=curve)
    figure = report.picture(mixed)

    assert "Where some runs failed, time and page faults are medians of those that worked." in render(mixed)
    assert "Runs failed above the least limit, up to 54.0 MiB: it is what can work, and a device needs more." in render(mixed)
    assert "Runs failed" not in render(made(curve=curve[:1] + curve[2:]))
    assert "Where some runs failed" not in render(made()), "nothing is shown of a limit at which all failed"
    for axes in figure.axes[:2]:
        hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
        joined = [line for line in axes.lines if line.get_marker() not in ("None", "") and line not in hollow and len(line.get_xdata())]
        assert hollow and all(list(line.get_xdata()) == [54.0] and line.get_linestyle() == "None" for line in hollow)
        assert all(list(line.get_xdata()) == [52.0, 60.0] for line in joined)
    assert "of the runs that did not fail" in {text.get_text() for text in figure.texts}


def test_nothing_found_is_said_and_has_no_picture():
    nothing = made(parts=(Part("whole run", None, 60 * MIB, None, 5),), curve=(At(None, 1e7, 0.0, 0.0),))

    assert "no limit was found under which it runs" in render(nothing)
    with pytest.raises(InputError, match="nothing to draw"):
        report.picture(nothing)


def test_a_terminal_is_shown_plain_text_and_a_file_markdown():
    fitted = made(remarks=("MODEL_LOAD: <lambda> | a",))

    assert "a|b.onnx, x: runs" in render(fitted, format="text")
    assert "- MODEL_LOAD: <lambda> | a" in render(fitted, format="text")
    assert "- MODEL_LOAD: &lt;lambda> \\| a" in render(fitted)


@pytest.mark.parametrize(("terminal", "said"), [(True, "- <b> | x"), (False, "- &lt;b> \\| x")])
def test_where_it_is_printed_decides_between_them(terminal, said, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    seeking.answer("fit", lambda progress, keep: made(remarks=("<b> | x",)), seeking.Showing(None, False, None, None, False, False))

    assert said in capsys.readouterr().out


def test_a_phase_alone_has_its_own_words_and_a_limit_on_allocations_is_told_apart():
    load = made(parts=(Part(MODEL_LOAD, 30 * MIB, 50 * MIB, 20 * MIB, 9),), curve=(At(None, 1e7, 0.0, 0.0),))

    assert "x: MODEL_LOAD works in 30.0 MiB." in render(load)
    assert "Under a limit" not in render(load), "there is no curve"
    assert "of what it allocates" in render(made(exact=False))
    assert "compare limits with one another" in render(made(exact=False))


@pytest.mark.parametrize(
    ("faults", "labels"),
    [((100.0, 0.0), {"0", "60", "120"}), ((20_000.0, 3.0), {"0", "1", "100", "10,000"}), ((0.0, 0.0), {"0", "1"})],
)
def test_the_picture_s_axes_have_plain_numbers(faults, labels):
    curve = (At(52 * MIB, 2e7, *faults), At(57 * MIB, 1.5e7, 0.0, 0.0), At(None, 1e7, 0.0, 0.0))
    figure = report.picture(made(curve=curve))
    figure.canvas.draw()
    lower = figure.axes[1]

    assert labels <= {label.get_text() for label in lower.get_yticklabels()}
    assert lower.get_xlabel() == "limit over the whole run (MiB)"
    written = " ".join(text.get_text() for text in figure.texts)
    assert "least limit 52.0 MiB" in written
    assert "RSS peak with no limit 60.0 MiB" in written


@pytest.mark.parametrize(("phase", "where"), [("PREPARE", "in PREPARE"), ("after PREPARE", "after PREPARE")])
def test_where_a_run_ended_reads_as_a_sentence(phase, where):
    assert Outcome("timeout", phase).sentence.endswith(where)
    assert Outcome("timeout", phase).where == where


def test_a_disk_that_takes_no_run_ends_the_search(held):
    def full(line):
        raise InputError("no space left")

    with pytest.raises(InputError, match="no space left"):
        fit.fit(fit.FitRequest(str(held(20)), "synthetic", parts=(MODEL_LOAD,), runs=1, by="data"), Silent(), full)


def test_an_interruption_leaves_what_was_found(held, imagined, monkeypatch):
    whole = fit._Fitter._part

    def part(self, name, *more):
        if name == PREPARE:
            raise KeyboardInterrupt
        return whole(self, name, *more)

    monkeypatch.setattr(fit._Fitter, "_part", part)
    fitted = fit.fit(fit.FitRequest(str(held(20)), "synthetic", runs=1), Silent(), lambda line: None)

    assert [part.name for part in fitted.parts] == [fit.WHOLE, MODEL_LOAD] and all(part.least_bytes for part in fitted.parts)
    assert "Interrupted: the search was not finished." in fitted.remarks and fitted.interrupted
    with pytest.raises(KeyboardInterrupt):
        fit.fit(fit.FitRequest(str(held(21)), "synthetic", parts=(PREPARE,), runs=1), Silent(), lambda line: None)


@pytest.mark.usefixtures("recorder", "clean")
def test_pages_that_were_dropped_and_read_again_are_counted_in_a_group(tmp_path):
    groups, model = grouped(), tmp_path / "weights"
    with model.open("wb") as file:
        file.write(os.urandom(48 * MIB))
        os.fsync(file.fileno())
    load = "self.pages = mmap.mmap(os.open(model, os.O_RDONLY), 0, prot=mmap.PROT_READ)"
    runtime = runtime_file(tmp_path, top="import mmap", load=load, execute="sum(self.pages[:: mmap.PAGESIZE])")
    suite = Suite(models=(str(model),), runtimes=(str(runtime),), warmup=1, runs=2, repeats=1, cache="cold")
    (order,) = orders.plan(suite).orders

    small, large, alone = (
        next(iter(campaign.measure([replace(order, **start)], Silent(), lambda line: None)))
        for start in (groups.start(24 * MIB), groups.start(None), {})
    )

    assert small.outcome.ok, small.outcome.sentence
    # Two passes over the file, half of which has been dropped when it is needed again; the kernel counts in batches.
    assert small.mark(EXECUTE).refaults > 2 * (48 - 24) * MIB / 4096 / 2
    assert small.mark(MODEL_LOAD).refaults < small.mark(EXECUTE).refaults / 10
    assert large.mark(EXECUTE).refaults < 100
    assert alone.mark(EXECUTE).refaults is None
    assert fit._at(24 * MIB, [small]).refaults == small.mark(EXECUTE).refaults
    assert json.loads(store.encode(alone))["marks"][-1].get("refaults") is None
