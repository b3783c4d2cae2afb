#!/usr/bin/env python3
"""`make fuzz`: damaged models, logs, offset problems and profiles for the readers of memprof.models, plan and importing; see harness.py.

The seeds are the small models of the tests.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import harness

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
# Inputs are many and small: none needs a better order or arena than the model's own.
_LIMIT_S = 0.05


def onnx(data: bytes) -> None:
    """An ONNX file, planned as `plan show`, `residency` and `reorder` do."""
    _plan(harness.file(data, "m.onnx"))


def nodes(data: bytes) -> None:
    """An ONNX graph of valid protobuf with some of its operators, names, shapes and numbers exchanged. The input says which."""
    import onnx as package
    from onnx import defs

    pick = random.Random(data)
    kinds = sorted({schema.name for schema in defs.get_all_schemas()})
    model = package.ModelProto.FromString(_models()[pick.choice(sorted(_models()))].read_bytes())
    graphs = [model.graph, *(attribute.g for node in model.graph.node for attribute in node.attribute if attribute.HasField("g"))]
    graph = pick.choice(graphs)
    names = [name for node in graph.node for name in (*node.input, *node.output)] + ["x", "", "nowhere"]
    numbers = [0, 1, 2, 3, -1, 7, 64, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)]
    for _ in range(pick.randint(1, 5)):
        node = pick.choice(graph.node or model.graph.node)
        change = pick.randrange(7)
        if change == 0:
            node.op_type = pick.choice(kinds)
        elif change == 1 and node.input:
            node.input[pick.randrange(len(node.input))] = pick.choice(names)
        elif change == 2 and node.output:
            node.output[pick.randrange(len(node.output))] = pick.choice(names)
        elif change == 3:
            del node.input[pick.randint(0, len(node.input)) :]
        elif change == 4:
            node.input.extend(pick.choices(names, k=pick.randint(1, 3)))
        elif change == 5 and graph.input:
            kind = pick.choice(graph.input).type.tensor_type
            kind.elem_type = pick.choice((kind.elem_type, 7, 9, 8, 1, 99))
            kind.shape.dim.add().dim_value = pick.choice(numbers)
        elif node.attribute:
            attribute = pick.choice(node.attribute)
            attribute.i, attribute.type = pick.choice(numbers), pick.choice((attribute.type, 2, 7))
            attribute.ints.extend(pick.choices(numbers, k=2))
        for tensor in pick.sample(list(graph.initializer), min(1, len(graph.initializer))):
            if pick.random() < 0.2:
                tensor.dims.append(pick.choice(numbers))
                tensor.data_type = pick.choice((tensor.data_type, 1, 7, 8, 99))
    _plan(harness.file(model.SerializeToString(), "n.onnx"))


def tflite(data: bytes) -> None:
    """A TFLite or circle file, the same."""
    _plan(harness.file(data, "m.tflite"))


def weights(data: bytes) -> None:
    """The files of a model and the places of its tensors, for each format."""
    from memprof.explain import snippets
    from memprof.models import indexed_tables
    from memprof.models.identity import identify
    from memprof.models.tensors import tensors

    name = "m.tflite" if data[4:8] in (b"TFL3", b"CIR0") else "m.xml" if b"<" in data[:4] else "m.gguf" if data[:4] == b"GGUF" else "m.onnx"
    name = "model.bin" if data[1:4] == b"\0\0\0" else name  # CTranslate2's begins with its version
    name = "m.pt2" if data[:2] == b"PK" else "m.pte" if data[4:6] == b"ET" else name
    path = harness.file(data, name)
    if name == "m.gguf":
        _kv_cache(path)
    identify(path)
    indexed_tables.indexing(path)
    snippets.index(tensors(path), 64)


def _kv_cache(path: Path) -> None:
    from memprof.base.errors import InputError
    from memprof.models import gguf

    try:
        size = gguf.kv_cache(path).bytes_per_token("q4_0")
    except InputError:
        return  # its tensors may be whole all the same
    assert size >= 0


def log(data: bytes) -> None:
    """Another tool's log, imported and written as a runs file."""
    from memprof.recording import importing
    from memprof.records import store

    for run in importing.runs([(None, harness.file(data))]):
        store.decode(store.encode(run), "input")


def buffers(data: bytes) -> None:
    """An offset problem, packed."""
    from memprof.plan.arenas import packing

    packing.pack(harness.file(data, "b.csv"), None, _LIMIT_S)


def order(data: bytes) -> None:
    """An order of a model as a file: a profile, a list, lines."""
    from memprof.plan.analysis import read_order

    graph, mapped = _profiled()
    read_order(graph, mapped, harness.file(data, "order.json"))


def arrays(data: bytes) -> None:
    """Inputs as an .npz file, for programs that cannot unpack one."""
    from memprof.programs import native

    os.environ["XDG_CACHE_HOME"] = str(Path("cache").absolute())
    native._arrays.__wrapped__(str(harness.file(data, "in.npz")))


TARGETS = {reader.__name__: reader for reader in (onnx, nodes, tflite, weights, log, buffers, order, arrays)}


def _plan(path: Path) -> None:
    from memprof.base.errors import InputError
    from memprof.plan.analysis import Question, analyse, planned, rows
    from memprof.plan.graphs.read import read
    from memprof.plan.residency import residency

    graph = read(path)
    for question in (Question(time_limit_s=_LIMIT_S), Question("training", in_place=True, time_limit_s=0)):
        try:
            plan = planned(graph, question)
        except InputError:
            if question.mode != "training":  # not every model can be trained
                raise
            continue
        chosen = analyse(plan, question).chosen.order
        rows(plan.mapped, chosen)
        residency(plan.graph, plan.mapped, chosen, 1)


