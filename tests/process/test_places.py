"""Measuring on another machine, by a real ssh connection to a server of the tests' own on loopback: what comes back, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from conftest import need_tool
from msgspec.structs import replace
from support import recorder_runs, sshd
from support.compiler import compiled
from support.recorder_runs import refused
from support.ssh_files import place, sent_once  # noqa: F401  (the fixtures)

from memprof.base.errors import InputError
from memprof.campaign import campaign
from memprof.doctor import known_allocations
from memprof.footprint.tune import tuner
from memprof.models.identity import identify
from memprof.places import channel, connection, parse, sending, ssh
from memprof.places.place import Here, MachineState, weather
from memprof.records import store
from memprof.records.summary import place_of
from memprof.records.types import Job, ModelFile
from memprof.regressions.gate.confirmation import orders_again
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite, parse_cmd

QUICK = {"load": [{"allocate": "weights", "bytes": 8 << 20}]}


def commands() -> list[str]:
    """The command lines of all processes."""
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]


def processes_of(folder: Path) -> list[str]:
    """The command lines of the processes that work in memprof's folder there; clients of ssh name it too."""
    return [line for line in commands() if str(folder) in line and not line.startswith("ssh ") and " -m memprof " not in line]


@pytest.mark.parametrize(
    "name", ["ssh:", "ssh:-oProxyCommand=x", "ssh:a b", "ssh:h:0", "ssh:h:70000", "ssh:-l@h", "ssh:h;x", "ssh:u@", "ssh:[x"]
)
def test_place_name_invalid(memprof, name):
    said = refused(memprof("runtimes", "--on", name), 2)
    assert "write ssh:[USER@]HOST[:PORT]" in said


@pytest.mark.parametrize(
    ("name", "target", "port"),
    [
        ("ssh:tv", "tv", None),
        ("ssh:pi@b.local:22", "pi@b.local", "22"),
        ("ssh:[::1]:2222", "::1", "2222"),
        ("ssh:u@[fe80::1%eth0]", "u@fe80::1%eth0", None),
    ],
)
def test_place_name_user_host_port(tmp_path, name, target, port):
    login = ssh.parse(name, tmp_path)
    assert (login.target, login.port) == (target, port)


def test_place_of_unknown_kind(memprof):
    assert "there is no such kind of place; did you mean ssh?" in refused(memprof("runtimes", "--on", "shh:board"), 2)
    assert "--remote-dir goes with --on" in refused(memprof("runtimes", "--remote-dir", "/tmp"), 2)


def test_run_on_place_measures_model(memprof, scenario, board, tmp_path):
    model = scenario('a model\'s "name"\n.json', **QUICK)
    done = memprof(
        "run", model, "-r", "synthetic", *board, "--python", sys.executable, "--repeats", "2", "--warmup", "0", "-o", "runs.jsonl"
    )
    assert done.returncode == 0, done.stderr
    runs = recorder_runs.runs_in(tmp_path / "runs.jsonl")
    assert [run["outcome"]["status"] for run in runs] == ["ok", "ok"]
    assert runs[0]["job"]["model"]["path"] == str(model)  # as the user named it
    assert runs[0]["machine"]["name"] == os.uname().nodename
    (load,) = (mark for mark in runs[0]["marks"] if mark["phase"] == "MODEL_LOAD")
    assert load["rss_peak_exact"] and load["rss_end_bytes"] - load["rss_begin_bytes"] >= 8 << 20
    sent = [path for path in (tmp_path / "there" / "files").rglob("*") if path.name == model.name]
    assert len(sent) == 1 and sent[0].read_bytes() == model.read_bytes()
    assert not (tmp_path / "there" / "lease").exists()
    recorder_runs.wait_for(lambda: not processes_of(tmp_path / "there"))


def test_file_sent_once(place, tmp_path):
    sent_once(place, tmp_path / "big")


