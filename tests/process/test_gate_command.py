"""The gate of one command with real processes: both trees of a ref, what a command leaves behind, and what it cannot do."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv

import pytest
from support.checkout import Checkout, add_quick_pip, package_checkout, quick_venv
from support.recorder_runs import wait_for

from memprof.records import store
from memprof.versions import shared_code

HOLD = "import sys; held = bytearray({} << 20)\n"


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose app.py holds 4 MiB at main and 12 MiB now."""
    made = Checkout(tmp_path / "app")
    made.commit(app_dot_py=HOLD.format(4))
    made.write(app_dot_py=HOLD.format(12))
    return made


def test_gate_against_ref_measures_both_trees(memprof, checkout):
    done = memprof(
        *("gate", "--against", "main", "--repeats", "1", "-o", "head.jsonl", "--", sys.executable, "app.py"), cwd=checkout.folder
    )

    assert done.returncode == 3, done.stderr  # one repeat never decides
    assert "nothing is built there" in done.stderr
    (base,), (head,) = (store.load([checkout.folder / name]).runs for name in ("head.base.jsonl", "head.jsonl"))
    assert head.height_bytes - base.height_bytes == pytest.approx(8 << 20, abs=1 << 20)
    assert base.job.model.name == head.job.model.name == "app.py"
    assert checkout.is_clean()


def test_gate_against_ref_killed_leaves_nothing(memprof, checkout, nothing_left):
    waiting = subprocess.Popen(
        [sys.executable, "-m", "memprof", "gate", "--against", "main", "--", "sleep", "4999"],
        cwd=checkout.folder,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: not checkout.is_clean())
    waiting.send_signal(signal.SIGKILL)
    waiting.wait()
    assert not checkout.is_clean()

    memprof("gate", "--against", "main", "--repeats", "1", "--", "true", cwd=checkout.folder)

    assert checkout.is_clean()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--against", "nowhere", "--", "true"), 2, "--against nowhere: git knows no such commit"),
        (
            ("--against", "main", "--", "./built"),
            2,
            "what is built in this checkout is not there, and --build COMMAND builds it on both sides",
        ),
        (("--budget", "900", "--", "true"), 2, "--budget '900' has no unit: write 900MiB"),
        (("--budget", "9MiB", "--", "no-such-program"), 5, "there is no command no-such-program"),
        (("--budget", "9MiB", "--report-only", "--", "no-such-program"), 0, "without --report-only the exit code would be 5"),
        (("--baseline", "missing/memprof.json", "--", "true"), 5, "missing"),
        (
            ("--budget", "9MiB", "m.onnx", "-r", "mnn", "--set", "optimization=off", "--threads", "2"),
            2,
            """'models = ["m.onnx"]' 'runtimes = ["mnn"]' 'set = { optimization = "off" }' 'threads = [2]' > suite.toml) && memprof gate --run """
            "suite.toml --budget 9MiB",
        ),
        (("m.tflite",), 2, "m.tflite is a model, and a gate takes a model in the file of a suite: (set -C; printf '%s\\n' 'models = "),
        (("-r", "mnn"), 2, "-r mnn, and a gate takes a model in the file of a suite: (set -C; printf"),
        (("--build", "make", "head.jsonl"), 2, "--build goes with -- PROGRAM WORD...; a suite's file has [build]"),
        (("--build", " ", "--", "true"), 2, "--build is empty: write a line of shell, such as --build 'make -s app'"),
        (("--budget", "9MiB", "--", "4711"), 2, "memprof attach 4711"),
        (("--budget", "9MiB", "--runs", "3", "--", "true"), 2, "true: write {runs} where the number goes, or give no --runs"),
        (("--budget", "9MiB", "--env", "A=1", "head.jsonl"), 2, "--env goes with -- PROGRAM WORD...; a suite's file has its own settings"),
    ],
)
def test_gate_command_refusal_is_sentence(memprof, checkout, words, code, says):
    (checkout.folder / "built").touch(0o755)

    done = memprof("gate", *words, cwd=checkout.folder)

    assert (done.returncode, done.stdout, says in done.stderr) == (code, "", True), done.stderr


