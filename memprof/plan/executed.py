"""The order in which onnxruntime really runs a graph, from its profile. It need not be the file's order.

A separate process loads the model with graph optimization off, so that the nodes are the file's, runs it once with profiling on, on inputs
of zeros and ones, and ends. An event of the profile (a Chrome trace, `cat: Node`, `..._kernel_time`) has the node's index, its name and its
operator in it: `node_index` counts the nodes that are left when every Constant has become an initializer, in the file's order (seen with 1.17
to 1.31). Both name and operator must agree with the file's before the order is believed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError, MeasurementError, os_reason
from ..models import companion_files
from ..recording.importing import onnxruntime_profile
from ..recording.importing.measurement import count
from .graphs import onnx_proto
from .graphs.graph import Graph

_ORDERS = {"default": "DEFAULT", "priority": "PRIORITY_BASED"}
_LONGEST_S = 600

# The program of that process. Its last line is an error, or onnxruntime's version and the path of the profile.
_CHILD = """
import json, os, sys
job = json.load(sys.stdin)
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
try:
    import numpy
    import onnxruntime as ort
except ImportError as error:
    sys.exit("import " + str(error.name))
types = {"float": "float32", "double": "float64", "string": "O"}
try:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_order = getattr(ort.ExecutionOrder, job["order"])
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = job["prefix"]
    session = ort.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
    feed = {}
    for value in session.get_inputs():
        kind = value.type[len("tensor("):-1]
        shape = job["shapes"].get(value.name) or [size if isinstance(size, int) else 1 for size in value.shape]
        fill = numpy.ones if kind.startswith(("float", "double")) else numpy.zeros
        feed[value.name] = fill(shape, dtype=types.get(kind, kind))
    session.run(None, feed)
    print(ort.__version__, session.end_profiling())
except Exception as error:
    sys.exit("error " + " ".join(str(error).split())[:500])
"""


class Executed(Struct, frozen=True):
    """An order that was run, as numbers of the graph's operators, and the time of each by its number. source: the run, as a sentence."""

    order: tuple[int, ...]
    times_ns: tuple[int, ...]
    source: str = ""


def onnxruntime_order(graph: Graph, order: str = "default") -> Executed:
    """The order in which onnxruntime runs a graph, with its default order or `priority`.

    Raises InputError where onnxruntime is missing or the model is no .onnx file, MeasurementError where onnxruntime cannot run the model or its
    profile does not fit the file.
    """
    if graph.format != "onnx":
        raise InputError(f"{graph.path}: onnxruntime runs .onnx models")
    job = {
        "model": str(companion_files.place(graph.path)),  # its external data lies there, and not where a link into a store leads
        "order": _ORDERS[order],
        "shapes": {graph.tensors[number].name: list(graph.tensors[number].shape or ()) for number in graph.inputs},
    }
    from ..base.leftovers import end_leftovers, scratch

    end_leftovers()
    with scratch("plan") as work:
        job["prefix"] = str(work.folder / "profile")
        try:
            child = subprocess.run(
                [sys.executable, "-c", _CHILD],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                timeout=_LONGEST_S,
                cwd=work.folder,  # with -c, Python imports from the working folder first
                # One thread of OpenBLAS too: where the address space is small, more of them look for memory for ever.
                env={**os.environ, **work.variables, "OPENBLAS_NUM_THREADS": "1"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MeasurementError(f"onnxruntime did not run {graph.path} within {_LONGEST_S // 60} minutes") from None
        if child.returncode:
            raise _failure(graph, child)
        version, profile = child.stdout.splitlines()[-1].split(maxsplit=1)
        how = f"onnxruntime {version}, its {order} order, graph optimization off, one thread, inputs of ones and zeros"
        return replace(profiled(graph, Path(profile)), source=f"the order is read from the profile of a run made now: {how}")


def _failure(graph: Graph, child: subprocess.CompletedProcess[str]) -> Exception:
    message = (child.stderr.strip().splitlines() or [""])[-1]
    if message.startswith("import "):
        return InputError(
            f"the executed order needs {message.removeprefix('import ')}, not installed here: pip install 'ml-memprof[onnxruntime]'"
        )
    if child.returncode < 0:
        return MeasurementError(f"onnxruntime ended by signal {-child.returncode} while it ran {graph.path}")
    return MeasurementError(f"onnxruntime does not run {graph.path}: {message.removeprefix('error ')}")


def profiled(graph: Graph, profile: Path) -> Executed:
    """The order in a profile of this graph that was written with graph optimization off.

    Raises InputError for a file that is no such profile, MeasurementError where its nodes are not the file's.
    """
    try:
        text = profile.read_text(encoding="utf-8")
        events, whole = onnxruntime_profile.events(text)
    except OSError as error:
        raise InputError(f"{profile}: {os_reason(error)}") from None
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise InputError(f"{profile}: this is not a profile of onnxruntime, or not a complete one")
    return _executed(graph, [run for event in events if (run := _node_run(event)) is not None])


class _NodeRun(Struct, frozen=True):
    """An event of a node's kernel: the node, the begin and the duration."""

    index: int
    name: str
    kind: str
    begin_ns: int
    time_ns: int


def _node_run(event: object) -> _NodeRun | None:
    """An event as the run of a node's kernel, None for any other event."""
    if not isinstance(event, dict) or event.get("cat") != "Node":
        return None
    name, arguments, when = event.get("name"), event.get("args"), onnxruntime_profile.span(event)
    if not isinstance(name, str) or not name.endswith("_kernel_time") or not isinstance(arguments, dict) or when is None:
        return None
    index = count(arguments.get("node_index"))
    return _NodeRun(index, name.removesuffix("_kernel_time"), str(arguments.get("op_name")), *when) if index is not None else None


def _executed(graph: Graph, runs: Sequence[_NodeRun]) -> Executed:
    nodes = onnx_proto.load(graph.path).graph.node
    places = [place for place, node in enumerate(nodes) if not (node.op_type == "Constant" and node.domain in ("", "ai.onnx"))]
    numbers = {operator.place: number for number, operator in enumerate(graph.operators)}
    times_ns: dict[int, int] = {}
    unlike = within = 0
    for run in sorted(runs, key=lambda run: (run.begin_ns, -run.time_ns)):
        if run.begin_ns < within:
            continue  # a node of a graph inside an operator, where numbers begin again
        node = nodes[places[run.index]] if run.index < len(places) else None
        if node is None or node.op_type != run.kind or (node.name and run.name and node.name != run.name):
            unlike += 1  # a node that onnxruntime put in
            continue
        if any(onnx_proto.inner_graphs(node)):
            within = run.begin_ns + run.time_ns
        number = numbers.get(places[run.index])
        if number is not None and number not in times_ns:
            times_ns[number] = run.time_ns
    missing = [operator.name for number, operator in enumerate(graph.operators) if number not in times_ns]
    if missing:
        raise MeasurementError(
            f"onnxruntime's profile does not have {len(missing)} of {len(graph.operators)} operators of {graph.path} ({missing[0]} among them"
            + (f"; {unlike} of its events are of other nodes)" if unlike else ")")
        )
    return Executed(tuple(times_ns), tuple(times_ns[number] for number in range(len(graph.operators))))