def test_partial_file_transfer_resumed(place, tmp_path):
    path = tmp_path / "big"
    path.write_bytes(os.urandom(1_000_000))
    there = Path(place.file(str(path)))
    place._there.clear()
    there.rename(f"{there}.part")
    os.truncate(f"{there}.part", 900_000)
    before = place.sent
    assert Path(place.file(str(path))).read_bytes() == path.read_bytes()
    assert place.sent - before == 100_000


def test_remote_shell_reused_between_programs(place):
    assert [place.run(["sh", "-c", "exit 3"]).returncode for _ in range(3)] == [3, 3, 3]
    (shell,) = place._idle
    program = place.start(["cat"])
    assert not place._idle  # another program gets another shell
    assert place.run(["echo", "beside"]).stdout == b"beside\n"
    place.end(program)
    assert shell not in place._idle and not shell.lives  # its input had to be closed, or cat would run on


def test_remote_arguments_and_output_unchanged(place):
    words = ["a b", "c'd", '"', "$HOME", "`x`", "x\ny\n", "\\n", "*", "", " ", "$newline", "é"]
    done = place.run([sys.executable, "-c", "import sys; print(ascii(sys.argv[1:])); sys.stderr.write('no line end')", *words])
    assert done.stdout.decode() == ascii(words) + "\n" and done.stderr == b"no line end"
    data = bytes(range(256)) * 5000 + b"memprof-"
    code = "import sys; data = bytes(range(256)) * 5000 + b'memprof-'; sys.stderr.buffer.write(data); sys.stdout.buffer.write(data)"
    done = place.run([sys.executable, "-c", code])
    assert done.stdout == data and done.stderr == data  # more than a pipe holds, on both


def test_remote_program_killed_connection_kept(place):
    program = place.start(["sh", "-c", "kill -9 $$"])
    assert list(place.lines(program)) == []
    program.stderr.read()
    assert program.returncode == -9 and not place.broken(program)
    place.end(program)
    assert place.run(["echo", "on"]).stdout == b"on\n"


def test_remote_program_unread_input_discarded(place):
    program = place.start(["true"])
    program.stdin.write(b"beat\nend\ngo\necho run x\n")
    program.stdin.flush()
    assert list(place.lines(program)) == [] and program.stderr.read() == b""
    place.end(program)
    assert place.run(["echo", "on"]).stdout == b"on\n"


def test_connection_lost_socket_reconnects(place):
    place.link.socket.unlink()
    assert place.run(["echo", "on"]).stdout == b"on\n"


def test_remote_program_timeout_ends_tree(place, monkeypatch):
    sleep, within = (
        f"sleep {10**6 + secrets.randbelow(10**8)}",
        channel.ChannelProgram.communicate,
    )  # of this test alone, on the whole machine

    def outrun(program, timeout_s):
        if timeout_s == 0.5:
            recorder_runs.wait_for(lambda: sleep in commands())
            raise subprocess.TimeoutExpired("", timeout_s)
        return within(program, timeout_s)

    monkeypatch.setattr(channel.ChannelProgram, "communicate", outrun)
    with pytest.raises(subprocess.TimeoutExpired):
        place.run(["sh", "-c", f"{sleep}; true"], timeout_s=0.5)
    recorder_runs.wait_for(lambda: sleep not in commands())
    assert place.run(["echo", "on"]).stdout == b"on\n"


def test_partial_file_of_other_content_replaced(place, tmp_path):
    path = tmp_path / "big"
    path.write_bytes(os.urandom(100_000))
    there = Path(place.file(str(path)))
    place._there.clear()
    there.unlink()
    Path(f"{there}.part").write_bytes(b"x" * 5000)
    assert Path(place.file(str(path))).read_bytes() == path.read_bytes()


def test_model_package_sent_whole(place, tmp_path):
    package = tmp_path / "net one"
    (package / "metadata").mkdir(parents=True)
    (package / "metadata" / "MANIFEST").write_text("{}")
    (package / "net.circle").write_bytes(b"1234")
    (package / "same.circle").symlink_to("net.circle")
    model = identify(package)
    there = Path(place.model(model))
    assert (there / "metadata" / "MANIFEST").read_text() == "{}" and (there / "net.circle").read_bytes() == b"1234"
    assert (there / "same.circle").read_bytes() == b"1234"
    assert sorted(map(Path, place.model_files(model))) == sorted(path for path in there.rglob("*") if path.is_file())