def test_gate_against_ref_that_cannot_run_is_undecided(memprof, checkout):
    (checkout.folder / "run.sh").write_text("exec ./app\n")
    checkout.commit()
    app = checkout.folder / "app"  # as a build's result it is in no tree
    app.write_text("#!/bin/sh\nsleep 0.1\n")
    app.chmod(0o755)

    done = memprof("gate", "--against", "HEAD", "--budget", "900MiB", "--", "sh", "run.sh", cwd=checkout.folder)

    assert done.returncode == 3, done.stderr
    assert "nothing to compare with: each run of base failed (ended with exit code 127" in done.stdout
    remark = "- base cannot start run.sh, or a program that it starts (ended with exit code 127"
    assert remark in done.stdout and "and --build COMMAND builds it on both sides" in done.stdout


@pytest.fixture
def built(tmp_path):
    """A checkout whose program is made by a build, which notes that it ran; it holds 4 MiB at main and 12 MiB now."""
    made = Checkout(tmp_path / "app")
    made.commit(
        app_dot_py=HOLD.format(4), make_dot_sh=f"echo built >>../builds; (echo '#!{sys.executable}'; cat app.py) >app; chmod +x app\n"
    )
    (made.folder / ".gitignore").write_text("app\n")
    made.commit()
    made.write(app_dot_py=HOLD.format(12))
    return made


def test_gate_builds_once_in_each_tree(memprof, built, tmp_path):
    words = ("--repeats", "1", "-o", "head.jsonl", "--build", "sh make.sh && pwd >>../builds", "--", "./app")
    done = memprof("gate", "--against", "main", *words, cwd=built.folder)

    assert done.returncode == 3, done.stderr  # one repeat never decides
    (base,), (head,) = (store.load([built.folder / name]).runs for name in ("head.base.jsonl", "head.jsonl"))
    assert head.height_bytes - base.height_bytes == pytest.approx(8 << 20, abs=1 << 20)
    # base's tree is gone, and with it what stood beside it
    assert (tmp_path / "builds").read_text().splitlines() == ["built", str(built.folder)]
    assert [line.partition(": ")[2] for line in done.stderr.splitlines() if "sh make.sh" in line] == [words[-3]] * 2
    assert built.is_clean()


def test_gate_builds_here_for_other_judges(memprof, built, tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)  # where a baseline that is not there is no verdict
    words = ("--repeats", "1", "--build", "sh make.sh")
    for number, judge in enumerate([("--budget", "1GiB"), ("--baseline", "memprof.json"), ()]):
        done = memprof("gate", *judge, *words, "-o", f"{number}.jsonl", "--", "./app", cwd=built.folder)
        assert done.returncode == 0, done.stderr
        (run,) = store.load([built.folder / f"{number}.jsonl"]).runs
        assert [process.name for process in run.processes] == []  # nothing of the build is measured

    assert (tmp_path / "builds").read_text() == "built\n" * 3
    assert "--build 'sh make.sh' --repeats 1 -- ./app" in done.stdout  # the command that it proposes


@pytest.mark.parametrize("judge", [("--budget", "1GiB"), ("--against", "main")])
def test_gate_build_that_fails_is_sentence(memprof, built, judge):
    done = memprof("gate", *judge, "--build", "echo no rule to make app; false; echo on", "--", "./app", cwd=built.folder)

    assert (done.returncode, done.stdout) == (5, "")
    says = (
        "this folder cannot be built: `echo no rule to make app; false; echo on` ended with exit code 1: no rule to make app (all of it in "
    )
    assert says in done.stderr.splitlines()[-1]
    assert built.is_clean()


