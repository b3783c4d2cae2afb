"""What cannot be measured is refused before anything starts: one clear sentence, its exit code, no traceback, no file left."""

from __future__ import annotations

import os

import pytest
from support.recorder_runs import PYTHON, QUICK, measured, runtime_file, script, sentence

USAGE, INPUT = 2, 5

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def folder(tmp_path, scenario):
    """A folder with one good model and a few that are not."""
    scenario("good.json", **QUICK)
    (tmp_path / "empty.json").touch()
    (tmp_path / "model.tflite").write_bytes(b"TFL3")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "model.tflite").write_bytes(b"TFL3")
    (tmp_path / "suite.toml").write_text('models = ["good.json"]\nruntime = "synthetic"\n')
    script(tmp_path / "no_python", "#!/bin/sh\necho what is this >&2\n")
    script(tmp_path / "no_interpreter", "#!/nowhere/python\n")
    return tmp_path


REFUSED = {
    "no model": (["-r", "synthetic"], USAGE, "name a model"),
    "model missing": (["none.json", "-r", "synthetic"], INPUT, "model none.json: no such file"),
    "model without a name": (["", "-r", "synthetic"], USAGE, "the model's name is empty: name a file, or the folder of a package"),
    "model empty": (["empty.json", "-r", "synthetic"], INPUT, "model empty.json: the file is empty"),
    "model of another format": (
        ["model.tflite", "-r", "synthetic"],
        USAGE,
        "model.tflite: none of the named runtimes takes it (they take .json)",
    ),
    "folder that is no package": (["plain", "-r", "synthetic"], INPUT, "this folder has no metadata/MANIFEST of an nnpackage"),
    "two models of one name": (["good.json", "./good.json", "-r", "synthetic"], USAGE, "two models are called good.json"),
    "no runtime that takes it": (["good.json"], USAGE, "good.json: none of the named runtimes takes it"),
    "runtime unknown": (["good.json", "-r", "syntetic"], USAGE, "there is no runtime 'syntetic'; did you mean synthetic?"),
    "runtime unlike any": (["good.json", "-r", "zzz"], USAGE, "there is no runtime 'zzz'; there are onnxruntime, "),
    "runtime's file missing": (["good.json", "-r", "./mine.py"], INPUT, "runtime ./mine.py: no such file"),
    "interpreter missing": (
        ["good.json", "-r", "synthetic", "--python", "/nowhere/python"],
        INPUT,
        "python /nowhere/python: no such interpreter",
    ),
    "interpreter that is none": (
        ["good.json", "-r", "synthetic", "--python", "./no_python"],
        INPUT,
        "is not a usable Python 3.8 or later: what is this",
    ),
    "interpreter that cannot start": (
        ["good.json", "-r", "synthetic", "--python", "./no_interpreter"],
        INPUT,
        "cannot be started: No such file",
    ),
    "knob unknown": (["good.json", "-r", "synthetic", "--set", "extr=1"], USAGE, "synthetic has no knob 'extr'; did you mean extra?"),
    "knob of no form": (["good.json", "-r", "synthetic", "--set", "extra"], USAGE, "'extra' is not a setting: write KEY=VALUE"),
    "size that is none": (["good.json", "-r", "synthetic", "--set", "extra=-5"], USAGE, "'-5' is not a size"),
    "settings given as one": (
        ["good.json", "-r", "synthetic", "--set", "malloc_trim=on,malloc_arenas=2"],
        USAGE,
        "malloc_trim takes on|off; give each its own option: --set malloc_trim=on --set malloc_arenas=2",
    ),
    "number that is none": (["good.json", "-r", "synthetic", "--set", "malloc_arenas=two"], USAGE, "malloc_arenas takes a whole number"),
    "word that is none": (
        ["good.json", "-r", "synthetic", "--set", "malloc_trim=onn"],
        USAGE,
        "malloc_trim takes on|off; did you mean on?",
    ),
    "file that is none": (["good.json", "-r", "synthetic", "--set", "preload=none.so"], INPUT, "preload=none.so: no such file"),
    "inputs missing": (["good.json", "-r", "synthetic", "--inputs", "none.npz"], INPUT, "inputs none.npz: no such file"),
    "shape of no form": (["good.json", "-r", "synthetic", "--shape", "x=1,two"], USAGE, "write INPUT=1,3,224,224"),
    "threads of no form": (["good.json", "-r", "synthetic", "--threads", "0"], USAGE, "threads '0'"),
    "option unknown": (["good.json", "-r", "synthetic", "--reapeats", "1"], USAGE, "No such option"),
    "option of another type": (["good.json", "-r", "synthetic", "--runs", "many"], USAGE, "'many' is not a valid integer"),
    "too few repeats": (["good.json", "-r", "synthetic", "--repeats", "0"], USAGE, "repeats 0: 1 is the least"),
    "duration that is none": (["good.json", "-r", "synthetic", "--timeout", "soon"], USAGE, "'soon' is not a duration"),
    "suite missing": (["--suite", "none.toml"], INPUT, "suite none.toml: No such file"),
    "suite with an unknown word": (["--suite", "suite.toml"], INPUT, "suite suite.toml: there is no 'runtime'; did you mean runtimes?"),
    "bytes that are no text": ([os.fsdecode(b"good\xff.json"), "-r", "synthetic"], INPUT, "no such file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_refused_in_one_sentence(memprof, folder, case):
    words, code, said = REFUSED[case]
    before = sorted(os.listdir(folder))

    done = memprof("run", *words)

    assert said in sentence(done)
    assert done.returncode == code
    assert sorted(os.listdir(folder)) == before


def test_uninstalled_runtime_names_pip_command(memprof, folder):
    (folder / "model.onnx").write_bytes(b"\0any")
    bare = script(folder / "bare", f'#!/bin/sh\nexec {PYTHON} -S "$@"\n')

    done = memprof("run", "model.onnx", "-r", "onnxruntime", "--python", str(bare))

    assert f"onnxruntime is not installed for {bare}: {bare} -m pip install onnxruntime" in sentence(done)
    assert done.returncode == INPUT


def test_runtime_import_failure_in_startup(tmp_path):
    packages = tmp_path / "packages"
    (packages / "onnxruntime-9.9.dist-info").mkdir(parents=True)
    (packages / "onnxruntime-9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 9.9\n")
    (packages / "onnxruntime.py").write_text("raise ImportError('libmissing.so.1: cannot open shared object file')\n")
    python = script(tmp_path / "python", f'#!/bin/sh\nPYTHONPATH={packages} exec {PYTHON} "$@"\n')
    (tmp_path / "model.onnx").write_bytes(b"\0any")

    run = measured(tmp_path / "model.onnx", "onnxruntime", python=str(python))

    assert (run.outcome.status, run.outcome.phase) == ("import", "STARTUP")
    assert run.outcome.sentence == "in STARTUP: ImportError: libmissing.so.1: cannot open shared object file"


def test_user_runtime_with_knob(tmp_path):
    top = "from runtimes import Knob\n"
    load = "self.held = bytearray(options.knobs['size'])"
    mine = runtime_file(tmp_path, top=top, load=load)
    mine.write_text(mine.read_text() + "    knobs = (Knob('size', 'bytes', '0', 'this much is held'),)\n")
    model = tmp_path / "model"
    model.write_bytes(b"any")

    run = measured(model, mine, set={"size": "32MiB"})

    assert run.outcome.ok
    assert run.mark("MODEL_LOAD").rss_end_bytes - run.mark("STARTUP").rss_end_bytes > 31 << 20
    assert run.job.variant == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "mine.py has no class Runtime with load, prepare and execute"),
        ("class Runtime:\n    def load(self, model, options): ...\n    def execute(self): ...\n", "mine.py lacks prepare"),
        ("raise OSError('no device')\n", "OSError: no device"),
        ("import sys\nsys.exit('no device')\n", "SystemExit: no device"),
        ("def f(:\n", "SyntaxError"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    ],
    ids=["no class", "half a class", "raises", "exits", "no Python", "import missing"],
)
def test_user_runtime_unusable(memprof, folder, text, said):
    (folder / "mine.py").write_text(text)

    done = memprof("run", "good.json", "-r", "./mine.py")

    line = sentence(done)
    assert line.startswith("memprof: runtime ./mine.py: ")
    assert said in line
    assert done.returncode == INPUT