def test_model_package_with_outside_file_refused(place, tmp_path):
    package = tmp_path / "net"
    (package / "metadata").mkdir(parents=True)
    (package / "metadata" / "MANIFEST").write_text("{}")
    (tmp_path / "weights").write_bytes(b"1234")
    model = replace(identify(package), files=(ModelFile(str(tmp_path / "weights"), 4, ""),))
    with pytest.raises(InputError, match=r"its file .*/weights lies outside of .*/net"):
        place.model(model)


def test_exec_on_place_keeps_shell_characters(memprof, board, tmp_path):
    words = ["a b", "c'd", '"', "$HOME", "`x`", "x\ny", "\\n", "*", ";", ""]
    script = f"import sys, json; open({str(tmp_path / 'seen')!r}, 'w').write(json.dumps(sys.argv[1:]))"
    done = memprof("exec", *board, "--", sys.executable, "-c", script, *words)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "seen").read_text()) == words


def test_exec_sends_relative_program_and_model(memprof, board, tmp_path):
    recorder_runs.script(tmp_path / "my app", '#!/bin/sh\ncat "$1" > /dev/null && echo "$0 $1" > "$2"\n')
    (tmp_path / "m.onnx").write_bytes(b"\0no model")
    done = memprof("exec", *board, "-o", "r.jsonl", "--", "./my app", "m.onnx", str(tmp_path / "seen"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "there" / "files") in (tmp_path / "seen").read_text()
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["job"]["model"]["name"] == "m.onnx" and run["job"]["program"]["path"] == str(tmp_path / "my app")


def test_exec_sends_any_relative_file(memprof, board, tmp_path):
    """As `/opt/app/engine m.bin`: the program is the board's, and m.bin has an ending that says nothing."""
    engine = recorder_runs.script(
        tmp_path / "engine", f'#!/bin/sh\ncat "$1" "${{2#*=}}" > {tmp_path}/seen; echo "$@" > {tmp_path}/words; echo more >> "$1"\n'
    )
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "m 1.bin").write_bytes(b"weights ")
    (tmp_path / "here" / "names.txt").write_bytes(b"names")
    command = ("exec", *board, "--", engine, "m 1.bin", "--labels=names.txt", "--out=none.txt", "/etc/passwd")
    for _ in range(2):  # the second time the program has changed what was sent
        assert memprof(*command, cwd=tmp_path / "here").returncode == 0
        assert (tmp_path / "seen").read_bytes() == b"weights names"
    files = str(tmp_path / "there" / "files")
    words = (tmp_path / "words").read_text().strip()
    assert re.fullmatch(rf"{files}/\w+/m 1\.bin --labels={files}/\w+/names\.txt --out=none\.txt /etc/passwd", words)


def test_command_model_placeholder_remote_path(memprof, board, scenario, tmp_path):
    model = scenario("m.json", **QUICK)
    command = f"sh -c 'echo $0 > {tmp_path}/seen' {{model}}"
    assert memprof("run", model, "--cmd", command, *board, "--repeats", "1").returncode == 0
    assert (tmp_path / "seen").read_text().startswith(str(tmp_path / "there" / "files"))