def test_gate_mends_main_that_does_not_build(memprof, built, tmp_path):
    """Its budget is judged, and the comparison is not."""
    words = ("--repeats", "1", "--build", "[ -e mended ] || { echo 'app.c:6:72: error: no ;' && false; }; sh make.sh", "--", "./app")
    built.write(mended="")
    within = memprof("gate", "--against", "main", "--budget", "1GiB", *words, cwd=built.folder)
    above = memprof("gate", "--against", "main", "--budget", "1MiB", *words, cwd=built.folder)

    assert (within.returncode, above.returncode) == (3, 1), within.stderr
    assert "base cannot measure it: base (main, " in within.stdout and "cannot be built: " in within.stdout
    assert "ended with exit code 1: app.c:6:72: error: no ; (all of it in " in within.stdout
    assert built.is_clean()


def test_gate_of_program_that_fails_is_not_worse(memprof, built):
    built.write(app_dot_py="raise SystemExit(3)")
    done = memprof("gate", "--against", "main", "--repeats", "1", "--build", "sh make.sh", "--", "./app", cwd=built.folder)

    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "### memprof gate: failed")


def test_gate_build_that_makes_nothing_in_base(memprof, built):
    words = ("--repeats", "1", "--build", "[ -e app.txt ] || exit 0; sh make.sh", "--")
    built.write(app_dot_txt="")
    missing = memprof("gate", "--against", "main", *words, "./app", cwd=built.folder)
    inside = memprof("gate", "--against", "main", *words, "sh", "-c", "./app", cwd=built.folder)

    assert (missing.returncode, "`[ -e app.txt ] || exit 0; sh make.sh` does not make it there" in missing.stderr) == (2, True)
    assert "base cannot start app, or a program that it starts" in inside.stdout and "does not make it there" in inside.stdout


@pytest.mark.parametrize("path", ["../{folder}-model.bin", "data/model.bin"])
def test_gate_names_file_that_base_lacks(memprof, built, path):
    """A file that the program opens by its own code: beside the checkout, or ignored by git in it."""
    name = path.format(folder=built.folder.name)
    file = built.folder / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    (built.folder / ".gitignore").write_text("app\ndata\n")
    built.commit(read_dot_py=f"open({name!r})\n")
    words = ("--against", "main", "--repeats", "1", "--", sys.executable, "read.py")
    done = memprof("gate", *words, cwd=built.folder)

    assert done.returncode == 3, done.stdout
    assert f"- base's tree lacks {name}, which git does not track." in done.stdout
    assert f"give the program its full path, {os.path.normpath(file)}, as a word or a variable" in done.stdout
    other = memprof("gate", *words[:-1], "-c", f"open({name!r}); raise SystemExit(1)", cwd=built.folder)
    assert "base's tree lacks" not in other.stdout + other.stderr, "head fails too"


def test_gate_of_command_that_ends_at_once(memprof, monkeypatch):
    done = memprof("gate", "--budget", "9MiB", "--repeats", "1", "--", "sh", "-c", ":")

    assert done.returncode == 0 or (done.returncode == 4 and "there is no peak to judge" in done.stderr), done.stderr


def test_gate_command_has_settings_of_a_program(memprof, tmp_path):
    (tmp_path / "build").mkdir()
    done = memprof("gate", "--env", "CODE=0", "--cwd", "build", "--repeats", "2", "--", "sh", "-c", "sleep 0.2; exit $CODE")

    assert done.returncode == 0, done.stderr
    assert re.search(r"memprof gate --budget \S+ --env CODE=0 --cwd build --repeats 2 -- sh -c 'sleep 0.2; exit \$CODE'", done.stdout)
    failed = memprof("gate", "--budget", "900MiB", "--env", "CODE=3", "--repeats", "2", "-o", "b.jsonl", "--", "sh", "-c", "exit $CODE")
    assert (failed.returncode, "ended with exit code 3" in failed.stdout) == (4, True), failed.stderr


