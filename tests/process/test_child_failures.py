"""A measured program that dies, hangs, floods or speaks nonsense: its Run says how it ended, keeps what was measured, and nothing is left."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.recorder_runs import (
    BOTH_RECORDERS,
    HANG,
    MIB,
    PYTHON,
    QUICK,
    measured,
    runs_in,
    runtime_file,
    script,
    unobserved,
    wait_for,
    with_patience,
)

from memprof.base import control_groups
from memprof.recorder import kills, procfs
from memprof.recording.kills import KillCounts

pytestmark = pytest.mark.usefixtures("nothing_left")

LOG_WITHIN_NS = kills._WITHIN_NS
HELD = {"allocate": "weights", "bytes": 32 * MIB}
WRITE = "number = int(os.environ['MEMPROF_MARKS'].split(':')[0])\nwrite = lambda data: os.write(number, data)\n"


def dying(last_bytes, scenario, *steps, phase="load", **words):
    """The Run of a scenario that does these steps in a phase, waits until it has been seen at this size, and dies by `steps`' last."""
    *before, last = steps

    def attempt(limit_ns):
        return measured(scenario(**{phase: [*before, {"sleep_s": limit_ns / 4e9}, last]}), **words)

    return with_patience(attempt, lambda run: (run.outcome.rss_last_bytes or 0) > last_bytes)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"any")
    return path


@pytest.mark.parametrize(
    ("phase", "warmup", "step", "name", "finished"),
    [
        ("MODEL_LOAD", 0, "load", "SIGSEGV", ["STARTUP"]),
        ("WARMUP", 1, "execute", "SIGBUS", ["STARTUP", "MODEL_LOAD", "PREPARE"]),
        ("EXECUTE", 0, "execute", "SIGKILL", ["STARTUP", "MODEL_LOAD", "PREPARE"]),
    ],
)
def test_signal_death_with_phase_and_size(scenario, phase, warmup, step, name, finished):
    run = dying(32 * MIB, scenario, HELD, {"crash": name}, phase=step, warmup=warmup)

    assert (run.outcome.status, run.outcome.phase, run.outcome.signal) == ("signal", phase, name)
    assert run.outcome.rss_last_bytes > 32 * MIB
    assert run.outcome.sentence.startswith(f"ended by {name} in {phase}, its RSS last ")
    assert not run.outcome.out_of_memory
    assert [mark.phase for mark in run.marks] == finished


@BOTH_RECORDERS
def test_last_size_known_without_polling(scenario):
    every_cpu = (1024,)  # threads: where a runtime uses every CPU, its iterations are not disturbed

    run = dying(32 * MIB, scenario, HELD, {"crash": "SIGSEGV"}, phase="execute", threads=every_cpu)

    assert run.job.iterations_interval_ns == 0
    assert run.outcome.rss_last_bytes > 32 * MIB


def test_signal_death_during_import(model, tmp_path):
    run = measured(model, runtime_file(tmp_path, init="os.kill(os.getpid(), signal.SIGILL)"))

    assert (run.outcome.status, run.outcome.phase, run.outcome.signal) == ("signal", "STARTUP", "SIGILL")
    assert run.marks == ()


def test_oom_kill_named(scenario, tmp_path):
    with cgroup_of(64 * MIB) as group:
        python = script(tmp_path / "python", f'#!/bin/sh\necho $$ > {group}/cgroup.procs\nexec {PYTHON} "$@"\n')
        run = measured(scenario(load=[{"allocate": "weights", "bytes": 256 * MIB}]), python=str(python))

    assert (run.outcome.phase, run.outcome.signal) == ("MODEL_LOAD", "SIGKILL")
    assert run.outcome.out_of_memory is (True if the_kernels_log_can_be_read() else None)
    assert "for lack of memory" in run.outcome.sentence


def test_oom_kill_of_other_process_ignored(scenario, tmp_path):
    hog = f"{PYTHON} -c 'bytearray({256 * MIB})'"
    with cgroup_of(64 * MIB) as group:
        python = script(tmp_path / "python", f'#!/bin/sh\n(echo 0 > {group}/cgroup.procs; exec {hog})\nexec {PYTHON} "$@"\n')
        before = oom_kills()
        run = measured(scenario(load=[{"crash": "SIGKILL"}]), python=str(python))
        assert oom_kills() > before

    assert (run.outcome.phase, run.outcome.signal) == ("MODEL_LOAD", "SIGKILL")
    assert run.outcome.out_of_memory is (False if the_kernels_log_can_be_read() else None)
    assert ("perhaps for lack of memory" in run.outcome.sentence) == (run.outcome.out_of_memory is None)


