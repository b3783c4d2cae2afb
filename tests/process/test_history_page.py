"""The page of a history, in a real browser: it opens whole, names what is hovered, a click opens the commit, and steps are marked and lead there."""

from __future__ import annotations

import pytest
from support.browser_page import Browser
from support.histories import made
from support.sample_runs import MIB

from memprof.reports import history as page
from memprof.versions import history_file, history_folder

pytestmark = pytest.mark.xdist_group("browser")  # one worker starts the browser

ADDRESS = "https://example.org/commit/{commit}"
STEPPED = [0.0] * 12 + [8.0] * 12 + [3.0] * 8
CHART = "#chart .u-over"
# Whether the line's colour is drawn three pixels above a figure of each of these commits, where a line alone does not reach.
DOTS = """
const { u } = document.querySelector('#chart').chart;
const [ratio, y] = [devicePixelRatio || 1, u.valToPos(arguments[1], 'y', true)];
const row = u.ctx.getImageData(0, Math.round(y - 3 * ratio), u.ctx.canvas.width, 1).data;
return arguments[0].map((place) => {
  const [r, g, b] = row.slice(4 * Math.round(u.valToPos(place, 'x', true) + 1));
  return Math.max(r, g, b) - Math.min(r, g, b) > 40;
});
"""


def shown(
    browser: Browser, loaded: history_folder.FolderPoints, run_url: str = "", with_run: set[str] | None = None, width: int = 1200
) -> None:
    browser.show(page.render(history_file.read(loaded, None), "a project", ADDRESS, run_url, with_run=with_run), width=width)
    # What a click opens is noted: another page would ask the network.
    browser.js("window.opened = []; window.open = (...words) => { window.opened.push(words[0]); }")


def click(browser: Browser, place: float) -> list[str]:
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        browser.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **browser.at(CHART, place))
    return list(browser.wait("return window.opened.length ? window.opened : null"))


def test_hover_shows_commit_and_figures(browser: Browser) -> None:
    shown(browser, made(STEPPED))
    said = browser.hover(CHART, 12)
    assert "change 12" in said and "a: 278 MiB, ▲ +3.0%" in said
    assert "change 11" in browser.hover(CHART, 11) and "▲" not in browser.hover(CHART, 11)


def test_click_opens_commit_or_run(browser: Browser) -> None:
    shown(browser, made(STEPPED))
    browser.drag(CHART, 5, 20)
    browser.wait("return document.querySelector('#chart').chart.range[1] < 21")
    assert browser.js("return window.opened") == []
    assert click(browser, 12) == [ADDRESS.format(commit=f"{12:040x}")]
    browser.find("#whole").click()
    assert browser.js("return document.querySelector('#chart').chart.range") == [-0.5, 31.5]

    for place, address in ((3, f"runs/{3:040x}.html"), (4, ADDRESS.format(commit=f"{4:040x}"))):
        shown(browser, made(STEPPED), run_url="runs/{commit}.html", with_run={f"{3:040x}"})
        assert click(browser, place) == [address]


def test_step_marked_and_linked_to_commit(browser: Browser) -> None:
    shown(browser, made(STEPPED))
    links = browser.js("return [...document.querySelectorAll('.changes li')].map((row) => [row.innerText, row.querySelector('a').href])")
    assert [(text.split("(")[1].split(")")[0], url) for text, url in links] == [
        ("change 24", ADDRESS.format(commit=f"{24:040x}")),
        ("change 12", ADDRESS.format(commit=f"{12:040x}")),
    ]

    browser.find(".changes li:nth-child(2) button").click()

    low, high = browser.js("return document.querySelector('#chart').chart.range")
    assert low < 12 < high and "▲ +3.0%" in browser.hover(CHART, 12)
    assert browser.js(DOTS, [12, 18, 22], 278 * MIB) == [True, False, False]


def test_narrow_window_fits_page(browser: Browser) -> None:
    shown(browser, made(STEPPED), width=400)
    assert browser.js("return document.documentElement.scrollWidth") <= 400
