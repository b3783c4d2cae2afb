"""`memprof fit`: limits on what the synthetic runtime is known to need, and that no control group stays behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from msgspec.structs import replace
from support import recorder_runs
from support import sample_runs as made_up
from support.fit_results import MIB, coarse, grouped, made  # noqa: F401  (the fixtures)
from support.looks import READY, waiting
from support.recorder_runs import measured, runtime_file, wait_for
from support.suites import apart, one, program

from memprof.base import control_groups, leftovers, processes
from memprof.base.errors import InputError, UsageError
from memprof.base.processes import boot
from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.footprint import fit, shared_files
from memprof.footprint.fit import PARTS
from memprof.places import limits
from memprof.places.place import HERE
from memprof.programs.runtimes import runners_path
from memprof.records import store
from memprof.records.types import EXECUTE, MODEL_LOAD, PREPARE, Outcome
from memprof.reports.tables.fit import render
from memprof.subjects import orders
from memprof.subjects.suite import Suite


def left():
    """Groups that this test made: their owner, whose pid is in the name, is this process, was started by it, or has ended."""
    ours = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    groups = [group.name.split("-") for group in grouped().folder.glob(f"{control_groups.PREFIX}-*-*-*-*")]
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
    for name, value in (("CONFIRMATIONS", 3), ("_PLAIN_RUNS", 3), ("_CURVE", (1.1,))):
        monkeypatch.setattr(fit, name, value)
    return outcomes


@pytest.fixture
def coarser(coarse, monkeypatch):
    """For tests to which the limit itself does not matter."""
    monkeypatch.setattr(fit, "_NEAREST", 8 * MIB)


def least(path, part=fit.WHOLE, **words):
    settings, others = apart(words)
    fitted = fit.fit(fit.FitRequest(one(path, runs=1, **settings), parts=(part,), **others), Silent(), lambda line: None)
    return fitted.parts[0].least_bytes


def test_least_limit_within_2_mib(held, clean):
    small, large = least(held(12)), least(held(32))

    assert abs(large - small - 20 * MIB) <= 2 * MIB


@pytest.mark.long
def test_transient_limits_its_phase_alone(held, clean):
    path = held(8, prepare=[{"spike": 24 * MIB, "hold_s": 0.0}])

    fitted = fit.fit(fit.FitRequest(one(path, runs=1), parts=PARTS[1:]), Silent(), lambda line: None)
    load, prepare, execute = (part.least_bytes for part in fitted.parts)

    assert abs(prepare - load - 24 * MIB) <= 2 * MIB
    assert abs(execute - load) <= 2 * MIB


@pytest.mark.long
def test_fit_command_reports_limits_and_curve(held, memprof, tmp_path, monkeypatch, clean):
    # Above the least limit, which two trials confirmed, a run may fail; 4 MiB above it none does.
    monkeypatch.setattr(fit, "_CURVE", (1.11,))
    monkeypatch.setattr(fit, "_NEAREST", 2 * MIB)
    words = ("-r", "synthetic", "--part", "whole", "--part", "load", "--runs", "2", "-o", "fit.jsonl", "--plot", "fit.png", "--json")

    done = memprof("fit", held(24), *words)

    assert done.returncode == 0, done.stderr
    expected = next(line for line in done.stderr.splitlines() if line.startswith("about "))
    count = int(expected.split()[1])
    assert "runs will follow" in expected
    assert " in all" in expected
    fitted = json.loads(done.stdout)
    whole, load = fitted["parts"]
    assert (whole["name"], load["name"]) == ("whole run", "MODEL_LOAD")
    assert 24 * MIB < whole["least_bytes"] < whole["rss_peak_bytes"] + MIB
    assert load["touched_bytes"] >= 24 * MIB
    assert fitted["curve"][-1]["limit_bytes"] is None
    assert fitted["curve"][0]["limit_bytes"] == pytest.approx(whole["least_bytes"], abs=MIB)
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    assert count / 2 < len(store.load([tmp_path / "fit.jsonl"]).runs) < count * 2
    limited = [run for run in store.load([tmp_path / "fit.jsonl"]).runs if run.job.limit]
    assert any(run.outcome.out_of_memory for run in limited)
    assert all(run.charged is not None and run.charged.peak_bytes for run in limited if run.outcome.ok)


def test_pages_that_another_process_holds(tmp_path):
    """A group is not charged for these: they stay in the page cache whatever drops it, as long as the process has them mapped."""
    path = str(tmp_path / "weights.bin")
    (tmp_path / "weights.bin").write_bytes(os.urandom(8 * MIB))
    if shared_files.held({path: 8 * MIB}).bytes:
        pytest.skip("the page cache of this file system cannot be dropped")
    touch = f"sum(data[at] for at in range(0, {4 * MIB}, 4096))"
    program = f"import mmap; file = open({path!r}, 'rb'); data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); {touch}; {READY}"
    with waiting(program) as process:
        held = shared_files.held({path: 8 * MIB})
        used = shared_files.used(process.pid)
        assert held.holders == (f"{processes.name(process.pid)} {process.pid}",)
        assert shared_files.held({path: MIB}).bytes == MIB, "no more than the child had of it"
        assert any("libc" in name for name in used)
    for size in (held.bytes, used[path]):
        assert 4 * MIB <= size <= 4 * MIB + (128 << 10)
    assert shared_files.held({path: 8 * MIB}).bytes == 0


@pytest.mark.long
def test_fit_sees_held_files(held, memprof, clean):
    """The interpreter and its libraries at least are held by memprof itself."""
    done = memprof("fit", held(12), "-r", "synthetic", "--within", "200MiB", "--runs", "1", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert MIB < answer["held"]["bytes"] < answer["parts"][0]["rss_peak_bytes"]


def test_limit_too_slow_does_not_count(held, imagined):
    path = held(40)

    assert abs(least(path) - 45 * MIB) <= 2 * MIB
    assert abs(least(path, max_time=2.0) - 70 * MIB) <= 2 * MIB


def test_least_limit_without_later_failure(held, lucky):
    fitted = fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,)), Silent(), lambda line: None)
    least_bytes = fitted.parts[0].least_bytes

    assert 50 * MIB <= least_bytes <= 52 * MIB
    assert lucky[least_bytes] == [True] * 6
    assert fitted.curve[0].limit_bytes == least_bytes
    assert fitted.curve[0].time_ns
    assert fitted.curve[0].ended is None
    assert "; the least limit of the whole run has worked 6 times." in render(fitted)


def test_tried_limits_are_rows(held, imagined):
    """Limits that the search found to work stand in the table, each with how often it was measured."""
    fitted = fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,)), Silent(), lambda line: None)
    tried = [point.limit_bytes for point in fitted.curve[:-1]]

    assert tried == sorted(tried) and len(tried) >= 2
    assert tried[0] == fitted.parts[0].least_bytes
    assert [point.runs for point in fitted.curve[1:-1]] == [1] * (len(tried) - 1)


@pytest.mark.parametrize(
    ("within", "said"),
    [(50, "runs here within 50.0 MiB, in 3 of 3 trials, "), (44, "does not run within 44.0 MiB: trial 1 of 3 failed, which ended them; ")],
)
def test_only_limit_within_is_tried(held, imagined, monkeypatch, within, said):
    monkeypatch.setattr(fit, "CONFIRMATIONS", 3)
    runs = []
    request = fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,), within=within * MIB)
    fitted = fit.fit(request, Silent(), lambda line: runs.append(line))

    assert f"synthetic, 1 thread: {said}" in (text := render(fitted)) or f"synthetic: {said}" in text
    assert (not fitted.unmet) == (within > 45)
    first_container_fits = fitted.parts[0].rss_peak_bytes <= within * MIB
    assert ("resources:" in text) == (not fitted.unmet and first_container_fits)
    assert ("    memprof tune " in text) == (not first_container_fits or bool(fitted.unmet))
    assert ("1 of 1 failed (out of memory)" in text) == bool(fitted.unmet), "the limit that failed is a row too"
    with pytest.raises(UsageError, match="--within is a limit on the whole run"):
        fit.fit(replace(request, parts=PARTS), Silent(), lambda line: None)


def test_trials_within_end_with_time(held, imagined, monkeypatch):
    monkeypatch.setattr(fit, "CONFIRMATIONS", 3)
    whole, clock = fit.campaign.measure, [0]

    def measure(*words):
        clock[0] += 10**9
        yield from whole(*words)

    monkeypatch.setattr(fit.campaign, "measure", measure)
    monkeypatch.setattr(fit.time, "monotonic_ns", lambda: clock[0])
    request = fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,), within=50 * MIB, time_ns=3 * 10**9)
    fitted = fit.fit(request, Silent(), lambda line: None)

    assert "whole run: the time was up after 1 of 3 trials." in fitted.remarks
    assert "in 1 of 1 trial" in render(fitted)


def test_time_ends_curve_after_one_run(held, imagined, monkeypatch):
    """Near its least limit a run may take minutes, and a limit of the curve has several."""
    monkeypatch.setattr(fit, "_PLAIN_RUNS", 3)
    monkeypatch.setattr(fit, "_CURVE", (1.1, 1.5))
    whole, clock, path = fit.campaign.measure, [0], held(40)

    def measure(*words):
        clock[0] += 10**9
        yield from whole(*words)

    def seconds(time_ns: int | None) -> int:
        clock[0] = 0
        fit.fit(fit.FitRequest(one(path, runs=1), parts=(fit.WHOLE,), time_ns=time_ns), Silent(), lambda line: None)
        return clock[0] // 10**9

    monkeypatch.setattr(fit.campaign, "measure", measure)
    monkeypatch.setattr(fit.time, "monotonic_ns", lambda: clock[0])
    whole_s = seconds(None)

    assert [seconds(time_s * 10**9) for time_s in range(whole_s - 6, whole_s + 1)] == list(range(whole_s - 6, whole_s + 1))


@pytest.mark.parametrize(
    ("given_ns", "limited_ns"), [(None, 5 * 10**9), (7 * 10**9, 7 * 10**9)], ids=["five times as long", "as long as the user says"]
)
def test_given_timeout_is_that_of_trials(held, imagined, monkeypatch, given_ns, limited_ns):
    """No trial has another, and none is tried again with twice the time."""
    monkeypatch.setattr(fit, "_LEAST_PATIENCE_NS", 5 * 10**9)
    monkeypatch.setattr(fit._Fitter, "_is_busy", lambda fitter: True)
    whole, timeouts = fit.campaign.measure, []

    def measure(orders, progress, keep, look):
        for run in whole(orders, progress, keep, look):
            if run.job.limit is not None:
                timeouts.append(run.job.timeout_ns)
            yield replace(run, outcome=Outcome("timeout", MODEL_LOAD)) if run.job.limit is not None else run

    monkeypatch.setattr(fit.campaign, "measure", measure)
    suite = replace(one(held(40), runs=1), timeout_ns=given_ns)
    fitted = fit.fit(fit.FitRequest(suite, parts=(fit.WHOLE,), within=50 * MIB), Silent(), lambda line: None)

    assert timeouts == ([limited_ns] if given_ns else [limited_ns, 2 * limited_ns])
    assert "does not run within 50.0 MiB" in render(fitted)


@pytest.mark.parametrize(
    ("time_s", "words"),
    [
        (None, "about 6 runs will follow, 2 s without a limit and up to 10 s near the least: 12 s to 60 s in all"),
        (100, ": 12 s to 60 s in all"),
        (30, ": 12 s to 28 s in all, then --time ends the search"),
        (9, ": --time ends the search before that, in 7 s"),
    ],
)
def test_announced_duration_heeds_time(held, imagined, monkeypatch, time_s, words):
    monkeypatch.setattr(fit, "CONFIRMATIONS", 3)
    monkeypatch.setattr(fit, "_PLAIN_RUNS", 3)
    monkeypatch.setattr(fit, "_LEAST_PATIENCE_NS", 0)
    whole, clock = fit.campaign.measure, [0]

    def measure(*words):
        clock[0] += 2 * 10**9
        yield from whole(*words)

    monkeypatch.setattr(fit.campaign, "measure", measure)
    monkeypatch.setattr(fit.time, "monotonic_ns", lambda: clock[0])
    progress = recorder_runs.Silent()
    time_ns = None if time_s is None else time_s * 10**9
    fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,), within=50 * MIB, time_ns=time_ns), progress, lambda line: None)

    (announced,) = [said for said in progress.said if "will follow" in said]
    assert announced.endswith(words)


@pytest.mark.parametrize(("limited_s", "time_s", "said"), [(40, None, True), (2, None, False), (40, 9000, False)])
def test_longer_search_is_announced_again(held, imagined, monkeypatch, limited_s, time_s, said):
    monkeypatch.setattr(fit, "_LEAST_PATIENCE_NS", 0)
    whole, clock = fit.campaign.measure, [0]

    def measure(orders, *words):
        clock[0] += (2 if orders[0].job.limit is None else limited_s) * 10**9
        yield from whole(orders, *words)

    monkeypatch.setattr(fit.campaign, "measure", measure)
    monkeypatch.setattr(fit.time, "monotonic_ns", lambda: clock[0])
    progress = recorder_runs.Silent()
    time_ns = None if time_s is None else time_s * 10**9
    fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE, MODEL_LOAD), time_ns=time_ns), progress, lambda line: None)

    again = [line for line in progress.said if line.startswith("it takes longer than announced: about ")]
    assert bool(again) == said
    assert all(" each so far, " in line and line.endswith(" more") for line in again)


@pytest.mark.parametrize("busy", [True, False])
def test_late_run_tried_again_on_busy_machine(held, imagined, monkeypatch, busy):
    """There a run is late without lack of memory. On an idle machine a late run is one near its limit, and its time is not spent twice."""
    monkeypatch.setattr(fit._Fitter, "_is_busy", lambda fitter: busy)
    whole, given, progress = fit.campaign.measure, [], recorder_runs.Silent()

    def measure(orders, progress, keep, look):
        for run in whole(orders, progress, keep, look):
            late = run.job.limit is not None and not any(limited for limited, _ in given)
            given.append((run.job.limit, run.job.timeout_ns))
            yield replace(run, outcome=Outcome("timeout", MODEL_LOAD)) if late else run

    monkeypatch.setattr(fit.campaign, "measure", measure)
    fitted = fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,)), progress, lambda line: None)

    if not busy:
        assert not any("tried again" in said for said in progress.said)
        return
    assert abs(fitted.parts[0].least_bytes - 45 * MIB) <= 2 * MIB
    assert len([said for said in progress.said if said.endswith("it is tried again with twice the time")]) == 1
    (first, usual_ns), (second, twice_ns), *later = [each for each in given if each[0]]
    assert first == second and twice_ns == 2 * usual_ns == 2 * later[-1][1]
    assert not fitted.remarks
    limit_bytes = int(first.split()[-2])
    rows = [point for point in fitted.curve if point.late]
    assert fitted.parts[0].late_bytes == limit_bytes
    assert [(point.limit_bytes, point.late.partition(" after ")[0]) for point in rows] == [(limit_bytes, "1 of 2 was ended")]


def fitted_in(path, monkeypatch, seconds):
    """The answer of a search for the whole run that has so many seconds, of which each run takes one."""
    whole, clock = fit.campaign.measure, [0]

    def measure(*words):
        clock[0] += 10**9
        yield from whole(*words)

    monkeypatch.setattr(fit.campaign, "measure", measure)
    monkeypatch.setattr(fit, "time", SimpleNamespace(monotonic_ns=lambda: clock[0]))
    return fit.fit(fit.FitRequest(one(path, runs=1), parts=(fit.WHOLE,), time_ns=seconds * 10**9), Silent(), lambda line: None)


@pytest.mark.parametrize(
    ("seconds", "least", "said"),
    [
        (2, None, ("whole run: the time was up before it was searched; a longer --time searches it.",)),
        (3, 103 * MIB, ("whole run: the time was up; no limit failed, and 103.0 MiB worked in 1 trial.",)),
        (5, 51.5 * MIB, ("whole run: the time was up; 25.8 MiB failed, and 51.5 MiB worked in 1 trial.",)),
        (100, 45 * MIB, ()),
    ],
)
def test_search_ends_with_its_time(held, imagined, monkeypatch, seconds, least, said):
    fitted = fitted_in(held(40), monkeypatch, seconds)

    found = fitted.parts[0].least_bytes if fitted.parts else None
    assert found == least if least is None else abs(found - least) <= 2 * MIB
    assert fitted.remarks == said
    assert all(sentence in render(fitted) for sentence in said)


@pytest.mark.parametrize("seconds", range(3, 60, 2))
def test_time_up_after_any_trial(held, lucky, monkeypatch, seconds):
    """A limit that worked may fail later, and the time be up before another trial: the least limit is the next one that worked."""
    fitted = fitted_in(held(40), monkeypatch, seconds)
    render(fitted)

    failed = max((limit for limit, ended in lucky.items() if limit and not all(ended)), default=0)
    worked = [limit for limit, ended in lucky.items() if limit and limit > failed and all(ended)]
    assert [part.least_bytes for part in fitted.parts] == ([min(worked)] if worked else [])
    assert all(part.worked == len(lucky[part.least_bytes]) for part in fitted.parts)


def test_no_limit_below_failed_one_is_least(held, imagined, monkeypatch):
    """While others map the libraries a run works in less than it does without them: what failed later is no limit to name."""
    whole = fit.campaign.measure

    def measure(orders, progress, keep, look):
        for run in whole(orders, progress, keep, look):
            beside = run.job.variant.startswith("whole run in")
            limit = int(run.job.limit.split()[-2]) if run.job.limit else 100 * MIB
            yield run if beside or limit >= 68 * MIB else replace(run, outcome=Outcome("timeout", PREPARE))

    monkeypatch.setattr(fit.campaign, "measure", measure)
    monkeypatch.setattr(fit._Fitter, "_is_busy", lambda fitter: False)
    for name, value in (("CONFIRMATIONS", 3), ("_PLAIN_RUNS", 3), ("_CURVE", (1.1, 1.25, 1.4, 1.75))):
        monkeypatch.setattr(fit, name, value)
    fitted = fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,)), Silent(), lambda line: None)

    (part,) = fitted.parts
    failed = [point.limit_bytes for point in fitted.curve if point.ended]
    assert len(failed) == 3 and max(failed) < part.least_bytes, "three factors of the curve failed"
    assert part.least_bytes == min(point.limit_bytes for point in fitted.curve[:-1] if point.limit_bytes > max(failed)) and part.worked == 3
    text = render(fitted, format="text")
    assert "All runs worked in 45." in text and "and yet some failed in up to 63." in text
    requested = next(line for line in text.splitlines() if "requests:" in line)
    assert "3 runs had full speed: 78." in requested or "3 runs had full speed: 79." in requested


def test_interrupted_search_says_what_it_knows(held, imagined, monkeypatch):
    whole, count = fit.campaign.measure, [0]

    def measure(*words):
        count[0] += 1
        if count[0] == 6:
            raise KeyboardInterrupt
        yield from whole(*words)

    monkeypatch.setattr(fit.campaign, "measure", measure)
    fitted = fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE, MODEL_LOAD)), Silent(), lambda line: None)

    assert fitted.interrupted and [part.name for part in fitted.parts] == [fit.WHOLE]
    assert abs(fitted.parts[0].least_bytes - 51.5 * MIB) <= MIB and fitted.parts[0].worked == 1
    assert fitted.remarks == ("whole run: interrupted; 25.8 MiB failed, and 51.5 MiB worked in 1 trial.",)


def test_search_ends_without_reliable_limit(held, lucky, monkeypatch):
    # Every second iteration is too slow by chance, whatever the limit.
    said = []
    fitter = fit._Fitter(fit.FitRequest(one(held(40), runs=1), max_time=2.0, parts=(fit.WHOLE,)), Silent(), lambda line: None)
    turns = iter([1e9, 1e6] * 1000)

    def trial(limit, **words):
        said.append(limit)
        run = made_up.run()
        return replace(run, marks=tuple(replace(mark, times_ns=(next(turns),)) if mark.phase == EXECUTE else mark for mark in run.marks))

    monkeypatch.setattr(fitter, "_trial", trial)
    fitter._plain_time = 1e6

    assert fitter._searched(fit.WHOLE, 100 * MIB).least is None
    assert max(said) < 200 * MIB
    assert "no limit that was tried works 6 times in a row" in fitter._remarks[0]


def test_runtime_failing_without_limit(scenario, memprof):
    done = memprof("fit", scenario(load=[{"raise": "no weights"}]), "-r", "synthetic")

    assert done.returncode == 4
    assert "it fails without any limit: in MODEL_LOAD: RuntimeError: no weights" in done.stderr


@pytest.mark.long
def test_endless_run_under_limit_ended(scenario, coarser, monkeypatch, clean):
    trial = fit._Fitter._trial

    def stuck(self, limit, **rest):
        # What thrashes makes no progress: stood in for by a scenario that hangs where the limit is low.
        hangs = limit is not None and limit < 45 * MIB
        Path(self._order.job.model.path).write_text(json.dumps(HANGING if hangs else HOLDING))
        self._patience_ns = (1 if hangs else 60) * 10**9  # a busy machine may need long for a run that does not hang
        return trial(self, None if hangs else limit, **rest)

    monkeypatch.setattr(fit._Fitter, "_trial", stuck)

    fitted = fit.fit(fit.FitRequest(one(scenario(**HOLDING), runs=1), parts=(fit.WHOLE,)), Silent(), lambda line: None)

    assert "whole run: with too little memory runs took longer than 1 s; they were ended and count as failed." in fitted.remarks
    assert fitted.parts[0].least_bytes >= 45 * MIB


HOLDING = {"load": [{"allocate": "w", "bytes": 40 * MIB}]}
HANGING = {"load": [{"hang": True}]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_group_removed_after_signal(held, number, tmp_path, clean, nothing_left):
    # The fifth run in a group, which is the second with a limit, and those after it hold until they are ended.
    grouped_runs = tmp_path / "grouped runs"
    load = f"""if "/{control_groups.PREFIX}-" in open("/proc/self/cgroup").read():
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
    made = grouped().folder / f"{control_groups.PREFIX}-test-{os.getpid()}"
    made.mkdir()
    yield made
    for group in (*made.glob("*/"), made):
        wait_for(lambda: control_groups.remove(group) or not group.exists())  # noqa: B023  (called before the next)


