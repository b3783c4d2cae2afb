"""A run's own control group, and `memprof attach --container` and `--cgroup`, on real groups of this machine; attach from beside a container too."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import need_tool
from support.compiler import once_compiled
from support.fit_results import grouped
from support.recorder_runs import wait_for

from memprof.base import control_groups
from memprof.base.errors import InputError
from memprof.base.files import sha256_of
from memprof.base.processes import started
from memprof.base.units import format_bytes
from memprof.places import containers, kernel_log
from memprof.places.cgroups import GROUP_FILES
from memprof.records import store
from memprof.records.types import Charged, Mark, Run

MIB = 1 << 20
PYTHON = os.path.realpath(sys.executable)

# A program that joins a group before it takes memory, says that it has it, and then does as its input says.
_PROGRAM = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
memory = bytearray(b"x") * (int(sys.argv[2]) << 20)
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
"""


class Machine:
    """Groups and programs that a test makes, and that are gone afterwards."""

    def __init__(self) -> None:
        groups = grouped()
        self.files, self._top = GROUP_FILES[groups.version], groups.folder
        self._groups: list[Path] = []
        self._programs: list[subprocess.Popen[str]] = []

    def group(self, name: str, limit: int | None = None, below: Path | None = None) -> Path:
        folder = (below or self._top) / name
        folder.mkdir()
        self._groups.insert(0, folder)
        if limit is not None:
            (folder / self.files.limit).write_text(str(limit))
        return folder

    def start(self, group: Path, mib: int) -> subprocess.Popen[str]:
        words = [PYTHON, "-I", "-S", "-c", _PROGRAM, str(group), str(mib)]
        program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._programs.append(program)
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        return program

    def end(self) -> None:
        for program in self._programs:
            program.kill()
            program.communicate()
        for folder in self._groups:
            control_groups.remove(folder)


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.end()


def new_id() -> str:
    return secrets.token_hex(32)


