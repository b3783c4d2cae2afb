"""What must not move a runtime's memory: the path of its model, and what it sends to its makers."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pytest
from conftest import need_tool
from support import recorder_runs
from support.session_cache import own_cache

from memprof import zoo
from memprof.base.runners import runners_path
from memprof.records import store

_TRY = """
import json, os, resource, sys
sys.path.insert(0, {runners!r})
import constant_path
if sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
path = constant_path.constant(sys.argv[1])
beside = sorted(os.listdir(os.path.dirname(path) or "."))
print(json.dumps([path, os.path.exists(path), constant_path.real("cannot open " + path + " at all"), beside]))
"""


def tried(*words, cwd=None):
    text = _TRY.format(runners=str(runners_path()))
    done = subprocess.run([sys.executable, "-c", text, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_model_path_same_in_any_folder(tmp_path):
    paths = set()
    for name in ("a", "b b/ü" * 20, "c/d/e/f/g/h"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "net.onnx").write_bytes(b"\0")
        (folder / "net.onnx.data").write_bytes(b"y")
        path, there, said, beside = tried(folder / "net.onnx")
        assert there and beside == ["net.onnx", "net.onnx.data"]
        assert said == f"cannot open {folder}/net.onnx at all"
        paths.add(path)
    assert len(paths) == 1
    # Relative to the folder where memprof was called, and a model that is a folder.
    assert tried("net.onnx", cwd=folder)[:3] == [*paths, True, "cannot open net.onnx at all"]
    assert tried("e/f", cwd=tmp_path / "c/d")[1:3] == [True, "cannot open e/f at all"]


def test_model_path_kept_without_folder_descriptor(tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(b"x")
    assert tried(model, "few files")[:3] == [str(model), True, f"cannot open {model} at all"]
    missing = tmp_path / "nowhere" / "net.onnx"
    assert tried(tmp_path / "no.onnx")[0] == str(tmp_path / "no.onnx")
    with pytest.raises(AssertionError, match="No such file"):
        tried(missing)


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-native"])
def test_runtime_errors_name_user_path(runtime, memprof, tmp_path):
    pytest.importorskip("onnxruntime")
    need_tool("gcc")
    path = tmp_path / "mlp.onnx"
    zoo.make("mlp", path, format="onnx", size_bytes=1 << 20, external_data=True)
    path.write_bytes(path.read_bytes()[:100])
    done = memprof("run", path, "-r", runtime, "--repeats", "1", "--runs", "1", "-o", "runs.jsonl")
    assert done.returncode == 4, done.stderr
    (run,) = store.load([tmp_path / "runs.jsonl"]).runs
    assert str(tmp_path) in run.outcome.message and "/proc/self" not in run.outcome.message


def test_custom_runtime_gets_path_unchanged(memprof, tmp_path):
    (tmp_path / "net.bin").write_bytes(b"x")
    runtime = recorder_runs.runtime_file(tmp_path, load="self.notes = [model]")
    done = memprof("run", "net.bin", "-r", runtime, "--repeats", "1", "--runs", "1", "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    (run,) = store.load([tmp_path / "runs.jsonl"]).runs
    (given,) = run.about.notes
    assert tmp_path.joinpath(given) == tmp_path / "net.bin"


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-native"])
def test_onnxruntime_without_telemetry_database(runtime, memprof, tmp_path, monkeypatch):
    """The model has a file for its weights, which is found beside it."""
    pytest.importorskip("onnxruntime")
    need_tool("gcc")
    zoo.make("mlp", tmp_path / "mlp.onnx", format="onnx", size_bytes=1 << 20, external_data=True)
    own_cache(monkeypatch, tmp_path / "cache")
    monkeypatch.delenv("CI", raising=False)

    def databases(*words):
        done = memprof("run", "mlp.onnx", "-r", runtime, "--repeats", "1", "--runs", "1", *words)
        assert done.returncode == 0, done.stderr
        return list((tmp_path / "cache").rglob("onnxruntime.db"))

    assert databases() == []
    if tuple(map(int, importlib.metadata.version("onnxruntime").split(".")[:2])) >= (1, 29):
        assert databases("--env", "ORT_DISABLE_TELEMETRY=0"), "it is memprof that keeps it from that"
