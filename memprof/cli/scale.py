"""`memprof scale`: a model, a runtime and ranges of its dimensions in, the law of its memory out."""

from __future__ import annotations

from typing import Any

import click

from ..base.errors import UndecidedError
from .answers import APPEND, OUTPUT, SETTINGS, Showing, answer, options
from .subject import machines_option, place_or_fleet_options, reaching, security_options

_EPILOG = """\b
Examples:
  memprof scale net.onnx -r onnxruntime --vary batch=1..64 --vary height,width=224..1024
  memprof scale net.onnx -r onnxruntime --vary sessions=1..8
  memprof scale net.onnx -r onnxruntime --vary processes=1..8
  memprof scale net.onnx -r onnxruntime --vary processes=1..8 --on ssh:pi@board
  memprof scale net.onnx -r onnxruntime --vary batch=1..16 --predict batch=64 --within 2GiB --confirm
  memprof scale net.onnx -r onnxruntime --vary batch=1..64 --on dask:tcp://127.0.0.1:8786 --machines kind=pi5
"""


@click.command(epilog=_EPILOG)
@options(
    click.option(
        "--vary",
        "ranges",
        multiple=True,
        required=True,
        metavar="NAME,...=LOW..HIGH[:STEP]",
        help="A dimension: of the model by its name in the file or as INPUT.AXIS, threads, sessions, processes, or a knob that is a number. "
        "Names with one range are equal everywhere. NAME=VALUE fixes it (repeatable).",
    ),
    click.option("--threads", type=click.IntRange(1), metavar="N", help="The thread count; with one, memory repeats best.  [default: 1]"),
    SETTINGS,
    click.option("--predict", "places", multiple=True, metavar="NAME=VALUE,...", help="Predict the memory at this place (repeatable)."),
    click.option("--within", metavar="SIZE", help="Find the largest value of each dimension that fits into so much memory."),
    click.option("--confirm", is_flag=True, help="Measure the predictions too, where this machine can."),
    click.option("--points", type=click.IntRange(2), metavar="N", help="The most runs to fit to.  [default: 6; 12 for three dimensions]"),
    click.option("--runs", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Timed iterations of each run."),
    place_or_fleet_options,
    machines_option,
    security_options,
    OUTPUT,
    APPEND,
    click.option("--plot", "picture", metavar="FILE", help="Draw points and law: .png, .svg or .pdf."),
)
def command(
    showing: Showing,
    on: str | None,
    remote_dir: str | None,
    machines: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    insecure: bool,
    **words: Any,
) -> int:
    """Find memory as a law of a model's dimensions: how much each phase's peak grows with batch, context, threads, sessions or processes.

    A few runs are measured where they tell most; the law is a sum of simple terms, each coefficient with an interval. Exit code 3: there was
    too little to tell.
    """
    from ..scale import scale
    from .fleet import Fleet, searching

    fleet = Fleet.given(on, remote_dir, machines, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, insecure=insecure)
    with reaching(on if fleet is None else None, remote_dir, words["python"]) as place, searching(fleet) as several:
        request = _request(place=place, fleet=several, **words)
        undecided = ""

        def seek(progress: Any, keep: Any) -> Any:
            nonlocal undecided
            result = scale.scale(request, progress, keep)
            undecided = result.undecided
            return result

        code = answer("scale", seek, showing, place, several)
    if undecided and not code:
        raise UndecidedError(undecided)
    return code


def _request(
    ranges: tuple[str, ...],
    settings: tuple[str, ...],
    shapes: tuple[str, ...],
    places: tuple[str, ...],
    within: str | None,
    **fields: Any,
) -> Any:
    from ..base.units import parse_bytes
    from ..programs.runtimes import split_setting
    from ..scale.answer import ScaleRequest
    from ..subjects.dimensions import check_given_once, parse, parse_place
    from ..subjects.suite import parse_shape

    dimensions = tuple(parse(text) for text in ranges)
    knobs = dict(split_setting(text) for text in settings)
    check_given_once(dimensions, knobs, fields["threads"])
    return ScaleRequest(
        dimensions=dimensions,
        knobs=knobs,
        shapes=dict(parse_shape(text) for text in shapes),
        predictions=tuple(parse_place(text, dimensions) for text in places),
        within_bytes=parse_bytes(within) if within else None,
        **fields,
    )