def the_kernels_log_can_be_read():
    """Whether it can be read, and its process ids are those that are seen here."""
    try:
        with open("/dev/kmsg", "rb"):
            return os.stat("/proc/self/ns/pid").st_ino == 0xEFFFFFFC
    except OSError:
        return False


@contextmanager
def cgroup_of(limit):
    """The folder of a memory cgroup (version 1 or 2) with that limit."""
    for root, limiting in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"memprof-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / limiting).exists():
                (group / limiting).write_text(str(limit))
                yield group
                return
        finally:
            wait_for(lambda: control_groups.remove(group) or not group.exists())  # noqa: B023  (called before the next)
    pytest.skip("no memory cgroup can be made here")


class Log:
    """A kernel's log and its count of kills, as a test writes them. As with /dev/kmsg, a read gives one record."""

    def __init__(self, monkeypatch):
        reading, self._writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._kills = self._inside = 0
        monkeypatch.setattr(kills, "_kernel_log", reading.detach)
        monkeypatch.setattr(kills, "_WITHIN_NS", 60 * 10**9)
        monkeypatch.setattr(procfs, "number", lambda path, name: b"%d" % (self._inside if "cgroup" in path else self._kills))

    def kill(self, pid, *, told=True, inside=True):
        self._kills += 1
        self._inside += inside
        if told:
            self.write(f"Memory cgroup out of memory: Killed process {pid} (python) total-vm:36060kB, anon-rss:25624kB, UID:0")

    def write(self, message):
        self._writing.send(f"3,1504,11230560668,-;{message}\n SUBSYSTEM=memory\n".encode())

    def close(self):
        self._writing.close()


@pytest.fixture
def log(monkeypatch):
    with closing(Log(monkeypatch)) as log:
        yield log


class Told:
    """The kills that the recorder tells of, as the fold has them."""

    def __init__(self):
        self._fold = KillCounts()
        self._recorder = kills.KillCounter(self)

    def tell(self, kind, *fields):
        """As the recorder's Writer."""
        numbers = [None if field == b"-" else int(field) for field in fields]
        if kind == b"kills":
            self._fold.count(*numbers)
        else:
            self._fold.name(*numbers)

    def ended(self, pids):
        self._recorder.tell()
        return self._fold.killed(pids)


def oom_kills():
    """How many processes the kernel has killed for lack of memory."""
    return int(procfs.number("/proc/vmstat", b"oom_kill"))


def test_kernel_log_names_killed_process(log):
    since = Told()
    log.write("oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=77,uid=0")
    assert since.ended((77,)) is False, "nothing was killed"
    log.kill(78)
    assert since.ended((77,)) is False


def test_kernel_log_read_by_late_recorder(log):
    since = Told()
    log.kill(78)
    log.kill(77)
    assert since.ended((76, 77)) is True


def test_kernel_log_line_second_after_end(log, monkeypatch):
    """The process that ran out of memory writes the line, and a busy machine may not let that go on for long."""
    clock_ns = 0

    def sleep(seconds):
        nonlocal clock_ns
        before_ns, clock_ns = clock_ns, clock_ns + round(seconds * 1e9)
        if before_ns < 10**9 <= clock_ns:
            log.write("Memory cgroup out of memory: Killed process 77 (python)")

    since = Told()
    log.kill(77, told=False)
    monkeypatch.setattr(kills, "_WITHIN_NS", LOG_WITHIN_NS)
    monkeypatch.setattr(kills, "time", SimpleNamespace(monotonic_ns=lambda: clock_ns, sleep=sleep))
    assert since.ended((77,)) is True


def test_kernel_log_without_kill_undecided(log, monkeypatch):
    monkeypatch.setattr(kills, "_WITHIN_NS", 20_000_000)
    since = Told()
    log.kill(77, told=False)
    assert since.ended((77,)) is None

    monkeypatch.setattr(kills, "_kernel_log", lambda: None)
    unread = Told()
    log.kill(78, told=False, inside=False)
    assert unread.ended((77,)) is False, "it was in another container"
    log.kill(77, told=False)
    assert unread.ended((77,)) is None


