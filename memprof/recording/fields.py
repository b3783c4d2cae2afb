"""Fields of lines that the measured program wrote: it may write anything, so each is checked."""

from __future__ import annotations

from typing import Any

NEVER = 1 << 62


def text(value: Any) -> str:
    """A text, without half surrogate pairs, which a file cannot hold. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError("text is wanted")
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def word(value: Any) -> str:
    """A name of at most 200 characters, with `_` for spaces. Raises TypeError and ValueError."""
    name = "_".join(text(value).split())[:200]
    if not name:
        raise ValueError("a name must not be empty")
    return name


def count(value: Any) -> int:
    """A time or a size. Raises TypeError and ValueError."""
    number = int(value)
    if not 0 <= number < NEVER:
        raise ValueError("no time and no size")
    return number