def test_gate_against_ref_without_git(memprof, tmp_path, monkeypatch):
    done = memprof("gate", "--against", "main", "--", "true")
    assert (done.returncode, f"{tmp_path} lies in no git repository" in done.stderr) == (5, True)

    monkeypatch.setenv("PATH", str(tmp_path))
    done = memprof("gate", "--against", "main", "--", sys.executable, "-V")
    assert (done.returncode, "git cannot be started: No such file or directory" in done.stderr) == (5, True)


def test_gate_of_daemon_and_many_processes(memprof, nothing_left):
    daemon = memprof("gate", "--budget", "100MiB", "--repeats", "1", "--", "sh", "-c", "setsid sleep 4998 & sleep 0.2; echo started")
    assert daemon.returncode == 0
    assert "sleep: processes that outlived the measured one and were ended: 1 (sleep)" in daemon.stdout

    script = "for n in $(seq 500); do sleep 0.5 & done; wait"
    many = memprof("gate", "--budget", "4GiB", "--repeats", "1", "-o", "many.jsonl", "--", "sh", "-c", script)
    assert many.returncode == 0, many.stderr
    assert re.search(r"processes at once \([a-z, ]+\); peaks and the timeline\s+are of their sum", many.stdout)


OWN = "python3 -m venv .v && .v/bin/pip install -q ."


def _heights(folder):
    (base,), (head,) = (store.load([folder / name]).runs for name in ("head.base.jsonl", "head.jsonl"))
    return base.height_bytes, head.height_bytes


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A virtual environment that both sides find first on PATH. Its pip installs nothing before `_add_pip`."""
    venv.create(tmp_path / "shared")
    (tmp_path / "shared" / "bin" / "pip").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "shared" / "bin" / "pip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'shared' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "shared"


@pytest.fixture
def quick(shared):
    """The same, whose Python makes environments in no time: what pip itself does is not looked at."""
    (shared / "bin" / "python3").unlink()
    quick_venv(shared / "bin" / "python3", str(shared / "bin" / "python"))
    return shared


@pytest.mark.parametrize(("environment", "build", "program"), [("shared", "pip install -q .", "imgtool"), ("quick", OWN, ".v/bin/imgtool")])
def test_gate_installs_each_side_for_itself(memprof, tmp_path, request, environment, build, program):
    shared = request.getfixturevalue(environment)
    made = package_checkout(tmp_path / "lib")
    words = ("--repeats", "1", "-o", "head.jsonl", "--build", build, "--", program)

    done = memprof("gate", "--against", "main", *words, cwd=made.folder)

    base, head = _heights(made.folder)
    assert head - base == pytest.approx(8 << 20, abs=1 << 20), done.stderr
    assert not list(shared.glob("lib/*/site-packages/imglib*"))


@pytest.mark.parametrize(
    ("build", "program", "code", "says"),
    [
        (
            "pip install -q .",
            ["pytest", "-q"],
            2,
            "bin/pytest does not see that: let the build install pytest too, `pip install -q . pytest`",
        ),
        ("pip install -q .", ["sh", "-c", "cd src && pytest"], 2, "let the build install pytest too"),
        (
            "uv pip install .",
            ["env", "A=1", "../shared/bin/pytest"],
            2,
            "name the program without a folder, and let the build install it too",
        ),
        ("sh install.sh", ["imgtool"], 5, "both builds install into one place"),
        ("cp src/imglib.py ../shared/bin/tool; chmod +x ../shared/bin/tool", ["tool"], 5, "bin/tool again for base"),
    ],
)
def test_gate_of_two_builds_in_one_place_refused(memprof, tmp_path, quick, build, program, code, says):
    made = package_checkout(tmp_path / "lib", install_dot_sh="pip install -q .\n")
    (quick / "bin" / "pytest").write_text(f"#!{quick}/bin/python\n")
    (quick / "bin" / "pytest").chmod(0o755)
    if build == "sh install.sh":
        add_quick_pip(quick)

    done = memprof("gate", "--against", "main", "--build", build.replace("../shared", str(quick)), "--", *program, cwd=made.folder)

    assert (done.returncode, done.stdout, says in done.stderr) == (code, "", True), done.stderr
    assert ("this folder: " in done.stderr) == (program[-1] != "../shared/bin/pytest"), (
        "a program named by its path is known before the build"
    )
    assert made.is_clean()


def _installed_from(checkout, environment, **about):
    """What `pip install -e` leaves in an environment: the package's metadata, and a .pth file with the folder of its code."""
    (library,) = environment.glob("lib/python*/site-packages")
    metadata = library / "imglib-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: imglib\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[console_scripts]\nimgtool = imglib:main\n")
    (metadata / "direct_url.json").write_text(json.dumps({"url": checkout.folder.as_uri(), **(about or {"dir_info": {"editable": True}})}))
    (library / "__editable__.imglib-1.pth").write_text(f"{checkout.folder / 'src'}\n")
    return metadata