def test_exit_code_with_last_output(scenario):
    run = measured(scenario(load=[{"print": "no licence\n", "to": "stderr"}, {"exit": 7}]))

    assert (run.outcome.status, run.outcome.exit_code, run.outcome.phase) == ("exit", 7, "MODEL_LOAD")
    assert run.output_tail.endswith("no licence\n")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("ValueError('ⅷ' * 3000)", "ValueError: ⅷ+.*"),
        (r"ValueError('\ud800 half a pair')", "ValueError: .*half a pair"),
        (r"ValueError('a\nb')", r"ValueError: a\s+b"),
        ("type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "Odd"),
        ("ValueError('node 2 (MUL) failed to prepare.' * 2)", r"ValueError: node 2 \(MUL\) failed to prepare\."),
        ("ValueError('node 2 (MUL) failed. node 2 (MUL) failed.')", r"ValueError: node 2 \(MUL\) failed\."),
        ("ValueError('node 2 (MUL) failed.node 3 (MUL) failed.')", r"ValueError: node 2 \(MUL\) failed\.node 3 \(MUL\) failed\."),
        ("ValueError('7878')", "ValueError: 7878"),
    ],
    ids=["wide", "half", "lines", "unprintable", "doubled", "doubled with a space", "two nodes", "digits"],
)
def test_runtime_error_is_one_sentence(model, tmp_path, error, message):
    run = measured(model, runtime_file(tmp_path, load=f"raise {error}"))

    assert (run.outcome.status, run.outcome.phase) == ("error", "MODEL_LOAD")
    assert re.fullmatch(message, run.outcome.message, re.DOTALL), run.outcome.message
    assert len(run.outcome.sentence) < 350 and "\n" not in run.outcome.sentence


@BOTH_RECORDERS
def test_hang_ends_with_all_children(scenario):
    forking = [{"fork": 2, "for_s": 600}, *HANG["load"]]

    model = scenario(prepare=[HELD, *forking])
    run = with_patience(
        lambda limit_ns: measured(model, timeout_ns=limit_ns),
        lambda run: run.outcome.phase == "PREPARE" and (run.outcome.rss_last_bytes or 0) > 40 * MIB,
    )

    assert (run.outcome.word, run.outcome.phase) == ("timeout", "PREPARE")
    assert re.match(r"did not end in time \(timeout (1|8|64) s\) in PREPARE, its RSS last 4", run.outcome.sentence)
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD"]
    assert run.warnings == ()


@BOTH_RECORDERS
def test_job_never_read_times_out(scenario, tmp_path):
    deaf = wrapper(tmp_path, "sleep 600")
    long = {str(number): (1,) * 100 for number in range(1000)}  # more than a pipe holds

    run = measured(scenario(**QUICK), python=str(deaf), shapes=long, timeout_ns=10**9)

    assert (run.outcome.word, run.outcome.phase) == ("timeout", "STARTUP")


def test_stopped_program_times_out(scenario):
    run = measured(scenario(load=[{"crash": "SIGSTOP"}]), timeout_ns=10**9)  # in whatever phase a busy machine is by then

    assert run.outcome.word == "timeout"


@BOTH_RECORDERS
def test_output_flood_read_and_dropped(scenario):
    flood = [{"print": "\udc80\udcff\0" * 20_000, "times": 1_000, "to": to} for to in ("stdout", "stderr")]
    run = measured(scenario(load=flood, execute=[{"exit": 3}]))

    assert run.output_bytes == 120_000_000
    assert len(run.output_tail) <= 4096
    assert (run.outcome.phase, run.outcome.exit_code) == ("EXECUTE", 3)


def test_marks_descriptor_stolen_by_file(scenario, tmp_path):
    run = measured(scenario(load=[{"steal_marks": "precious"}]))

    assert (tmp_path / "precious").read_bytes() == b""
    assert run.outcome.status == "lost"


def test_half_surrogate_pair_escaped(model, tmp_path):
    mine = runtime_file(tmp_path, init="self.version, self.notes = chr(0xD800), chr(0xDFFF)")

    run = measured(model, mine)

    assert (run.about.runtime_version, run.about.notes) == ("\\ud800", ("\\udfff",))