def say(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdin is not None
    program.stdin.write(f"{line}\n")
    program.stdin.flush()


def looked_at(path: Path) -> tuple[Run, Mark, Charged]:
    (run,) = store.load([path]).runs
    (mark,) = run.marks
    assert run.charged is not None
    return run, mark, run.charged


@pytest.mark.parametrize("recorder", ["python", "c"])
def test_own_group_says_its_kernel_memory(memprof, tmp_path, recorder):
    """The kernel remembers names that no file has in its slab: they are in the run's charge, and in no resident set."""
    if recorder == "c":
        need_tool("cc")
    grouped()
    code = "import os\nfor at in range(100_000): os.path.exists('/no-such-%d-%d' % (os.getpid(), at))"

    done = memprof("exec", "--no-swap", "--recorder", recorder, "-o", "r.jsonl", "--", PYTHON, "-I", "-S", "-c", code)

    (run,) = store.load([tmp_path / "r.jsonl"]).runs
    assert run.charged is not None and 0.9 * 100_000 * 192 <= run.charged.kernel_peak_bytes <= run.charged.peak_bytes
    (sentence,) = [line for line in done.stdout.splitlines() if "is on the charge of its control group" in line]
    assert f"kernel memory up to {format_bytes(run.charged.kernel_peak_bytes)}" in sentence


@pytest.mark.parametrize("recorder", ["python", "c"])
def test_container_has_all_processes(memprof, machine, tmp_path, recorder):
    """None of them is another's child, as those of `docker exec` are none of the container's first process."""
    if recorder == "c":
        need_tool("cc")
    id_ = new_id()
    pod = machine.group(f"memprof-test-pod{id_[:8]}", 200 * MIB)
    group = machine.group(f"docker-{id_}.scope", 400 * MIB, pod)
    first, second = machine.start(group, 40), machine.start(group, 30)

    done = memprof("attach", "--container", id_[:20], "--for", "1s", "--recorder", recorder, "-o", "r.jsonl")

    assert done.returncode == 0, done.stderr
    run, mark, charged = looked_at(tmp_path / "r.jsonl")
    assert {process.pid for process in run.processes} == {first.pid, second.pid}
    assert mark.rss_peak_bytes >= 70 * MIB
    assert 70 * MIB <= mark.charged_anon_peak_bytes <= mark.working_set_peak_bytes < 120 * MIB
    assert mark.charged_kernel_peak_bytes < 20 * MIB
    assert (charged.group, charged.limit_bytes, charged.limit_group) == (str(group), 200 * MIB, str(pod))
    assert charged.peak_bytes >= 70 * MIB and charged.limit_peak_bytes >= 70 * MIB
    assert (charged.oom_kills, charged.kernel_log) == (0, None)
    assert run.job.model.name == id_[:20]
    assert "| variant    | working set | anonymous |" in done.stdout
    assert f"of the limit of 200.0 MiB on {pod}, a group above its own" in done.stdout


def test_figures_reach_table_page_json_and_budget(memprof, machine, tmp_path):
    group = machine.group(f"memprof-test-{new_id()[:12]}")
    machine.start(group, 40)
    assert memprof("attach", "--cgroup", group, "--for", "500ms", "-o", "r.jsonl", "--name", "web").returncode == 0
    run, mark, _ = looked_at(tmp_path / "r.jsonl")
    assert run.job.label == "web"  # wholly, whatever its process is called

    table = memprof("table", "r.jsonl", "--metric", "working_set_peak_bytes")
    assert "Working set of the control group, peak (MiB)" in table.stdout
    (row, *_) = json.loads(memprof("table", "r.jsonl", "--format", "json").stdout)
    assert row["working_set_peak_bytes"] == mark.working_set_peak_bytes
    assert row["charged"]["group"] == str(group) and "limit_bytes" not in row["charged"]
    (tmp_path / "b.toml").write_text('[[budget]]\nmodel = "web"\nphase = "RUN"\nworking_set_peak_bytes = "20 MiB"\n')
    assert memprof("gate", "r.jsonl", "--budgets", "b.toml").returncode == 1
    assert memprof("page", "r.jsonl", "-o", "p.html").returncode == 0
    page = (tmp_path / "p.html").read_text()
    assert "Working set of the control group, peak" in page and "no limit on its control group" in page


def test_container_without_limit_is_said(memprof, machine, tmp_path):
    group = machine.group(f"memprof-test-{new_id()[:12]}")
    machine.start(group, 5)
    done = memprof("attach", "--cgroup", group, "--for", "200ms", "-o", "r.jsonl")
    _, _, charged = looked_at(tmp_path / "r.jsonl")
    if charged.limit_bytes is not None:
        pytest.skip("the tests themselves run under a limit")
    assert "no limit on its control group, nor on those above it: only the machine's" in done.stdout


def test_kill_for_want_of_memory_has_kernel_line(memprof, machine, tmp_path):
    group = machine.group(f"memprof-test-{new_id()[:12]}", 60 * MIB)
    for name in ("memory.swap.max", "memory.swappiness"):
        with suppress(OSError):
            (group / name).write_text("0")
    keeper, victim = machine.start(group, 5), machine.start(group, 10)
    # It grows once the recorder looks.
    say(victim, "import time; time.sleep(0.5); more = bytearray(b'x') * (100 << 20)")

    done = memprof("attach", "--cgroup", group, "--for", "3s", "-o", "r.jsonl")

    assert done.returncode == 0, done.stderr
    assert victim.wait(60) == -9 and keeper.poll() is None
    _, _, charged = looked_at(tmp_path / "r.jsonl")
    assert charged.oom_kills == 1
    assert charged.limit_peak_bytes >= 55 * MIB
    if charged.kernel_log is None:
        assert "killed for lack of memory since it was made: the kernel's log may not be read here" in done.stdout
    else:
        (line,) = charged.kernel_log
        assert f"Killed process {victim.pid} " in line and line in done.stdout


def test_unreadable_kernel_log_is_said(memprof, machine, tmp_path, monkeypatch):
    group = machine.group(f"memprof-test-{new_id()[:12]}", 40 * MIB)
    machine.start(group, 5)
    victim = machine.start(group, 10)
    say(victim, "more = bytearray(b'x') * (100 << 20)")
    assert victim.wait(60) == -9
    monkeypatch.setattr(kernel_log, "_kernel_messages", lambda: None)

    done = memprof("attach", "--cgroup", group, "--for", "200ms", "-o", "r.jsonl")

    assert looked_at(tmp_path / "r.jsonl")[2].kernel_log is None
    assert (
        "1 process of the control group killed for lack of memory since it was made: the kernel's log may not be read here" in done.stdout
    )


def test_container_that_ends_meanwhile(machine, tmp_path):
    id_ = new_id()
    group = machine.group(id_)
    programs = [machine.start(group, 30), machine.start(group, 20)]
    words = ["attach", "--container", id_, "--for", "100s", "-o", "r.jsonl"]
    with subprocess.Popen([sys.executable, "-m", "memprof", *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as attached:
        wait_for(lambda: looked_at_by(attached.pid))
        for program in programs:
            program.kill()
            program.wait()
        control_groups.remove(group)
        out, _ = attached.communicate(timeout=90)
    assert attached.returncode == 0
    run, mark, charged = looked_at(tmp_path / "r.jsonl")
    assert "the control group's last process ended while it was polled" in run.warnings and run.warnings[0] in out
    assert mark.working_set_peak_bytes >= 50 * MIB and charged.group == str(group)
    assert mark.time_ns < 90 * 10**9


def looked_at_by(pid: int) -> bool:
    """Whether a recorder below this memprof reads a group: after half a second of that it has figures."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any((begun := started(int(child))) is not None and _age_s(begun) > 1 for child in children)


def _age_s(begun: int) -> float:
    return float(Path("/proc/uptime").read_text().split()[0]) - begun / os.sysconf("SC_CLK_TCK")


def test_growth_of_container(memprof, machine):
    group = machine.group(f"memprof-test-{new_id()[:12]}")
    machine.start(group, 5)
    program = machine.start(group, 5)
    say(program, "import time; kept = [(bytearray(b'x') * (1 << 18), time.sleep(0.01)) for _ in range(2000)]")
    done = memprof("attach", "--grow", "--cgroup", group, "--for", "5s", "--interval", "10ms", "-o", "r.jsonl", "--json")
    assert done.returncode == 1, done.stderr + done.stdout
    assert json.loads(done.stdout)["word"] == "grows"


# -- what goes wrong


def test_id_of_two_containers(memprof, machine):
    start = new_id()[:16]
    for _ in range(2):
        machine.start(machine.group(f"libpod-{start}{new_id()[16:]}.scope"), 1)
    done = memprof("attach", "--container", start)
    assert done.returncode == 5
    assert f"{start} fits 2 containers: {start[:12]} (no name), {start[:12]} (no name); give one of these IDs" in done.stderr


def test_group_without_processes(memprof, machine):
    group = machine.group(f"memprof-test-{new_id()[:12]}")
    done = memprof("attach", "--cgroup", group)
    assert (done.returncode, done.stderr) == (5, f"memprof: the control group {group} has no processes\n")


def test_group_of_others_may_not_be_read(machine):
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    group = machine.group(f"memprof-test-{new_id()[:12]}")
    machine.start(group, 1)
    group.chmod(0o700)
    sentence = f"the control group {group} may not be read (Permission denied): attach as root"
    assert as_nobody(lambda: containers.of_path(str(group))) == sentence


def as_nobody(call: Callable[[], object]) -> str:
    """The sentence with which a call is refused to a user without rights."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            call()
        except InputError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with open(reading, encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize(
    "words", [(), ("1", "--cgroup", "/x"), ("--container", "x", "--cgroup", "/x"), ("1", "--container", "x")], ids=" ".join
)
def test_one_subject_is_named(memprof, words):
    done = memprof("attach", *words)
    assert done.returncode == 2
    assert done.stderr == "memprof: attach takes one of these: the number of a process, --container NAME, --cgroup PATH\n"


@pytest.mark.parametrize("option", ["--container", "--cgroup"])
def test_containers_of_this_machine_alone(memprof, board, option):
    done = memprof("attach", option, "x", *board)
    assert done.returncode == 2 and f"{option} works on this machine only, not on " in done.stderr


# -- beside a container, as a sidecar is

# A server that leaks a quarter of a MiB a request, and logs each.
_SERVER = """
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    int log = open("/var/log/server.log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (write(1, "ready\\n", 6);; usleep(10000)) {
        char *kept = malloc(1 << 18);
        memset(kept, 1, 1 << 18);
        if (write(log, "served\\n", 7) < 0) return 1;
    }
}
"""
_ROOT = """
mount -t tmpfs none "$1"
mkdir -p "$1/opt" "$1/var/log" "$1/old"
cp "$2" "$1/opt/server"
cd "$1" && pivot_root . old && exec /opt/server
"""


@pytest.fixture
def leaking(tmp_path) -> Iterator[subprocess.Popen[str]]:
    """A server with a root of its own: its program and its log are at no path of this root."""
    program = once_compiled("cc", "server.c", _SERVER, "-static")
    root = tmp_path / "root"
    root.mkdir()
    words = [need_tool("unshare"), "--mount", "sh", "-ec", _ROOT, "sh", str(root), str(program)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"no namespace of mounts here: {process.stderr.read().strip()}")
        yield process
        process.kill()


def test_growth_from_sidecar(memprof, leaking, tmp_path):
    done = memprof("attach", "--grow", str(leaking.pid), "--for", "4s", "--interval", "10ms", "-o", "r.jsonl", "--json")
    assert done.returncode == 1, done.stderr
    (run,) = store.load([tmp_path / "r.jsonl"]).runs
    assert run.job.program is not None
    assert run.job.program.path == "/opt/server" and not os.path.exists("/opt/server")
    assert run.job.program.sha256 == sha256_of(Path(f"/proc/{leaking.pid}/exe"))[0]


def test_log_of_other_root(memprof, leaking):
    words = ("--log", "/var/log/server.log", "--phase-regex", "request=^served")
    assert not os.path.exists("/var/log/server.log")
    done = memprof("attach", "--grow", str(leaking.pid), "--for", "4s", "--interval", "10ms", *words, "--json", "-o", "r.jsonl")
    assert done.returncode == 1, done.stderr
    assert "per request" in json.loads(done.stdout)["sentence"]


def test_group_through_root_of_container(memprof, machine, tmp_path):
    """What a sidecar sees of another container's group: the root of a namespace of groups, through the process's own root."""
    group = machine.group(f"memprof-test-{new_id()[:12]}", 100 * MIB)
    script = """
        echo 0 > "$1/cgroup.procs"
        exec unshare --cgroup --mount sh -ec 'mkdir "$1/root"; mount -t tmpfs none "$1/root"; mkdir "$1/root/groups" "$1/root/old"
            mount --bind "$2" "$1/root/groups"; cp "$3" "$1/root/server"; mkdir -p "$1/root/var/log"
            cd "$1/root" && pivot_root . old && exec /server' sh "$2" "$1" "$3"
    """
    words = ["sh", "-ec", script, "sh", str(group), str(tmp_path), str(once_compiled("cc", "server.c", _SERVER, "-static"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() != "ready\n":
            pytest.skip(f"no namespaces here: {process.stderr.read().strip()}")
        done = memprof("attach", "--cgroup", f"/proc/{process.pid}/root/groups", "--for", "1s", "-o", "r.jsonl", "--name", "server")
        process.kill()
    assert done.returncode == 0, done.stderr
    run, mark, charged = looked_at(tmp_path / "r.jsonl")
    assert charged.limit_bytes == 100 * MIB and charged.limit_group is None
    assert mark.working_set_peak_bytes > MIB and run.job.model.name == "server"
