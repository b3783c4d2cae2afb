"""`memprof tune` on a runtime of the test's own, whose knobs cost what the test says."""

import json
import os
import shlex
import signal
import statistics
import subprocess
import sys

import numpy
import pytest
from msgspec.structs import replace
from support import sample_runs
from support.recorder_runs import wait_for
from support.session_cache import once
from support.suites import one
from support.tune_runtime import COMMON, RUNTIME

from memprof.campaign.progress import Silent
from memprof.footprint.tune import search, tuner
from memprof.footprint.tune.search import DEFAULT
from memprof.records import store
from memprof.records.types import About, Outcome
from memprof.reports.pictures import tune as report
from memprof.reports.tables.tune import render

MIB = 1 << 20

FIXED = ["--set", "copies=2", "--set", "bad=no", "--set", "slow=no", "--set", "rounding=exact"]  # all but idle


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(RUNTIME)
    (tmp_path / "model.bin").write_bytes(b"model")
    return tmp_path


@pytest.fixture
def tuned(memprof, folder, monkeypatch):
    """A search in which each proposal is measured twice more; `whole` shows the real count."""
    monkeypatch.setattr(tuner, "VERIFYING_REPEATS", 2)

    def call(*words, time="60s", try_=("bad=raise,crash", "rounding=half"), **rest):
        tries = [word for words in try_ for word in ("--try", words)]
        return memprof("tune", "model.bin", "-r", "./mine.py", *COMMON, *tries, "--time", time, *words, cwd=folder, **rest)

    return call


@pytest.fixture
def imagined(monkeypatch):
    """No trial is a process: each Run has what RUNTIME would hold and take, for tests of what the search makes of that."""

    def measure(orders, progress, keep):
        for order in orders:
            knobs = {"copies": "3", "slow": "no", "rounding": "exact", **order.job.knobs}
            slow, low = knobs["slow"] == "yes", knobs["rounding"] == "low"
            size = 20 + 10 * int(knobs["copies"]) - 8 * slow - 9 * low + 5 * (order.job.threads or 0)
            run = sample_runs.run(memory={"MODEL_LOAD": (size, size), "EXECUTE": (size, size)})
            marks = tuple(replace(mark, times_ns=(20_000_000 if slow else 5_000_000,) * order.job.runs) for mark in run.marks)
            numpy.savez(order.outputs, numpy.array([1.0, 2.0, 4.0]) * (1 if knobs["rounding"] == "exact" else 1.01))
            run = replace(run, job=order.job, marks=marks, about=About("1", "3.11"))
            yield run

    monkeypatch.setattr(tuner.campaign, "measure", measure)


@pytest.fixture
def whole():
    """One whole search, whose answer several tests look at: its answer and its folder."""
    folder = once("a search of test_tune.py", search_wholly)
    return json.loads((folder / "out.json").read_text()), folder


def search_wholly(folder):
    (folder / "mine.py").write_text(RUNTIME)
    (folder / "model.bin").write_bytes(b"model")
    fixed = [*COMMON, "--set", "slow=no", "--set", "idle=a"]  # what they do to the time no busy machine tells: see `imagined`
    words = [*fixed, "--try", "copies=1", "--try", "bad=raise,crash", "--try", "rounding=half", "--time", "250s"]
    words += ["--json", "-o", "runs.jsonl", "--plot", "front.png"]
    command = [sys.executable, "-m", "memprof", "tune", "model.bin", "-r", "./mine.py", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=285, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "out.json").write_text(done.stdout)


@pytest.mark.long
def test_tune_finds_least_peak(whole):
    answer, folder = whole
    best = next(proposal for proposal in answer["proposals"] if proposal["settings"] == answer["best"])
    verifying = [run for run in store.load([folder / "runs.jsonl"]).runs if run.job.verifies and run.job.knobs.get("copies") == "1"]

    assert answer["best"] == {"copies": "1"}
    assert answer["default"]["rss_peak_bytes"] - best["rss_peak_bytes"] == pytest.approx(20 * MIB, abs=MIB)
    assert best["time_ns_values"] == [statistics.median(run.mark("EXECUTE").times_ns) for run in verifying]
    assert best["time_ns"] == statistics.median(best["time_ns_values"]) >= 5_000_000  # as long as an iteration sleeps
    assert len(best["rss_peak_bytes_values"]) == 5
    assert answer["verified"]