@BOTH_RECORDERS
@pytest.mark.parametrize("text", ["x" * 40, "{}\\n" * 1000], ids=["no end", "lines"])
def test_endless_marks_time_out(model, tmp_path, text):
    mine = runtime_file(tmp_path, load=WRITE + f"while True: write(b'{text}')")
    run = with_patience(lambda limit_ns: measured(model, mine, timeout_ns=limit_ns // 4), lambda run: run.outcome.phase == "MODEL_LOAD")

    assert (run.outcome.word, run.outcome.phase) == ("timeout", "MODEL_LOAD")


def test_marks_of_unrelated_process_rejected(scenario, tmp_path):
    first = '{"mark": "begin", "pid": 1, "phase": "STARTUP", "t_ns": 0}'
    (tmp_path / "lie.py").write_text(f"import os\n{WRITE}write(b'{first}\\n')\n")
    liar = wrapper(tmp_path, f'{PYTHON} {tmp_path}/lie.py\nexec {PYTHON} "$@"')

    run = with_patience(
        lambda limit_ns: measured(scenario(load=[HELD], prepare=[{"sleep_s": limit_ns / 1e10}]), python=str(liar)),
        lambda run: run.timeline.rss_max_bytes > 32 * MIB,
    )

    assert run.outcome.ok
    assert "1 line(s)" in run.warnings[0]
    assert run.timeline.rss_max_bytes > 32 * MIB


@BOTH_RECORDERS
def test_detached_processes_ended(model, tmp_path):
    begun = 'until [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.05; done'
    lines = f"setsid sleep 600 & {begun}; setsid sleep 600 & {begun}"

    run = measured(model, runtime_file(tmp_path, load=f"subprocess.Popen(['sh', '-c', {lines!r}], start_new_session=True).wait()"))

    assert run.outcome.ok
    assert run.warnings == ("processes that outlived the measured one and were ended: 2 (sleep)",)


def test_children_found_without_kernel_list(monkeypatch):
    def without_lists(path, *rest, **more):
        if path.endswith("/children"):
            raise FileNotFoundError(path)
        return open(path, *rest, **more)

    with subprocess.Popen(["sleep", "600"]) as child:
        monkeypatch.setattr(procfs, "open", without_lists, raising=False)
        children = procfs.children(os.getpid())
        child.kill()

    assert child.pid in children


@BOTH_RECORDERS
def test_endlessly_printing_fork_ended(model, tmp_path):
    run = measured(model, runtime_file(tmp_path, load="subprocess.Popen(['yes'])"))

    assert run.outcome.ok


def wrapper(folder, last):
    """An interpreter that answers `describe` as ours does, and for a job runs these lines of shell."""
    return script(folder / "wrapper", f'#!/bin/sh\n[ "$2" = run ] || exec {PYTHON} "$@"\n{last}\n')


@pytest.fixture
def shell(tmp_path):
    """An interpreter that is a shell script which runs Python as its child."""
    return str(wrapper(tmp_path, f'{PYTHON} "$@"\ncode=$?\nexit $code'))


@BOTH_RECORDERS
def test_wrapper_child_measured(scenario, shell):
    run = with_patience(
        lambda limit_ns: measured(scenario(load=[HELD], prepare=[{"spike": 16 * MIB, "hold_s": limit_ns / 1e10}]), python=shell),
        lambda run: run.timeline.rss_max_bytes > 48 * MIB,
    )

    assert run.outcome.ok
    assert run.mark("PREPARE").rss_peak_bytes > 48 * MIB
    assert run.timeline.rss_max_bytes > 48 * MIB
    assert run.warnings == ()


@pytest.fixture
def before_recorder(tmp_path):
    """An interpreter that runs Python as its child before the recorder reads anything of it."""
    return str(wrapper(tmp_path, "read -r job\n" + unobserved(f'printf "%s\\n" "$job" | {PYTHON} "$@"')))


@BOTH_RECORDERS
def test_marks_of_ended_process(scenario, before_recorder):
    run = measured(scenario(load=[HELD]), python=before_recorder)

    assert run.outcome.ok, (run.outcome, run.warnings)
    assert [mark.phase for mark in run.marks] == ["STARTUP", "MODEL_LOAD", "PREPARE", "EXECUTE"]
    assert run.mark("MODEL_LOAD").rss_peak_bytes > 32 * MIB
    assert run.warnings == ()


def test_wrapper_child_signal_death(scenario, shell):
    run = dying(32 * MIB, scenario, HELD, {"crash": "SIGSEGV"}, python=shell)

    assert (run.outcome.phase, run.outcome.signal, run.outcome.exit_code) == ("MODEL_LOAD", "SIGSEGV", 139)
    assert run.outcome.rss_last_bytes > 32 * MIB


def test_wrapper_child_hang_times_out(scenario, shell):
    model = scenario(load=[HELD, {"fork": 1, "for_s": 600}, *HANG["load"]])
    run = with_patience(lambda limit_ns: measured(model, python=shell, timeout_ns=limit_ns), lambda run: run.outcome.phase == "MODEL_LOAD")

    assert (run.outcome.word, run.outcome.phase) == ("timeout", "MODEL_LOAD")
    assert run.warnings == ()


def test_invalid_scenario_refused(tmp_path):
    (tmp_path / "text.json").write_text("not JSON")

    run = measured(tmp_path / "text.json")

    assert (run.outcome.status, run.outcome.phase) == ("refused", "MODEL_LOAD")
    assert "text.json is not a scenario" in run.outcome.sentence


@pytest.fixture(scope="session")
def onnx_model(tmp_path_factory):
    """A tiny ONNX model: y = Relu(x + w), x of shape [1, 4]."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    tensor = helper.make_tensor("w", TensorProto.FLOAT, [1, 4], [1.0] * 4)
    nodes = [helper.make_node("Add", ["x", "w"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"}
    graph = helper.make_graph(nodes, "tiny", [value["x"]], [value["y"]], [tensor])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    onnx.save(made, str(path))
    return path


@pytest.mark.parametrize(
    ("words", "status", "phase", "said"),
    [
        ({"set": {"order": "memory_efficient"}}, "error", "PREPARE", "training"),
        ({"shapes": {"x": (1, 5)}}, "error", "EXECUTE", "Expected: 4"),
        ({"shapes": {"z": (1, 4)}}, "refused", "EXECUTE", "the model has no input 'z'; it has x"),
        ({"shapes": {"x": (10**9, 10**9)}}, "error", "EXECUTE", "Unable to allocate"),
        ({"set": {"provider": "cuda"}}, "refused", "MODEL_LOAD", "this build of onnxruntime has no CUDAExecutionProvider"),
    ],
    ids=["knob", "shape", "name", "size", "provider"],
)
def test_runtime_refusal_quoted(onnx_model, monkeypatch, words, status, phase, said):
    monkeypatch.setattr("memprof.models.inputs.names", lambda path: ())  # or memprof would refuse a name itself
    run = measured(onnx_model, "onnxruntime", **words)

    assert (run.outcome.status, run.outcome.phase) == (status, phase)
    assert said in run.outcome.message


@pytest.mark.parametrize("damage", ["truncated", "noise"])
def test_damaged_model_error_quoted(onnx_model, tmp_path, damage):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_model.read_bytes()[:-40] if damage == "truncated" else b"\0\xff no model" * 50)

    run = measured(path, "onnxruntime")

    assert (run.outcome.status, run.outcome.phase) == ("error", "MODEL_LOAD")
    assert "model.onnx failed" in run.outcome.message


def test_variant_failure_stops_no_other(memprof, scenario, tmp_path):
    scenario("good.json", **QUICK)
    scenario("bad.json", load=[HELD, {"crash": "SIGSEGV"}])
    mine = runtime_file(tmp_path, prepare="raise ValueError('not today')")

    variants = ["--variant", "plain=synthetic", "--variant", f"own={mine}"]
    done = memprof("run", "bad.json", "good.json", *variants, "--repeats", "1", "--warmup", "0", "-o", "runs.jsonl")

    assert done.returncode == 4
    ended = [(run["job"]["model"]["name"], run["job"]["variant"], run["outcome"]["status"]) for run in runs_in(tmp_path / "runs.jsonl")]
    assert ended == [
        ("bad.json", "plain", "signal"),
        ("bad.json", "own", "error"),
        ("good.json", "plain", "ok"),
        ("good.json", "own", "error"),
    ]
    bad, good = done.stdout.split("good.json, warming up")
    peaks = {name: row(text.split("RSS peak (MiB)")[1], name) for text in (bad, good) for name in ("plain", "own")}
    assert "failed (SIGSEGV)" in row(bad.split("RSS peak (MiB)")[1], "plain")
    assert "failed (error)" in peaks["own"]
    assert "failed" not in peaks["plain"]
    assert "- plain: failed: ended by SIGSEGV in MODEL_LOAD" in bad
    assert "- own: failed: in PREPARE: ValueError: not today" in good
    assert "Traceback" not in done.stderr


def test_unconverted_model_loaded_through_symlink(memprof, scenario, tmp_path):
    mine = runtime_file(tmp_path, top="from runtimes import Knob", load="assert os.path.basename(model) == 'model.json', model")
    knob = "    knobs = (Knob('make', ('it',), None, 'convert', acts='build'),)\n"
    mine.write_text(mine.read_text() + knob + "    @staticmethod\n    def build(model, folder, options): return model\n")
    stored = tmp_path / ".dvc" / "cache" / "files" / "md5" / "ab" / ("0" * 30)
    stored.parent.mkdir(parents=True)
    scenario("model.json").rename(stored)
    (tmp_path / "model.json").symlink_to(stored)

    done = memprof("run", "model.json", "--variant", f"own={mine},make=it", "--repeats", "1", "-o", "runs.jsonl")

    assert done.returncode == 0, done.stdout


def row(table, name):
    return next(line for line in table.splitlines() if line.startswith(f"| {name} "))


def test_conversion_failures_precede_measurements(memprof, scenario, tmp_path):
    build = """
    knobs = (Knob('make', ('good', 'bad', 'crash'), None, 'convert', acts='build'),)
    @staticmethod
    def build(model, folder, options):
        if options.knobs['make'] == 'bad': raise ValueError('not convertible')
        if options.knobs['make'] == 'crash': os.kill(os.getpid(), signal.SIGSEGV)
        os.mkdir(os.path.join(folder, 'deep'))
        open(os.path.join(folder, 'deep', 'made'), 'w').write('made')
        return os.path.join(folder, 'deep', 'made')
"""
    mine = runtime_file(tmp_path, top="from runtimes import Knob", load="assert open(model).read() == 'made'")
    mine.write_text(mine.read_text() + build)
    scenario("model.json")

    made = {"good": "good", "bad": "bad", "crash": "crash", "again": "good"}  # of which the last takes what the first made
    variants = [word for name, make in made.items() for word in ("--variant", f"{name}={mine},make={make}")]
    done = memprof("run", "model.json", *variants, "--repeats", "1", "-o", "runs.jsonl")

    runs = runs_in(tmp_path / "runs.jsonl")
    outcomes = [(run["outcome"]["status"], run["outcome"].get("phase"), run["outcome"].get("signal")) for run in runs]
    assert outcomes == [("ok", None, None), ("error", "BUILD", None), ("signal", "BUILD", "SIGSEGV"), ("ok", None, None)]
    assert [run["job"]["variant"] for run in runs] == list(made)
    assert done.returncode == 4
    said = done.stderr.splitlines()
    first = next(index for index, line in enumerate(said) if line.startswith("[1/4]"))
    assert sum("converting" in line for line in said[:first]) == sum("converting" in line for line in said) == 3
    assert "- bad: failed: in BUILD: ValueError: not convertible" in done.stdout
    assert "- crash: failed: ended by SIGSEGV in BUILD" in done.stdout
    assert not list((Path(os.environ["XDG_CACHE_HOME"]) / "memprof" / "built").glob("*.*"))


@pytest.mark.parametrize(
    ("bodies", "kept"),
    [
        ({"load": "raise ValueError('no such operator')"}, 2),
        ({"load": "raise ValueError(time.monotonic_ns())"}, 3),  # another error each time
        ({"execute": "raise ValueError('no such operator')"}, 2),
        ({"prepare": "mark = __file__ + '.mark'\nos.path.exists(mark) and not os.remove(mark) or open(mark, 'x').fail"}, 3),
        ({"load": "os.kill(os.getpid(), signal.SIGKILL)"}, 3),  # memory may have been scarce
    ],
    ids=["equal", "different", "later", "now-and-then", "killed"],
)
def test_equal_failures_end_repeats(memprof, tmp_path, bodies, kept):
    runtime_file(tmp_path, **bodies)
    (tmp_path / "m.json").write_text("{}")

    done = memprof("run", "m.json", "-r", "./mine.py", "--repeats", "3", "-o", "runs.jsonl")

    assert done.returncode == 4
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == kept
    told = [line for line in done.stderr.splitlines() if "it failed twice in the same way, so its other repeats are left out" in line]
    assert len(told) == (kept < 3)
    if kept == 2:
        assert done.stderr.count("no such operator") == 1