def _console_script(environment, name):
    program = environment / "bin" / name
    program.write_text(f"#!{environment}/bin/python\nimport imglib\nimglib.main()\n")
    program.chmod(0o755)


SAME = "on both sides, and nothing is measured: "


@pytest.mark.parametrize(
    ("program", "mend"),
    [
        (["imgtool"], "pip install ."),
        (["pytest", "-q"], "pip install . pytest"),
        (["sh", "-c", "cd src && pytest -q"], "pip install . pytest"),
        (["timeout", "60", "python", "bench/run.py"], "pip install ."),
    ],
)
def test_gate_does_not_compare_checkout_with_itself(memprof, tmp_path, shared, program, mend):
    made = package_checkout(tmp_path / "lib", bench__run_dot_py="import imglib\n")
    metadata = _installed_from(made, shared)
    _console_script(shared, "imgtool")
    _console_script(shared, "pytest")

    done = memprof("gate", "--against", "main", "-o", "head.jsonl", "--", *program, cwd=made.folder)

    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert f"{metadata} was installed from this checkout, so " in done.stderr
    assert f"{SAME}--build '{mend}' installs each side's code for that side; " in done.stderr
    assert not (made.folder / "head.jsonl").exists() and made.is_clean()


def test_gate_takes_word_that_each_side_has_its_code(memprof, tmp_path, shared):
    made = package_checkout(tmp_path / "lib")
    _installed_from(made, shared)
    _console_script(shared, "imgtool")
    words = ("--repeats", "1", "-o", "head.jsonl", "--build", "true", "--", "imgtool")

    done = memprof("gate", "--against", "main", *words, cwd=made.folder)

    assert done.returncode == 3, done.stderr  # one repeat never decides
    assert "imglib-1.dist-info was installed from this checkout: a program that imports it runs the same code" in done.stdout
    assert len(_heights(made.folder)) == 2


@pytest.mark.parametrize("way", ["pth", "variable"])
def test_gate_does_not_compare_checkout_on_path(memprof, tmp_path, shared, way):
    made = package_checkout(tmp_path / "lib")
    _console_script(shared, "imgtool")
    (library,) = shared.glob("lib/python*/site-packages")
    if way == "pth":
        (library / "mine.pth").write_text(f"{made.folder / 'src'}\n")
    variable = ("--env", f"PYTHONPATH={made.folder / 'src'}") if way == "variable" else ()
    own = ("--env", "PYTHONPATH=src", "--repeats", "1", "-o", "head.jsonl")

    refused = memprof("gate", "--against", "main", *variable, "--", "imgtool", cwd=made.folder)
    measured = memprof("gate", "--against", "main", *own, "--", "imgtool", cwd=made.folder)

    assert (refused.returncode, refused.stdout) == (3, ""), refused.stderr
    assert f"{SAME}--env PYTHONPATH=src gives each side the folder of its tree; " in refused.stderr
    base, head = _heights(made.folder)
    assert head - base == pytest.approx(8 << 20, abs=1 << 20), measured.stderr
    assert "same code" not in measured.stdout