def test_runtimes_of_remote_interpreter(memprof, board):
    done = memprof("runtimes", *board, "--python", sys.executable, "synthetic", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["name"] == "synthetic"


def test_remote_process_identity_as_local(place):
    assert place.running(os.getpid()) == Here().running(os.getpid())


def test_attach_to_remote_process(memprof, board, tmp_path):
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            done = memprof("attach", str(sleeper.pid), "--for", "0.2s", *board, "-o", "r.jsonl")
        finally:
            sleeper.kill()
    assert done.returncode == 0, done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["job"]["argv"] == ["sleep", "600"] and run["job"]["program"]["path"].endswith("sleep") and run["outcome"]["status"] == "ok"
    assert f"there is no process {sleeper.pid} on ssh:" in refused(memprof("attach", str(sleeper.pid), *board))


def test_place_without_python_uses_c_recorder(server, board, tmp_path):
    need_tool("gcc")
    with parse.remote(server.place, str(tmp_path / "there"), "no-such-python") as place:
        assert place.recorder == "c"
        suite = Suite(variants=(parse_cmd("/bin/sh -c 'sleep 0.1'"),), repeats=1, place=place)
        (run,) = campaign.measure(plan(suite).orders, recorder_runs.Silent(), lambda line: None)
    assert run.outcome.ok and run.machine.name == os.uname().nodename and run.mark("RUN").time_ns >= 10**8
    assert [path for path in (tmp_path / "there" / "files").rglob("*") if path.is_file()], "the recorder was sent"


def test_clean_removes_sent_files(memprof, board, tmp_path):
    assert memprof("exec", *board, "--", "true").returncode == 0
    assert list((tmp_path / "there").iterdir())
    done = memprof("clean", *board)
    assert done.returncode == 0 and " were removed on ssh:" in done.stdout
    assert not list((tmp_path / "there").iterdir())


def test_doctor_on_place(memprof, board, monkeypatch):
    monkeypatch.setattr(known_allocations, "_ENOUGH_NS", 0)  # each allocation is measured once
    done = memprof("doctor", *board, "--python", sys.executable, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["machine"]["name"] == os.uname().nodename and report["peak_exact"] and report["transients"]
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert states["recorder"] == "ok" and states["memory"] in ("ok", "limited")


def test_tune_on_place_without_local_knobs(memprof, board, scenario, tmp_path, monkeypatch):
    monkeypatch.setattr(tuner, "VERIFYING_REPEATS", 1)
    model = scenario(**QUICK)
    words = ("--try", "malloc_trim=on", "--try", "malloc_arenas=1", "--try", "malloc_mmap_threshold=64KiB", "--time", "1min")
    done = memprof("tune", model, "-r", "synthetic", *board, "--python", sys.executable, *words, "-o", "r.jsonl")
    assert done.returncode == 0, done.stderr
    runs = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert len(runs) > 1 and all(run["outcome"]["status"] == "ok" for run in runs)
    assert not any("preload" in run["job"]["knobs"] for run in runs)


def test_gate_measures_suite_on_place(memprof, board, scenario, tmp_path):
    scenario("m.json", **QUICK)
    suite = f'models = ["m.json"]\nruntimes = ["synthetic"]\nrepeats = 5\nruns = 1\nwarmup = 0\npython = "{sys.executable}"\n'
    (tmp_path / "suite.toml").write_text(suite)
    (tmp_path / "budgets.toml").write_text('[[budget]]\nmodel = "m.json"\nrss_peak_bytes = "1GiB"\n')
    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", *board, "-o", "r.jsonl")
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(recorder_runs.runs_in(tmp_path / "r.jsonl")) == 5
    assert "--on goes with what is measured" in refused(memprof("gate", "r.jsonl", "--budgets", "budgets.toml", *board), 2)


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        (["--set", "preload=/etc/passwd"], "preload, whose value is a path, works on this machine only, not on ssh:"),
        (["--cmd", "true", "--phase", "load=main"], "--phase, for which gdb follows the program, works on this machine only, not on ssh:"),
    ],
)
def test_local_only_options_refused_on_place(memprof, board, scenario, words, subject):
    model = scenario(**QUICK)
    runtime = [] if "--cmd" in words else ["-r", "synthetic"]
    assert subject in refused(memprof("run", model, *runtime, *board, "--python", sys.executable, *words), 2)


def test_runs_of_other_architecture_not_repeated(memprof, scenario, tmp_path):
    model = scenario(**QUICK)
    assert memprof("run", model, "-r", "synthetic", "--repeats", "1", "-o", "r.jsonl").returncode == 0
    path = tmp_path / "r.jsonl"
    path.write_text(path.read_text().replace(f'"arch":"{os.uname().machine}"', '"arch":"mips"'))
    done = memprof("tune", model, "-r", "synthetic", "-o", "r.jsonl", "--append")
    assert done.returncode == 5 and "(mips): name another -o file" in done.stderr
    runs = store.load([path]).runs
    with pytest.raises(InputError, match=r"\(mips\): this machine cannot measure it again"):
        orders_again(runs, place_of(runs[0].job))


