"""`memprof plan`: the memory that a graph needs, before it runs, and the order that needs least."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...base.units import parse_bandwidth, parse_bytes, parse_duration_ns
from . import CliGroup
from .subject import with_options

if TYPE_CHECKING:
    from ...plan.analysis import Planned, Question

_EPILOG = """\b
Examples:
  memprof plan show model.onnx --steps
  memprof plan reorder model.onnx -o better.onnx
  memprof plan residency model.tflite --lookahead 1 --device-bandwidth 200MB/s
  memprof plan plot model.onnx -o plan.html
  memprof plan pack buffers.csv --capacity 1048576
"""


@click.group(cls=CliGroup, epilog=_EPILOG)
def command() -> None:
    """Plan a model's memory without running it: the peak of its order, the best order, and the arena that each needs.

    Reads ONNX, TFLite and circle files. Scratch memory of kernels is outside a static plan.
    """


def _given_shapes(_context: object, _parameter: object, words: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    from ...plan.graphs.read import given_shapes

    return given_shapes(words)


_MODEL = click.argument("model", type=click.Path(path_type=Path))
_SHAPE = click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_given_shapes,
    metavar="NAME=1,3,224,224",
    help="A tensor's shape where the model leaves it open (repeatable).",
)
_BATCH = click.option("--batch", type=int, metavar="N", help="The first dimension of every input.")
_MODE = click.option(
    "--mode", type=click.Choice(["inference", "training"]), default="inference", show_default=True, help="What is planned."
)
_OPTIMIZER = click.option(
    "--optimizer",
    type=click.Choice(["sgd", "momentum", "adam"]),
    help="In training: the optimizer, which keeps values for each weight.  [default: sgd]",
)
_GRADIENTS = click.option(
    "--gradients", type=click.Choice(["at-once", "after"]), help="In training: when gradients are applied.  [default: at-once]"
)
_IN_PLACE = click.option("--in-place", is_flag=True, help="Operators write over an input of the same size if they can.")
_LIMIT = click.option(
    "--time-limit",
    "limit",
    default="10s",
    show_default=True,
    metavar="TIME",
    help="The time for finding the best order, and for packing it; 0 skips both.",
)
_ORDER = click.option(
    "--order",
    default="model",
    show_default=True,
    metavar="model|best|onnxruntime|onnxruntime:priority|FILE",
    help="The order to look at. onnxruntime's is read from the profile of a run made now. "
    "A FILE has the name of an operator on each line, or is such a profile.",
)
_FORCE = click.option("--force", is_flag=True, help="Replace existing files.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, in bytes.")
_UNIT = click.option("--unit", metavar="UNIT", help="B, KiB, MiB, GiB, kB or MB for all sizes.  [default: the unit that suits each table]")


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda function: with_options(options, function)


_GRAPH = _options(_MODEL, _SHAPE, _BATCH, _MODE, _OPTIMIZER, _GRADIENTS, _IN_PLACE)


def _planned(
    model: Path,
    shapes: dict[str, tuple[int, ...]],
    batch: int | None,
    in_place: bool,
    mode: str = "inference",
    optimizer: str | None = None,
    gradients: str | None = None,
    limit: str = "10s",
    inline: bool = True,
) -> tuple[Planned, Question]:
    """The plan of a model, and the question it answers."""
    from ...plan.analysis import Question, planned
    from ...plan.graphs.read import read
    from . import talk

    graph = read(model, shapes, batch, inline)
    if graph.moved:
        talk(f"{model}: {graph.moved}")
    for gap in graph.unknown:
        talk(f"{model}: {gap.what}{': ' if gap.names else ''}{', '.join(gap.names[:4])}{' ...' if len(gap.names) > 4 else ''}")
    question = Question(mode, in_place, optimizer, gradients, parse_duration_ns(limit) / 1e9)  # type: ignore[arg-type]
    return planned(graph, question), question


@command.command(
    epilog="""\b
Examples:
  memprof plan show model.onnx --batch 8
  memprof plan show model.onnx --order best --steps
  memprof plan show model.onnx --mode training --optimizer adam --gradients after
  memprof plan show model.onnx --order onnxruntime --json
"""
)
@_options(_GRAPH, _ORDER, _LIMIT, _UNIT, _JSON)
@click.option("--steps", "with_steps", is_flag=True, help="Print the table of the order's steps.")
def show(order: str, with_steps: bool, unit: str | None, as_json: bool, **words: Any) -> None:
    """Print the memory that a model's tensors need, now and at best.

    Shows the weights, and which of them are shared, copied or folded. Shows the peak of tensors in the model's order and in the best order, with
    its lower bound and whether that is proven. Shows the arena that an offset planner needs for each, and the operator that forces the peak, with
    the tensors in memory there.
    """
    from ...plan.analysis import analyse, rows
    from . import answer_format, report

    plan, question = _planned(**words)
    analysis = analyse(plan, question, order)
    table = rows(plan.mapped, analysis.chosen.order) if with_steps else None
    click.echo(report("tables.plan").show(analysis, table, format=answer_format(as_json), unit=unit))


@command.command(
    epilog="""\b
Examples:
  memprof plan reorder model.onnx -o better.onnx
  memprof plan reorder model.tflite -o better.tflite --time-limit 60s
