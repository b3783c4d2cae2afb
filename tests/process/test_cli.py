"""The command line: quick to answer, the main job from end to end, and nothing imported before it is needed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from support import sample_runs
from support.recorder_runs import NEAR, Silent

import memprof as package
from memprof.base.runners import runners_path
from memprof.campaign import campaign, progress
from memprof.doors.cli import subject
from memprof.programs.runtimes import describe
from memprof.records import store
from memprof.records.settings import SIZES

STEPS = {"load": [{"allocate": "w", "bytes": 10 << 20}], "execute": [{"spike": 6 << 20}]}


def test_run_tables_match_runs_file(memprof, scenario, tmp_path):
    done = memprof("run", scenario(**STEPS), "-r", "synthetic", "--repeats", "2", "-o", "runs.jsonl", "--all")

    assert done.returncode == 0, done.stderr
    first, _, tables = done.stdout.partition("\n\n")
    assert first.startswith("scenario.json, synthetic: PEAK is ") and first.endswith(" stays after release.")
    assert tables.startswith("scenario.json, warming up 5 & running 5, 2 repeats\n\nLatency (ms)\n\n| variant ")
    titles = [line for line in tables.splitlines()[1:] if line and not line.startswith(("|", "-"))]
    assert [title.rsplit(" (", 1)[0] for title in titles[:-1]] == [
        "Latency",
        "RSS peak",
        "Anonymous memory at the end",
        "File-backed memory at the end",
        "VMS at the end",
        "HWM, never reset",
        "PSS at the end",
        "USS at the end",
        "EXECUTE, one iteration",
        "Kept after release, above the baseline",
    ]
    assert titles[-1].startswith("Measured with synthetic 1, Python ")
    assert "| variant   |  baseline | MODEL_LOAD | PREPARE | WARMUP | EXECUTE | PEAK |".replace(" ", "") in tables.replace(" ", "")
    assert memprof("table", "runs.jsonl").stdout == done.stdout
    assert "runs.jsonl holds the runs" in done.stderr
    assert "too few to decide a comparison" in done.stderr
    assert "will follow" not in done.stderr, "it does not take long"


def test_next_step_is_of_least_peak(memprof, scenario, tmp_path):
    (tmp_path / "suite.toml").write_text(f'''
models = ["{scenario(**STEPS)}"]
variant = [{{ name = "large", runtime = "synthetic", set = {{ extra = "40MiB" }} }}, {{ name = "small", runtime = "synthetic" }}]
''')
    done = memprof("run", "--suite", "suite.toml", "--repeats", "1")

    assert "extra" not in next(line for line in done.stderr.splitlines() if "next: " in line)
    assert len(list(tmp_path.glob("memprof-*.jsonl"))) == 1  # a file that is named by the time


def test_long_campaign_says_what_follows(memprof, scenario, monkeypatch):
    """The number of runs before the first; how long the rest takes after the first repeat of every variant, and early where that is very long."""
    monkeypatch.setattr(progress, "WORTH_A_FORECAST_NS", 0)
    monkeypatch.setattr(subject, "_WORTH_A_HINT_NS", 0)
    words = ["--variant", "a=synthetic", "--variant", "b=synthetic", "--repeats", "2"]
    lines = memprof("run", scenario(**STEPS), *words).stderr.splitlines()

    told = [line for line in lines if " will follow" in line]
    assert "4 runs in all, 2 in each of 2 rounds" in lines
    assert [line.partition(" will follow, ")[0] for line in told] == ["about 3 runs", "about 2 runs"]
    assert all(line.endswith(" in all: --repeats 1 is enough for a first look") for line in told)


def test_library_messages_match_command(scenario, tmp_path):
    told = Silent()
    path = tmp_path / "runs.jsonl"

    package.measure([scenario(**STEPS)], ["synthetic"], repeats=1, output=path, progress=told)

    assert told.said == ["1 repeat: too few to decide a comparison, which takes at least 5", f"{path} holds the runs"]


def test_library_error_leaves_no_file(scenario, tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(11, "no process can be started")

    monkeypatch.setattr(campaign, "measure", refused)
    told = Silent()

    with pytest.raises(OSError, match="no process"):
        package.measure([scenario(**STEPS)], ["synthetic"], repeats=5, output=tmp_path / "runs.jsonl", progress=told)

    assert not (tmp_path / "runs.jsonl").exists() and told.said == []


def test_suite_file_variants_measured(memprof, scenario, tmp_path):
    scenario(**STEPS)
    (tmp_path / "suite.toml").write_text(
        'models = ["scenario.json"]\nrepeats = 1\n[[variant]]\nname = "plain"\nruntime = "synthetic"\n'
        '[[variant]]\nname = "more"\nruntime = "synthetic"\nset = { extra = "10MiB" }\n'
    )

    done = memprof("run", "--suite", "suite.toml", "-o", "runs.jsonl", "--json")

    rows = json.loads(done.stdout)
    plain, more = ({row["phase"]: row for row in rows if row["variant"] == name} for name in ("plain", "more"))
    assert list(plain) == ["STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE", "RELEASE", "PEAK"]
    assert plain["EXECUTE"]["rss_peak_bytes"] - plain["MODEL_LOAD"]["rss_end_bytes"] == pytest.approx(6 << 20, abs=NEAR)
    assert more["PEAK"]["rss_peak_bytes"] - plain["PEAK"]["rss_peak_bytes"] == pytest.approx(10 << 20, abs=2 * NEAR)


def test_runtimes_lists_all_knobs(memprof):
    text = memprof("runtimes").stdout
    runtimes = {runtime["name"]: runtime for runtime in json.loads(memprof("runtimes", "--json").stdout)}

    names = {path.stem.replace("_native", "-native") for path in (runners_path() / "runtimes").glob("[a-z]*.py")}
    assert set(runtimes) == names
    assert "runtimes install" in text or all(runtime["version"] for runtime in runtimes.values())
    wanted = {"optimization", "prepacking", "constant_folding", "mem_pattern", "arena", "weights", "format", "order", "mode", "provider"}
    wanted |= {"malloc_arenas", "malloc_mmap_threshold", "malloc_trim", "preload", "ballast"}
    assert wanted <= {knob["name"] for knob in runtimes["onnxruntime"]["knobs"]}
    assert all(knob["meaning"] for runtime in runtimes.values() for knob in runtime["knobs"])
    sizes = [{knob["name"] for knob in runtime["knobs"] if knob["values"] == "bytes"} for runtime in runtimes.values()]
    assert set.intersection(*sizes) == SIZES


class _WithoutWords(ast.NodeTransformer):
    """Leaves a runner's code without the words that it declares for a program."""

    def visit_keyword(self, node):
        return None if node.arg == "call" else self.generic_visit(node)

    def visit_Assign(self, node):
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        return None if names & {"threads_call", "_CALLS", "_COMPILED", "_RESOLVER", "_WITHOUT_F16"} else self.generic_visit(node)