def test_orphaned_group_removed_and_others_kept(folder):
    own = folder / f"{control_groups.PREFIX}-{HERE.owner()}-99"
    gone = folder / f"{control_groups.PREFIX}-{boot()}-{os.getpid()}-1-1"
    foreign = folder / f"{control_groups.PREFIX}-mine"
    for group in (own, gone, foreign):
        group.mkdir()
    sleeper = subprocess.Popen(["sleep", "60"])
    (gone / "cgroup.procs").write_text(str(sleeper.pid))
    try:
        control_groups.remove_orphans(folder)

        assert not gone.exists()
        assert sleeper.wait(timeout=120) == -signal.SIGKILL
        assert own.exists()
        assert foreign.exists()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_orphaned_group_removed_by_next_memprof(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gone = folder / f"{control_groups.PREFIX}-{boot()}-{os.getpid()}-1-1"
    gone.mkdir()
    leftovers.end_leftovers()
    assert gone.exists(), "nothing is noted, so nothing is looked at"

    limits._usable(folder, grouped().version)  # what makes groups there, or tries to, notes the folder
    leftovers.end_leftovers()

    assert not gone.exists()


def test_group_of_killed_recorder_removed(scenario, tmp_path):
    made = grouped().folder

    run = measured(scenario(), runtime_file(tmp_path, load="os.kill(os.getppid(), 9)"), no_swap=True)

    assert run.outcome.status == "lost"
    assert not list(made.glob(f"{control_groups.PREFIX}-{HERE.owner()}-*"))


def test_limiter_without_control_group(held, coarser, monkeypatch):
    monkeypatch.setattr(limits, "hierarchies", list)

    with pytest.raises(InputError, match="no control group"):
        limits.find("cgroup")
    fitted = fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,)), Silent(), lambda line: None)

    assert not fitted.exact
    assert "which counts allocated and not resident memory" in fitted.limiter
    assert fitted.parts[0].least_bytes > 40 * MIB


