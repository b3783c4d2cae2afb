"""`memprof grow`: rounds, budgets and what goes wrong, on simulated processes; then real programs and runtimes whose growth is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy
import pytest
from msgspec.structs import replace
from support import sample_runs, suites
from support.leaks import LEAK
from support.native_programs import program
from support.recorder_runs import FLOATS, KEEPER, Silent, wait_for

from memprof.base.errors import MeasurementError
from memprof.campaign import campaign
from memprof.growth.grow import cause, grow
from memprof.growth.grow.grow import GrowRequest
from memprof.records import store, work
from memprof.reports.pictures import growth as pictures
from memprof.verdicts.growth import Verdict

MIB, PAGE = 1 << 20, 4096

ENDLESS = 'memprof_begin("EXECUTE"); for (;;) { hold(8192); usleep(2000); memprof_iteration(); }'


def test_grow_leaking_c_program_by_token(memprof, tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "BUSY_PERCENT", -1)  # any machine is busy, which matters to times alone
    words = ("--budget", "1000", "-o", "runs.jsonl", "--plot", "growth.png", "--report=to send.md", "--json", "--", program(LEAK), "{runs}")
    done = memprof("grow", *words)

    assert done.returncode == 1, done.stderr
    assert "busy" not in done.stdout + done.stderr
    grown = json.loads(done.stdout)
    verdict = grown["verdict"]
    assert (verdict["word"], verdict["unit"]) == ("grows", "token")
    assert 290 < verdict["slope"] < 330
    assert verdict["where"] in ("in use", None)
    assert "per token" in grown["sentence"]
    assert len(verdict["processes"]) == 3 == len(grown["resident"])
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
    runs = store.load([tmp_path / "runs.jsonl"]).runs
    assert len(runs) == 3 and len(pictures.render(runs).axes) == 1
    assert memprof("plot", "growth", "runs.jsonl", "-o", "again.svg").returncode == 0
    report = (tmp_path / "to send.md").read_text()
    assert report.startswith("# ") and "per token" in report.splitlines()[0] and grown["sentence"].partition(":")[2] in report
    assert f"\n```sh\nmemprof grow --budget 1000 -- {program(LEAK)} '{{runs}}'\n```\n" in report
    assert "(to%20send.png)" in report and (tmp_path / "to send.png").read_bytes().startswith(b"\x89PNG")
    assert "nothing to draw" in memprof("plot", "growth", _plain(tmp_path), "-o", "none.svg").stderr


def _plain(folder: Path) -> str:
    (folder / "plain.jsonl").write_bytes(store.encode(sample_runs.run("a")))
    return "plain.jsonl"


# It imports what makes its inputs: --why traces whatever a process allocates after the import of its runtime, an import of numpy for seconds.
USER = """
import mmap

import numpy

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
        if self.size not in self.cache:
            self.cache[self.size] = b"1" * (1 << 20)
        if self.size == 4:
            raise ValueError("no kernel for it")
"""


def test_grow_leaking_runtime_by_reload(memprof, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./user.py", "--cycles", "reload", "--budget", "32", "--why")

    assert done.returncode == 1, done.stderr + done.stdout
    assert "m.json in ./user.py 1: grows. 1.0 MiB per reload" in done.stdout.replace(str(tmp_path), ".")
    assert "between the ends of WARMUP and RELOAD: " in done.stdout
    assert "Mappings that grew: " in done.stdout  # held by mmap, not by the allocator


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("issue.txt", "the report is Markdown, so that its name ends in .md"), ("no/issue.md", "there is no folder no")],
    ids=["ending", "folder"],
)
def test_grow_report_refused_before_measuring(memprof, name, sentence):
    done = memprof("grow", "--report", name, "--", "false", "{runs}")

    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("grow", "--", "false", "{runs}"), ("explain", "--", "false")], ids=["grow", "explain"])
def test_report_and_plot_refuse_one_picture(memprof, words):
    done = memprof(words[0], "--plot", "./issue.png", "--report", "issue.md", *words[1:])

    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "--plot ./issue.png: --report issue.md writes its own picture there; leave out --plot, or name another file" in done.stderr


BOUNDED = """
from runtimes import Knob

class Runtime:
    formats = (".json",)
    version = "1"
    default_threads = 1
    knobs = (Knob("keep", "bytes", "0", "bytes of earlier results that are kept", bounds="bytes"),)
    kept = []

    def load(self, model, options):
        self.most = options.knobs["keep"] >> 16

    def prepare(self): ...

    def execute(self):
        if len(self.kept) < self.most:
            self.kept.append(bytearray(1 << 16))