def test_weather_of_hottest_and_fastest():
    assert weather("41000\n-5000\n0\n52500\n", "1800000\n2400000\n") == MachineState(52.5, 2_400_000_000)
    assert weather("", "") == MachineState(None, None)


def test_max_temperature_waits_for_cooling(memprof, scenario, tmp_path, monkeypatch):
    degrees = iter([60.0, 50.0, 44.0, 47.0])
    monkeypatch.setattr(Here, "weather", lambda self: MachineState(next(degrees), 1_500_000_000))
    monkeypatch.setattr(campaign, "_COOLING_STEP_S", 0.01)
    done = memprof("run", scenario(**QUICK), "-r", "synthetic", "--repeats", "1", "--max-temperature", "45C", "-o", "r.jsonl")
    assert done.returncode == 0 and "here has 60 °C: waiting until it has 45 °C" in done.stderr
    (run,) = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert run["conditions"] == {
        "temperature_begin_celsius": 44.0,
        "temperature_end_celsius": 47.0,
        "frequency_begin_hz": 1_500_000_000,
        "frequency_end_hz": 1_500_000_000,
    }
    rows = json.loads(memprof("table", "r.jsonl", "--format", "json").stdout)
    assert {row["temperature_end_celsius"] for row in rows} == {47.0}


def test_max_temperature_without_sensor(memprof, scenario, monkeypatch):
    monkeypatch.setattr(Here, "weather", lambda self: MachineState(None, None))
    done = memprof("run", scenario(**QUICK), "-r", "synthetic", "--repeats", "2", "--max-temperature", "45")
    assert done.returncode == 0
    assert done.stderr.count("here has no sensor of temperature that its kernel tells of: --max-temperature has no effect") == 1


def test_max_temperature_never_reached(memprof, scenario, monkeypatch):
    monkeypatch.setattr(Here, "weather", lambda self: MachineState(60.0, None))
    monkeypatch.setattr(campaign, "_COOLING_S", 0)
    done = memprof("run", scenario(**QUICK), "-r", "synthetic", "--max-temperature", "45")
    assert done.returncode == 5 and "did not cool down to 45 °C" in done.stderr


def test_host_nonexistent(memprof, board):
    assert "there is no host of that name" in refused(memprof("runtimes", "--on", "ssh:no-such-host.invalid"))


def test_port_without_server(memprof, board):
    assert "no ssh server answers" in refused(memprof("runtimes", "--on", "ssh:127.0.0.1:1"))


def test_login_key_refused(memprof, board, server):
    sshd.configure(server.folder, "other")
    try:
        said = refused(memprof("runtimes", *board))
    finally:
        sshd.configure(server.folder)
    assert "refuses the log-in" in said and "ssh-copy-id" in said


@pytest.mark.parametrize(("known", "words"), [(None, "is not known yet"), ("other", "has changed since it was last seen")])
def test_host_key_unknown_or_changed(memprof, board, server, known, words):
    sshd.know(server.folder, server.port, known)
    try:
        assert words in refused(memprof("runtimes", *board))
    finally:
        sshd.know(server.folder, server.port, "host")


def test_login_without_shell(memprof, tmp_path, monkeypatch):
    with sshd.reached(tmp_path / "server", monkeypatch, "ForceCommand echo This account is not available.; exit 1") as without_shell:
        said = refused(memprof("runtimes", "--on", without_shell.place))
    assert said.endswith("the log-in gives no shell; it says: This account is not available.")


def test_remote_interpreter_missing(memprof, board, scenario):
    model = scenario(**QUICK)
    said = refused(memprof("run", model, "-r", "synthetic", *board, "--python", "/opt/no/python"))
    assert said.startswith("memprof: python /opt/no/python: there is no such interpreter on ssh:")