def test_knobs_have_the_runtimes_own_words():
    """Each knob says what a program writes for its values, but for memprof's own; and a name in it is one that the runner sets."""
    folder, own = runners_path() / "runtimes", {"ballast", "prompt", "generate", "engine", "extra", "x", "y", "z"}
    beside = {"tflite": ["_interpreter.py"], "litert": ["_interpreter.py"], "onert-native": ["onert.py"]}
    beside["onnxruntime-native"] = ["onnxruntime.py", "../native/onnxruntime_runner.c"]
    for runtime in describe(sys.executable):
        files = [f"{runtime.name.replace('-', '_')}.py", "__init__.py", *beside.get(runtime.name, [])]
        texts = {file: (folder / file).read_text() for file in files}
        code = " ".join(
            ast.unparse(_WithoutWords().visit(ast.parse(text))) if file.endswith(".py") else text for file, text in texts.items()
        )
        code += "DisableMemPattern DisableCpuMemArena AddSessionConfigEntry" if runtime.native else ""  # which C calls by their place
        for knob in runtime.knobs:
            assert bool(knob.calls) is (knob.name not in own), (runtime.name, knob.name)
            for words in knob.calls.values():
                names = [name for name in re.findall(r"[A-Za-z_]\w{3,}", words) if name not in ("environment", "program", "with", "each")]
                assert any(name in code for name in names), (runtime.name, words)
        if runtime.distribution is not None and runtime.default_threads != 1:
            assert runtime.in_program({"threads": "2"}), runtime.name


def test_runtime_shows_the_words(memprof):
    text = memprof("runtimes", "onnxruntime").stdout
    assert "        off in a program: SessionOptions.enable_cpu_mem_arena = False\n" in text
    assert "        SIZE in a program: MALLOC_MMAP_THRESHOLD_=SIZE in the environment" in text


