"""`memprof grow`: rounds, budgets and what goes wrong, on simulated processes; then real programs and runtimes whose growth is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pytest
from failing import Silent, wait_for
from native_programs import program

from memprof.errors import MeasurementError, UsageError
from memprof.judge.growth import Verdict
from memprof.programs import commands
from memprof.reports.pictures import growth as pictures
from memprof.reports.tables.growth import words
from memprof.runs import store, work
from memprof.runs.records import Outcome, Run
from memprof.seek import grow, why
from memprof.seek.grow import Budget, GrowRequest, longest, parse_budget, parse_shapes

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
        run = replace(made.run("a"), job=order.job, work=(made.worked(done, rss),))
        run = self.fails(run) if self.fails else run
        keep(store.encode(run))
        yield run


def asked(tmp_path: Path, **fields: Any) -> GrowRequest:
    """A request for a command that is never started."""
    return GrowRequest(None, command=commands.parse("/bin/true {runs}"), **fields)


def answered(request: GrowRequest) -> grow.Grown:
    return grow.grow(request, Silent(), lambda line: None)  # type: ignore[arg-type]


# -- rounds


def test_a_flat_work_is_decided_in_one_round(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 0, monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("steady", [2000])
    assert words(grown.verdict) == "steady. 0 B (95%: at most 3 B) an iteration over 2,000."


def test_growth_is_confirmed_by_a_longer_round(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: unit * 65536, monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("grows", [2000, 8000])
    assert words(grown.verdict).startswith(
        "grows. 64.0 KiB an iteration (95%: 64.0 KiB to 64.0 KiB), from the 1st iteration on; at this rate 1 GiB"
    )


def test_a_long_saw_tooth_is_no_growth_once_its_first_tooth_has_ended(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: unit % 2600 * 4096, monkeypatch)

    grown = answered(asked(tmp_path, budget=Budget(units=8000)))

    assert simulated.rounds == [2000, 8000] and grown.verdict.word != "grows"


def test_a_late_step_makes_the_rounds_longer_until_it_is_a_warm_up(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 20 * MIB * (unit > 1500), monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("bounded", [2000, 8000])
    assert words(grown.verdict).startswith("bounded. 20.0 MiB in the first 1,501 iterations, then 0 B")


def test_a_budget_of_units_that_ends_first_leaves_it_undecided_with_what_it_would_take(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 20 * MIB * (unit > 1500), monkeypatch)

    grown = answered(asked(tmp_path, budget=Budget(units=3000)))

    assert (grown.verdict.word, simulated.rounds) == ("undecided", [2000])
    assert "undecided after 2,000: it rose late, in few steps; 8,000 would decide it" in words(grown.verdict)


def test_iterations_so_slow_that_the_time_ends_first_leave_it_undecided(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: 20 * MIB * (unit > 1500), monkeypatch, seconds=50)

    grown = answered(asked(tmp_path, budget=Budget(time_ns=200 * 10**9)))

    assert (grown.verdict.word, simulated.rounds) == ("undecided", [2000])
    assert grown.verdict.needed == 8000


@pytest.mark.parametrize(
    ("done", "sentence"),
    [
        (9, "undecided after 9: 9 are too few; 128 would decide it."),
        (2000, "undecided after 2,000: it rose late, in few steps; 8,000 would decide it. 20.0 MiB more by then."),
    ],
)
def test_a_program_so_slow_that_the_time_ends_first_is_judged_by_what_it_did(tmp_path, monkeypatch, done, sentence):
    def slow(run: Run) -> Run:
        units = list(range(done + 1))
        work = made.worked(units, [int(60 * MIB + 20 * MIB * (unit > 1500)) for unit in units])
        return replace(run, work=(work,), outcome=Outcome("timeout", "EXECUTE"))

    simulated = Simulated(lambda unit: 0, monkeypatch, fails=slow)
    grown = answered(asked(tmp_path))

    assert (words(grown.verdict), len(grown.verdict.processes)) == (sentence, 3)
    assert simulated.rounds == [2000]
    assert grown.remarks[0] == f"Process 1 was ended after {done:,} units: it had used its share of the budget's time."


def test_a_leak_too_large_for_a_longer_round_is_not_confirmed(tmp_path, monkeypatch):
    simulated = Simulated(lambda unit: unit * (64 << 20), monkeypatch)

    grown = answered(asked(tmp_path))

    assert (grown.verdict.word, simulated.rounds) == ("grows", [2000])


# -- what goes wrong


def ended(run: Run, **how: Any) -> Run:
    return replace(run, outcome=Outcome(phase="EXECUTE", **how))


def test_a_process_that_dies_of_memory_is_judged_by_what_there_is(tmp_path, monkeypatch):
    Simulated(lambda unit: unit * MIB, monkeypatch, fails=lambda run: ended(run, status="signal", signal="SIGKILL", out_of_memory=True))

    grown = answered(asked(tmp_path))

    assert grown.verdict.word == "grows"
    (remark,) = grown.remarks
    assert remark.startswith("Process 1 ended early, after 2000 units: ended by SIGKILL in EXECUTE")
    assert "the kernel killed it for want of memory; this machine has 8.00 GiB" in remark


def test_a_flat_process_that_dies_early_decides_nothing(tmp_path, monkeypatch):
    Simulated(lambda unit: 0, monkeypatch, fails=lambda run: ended(run, status="signal", signal="SIGSEGV"))

    verdict = answered(asked(tmp_path)).verdict

    assert (verdict.word, verdict.reason) == ("undecided", "1 of 3 processes were measured")


def test_a_process_that_dies_at_once_is_a_failed_measurement(tmp_path, monkeypatch):
    Simulated(lambda unit: 0, monkeypatch, fails=lambda run: ended(replace(run, work=()), status="exit", exit_code=3))

    with pytest.raises(MeasurementError, match=r"true: ended with exit code 3 in EXECUTE"):
        answered(asked(tmp_path))


def test_a_program_that_counts_nothing_is_told_how(tmp_path, monkeypatch):
    Simulated(lambda unit: 0, monkeypatch, fails=lambda run: replace(run, work=()))

    with pytest.raises(MeasurementError, match=r"true: it counted no unit. Mark its iterations with memprof_iteration\(\)"):
        answered(asked(tmp_path))
    with pytest.raises(MeasurementError, match=r"no line that it printed matches '\^served', so that no unit was counted"):
        answered(asked(tmp_path, phase_regexes={"request": "^served"}))


def test_swap_that_moves_is_counted_and_said(tmp_path, monkeypatch):
    def swapped(run: Run) -> Run:
        done = list(range(run.job.use.iterations + 1))  # type: ignore[union-attr]
        moved = [unit * PAGE for unit in done]
        return replace(run, work=(made.worked(done, [64 * MIB - size for size in moved], swap=moved),))

    Simulated(lambda unit: 0, monkeypatch, fails=swapped)
    grown = answered(asked(tmp_path))

    assert grown.verdict.word == "steady"
    assert grown.remarks == ("Pages were swapped out or in meanwhile: resident and swapped pages are judged together.",)


def test_an_interruption_shows_the_rounds_before_it(tmp_path, monkeypatch):
    def stops(run: Run) -> Run:
        if run.job.use.iterations > 2000:  # type: ignore[union-attr]
            raise KeyboardInterrupt
        return run

    Simulated(lambda unit: unit * 65536, monkeypatch, fails=stops)
    grown = answered(asked(tmp_path))

    assert grown.interrupted and grown.verdict.word == "grows" and len(grown.runs) == 3


# -- words


def test_shapes_are_all_sizes_of_all_letters():
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
def test_shapes_that_cannot_be_meant_are_refused(text, sentence):
    with pytest.raises(UsageError, match=sentence):
        parse_shapes(text)


def test_a_budget_is_units_or_time():
    assert parse_budget("20000") == Budget(units=20000)
    assert parse_budget("10min") == Budget(time_ns=600 * 10**9)
    with pytest.raises(UsageError, match="32 units are the least"):
        parse_budget("5")
    with pytest.raises(UsageError, match="not a duration"):
        parse_budget("soon")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["-r", "onnxruntime"], "name a model, or a program with --cmd"),
        (["s.json"], "name the runtime that executes it: -r NAME"),
        (["--cmd", "true", "-r", "tflite"], "--cmd and -r: a program, or a runtime"),
        (["s.json", "-r", "synthetic", "--phase", "a=b"], "--phase is for a program"),
        (["--cmd", "true", "--set", "a=b"], "--set is for a runtime"),
        (["--cmd", "true", "--cycles", "reload"], "a program does its own work"),
    ],
)
def test_words_that_do_not_fit_together_are_refused(memprof, tmp_path, given, sentence):
    (tmp_path / "s.json").write_text("{}")

    done = memprof("grow", *given)

    assert done.returncode == 2 and sentence in done.stderr


# -- real processes

ENDLESS = 'memprof_begin("EXECUTE"); for (;;) { hold(8192); usleep(2000); memprof_iteration(); }'
LEAK = """unsigned seed = 1; int units = atoi(words[1]);
    memprof_begin("EXECUTE");
    for (int i = 0; i < units; ++i) {
        seed = seed * 1103515245 + 12345;
        int tokens = (seed >> 16) % 50 + 1;
        memset(malloc(tokens * 300), 1, tokens * 300);
        memprof_iteration_of(tokens, NULL);
    }
    memprof_end();"""


def test_a_c_program_that_leaks_a_token_grows_by_it(memprof, tmp_path):
    done = memprof(
        "grow", "--cmd", f"engine={program(LEAK)} {{runs}}", "--budget", "1000", "-o", "runs.jsonl", "--plot", "growth.png", "--json"
    )

    assert done.returncode == 1, done.stderr
    grown = json.loads(done.stdout)
    verdict = grown["verdict"]
    assert (verdict["word"], verdict["unit"]) == ("grows", "token")
    assert 290 < verdict["slope"] < 330
    assert verdict["where"] in ("in use", None)
    assert "a token" in grown["sentence"]
    assert len(verdict["processes"]) == 3 == len(grown["resident"])
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    runs = store.load([tmp_path / "runs.jsonl"]).runs
    assert len(runs) == 3 and len(pictures.render(runs).axes) == 1
    assert memprof("plot", "growth", "runs.jsonl", "-o", "again.svg").returncode == 0
    assert "nothing to draw" in memprof("plot", "growth", _plain(tmp_path), "-o", "none.svg").stderr


def _plain(folder: Path) -> str:
    (folder / "plain.jsonl").write_bytes(store.encode(made.run("a")))
    return "plain.jsonl"


USER = """
import mmap