@pytest.mark.parametrize(
    ("answer", "words"), [("echo 3 6", "is Python 3.6; 3.8 is the oldest"), ("echo broken >&2; exit 1", "does not start: broken")]
)
def test_remote_interpreter_old_or_broken(memprof, board, tmp_path, answer, words):
    python = recorder_runs.script(tmp_path / "python3.x", f"#!/bin/sh\n{answer}\n")
    assert words in refused(memprof("runtimes", *board, "--python", python))


def test_remote_runtime_not_installed(memprof, board, scenario, tmp_path):
    venv.create(tmp_path / "other", symlinks=True)
    python = tmp_path / "other" / "bin" / "python"
    done = memprof("run", scenario("m.onnx", **QUICK), "-r", "onnxruntime", *board, "--python", python)
    assert f"is not installed for {python} on ssh:" in refused(done)


def test_program_of_other_architecture_not_sent(memprof, board, tmp_path):
    if any("magic 7f454c46" in path.read_text() for path in Path("/proc/sys/fs/binfmt_misc").glob("*") if path.name != "register"):
        pytest.skip("a translator starts such programs here")
    program = tmp_path / "app"
    head = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (40 if os.uname().machine != "armv7l" else 62).to_bytes(2, "little")
    )
    program.write_bytes(head + bytes(100))
    program.chmod(0o755)
    done = memprof("exec", *board, "--", "./app", cwd=tmp_path)
    name = "ARM (32-bit)" if os.uname().machine != "armv7l" else "x86-64"
    assert f"app is a program for {name}; ssh:" in refused(done) and done.stderr.endswith(f" is {os.uname().machine}, so it was not sent\n")
    assert not list(Path(board[-1]).glob("files/*/app*"))


def test_remote_program_missing_library(memprof, board, tmp_path):
    compiled(tmp_path, 'extern "C" int missing() { return 0; }', "-shared", "-fPIC", name="libmissing.so")
    words = ("-L", str(tmp_path), "-l:libmissing.so")
    compiled(tmp_path, 'extern "C" int missing(); int main() { return missing(); }', *words, name="app")
    (tmp_path / "libmissing.so").unlink()
    done = memprof("exec", *board, "--", "./app", cwd=tmp_path)
    assert done.returncode == 4 and "error while loading shared libraries: libmissing.so" in done.stderr


def test_remote_program_missing(memprof, board, tmp_path):
    assert "/opt/none does not exist on ssh:" in refused(memprof("exec", *board, "--", "/opt/none"))
    assert "./none does not exist, neither here nor on ssh:" in refused(memprof("exec", *board, "--", "./none"))
    assert "there is no command no-such-command on ssh:" in refused(memprof("exec", *board, "--", "no-such-command"))
    script = recorder_runs.script(tmp_path / "here", "#!/bin/sh\n")
    script.chmod(0o644)
    assert "is not executable on ssh:" in refused(memprof("exec", *board, "--", script))


def test_remote_folder_not_writable(memprof, server, board):
    said = refused(memprof("runtimes", "--on", server.place, "--remote-dir", "/proc/memprof"))
    assert "the folder /proc/memprof there cannot be written" in said and "--remote-dir names another" in said


@contextmanager
def small(tmp_path: Path, monkeypatch, options: str) -> Iterator[list[str]]:
    """The words of a command that measures where memprof's folder is a file system of this kind."""
    (tmp_path / "disk").mkdir()
    with sshd.reached(tmp_path / "server", monkeypatch, mount=f"-t tmpfs -o {options} tmpfs {tmp_path / 'disk'}") as narrow:
        yield ["--on", narrow.place, "--remote-dir", str(tmp_path / "disk" / "memprof")]


def test_remote_disk_without_room(memprof, tmp_path, monkeypatch):
    (tmp_path / "big.onnx").write_bytes(bytes(3 << 20))
    with small(tmp_path, monkeypatch, "size=2m") as words:
        said = refused(memprof("exec", *words, "--", "cat", "big.onnx"))
    assert re.search(r"no room for big\.onnx in .*: 3\.0 MiB are to be sent and .* are free, so .* are missing", said)


