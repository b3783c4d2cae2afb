"""The frame of a place in a massif file: an address and a function with `(file:line)` or `(in module)`, or a sum of small places."""

from __future__ import annotations

import re

from .frames import Frame
from .unnamed import is_unnamed

_PLACE = re.compile(r"(0x[0-9A-Fa-f]{1,16}): (.*)", re.DOTALL)
_BELOW = re.compile(r"in (\d+) places?,.*below .*threshold.*", re.DOTALL)
_SOURCE = re.compile(r"(.+):(\d{1,9})", re.DOTALL)


def parse_place(text: str) -> Frame:
    """The frame of a place, as it stands behind the bytes in a tree line."""
    if match := _BELOW.fullmatch(text):
        return Frame("below the threshold", kind="below", places=int(match[1][:18]))
    match = _PLACE.fullmatch(text)
    if match is None:
        return Frame(text, kind="root")
    function, where = _split_place(match[2])
    address = int(match[1], 16)
    if where is None:
        return _site(function, None, None, None, address)
    if where.startswith("in ") and len(where) > 3:
        return _site(function, None, None, where[3:], address)
    if source := _SOURCE.fullmatch(where):
        return _site(function, source[1], int(source[2]), None, address)
    # heaptrack names the module without `in`.
    return _site(function, None, None, where, address)


def _site(function: str, file: str | None, line: int | None, module: str | None, address: int) -> Frame:
    return Frame(function, file, line, module, address, "unknown" if is_unnamed(function, module) else "site")


def _split_place(text: str) -> tuple[str, str | None]:
    """`f(int) (a.c:1)` as `f(int)` and `a.c:1`; a function alone, and None, if no bracket after a space ends the text."""
    if not text.endswith(")"):
        return text, None
    cut = text.rfind(" (")
    if cut > 0 and text.count("(", cut) == text.count(")", cut) == 1:
        where = text[cut + 2 : -1]
        return (text[:cut], where) if _is_where(where) else (text, None)
    depth = 0
    for index in range(len(text) - 1, 0, -1):
        depth += (text[index] == ")") - (text[index] == "(")
        if depth == 0:
            where = text[index + 1 : -1]
            return (text[: index - 1], where) if text[index - 1] == " " and _is_where(where) else (text, None)
    return (text[:cut], text[cut + 2 : -1]) if cut > 0 else (text, None)  # a path that holds a bracket


def _is_where(text: str) -> bool:
    return text.startswith("in ") or ":" in text or "/" in text or ".so" in text