def modules_of(code):
    done = subprocess.run([sys.executable, "-c", code + "; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_measuring_imports_nothing_heavy():
    loaded = modules_of("import memprof.campaign.campaign, memprof.subjects.suite, memprof.doors.cli.run, memprof.doors.cli.progress")

    assert not loaded & {"pandas", "numpy", "matplotlib", "scipy", "onnx", "jinja2"}


def test_package_import_loads_no_parts():
    assert not {name for name in modules_of("import memprof") if name.startswith("memprof.")}


def test_recorder_imports_only_stdlib(tmp_path):
    loaded = modules_of("import memprof.recorder.__main__, memprof.recorder.launch, memprof.recorder.loop, memprof.recorder.pagecache")

    outside = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"memprof", "__main__", "sitecustomize"}
    assert not {name for name in outside if not name.startswith(("_", "pyximport", "distutils"))}
    assert not (loaded - modules_of("import memprof")) & {"dataclasses", "json", "re", "subprocess", "ctypes"}
    assert not {name for name in loaded if name.startswith("memprof.") and not name.startswith("memprof.recorder")}


def test_library_measures_and_summarises(scenario, tmp_path):
    path = scenario(**STEPS)

    runs = package.measure([path], ["synthetic"], repeats=2, output=tmp_path / "runs.jsonl")

    assert package.load(tmp_path / "runs.jsonl") == runs
    peaks = [row for row in runs.summarise() if row.metric == "rss_peak_bytes" and row.phase == "PEAK"]
    assert len(peaks) == 1
    assert len(peaks[0].values) == 2
    assert {"MODEL_LOAD", "PEAK"} <= set(runs.to_frame()["phase"])
    assert runs.timeline()["rss_bytes"].max() <= peaks[0].max


@pytest.mark.parametrize("limit_kib", [20_000, 34_000])
def test_run_in_small_address_space(scenario, tmp_path, limit_kib):
    path = scenario(**STEPS)
    words = shlex.join([sys.executable, "-m", "memprof", "run", str(path), "-r", "synthetic", "-o", "new.jsonl"])

    done = subprocess.run(["sh", "-c", f"ulimit -v {limit_kib}; exec {words}"], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode in (4, 5), done.stderr  # memprof itself has too little, or what it starts
    assert done.stderr.splitlines()[-1].startswith("memprof: ") and "Traceback" not in done.stderr


@pytest.mark.parametrize("limit_mib", [100, 150])
def test_plot_in_small_address_space(tmp_path, limit_mib):
    """OpenBLAS, which numpy brings, looks for memory without end where there is none."""
    (tmp_path / "runs.jsonl").write_bytes(store.encode(sample_runs.run()))
    words = shlex.join([sys.executable, "-m", "memprof", "plot", "peaks", "runs.jsonl", "-o", "peaks.png"])

    done = subprocess.run(
        ["sh", "-c", f"ulimit -t 60; ulimit -v {limit_mib << 10}; exec {words}"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode in (0, 5), done.stderr  # what matplotlib needs differs between its releases
    assert done.stderr.splitlines()[-1].startswith("memprof: ") and (tmp_path / "peaks.png").exists() == (done.returncode == 0)


@pytest.mark.parametrize("limit_mib", [150, 300])
def test_scipy_in_small_address_space(tmp_path, limit_mib):
    words = "import os, sys\nfrom memprof.base import thread_limits\ntry:\n    thread_limits.load_numpy()\n    thread_limits.load_scipy()\n"
    words += "except (OSError, ImportError, MemoryError):\n    os._exit(5)\nos._exit(0 if 'scipy.special' in sys.modules else 1)"

    done = subprocess.run(
        ["sh", "-c", f"ulimit -t 60; ulimit -v {limit_mib << 10}; exec {shlex.join([sys.executable, '-c', words])}"], cwd=tmp_path
    )

    assert done.returncode in (0, 5)


def test_numpy_thread_limit_not_inherited(tmp_path):
    words = "import os, resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))\n"
    words += "from memprof.base import thread_limits\nthread_limits.load_numpy()\n"
    words += "import sys; print('numpy' in sys.modules, len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}

    done = subprocess.run([sys.executable, "-c", words], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "1", "None"]


def test_home_unwritable_uses_temporary_folder(memprof, scenario, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment.update(HOME="/proc/none", TMPDIR=str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    words = ("run", scenario(**STEPS), "-r", "synthetic", "--repeats", "1", "-o", "new.jsonl")

    done = memprof(*words, env=environment)

    assert done.returncode == 0, done.stderr
    (own,) = (tmp_path / "tmp").iterdir()
    assert own.name == f"memprof-{os.geteuid()}" and own.stat().st_mode & 0o077 == 0
    assert list((own / ".cache/recorder").glob("*.zip"))

    own.chmod(0o755)  # as somebody else might have made it
    refused = memprof(*words[:-1], "other.jsonl", env=environment)
    assert refused.returncode == 5
    assert f"{own} is not this user's alone" in refused.stderr and "Traceback" not in refused.stderr