"""
)
@_options(_MODEL, _SHAPE, _BATCH, _IN_PLACE, _LIMIT)
@click.option("--order", default="best", show_default=True, metavar="best|FILE|...", help="The order to write; see `plan show`.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file to write, of the same format."
)
@_FORCE
@_JSON
def reorder(output: Path, order: str, force: bool, as_json: bool, **words: Any) -> None:
    """Write a model with its operators in the best order.

    The rest of the file stays as it is, byte for byte. The same operators on the same values give the same results. TFLite runs the file's order, and
    so does onnxruntime with `order=priority`.
    """
    from ...plan.reordering import reordered
    from . import report, talk

    plan, question = _planned(**words, inline=False)
    reordering = reordered(plan, question, order, output, force)
    if as_json:
        click.echo(report("tables.plan").reordered(reordering, format="json"))
    else:
        talk(report("tables.plan").reordered(reordering))


@command.command(
    epilog="""\b
Examples:
  memprof plan residency model.onnx
  memprof plan residency model.onnx --lookahead 2 --device-bandwidth 200MB/s --runs runs.jsonl
  memprof plan residency model.tflite --mode training --optimizer adam
"""
)
@_options(_GRAPH, _ORDER)
@click.option(
    "--lookahead", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Operators ahead whose needs are resident."
)
@click.option(
    "--device-bandwidth", "bandwidth", metavar="SIZE/s", help="The bandwidth of the device that holds the rest, for example 200MB/s."
)
@click.option(
    "--runs",
    "files",
    multiple=True,
    metavar="RUNS.jsonl",
    help="Measured runs of this model, to show beside the plan. The plan takes their shapes (repeatable).",
)
@click.option(
    "--profile", type=click.Path(path_type=Path), metavar="FILE", help="onnxruntime's profile of this model, for the operators' times."
)
@_options(_UNIT, _JSON)
def residency(bandwidth: str | None, unit: str | None, as_json: bool, **words: Any) -> None:
    """Say how little memory would do if the rest were swapped out.

    Only the needs of the current operator, and of N operators ahead, are then resident.
    """
    from ...plan.swapping import at_shapes, known_runs, swapping
    from . import answer_format, report, talk

    speed = parse_bandwidth(bandwidth) if bandwidth else None
    measured = known_runs(words["model"], words.pop("files"))
    if words["batch"] is None:
        words["shapes"], measured = at_shapes(measured, words["shapes"])
    question = {name: words.pop(name) for name in ("order", "lookahead", "profile")}
    plan, _ = _planned(**words)
    residencies, remarks = swapping(plan, **question)
    for remark in (*measured.remarks, *remarks):
        talk(remark)
    text = report("tables.residency").show(
        str(words["model"]),
        residencies,
        measured.runs,
        format=answer_format(as_json),
        bandwidth=speed,
        unit=unit,
        timed=question["profile"] is not None,
        assumptions=plan.graph.assumptions,
    )
    click.echo(text)


@command.command(
    epilog="""\b
Examples:
  memprof plan plot model.onnx -o plan.png
  memprof plan plot model.tflite -o plan.html --in-place
"""
)
@_options(_GRAPH, _ORDER, _LIMIT)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The picture: .png, .svg, .pdf, or .html to hover over.",
)
def plot(output: Path, order: str, **words: Any) -> None:
    """Draw memory over the steps of an order, and the arena.

    The best order is drawn beside it. In the arena, each tensor is drawn over its live range, at its offset.
    """
    from ...plan.analysis import analyse
    from . import report, talk

    picture = report("pictures.plan")
    picture.check(output)
    plan, question = _planned(**words)
    picture.save(plan, analyse(plan, question, order), output)
    for assumption in plan.graph.assumptions:
        talk(f"{words['model']}: assumed: {assumption}")
    talk(f"{output} is drawn")


@command.command(
    epilog="""\b
Examples:
  memprof plan pack buffers.csv
  memprof plan pack buffers.csv --capacity 1048576 --time-limit 60s -o packed.csv
"""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--capacity",
    metavar="SIZE",
    help="Stop at the first arena that fits into this. Exit code 5: no arena can fit. Exit code 3: none was found.",
)
@click.option("--time-limit", "limit", default="10s", show_default=True, metavar="TIME", help="The time for the search.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the buffers with their offsets, in the same format."
)
@_FORCE
@_JSON
def pack(file: Path, capacity: str | None, limit: str, output: Path | None, force: bool, as_json: bool) -> None:
    """Find offsets for the buffers of a CSV file.

    The file is MiniMalloc's: id,lower,upper,size. The arena is the smallest that can be found.
    """
    from ...base.errors import InputError, UndecidedError
    from ...base.files import FORCE, check_new
    from ...plan.arenas import packing
    from . import answer_format, report, write

    check_new(*([output] if output else []), instead=FORCE, overwrite=force)
    packed = packing.pack(file, parse_bytes(capacity) if capacity else None, parse_duration_ns(limit) / 1e9)
    click.echo(report("tables.plan").packed(packed, format=answer_format(as_json)))
    if output is not None:
        write(str(output), lambda path: path.write_text(packed.csv, encoding="utf-8"))
    if packed.refusal is not None:
        raise (InputError if packed.verdict == "impossible" else UndecidedError)(packed.refusal)
