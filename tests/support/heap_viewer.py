"""What the tests of heap page share."""

from __future__ import annotations

from typing import Any

import pytest

from memprof.heap.profile import HeapProfile
from memprof.reports.heap import page
from support.browser_page import Browser


class Viewer:
    """A page of heap profiles in the browser."""

    def __init__(self, browser: Browser) -> None:
        self.browser, self.js, self.find = browser, browser.js, browser.find

    def open(self, *made: HeapProfile, width: int = 1200, theme: str = "light") -> None:
        self.browser.show(page.render(made), width=width, theme=theme)
        self.browser.wait("return document.documentElement.dataset.ready")

    def click(self, canvas: str, x: float, y: float) -> None:
        """Click at a place of a canvas, x as a share of its width, y in pixels from its top."""
        self.js("document.getElementById(arguments[0]).scrollIntoView({block: 'start'})", canvas)
        box = self.js("return document.getElementById(arguments[0]).getBoundingClientRect().toJSON()", canvas)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            words: dict[str, Any] = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.browser.command("Input.dispatchMouseEvent", type=kind, x=box["x"] + x * box["width"], y=box["y"] + y, **words)

    def chart(self, time: float, place: int = 0) -> None:
        """Click the chart at a time."""
        at = self.browser.at(f"#chart-{place} .u-over", time)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            words: dict[str, Any] = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.browser.command("Input.dispatchMouseEvent", type=kind, **at, **words)

    def hover(self, x: float, row: int, place: int = 0) -> str:
        self.js(f"document.getElementById('tree-{place}').scrollIntoView({{block: 'center'}})")
        box = self.js(f"return document.getElementById('tree-{place}').getBoundingClientRect().toJSON()")
        self.browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"] + x * box["width"], y=box["y"] + row * 20 + 10)
        return str(self.js("return document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText"))

    def set(self, id: str, value: str | bool) -> None:
        self.js(
            "const element = document.getElementById(arguments[0]);"
            "if (typeof arguments[1] === 'boolean') element.checked = arguments[1]; else element.value = arguments[1];"
            "element.dispatchEvent(new Event(element.type === 'search' ? 'input' : 'change', {bubbles: true}))",
            id,
            value,
        )

    def detail(self, place: int = 0) -> str:
        return str(self.js(f"return document.getElementById('detail-{place}').innerText"))

    def caption(self, place: int = 0) -> str:
        return str(self.js(f"return document.getElementById('caption-{place}').innerText"))

    def tree(self, what: str, place: int = 0) -> str:
        return str(self.js(f"return document.getElementById('tree-{place}').dataset.{what}"))

    def pixels(self, id: str) -> str:
        return str(
            self.js(
                "const element = document.getElementById(arguments[0]); return (element.querySelector('canvas') || element).toDataURL()", id
            )
        )

    def first_column(self) -> list[str]:
        return [
            str(text) for text in self.js("return [...document.querySelectorAll('#tables tbody th')].map((element) => element.innerText)")
        ]


@pytest.fixture
def viewer(browser: Browser) -> Viewer:
    return Viewer(browser)
