"""Foreign words on a terminal."""

from __future__ import annotations

import pytest

from memprof.base.terminal_text import shortened


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("no such file", 20, "no such file"),
        (
            "Fail: node A: " + "status 1 at node B: " * 9 + "index 3 is out of bounds",
            60,
            "Fail: node A: … 1 at node B: index 3 is out of bounds",
        ),
        ("a" * 50 + "b" * 50, 33, "a" * 10 + " … " + "b" * 20),
    ],
)
def test_shortened_error_keeps_its_root(text: str, most: int, short: str) -> None:
    assert shortened(text, most) == short
    assert len(short) <= most