def test_limiter_is_systemd_scope(held, coarser, monkeypatch, tmp_path):
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
    fitted = fit.fit(fit.FitRequest(one(held(40), runs=1), parts=(fit.WHOLE,)), Silent(), lambda line: None)

    assert limiter.exact
    assert low == str(64 * MIB)
    assert (group / "memory.max").read_text() == "max"
    assert fitted.limiter == "the control group of a systemd scope"
    assert f"-p MemoryMax={fitted.parts[0].least_bytes} -p MemorySwapMax=0 -- " in (tmp_path / "asked").read_text()


def test_address_space_limit_of_one_phase(held, coarser):
    assert least(held(40), fit.MODEL_LOAD, by="address-space") > 40 * MIB


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fit", "none.json", "-r", "synthetic"], 5, "none.json"),
        (["fit", "s.json", "-r", "synthetik"], 2, "did you mean synthetic?"),
        (["fit", "s.json", "-r", "synthetic", "--max-latency", "2"], 2, "is not a ratio"),
        (["fit", "s.json", "-r", "synthetic", "--append"], 2, "--append needs -o"),
        (["fit", "s.json", "-r", "synthetic", "--plot", "x.bmp"], 2, "bmp"),
        (["fit", "s.json", "-r", "synthetic", "--plot", "x.png", "--part", "load"], 2, "add --part whole"),
        (["fit", "s.json", "-r", "synthetic", "--unit", "XiB"], 2, "'XiB' is not a unit"),
    ],
)
def test_fit_command_refusals(words, code, said, memprof, tmp_path):
    (tmp_path / "s.json").write_text("{}")

    done = memprof(*words)

    assert done.returncode == code
    assert said in done.stderr


