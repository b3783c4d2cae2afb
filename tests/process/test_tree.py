"""Trees of processes: their sum with shared pages counted once, each one named, what was too short to be seen, and what must be ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

import psutil
import pytest
from conftest import need_tool
from support.native_programs import folded, peak_mib, program, ran_in_time
from support.recorder_runs import BOTH_RECORDERS, MIB, NEAR_MIB, sentence, wait_for, with_patience

from memprof.places import recorder_start
from memprof.places.machine import this_machine
from memprof.programs.source_zips import recorder_zip
from memprof.recording.order import lines
from memprof.records import store
from memprof.records.recorder_order import CommandStart, Message, Start
from memprof.records.types import COMMAND, Job, Model
from memprof.reports.tables import table

pytestmark = pytest.mark.usefixtures("nothing_left")


def forks(count: int, child: str, before: str = "", after: str = "") -> str:
    """A program that forks so often; each child does this and ends, and then the parent waits for all."""
    body = f"{before} for (int i = 0; i < {count}; ++i) if (fork() == 0) {{ {child}; _exit(0); }} {after} while (wait(NULL) > 0);"
    return program(body)


def processes_of(count):
    """Whether a Run has seen so many processes."""
    return lambda run: len(run.processes) == count


def names_of(run):
    return sorted(process.name for process in run.processes)


def short_lived(run):
    """How many processes a Run says it has not seen."""
    return sum(int(said.split()[-1]) for said in run.warnings if "between two readings" in said)


@BOTH_RECORDERS
def test_tree_shared_pages_count_once():
    run = ran_in_time(
        lambda run: len(run.processes) == 7 and any(said.endswith("counted once") for said in run.warnings),
        forks(6, "usleep(atoi(words[1]))", before="hold(100 * MIB);"),
        "{us}",
    )

    assert run.outcome.ok
    assert 100 * MIB <= run.timeline.rss_max_bytes < 112 * MIB  # their resident sets together are 700 MiB
    assert len(run.processes) == 7
    assert all(process.rss_peak_bytes >= 90 * MIB for process in run.processes)
    shares = [process.pss_peak_bytes for process in run.processes if process.pss_peak_bytes is not None]
    assert shares and min(shares) < 60 * MIB
    (said,) = run.warnings
    assert re.fullmatch(r"up to 7 processes at once \(\w+\); peaks and the timeline are of their sum, pages they share counted once", said)


def test_processes_are_named_and_shown(tmp_path):
    shutil.copy(shutil.which("sleep") or "", tmp_path / "worker")
    worker = f"'{tmp_path}/worker' {{s}}"

    def told(run):
        root, *workers = sorted(run.processes, key=lambda process: process.name) or [None]
        return names_of(run) == ["sh", "worker", "worker"] and all(
            process.parent == root.pid and f"{tmp_path}/worker " in process.command for process in workers
        )

    run = ran_in_time(told, "sh", "-c", f"{worker} & {worker}; wait")

    assert told(run), run.processes
    text = table.render([run])
    assert "Processes, the largest figures of each" in text
    assert all(f"{process.name} ({process.pid})" in text for process in run.processes)


def test_processes_of_one_name_share_row():
    text = table.render([ran_in_time(processes_of(21), forks(20, "usleep(atoi(words[1]))"), "{us}")])
    assert "| program x21 " in text


def test_program_under_shell_is_exact():
    inner = program('memprof_begin("A"); drop(hold(40 * MIB), 40 * MIB); memprof_end(); usleep(atoi(words[1]));')
    run = ran_in_time(processes_of(2), "sh", "-c", f"{quote(inner)} {{us}}; exit $?")

    assert all(mark.rss_peak_exact for mark in run.marks)
    assert abs(peak_mib(run, "A") - 40) <= NEAR_MIB
    assert len(run.processes) == 2


@BOTH_RECORDERS
def test_children_short_lived_are_counted():
    after = "for (int i = 0; i < atoi(words[1]) / 10000; ++i) { if (fork() == 0) _exit(0); wait(NULL); usleep(10000); }"
    run = ran_in_time(lambda run: short_lived(run) >= 5, forks(1, "", after=after), "{us}", interval_ns=25_000_000)

    assert run.outcome.ok
    # At least one in each of the polls that saw its parent's faults rise.
    assert 5 <= short_lived(run) <= 1 + int(run.job.argv[-1]) // 10_000


@BOTH_RECORDERS
def test_daemon_intermediate_process_counts_once():
    # It ends at once and nobody waits for it, so it is seen as a zombie of its parent, and as one that has fallen to the recorder.
    body = """int us = atoi(words[1]);
        if (fork() == 0) { if (fork() == 0) { if (fork() == 0) { usleep(us); _exit(0); } _exit(0); } usleep(us / 5); _exit(0); }
        usleep(us + us / 3);"""
    run = ran_in_time(lambda run: len(run.processes) + short_lived(run) >= 4, program(body), "{us}")

    assert len(run.processes) + short_lived(run) == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program setuid and then be another user")
def test_setuid_program_does_not_block():
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no interpreter here that another user may run")
    with _open_folder() as folder:
        mine = folder / "setuid"
        shutil.copy(program("if (setuid(0)) return 9; sleep(600);"), mine)
        mine.chmod(0o4755)
        recorder = Path(shutil.copy(recorder_zip(), folder / "recorder.zip"))
        recorder.chmod(0o644)

        def attempt(limit_ns):
            with subprocess.Popen(
                [python, "-I", "-S", "-c", recorder_start._START, str(recorder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                user=65534,
                group=65534,
                extra_groups=[],
            ) as process:
                assert process.stdin is not None and process.stdout is not None
                job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
                message = Message(job, Start((str(mine),), command=CommandStart()), limit_ns // 2, {"": 10**6})
                process.stdin.write(lines(message, this_machine()))
                process.stdin.flush()
                recording = process.stdout.read()  # comes to its end though the program still runs
            left = [process for process in psutil.process_iter(["exe"]) if process.info["exe"] == str(mine)]
            for running in left:
                running.kill()
            return folded(message, recording), left

        run, left = with_patience(attempt, lambda result: result[1])  # it takes the program a moment to become the other user's

    assert len(left) == 1, "it could be ended after all"
    assert run.outcome.status == "timeout"
    # Its descriptors may not be read either, if there was time to try that.
    assert run.warnings[-1] == "processes of another user that could not be ended and may still run: 1 (setuid)"
    assert set(run.warnings[:-1]) <= {"memory of devices is in no figure: the descriptors of a process may not be read"}


@contextmanager
def _open_folder():
    """A folder that any user may read, on a file system that heeds setuid."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def high_water(pid: int) -> int:
    """VmHWM of a process, in bytes."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def attached(memprof, pid, *words):
    return memprof("attach", str(pid), "-o", "r.jsonl", *words)


def test_attach_looks_without_touching(memprof, tmp_path):
    body = 'drop(hold(64 * MIB), 64 * MIB); hold(16 * MIB); printf("ready\\n"); fflush(stdout); sleep(60);'
    with subprocess.Popen([program(body)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"

        done = attached(memprof, process.pid, "--for", "400ms")

        assert done.returncode == 0, done.stderr
        assert process.poll() is None
        assert high_water(process.pid) >= 64 * MIB  # never reset
        process.kill()
    (run,) = store.load([tmp_path / "r.jsonl"]).runs
    (mark,) = run.marks
    assert (mark.phase, mark.rss_peak_exact) == ("RUN", False)
    assert 16 * MIB <= mark.rss_peak_bytes < 24 * MIB  # what it had before is not of this window
    assert mark.time_ns >= 400_000_000
    assert run.job.model.name == "program"


def looked_at(pid, processes):
    """The one of these that has a file of the process open, or None: the recorder, which then polls it."""
    for process in processes:
        with suppress(OSError):
            files = Path(f"/proc/{process.pid}/fd")
            if any(os.readlink(file).startswith(f"/proc/{pid}/") for file in files.iterdir()):
                return process
    return None


def test_attach_interrupted_keeps_results(tmp_path):
    with subprocess.Popen(["sleep", "600"]) as process:
        command = [sys.executable, "-m", "memprof", "attach", str(process.pid), "--for", "500s", "-o", "r.jsonl"]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as memprof:
            own = psutil.Process(memprof.pid)
            wait_for(
                lambda: looked_at(process.pid, own.children()) and own.status() == psutil.STATUS_SLEEPING
            )  # it waits for the recorder's answer
            memprof.send_signal(signal.SIGINT)
            out, err = memprof.communicate(timeout=120)
        assert process.poll() is None
        process.kill()

    assert memprof.returncode == 0, err
    assert "RSS peak" in out
    assert (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize(
    ("pid", "said"), [("0", "there is no process 0"), ("2", "process 2"), ("999999999", "there is no process 999999999")]
)
def test_attach_refusals(memprof, pid, said):
    if pid == "2" and (not os.path.exists("/proc/2") or psutil.Process(2).memory_info().rss):
        pytest.skip("process 2 is not the kernel's here")
    done = memprof("attach", pid)
    assert done.returncode == 5
    assert said in sentence(done)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a /proc of its own")
@pytest.mark.parametrize("hidepid", [0, 1, 2])
def test_attach_and_exec_under_hidepid(tmp_path, hidepid):
    """Another user's process is attached to by a user without rights; a run of that user's own programs has all figures."""
    words = [need_tool("unshare"), "-m", "sh", "-c", f'mount -t proc -o hidepid={hidepid} proc /proc && exec "$@"', "sh"]
    words += [need_tool("setpriv"), "--regid=65534", "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all"]
    words += [sys.executable, "-m", "memprof"]

    def memprof(*more):
        return subprocess.run([*words, *more], capture_output=True, text=True, check=False, cwd=tmp_path)

    with subprocess.Popen(["sleep", "60"], user=65534) as other:
        attached = memprof("attach", str(other.pid), "--for", "200ms", "-o", "other.jsonl")
        other.kill()
    own = memprof("exec", "-o", "own.jsonl", "--", "sleep", "0.1")

    assert own.returncode == 0, own.stderr
    (run,) = store.load([tmp_path / "own.jsonl"]).runs
    assert run.marks[0].device_peak_bytes == 0 and run.marks[0].rss_peak_bytes
    if hidepid:
        assert attached.returncode == 5
        assert sentence(attached).endswith(f"there is no process {other.pid}, or hidepid of /proc hides it from this user")
    else:
        assert attached.returncode == 0, attached.stderr
        (run,) = store.load([tmp_path / "other.jsonl"]).runs
        assert run.marks[0].device_peak_bytes is None
        assert "memory of devices is in no figure: the descriptors of a process may not be read" in run.warnings
