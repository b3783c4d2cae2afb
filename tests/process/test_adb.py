"""Measuring on a device by adb's own client and server, on a device of the tests' own with Android's shell and tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress

import psutil
import pytest
from conftest import need_tool
from support import adbd, recorder_runs
from support.adb_device import connect, device, plugged, server, tools, words  # noqa: F401  (the fixtures)
from support.recorder_runs import refused
from support.ssh_files import sent_once

from memprof.base.errors import InputError
from memprof.places import adb, parse


@pytest.fixture
def place(device, tmp_path):
    with parse.remote(f"adb:{device.serial}", str(tmp_path / "there"), sys.executable) as place:
        yield place


def sleeps(seconds: int) -> bool:
    """Whether a process on a device of this test sleeps so long. memprof and adb's client have the same words among more."""
    for process in recorder_runs.processes("sleep", str(seconds)):
        with suppress(psutil.Error):
            if process.cmdline() == ["sleep", str(seconds)]:
                return True
    return False


def test_exec_on_only_device(memprof, device, tmp_path):
    need_tool("gcc")
    done = memprof("exec", "--on", "adb:", "--remote-dir", str(tmp_path / "there"), "-o", "r.jsonl", "--", "sh", "-c", "sleep 0.1; exit 0")
    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["outcome"]["status"] == "ok" and run["machine"]["name"] == os.uname().nodename
    assert run["job"]["program"]["path"].endswith("/tools/sh")  # the device's own
    assert not (tmp_path / "there" / "lease").exists()


def test_exec_exit_code_on_device(memprof, words, tmp_path):
    need_tool("gcc")
    done = memprof("exec", *words, "-o", "r.jsonl", "--", "sh", "-c", "exit 7")
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert done.returncode == 4 and run["outcome"]["exit_code"] == 7


def test_command_marks_on_device(memprof, words, scenario, tmp_path):
    need_tool("gcc")
    program = recorder_runs.script(tmp_path / "app", '#!/bin/sh\necho begin warm; read text < "$1"; echo begin work; sleep 0.1\n')
    model = scenario('a model\'s "name".json')
    phases = ("--phase-regex", "warm=begin warm", "--phase-regex", "work=begin work")
    done = memprof("run", model, "--cmd", f"{program} {{model}}", *phases, *words, "--repeats", "2", "-o", "r.jsonl")
    assert done.returncode == 0, done.stderr
    first, second = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert {mark["phase"] for mark in first["marks"]} >= {"warm", "work"}
    assert {mark["phase"] for mark in first["marks"]} == {mark["phase"] for mark in second["marks"]}


def test_python_recorder_on_device(memprof, words, scenario, tmp_path):
    model = scenario(load=[{"allocate": "weights", "bytes": 8 << 20}])
    done = memprof("run", model, "-r", "synthetic", *words, "--python", sys.executable, "--repeats", "1", "--warmup", "0", "-o", "r.jsonl")
    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    (load,) = (mark for mark in run["marks"] if mark["phase"] == "MODEL_LOAD")
    assert load["rss_end_bytes"] - load["rss_begin_bytes"] >= 8 << 20


def test_file_sent_once(place, tmp_path):
    sent_once(place, tmp_path / "big 'one'")


def test_remote_program_words_and_output(place):
    words = ["a b", "c'd", '"', "$HOME", "`x`", "x\ny", "\\n", "*", ";", ""]
    assert place.run(["printf", "%s|", *words]).stdout == "".join(f"{word}|" for word in words).encode()
    done = place.run(["sh", "-c", "head -c 300000 /dev/zero; echo oh >&2; exit 3"])
    assert (done.returncode, len(done.stdout), done.stderr) == (3, 300_000, b"oh\n")
    assert place.run(["sh", "-c", "kill -9 $$"]).returncode == -9


def test_clean_removes_sent_files(memprof, words, tmp_path):
    (tmp_path / "data").write_text("some")
    need_tool("gcc")
    assert memprof("exec", *words, "--", "cat", "/etc/passwd").returncode == 0
    done = memprof("clean", *words)
    assert done.returncode == 0 and " were removed on adb:" in done.stdout
    assert not list((tmp_path / "there").iterdir())


def test_device_in_use_refused(memprof, words, place):
    assert "it is in use by" in refused(memprof("exec", *words, "--", "true"))


def test_adb_push_and_pull(device, tmp_path):
    """As users do with their own programs; memprof does not need it."""

    def adb_says(*words) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["adb", "-s", device.serial, *words], capture_output=True, text=True, timeout=120, check=False)

    path, there = tmp_path / "a 'file'", tmp_path / "the device" / "file"
    path.write_bytes(os.urandom(300_000))
    path.chmod(0o750)
    assert "1 file pushed" in adb_says("push", path, there).stdout
    assert there.read_bytes() == path.read_bytes() and there.stat().st_mode & 0o777 == 0o750
    assert adb_says("pull", there, tmp_path / "back").returncode == 0
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    assert adb_says("pull", tmp_path / "none", tmp_path / "back").returncode == 1


@pytest.mark.usefixtures("nothing_left")
def test_hanging_run_ends_all_processes(memprof, plugged, tools, tmp_path):
    """The shell there starts commands in a process below it, whose number nobody here knows."""
    need_tool("gcc")
    forking = tmp_path / "tools"
    shutil.copytree(tools, forking, symlinks=True)
    (forking / "sh").unlink()
    recorder_runs.script(forking / "sh", f'#!{tools / "sh"}\n{tools / "sh"} "$@"\nexit $?\n')
    device = plugged(adbd.android(forking))
    words = ("--on", f"adb:{device.serial}", "--remote-dir", str(tmp_path / "there"), "--timeout", "1s")
    done = memprof("exec", *words, "-o", "r.jsonl", "--", "sh", "-c", "sleep 7001 & sleep 7001; true")
    assert done.returncode == 4, done.stderr
    assert recorder_runs.runs_in(tmp_path / "r.jsonl")[0]["outcome"]["status"] == "timeout"


