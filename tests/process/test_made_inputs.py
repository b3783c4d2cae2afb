"""The integers that memprof feeds: over all rows that the graph indexes, the same in every run, in Python and in C; what is said of them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
from support.compiler import once_compiled

from memprof.base.runners import runners_path
from memprof.explain import indexed_rows
from memprof.models import indexed_tables
from memprof.models.index_walk import IndexedTable
from memprof.records import settings, store
from memprof.records.types import Run

onnx = pytest.importorskip("onnx")
helper: Any = onnx.helper


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """runners/inputs.py."""
    monkeypatch.syspath_prepend(str(runners_path()))
    spec = importlib.util.spec_from_file_location("made_inputs", runners_path() / "inputs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, "runtimes", raising=False)
    return module


CASES = [
    ("int64", 30_522, 30_522),
    ("int32", 2, 2),
    ("int32", 1, 1),
    ("uint8", 1000, 256),
    ("int8", 1000, 128),
    ("int16", 7, 7),
    ("uint64", 1 << 31, 1 << 31),
    ("float32", 500, 500),
    ("float16", 50_000, 1024),
    ("float64", 9, 9),
    ("bool", 2, None),
    ("int64", None, None),
    ("uint32", None, None),
]


def options(**words: Any) -> SimpleNamespace:
    """What a job says of inputs."""
    return SimpleNamespace(**{"shapes": {}, "inputs": None, "values": {}, "ranges": {}, **words})


@pytest.mark.parametrize(
    ("shape", "dtype", "text", "array"),
    [
        ((), "int64", "16000", 16000),
        ((2, None), "int32", "-3", [[-3], [-3]]),
        ((), "float32", "1e-3", numpy.float32(0.001)),
        ((1,), "float16", "nan", [numpy.nan]),
        ((2,), "bool", "true", [True, True]),
        ((), "bool", "0", False),
        ((2,), "str", "a=b", ["a=b", "a=b"]),
    ],
)
def test_value_fills_input(made: ModuleType, shape: tuple[Any, ...], dtype: str, text: str, array: Any) -> None:
    given = options(values={"sr": text})

    filled = made.make([("sr", shape, dtype)], given)["sr"]

    assert numpy.array_equal(filled, array, equal_nan=dtype == "float16") and (dtype == "str" or filled.dtype == dtype)
    assert made.remark([("sr", shape, dtype)], given) == "" and made.given_names(given) == {"sr"}


@pytest.mark.parametrize(
    ("dtype", "text"), [("int64", "much"), ("int64", "1.5"), ("int8", "128"), ("uint8", "-1"), ("bool", "2"), ("float32", "")]
)
def test_value_of_another_type_refused(made: ModuleType, dtype: str, text: str) -> None:
    with pytest.raises(Exception, match=f"^--input sr={text}: sr has the type {dtype}, which has no such value$"):
        made.make([("sr", (), dtype)], options(values={"sr": text}))


@pytest.mark.parametrize(("dtype", "rows", "reached"), CASES)
def test_integers_spread_over_rows(made: ModuleType, dtype: str, rows: int | None, reached: int | None) -> None:
    shape = (1 << 8, 1 << 10)  # in several blocks
    ranges = {"ids": rows} if rows is not None else {}
    array = made.make([("x", (1,), "float32"), ("ids", shape, dtype)], options(ranges=ranges))["ids"]
    assert array.shape == shape and array.dtype == dtype
    if reached is None:
        assert not array.any()
        return
    assert array.min() >= 0 and 0.99 * (reached - 1) <= array.max() < reached
    assert numpy.array_equal(array, numpy.floor(array))
    assert numpy.unique(array).size > 0.9 * min(reached, array.size)
    assert numpy.array_equal(array, made.make([("x", (1,), "float32"), ("ids", shape, dtype)], options(ranges=ranges))["ids"])


@pytest.mark.parametrize(
    ("signature", "ranges", "said"),
    [
        ([("ids", (1,), "int64")], {"ids": 30522}, "made inputs: ids is integers from 0 to 30,521, as the graph indexes 30,522 rows by it"),
        ([("ids", (1,), "uint8")], {"ids": 1000}, "made inputs: ids is integers from 0 to 255, as the graph indexes 1,000 rows by it"),
        (
            [("ids", (1,), "int32"), ("mask", (1,), "int32"), ("x", (1,), "float32")],
            {"ids": 2, "serving_ids": 2},
            "made inputs: ids is integers from 0 to 1, as the graph indexes 2 rows by it; mask is all 0",
        ),
        (
            [(name, (1,), "int32") for name in "abcdefgh"],
            {},
            f"made inputs: {'; '.join(f'{name} is all 0' for name in 'abcdef')}; and 2 more",
        ),
        ([("image", (1,), "uint8"), ("flag", (1,), "bool"), ("text", (), "str"), ("rest", (), "float7")], {}, ""),
        (
            [("sr", (), "int64"), ("flag", (), "bool"), ("scale", (), "float32")],
            {},
            "made inputs: sr is 0, a scalar (--input sr=VALUE sets it); flag is 0, a scalar (--input flag=VALUE sets it); "
            "scale is 0.217, a scalar (--input scale=VALUE sets it)",
        ),
    ],
)
def test_made_integers_told(made: ModuleType, signature: list[Any], ranges: dict[str, int], said: str) -> None:
    assert made.remark(signature, options(ranges=ranges)) == said


def test_given_integers_kept(made: ModuleType, tmp_path: Path) -> None:
    path = str(tmp_path / "in.npz")
    numpy.savez(path, ids=numpy.array([[3, 4]]))
    signature, ranges = [("ids", (1, 2), "int64"), ("types", (1, 2), "int64")], {"ids": 50, "types": 2}
    assert made.make(signature, options(inputs=path, ranges=ranges))["ids"].tolist() == [[3, 4]]
    numpy.savez(tmp_path / "half.npz", x=numpy.ones(2, numpy.uint16))
    half = str(tmp_path / "half.npz")
    assert made.make([("x", (2,), "bfloat16")], options(inputs=half))["x"].tolist() == [1, 1], "a type that numpy has not can be given"
    assert (
        made.remark(signature, options(inputs=path, ranges=ranges))
        == "made inputs: types is integers from 0 to 1, as the graph indexes 2 rows by it"
    )


IN_C = """
#include "runner.h"
int main(int count, char **words) {
    struct runner_shape shape;
    size_t element = (size_t)atoi(words[4]), bytes;
    void *data;
    runner_count = count;
    runner_words = words;
    runner_parse_shape(words[5], &shape);
    data = runner_input("ids", 1, *words[3], element, &shape);
    bytes = (size_t)runner_elements(&shape) * element;
    runner_about_made("");
    fprintf(stderr, "%s", runner_notes[0]);
    return fwrite(data, 1, bytes, stdout) == bytes ? 0 : 1;
}
"""


VALUES = [
    *(("int64", text) for text in ("16000", "much", "")),
    *(("int8", text) for text in ("127", "128", "-128")),
    *(("uint8", text) for text in ("255", "-1")),
    *(("bool", text) for text in ("true", "on", "off", "2")),
    *(("float32", text) for text in ("1e-3", "")),
    ("float16", "0.1"),
    ("float64", "-2.5"),
    ("uint32", "7"),
]


@pytest.mark.parametrize(("dtype", "text"), VALUES)
def test_native_value_as_in_python(made: ModuleType, dtype: str, text: str) -> None:
    program = once_compiled("gcc", "made.c", IN_C, "-std=gnu99", f"-I{runners_path() / 'native'}", "-ldl", "-Wno-unused-function")
    kind = numpy.dtype(dtype)
    done = subprocess.run([program, "", "", kind.kind, str(kind.itemsize), "3", f"value.ids={text}"], capture_output=True, check=False)

    try:
        filled = made.make([("ids", (3,), dtype)], options(values={"ids": text}))["ids"]
    except Exception as refusal:  # the runner's own type, of a module that this one does not import
        assert done.returncode != 0 and str(refusal) in runner_words(done)
    else:
        assert (done.stdout, done.stderr) == (filled.tobytes(), b"")


def runner_words(done: subprocess.CompletedProcess[bytes]) -> str:
    return (done.stdout + done.stderr).decode()


@pytest.mark.parametrize(("dtype", "rows", "reached"), CASES)
def test_native_integers_as_in_python(made: ModuleType, dtype: str, rows: int | None, reached: int | None) -> None:
    program = once_compiled("gcc", "made.c", IN_C, "-std=gnu99", f"-I{runners_path() / 'native'}", "-ldl", "-Wno-unused-function")
    kind = numpy.dtype(dtype)
    words = ["", "", kind.kind, str(kind.itemsize), "3,1000", *([f"rows.ids={rows}"] if rows is not None else [])]
    done = subprocess.run([program, *words], capture_output=True, check=True)
    signature, ranges = [("x", (1,), "float32"), ("ids", (3, 1000), dtype)], {"ids": rows} if rows is not None else {}
    assert done.stdout == made.make(signature, options(ranges=ranges))["ids"].tobytes()
    assert done.stderr.decode() == made.remark(signature, options(ranges=ranges))


def test_explain_counts_made_integers(made: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    signature = [("x", (1,), "float32"), ("ids", (3, 1 << 16), "int64")]
    array = made.make(signature, options(ranges={"ids": 30_522}))["ids"]
    assert numpy.array_equal(indexed_rows.made(30_522, array.size, 1), array.reshape(-1))
    monkeypatch.setattr(indexed_rows, "_PERIOD", 1 << 10)
    assert indexed_rows.made(5, 1 << 40, 0).size == 1 << 10


def test_native_note_counts_inputs(made: ModuleType) -> None:
    program = once_compiled("gcc", "many.c", MANY_IN_C, "-std=gnu99", f"-I{runners_path() / 'native'}", "-ldl", "-Wno-unused-function")
    done = subprocess.run([program, "", ""], capture_output=True, check=True, text=True)
    assert done.stderr == made.remark([(name, (), "int32") for name in "abcdefgh"], options())


MANY_IN_C = """
#include "runner.h"
int main(int count, char **words) {
    struct runner_shape shape = {0};
    char name[2] = "a";
    runner_count = count;
    runner_words = words;
    for (; *name <= 'h'; ++*name) free(runner_input(name, 0, 'i', 4, &shape));
    runner_about_made("");
    fprintf(stderr, "%s", runner_notes[0]);
    return 0;
}
"""


# -- whole runs


def embedding(folder: Path, nodes: list[Any] | None = None, rows: int = 50_000) -> Path:
    """`words` of 200 bytes a row beside the model, which ONNX Runtime maps, and what the nodes do."""
    stored = [
        onnx.numpy_helper.from_array(numpy.random.default_rng(1).random((rows, 50), numpy.float32), "words"),
        onnx.numpy_helper.from_array(numpy.zeros((2, 50), numpy.float32), "types"),
        onnx.numpy_helper.from_array(numpy.array(0, numpy.int64), "zero"),
        onnx.numpy_helper.from_array(numpy.array(5, numpy.int64), "five"),
    ]
    values = [helper.make_tensor_value_info(name, 7, [1, "n"]) for name in ("input_ids", "mask")]
    out = helper.make_tensor_value_info("out", 1, None)
    gather = helper.make_node("Gather", ["words", "input_ids"], ["out"])
    graph = helper.make_graph(nodes or [gather, helper.make_node("Cast", ["mask"], ["seen"], to=1)], "g", values, [out], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=1024)
    return folder / "net.onnx"


def test_run_tells_keeps_and_touches_ranges(memprof, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    embedding(tmp_path)
    words = ("-r", "onnxruntime", "--repeats", "1", "--warmup", "0", "--runs", "1", "--shape", "input_ids=1,4000")
    done = memprof("run", "net.onnx", *words, "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    assert "made inputs: input_ids is integers from 0 to 49,999, as the graph indexes 50,000 rows by it; mask is all 0" in done.stdout
    (run,) = store.load([tmp_path / "runs.jsonl"]).runs
    assert run.job.ranges == {"input_ids": 50_000}
    line = json.loads((tmp_path / "runs.jsonl").read_text())
    del line["job"]["ranges"]
    (tmp_path / "old.jsonl").write_text(json.dumps(line) + "\n")
    (old,) = store.load([tmp_path / "old.jsonl"]).runs
    assert old.job.ranges == {}
    differing = settings.differing(settings.of_repeats([old]), settings.of_repeats([run]))
    assert list(differing) == [("integers of input_ids", "default", "0 to 49,999")]

    # With one row, as zeros touch, the mapped table stays in the file; with many rows most of its pages come into memory.
    numpy.savez(tmp_path / "zeros.npz", input_ids=numpy.zeros((1, 4000), numpy.int64))
    done = memprof("run", "net.onnx", *words[:-2], "--inputs", "zeros.npz", "-o", "zeros.jsonl")
    assert done.returncode == 0, done.stderr
    (of_zeros,) = store.load([tmp_path / "zeros.jsonl"]).runs
    assert file_backed(run) - file_backed(of_zeros) > 0.5 * (tmp_path / "net.data").stat().st_size


def file_backed(run: Run) -> int:
    """What EXECUTE adds to file-backed memory, in bytes."""
    execute, prepare = run.mark("EXECUTE"), run.mark("PREPARE")
    assert execute is not None and prepare is not None
    return (execute.file_end_bytes or 0) - (prepare.file_end_bytes or 0)


def test_explain_tells_untouched_rows(memprof, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    embedding(tmp_path)
    done = memprof("explain", "net.onnx", "-r", "onnxruntime", "--runs", "1", "--warmup", "0", "--shape", "input_ids=1,1", "-o", "why.json")
    assert done.returncode == 0, done.stderr
    explained = json.loads((tmp_path / "why.json").read_text())
    (told,) = (remark for remark in explained["remarks"] if "never touched" in remark)
    assert told.endswith("of words (9.5 MiB, mapped) were never touched: input_ids indexed 1 of 50,000 rows")
    assert not [finding for finding in explained["findings"] if finding["rule"] == "transformed"], "no kernel computed anything from it"


def test_ctranslate2_takes_whole_vocabulary(memprof, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    from support import ct2_model

    for name, translates, table in (("other", False, "decoder/embeddings/weight"), ("model", True, "encoder/embeddings_0/weight")):
        folder = ct2_model.make(tmp_path / name, translates=translates)
        assert indexed_tables.indexing(folder).tables == (IndexedTable("tokens", table, ct2_model.WORDS),)
    done = memprof("run", "model", "-r", "ctranslate2", "--repeats", "1", "--warmup", "0", "--runs", "1", "-o", "runs.jsonl")
    assert done.returncode == 0, done.stderr
    assert "made inputs: tokens is integers from 0 to 499, as the graph indexes 500 rows by it" in done.stdout


FEEDS = """
class Runtime:
    version = "1"
    def load(self, model, options): pass
    def prepare(self): pass
    def signature(self): return [("input_ids", (1, None), "int64"), ("mask", (1, None), "int64")]
    def set_inputs(self, arrays): self.arrays = arrays
    def execute(self):
        with open("seen.txt", "a") as file:
            print(self.arrays["input_ids"].shape, self.arrays["input_ids"].max() > 40_000, self.arrays["mask"].any(), file=file)
