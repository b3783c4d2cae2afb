"""The commands of `memprof heap` that look at profiles: show, plot, view, diff. Each is parse, one call, write."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import CliCommand
from .heap_files import opened, profile_options

if TYPE_CHECKING:
    from ...heap.frames import By
    from ...heap.profile import HeapProfile

_FILE = click.argument("file", metavar="FILE")
_BY = click.option(
    "--by", type=click.Choice(["function", "module", "line"]), default="function", show_default=True, help="The places to sum up."
)
_PHASE = click.option("--at-phase", "phase", metavar="PHASE", help="The largest tree of this phase: load, prepare, execute or a name.")
_INVERT = click.option(
    "--invert",
    is_flag=True,
    help="Turn the tree round: first where the program begins, such as main, and below each function what it calls.  [default: first what "
    "allocates, and below each function who called it]",
)
_FULL = click.option("--full-names", is_flag=True, help="Names as the tool has them, with templates and parameters.")
_FOLD = click.option(
    "--fold/--no-fold",
    default=True,
    help="Leave out allocators' own frames, such as malloc, and of Python's stacks all but the lines of the program.  [default: fold]",
)
_DEPTH = click.option(
    "--depth", type=click.IntRange(0), default=10, show_default=True, help="Frames to show between two branchings; 0 for all."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the same as JSON.")


def _share(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A share from `5%` or `5`."""
    from ...base.errors import UsageError

    if value is None:
        return None
    try:
        number = float(value.strip().removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError(f"{parameter.opts[0]} {value!r} is not a percentage: write 5%")
    return number / 100


def _least(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--min", "least", default="1%", show_default=True, callback=_share, metavar="PERCENT", help=help)


_SHOW = """\b
Examples:
  memprof heap show massif.out.4711
  memprof heap show massif.out.4711 --at-phase prepare --invert --min 2%
  memprof heap show capture.memray --by module --json
  memprof heap show heap.pb.gz --value alloc_space
"""


@click.command(cls=CliCommand, epilog=_SHOW)
@_FILE
@profile_options
@click.option("--snapshot", type=int, metavar="N", help="The tree of this snapshot.  [default: the largest tree]")
@_PHASE
@_BY
@_INVERT
@_least("Gather nodes that are smaller than this.")
@_FOLD
@_DEPTH
@_FULL
@_JSON
def show(file: str, value: str | None, yes: bool, as_json: bool, **look: Any) -> None:
    """Show who allocated the peak: the total over time, the tree, the largest sites and modules."""
    from . import report

    profile = opened(file, value, yes)
    module = report("heap.show")
    chosen = module.ProfileView(**look)
    click.echo(_json(module.facts(profile, chosen)) if as_json else module.render(profile, chosen, **_terminal()))


_PLOT = """\b
Examples:
  memprof heap plot massif.out.4711 -o peak.png
  memprof heap plot heaptrack.app.zst -o lines.svg --by line
"""


@click.command(cls=CliCommand, epilog=_PLOT)
@_FILE
@profile_options
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="The picture: .png, .svg or .pdf. It replaces an earlier picture, but no other file.",
)
@_BY
@_FOLD
@click.option("--json", "as_json", is_flag=True, help="Print the figures of the picture as JSON.")
def plot(file: str, value: str | None, yes: bool, output: str, by: str, fold: bool, as_json: bool) -> None:
    """Draw the largest sites over time as stacked areas, with the total, the peak and the phases."""
    from . import report, talk

    saving, module = report("pictures.saving"), report("heap.plot")
    saving.check(Path(output))
    profile = opened(file, value, yes)
    saving.save(module.render(profile, by=by, fold=fold), output)
    if as_json:
        click.echo(_json(module.facts(profile, by=by, fold=fold) | {"picture": output}))
    talk(f"{output} is drawn")


_VIEW = """\b
Examples:
  memprof heap view massif.out.4711 -o heap.html
  memprof heap view before.massif after.massif
"""


@click.command(cls=CliCommand, epilog=_VIEW)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@profile_options
@click.option(
    "-o", "--output", metavar="FILE.html", help="The page. It replaces an earlier page, but no other file.  [default: open a browser]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the name and size of the page as JSON.")
def view(files: tuple[str, ...], value: str | None, yes: bool, output: str | None, as_json: bool) -> None:
    """Make an interactive page: the heap over time and the tree of any snapshot. Several files stand side by side on one scale."""
    from ...base.errors import UsageError
    from . import talk
    from .view import in_browser

    if output is None:
        if as_json:
            raise UsageError("--json prints the name and size of a page: name it with -o FILE.html")
        in_browser("heap.html", lambda path: _write_page([opened(file, value, yes) for file in files], path))
        return
    from . import report

    report("heap.page").check(Path(output))
    size = _write_page([opened(file, value, yes) for file in files], output)
    if as_json:
        click.echo(_json({"page": output, "bytes": size, "files": list(files)}))
    from ...base.units import format_bytes

    talk(f"{output} holds the page ({format_bytes(size)})")


def _write_page(profiles: list[HeapProfile], output: str) -> int:
    from . import report, write_html

    return write_html(output, report("heap.page").render(profiles))


_DIFF = """\b
Examples:
  memprof heap diff before.massif after.massif
  memprof heap diff before.memray after.memray --by line
  memprof heap diff before.massif after.massif --fail-if-grows 5%
"""


@click.command(cls=CliCommand, epilog=_DIFF)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@profile_options
@_PHASE
@_BY
@_INVERT
@_least("Leave out changes that are smaller than this.")
@_FOLD
@_DEPTH
@_FULL
@click.option("--fail-if-grows", "limit", callback=_share, metavar="PERCENT", help="Exit with code 1 if the peak grew by more than this.")
@_JSON
def diff(
    before: str,
    after: str,
    value: str | None,
    yes: bool,
    phase: str | None,
    by: By,
    invert: bool,
    fold: bool,
    limit: float | None,
    as_json: bool,
    **look: Any,
) -> int:
    """Compare two profiles: growth and shrinkage by module, by function or line, and by call path."""
    from ...base.errors import EXIT_OK, EXIT_REGRESSION
    from ...heap import diff as judging
    from . import report, talk

    difference = judging.diff(opened(before, value, yes), opened(after, value, yes), phase=phase, by=by, invert=invert, fold=fold)
    module = report("heap.diff")
    chosen = module.DiffView(by=by, invert=invert, **look)
    click.echo(_json(module.facts(difference, chosen)) if as_json else module.render(difference, chosen, **_terminal()))
    if limit is None:
        return EXIT_OK
    grew = judging.verdict(difference, limit)
    if grew:
        talk(f"{module.headline(difference)} That is more than the {100 * limit:g}% allowed")
    return EXIT_REGRESSION if grew else EXIT_OK


def _json(facts: Any) -> str:
    return json.dumps(facts, indent=1, ensure_ascii=True)


def _terminal() -> dict[str, Any]:
    """The form of text for standard output: as wide as the terminal, or COLUMNS, or 120 in a pipe; coloured only on a terminal."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    return {
        "width": shutil.get_terminal_size((120, 40)).columns,
        "colour": console.is_terminal and not console.no_color and console.color_system is not None,
        "unicode": _drawable(),
    }


def _drawable() -> bool:
    try:
        "├─█…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
