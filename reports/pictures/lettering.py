"""Text that is drawn: letters that some font here has, how wide they are, and how a long name is shortened."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

from memprof.base.terminal_text import plain

from .. import short_names
from .style import BODY, SMALL, families


@lru_cache(maxsize=1)
def _drawable() -> frozenset[int]:
    code_points: set[int] = set()
    for family in families():
        code_points |= FT2Font(fontManager.findfont(FontProperties(family=[family]))).get_charmap().keys()
    return frozenset(code_points)


def readable(text: str) -> str:
    """Plain text in letters that some font here has. Other letters are named by their code, for they would all look the same.

    save() gives an SVG the letters back.
    """
    return "".join(mark if ord(mark) in _drawable() else f"[U+{ord(mark):04X}]" for mark in plain(text))


_NAMED_LETTER = re.compile(r"\[U\+([0-9A-F]{4,6})\]")


def _letter(named: re.Match[str]) -> str:
    code = int(named[1], 16)
    is_made_here = code <= 0x10FFFF and code not in _drawable() and plain(chr(code)) == chr(code)  # or it is part of somebody's name
    return chr(code) if is_made_here else named[0]


@lru_cache(maxsize=1)
def _ruler() -> Any:
    return RendererAgg(1, 1, 72)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=10_000)
def _pixels(text: str, weight: str) -> float:
    font = FontProperties(family=[*families()], size=100, weight=weight)
    return float(_ruler().get_text_width_height_descent(text, font, ismath=False)[0])


@lru_cache(maxsize=10_000)
def _advance(mark: str, weight: str) -> float:
    """How far a letter moves the next one, as a share of the font's size. Kerning is left out: it would only bring letters closer."""
    return (_pixels(f"|{mark}|", weight) - _pixels("||", weight)) / 100


def width(text: str, size: float = BODY, weight: str = "normal") -> float:
    """How wide readable text is drawn, in inches; not escaped."""
    return sum(_advance(mark, weight) for mark in text) * size / 72 * 1.03


def height(size: float = BODY, lines: int = 1) -> float:
    """How high so many lines of text are, in inches."""
    return lines * size * 1.25 / 72


def shortened(text: str, inches: float, size: float = BODY, weight: str = "normal") -> str:
    """Readable text with as much of its end left out as it takes to fit."""
    return short_names.shortened(text, inches, lambda part: width(part, size, weight))


def escaped(text: str) -> str:
    """Text that matplotlib draws as it is: two `$` would be mathematics."""
    return text.replace("$", r"\$")


def label(text: str, inches: float = 100.0, size: float = BODY, weight: str = "normal") -> str:
    """Anyone's text, made ready for matplotlib: on one line, shortened at its end to fit, escaped."""
    return escaped(shortened(readable(text), inches, size, weight))


def distinct(texts: Sequence[str], inches: float, size: float = BODY, weight: str = "normal") -> list[str]:
    """Different texts, readable, shortened to fit, and different still, without escapes."""
    return short_names.distinct(texts, inches, lambda part: width(part, size, weight), readable)


def wrapped(text: str, inches: float, size: float = SMALL, most: int = 3, weight: str = "normal") -> list[str]:
    """Text in lines that fit, escaped. A word wider than a line is continued on the next. With more than `most` lines the last is shortened."""
    lines: list[str] = []
    room = 0.0
    space = width(" ", size, weight)
    for word in readable(text).split(" "):
        for place, part in enumerate(_parts(word, inches, size, weight)):
            wide = width(part, size, weight)
            if lines and not place and space + wide <= room:
                lines[-1] += " " + part
                room -= space + wide
            else:
                lines.append(part)
                room = inches - wide
    if len(lines) > most:
        lines = [*lines[: most - 1], shortened(" ".join(lines[most - 1 :]), inches, size, weight)]
    return [escaped(line) for line in lines]


_BREAKS = re.compile(r".*[-/_.,=:]", re.DOTALL)


def _parts(word: str, inches: float, size: float, weight: str) -> list[str]:
    """A word in pieces that fit a line each, where it can be parted behind a mark such as `/` or `_`."""
    parts = [""]
    for letter in word:
        if parts[-1] and width(parts[-1] + letter, size, weight) > inches:
            mark = _BREAKS.match(parts[-1])
            end = mark.end() if mark and mark.end() > len(parts[-1]) / 2 else len(parts[-1])
            parts[-1:] = [parts[-1][:end], parts[-1][end:]]
        parts[-1] += letter
    return parts


@contextmanager
def whole_letters(figure: Figure, wanted: bool) -> Iterator[None]:
    """Within it, letters that no font here has are letters again: whoever opens an SVG may have the font."""
    changed = []
    if wanted:
        for text in figure.findobj(Text):
            assert isinstance(text, Text)
            if _NAMED_LETTER.search(text.get_text()):
                changed.append((text, text.get_text()))
                text.set_text(_NAMED_LETTER.sub(_letter, text.get_text()))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield
    for text, before in changed:
        text.set_text(before)