"""


def test_every_shape_has_range(memprof, tmp_path: Path) -> None:
    embedding(tmp_path)
    (tmp_path / "feeds.py").write_text(FEEDS)
    done = memprof("grow", "net.onnx", "-r", "./feeds.py", "--shapes", "input_ids=1,N; N in 50,60", "--budget", "32")
    assert done.returncode in (0, 3), done.stderr
    assert set((tmp_path / "seen.txt").read_text().splitlines()) == {"(1, 50) True False", "(1, 60) True False"}


def test_refused_integers_named(memprof, tmp_path: Path) -> None:
    """A word that is not 0 leads to row 5 of two: nothing in the graph tells it."""
    pytest.importorskip("onnxruntime")
    steps = [
        ("Gather", ["words", "input_ids"], ["found"], {}),
        ("Equal", ["input_ids", "zero"], ["same"], {}),
        ("Not", ["same"], ["other"], {}),
        ("Cast", ["other"], ["one"], {"to": 7}),
        ("Mul", ["one", "five"], ["row"], {}),
        ("Gather", ["types", "row"], ["type"], {}),
        ("Add", ["found", "type"], ["out"], {}),
    ]
    embedding(tmp_path, [helper.make_node(kind, *rest[:2], **rest[2]) for kind, *rest in steps])
    words = ("run", "net.onnx", "-r", "onnxruntime", "--repeats", "1", "--warmup", "0", "--runs", "1")
    done = memprof(*words, "-o", "made.jsonl")
    assert done.returncode == 4
    (failed,) = (line for line in done.stderr.splitlines() if "failed:" in line)
    assert failed.endswith("memprof made these integers: input_ids 0 to 49,999 (--inputs FILE.npz gives your own)")
    numpy.savez(tmp_path / "in.npz", input_ids=numpy.zeros((1, 3), numpy.int64))
    assert memprof(*words, "--inputs", "in.npz", "-o", "own.jsonl").returncode == 0


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-native"])
def test_scalar_gets_its_value(memprof, tmp_path: Path, runtime: str) -> None:
    """The model reshapes one number to as many rows as the scalar says, so that it runs with 1 alone."""
    pytest.importorskip("onnxruntime")
    scalar = helper.make_tensor_value_info("rows", onnx.TensorProto.INT64, [])
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1]), scalar]
    nodes = [
        helper.make_node("Unsqueeze", ["rows", "axis"], ["shape"]),
        helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=1),
    ]
    axis = onnx.numpy_helper.from_array(numpy.array([0]), "axis")
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "net", inputs, [output], [axis])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8), tmp_path / "net.onnx")
    words = ("run", "net.onnx", "-r", runtime, "--repeats", "1", "--warmup", "0", "--runs", "1")

    made = memprof(*words, "-o", "made.jsonl")
    given = memprof(*words, "--input", "rows=1", "-o", "given.jsonl")
    wrong = memprof(*words, "--input", "rows=one", "-o", "wrong.jsonl")
    numpy.savez(tmp_path / "in.npz", rows=numpy.array(1))
    twice = memprof(*words, "--input", "rows=1", "--inputs", "in.npz")

    assert made.returncode == 4 and "rows is made up (--input rows=VALUE)" in made.stderr
    assert given.returncode == 0 and ", x=1, rows holds 1" in given.stdout.splitlines()[2], given.stdout + given.stderr
    assert wrong.returncode == 2 and "--input rows=one: rows is int64, which takes a whole number from -9223" in wrong.stderr
    assert twice.returncode == 2 and "--input rows=1: in.npz has rows too; leave one of the two out" in twice.stderr