@pytest.mark.parametrize("build", [(), ("--build", "true")])
def test_path_of_interpreter_read_once(memprof, tmp_path, shared, monkeypatch, build):
    made = package_checkout(tmp_path / "lib")
    starts = []
    read = shared_code._of_checkout
    monkeypatch.setattr(shared_code, "_of_checkout", lambda python, root: (starts.append(python), read(python, root))[1])

    done = memprof("gate", "--against", "main", "--repeats", "1", *build, "--", "python", "-c", "0", cwd=made.folder)

    assert done.returncode == 3, done.stderr  # one repeat never decides
    assert len(starts) == 1


def test_gate_names_package_that_hides_both_trees(memprof, tmp_path, shared):
    """Whether a program that is not Python's imports it, nobody knows."""
    made = package_checkout(tmp_path / "lib")
    _installed_from(made, shared)

    done = memprof("gate", "--against", "main", "--repeats", "1", "--", "sleep", "0.3", cwd=made.folder)

    assert "imglib-1.dist-info was installed from this checkout: a program that imports it runs the same code" in done.stdout


@pytest.mark.parametrize(
    "words",
    [("gate", "--run", "suite.toml", "--base-ref", "HEAD"), ("bisect", "--suite", "suite.toml", "--good", "HEAD~1", "--bad", "HEAD")],
)
def test_phases_need_gdb_before_builds(memprof, tmp_path, monkeypatch, words):
    made = Checkout(tmp_path / "app")
    made.commit(
        suite_dot_toml="[phase]\nload = 'load_model'\n[[variant]]\nname = 'app'\ncmd = './app'\n[build]\ncommand = 'touch ../built'\n"
    )
    made.commit(other="")
    (tmp_path / "bin").mkdir()
    for name in ("git", "sh"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    done = memprof(*words, cwd=made.folder)

    assert (done.returncode, done.stdout) == (5, "")
    assert "a phase by a function (--phase, or [phase] in a suite) needs gdb, which is not installed; " in done.stderr
    assert "touch ../built" not in done.stderr, "the builds take long"


READ = "import os, sys\nheld = open(sys.argv[1].removeprefix('--model='), 'rb').read(), open(os.environ.get('MORE', os.devnull), 'rb').read()\n"


@pytest.fixture
def beside(tmp_path):
    """A checkout of a program that reads a file, and beside it a model of 4 MiB, a folder and a program."""
    made = Checkout(tmp_path / "app")
    made.commit(read_dot_py=READ)
    (tmp_path / "model.bin").write_bytes(b"x" * (4 << 20))
    (tmp_path / "data").mkdir()
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (made.folder / "linked.bin").symlink_to("../model.bin")
    return made


@pytest.mark.parametrize("word", ["../model.bin", "--model=../model.bin", "linked.bin"])
def test_model_beside_checkout_is_of_both_sides(memprof, beside, word):
    words = ("--against", "HEAD", "--repeats", "1", "-o", "head.jsonl", "--env", "MORE=../model.bin")
    done = memprof("gate", *words, "--", sys.executable, "read.py", word, cwd=beside.folder)

    assert done.returncode == 3, done.stderr  # one repeat never decides
    runs = [store.load([beside.folder / name]).runs[0] for name in ("head.base.jsonl", "head.jsonl")]
    assert [run.outcome.status for run in runs] == ["ok", "ok"], done.stdout
    assert runs[0].job.argv == runs[1].job.argv
    assert "both sides share " in done.stderr


def test_model_beside_checkout_of_suite(memprof, beside):
    suite = f"repeats = 1\n[[variant]]\nname = 'app'\ncmd = '{sys.executable} ../read.py ../../model.bin'\n"
    beside.commit(bench__suite_dot_toml=f"{suite}[build]\ncommand = 'true'\npython = '../quick-python'\n")

    done = memprof("gate", "--run", "bench/suite.toml", "--base-ref", "HEAD", "-o", "head.jsonl", cwd=beside.folder)

    assert done.returncode == 3, done.stderr
    assert all(store.load([beside.folder / name]).runs[0].outcome.ok for name in ("head.base.jsonl", "head.jsonl")), done.stdout


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ((sys.executable, "read.py", "../data"), "../data"),
        (("timeout", "60", "sh", "-c", "python3 read.py ../model.bin"), "../model.bin"),
        (("env", sys.executable, "read.py", "../tool"), "../tool"),
    ],
    ids=["folder", "shell line", "program"],
)
def test_path_outside_checkout_refused_early(memprof, beside, words, path):
    done = memprof("gate", "--against", "HEAD", "--build", "touch built", "-o", "head.jsonl", "--", *words, cwd=beside.folder)

    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    full = beside.folder.parent / path.removeprefix("../")
    assert f"{path} lies outside of this checkout, and the tree of another commit has no such path: write {full} if both" in done.stderr
    assert not (beside.folder / "built").exists()


