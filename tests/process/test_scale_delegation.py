"""The activations of TFLite models with XNNPACK: the parts of a graph, and the arena and workspace beside what a process really takes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec.structs import replace
from support.suites import one

from memprof import zoo
from memprof.campaign.progress import Silent
from memprof.growth.scale import delegation, predictions, scale
from memprof.growth.scale.answer import ScaleRequest
from memprof.plan.graphs.read import read
from memprof.records import store
from memprof.records.types import Product
from memprof.reports.tables import scale as tables
from memprof.subjects.dimensions import parse

pytestmark = pytest.mark.xdist_group("plan_delegated")  # one worker makes what its tests share

MIB = 1 << 20
DIMENSIONS = tuple(parse(text) for text in ("ids.0,mask.0=1..8", "ids.1,mask.1=16..128"))
FAR = {"ids.0=mask.0": 8, "ids.1=mask.1": 640}
SHAPES = [(3, 41), (1, 16), (5, 16), (1, 101), (5, 101)]

# Prints the resident bytes after a run with an input of this shape.
_RUN = """
import sys
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(model_path=sys.argv[1], num_threads=1)
shape = [int(size) for size in sys.argv[2:]]
for tensor in interpreter.get_input_details():
    interpreter.resize_tensor_input(tensor["index"], shape)
interpreter.allocate_tensors()
for tensor in interpreter.get_input_details():
    interpreter.tensor(tensor["index"])().fill(1)
interpreter.invoke()
print([int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS")][0])
"""


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("zoo") / "encoder.tflite"
    zoo.make("encoder", path, format="tflite", size_bytes=4 * MIB)
    return path


@pytest.fixture(scope="module")
def limited(encoder):
    """A search for a law and for what fits into 300 MiB, which plans thousands of arenas, and the runs that it keeps."""
    pytest.importorskip("ai_edge_litert")
    lines: list[bytes] = []
    request = ScaleRequest(one(encoder, "litert", runs=1), DIMENSIONS, points=4, predictions=(FAR,), within_bytes=300 * MIB)
    return scale.scale(request, Silent(), lines.append), lines


def graphs(path, shapes=SHAPES):
    return [
        ({"batch": batch, "sequence": sequence}, read(path, dict.fromkeys(("ids", "mask"), (batch, sequence))))
        for batch, sequence in shapes
    ]


def test_resident_bytes_follow_attention_peak(encoder):
    pytest.importorskip("ai_edge_litert")
    known = delegation.delegated("litert", sys.executable, graphs(encoder))
    assert known is not None and known.workspaces
    sizes = []
    for batch, sequence in ((1, 16), (8, 128), (8, 640)):
        done = subprocess.run(
            [sys.executable, "-c", _RUN, str(encoder), str(batch), str(sequence)], capture_output=True, text=True, check=True
        )
        sizes.append(int(done.stdout) - known.resident_bytes({"batch": batch, "sequence": sequence}))
    # What is left is the same at each place: the process, the code and the weights.
    assert known.resident_bytes({"batch": 8, "sequence": 640}) > 20 * MIB
    assert max(sizes) - min(sizes) < 2 * MIB


def listed(graph, *parts):
    """The interpreter's operators, with numbers of tensors that are not the graph's, and then these parts by their operators."""
    own = [[each.kind, [number + 100 for number in each.reads], [number + 100 for number in each.writes]] for each in graph.operators]
    return [*own, *(["DELEGATE", [number + 100 for number in reads], [number + 100 for number in writes]] for reads, writes in parts)]


def test_part_operators_between_reads_and_writes(encoder):
    graph = graphs(encoder)[0][1]
    feeding = next(number for number, operator in enumerate(graph.operators) if operator.kind == "GELU")
    before, gelu, after = graph.operators[feeding - 1 : feeding + 2]
    ran = delegation.parts(graph, listed(graph, (before.reads, after.writes)))
    assert ran is not None
    (part,) = [part for part in ran if part.apart]
    assert part.operators == (feeding - 1, feeding, feeding + 1) and part.writes == after.writes
    assert set(part.reads) == set(before.reads) and gelu.writes[0] not in part.reads
    assert sum(len(part.operators) for part in ran) == len(graph.operators)


def test_parts_mismatching_graph_rejected(encoder):
    every = graphs(encoder)
    graph = every[0][1]
    operators = listed(graph)
    assert delegation.parts(graph, [["ABS", *operators[0][1:]], *operators[1:]]) is None
    assert delegation.delegated("openvino", sys.executable, every) is None
    assert delegation.delegated("litert", "/nowhere/python", every) is None


def test_predictions_follow_tflite_arena(limited):
    answer, _ = limited
    assert answer.law is not None and answer.law.planned
    grown = answer.law.predict(FAR).bytes - answer.law.predict({"ids.0=mask.0": 8, "ids.1=mask.1": 128}).bytes
    # 12.5 MiB of it is one copy of attention's 640 x 640 for 8 inputs, which no term of the law has.
    assert 17 * MIB < grown < 21 * MIB
    assert "follow the arena of TFLite's interpreter and XNNPACK's workspace" in tables.render(answer, format="text")


def test_kept_runs_restore_arenas(limited):
    answer, lines = limited
    runs = [store.decode(line, "a run") for line in lines]

    assert sum(run.search.arenas is not None for run in runs) == 1 and max(map(len, lines)) < 200_000
    (again,) = predictions.of_runs(runs)
    assert again.law is not None and again.law.planned
    assert (again.predictions, again.within) == (answer.predictions, answer.within)

    # What cannot be a graph's is left out, and the law is that of the points alone.
    (known,) = (run.search.arenas for run in runs if run.search.arenas is not None)
    for odd in (
        replace(known, amounts=()),
        replace(known, between=((5, 5, 0),)),
        replace(known, between=((0, 1 << 60, 0),)),
        replace(known, workspaces=(((0, 1, -1),),)),
        replace(known, amounts=((Product({"other": 1}, 4),), *known.amounts[1:])),
        replace(known, amounts=((Product({"ids.0=mask.0": 1 << 40}, 4),), *known.amounts[1:])),
        replace(known, amounts=((Product({}, 4, 0),), *known.amounts[1:])),
    ):
        (plain,) = predictions.of_runs([replace(run, search=replace(run.search, arenas=odd)) for run in runs])
        assert plain.law is None or not plain.law.planned


def test_limit_search_beyond_64_bits(limited):
    answer, _ = limited
    assert answer.law is not None and answer.law.planned
    assert answer.law.predict({"ids.0=mask.0": 8, "ids.1=mask.1": 1 << 40}).bytes > 1 << 64
    rows = [row for row in answer.within if row.confirmable]
    assert rows
    for row in rows:
        assert answer.law.predict(row.place([each.label for each in DIMENSIONS])).bytes <= 300 * MIB