def test_front_with_fast_without_idle_settings(tuned, imagined):
    answer = json.loads(tuned("--json", "-o", "runs.jsonl", time="250s", try_=("bad=no", "rounding=exact")).stdout)

    assert answer["best"] == {"copies": "1", "slow": "yes"}
    settings = [proposal["settings"] for proposal in answer["proposals"]]
    assert {"copies": "1"} in settings
    assert not any("idle" in setting for setting in settings)
    assert "idle=b" in answer["idle"]
    best = next(proposal for proposal in answer["proposals"] if proposal["settings"] == answer["best"])
    assert (answer["default"]["time_ns"], best["time_ns"]) == (5_000_000, 20_000_000)


def test_failing_settings_and_exclusive_pairs_reported(whole):
    answer, _ = whole

    failed = {json.dumps(failure["settings"]): failure["message"] for failure in answer["failed"]}
    assert "this setting is broken" in failed['{"bad": "raise"}']
    assert "SIGABRT" in failed['{"bad": "crash"}']
    assert "these two exclude each other" in failed.get('{"copies": "1", "rounding": "half"}', "these two exclude each other")


def test_tune_file_runs_with_output_error(whole):
    answer, folder = whole
    runs = store.load([folder / "runs.jsonl"]).runs

    assert len([run for run in runs if not run.job.variant.startswith("#")]) == answer["trials"]
    errors = {run.job.knobs.get("rounding"): run.output_error for run in runs if run.outcome.ok}
    assert errors["half"] == pytest.approx(0.01)
    assert errors[None] == 0


def test_front_drawn(whole):
    assert (whole[1] / "front.png").read_bytes().startswith(b"\x89PNG")


def test_proposal_command_reproduces_peak(whole, memprof):
    answer, folder = whole
    best = next(proposal for proposal in answer["proposals"] if proposal["settings"] == answer["best"])

    words = shlex.split(best["command"])[1:]
    done = memprof(*words, "--repeats", "1", "--json", cwd=folder)

    assert done.returncode == 0, done.stderr
    (peak,) = [row["rss_peak_bytes"] for row in json.loads(done.stdout) if row["phase"] == "PEAK"]
    assert peak == pytest.approx(best["rss_peak_bytes"], abs=MIB)


def test_setting_changing_outputs_marked(tuned, imagined):
    done = tuned("--set", "copies=2", "--set", "bad=no", "--set", "idle=a", "--set", "slow=no", "--try", "rounding=half", try_=())

    assert done.returncode == 0, done.stderr
    assert "rounding=half: " in done.stderr
    assert "outputs differ by 0.01" in done.stderr


def test_setting_changing_outputs_never_best(tuned, imagined):
    words = ("--set", "bad=no", "--set", "idle=a", "--set", "slow=no", "--try", "rounding=low", "--try", "copies=2", "--json")
    done = tuned(*words, "-o", "runs.jsonl", try_=())

    answer = json.loads(done.stdout)
    assert answer["best"] == {"copies": "2"}
    changing = [proposal for proposal in answer["proposals"] if proposal["changes_outputs"]]
    assert changing and min(proposal["rss_peak_bytes"] for proposal in changing) < 28 * MIB + answer["default"]["rss_peak_bytes"] - 30 * MIB
    again = tuned(*words, "--budget", f"{answer['default']['rss_peak_bytes'] - 15 * MIB}B", "--set", "copies=3", try_=())
    assert json.loads(again.stdout)["best"] is None, "what keeps within the budget changes the outputs"


