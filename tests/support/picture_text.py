"""The texts of a picture, for the tests of pictures."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import pytest

from memprof.reports.pictures import style

_KNOWN = WeakKeyDictionary()


def drawn_texts(figure):
    """Each text that is really drawn, with the box that it takes, in pixels: of a figure that is not changed after the first call."""
    if figure not in _KNOWN:
        _KNOWN[figure] = _drawn_texts(figure)
    return _KNOWN[figure]


def _drawn_texts(figure):
    # No pixel is set: that would take most of the time.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    texts = {}

    def draw(self, renderer, *rest, **words):
        if self.get_visible() and self.get_text().strip():
            texts[self] = None

    with pytest.MonkeyPatch.context() as patch, style.look():
        patch.setattr(Text, "draw", draw)
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw_without_rendering()
        return [(text.get_text().replace(r"\$", "$"), Text.get_window_extent(text, renderer)) for text in texts]
