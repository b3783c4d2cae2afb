"""Long names cut to fit, so that different names stay different. How long a text is, a measure says: its letters, or its inches as drawn."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import zip_longest

Measure = Callable[[str], float]


def shortened(text: str, room: float, measure: Measure = len) -> str:
    """A text with as much of its end left out as it takes to fit. Without its middle a sentence could claim the opposite."""
    if measure(text) <= room + 1e-9:
        return text
    fitting = max(bisect_right(range(1, len(text)), room, key=lambda keep: measure(_beginning(text, keep))), 1)
    space = text.rfind(" ", fitting // 2, fitting + 1)  # whole words, where that costs no more than half
    return _beginning(text, space if space > 0 else fitting)


def _beginning(text: str, keep: int) -> str:
    return text[:keep].rstrip() + "…"


def distinct(texts: Sequence[str], room: float, measure: Measure = len, say: Callable[[str], str] = str) -> list[str]:
    """Texts in the letters of `say`, shortened to fit; those that differ are different still.

    Texts that differ only after the cut are cut around the difference instead. Where that does not help, they are numbered.
    """
    whole = [say(text) for text in texts]
    short = [shortened(text, room, measure) for text in whole]
    for alike in _collisions(short, texts):
        columns = zip_longest(*(whole[index] for index in alike))
        common = next((place for place, letters in enumerate(columns) if len(set(letters)) > 1), 0)
        for index in alike:
            short[index] = _around(whole[index], common, room, measure)
    for alike in _collisions(short, texts):
        for place, index in enumerate(alike, 1):
            mark = f" #{place}"
            short[index] = shortened(whole[index], room - measure(mark), measure) + mark
    return short


def _collisions(short: Sequence[str], texts: Sequence[str]) -> list[list[int]]:
    """The places of different texts that came out the same."""
    places_of: dict[str, list[int]] = {}
    for index, text in enumerate(short):
        places_of.setdefault(text, []).append(index)
    return [places for places in places_of.values() if len({texts[index] for index in places}) > 1]


def _around(text: str, common: int, room: float, measure: Measure) -> str:
    """A text's beginning and, behind what is left out, the part in which it differs from others, from the beginning of that word on."""
    start = max(text.rfind(" ", 0, common) + 1, common - 12)
    tail = "…" + text[start:]
    if measure(tail) > room * 2 / 3:
        tail = shortened(tail, room * 2 / 3, measure)
    fitting = bisect_right(range(1, start), room, key=lambda keep: measure(text[:keep].rstrip() + tail))
    return text[:fitting].rstrip() + tail