def test_tune_searches_threads(tuned, imagined, memprof, folder):
    fixed = [word for name in ("bad=no", "idle=a", "slow=no", "rounding=exact", "copies=2") for word in ("--set", name)]
    done = tuned(*fixed, "--threads", "2,1,4", "--json", "-o", "runs.jsonl", try_=())

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["threads"], answer["best"]) == (2, {"threads": "1"})
    assert "threads=4: " in done.stderr
    (command,) = [proposal["command"] for proposal in answer["proposals"]]
    assert command.split()[-2:] == ["--threads", "1"]
    again = tuned(*fixed, "--threads", "2,1,4", "--json", "-o", "runs.jsonl", "--append", try_=())
    assert again.returncode == 0, again.stderr
    assert "going on after" in again.stderr and "] threads=" not in again.stderr, "what was measured is known"
    assert json.loads(again.stdout)["best"] == {"threads": "1"}, again.stderr


class Clock:
    """A clock that only measuring moves."""

    def __init__(self):
        self.now_ns = 0

    def monotonic_ns(self):
        return self.now_ns


class Told(Silent):
    """A progress that keeps its sentences."""

    def __init__(self):
        self.said = []

    def say(self, sentence):
        self.said.append(sentence)


@pytest.mark.parametrize("limit_s", [200, 400, 1000])
def test_tune_keeps_time_limit(folder, monkeypatch, limit_s):
    clock, runs = Clock(), []

    def measure(orders, progress, keep):
        for order in orders:
            job = order.job
            iteration_ns = 10**9 * (2 if job.knobs.get("slow") == "yes" else 1)
            clock.now_ns += 2 * 10**9 + (job.warmup + job.runs) * iteration_ns
            size = 10 * int(job.knobs.get("copies", "3")) + 40 - 8 * (job.knobs.get("slow") == "yes")
            run = sample_runs.run(job.variant, job.repeat, memory={"EXECUTE": (size, size)})
            runs.append(job.variant)
            marks = tuple(replace(mark, times_ns=(iteration_ns,) * job.runs) for mark in run.marks)
            yield replace(run, marks=marks, job=job)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(tuner, "time", clock)
    monkeypatch.setattr(tuner.campaign, "measure", measure)

    answer = tuner.tune(tuner.TuneRequest(one("model.bin", "./mine.py"), time_ns=limit_s * 10**9), Silent(), lambda line: None)

    assert answer.verified
    assert clock.now_ns <= limit_s * 10**9 or answer.repeats == 1, f"{clock.now_ns / 1e9:.0f} s"
    assert answer.repeats == min(runs.count("#0 default"), tuner.VERIFYING_REPEATS)
    assert f"Medians of {answer.repeats} fresh runs" in render(answer) or answer.repeats == 1


def test_short_time_tries_values_once(folder, monkeypatch):
    """Long iterations are few, the default is measured once before the values, the best are tried together, and the time is used."""
    clock, orders_seen, progress = Clock(), [], Told()

    def measure(orders, progress, keep):
        for order in orders:
            job = order.job
            orders_seen.append(job)
            clock.now_ns += 2 * 10**9 + (job.warmup + job.runs) * 10**9
            size = 100 - 20 * (job.knobs.get("copies") == "1") - 10 * (job.knobs.get("idle") == "b")
            run = sample_runs.run(job.variant, job.repeat, memory={"EXECUTE": (size, size)})
            yield replace(run, marks=tuple(replace(mark, times_ns=(10**9,) * job.runs) for mark in run.marks), job=job)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(tuner, "time", clock)
    monkeypatch.setattr(tuner, "FIRST", (("copies", "1"), ("idle", "b")))
    monkeypatch.setattr(tuner.campaign, "measure", measure)

    answer = tuner.tune(tuner.TuneRequest(one("model.bin", "./mine.py"), time_ns=60 * 10**9), progress, lambda line: None)

    trials = [job for job in orders_seen if not job.verifies]
    assert [job.variant for job in trials[:3]] == ["default", "copies=1", "idle=b"]
    assert {(job.warmup, job.runs) for job in trials} == {(1, 1)}
    assert {(job.warmup, job.runs) for job in orders_seen if job.verifies} == {(2, 5)}
    assert [job.variant for job in trials].count("default") == 1 and "copies=1,idle=b" in [job.variant for job in trials]
    assert answer.untried and dict(answer.best.settings) == {"copies": "1", "idle": "b"}
    assert 50 * 10**9 < clock.now_ns <= 60 * 10**9
    (said,) = (text for text in progress.said if text.endswith("can be tried, first those that usually save most"))
    assert said.startswith(f"{answer.values} values to try, which takes about ")