def test_user_runtime_neighbours_shadow_nothing(tmp_path):
    pytest.importorskip("numpy")
    for name in ("inputs", "marks", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong file')\n")
    mine = runtime_file(tmp_path, execute="assert self.x.shape == (2, 3)")
    mine.write_text(
        mine.read_text()
        + "    def signature(self): return [('x', (None, 3), 'float32')]\n    def set_inputs(self, arrays): self.x = arrays['x']\n"
    )
    (tmp_path / "model").write_bytes(b"any")

    run = measured(tmp_path / "model", mine, shapes={"x": (2, 3)})

    assert run.outcome.ok, run.outcome.sentence


def test_user_runtime_without_path_hint(memprof, folder):
    (folder / "mine.py").write_text("x = 1\n")

    done = memprof("run", "good.json", "-r", "mine")

    assert done.returncode == USAGE
    assert "your own is named by its path: -r ./mine.py" in done.stderr


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("gate ./test.sh", "memprof gate -- ./test.sh"),
        ("gate --budget 9MiB ./test.sh", "memprof gate --budget 9MiB -- ./test.sh"),
        ("gate ./test.sh --against main", "memprof gate --against main -- ./test.sh"),
        ("gate sleep 1", "memprof gate -- sleep 1"),
        ("grow ./test.sh", "memprof grow -- ./test.sh"),
        ("fit ./test.sh --env A=b", "memprof fit --env A=b -- ./test.sh"),
        ("explain ./test.sh", "memprof explain -- ./test.sh"),
        ("tune ./test.sh", "memprof tune -- ./test.sh"),
        ("scale --vary n=1..2 ./test.sh", "memprof scale --vary n=1..2 -- ./test.sh"),
    ],
)
def test_program_without_dashes(memprof, folder, words, typed):
    script(folder / "test.sh", "#!/bin/sh\n:\n")
    done = memprof(*words.split())

    assert done.returncode == USAGE
    program = "sleep" if "sleep" in words else "./test.sh"
    assert done.stderr.splitlines()[-1] == f"memprof: {program} is a program, and a program goes behind --: {typed}"


def test_program_for_run_goes_to_exec(memprof, folder):
    script(folder / "test.sh", "#!/bin/sh\n:\n")
    done = memprof("run", "./test.sh")

    assert sentence(done) == "memprof: ./test.sh is a program, and memprof exec measures one: memprof exec ./test.sh"


def test_library_and_file_that_may_run_are_models(memprof, folder):
    """Some file systems let every file run, and TVM's models are libraries."""
    (folder / "good.json").chmod(0o755)
    script(folder / "net.so", "\x7fELF")
    script(folder / "model.elf", "\x7fELF")

    assert memprof("run", "model.elf", "--cmd", "own=cat {model}", "--repeats", "1", "-o", "own.jsonl").returncode == 0
    assert memprof("run", "good.json", "-r", "synthetic", "--repeats", "1", "--runs", "1").returncode == 0
    assert "is a program" not in memprof("run", "net.so", "-r", "synthetic").stderr
