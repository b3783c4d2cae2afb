"""Foreign words on a terminal: names, messages and output of measured programs may hold anything, and are shown, never obeyed."""

from __future__ import annotations

import unicodedata

# Marks that turn the direction of writing round, of the text after them too.
_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def plain(text: str) -> str:
    """Text on one line, without characters that would steer a terminal, break an XML file or turn the writing's direction round.

    A byte of a file's name that is no UTF-8 is written as Python does, `\\udcff`.
    """
    if text.isascii() and text.isprintable() and "  " not in text:
        return text
    return "".join(map(_shown, " ".join(text.split())))


def shortened(text: str, most: int) -> str:
    """An error's words in at most so many letters. The middle goes: an error that holds another has its root at the end."""
    if len(text) <= most:
        return text
    end = 2 * (most - 3) // 3
    head, tail = text[: most - 3 - end], text[-end:]
    # Whole words, where that costs no more than half.
    head = head if " " not in head[len(head) // 2 :] else head[: head.rindex(" ")]
    tail = tail if " " not in tail[: end // 2] else tail[tail.index(" ") + 1 :]
    return f"{head} … {tail}"


def harmless(text: str) -> str:
    """`plain` with lines and spaces kept, for a cell of a file that may be printed."""
    return "".join(mark if mark in "\n\t" else _shown(mark) for mark in text)


def _shown(mark: str) -> str:
    category = unicodedata.category(mark)
    if category == "Cs":
        return f"\\u{ord(mark):04x}"
    return "�" if category in ("Cc", "Cn", "Co") or mark in _DIRECTIONS else mark