def test_rows_stand_by_their_numbers(folder, monkeypatch):
    """The trials number them. Fresh runs may have other peaks."""
    sizes = {
        ("1", False): (50, 2),
        ("2", False): (60, 1),
        ("1", True): (65, 1),
        ("2", True): (55, 2),
    }  # MiB and seconds, of a trial or a fresh run

    def measure(orders, progress, keep):
        for order in orders:
            job = order.job
            size, seconds = sizes.get((job.knobs.get("copies"), job.verifies), (100, 3))
            run = sample_runs.run(job.variant, job.repeat, memory={"EXECUTE": (size, size)})
            yield replace(run, marks=tuple(replace(mark, times_ns=(seconds * 10**9,) * job.runs) for mark in run.marks), job=job)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(tuner.campaign, "measure", measure)

    fixed = {"bad": "no", "idle": "a", "slow": "no", "rounding": "exact", **dict(words.split("=") for words in COMMON[1::2])}
    answer = tuner.tune(tuner.TuneRequest(one("model.bin", "./mine.py", set=fixed), time_ns=10**12), Silent(), lambda line: None)

    assert [(each.number, dict(each.settings), each.peak // MIB) for each in answer.proposals] == [
        (1, {"copies": "1"}, 65),
        (2, {"copies": "2"}, 55),
    ]


def proposal(number, peak):
    settings = frozenset({("copies", str(number))}) if number else DEFAULT
    return tuner.Recommendation(number, settings, peak, 1e6, (peak,), (1e6,), None, False, "memprof run", {})


def test_max_latency_kept(tuned, imagined):
    done = tuned("--max-latency", "1.5x", "--json", try_=("bad=no", "idle=a", "rounding=exact"))

    assert json.loads(done.stdout)["best"] == {"copies": "1"}


def test_budget_unreachable(tuned, imagined):
    done = tuned("--budget", "1MiB", "--set", "bad=no", "--set", "idle=a", "--set", "slow=no", "--set", "rounding=exact", try_=())

    assert done.returncode == 5
    assert "no settings were found that stay within 1.0 MiB\n" in done.stderr
    assert "no settings were found that stay within 1.0 MiB; the least PEAK is 30.0 MiB, of `copies=1`." in done.stdout


def test_several_runtimes_share_one_answer(memprof, folder, imagined, monkeypatch):
    """Each has its own search, under its own name in the runs file; a search that goes on takes up the trials of each."""
    monkeypatch.setattr(tuner, "VERIFYING_REPEATS", 2)
    (folder / "other.py").write_text(RUNTIME)
    fixed = ["--set", "bad=no", "--set", "idle=a", "--set", "slow=no", "--set", "rounding=exact"]
    words = ["tune", "model.bin", "-r", "./mine.py", "-r", "./other.py", *COMMON, *fixed, "--time", "120s", "-o", "runs.jsonl"]
    answer = json.loads(memprof(*words, "--json", "--plot", "front.png", cwd=folder).stdout)

    assert [each["runtime"] for each in answer["runtimes"]] == ["./mine.py", "./other.py"]
    assert all(each["best"] == {"copies": "1"} for each in answer["runtimes"])
    assert answer["best_runtime"] == "./mine.py"
    runs = store.load([folder / "runs.jsonl"]).runs
    assert {run.job.variant.split(" ")[0] for run in runs} == {"./mine.py", "./other.py"}
    again = memprof(*words, "--append", cwd=folder)
    assert again.stderr.count("going on after") == 2
    assert again.stdout.startswith("Of 2 runtimes, ./mine.py needs least: `copies=1`, with a PEAK of")


@pytest.mark.parametrize(("total_s", "slow_tries"), [(300, False), (1600, True)])
def test_slow_runtime_leaves_its_share(folder, monkeypatch, total_s, slow_tries):
    """A runtime whose share is too short for one value is measured with its default, and the other has the time."""
    (folder / "other.py").write_text(RUNTIME)
    clock, progress = Clock(), Told()

    def measure(orders, progress, keep):
        for order in orders:
            clock.now_ns += 10**9 * (40 if order.job.variant.startswith("./other.py") else 4)
            size = 10 * int(order.job.knobs.get("copies", "3"))
            run = sample_runs.run(order.job.variant, memory={"EXECUTE": (size, size)})
            marks = tuple(replace(mark, times_ns=(10**9,) * order.job.runs) for mark in run.marks)
            yield replace(run, marks=marks, job=order.job)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(tuner, "time", clock)
    monkeypatch.setattr(tuner.campaign, "measure", measure)
    fixed = {"bad": "no", "idle": "a", "slow": "no", "rounding": "exact", **dict(words.split("=") for words in COMMON[1::2])}
    requests = [
        tuner.TuneRequest(one("model.bin", name, set=fixed, runs=1), time_ns=total_s * 10**9) for name in ("./mine.py", "./other.py")
    ]
    answer = tuner.tune_each(requests, progress, lambda line: None)

    fast, slow = answer.answers
    assert (fast.runtime, slow.runtime) == ("./mine.py", "./other.py")
    assert dict(fast.best.settings) == {"copies": "1"} and (slow.best is not None) == slow_tries
    words = [sentence for sentence in progress.said if sentence.startswith("./other.py: its default settings alone")]
    assert len(words) == (not slow_tries) and all("one value takes" in sentence and "--time" in sentence for sentence in words)


def test_second_runtime_when_time_is_up(memprof, folder, imagined):
    """What the first took beyond the time is no negative time for the second: its default settings are measured all the same."""
    (folder / "other.py").write_text(RUNTIME)
    done = memprof("tune", "model.bin", "-r", "./mine.py", "-r", "./other.py", *COMMON, "--time", "1ms", "--json", cwd=folder)

    assert done.returncode == 0, done.stderr
    assert "./other.py: its default settings alone are measured, as the time is up; a longer --time searches it" in done.stderr
    assert [each["default"]["rss_peak_bytes"] > 0 for each in json.loads(done.stdout)["runtimes"]] == [True, True]


def test_search_resumed_after_interruption(tuned, imagined, folder):
    # After two trials a child waits: the search cannot end before it is interrupted. What is left of it is imagined.
    runs = folder / "runs.jsonl"
    waits = f"""
        while os.path.exists({str(runs)!r}) and open({str(runs)!r}).read().count("\\n") >= 2:
            time.sleep(0.01)
        self.knobs_now = options.knobs
"""
    (folder / "mine.py").write_text(RUNTIME.replace("        self.knobs_now = options.knobs\n", waits.lstrip("\n")))
    fixed = ["--set", "bad=no", "--set", "rounding=exact", "--set", "idle=a", "--set", "slow=no"]
    words = [*COMMON, *fixed, "-o", "runs.jsonl", "--plot", "front.png"]
    first = subprocess.Popen(
        [sys.executable, "-m", "memprof", "tune", "model.bin", "-r", "./mine.py", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: runs.exists() and runs.read_bytes().count(b"\n") >= 2)
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=120)
    kept = runs.read_bytes().count(b"\n")

    again = tuned(*fixed, "-o", "runs.jsonl", "--append", "--json", try_=())

    assert first.returncode == 130, err
    assert "Not verified" in out
    assert (folder / "front.png").read_bytes().startswith(b"\x89PNG")
    assert f"going on after {kept} trials" in again.stderr
    assert "[1] default: " not in again.stderr
    assert json.loads(again.stdout)["best"] == {"copies": "1"}


def test_interrupted_search_leaves_out_idle(folder, monkeypatch):
    idle, both = ("idle", "b"), frozenset({("copies", "1"), ("idle", "b")})
    asked = iter([DEFAULT] * 3 + [frozenset({idle}), frozenset({("bad", "crash")}), both])

    def ask(self, most, screens):
        if (settings := next(asked, None)) is None:
            raise KeyboardInterrupt
        return [settings]

    def measured(self, settings, most_ns=None):
        size, failed = 60 if ("copies", "1") in settings else 100, ("bad", "crash") in settings
        outcome = Outcome("error", "EXECUTE", "<lambda> | is broken") if failed else None
        return sample_runs.run(tuner.shown(settings), memory={"EXECUTE": (size, size)}, outcome=outcome, knobs=dict(settings))

    monkeypatch.chdir(folder)
    monkeypatch.setattr(search.Search, "ask_several", ask)
    monkeypatch.setattr(tuner._Tuner, "_measured", measured)

    answer = tuner.tune(
        tuner.TuneRequest(one("model.bin", "./mine.py", set={"malloc_mmap_threshold": "64KiB"})), Silent(), lambda line: None
    )

    assert answer.idle == (idle,)
    assert [proposal.settings for proposal in answer.proposals] == [both - {idle}]
    assert {run.job.variant for run in answer.runs} == {"default", "copies=1", "bad=crash"}
    assert not answer.verified and answer.interrupted
    assert "malloc_mmap_threshold=64KiB" in answer.default.command
    text, markdown = render(answer, format="text"), render(answer)
    assert "left out: idle=b." in text
    assert "bad=crash fails: in EXECUTE: <lambda> | is broken" in text
    assert "bad=crash fails: in EXECUTE: `<lambda>` \\| is broken" in markdown
    assert report.picture(answer).axes


def test_search_of_other_model_not_resumed(tuned, imagined, folder):
    tuned("-o", "runs.jsonl", *FIXED, "--try", "idle=b", try_=())
    (folder / "model.bin").write_bytes(b"another")

    done = tuned("-o", "runs.jsonl", "--append", try_=())

    assert done.returncode == 5
    assert "are of another model" in done.stderr


@pytest.mark.long
def test_hanging_setting_fails(folder, monkeypatch):
    measured = tuner._Tuner._measured

    def impatient(self, settings, most_ns=None):
        # Only with what hangs: a busy machine may need long for a run that does not.
        hangs = ("bad", "hang") in settings
        monkeypatch.setattr(tuner, "_PATIENCE", 1 if hangs else 20)
        monkeypatch.setattr(tuner, "_LEAST_PATIENCE_NS", (1 if hangs else 60) * 10**9)
        return measured(self, settings, most_ns)

    monkeypatch.setattr(tuner._Tuner, "_measured", impatient)
    monkeypatch.setattr(tuner, "VERIFYING_REPEATS", 1)
    monkeypatch.chdir(folder)
    fixed = dict(words.split("=") for words in [*COMMON[1::2], "copies=2", "idle=a", "slow=no", "rounding=exact"])
    request = tuner.TuneRequest(one("model.bin", "./mine.py", set=fixed), tries={"bad": ["hang"]})

    answer = tuner.tune(request, Silent(), lambda line: None)

    ((settings, said),) = answer.failed
    assert settings == {("bad", "hang")}
    assert "did not end in time" in said


def test_default_settings_fail(tuned):
    done = tuned("--set", "bad=raise", "-o", "runs.jsonl", try_=())
    again = tuned("--set", "bad=raise", "-o", "runs.jsonl", "--append", try_=())

    assert (done.returncode, again.returncode) == (4, 5)
    assert "the default settings fail: in MODEL_LOAD: RuntimeError: this setting is broken" in done.stderr
    assert "the default settings fail in the -o file: in MODEL_LOAD: RuntimeError: this setting is broken; name another" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-latency", "5"], "write +5% or 1.5x"),
        (["--max-latency", "+5%", "--budget", "1GiB"], "two goals"),
        (["--append"], "--append needs -o"),
        (["--try", "nothing=1"], "nothing"),
        (["--budget", "much"], "is not a size"),
    ],
)
def test_tune_usage_errors(tuned, words, said):
    done = tuned(*words, try_=())

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_tune_leaves_no_temporary_files(tuned, imagined, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))

    tuned(*FIXED, "--try", "idle=b", try_=())

    assert os.listdir(scratch) == []