@cache
def _profiled() -> tuple[Any, Any]:
    """The graph whose orders are read."""
    from memprof.plan.graphs.read import read
    from memprof.plan.graphs.reduced import problem

    graph = read(_models()["wide"])
    return graph, problem(graph)


@cache
def _models() -> dict[str, Path]:
    """The small models of the tests, by name."""
    from onnx import helper
    from support import plan_models

    from memprof import zoo

    folder = Path("models").absolute()
    folder.mkdir()
    models = {"wide": plan_models.wide(folder / "wide.onnx")}
    node, value, weight = plan_models.node, plan_models.value, plan_models.weight
    shapes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["n"]),
        node("Concat", ["n", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
        node("Split", ["y"], ["a", "b"], axis=1, num_outputs=2),
    ]
    from_array, array = plan_models.numpy_helper.from_array, plan_models.np.array
    constants = [from_array(array([number], "int64"), name) for name, number in (("first", 0), ("rest", 16))]
    inputs, outputs = [value("x", ["n", 4, 4])], [value("a", None), value("b", None)]
    models["shapes"] = plan_models.save(folder / "shapes.onnx", shapes, inputs, outputs, [weight("w", 16, 8), *constants])
    sets = [helper.make_opsetid("", 18)]
    twice = helper.make_function("f", "twice", ["x"], ["y"], [node("Relu", ["x"], ["a"]), node("Add", ["a", "a"], ["y"])], sets)
    calls = [node("twice", ["x"], ["y"], domain="f")]
    models["functions"] = plan_models.save(folder / "f.onnx", calls, [value("x", [4])], [value("y", [4])], functions=[twice], domains=["f"])
    zoo.make("shared_if", folder / "if.onnx", format="onnx", size_bytes=4096)
    models["if"] = folder / "if.onnx"
    zoo.make("founding_example", folder / "e.onnx", format="onnx", size_bytes=64, external_data=True)
    models["external"] = folder / "e.onnx"
    return models


def _gguf() -> list[bytes]:
    """The head of a GGUF file, whose tensors lie beyond its end, and a file without tensors, which is whole."""
    from memprof import zoo

    path = harness.file(b"", "llama.gguf")
    zoo.make("llama", path, format="gguf", size_bytes=600_000)
    head = path.read_bytes()[: harness.LONGEST_INPUT]
    return [head, head[:8] + bytes(8) + head[16:]]


def _pt2() -> bytes:
    """A program of torch.export with one weight, without its graph."""
    about = {"dtype": 7, "sizes": [{"as_int": 4}, {"as_int": 8}]}
    config = {"config": {"w": {"path_name": "weight_0", "use_pickle": False, "tensor_meta": about}}}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/data/weights/weight_0", bytes(range(128)))
        archive.writestr("m/data/weights/model_weights_config.json", json.dumps(config))
    return file.getvalue()


def _pte() -> list[bytes]:
    return [(DATA / name).read_bytes() for name in ("net.pte", "net_xnnpack.pte")]


def seeds(name: str) -> list[bytes]:
    """Small real inputs."""
    if name == "nodes":
        return [b"0", b"1"]
    if name in ("onnx", "tflite", "weights"):
        models = [path.read_bytes() for path in _models().values()] if name != "tflite" else []
        from support import plan_tflite

        if name != "onnx":
            models.append(plan_tflite.control_flow(harness.file(b"", "c.tflite")).read_bytes())
        layer = b'<net><layer name="c" type="Const"><data element_type="f32" shape="2, 4" offset="0" size="32"/></layer></net>'
        variable = struct.pack("<H2sBIIBI8s", 2, b"w", 2, 1, 2, 0, 8, b"abcdefgh")
        ct2 = struct.pack("<IH2sII", 6, 2, b"S", 1, 1) + variable
        return [*models, layer, ct2, _pt2(), *_pte(), *_gguf()] if name == "weights" else models
    if name == "log":
        return [path.read_bytes()[: harness.LONGEST_INPUT] for path in sorted(DATA.iterdir()) if path.is_file()]
    if name == "buffers":
        return [b"id,lower,upper,size\n0,0,3,4\n1,1,4,4\n2,3,9,8\n3,4,9,4\n", b"id,lower,upper,size,offset\nb,0,12,4,0\n"]
    if name == "order":
        mapped = _profiled()[1]
        events = [
            {"cat": "Node", "name": f"{name}_kernel_time", "ts": 9 * at, "dur": 5, "args": {"node_index": str(at), "op_name": kind}}
            for at, (name, kind) in enumerate(zip(mapped.operators, mapped.kinds, strict=True))
        ]
        return ["\n".join(mapped.operators).encode(), json.dumps(mapped.operators).encode(), json.dumps(events).encode()]
    import numpy

    file = io.BytesIO()
    numpy.savez_compressed(file, x=numpy.zeros((4, 4), "float32"), y=numpy.arange(5))
    return [file.getvalue()]


if __name__ == "__main__":
    harness.main(
        harness.Readers(
            TARGETS,
            seeds,
            [
                "memprof.models.tensors",
                "memprof.models.identity",
                "memprof.models.gguf",
                "memprof.plan.analysis",
                "memprof.plan.graphs",
                "memprof.recording.importing",
            ],
            Path(__file__),
        ),
        "Fuzz the readers of models, logs, offset problems and profiles.",
    )
