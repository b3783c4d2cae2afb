"""The folder of a reader of the manual: files by the names that its commands have, as small as they can be, in a git repository."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from memprof import zoo
from memprof.records import store
from memprof.verdicts import baseline
from support.compiler import once_compiled
from support.growth_runs import followed
from support.manual import ROOT
from support.plan_models import node, save, value, weight
from support.sample_runs import runs
from support.session_cache import once

MIB = 1 << 20
DATA = ROOT / "tests" / "data"

# Whatever the manual calls it: it loads, prepares and executes, prints a line after each, and has onert's functions for --phase.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char *memory;
__attribute__((noinline)) void nnfw_load_model_from_file(void) { memory = (char *)malloc(16 << 20); memset(memory, 1, 16 << 20); }
__attribute__((noinline)) void nnfw_prepare(void) { memory[1] = 2; }
__attribute__((noinline)) void nnfw_run(void) { memory[2]++; }
int main(int count, char **words) {
    int requests = atoi(words[count - 1]) + 2;
    nnfw_load_model_from_file();
    puts("model loaded in 5 ms\nloaded");
    nnfw_prepare();
    for (int request = 0; request < requests; request++) {
        nnfw_run();
        puts("served");
        fflush(stdout);
    }
    puts("done");
    fflush(stdout);
    usleep(100000); /* for a look on a busy machine */
    return 0;
}
"""
PROGRAMS = ("app", "app-new", "engine", "onert_run", "program", "pnpm")
# It holds a byte string more after each iteration.
RUNTIME = """
class Runtime:
    version = "1"
    def load(self, model, options):
        self.kept = [open(model, "rb").read()]
    def prepare(self):
        pass
    def execute(self):
        self.kept.append(bytes(32 << 10))
"""
SCRIPT = "import sys; held = bytes((8 << 20) + (1 << 20) * int(sys.argv[-1]))\n"
SUITE = """
models = ["scenario.json"]
repeats = 1
warmup = 0
runs = 1
[[variant]]
name = "engine"
runtime = "synthetic"
"""
SCENARIO = '{"load": [{"allocate": "weights", "bytes": 8388608}]}'
BUDGETS = '[[budget]]\nmodel = "net.onnx"\npeak = "400 MiB"\n'


def supply(folder: Path) -> None:
    """Copy into the folder those of the files that it lacks. They are made once a session."""
    made = once("files of the manual", _make)
    for path in made.rglob("*"):
        copy = folder / path.relative_to(made)
        if not os.path.lexists(copy):
            copy.mkdir() if path.is_dir() else shutil.copy(path, copy, follow_symlinks=False)


def _make(folder: Path) -> None:
    image = ["batch", 3, "height", "width"]
    for name, shape in (("input", image), ("x", image)):
        nodes = [node("Conv", [name, "filter"], ["features"], pads=[1, 1, 1, 1]), node("GlobalAveragePool", ["features"], ["y"])]
        file = "model.onnx" if name == "input" else "detector.onnx"
        save(folder / file, nodes, [value(name, shape)], [value("y", ["batch", 4, 1, 1])], [weight("filter", 4, 3, 3, 3)], opset=17)
    for copy in ("net.onnx", "inception_v3.onnx", "mobilenet_v2.onnx"):
        shutil.copy(folder / "model.onnx", folder / copy)
    zoo.make("mnist", folder / "model.tflite", format="tflite")
    for copy in ("m.tflite", "mobilenet_v2.tflite", "inception_v3.tflite"):
        shutil.copy(folder / "model.tflite", folder / copy)
    for name, text in {
        "model.bin": "weights",
        "m.bin": "weights",
        "my_runtime.py": RUNTIME,
        "vad.py": SCRIPT,
        "engine.py": SCRIPT,
        "suite.toml": SUITE,
        "scenario.json": SCENARIO,
        "budgets.toml": BUDGETS,
        "test.sh": "#!/bin/sh\nexec ./app 1\n",
    }.items():
        (folder / name).write_text(text)
    (folder / "test.sh").chmod(0o755)
    program = once_compiled("gcc", "app.c", PROGRAM, "-g")
    for name in PROGRAMS:
        shutil.copy(program, folder / name)
    shown = [*runs("onert", threads=1), *runs("onert-mapped", threads=1), *runs("onert", threads=2)]
    for name, content in {
        "runs": shown,
        "tvm": shown,
        "part1": runs(),
        "soak": [followed(1, 1024)],
        "before": runs(),
        "after": runs(),
        "head": runs(),
    }.items():
        (folder / f"{name}.jsonl").write_bytes(b"".join(map(store.encode, content)))
    baseline.update(folder / "baseline.json", baseline.entries(runs()))
    (folder / "build").mkdir()
    if (package := find_spec("onnxruntime")) is not None and package.origin is not None:
        (library,) = (Path(package.origin).parent / "capi").glob("libonnxruntime.so.*")
        (folder / "build" / "libonnxruntime.so").symlink_to(library)
    (folder / "profile").mkdir()
    massif = gzip.decompress((DATA / "heap" / "massif_tflite_mobilenet_v2.gz").read_bytes())
    for name in ("profile/massif.out.3869", "before.massif", "after.massif"):
        (folder / name).write_bytes(massif)
    zoo.make("llama", folder / "llama.gguf", format="gguf", size_bytes=MIB)
    shutil.copy(DATA / "heap" / "capture_memray_1.20.0.bin", folder / "capture.memray")
    (folder / ".gitignore").write_text("*.jsonl\n")
    for words in ("init -q -b main", "add -A", "-c user.name=n -c user.email=n@example.org commit -q -m one"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
