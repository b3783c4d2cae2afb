"""`memprof scale`: a model, a runtime and ranges of its dimensions in, the law of its memory out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...base.errors import UndecidedError
from .answers import APPEND, OUTPUT, Showing, answer, question
from .subject import QuestionCommand, Words, place_or_fleet_options, reaching

if TYPE_CHECKING:
    from ...campaign.fleet.search_client import Machines
    from ...campaign.progress import Keep, Progress
    from ...growth.scale.answer import Scaled, ScaleRequest
    from ...subjects.suite import Suite

_EPILOG = """\b
Examples:
  memprof scale net.onnx -r onnxruntime --vary batch=1..64 --vary height,width=224..1024
  memprof scale net.onnx -r onnxruntime --vary sessions=1..8
  memprof scale --vary minutes=10..60 --predict minutes=120 --within 4GiB -- python vad.py {minutes}
  memprof scale --vary workers=1..4 --drive http:8000/predict -- gunicorn -w {workers} app:app
  memprof scale net.onnx -r onnxruntime --vary processes=1..8
  memprof scale net.onnx -r onnxruntime --vary processes=1..8 --on ssh:pi@board
  memprof scale net.onnx -r onnxruntime --vary batch=1..16 --predict batch=64 --within 2GiB --confirm
  memprof scale net.onnx -r onnxruntime --vary batch=1..64 --on dask:tcp://127.0.0.1:8786 --machines kind=pi5
"""


@click.command(epilog=_EPILOG, cls=QuestionCommand)
@question(
    click.option(
        "--vary",
        "ranges",
        multiple=True,
        required=True,
        metavar="NAME,...=LOW..HIGH[:STEP]",
        help="A dimension: of the model by its name in the file or as INPUT.AXIS, threads, sessions, processes, or a knob that is a number; of a "
        "program any {NAME} among its words. "
        "Names with one range are equal everywhere. NAME=VALUE fixes it (repeatable).",
    ),
    click.option("--predict", "places", multiple=True, metavar="NAME=VALUE,...", help="Predict the memory at this place (repeatable)."),
    click.option("--within", metavar="SIZE", help="Find the largest value of each dimension that fits into so much memory."),
    click.option("--confirm", is_flag=True, help="Measure the predictions too, where this machine can."),
    click.option("--points", type=click.IntRange(2), metavar="N", help="The most runs to fit to.  [default: 6; 12 for three dimensions]"),
    place_or_fleet_options,
    OUTPUT,
    APPEND,
    click.option("--plot", "picture", metavar="FILE", help="Draw points and law: .png, .svg or .pdf."),
)
def command(
    showing: Showing,
    subject: Words,
    on: str | None,
    remote_dir: str | None,
    machines: str | None,
    **words: Any,
) -> int:
    """Find memory as a law of a model's dimensions: how much each phase's peak grows with batch, context, threads, sessions or processes.

    A few runs are measured where they tell most; the law is a sum of simple terms, each coefficient with an interval. Exit code 3: there was
    too little to tell.
    """
    from ...growth.scale import scale
    from ...subjects.dimensions import parse
    from .fleet import FleetOptions, searching

    fleet = FleetOptions.given(on, remote_dir, machines)
    with reaching(on if fleet is None else None, remote_dir, subject.python) as place, searching(fleet) as several:
        varied = {name for text in words["ranges"] for name in parse(text).names}
        request = _request(subject.suite(place, fleet is not None, varied), fleet=several, **words)
        undecided = ""

        def seek(progress: Progress, keep: Keep) -> Scaled:
            nonlocal undecided
            result = scale.scale(request, progress, keep)
            undecided = result.undecided
            return result

        code = answer("scale", seek, showing, place, several, lambda found: found.unmet, timed=False)
    if undecided and not code:
        raise UndecidedError(undecided)
    return code


def _request(
    suite: Suite,
    ranges: tuple[str, ...],
    places: tuple[str, ...],
    within: str | None,
    points: int | None,
    confirm: bool,
    fleet: Machines | None,
) -> ScaleRequest:
    from ...base.units import parse_bytes
    from ...growth.scale.answer import ScaleRequest
    from ...subjects.dimensions import check_given_once, parse, parse_place

    dimensions = tuple(parse(text) for text in ranges)
    predictions = tuple(parse_place(text, dimensions) for text in places)
    request = ScaleRequest(suite, dimensions, points, predictions, parse_bytes(within) if within else None, confirm, fleet)
    check_given_once(dimensions, suite.set, request.threads)
    return request