PROGRAM = """import os, sys
memory = bytearray(int(sys.argv[2]) * (4 << 20))
more = bytearray(int(os.environ["COPIES"]) * (6 << 20))
for block in (memory, more):
    for at in range(0, len(block), 4096):
        block[at] = 1
"""


THRESHOLD = {"malloc_mmap_threshold": "64KiB"}


@pytest.mark.long
def test_tune_of_program(memprof, tmp_path, monkeypatch):
    monkeypatch.setattr(tuner, "VERIFYING_REPEATS", 2)
    (tmp_path / "engine.py").write_text(PROGRAM)
    words = ["--try", "env.COPIES=2,1", "--try", "batch=2,8,1", "--set", "malloc_arenas=1", "-o", "runs.jsonl", "--json"]
    engine = ["--", sys.executable, "engine.py", "--batch", "{batch}"]
    tries = ["--try", "malloc_mmap_threshold=64KiB"]

    done = memprof("tune", *words, *tries, "--time", "200s", *engine, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    # malloc's threshold may take some pages less or more.
    assert {"batch": "1", "env.COPIES": "1"}.items() <= answer["best"].items() <= {"batch": "1", "env.COPIES": "1", **THRESHOLD}.items()
    assert answer["given"] == {"env.COPIES": "2", "batch": "2"}
    best = next(proposal for proposal in answer["proposals"] if proposal["settings"] == answer["best"])
    assert answer["default"]["rss_peak_bytes"] - best["rss_peak_bytes"] == pytest.approx(10 * MIB, abs=MIB)
    assert answer["verified"] and answer["timed"] == "RUN" and not answer["outputs_compared"]
    assert best["output_error"] is None
    command = shlex.split(best["command"])
    assert command[:2] == ["memprof", "exec"]
    again = memprof("exec", "-o", "again.jsonl", *command[2:], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (run,) = store.load([tmp_path / "again.jsonl"]).runs
    assert max(mark.rss_peak_bytes for mark in run.marks) == pytest.approx(best["rss_peak_bytes"], abs=MIB)

    more = memprof("tune", *words, *tries, "--append", "--time", "1s", *engine, cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert json.loads(more.stdout)["trials"] >= answer["trials"]


def test_tune_variables_of_runtime(memprof, imagined, folder):
    done = memprof(
        *("tune", "model.bin", "-r", "./mine.py", *COMMON, *FIXED, "--set", "idle=a", "--try", "env.MALLOC_TOP_PAD_=0,33554432"),
        *("--time", "60s", "--json", "-o", "runs.jsonl"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    values = {run.job.env["MALLOC_TOP_PAD_"] for run in store.load([folder / "runs.jsonl"]).runs}
    assert values == {"0", "33554432"}
    answer = json.loads(done.stdout)
    assert answer["given"] == {"env.MALLOC_TOP_PAD_": "0"}
    line = shlex.split(answer["fit_command"])
    assert line[:5] == ["memprof", "fit", "model.bin", "-r", "./mine.py"] and "MALLOC_TOP_PAD_=0" in line
    assert line[-2:] == ["--part", "whole"], "a container limits a whole run"
    assert {f"{name}={value}" for name, value in (answer["offered"] or {}).items() if not name.startswith("env.")} <= set(line)
    refused = memprof(*line[1:], "--by", "cgroup", "--max-latency", "none", cwd=folder)
    assert refused.returncode == 2 and "none" in refused.stderr, "fit takes each word of the command"
