"""The page of heap profiles, in a real browser: what is clicked is shown, what is searched is found, and names stay text."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from support.heap_viewer import viewer  # noqa: F401  (the fixtures)
from support.hostile_profile import HOSTILE, hostile
from support.pages import contrast
from support.sample_profiles import COUNTS, MIB, chain, comb, of_two_lines, profile, usual, write

from memprof.heap.profile import HeapProfile, PhaseSpan
from memprof.reports import standalone
from memprof.reports.heap import page
from memprof.reports.heap.page import drawn

pytestmark = pytest.mark.xdist_group("browser")  # one worker starts the browser

numpy = pytest.importorskip("numpy")


def test_view_without_display_prints_path(memprof, tmp_path):
    write(usual(), tmp_path / "m.massif")

    done = memprof("heap", "view", "m.massif", env={"PATH": "/usr/bin", "TMPDIR": str(tmp_path)})

    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).read_text().startswith("<!doctype html>")


def test_theme_follows_system(viewer):
    viewer.open(usual())
    pictures, names_of_colours = [], "['--ink', '--page', ...[...Array(7).keys()].map((i) => '--v' + i)]"
    for theme in ("light", "dark", "light"):
        viewer.browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        viewer.browser.frames()
        pictures.append((viewer.pixels("tree-0"), viewer.pixels("chart-0")))

        ink, ground, *tones = viewer.js(
            f"const style = getComputedStyle(document.documentElement); return {names_of_colours}.map((name) => style.getPropertyValue(name).trim())"
        )
        for tone in tones:
            mixed = (int(tone[at : at + 2], 16) * 0.44 + int(ground[at : at + 2], 16) * 0.56 for at in (1, 3, 5))
            assert contrast(ink, "#" + "".join(f"{round(part):02x}" for part in mixed)) >= 4.5, (theme, tone)

    light, dark, again = pictures
    assert again == light and light[0] != dark[0] and light[1] != dark[1]


def text_of(made: HeapProfile, *more: HeapProfile) -> str:
    return page.render([made, *more])


def test_page_escapes_profile_text():
    text = text_of(hostile(), profile((0, {("</script><img src=x onerror=alert(2)>",): 3}), path="<b>&\"'.massif", command="<i>x</i>"))

    assert text.count("</script>") == text.count("<script") == 4
    for bad in ("<img src=x", "alert(1)</script>", "<b>&", "<i>x"):
        assert bad not in text
    assert "\x1b" not in text and "\u202e" not in text


def test_page_without_external_resources():
    text = text_of(usual()).replace(standalone.asset("memprof.reports.web", "uplot/uPlot.js"), "")

    assert not re.findall(r"""(?:src|href)=(?!["']?(?:#|data:))""", text)
    assert "http" not in text.replace("http-equiv", "")
    assert "default-src &#39;none&#39;" in text


def test_page_of_large_profile_is_small(monkeypatch):
    drew = []
    monkeypatch.setattr(drawn, "page", lambda *words, page=drawn.page: drew.append(page(*words)) or drew[-1])
    stacks = {(f"site{place}", f"net::very_long_name_of_a_caller<{place % 50}>", "main"): 1 + place % 7 for place in range(200)}
    made = profile(*((place, {**stacks, ("hot",): 500 + place % 50}) for place in range(350)))

    begin = time.process_time()
    text = text_of(made)

    assert len(text) < 10 << 20
    assert time.process_time() - begin < 20
    (data,) = drew
    assert sum(len(numpy.frombuffer(_decoded(tree.frame), "<i4")) for tree in data.files[0].trees) <= 2 * drawn._MOST_NODES
    assert len(data.files[0].trees) <= drawn._MOST_TREES + 1
    assert data.files[0].total[data.files[0].peak] == made.peak.total_bytes
    assert "of them with their tree, the largest among them" in text


def _decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
def test_thinned_tree_keeps_every_byte(share):
    made = usual()
    tree = made.snapshots[4].tree
    below = numpy.array([frame.kind == "below" for frame in made.frames])
    places = numpy.array([frame.places or 0 for frame in made.frames])

    frame, parent, size, count = drawn._thin(tree, share, below, places)

    own = size.copy()
    numpy.subtract.at(own, parent[1:], size[1:])
    assert own.sum() == size[0] == 100 * MIB
    assert (own >= 0).all()
    assert ((size >= share * size[0]) | (frame < 0)).all()
    assert count[frame < 0].sum() >= 7


def test_thinned_tree_with_inconsistent_sizes():
    from array import array

    from memprof.heap.trees import CallTree

    lying = CallTree(array("i", [0, 1, 2]), array("i", [-1, 0, 1]), array("q", [100, 5, 90]))

    frame, parent, _, _ = drawn._thin(lying, 0.1, numpy.zeros(3, bool), numpy.zeros(3))

    assert frame.tolist() == [0, -1] and parent.tolist() == [-1, 0]


def test_file_names_distinct():
    assert page._names(["a/x.massif", "b/x.massif", "c/y.massif"]) == ["a/x.massif", "b/x.massif", "y.massif"]
    assert page._names(["x.massif", "x.massif"]) == ["x.massif (1)", "x.massif (2)"]


def test_tables_without_scripts():
    text = text_of(usual())

    assert re.search(r"<th scope=\"row\">net::Weights::read</th><td class=\"number\">60.0 MiB</td><td class=\"number\">60.0 MiB</td>", text)


def test_view_replaces_earlier_page(memprof, tmp_path):
    write(usual(), tmp_path / "m.massif")

    for _ in range(2):
        done = memprof("heap", "view", "m.massif", "m.massif", "-o", "heap.html")
        assert (done.returncode, done.stdout) == (0, "")
        assert "heap.html holds the page" in done.stderr
    assert (tmp_path / "heap.html").read_text().startswith("<!doctype html>")


def test_page_opens_at_peak(viewer):
    viewer.open(usual())

    assert viewer.caption() == "snapshot 4, at 0.06 s, in PREPARE: 100.0 MiB"
    assert "Peak 100.0 MiB" in viewer.find("#finding").text
    assert "60% of it was allocated by net::Weights::read (libnet)" in viewer.find("#finding").text
    assert viewer.first_column()[:2] == ["net::Weights::read libnet", "net::pack libnet"]
    assert viewer.tree("zoom") == "all of the heap"
    assert "net::Weights::read" in viewer.find("#list-0").text
    said = viewer.hover(0.3, 1)
    assert "net::Weights::read" in said and "libnet" in said and "60.0 MiB, 60.0% of the snapshot" in said


def test_site_absent_from_snapshot_is_not_nothing(viewer):
    """The tool lists no small place, and a site may be among them."""
    viewer.open(profile((0, {("a",): 90, ("b",): 10}), (1, {("a",): 20, ("(below)",): 5})))
    assert "none listed there" not in viewer.find("#list-0").text

    viewer.chart(1)

    assert "none listed there, 5.0 MiB at most" in viewer.find("#list-0").text


def test_click_on_snapshot_shows_tree(viewer):
    viewer.open(usual())
    before, boxes = viewer.pixels("tree-0"), viewer.tree("boxes")

    viewer.chart(52)
    assert viewer.caption().startswith("snapshot 4") and "(snapshot 3 has no tree)" in viewer.caption()

    viewer.set("search", "net::")
    viewer.browser.wait("return document.getElementById('matched').innerText")
    viewer.chart(31)
    assert viewer.caption() == "snapshot 2, at 0.03 s, in MODEL_LOAD: 61.0 MiB"
    assert viewer.pixels("tree-0") != before
    assert int(viewer.tree("boxes")) < int(boxes)
    assert "net::pack" not in " ".join(viewer.first_column())
    assert viewer.find("#matched").text == "2 frames match, 60.0 MiB (98.4%)"


def test_arrow_keys_walk_snapshots(viewer):
    from selenium.webdriver.common.keys import Keys

    viewer.open(usual())
    viewer.js("document.getElementById('chart-0').focus()")

    viewer.browser.press(Keys.ARROW_LEFT)
    assert viewer.caption().startswith("snapshot 2")
    viewer.browser.press(Keys.END)
    assert viewer.caption().startswith("snapshot 6")
    viewer.browser.press("p")
    assert viewer.caption().startswith("snapshot 4")
    assert "100.0 MiB" in viewer.js("return document.getElementById('announced').innerText")


@pytest.mark.parametrize(("first_kib", "more"), [(1, ""), (512, " and 1 more line")])
def test_hover_shows_line_of_largest_site(viewer, first_kib, more):
    viewer.open(of_two_lines(first_kib << 10))

    for invert, source in ((False, f"reader.cc:16{more}"), (True, f"app.cc:7{more}")):
        viewer.set("invert", invert)
        assert source in viewer.hover(0.3, 1)


def test_bytes_outside_children_named(viewer):
    viewer.open(profile((0, {("a", "main"): 3, ("a",): 2})))

    assert "; 2.0 MiB of it in no node below" in viewer.hover(0.3, 1)
    viewer.set("shape", "flame")
    assert "; 2.0 MiB of it in no node above" in viewer.hover(0.3, 1)


def test_click_zooms_and_reset_restores(viewer):
    viewer.open(usual())

    viewer.click("tree-0", 0.75, 30)
    assert viewer.tree("zoom") == "net::pack"
    assert "30.0 MiB" in viewer.detail()
    viewer.click("tree-0", 0.5, 10)  # the root, above it
    assert viewer.tree("zoom") == "all of the heap"
    viewer.click("tree-0", 0.1, 50)
    assert viewer.tree("zoom") == "net::load"
    viewer.find("#reset").click()
    assert viewer.tree("zoom") == "all of the heap"


def test_arrow_keys_walk_tree(viewer):
    from selenium.webdriver.common.keys import Keys

    viewer.open(usual())
    viewer.js("document.getElementById('tree-0').focus()")

    for key, said in (
        (Keys.ARROW_DOWN, "net::Weights::read"),
        (Keys.ARROW_RIGHT, "net::pack"),
        (Keys.ARROW_DOWN, "net::prepare"),
        (Keys.ARROW_UP, "net::pack"),
        (Keys.ARROW_LEFT, "net::Weights::read"),
    ):
        viewer.browser.press(key)
        assert viewer.detail().startswith(said)
    viewer.browser.press(Keys.ENTER)
    assert viewer.tree("zoom") == "net::Weights::read"
    viewer.browser.press(Keys.ARROW_DOWN)
    viewer.browser.press(Keys.ARROW_UP)
    assert viewer.tree("zoom") == "net::Weights::read" and viewer.detail().startswith("net::Weights::read")
    viewer.browser.press(Keys.ARROW_UP)
    assert viewer.tree("zoom") == "all of the heap" and viewer.detail().startswith("all of the heap")
    viewer.browser.press(Keys.ARROW_DOWN, Keys.ENTER)
    viewer.browser.press(Keys.ESCAPE)
    assert viewer.tree("zoom") == "all of the heap"
    viewer.browser.press("/")
    assert viewer.js("return document.activeElement.id") == "search"


def test_hover_and_focus_framed(viewer):
    viewer.open(usual())
    boxes = (
        "return ['hover', 'focus'].map((name) => document.querySelector(`.frame .${name}`))"
        ".map((mark) => [mark.checkVisibility(), mark.offsetTop])"
    )

    viewer.hover(0.3, 1)
    assert viewer.js(boxes) == [[True, 20], [False, 0]]
    viewer.click("tree-0", 0.3, 30)
    viewer.hover(0.3, 0)
    shown, top = viewer.js(boxes)[1]
    assert shown and top == viewer.js("return document.querySelector('.frame .hover').offsetTop") + 20


def test_search_counts_matches_once(viewer):
    viewer.open(usual())
    before = viewer.pixels("tree-0")

    viewer.set("search", "NET::")
    viewer.browser.wait("return document.getElementById('matched').innerText")

    assert viewer.find("#matched").text == "6 frames match, 98.0 MiB (98.0%)"
    assert viewer.pixels("tree-0") != before
    viewer.set("search", "nothing like it")
    viewer.browser.wait("return document.getElementById('matched').innerText.startsWith('0')")
    viewer.set("search", "")
    viewer.browser.wait("return !document.getElementById('matched').innerText")
    assert viewer.pixels("tree-0") == before


def test_inverted_tree_begins_at_entry(viewer):
    viewer.open(usual())

    viewer.set("invert", True)

    assert "main" in viewer.hover(0.3, 1) and "99.5 MiB" in viewer.hover(0.3, 1)
    assert "net::load" in viewer.hover(0.3, 2)
    assert "called from places below the threshold" in viewer.hover(0.998, 1)
    viewer.set("invert", False)
    assert "net::Weights::read" in viewer.hover(0.3, 1)


def test_flame_of_modules_grows_upwards(viewer):
    viewer.open(usual())
    rows, chart = int(viewer.tree("rows")), viewer.pixels("chart-0")

    viewer.set("by", "module")
    assert viewer.hover(0.3, 1).startswith("libnet") and int(viewer.tree("rows")) == 2
    viewer.set("by", "function")
    viewer.set("shape", "flame")

    assert "all of the heap" in viewer.hover(0.3, rows - 1)
    assert "net::Weights::read" in viewer.hover(0.3, rows - 2)

    viewer.set("areas", "module")

    assert viewer.pixels("chart-0") != chart
    assert "libnet" in viewer.find("#list-0").text


def test_allocators_unfolded(viewer):
    viewer.open(profile((0, {("operator new(unsigned long)", "grow", "main"): 3})))

    assert viewer.hover(0.3, 1).startswith("grow")
    viewer.set("fold", False)
    assert viewer.hover(0.3, 1).startswith("operator new")
    assert viewer.first_column()[0].startswith("operator new")


def test_several_files_on_one_scale(viewer):
    half = profile((0, {("net::Weights::read", "main"): 50}), path="half.massif")
    viewer.open(usual(), half)

    tops = [viewer.js(f"return document.getElementById('tree-{place}').getBoundingClientRect().top") for place in (0, 1)]
    assert tops[0] == pytest.approx(tops[1], abs=2)
    assert viewer.hover(0.4, 1, 1).startswith("net::Weights::read")
    assert viewer.hover(0.6, 1, 1) == ""
    viewer.set("scaled", False)
    assert viewer.hover(0.6, 1, 1).startswith("net::Weights::read")
    head = viewer.js("return [...document.querySelectorAll('#tables thead th')].map((element) => element.innerText)")
    assert head == ["function", "self, made.massif", "", "total, made.massif", "self, half.massif", "", "total, half.massif"]


def test_snapshot_drawn_until_next(viewer):
    viewer.open(profile((0, {("a",): 1}), (10, {("b",): 50}), (90, {("c",): 2}), (100, {("d",): 1})))

    for at, said in ((5, "snapshot 0"), (12, "snapshot 1"), (85, "snapshot 1"), (93, "snapshot 2")):
        viewer.chart(at)
        assert viewer.caption().startswith(said)


def test_function_colour_same_across_files(viewer):
    first = profile((0, {("big",): 50, ("small",): 5}), path="one.massif")
    other = profile((0, {("small",): 60, ("other",): 30, ("big",): 20}), path="other.massif")
    viewer.open(first, other)

    looks = viewer.js(
        "return [0, 1].map((place) => Object.fromEntries([...document.querySelectorAll(`#list-${place} li`)]"
        ".map((row) => [row.title, row.querySelector('i').style.background])))"
    )
    assert looks[0]["big"] == looks[1]["big"] and looks[0]["small"] == looks[1]["small"]
    assert len(set(looks[1].values())) == 3


def test_phases_below_chart():
    narrow = [PhaseSpan("MODEL_LOAD", 0, 2), PhaseSpan("<b>", 2, 90), PhaseSpan("EXECUTE", 90, None)]

    assert "Phases: MODEL_LOAD from 0 s, &lt;b&gt; from 0.002 s, EXECUTE from 0.09 s." in text_of(usual(phases=narrow))
    assert "Phases:" not in text_of(profile((0, {("a",): 1})))


def test_notices_merge_equal_counts():
    notices = page._notices([usual(), usual(), usual(counts="massif counts pages")], ["a", "b", "c"])

    assert [notice.count(COUNTS) for notice in notices if "do not count the same" in notice] == [1]


def test_finding_share_not_rounded_to_whole():
    assert "&gt;99% of it was allocated by a (libnet); libnet allocated 100%." in text_of(profile((0, {("a",): 996, ("b",): 4})))


def test_notices_of_different_counts(viewer):
    viewer.open(usual(), profile((0, {("a",): 1}), path="b", counts="massif counts pages", partial="it was killed"))

    notices = viewer.find(".notices").text
    assert "do not count the same" in notices
    assert "b: This profile is partial: it was killed." in notices


@pytest.mark.parametrize("made", [hostile(), chain(10_000), comb(150)], ids=["hostile", "deep", "comb"])
def test_hostile_and_deep_profiles_shown(viewer, made):
    viewer.open(made, width=390)

    assert viewer.js("return document.documentElement.scrollWidth") <= 390
    for id, value in (("invert", True), ("by", "line"), ("shape", "flame"), ("search", "main"), ("by", "module")):
        viewer.set(id, value)
    assert viewer.js("return document.querySelectorAll('img, #tables script, #list-0 script').length") == 0
    assert viewer.js("return window.alerted") is None
    assert int(viewer.tree("rows")) <= 510


def test_deep_tree_reached_by_zooming(viewer):
    from selenium.webdriver.common.keys import Keys

    viewer.open(chain(10_000))

    assert viewer.tree("cut") == "1"
    viewer.js("document.getElementById('tree-0').focus()")
    for _ in range(5):
        viewer.browser.press(Keys.ARROW_DOWN)
    viewer.browser.press(Keys.ENTER)
    assert viewer.tree("zoom") == "f4"


@pytest.mark.parametrize(
    "made",
    [profile((0, 0.0)), profile(), profile((0, 5.0), (1, 9.0)), profile((3, {("a",): 1})), profile((3, {("a",): 0}), (3, 0.0))],
    ids=["nothing", "no snapshot", "no tree", "one snapshot", "no bytes"],
)
def test_incomplete_profiles_shown(viewer, made):
    viewer.open(made)

    viewer.set("invert", True)
    assert viewer.find("#finding").text
    assert ("The profile has no snapshot." in viewer.find("#over-time").text) == (not made.snapshots)


def test_markup_names_shown_as_text(viewer):
    viewer.open(profile((0, {(HOSTILE[0], "main"): 3}), command="<b>x</b>"))

    assert viewer.hover(0.3, 1).startswith("<script>alert(1)</script>")
    viewer.set("tableBy", "line")
    assert viewer.js("return document.querySelectorAll('b, script').length") == viewer.js(
        "return document.querySelectorAll('.detail b, #tip b, script').length"
    )


REAL = sorted((Path(__file__).parents[1] / "data" / "heap").glob("massif_tflite_*.gz"))  # with and without a tree of the peak


@pytest.mark.parametrize("path", REAL, ids=[path.stem for path in REAL])
def test_real_profiles_shown(viewer, path):
    from memprof import heap

    made = heap.load(path)
    viewer.open(made)

    best = made.peak_tree
    assert best is not None and best[0].tree is not None
    assert viewer.caption().startswith(f"snapshot {best[0].index},")
    viewer.set("invert", True)
    assert int(viewer.tree("boxes")) > 20
    viewer.set("by", "module")
    viewer.set("fold", False)
    assert len(viewer.first_column()) >= 3