def test_remote_disk_full_during_transfer(memprof, tmp_path, monkeypatch):
    (tmp_path / "big.onnx").write_bytes(bytes(3 << 20))
    monkeypatch.setattr(sending, "_check_room", lambda *_: None)  # another program's file took the room meanwhile
    with small(tmp_path, monkeypatch, "size=2m") as words:
        said = refused(memprof("exec", *words, "--", "cat", "big.onnx"))
    assert "could not be sent" in said and said.endswith("No space left on device")


def test_remote_folder_read_only(memprof, tmp_path, monkeypatch):
    with small(tmp_path, monkeypatch, "ro") as words:
        said = refused(memprof("exec", *words, "--", "true"))
    assert "cannot be written: Read-only file system; --remote-dir names another" in said


def test_remote_folder_mounted_noexec(memprof, tmp_path, monkeypatch):
    recorder_runs.script(tmp_path / "app", "#!/bin/sh\n")
    with small(tmp_path, monkeypatch, "noexec") as words:
        said = refused(memprof("exec", *words, "--", "./app"))
        assert "which is mounted noexec; --remote-dir names another folder" in said
        assert memprof("exec", *words, "--", "true").returncode == 0  # a program of the machine's own does not mind


def test_model_changed_during_transfer(memprof, board, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"a" * 1000)
    check = sending._check_room

    def change(*words):
        path.write_bytes(b"b" * 1000)
        check(*words)

    monkeypatch.setattr(sending, "_check_room", change)
    said = refused(memprof("exec", *board, "--", "cat", "m.onnx"))
    assert said.startswith(f"memprof: {path} changed while it was sent to ssh:")
    assert not list((tmp_path / "there" / "files").rglob("m.onnx*"))


def test_lease_held_by_other_campaign(memprof, board, place):
    said = refused(memprof("exec", *board, "--", "true"))
    assert re.search(r"it is in use by \S+@\S+ \(memprof \d+\) since \d\d:\d\d; there is one campaign at a time", said)


def test_lease_of_dead_holder_taken(memprof, board, server, tmp_path):
    (tmp_path / "there").mkdir()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    for text in ("", f"{os.getpid()} another-boot token who\n", f"{os.getpid()} {boot} token who\n"):
        (tmp_path / "there" / "lease").write_text(text)
        assert memprof("exec", *board, "--", "true").returncode == 0
        assert not (tmp_path / "there" / "lease").exists()


def test_lease_of_reused_pid_taken(memprof, server, place, tmp_path):
    """Pid reuse: the other measures from a folder of its own, and would be ended as a holder that is silent."""
    _, pid, started = place.owner().split("-")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    other = tmp_path / "other"
    other.mkdir()

    def taken(begun: str) -> bool:
        (other / "lease").write_text(f"{pid} {boot} token who\n")
        (other / f"lease.{pid}").write_text(f"{int(time.clock_gettime(time.CLOCK_BOOTTIME))} {begun}\n")
        return memprof("exec", "--on", server.place, "--remote-dir", other, "--", "true").returncode == 0

    assert not taken(started) and taken("1")
    assert place.run(["echo", "on"]).stdout == b"on\n" and place._first.poll() is None


def test_lease_of_silent_holder_expires(memprof, board, server, tmp_path, monkeypatch):
    """As that of a host without power, whose connection nobody ends."""
    there = tmp_path / "there"
    monkeypatch.setattr(connection, "_LEASE_S", 3600)
    monkeypatch.setattr(connection, "_BEAT_S", 0.01)
    with parse.remote(server.place, str(there), sys.executable):
        (heard,) = there.glob("lease.*")
        heard.write_text("0\n")
        recorder_runs.wait_for(lambda: heard.read_text() not in ("", "0\n"))  # its holder says that it is there
    recorder_runs.wait_for(lambda: not list(there.glob("lease*")))

    monkeypatch.setattr(connection, "_BEAT_S", 3600)
    with parse.remote(server.place, str(there), sys.executable) as silent:
        assert "it is in use by" in refused(memprof("exec", *board, "--", "true"))
        assert len(list(there.glob("lease*"))) == 2  # one that was refused leaves nothing
        monkeypatch.setattr(connection, "_LEASE_S", 0)
        done = memprof("exec", *board, "--", "true")
        recorder_runs.wait_for(lambda: silent._first.poll() is not None)  # its shell there was ended
    assert done.returncode == 0, done.stderr
    recorder_runs.wait_for(lambda: not list(there.glob("lease*")))