"""


@pytest.mark.parametrize(
    ("keep", "word", "sentence"),
    [
        ("8MiB", "bounded", "This is where keep bounds a cache: at 8.0 MiB."),
        ("1GiB", "grows", "If it is the cache that keep bounds, it stops at 1.00 GiB, after about 16,"),
    ],
)
def test_grow_names_bound_of_cache(memprof, tmp_path, keep, word, sentence):
    (tmp_path / "user.py").write_text(BOUNDED)
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./user.py", "--set", f"keep={keep}", "--budget", "400", "--json")

    grown = json.loads(done.stdout)
    assert (grown["verdict"]["word"], grown["would_change"]["bound"]["knob"]) == (word, "keep"), done.stderr
    assert sentence in grown["sentence"]
    assert grown["would_change"]["to"] == (["grows"] if word == "bounded" else ["bounded"])


def test_grow_names_refused_shape(memprof, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./user.py", "--shapes", "x=N; N in 1,4", "--budget", "50")

    assert done.returncode == 4
    assert "ValueError: with x=4: no kernel for it" in done.stderr


def test_grow_names_memory_of_shapes(memprof, tmp_path):
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
    assert grown["why"]["first"] == "the begin of the first iteration"
    assert 2.9 * MIB < risen["in use by the program"] < 3.5 * MIB  # a MiB of each shape, the first among them


def test_attach_grow_judges_server_by_time(memprof, tmp_path):
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
def test_attach_grow_judges_server_by_log(memprof, tmp_path, make):
    make(tmp_path / "log")
    server = subprocess.Popen([program(SERVER), tmp_path / "log"])
    try:
        wait_for(lambda: Path(f"/proc/{server.pid}/comm").read_text() == "program\n")
        words = ["attach", "--grow", str(server.pid), "--interval", "5ms", "--json", "--log", "log", "--phase-regex", "request=^served"]
        for duration in ("1s", "4s", "30s"):  # a busy machine needs longer for enough units
            done = memprof(*words, "--phase-regex", "token=^token", "--for", duration, "-o", f"{duration}.jsonl")
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
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) == str(log):
                    told = (process / "fdinfo" / descriptor.name).read_text()
                    return int(told.split()[1]) == log.stat().st_size
    return False


@pytest.mark.parametrize("rotate", [_moved, _cut_off])
def test_attach_grow_follows_rotated_log(tmp_path, rotate):
    log = tmp_path / "log"
    log.write_text("served\n" * 7)  # from before
    words = ["--for", "2min", "--interval", "5ms", "--log", "log", "--phase-regex", "request=^served", "-o", "runs.jsonl"]
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
    assert work.curve_of(run).counts["request"][-1] == 50


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--log", "log"], "--log and --phase-regex go together"),
        (["--phase-regex", "a=b"], "--log and --phase-regex go together"),
        (["--log", "none", "--phase-regex", "a=b"], "none: No such file or directory"),
        (["--log", "log", "--phase-regex", "a=b"], "no two lines that were added to log meanwhile match --phase-regex"),
    ],
)
def test_attach_grow_refuses_log_without_work(memprof, tmp_path, words, sentence):
    (tmp_path / "log").write_text("b\nb\nb\n")  # from before

    done = memprof("attach", "--grow", str(os.getpid()), "--for", "100ms", *words)

    assert done.returncode in (2, 4) and sentence in done.stderr


@pytest.mark.usefixtures("recorder")
def test_grow_reports_progress_until_time_limit(tmp_path):
    request = GrowRequest(suites.program(program(ENDLESS)))
    for seconds in (3, 24, 120):  # a busy machine needs longer for enough units, and for a second report of one process
        kept: list[bytes] = []
        lines: list[bytes] = []
        with suppress(MeasurementError):
            grown = grow.grow(replace(request, soak_ns=seconds * 10**9), Silent(), kept.append, lines.append)  # type: ignore[arg-type]
        known = [store.decode(line.rstrip(b"\n"), "what is known") for line in lines]
        done = [[store.units_done(run) for run in known if run.job.repeat == repeat] for repeat in (1, 2, 3)]
        if len(kept) == 3 and all(done) and any(max(counts) > min(counts) for counts in done):
            break

    assert grown.verdict.word in ("grows", "undecided") and not grown.remarks  # on a busy machine there are few units
    assert len(kept) == 3 and all(done)
    assert {run.outcome.sentence for run in known} == {"it was ended, with memprof, while it ran"}
    assert any(max(counts) > min(counts) for counts in done)
    assert all(counts == sorted(counts) for counts in done)


@pytest.mark.long
def test_grow_killed_keeps_known_work(tmp_path):
    # What is known comes four times a process, of which there are three.
    part = tmp_path / "soak.jsonl.part"
    words = [sys.executable, "-m", "memprof", "grow", "--for", "60s", "-o", str(tmp_path / "soak.jsonl"), "--", program(ENDLESS)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        wait_for(lambda: part.exists() and (work := store.load([part]).runs[0].work) and work[0].rows > 32)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()

    (run,) = store.load([part]).runs
    assert run.work and run.work[0].rows > 32


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


def grew(unit: str, phase: str, verdict: Verdict | None = None) -> grow.GrowthAnswer:
    """An answer of `memprof grow`: processes that grew by 64 KiB with each of 400 units."""
    done = list(range(401))
    work = replace(sample_runs.worked(done, [65536 * step for step in done], phase), units=(unit,))
    verdict = verdict or Verdict("grows", unit, slope=65536.0, tail=400)
    return grow.GrowthAnswer("m", "r", "", "", verdict, (), runs=(replace(sample_runs.run(), work=(work,)),))


@pytest.mark.parametrize(
    ("body", "unit", "phase"),
    [(KEEPS_ON, "iteration", "EXECUTE"), (PRINTS_ON, "request", "RUN")],
    ids=["by its marks", "by what it prints"],
)
def test_grow_why_looks_twice(body, unit, phase, nothing_left):
    regexes = {} if unit == "iteration" else {"request": "^served"}
    request = GrowRequest(suites.program(f"{program(body)} {{runs}}", phase_regexes=regexes))

    answer = cause.explained(request, grew(unit, phase), Silent())

    assert answer.why is not None and answer.why.cause == "in use by the program"
    units = [int(name.removeprefix(f"{unit} ")) for name in (answer.why.first, answer.why.last)]
    assert units[0] >= 1 and units[1] >= 257  # 16 MiB more
    assert f"MiB from {answer.why.first} to {answer.why.last} of one more process: " in answer.remarks[0]
    assert answer.why.grown_bytes > MIB  # it may have done some of the work before it stood still


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict("undecided", "iteration", tail=200, rise_bytes=200 * 65536, reason="it rose late, in few steps"),
        Verdict("bounded", "iteration", warmup=200, rise_bytes=200 * 65536, tail=200),
    ],
    ids=["undecided", "bounded"],
)
def test_grow_why_looks_into_rise_that_ended(verdict, nothing_left):
    request = GrowRequest(suites.program(f"{program(KEEPS_ON)} {{runs}}"))

    answer = cause.explained(request, grew("iteration", "EXECUTE", verdict), Silent())

    assert answer.why is not None and answer.why.cause == "in use by the program"
    assert int(answer.why.last.removeprefix("iteration ")) >= 200
    assert "in use by the program" in answer.remarks[0]


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            Verdict("undecided", "iteration", reason="1 of 3 processes were measured"),
            "--why: it is undecided, because 1 of 3 processes were measured, so there is no rise to look into",
        ),
        (Verdict("steady", "iteration", tail=400), "--why: it is steady, so there is no rise to look into"),
        (
            Verdict("undecided", "iteration", tail=400),
            "--why: it is undecided, and memory rose by 0 B only, so there is no rise to look into",
        ),
    ],
)
def test_grow_why_without_rise(verdict, sentence):
    request = GrowRequest(suites.program(f"{program(KEEPS_ON)} {{runs}}"))

    assert cause.explained(request, grew("iteration", "EXECUTE", verdict), Silent()).remarks == (sentence,)


def test_grow_why_program_ended_too_early(nothing_left):
    request = GrowRequest(suites.program(f"{program(KEEPS)} 3"))

    with pytest.raises(
        MeasurementError, match=r"it ended before it stood still after (1 and )?205 iterations, so nothing is known of its growth"
    ):
        cause.explained(request, grew("iteration", "EXECUTE"), Silent())


@pytest.mark.parametrize(
    ("signature", "key", "words", "code", "sentence"),
    [
        (
            FLOATS,
            "self.array.tobytes()",
            (),
            1,
            "It grows with new inputs only. This is a cache or a leak keyed by content. With the same input: ",
        ),
        (FLOATS, "self.array.tobytes()", ("--same",), 0, "m.json in RUNTIME 1: "),
        (FLOATS, "self.array.tobytes()", ("--fresh",), 1, "m.json in RUNTIME 1, fresh inputs: grows. 8."),
        ('[("x", (1,), "str")]', "self.array[0]", ("--fresh",), 1, "m.json in RUNTIME 1, fresh inputs: grows. 8."),
        (
            '[("x", (1, 3), "int64")]',
            "self.done",
            (),
            1,
            "because fresh ones failed: fresh inputs need an input whose content can vary: ",
        ),
        (
            '[("x", (2, 3), "int64")]',
            "self.done",
            ("--fresh",),
            1,
            "The inputs of this model have only 64 different contents, so that fresh ones repeat.",
        ),
    ],
)
def test_grow_tells_what_inputs_do(memprof, tmp_path, signature, key, words, code, sentence):
    (tmp_path / "user.py").write_text(KEEPER.replace("SIGNATURE", signature).replace("KEY", key))
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./user.py", "--budget", "400", *words)

    assert done.returncode == code, done.stderr + done.stdout
    assert sentence.replace("RUNTIME", "./user.py") in done.stdout.replace(str(tmp_path), ".")


# It prints a line for each of the numbers from its first word up to its second.
FEEDER = """#!{python}
import json
import sys

