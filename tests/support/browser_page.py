"""A headless Chromium for the tests of pages, and what it has seen of a page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from support.recorder_runs import free_port

LONGEST_S = 120  # only a test that fails waits so long
_OWN = ("chrome", "devtools:")  # how addresses of the browser's own pages begin: chrome://, chrome-untrusted://, chrome-extension://


@dataclass(frozen=True)
class Browser:
    """The browser of a worker; the test before has left a page, a size and a pointer in it."""

    driver: Any
    folder: Path

    def show(self, text: str, *, width: int = 1200, theme: str = "light") -> None:
        """Show a page, in a window of this width and a system of this theme."""
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.load(text)
        self.wait("return document.readyState === 'complete'")
        surroundings = f"return innerWidth === {width} && matchMedia('(prefers-color-scheme: {theme})').matches"
        if not self.js(surroundings):  # the page is told after it has begun, and draws again
            self.wait(surroundings)
            self.frames()

    def load(self, text: str) -> None:
        """Show a page, and forget what was said and asked for before it: the browser's own first page asks for much."""
        path = self.folder / "page.html"
        path.write_text(text, encoding="utf-8")
        # The pointer is taken to a corner. Where the last test left it, it would hover over something of this page, now or when that is scrolled.
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())

    def command(self, name: str, **words: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, words)

    def js(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, seconds: float = LONGEST_S) -> Any:
        until = time.monotonic() + seconds
        while not (answer := self.js(script)):
            assert time.monotonic() < until, f"in vain: {script}"
            time.sleep(0.05)
        return answer

    def frames(self) -> None:
        """Return when the page has been drawn twice: by then it has answered to whatever changed its size."""
        self.driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))")

    def find(self, selector: str) -> Any:
        element = self.driver.find_element("css selector", selector)
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        return element

    def choose(self, id: str, text: str) -> None:
        from selenium.webdriver.support.select import Select

        Select(self.find(f"#{id}")).select_by_visible_text(text)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def at(self, selector: str, x: float, share: float = 0.5) -> dict[str, float]:
        """Where in the window a value of a chart's x axis is, at this share of its height."""
        self.find(selector)
        box = self.js("return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()", selector)
        left = self.js("return document.querySelector(arguments[0]).closest('.plot').chart.left(arguments[1])", selector, x)
        return {"x": box["x"] + left, "y": box["y"] + share * box["height"]}

    def hover(self, selector: str, x: float, share: float = 0.5) -> str:
        """What the tooltip says at a value of a chart's x axis, at this share of its height from the top."""
        self.command("Input.dispatchMouseEvent", type="mouseMoved", **self.at(selector, x, share))
        return str(self.js("return document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText"))

    def drag(self, selector: str, begin: float, end: float) -> None:
        """Drag over a chart from a value of its x axis to another."""
        self.command("Input.dispatchMouseEvent", type="mouseMoved", **self.at(selector, begin))
        self.command("Input.dispatchMouseEvent", type="mousePressed", button="left", clickCount=1, **self.at(selector, begin))
        self.command("Input.dispatchMouseEvent", type="mouseMoved", button="left", **self.at(selector, end))
        self.command("Input.dispatchMouseEvent", type="mouseReleased", button="left", clickCount=1, **self.at(selector, end))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What was asked for, files and the page's own data aside. The browser's first page may still be on its way, and is no page of a test."""
        seen = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [message["params"] for message in seen if message["method"] == "Network.requestWillBeSent"]
        urls = [each["request"]["url"] for each in asked if not each.get("documentURL", "").startswith(_OWN)]
        return [url for url in urls if not url.startswith(("file://", "data:", *_OWN))] + self.js(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        )


@contextmanager
def driven(binary: str, driver_path: str, folder: Path) -> Iterator[Any]:
    """Selenium's driver of a headless Chromium that has its profile in this folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # Of its own accord selenium takes a port that the kernel may give to anybody else meanwhile.
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path, port=free_port()))
    try:
        driver.set_script_timeout(LONGEST_S)
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a worker. It is told to use no network; the page's own policy forbids it too."""
    from conftest import need_tool

    binary, driver_path = need_tool("chromium"), need_tool("chromedriver")
    _need_module("selenium.webdriver")
    folder = tmp_path_factory.mktemp("browser")
    with driven(binary, driver_path, folder) as driver:
        yield Browser(driver, folder)


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A browser in which nothing may have gone wrong, and nothing may have been asked of a network, when the test ends."""
    yield chromium
    assert chromium.complaints() == []
    assert chromium.requests() == []


def _need_module(name: str) -> Any:
    """A Python package that the tests need, as need_tool has it."""
    try:
        return import_module(name)
    except ImportError:
        reason = f"{name} is not installed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
