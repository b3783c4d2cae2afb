"""`memprof view`: the page of runs files, in a browser."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path

import click

from . import CliCommand


@click.command(cls=CliCommand, epilog="Example: memprof view runs.jsonl")
@click.argument("files", nargs=-1, required=True, metavar="RUNS.jsonl...")
def command(files: tuple[str, ...]) -> None:
    """Open the page in a browser, or print its path if there is no browser."""
    from .page import write_page

    in_browser("report.html", lambda path: write_page(files, path))


def in_browser(name: str, write: Callable[[str], object]) -> None:
    """Write a page to a new folder and open it, or print its path if there is no browser."""
    from . import talk

    folder = Path(tempfile.mkdtemp(prefix="memprof-"))
    path = folder / name
    try:
        write(str(path))
    except BaseException:
        path.unlink(missing_ok=True)
        folder.rmdir()
        raise
    if _opened(path):
        talk(f"{path} is open in the browser")
    else:
        click.echo(path)


def _opened(path: Path) -> bool:
    # Without a display webbrowser finds at best a browser in this terminal, which runs no scripts.
    if sys.platform == "linux" and not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        return False
    try:
        return webbrowser.open(path.as_uri())
    except (webbrowser.Error, OSError):
        return False