def test_folder_of_program_is_of_each_side(memprof, checkout):
    (checkout.folder / "sub").mkdir()
    checkout.commit(sub__app_dot_py=HOLD.format(4))
    checkout.write(sub__app_dot_py=HOLD.format(12))

    words = ("--repeats", "1", "-o", "head.jsonl", "--cwd", "sub", "--", sys.executable, "app.py")
    done = memprof("gate", "--against", "main", *words, cwd=checkout.folder)
    outside = memprof("gate", "--against", "main", "--cwd", "..", "--", "true", cwd=checkout.folder)

    assert done.returncode == 3, done.stderr
    before, after = _heights(checkout.folder)
    assert after - before == pytest.approx(8 << 20, abs=1 << 20)
    assert (outside.returncode, "--cwd .. lies outside of this checkout" in outside.stderr) == (2, True)


@pytest.mark.parametrize(("side", "code"), [("base", 3), ("head", 1)])
def test_first_failure_of_side_ends_gate(memprof, checkout, side, code):
    checkout.commit(app_dot_py=HOLD.format(5) + ("sys.exit(7)\n" if side == "base" else ""))
    checkout.write(app_dot_py=HOLD.format(5) + ("sys.exit(7)\n" if side == "head" else ""))

    done = memprof("gate", "--against", "main", "-o", "head.jsonl", "--", sys.executable, "app.py", cwd=checkout.folder)

    assert done.returncode == code, done.stdout
    assert "app.py: its first run failed, so the other repeats are left out: ended with exit code 7" in done.stderr
    counts = [len(store.load([checkout.folder / name]).runs) for name in ("head.base.jsonl", "head.jsonl")]
    assert counts == [1, 1]


def test_first_failure_leaves_other_variants(memprof, tmp_path):
    variants = [f'[[variant]]\nname = "{name}"\ncmd = "sh -c \'sleep 0.1; exit {code}\'"\n' for name, code in (("bad", 3), ("good", 0))]
    (tmp_path / "suite.toml").write_text("repeats = 3\n" + "".join(variants))
    (tmp_path / "budgets.toml").write_text('[[budget]]\npeak = "1 GiB"\n')

    done = memprof("gate", "--run", "suite.toml", "--budgets", "budgets.toml", "-o", "new.jsonl")

    assert done.returncode == 4, done.stderr
    assert [run.job.variant for run in store.load([tmp_path / "new.jsonl"]).runs] == ["bad", "good", "good", "good"]


def test_failure_for_lack_of_memory_is_repeated(memprof, tmp_path):
    done = memprof("gate", "--budget", "1GiB", "--repeats", "2", "-o", "new.jsonl", "--", "sh", "-c", "sleep 0.1; kill -9 $$")

    assert done.returncode == 4, done.stderr
    assert len(store.load([tmp_path / "new.jsonl"]).runs) == 2
