"""`memprof fit`: a model and a runtime in, the least memory in which it runs out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...base.errors import UsageError
from .answers import APPEND, OUTPUT, Showing, answer, question
from .subject import QuestionCommand, Words, here_only

if TYPE_CHECKING:
    from ...places.limits import By

_EPILOG = """\b
Examples:
  memprof fit model.tflite -r tflite --threads 1
  memprof fit -- ./engine model.bin
  memprof fit model.onnx -r onnxruntime --within 90MiB
  memprof fit model.onnx -r onnxruntime --part whole --time 3min
  memprof fit model.onnx -r onnxruntime --set optimization=basic --max-latency 2x -o fit.jsonl --plot fit.png
"""
_PARTS = {"whole": "whole run", "load": "MODEL_LOAD", "prepare": "PREPARE", "execute": "EXECUTE"}


@click.command(epilog=_EPILOG, cls=QuestionCommand)
@question(
    click.option("--max-latency", metavar="+5%|2x", help="A limit counts as working only if an iteration takes at most so much longer."),
    click.option("--part", "parts", multiple=True, type=click.Choice(list(_PARTS)), help="Only this part (repeatable).  [default: all]"),
    click.option(
        "--by",
        type=click.Choice(["auto", "cgroup", "data", "address-space"]),
        default="auto",
        show_default=True,
        help="The kind of limit: a control group (cgroup), RLIMIT_DATA (data) or RLIMIT_AS (address-space). "
        "The last two count allocated memory. auto takes a control group if it can.",
    ),
    click.option(
        "--within",
        metavar="SIZE",
        help="Try this one limit on the whole run, up to three times, and search none. Exit code 5: it does not run within it.",
    ),
    click.option("--time", "time_", metavar="TIME", help="How long the search may take.  [default: as long as it needs]"),
    here_only("fit", "memprof makes the control groups of its trials here, and looks here for what may be limited"),
    OUTPUT,
    APPEND,
    click.option("--plot", "picture", metavar="FILE", help="Draw latency and page faults against the limit: .png, .svg or .pdf."),
)
def command(
    showing: Showing,
    subject: Words,
    parts: tuple[str, ...],
    max_latency: str | None,
    by: By,
    within: str | None,
    time_: str | None,
) -> int:
    """Find the least memory in which a model runs: all of it, its loading, its preparing, and its steady execution. Or that of a program.

    Each trial starts in a control group, and memprof bisects the group's limit. A group is charged for the pages that the run brings in. The
    RSS peak beside it counts those too that others brought in. The answer ends with lines for a container's manifest.
    """
    from ...base.units import parse_bytes, parse_duration_ns, parse_ratio
    from ...footprint import fit

    if showing.picture is not None and parts and "whole" not in parts:
        raise UsageError("--plot draws the cost of a limit on the whole run: add --part whole")
    wanted = tuple(_PARTS[name] for name in parts) or ((fit.WHOLE,) if subject.program or within else fit.PARTS)
    request = fit.FitRequest(
        subject.suite(),
        parse_ratio(max_latency) if max_latency else None,
        wanted,
        by,
        parse_duration_ns(time_) if time_ else None,
        parse_bytes(within) if within else None,
    )
    return answer("fit", lambda progress, keep: fit.fit(request, progress, keep), showing, unmet=lambda found: found.unmet)