def test_full_disk_ends_search(held):
    def full(line):
        raise InputError("no space left")

    with pytest.raises(InputError, match="no space left"):
        fit.fit(fit.FitRequest(one(held(20), runs=1), parts=(MODEL_LOAD,), by="data"), Silent(), full)


def test_interruption_keeps_limits_found(held, imagined, monkeypatch):
    whole = fit._Fitter._searched

    def searched(self, part, upper):
        if part == PREPARE:
            raise KeyboardInterrupt
        return whole(self, part, upper)

    monkeypatch.setattr(fit._Fitter, "_searched", searched)
    fitted = fit.fit(fit.FitRequest(one(held(20), runs=1)), Silent(), lambda line: None)

    assert [part.name for part in fitted.parts] == [fit.WHOLE, MODEL_LOAD] and all(part.least_bytes for part in fitted.parts)
    assert "Interrupted: the search was not finished." in fitted.remarks and fitted.interrupted
    with pytest.raises(KeyboardInterrupt):
        fit.fit(fit.FitRequest(one(held(21), runs=1), parts=(PREPARE,)), Silent(), lambda line: None)


@pytest.mark.usefixtures("recorder", "clean")
def test_group_counts_refaults(tmp_path):
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


def test_program_fitted_as_a_whole(memprof, tmp_path, clean):
    (tmp_path / "eat.py").write_text("held = bytearray(24 << 20); held[::4096] = bytes([1]) * len(held[::4096])")

    done = memprof("fit", "--json", "--", sys.executable, "eat.py")

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (part,) = answer["parts"]
    assert part["name"] == "whole run" and 24 * MIB <= part["least_bytes"] <= 44 * MIB
    assert all(point["minor_faults"] >= 24 * MIB / 4096 / 2 for point in answer["curve"] if not point["ended"])  # of all that it does
    refused = memprof("fit", "--part", "load", "--", "true")
    assert refused.returncode == 2 and "a program is limited as a whole" in refused.stderr