for number in range(int(sys.argv[1]), int(sys.argv[2])):
    print({line})
"""
JSON_LINE = 'json.dumps({"x": [[float(number)] * 30]})'


@pytest.fixture
def keeper(tmp_path: Path) -> Path:
    """A model whose runtime keeps 8 KiB of each new content, and a program that prints inputs."""
    (tmp_path / "user.py").write_text(KEEPER.replace("SIGNATURE", FLOATS).replace("KEY", "self.array.tobytes()"))
    (tmp_path / "m.json").write_text("{}")
    feeder(tmp_path, JSON_LINE)
    return tmp_path


def feeder(folder: Path, line: str) -> None:
    (folder / "feeder").write_text(FEEDER.format(python=sys.executable, line=line))
    (folder / "feeder").chmod(0o755)


GREW = "It grows with new inputs only. This is a cache or a leak keyed by content."


def test_grow_feeds_stack_of_arrays(memprof, keeper):
    numpy.savez(keeper / "in.npz", x=numpy.arange(400 * 30, dtype="float32").reshape(400, 1, 30))

    done = memprof("grow", "m.json", "-r", "./user.py", "--inputs", "in.npz", "--fresh", "--budget", "1000")

    assert done.returncode == 1, done.stderr + done.stdout
    assert "m.json in ./user.py 1, fresh inputs: grows. " in done.stdout.replace(str(keeper), ".")
    assert "The stream of inputs ended after 400 iterations, so that there can be no longer round." in done.stdout


def test_grow_feeds_folder(memprof, keeper):
    (keeper / "folder").mkdir()
    for number in range(60):
        numpy.savez(keeper / "folder" / f"{number:03}.npz", x=numpy.full((1, 30), number % 20, "float32"))

    done = memprof("grow", "m.json", "-r", "./user.py", "--inputs", "folder", "--fresh", "--budget", "1000")

    assert done.returncode in (0, 3), done.stderr + done.stdout  # reading files moves memory at first
    assert "40 of the 60 inputs of the stream repeat an earlier one." in done.stdout


def test_grow_feeds_program_output(memprof, keeper, nothing_left):
    done = memprof("grow", "m.json", "-r", "./user.py", "--feed", "./feeder 0 1000000", "--budget", "400")

    assert done.returncode == 1, done.stderr + done.stdout
    assert GREW in done.stdout and "stream of inputs ended" not in done.stdout


def test_grow_feeds_named_files(memprof, keeper):
    numpy.savez(keeper / "one.npz", x=numpy.ones((1, 30), "float32"))
    feeder(keeper, repr(str(keeper / "one.npz")))

    done = memprof("grow", "m.json", "-r", "./user.py", "--feed", "./feeder 0 50", "--fresh", "--budget", "40")

    assert "39 of the 40 inputs of the stream repeat an earlier one." in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--feed", "./feeder 0 0"], 4, "the stream of inputs is empty"),
        (["--feed", "./feeder none"], 4, "the feeding program ended with exit code 1"),
        (["--feed", "./none"], 5, "--feed: ./none: no such program"),
        (["--feed", "' '"], 5, "no such program"),
        (["--feed", ""], 2, "--feed names no program"),
        (["--feed", "'"], 2, '--feed "\'": No closing quotation'),
        (["--feed", "./feeder 0 9", "--inputs", "uneven.npz"], 2, "--feed or --inputs: iterations get the inputs of one stream"),
        (["--feed", "./feeder 0 9", "--shapes", "x=1,N; N in 1,2"], 2, "not for --shapes, --cycles or a program"),
        (["--inputs", "empty"], 5, "--inputs empty: this folder has no .npz file"),
        (["--inputs", "uneven.npz"], 4, "the arrays of a stream have as many entries as each other: x has 40, y has 39"),
        (["--inputs", "x.npz", "--shapes", "y=N; N in 1,2"], 4, "the arrays of a stream have shapes of their own"),
        (["--inputs", "x.npz", "--shapes", "x=1,N; N in 1,2"], 2, "--shapes x=1,1: x.npz has x as 40x1x30; leave one of the two out"),
        (["--same", "--fresh"], 2, "--same or --fresh: each asks for one kind of inputs alone"),
        (["--cycles", "reload", "--fresh"], 2, "--fresh: a reload takes the same inputs"),
    ],
)
def test_grow_streams_refused(memprof, keeper, words, code, sentence):
    (keeper / "empty").mkdir()
    (keeper / "user.py").write_text(KEEPER.replace("SIGNATURE", f"{FLOATS[:-1]}, ('y', (1,), 'float32')]").replace("KEY", "0"))
    numpy.savez(keeper / "uneven.npz", x=numpy.zeros((40, 1, 30), "float32"), y=numpy.zeros((39, 1), "float32"))
    numpy.savez(keeper / "x.npz", x=numpy.zeros((40, 1, 30), "float32"))

    done = memprof("grow", "m.json", "-r", "./user.py", "--budget", "100", *words)

    assert done.returncode == code and sentence in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("'[1]'", "[1] cannot be read as .npz"),
        ("'{'", "line 1 of the feeding program is neither a path nor JSON with an array for each input"),
        ("""'{"x": [[1], [2, 3]]}'""", "line 1 of the feeding program is neither a path nor JSON"),
        ("""'{"z": [1]}'""", "line 1 of the feeding program: the model has no input 'z'; it has x"),
    ],
)
def test_grow_refuses_line_of_feeder(memprof, keeper, line, sentence):
    feeder(keeper, line)

    done = memprof("grow", "m.json", "-r", "./user.py", "--budget", "100", "--feed", "./feeder 0 9")

    assert done.returncode == 4 and sentence in done.stderr, done.stderr


def test_grow_refuses_fresh_inputs_of_programs(memprof, tmp_path):
    done = memprof("grow", "--fresh", "--", "true")

    assert done.returncode == 2 and "--fresh: a program makes its own inputs: memprof cannot make fresh inputs for it" in done.stderr


def test_grow_runtime_without_signature_has_one_kind(memprof, tmp_path):
    (tmp_path / "user.py").write_text(KEEPER.replace("def signature", "def _signature").replace("KEY", "self.done"))
    (tmp_path / "m.json").write_text("{}")

    both = memprof("grow", "m.json", "-r", "./user.py", "--budget", "200")
    fresh = memprof("grow", "m.json", "-r", "./user.py", "--budget", "200", "--fresh")

    assert "Fresh inputs were not fed: user.py makes its own inputs." in both.stdout
    assert fresh.returncode == 2 and "--fresh: user.py makes its own inputs: memprof cannot make fresh inputs for it" in fresh.stderr


def test_grow_tells_shapes_from_iterations(memprof, tmp_path):
    (tmp_path / "user.py").write_text(
        KEEPER.replace("SIGNATURE", '[("x", (None,), "float32")]').replace("KEY", "self.done if self.array.size > 1 else 0")
    )
    (tmp_path / "m.json").write_text("{}")

    done = memprof("grow", "m.json", "-r", "./user.py", "--shapes", "x=N; N in 1,2,3", "--budget", "400")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "It grows with new shapes only. With the same input: " in done.stdout