class Runtime:
    formats = (".json",)
    version = "1"
    default_threads = 1
    held = []

    def load(self, model, options):
        held = mmap.mmap(-1, 1 << 20)
        for place in range(0, 1 << 20, 4096):
            held[place] = 1
        Runtime.held.append(held)

    def prepare(self): ...

    def signature(self):
        return [("x", (None,), "float32")]

    def set_inputs(self, arrays):
        self.size = len(arrays["x"])

    def execute(self):
        self.cache = getattr(self, "cache", {})
        self.cache.setdefault(self.size, b"1" * (1 << 20))
        if self.size == 4:
            raise ValueError("no kernel for it")
"""


@pytest.mark.long
def test_a_runtime_that_keeps_something_of_each_load_grows_by_reloads(memprof, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./user.py", "--cycles", "reload", "--budget", "50", "--why")

    assert done.returncode == 1, done.stderr + done.stdout
    assert "m.json in ./user.py 1: grows. 1.0 MiB a reload" in done.stdout.replace(str(tmp_path), ".")
    assert "between the ends of WARMUP and RELOAD: " in done.stdout
    assert "Mappings that grew: " in done.stdout  # held by mmap, not by the allocator


def test_a_shape_that_the_model_refuses_is_named(memprof, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./user.py", "--shapes", "x=N; N in 1,4", "--budget", "50")

    assert done.returncode == 4
    assert "ValueError: with x=4: no kernel for it" in done.stderr


def test_what_comes_with_shapes_is_said(memprof, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "m.json").write_text("{}")

    done = memprof(
        "grow", "m.json", "-r", "./user.py", "--shapes", "x=N; N in 1,2,3 (random, seed 1)", "--budget", "400", "--why", "--json"
    )

    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert grown["verdict"]["word"] == "bounded" and grown["shapes"] == 3
    assert any("MiB came with 3 shapes, the last of them new in iteration" in remark for remark in grown["remarks"])
    risen = {part["name"]: part["after"] - part["before"] for part in grown["why"]["parts"]}
    assert 1.9 * MIB < risen["in use by the program"] < 2.5 * MIB  # the first shape came with the warm-up


def test_a_server_that_runs_already_is_judged_by_time(memprof, tmp_path):
    body = "for (int i = 0; i < 30000; ++i) { hold(20000); usleep(10000); }"
    server = subprocess.Popen([program(body)])
    try:
        # The kernel gives it its new name a moment after exec has let its parent go on.
        wait_for(lambda: Path(f"/proc/{server.pid}/comm").read_text() == "program\n")
        for duration in ("1500ms", "15s"):  # on a busy machine it stands still at times
            output = f"{duration}.jsonl"
            done = memprof("attach", "--grow", str(server.pid), "--for", duration, "--interval", "10ms", "-o", output, "--json")
            if done.returncode == 1:
                break
    finally:
        server.kill()
        server.wait()

    assert done.returncode in (1, 3), done.stderr
    answer = json.loads(done.stdout)
    assert answer["unit"] == "second" and answer["sentence"].startswith("program: ")


# It writes two lines of another unit for each that is served, and holds 8 KiB of each.
SERVER = """signal(SIGPIPE, SIG_IGN); FILE *log = fopen(words[1], "a"); setvbuf(log, NULL, _IOLBF, 0);
    for (int i = 0; ; ++i) {
        if (i < 40000) hold(8192);
        fprintf(log, "token\\nserved %d\\ntoken\\n", i); usleep(2000); }"""


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["a file", "a FIFO"])
def test_a_server_that_runs_already_is_judged_by_its_log(memprof, tmp_path, make):
    make(tmp_path / "log")
    server = subprocess.Popen([program(SERVER), tmp_path / "log"])
    try:
        wait_for(lambda: Path(f"/proc/{server.pid}/comm").read_text() == "program\n")
        words = ["attach", "--grow", str(server.pid), "--interval", "5ms", "--json", "--log", "log", "--phase", "request=^served"]
        for duration in ("1s", "4s", "30s"):  # a busy machine needs longer for enough units
            done = memprof(*words, "--phase", "token=^token", "--for", duration, "-o", f"{duration}.jsonl")
            if done.returncode == 1:
                break
    finally:
        server.kill()
        server.wait()

    assert done.returncode == 1, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    units = {answer["unit"], *answer["rivals"]}
    assert units == {"request", "token"}
    assert answer["slope"] == pytest.approx(8192 if answer["unit"] == "request" else 4096, rel=0.2)


def _moved(log: Path) -> None:
    log.rename(log.with_suffix(".1"))
    log.touch()


def _cut_off(log: Path) -> None:
    os.truncate(log, 0)


def _read_to_its_end(log: Path) -> bool:
    """Whether a process holds it open and stands at its end."""
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(descriptor) == str(log):
                told = Path(str(descriptor).replace("/fd/", "/fdinfo/")).read_text()
                return int(told.split()[1]) == log.stat().st_size
    return False


@pytest.mark.parametrize("rotate", [_moved, _cut_off])
def test_a_log_that_is_rotated_is_followed(tmp_path, rotate):
    log = tmp_path / "log"
    log.write_text("served\n" * 7)  # from before
    words = ["--for", "2min", "--interval", "5ms", "--log", "log", "--phase", "request=^served", "-o", "runs.jsonl"]
    server = subprocess.Popen(["sleep", "600"])
    with subprocess.Popen([sys.executable, "-m", "memprof", "attach", "--grow", str(server.pid), *words], cwd=tmp_path) as attached:
        try:
            wait_for(lambda: _read_to_its_end(log))
            for lines in (30, 20):
                with log.open("a") as file:
                    file.write("served\n" * lines)
                wait_for(lambda: _read_to_its_end(log))
                rotate(log)
        finally:
            server.kill()
            server.wait()
        attached.wait(60)

    (run,) = store.load([tmp_path / "runs.jsonl"]).runs
    assert work.unpack(longest(run)).counts["request"][-1] == 50


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--log", "log"], "--log and --phase go together"),
        (["--phase", "a=b"], "--log and --phase go together"),
        (["--log", "none", "--phase", "a=b"], "none: No such file or directory"),
        (["--log", "log", "--phase", "a=b"], "no two lines that were added to log meanwhile match --phase"),
    ],
)
def test_a_log_that_tells_of_no_work_is_said(memprof, tmp_path, words, sentence):
    (tmp_path / "log").write_text("b\nb\nb\n")  # from before

    done = memprof("attach", "--grow", str(os.getpid()), "--for", "100ms", *words)

    assert done.returncode in (2, 4) and sentence in done.stderr


@pytest.mark.usefixtures("recorder")
def test_a_long_run_tells_how_far_it_has_come_and_ends_by_time(tmp_path):
    request = GrowRequest(None, command=commands.parse(program(ENDLESS)))
    for seconds in (3, 24, 120):  # a busy machine needs longer for enough units, and for a second report of one process
        kept: list[bytes] = []
        lines: list[bytes] = []
        with suppress(MeasurementError):
            grown = grow.grow(replace(request, soak_ns=seconds * 10**9), Silent(), kept.append, lines.append)  # type: ignore[arg-type]
        known = [store.decode(line.rstrip(b"\n"), "what is known") for line in lines]
        done = [[grow._done(run) for run in known if run.job.repeat == repeat] for repeat in (1, 2, 3)]
        if len(kept) == 3 and all(done) and any(max(counts) > min(counts) for counts in done):
            break

    assert grown.verdict.word in ("grows", "undecided") and not grown.remarks  # on a busy machine there are few units
    assert len(kept) == 3 and all(done)
    assert {run.outcome.sentence for run in known} == {"it was ended, with memprof, while it ran"}
    assert any(max(counts) > min(counts) for counts in done)
    assert all(counts == sorted(counts) for counts in done)


@pytest.mark.long
def test_memprof_that_is_killed_leaves_what_is_known(tmp_path):
    # What is known comes four times a process, of which there are three.
    part = tmp_path / "soak.jsonl.part"
    words = [sys.executable, "-m", "memprof", "grow", "--cmd", program(ENDLESS), "--for", "60s", "-o", str(tmp_path / "soak.jsonl")]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        wait_for(lambda: part.exists() and (work := store.load([part]).runs[0].work) and work[0].rows > 32)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

    (run,) = store.load([part]).runs
    assert run.work and run.work[0].rows > 32


# -- why a program grew

KEEPS = """
    memprof_begin("EXECUTE");
    for (int i = 0; i < atoi(words[1]); ++i) {
        memset(malloc(65536), 1, 65536); puts("served"); fflush(stdout); usleep(2000); memprof_iteration(); }
    memprof_end();"""
# It learns of the first look by the signal that lets it go on: until then it slows down, and it ends only when it is ended.
KEEPS_ON = """
    sigset_t go_on; sigemptyset(&go_on); sigaddset(&go_on, SIGCONT); sigprocmask(SIG_BLOCK, &go_on, NULL);
    int looked = 0;
    memprof_begin("EXECUTE");
    for (int i = 0; ; ++i) {
        if (!looked) { struct timespec at_once = {0, 0}; looked = sigtimedwait(&go_on, NULL, &at_once) == SIGCONT; }
        if (i < 2000) memset(malloc(65536), 1, 65536);
        puts("served"); fflush(stdout); usleep(looked || i < 100 ? 2000 : 100000); memprof_iteration(); }
    memprof_end();"""
PRINTS_ON = KEEPS_ON.replace('memprof_begin("EXECUTE");', "").replace("memprof_iteration();", "").replace("memprof_end();", "")


def grew(unit: str, phase: str) -> grow.Grown:
    """An answer of `memprof grow`: processes that grew by 64 KiB with each of 400 units."""
    done = list(range(401))
    work = replace(made.worked(done, [65536 * step for step in done], phase), units=(unit,))
    verdict = Verdict("grows", unit, slope=65536.0, tail=400)
    return grow.Grown("m", "r", "", "", verdict, (), runs=(replace(made.run(), work=(work,)),))


@pytest.mark.parametrize(
    ("body", "unit", "phase"),
    [(KEEPS_ON, "iteration", "EXECUTE"), (PRINTS_ON, "request", "RUN")],
    ids=["by its marks", "by what it prints"],
)
def test_a_program_is_stopped_twice_and_looked_at(body, unit, phase, nothing_left):
    regexes = {} if unit == "iteration" else {"request": "^served"}
    request = GrowRequest(None, command=commands.parse(f"{program(body)} {{runs}}"), phase_regexes=regexes)

    answer = why.explained(request, grew(unit, phase), Silent())

    assert answer.why is not None and answer.why.cause == "in use by the program"
    units = [int(name.removeprefix(f"{unit} ")) for name in (answer.why.first, answer.why.last)]
    assert units[0] >= 1 and units[1] >= 257  # 16 MiB more
    assert f"MiB from {answer.why.first} to {answer.why.last}: " in answer.remarks[0]
    assert answer.why.grown_bytes > MIB  # it may have done some of the work before it stood still


def test_a_program_that_ends_before_it_was_looked_at_twice_is_said(nothing_left):
    request = GrowRequest(None, command=commands.parse(f"{program(KEEPS)} 3"))

    with pytest.raises(
        MeasurementError, match=r"it ended before it stood still after (1 and )?205 iterations, so nothing is known of its growth"
    ):
        why.explained(request, grew("iteration", "EXECUTE"), Silent())
