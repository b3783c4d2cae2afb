"""What the tests of heap show share."""

from __future__ import annotations

from support.sample_profiles import profile

HOSTILE = (
    "<script>alert(1)</script>",
    "[bold red]markup[/bold red]",
    "\x1b[31mred\x1b]0;title\x07",
    "two\nlines\tand\ttabs",
    "x" * 5000,
    "模型 ünï عربى 🧠 \u202eright",
    "std::vector<std::map<a, b>, c<d<e>>>::push_back(std::pair<a, b>&&)",
    "$x^2$ & $y$",
)


def hostile():
    return profile((0, {(name, "main"): 10 + place for place, name in enumerate(HOSTILE)}), command=HOSTILE[2], path=HOSTILE[3])