def _is_child(command: list[str] | None, folder: Path) -> bool:
    words = command or [""]
    return str(folder) in " ".join(words) and words[-1] == "run" and any("sources" in word for word in words)


def test_connection_cut_run_lost(memprof, board, server, scenario, tmp_path):
    there, go = tmp_path / "there", tmp_path / "go"
    runtime = recorder_runs.runtime_file(tmp_path, execute=f"while not os.path.exists({str(go)!r}): time.sleep(0.01)")
    words = ["run", scenario(), "-r", runtime, *board, "--python", sys.executable, "--warmup", "0", "--runs", "1", "--repeats", "2"]
    with recorder_runs.started(tmp_path, *words, "-o", "r.jsonl") as process:
        (child,) = recorder_runs.wait_for(
            lambda: [each for each in psutil.process_iter(["cmdline"]) if _is_child(each.info["cmdline"], there)]
        )
        server.cut()
        recorder_runs.wait_for(lambda: recorder_runs.has_ended(child))  # the next run may have begun by then
        go.touch()
        process.wait(120)
    lost, after = recorder_runs.runs_in(tmp_path / "r.jsonl")
    assert lost["outcome"]["status"] == "lost" and lost["outcome"]["message"].endswith("broke")
    assert lost["machine"]["name"] == os.uname().nodename
    assert after["outcome"]["status"] == "ok"  # the connection was made again
    recorder_runs.wait_for(lambda: not processes_of(there))


@pytest.mark.long
def test_connection_silent_ends_process_tree(server, place, tmp_path):
    """The server's side is stopped: nothing closes the recorder's input, and nothing comes there any more."""
    mark, sleep = tmp_path / "there" / "sleeper", f"sleep {10**6 + secrets.randbelow(10**8)}"  # of this test alone, on the whole machine
    recorder_runs.script(mark, f"#!/bin/sh\nexec {sleep}\n")
    thread = threading.Thread(target=_measured, args=(place, str(mark)))
    thread.start()
    stopped: list[psutil.Process] = []
    try:
        recorder_runs.wait_for(lambda: sleep in commands())
        since = time.monotonic()
        for session in server.sessions():
            with suppress(psutil.Error):  # a session of an earlier test may end just now
                for process in (session, *session.children()):
                    with suppress(psutil.Error):
                        if process.name().startswith("sshd"):
                            process.suspend()
                            stopped.append(process)
        recorder_runs.wait_for(lambda: sleep not in commands())
        assert time.monotonic() - since > 5  # it was silence that ended it
    finally:
        for process in stopped:
            with suppress(psutil.Error):
                process.kill()
        thread.join(120)


def test_connection_kept_during_long_look(place):
    place.beat_ns = 10**8  # so the recorder there ends its child after 0.8 s of silence
    looked = []

    def look(job: Job, phase: str, pid: int) -> None:
        looked.append(phase)
        time.sleep(3)

    (order,) = plan(Suite(variants=(parse_cmd("sleep 1"),), repeats=1, place=place)).orders
    order = replace(order, job=replace(order.job, hold=True), hold_at={"": 1})
    (run,) = campaign.measure([order], recorder_runs.Silent(), lambda line: None, look)

    assert looked == ["RUN/peak"] and run.outcome.ok


def _measured(place, program: str) -> None:
    suite = Suite(variants=(parse_cmd(program),), repeats=1, place=place)
    list(campaign.measure(plan(suite).orders, recorder_runs.Silent(), lambda line: None))
