"""Shared by `tune` and `fit`: the options for the model and for showing the answer, and the way from a question to its answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_INTERRUPTED, UsageError
from . import heed_sigterm
from .measuring import VERBOSE

PYTHON = click.option("--python", metavar="PATH", help="The interpreter that has the runtime.  [default: memprof's own]")
SHAPES = click.option("--shape", "shapes", multiple=True, metavar="INPUT=1,3,224,224", help="An input's shape (repeatable).")
INPUTS = click.option("--inputs", metavar="FILE.npz", help="Inputs by name. memprof makes those that it lacks.")
_MEASURED = (
    click.argument("model", metavar="MODEL"),
    click.option("-r", "--runtime", required=True, metavar="NAME", help="A runtime, or the file of a runtime that you wrote."),
    PYTHON,
    SHAPES,
    INPUTS,
)
_SHOWN = (
    click.option("--unit", metavar="UNIT", help="KiB, MiB, GiB, kB or MB for all sizes.  [default: the unit that suits]"),
    VERBOSE,
    click.option("--json", "as_json", is_flag=True, help="Print the same as JSON."),
)


def shown(function: Any) -> Any:
    """The options for showing the answer."""
    for option in reversed(_SHOWN):
        function = option(function)
    return function


def options(*own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The options of such a command: its own, between the shared ones."""

    def decorate(function: Any) -> Any:
        for option in reversed((*_MEASURED, *own, *_SHOWN)):
            function = option(function)
        return function

    return decorate


def answer(
    kind: str,
    seek: Callable[[Any, Any], Any],
    output: str | None,
    append: bool,
    picture: str | None,
    unit: str | None,
    as_json: bool,
    verbose: bool = False,
    place: Any = None,
) -> int:
    """Call seek(progress, keep), which measures, and print and draw its result; the exit code. kind: the name of the modules of reports for it."""
    from ..measuring import campaign
    from ..measuring.keeping import keeping
    from ..measuring.places.place import HERE
    from . import report, talk
    from .progress import chosen, showing_output

    heed_sigterm()
    if append and output is None:
        raise UsageError("--append needs -o: the file to add to")
    report("tables.grid").choose_unit("bytes", (), unit)  # an unknown one must not cost the result
    if picture is not None:
        report("pictures.saving").check(Path(picture))
    with keeping(Path(output) if output else None, talk, append=append) as keep:
        with closing(chosen()) as progress:
            for remark in campaign.surroundings(0, place or HERE):
                progress.say(remark)
            result = seek(progress, showing_output(keep, progress) if verbose else keep)
        form = "json" if as_json else "text" if sys.stdout.isatty() else "markdown"
        click.echo(report(f"tables.{kind}").render(result, unit=unit, format=form))
    if picture is not None:
        report("pictures.saving").save(report(f"pictures.{kind}").picture(result), picture)
        talk(f"{picture} is drawn")
    if result.interrupted:
        talk("interrupted")
        return EXIT_INTERRUPTED
    return 0