def test_device_memory_beside_the_limit(memprof, tmp_path, monkeypatch, clean):
    """A memfd that nobody maps: the group is charged for it, and no resident set has it. It is read where its phase ends, on a busy machine too."""
    monkeypatch.setattr(fit, "CONFIRMATIONS", 1)
    (tmp_path / "memprof_marks.py").write_bytes((runners_path() / "memprof_marks.py").read_bytes())
    (tmp_path / "hold.py").write_text(
        "import os, time, memprof_marks\nfile = os.memfd_create('it'); os.write(file, bytes(8 << 20))\n"
        "with memprof_marks.phase('HOLD'): pass\ntime.sleep(0.05)"
    )

    done = memprof("fit", "--within", "100MiB", "--", sys.executable, "hold.py")

    assert done.returncode == 0, done.stderr
    assert "It has up to 8.0 MiB of device memory, which RSS does not count." in done.stdout


def test_answer_has_environment_of_settings(held, imagined):
    """Those of a knob, of the user, of a runtime; not those by which memprof finds a program's packages, unless the user gave them."""
    suite = replace(one(held(40), runs=1), set={"malloc_mmap_threshold": "64KiB"}, env={"WORDS": "a b"})
    fitted = fit.fit(fit.FitRequest(suite, parts=(fit.WHOLE,), within=50 * MIB), Silent(), lambda line: None)

    assert fitted.env == {"MALLOC_MMAP_THRESHOLD_": "65536", "WORDS": "a b"}
    quiet = orders.of_one(suite)
    quiet = replace(quiet, env={**quiet.env, "ORT_DISABLE_TELEMETRY": "1", "GONE": None})
    assert quiet.settings_env == {**fitted.env, "ORT_DISABLE_TELEMETRY": "1"}


def test_environment_of_program_without_surroundings():
    suite = program("named=A=b true")
    (variant,) = suite.variants
    found = replace(variant.command, surroundings={"PYTHONPATH": "/cache/x", "A": "c", "B": None})
    order = orders.of_one(replace(suite, variants=(replace(variant, command=found),)))

    assert {"PYTHONPATH": "/cache/x", "A": "b", "B": None}.items() <= order.env.items()
    assert order.settings_env == {"A": "b"}
