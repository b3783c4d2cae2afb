"""A picture's file."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from memprof.base.errors import InputError, UsageError
from memprof.base.files import check_target, write

from .lettering import whole_letters
from .style import DPI, look

_HEADS = {".png": (b"\x89PNG",), ".pdf": (b"%PDF",), ".svg": (b"<?xml", b"<svg")}
ENDINGS = tuple(_HEADS)


def check(path: Path) -> None:
    """Check a picture's path before anything is drawn.

    Raises UsageError for an unknown ending, InputError where it cannot be written or the file there is no such picture.
    """
    ending = path.suffix.lower()
    if ending not in _HEADS:
        raise UsageError(f"{path}: a picture's name ends in .png, .svg or .pdf")
    check_target(path, lambda head: head.startswith(_HEADS[ending]), f"a {ending[1:].upper()} picture")


def save(figure: Figure, path: str | Path) -> None:
    """Write a picture, whole or not at all; an earlier picture of that name is replaced, anything else is not.

    Raises UsageError for an ending other than .png, .svg and .pdf, InputError where it cannot be written.
    """
    path = Path(path)
    check(path)
    try:
        data = encoded(figure, path.suffix.lower()[1:])
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    write(path, data)


def encoded(figure: Figure, ending: str) -> bytes:
    """A picture as png, svg or pdf. Raises InputError where matplotlib cannot draw it."""
    facts: dict[str, Any] = {
        "png": {"Software": "memprof"},
        "svg": {"Creator": "memprof", "Date": None},
        "pdf": {"Creator": "memprof", "Producer": "matplotlib", "CreationDate": None},
    }
    data = io.BytesIO()
    try:
        with look(), whole_letters(figure, ending == "svg"):
            figure.savefig(data, format=ending, dpi=DPI, metadata=facts[ending])
    except (ValueError, OverflowError, MemoryError) as error:
        # A picture of thousands of rows is larger than matplotlib draws, and figures near the largest ones have no ticks.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"these runs cannot be drawn as one picture ({reason})") from None
    return data.getvalue()


def embedded(figure: Figure) -> str:
    """A picture as an SVG in base64, for the source of a page's image. Raises InputError where matplotlib cannot draw it."""
    return base64.b64encode(encoded(figure, "svg")).decode()
