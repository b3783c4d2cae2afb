"""Runs that are kept out of swap on another machine, by control groups there: over a real ssh connection to a server of the tests' own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import need_tool
from support import recorder_runs
from support.fit_results import grouped

from memprof.base import control_groups
from memprof.base.errors import InputError
from memprof.base.processes import boot
from memprof.places import parse, remote_groups
from memprof.places.place import HERE

SCRIPT = remote_groups._SCRIPT.read_text()


@pytest.mark.parametrize("recorder", ["python", "c"])
def test_group_without_swap_for_run(memprof, board, tmp_path, recorder):
    limiter = grouped()
    need_tool("gcc")
    name, kept = ("memory.swappiness", "0") if limiter.version == 1 else ("memory.swap.max", "0")
    if not (limiter.folder / name).exists():
        pytest.skip(f"this kernel's groups have no {name}")
    group = f"{limiter.folder}/$(basename $(grep -m 1 -E ':(memory|):' /proc/self/cgroup))"
    look = f'echo "{group}" > {tmp_path}/group; test "$(cat {group}/{name})" = {kept}'

    done = memprof("exec", *board, "--recorder", recorder, "--no-swap", "-o", "r.jsonl", "--", "sh", "-c", look)

    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["job"]["no_swap"] and run["charged"]["peak_bytes"] > 0
    assert not os.path.exists((tmp_path / "group").read_text().strip())


def test_group_of_killed_recorder_removed(memprof, board, scenario, tmp_path):
    grouped()
    body = f"open({str(tmp_path / 'seen')!r}, 'w').write(open('/proc/self/cgroup').read())\nos.kill(os.getppid(), 9)"
    runtime = recorder_runs.runtime_file(tmp_path, load=body)

    done = memprof("run", scenario(), "-r", runtime, *board, "--python", sys.executable, "--no-swap", "--repeats", "1", "-o", "r.jsonl")

    assert done.returncode == 4, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    name = (tmp_path / "seen").read_text().partition(f"/{control_groups.PREFIX}-")[2].split("\n")[0]
    assert run["outcome"]["status"] == "lost" and name
    assert not (grouped().folder / f"{control_groups.PREFIX}-{name}").exists()


@pytest.mark.parametrize("recorder", ["python", "c"])
def test_group_removed_after_broken_connection(memprof, board, server, tmp_path, recorder):
    grouped()
    need_tool("gcc")
    program = ("sh", "-c", f"echo $(cat /proc/self/cgroup) > {tmp_path}/seen; sleep 600")
    words = ("exec", *board, "--recorder", recorder, "--no-swap", "-o", "r.jsonl", "--")
    with recorder_runs.started(tmp_path, *words, *program) as process:
        recorder_runs.wait_for(lambda: (tmp_path / "seen").exists() and f"/{control_groups.PREFIX}-" in (tmp_path / "seen").read_text())
        server.cut()
        process.wait(120)
    name = (tmp_path / "seen").read_text().partition(f"/{control_groups.PREFIX}-")[2].split()[0]
    assert recorder_runs.runs_in(tmp_path / "r.jsonl")[0]["outcome"]["status"] == "lost"
    recorder_runs.wait_for(lambda: not (grouped().folder / f"{control_groups.PREFIX}-{name}").exists())


def joined(group: Path, pid: int) -> bool:
    """Whether a process is in a group now: another test's memprof may remove the group of one that is gone before."""
    try:
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(str(pid))
    except FileNotFoundError:
        return False
    return True


def test_groups_of_gone_memprofs_removed(server, board, tmp_path):
    folder = grouped().folder
    gone = (folder / f"{control_groups.PREFIX}-{boot()}-{os.getpid()}-1-1", folder / f"{control_groups.PREFIX}-00000000-1-1-1")
    kept = (folder / f"{control_groups.PREFIX}-{HERE.owner()}-99", folder / f"{control_groups.PREFIX}-my-own-group-x")
    for group in (*gone, *kept):
        group.mkdir()
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        recorder_runs.wait_for(lambda: joined(gone[0], sleeper.pid))
        with parse.remote(server.place, str(tmp_path / "there"), sys.executable) as place:
            remote_groups.without_swap(place)

        assert sleeper.wait(timeout=120) == -9
        assert [group.exists() for group in (*gone, *kept)] == [False, False, True, True]
    finally:
        sleeper.kill()
        sleeper.wait()
        for group in (*gone, *kept):
            with suppress(OSError):
                group.rmdir()


def test_group_names_differ_by_connection(server, board, tmp_path):
    """The first shell there owns the groups: that of a connection which broke is gone, and the next memprof would remove its groups."""
    grouped()
    with parse.remote(server.place, str(tmp_path / "there"), sys.executable) as place:
        following = remote_groups.without_swap(place)
        first, second = following()["group"].path, following()["group"].path
        assert first.rpartition("-")[0] == second.rpartition("-")[0] and first != second
        server.cut()
        recorder_runs.wait_for(lambda: place._first.poll() is not None)
        assert following()["group"].path.rpartition("-")[0] != first.rpartition("-")[0]


class There:
    """A machine where the script says this."""

    name, beside = "ssh:tv", False

    def __init__(self, said: str) -> None:
        self._said = said

    def owner(self) -> str:
        return "0-1-2"

    def run(self, words: list[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(words, 0, self._said.encode(), b"")


@pytest.mark.parametrize("why", ["absent", "off", "unmounted", "refused", "swap"])
def test_groups_missing_reasons(why):
    with pytest.raises(InputError) as raised:
        remote_groups.without_swap(There(f"none {why}"))
    begin = "--no-swap needs a control group for the run, and none can be made on ssh:tv: "
    assert str(raised.value) == begin + remote_groups._REASONS[why]


def answer(*words, **more) -> str:
    """What the script says that finds groups, started by these words."""
    shell = ("sh", "-c", SCRIPT, "memprof", HERE.owner(), "")
    return subprocess.run([*words, *shell], capture_output=True, text=True, timeout=120, check=True, **more).stdout.strip()


@pytest.mark.parametrize(("controllers", "why"), [("memory 0 9 1", "unmounted"), ("memory 0 9 0", "off"), ("cpu 0 9 1", "absent")])
def test_groups_missing_reason_from_kernel(tmp_path, controllers, why):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    (tmp_path / "cgroups").write_text("#subsys_name\thierarchy\tnum_cgroups\tenabled\n" + controllers.replace(" ", "\t") + "\n")
    hide = f'mount --bind "{tmp_path}/cgroups" /proc/cgroups && umount -l -a -t cgroup,cgroup2 && exec "$@"'
    assert answer("unshare", "-m", "sh", "-c", hide, "sh") == f"none {why}"


def test_groups_refused_without_systemd():
    if os.geteuid() != 0:
        pytest.skip("root alone can become another user")
    grouped()
    nobody = [shutil.which("setpriv"), "--reuid", "65534", "--clear-groups", "--"]
    assert answer(*nobody) == "none refused"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # for the other user
        recorder_runs.script(Path(folder) / "systemd-run", '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
        assert answer(*nobody, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}) == "scope"
    assert "MemorySwapMax=0" in remote_groups.without_swap(There("scope"))()["wrap"]
