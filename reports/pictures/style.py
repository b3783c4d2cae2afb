"""The look that all pictures share: colours with hatches, line styles, markers, and fonts.

Pictures are made with matplotlib's objects alone, so no display, no backend and no state of pyplot's is needed, and a user's own
matplotlibrc changes nothing. The same runs give the same bytes. Colours are Okabe and Ito's, told apart by the colour-blind. In
grey, hatches, line styles, markers or lightness tell the same things apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import matplotlib.style
from matplotlib.font_manager import fontManager

from ..fills import INK as INK
from ..fills import Fill as Fill

DPI = 150
BODY, SMALL, HEADING = 9.0, 8.0, 12.0
GREY, FAINT, BAND, FAILED = "#555555", "#D9D9D9", "#EFEFEF", "#B33F00"


# -- colours


ANON = Fill("#0072B2")
FILE = Fill("#F0B429", "////", "#7A5200")
DEVICE = "#D55E00"
UNSEEN = Fill("#FFFFFF", "....", "#333333")
ANON_WORDS, FILE_WORDS = "anonymous", "file-backed and shared"

# Okabe and Ito's without yellow, which is lost on white; neighbours differ in lightness too.
_LINES = ("#000000", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#0072B2", "#CC79A7")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")


def line(index: int) -> dict[str, Any]:
    """The look of the line at that place in the picture: no two of the first 420 are alike, and the first 12 differ in marker."""
    looks = {"color": _LINES, "linestyle": _DASHES, "marker": _MARKERS}
    return {name: each[index % len(each)] for name, each in looks.items()}


# -- the look


def backing() -> dict[str, Any]:
    """The box behind text over lines, so that it stays readable (and, unlike an outline, text in an SVG)."""
    return {"boxstyle": "square,pad=0.05", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


# Tried in this order for letters that matplotlib's own DejaVu Sans lacks.
_FALLBACK_FONTS = (
    *("Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans KR", "Noto Sans JP", "Noto Sans SC"),
    *("NanumGothic", "UnDotum", "IPAGothic", "TakaoGothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback"),
    *("Apple SD Gothic Neo", "Hiragino Sans", "PingFang SC", "Malgun Gothic", "Microsoft YaHei", "Arial Unicode MS"),
    *("Noto Sans", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Symbols2", "Noto Emoji", "Symbola", "Unifont"),
)


@lru_cache(maxsize=1)
def families() -> tuple[str, ...]:
    installed = {font.name for font in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in installed))


@contextmanager
def look() -> Iterator[None]:
    """Within it everything is drawn in memprof's look, whatever the user has set."""
    settings = {
        "font.family": [*families(), "sans-serif"],  # the last for those who read an SVG elsewhere
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
        "font.size": BODY,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GREY,
        "axes.axisbelow": True,
        "axes.formatter.useoffset": False,
        "axes.unicode_minus": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "hatch.linewidth": 0.5,
        "xtick.color": GREY,
        "ytick.color": GREY,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        **{f"{axis}tick.{kind}.size": 2.5 for axis in "xy" for kind in ("major", "minor")},
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "axes.labelsize": SMALL,
        "figure.dpi": DPI,
        "savefig.dpi": DPI,
        "svg.hashsalt": "memprof",
        "svg.fonttype": "none",
        "pdf.fonttype": 42,
    }
    with matplotlib.style.context(["default", settings]):
        yield