@pytest.mark.usefixtures("nothing_left")
def test_device_lost_during_run(memprof, device, words, tmp_path):
    """The run is kept as lost, its processes there end, and the next campaign goes on after it."""
    need_tool("gcc")
    command = ("exec", *words, "--repeats", "2", "-o", "r.jsonl")
    with recorder_runs.started(tmp_path, *command, "--", "sleep", "7002") as process:
        recorder_runs.wait_for(lambda: sleeps(7002))
        device.unplug()
        recorder_runs.wait_for(lambda: not sleeps(7002))
        _, talk = process.communicate(timeout=120)
    assert process.returncode == 5, talk
    assert f"adb:{device.serial}: the device " in talk.splitlines()[-1]  # is offline, or is gone
    (lost,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert lost["outcome"]["status"] == "lost" and lost["outcome"]["message"] == f"the connection to adb:{device.serial} broke"
    device.listen()
    recorder_runs.wait_for(lambda: "connected to" in connect(device) and adb._devices("adb:").get(device.serial) == "device")
    assert memprof(*command[:-2], "-o", "after.jsonl", "--", "true").returncode == 0


@pytest.mark.usefixtures("nothing_left")
def test_device_output_cut_off(device, place):
    """adb's client ends with code 0 when its device goes away."""

    def unplug_when_begun() -> None:
        recorder_runs.wait_for(lambda: sleeps(7003))
        device.unplug()

    thread = threading.Thread(target=unplug_when_begun)
    thread.start()
    with pytest.raises(InputError, match=r"adb:\S+: the connection broke"):
        place.run(["sh", "-c", "echo half; exec sleep 7003"])
    thread.join()


@pytest.mark.usefixtures("nothing_left")
def test_killed_memprof_leaves_no_processes(device, words, tmp_path):
    need_tool("gcc")
    with recorder_runs.started(tmp_path, "exec", *words, "--", "sleep", "7004") as process:
        recorder_runs.wait_for(lambda: sleeps(7004))
        process.kill()
    recorder_runs.wait_for(lambda: not sleeps(7004))


def test_device_none_or_several(memprof, server, plugged, monkeypatch):
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    command = ("exec", "--on", "adb:", "--", "true")
    assert "there is no device: adb devices lists none" in refused(memprof(*command))
    first, second = sorted(plugged().serial for _ in range(2))
    assert f"there are 2 devices, {first} and {second}; write adb:SERIAL" in refused(memprof(*command), 2)


def test_device_unknown_name(memprof, device):
    reason = refused(memprof("exec", "--on", "adb:three", "--", "true"))
    assert reason.endswith(f"there is no such device; there is {device.serial}")
    reason = refused(memprof("exec", "--on", "adb:10.1.2.3:5555", "--", "true"))
    assert reason.endswith(" (by network: adb connect 10.1.2.3:5555)")
    assert "write adb:SERIAL" in refused(memprof("exec", "--on", "adb:-x", "--", "true"), 2)


def test_device_without_trust(memprof, plugged):
    plugged(trusts=False)
    assert "does not trust this computer yet; accept the question on its screen" in refused(memprof("exec", "--on", "adb:", "--", "true"))


def test_device_offline(memprof, device):
    device.unplug()
    recorder_runs.wait_for(lambda: adb._devices("adb:").get(device.serial) in (None, "offline"))
    reason = refused(memprof("exec", "--on", f"adb:{device.serial}", "--", "true"))
    assert "is offline; plug it in again" in reason or "there is no such device" in reason  # adb drops it after a while


def test_device_too_old(memprof, plugged, tmp_path):
    device = plugged(features="cmd")
    reason = refused(memprof("exec", "--on", "adb:", "--remote-dir", str(tmp_path / "there"), "--", "true"))
    assert reason == f"memprof: adb:{device.serial}: the device is older than Android 7: its shell gives no exit codes"


def test_device_shell_and_adb_errors_distinct():
    device = adb.Adb("adb:x", "x")
    assert device.refused("error: device 'x' not found") == "the device is gone; plug it in again"
    assert device.refused("sh: mkdir: not found").endswith("adb says: sh: mkdir: not found")


def test_device_without_user_permission(memprof, tmp_path, monkeypatch):
    """By USB, which this machine may not have: a stand-in for the client says what the real one says then."""
    recorder_runs.script(
        tmp_path / "adb", "#!/bin/sh\nprintf 'List of devices attached\\none\\tno permissions (user in plugdev group; see docs)\\n\\n'\n"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert "the device one may not be used by this user: its udev rule is missing" in refused(memprof("exec", "--on", "adb:", "--", "true"))


def test_adb_missing_or_without_server(memprof, monkeypatch):
    need_tool("adb")
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:no-such-host.invalid:5037")
    reason = refused(memprof("exec", "--on", "adb:", "--", "true"))
    assert "adb has no server and could not start one: failed to check server version" in reason and "no-such-host.invalid" in reason
    monkeypatch.setenv("PATH", "/nowhere")
    assert "adb is not installed here" in refused(memprof("exec", "--on", "adb:", "--", "true"))
