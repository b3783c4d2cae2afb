"""A profile in the terminal and as a picture: right at every width, plain in a pipe, honest about what it does not know."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from support.hostile_profile import HOSTILE, hostile
from support.picture_text import drawn_texts
from support.sample_profiles import COUNTS, MIB, PEAK, ROOT, chain, comb, of_two_lines, profile, usual, write

from memprof.base.errors import InputError
from memprof.heap import diff as judging
from memprof.heap.frames import Frame
from memprof.heap.phrases import format_time, share
from memprof.heap.profile import PhaseSpan, Snapshot
from memprof.heap.trees import Trie
from memprof.reports.heap import diff as report
from memprof.reports.heap import page, plot, series, show
from memprof.reports.heap.show import ProfileView


@pytest.mark.parametrize(
    ("time", "unit", "expected"),
    [(999.7, "s", "1000 s"), (1250, "ms", "1.25 s"), (1.25e9, "i", "1.25 G instructions"), (1.2345e12, "i", "1234 G instructions")],
)
def test_time_without_exponent(time, unit, expected):
    assert format_time(time, unit) == expected


def test_show_peak_tree_and_sites():
    text = show.render(usual(), width=80)

    assert "Peak 100.0 MiB: snapshot 4, at 0.06 s, in PREPARE." in text
    assert COUNTS in text
    assert "  60.0 MiB  60.0% ├─net::Weights::read  libnet" in text
    assert "│ net::load" in text
    assert " 500.0 KiB" not in text
    assert re.search(r"30\.0 MiB +30\.0% +30\.0 MiB +30\.0% +net::pack", text)
    assert re.search(r"99\.5 MiB +99\.5% +99\.5 MiB +99\.5% +libnet", text)
    assert "│MODEL_LOAD" in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("made", [usual(), hostile(), chain(60), comb(60)], ids=["usual", "hostile", "deep", "comb"])
@pytest.mark.parametrize("unicode", [True, False])
def test_lines_fit_terminal(made, width, unicode):
    text = show.render(made, ProfileView(least=0.001), width=width, unicode=unicode)

    assert max(cell_len(line) for line in text.split("\n")) <= width
    assert "\x1b" not in text
    if made.path == "made.massif" and not unicode:
        assert text.isascii()


def test_colour_changes_no_text():
    plain, coloured = (show.render(usual(), width=100, colour=colour) for colour in (False, True))

    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured).split() == plain.split()


def test_hostile_names_shown_as_text():
    text = show.render(hostile(), ProfileView(full_names=True), width=120)

    assert "<script>alert(1)</script>" in text
    assert "[bold red]markup[/bold red]" in text
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "two lines and tabs" in text


def test_full_names_uncut():
    long = show.render(hostile(), ProfileView(full_names=True), width=80)

    assert "x" * 5000 in long
    assert HOSTILE[6] in long


def test_cut_tree_reported():
    text = show.render(chain(10_000), width=80)

    assert "… 9,990 more frames (--depth)" in text
    assert len(show.render(chain(3000), ProfileView(depth=0), width=80).split("\n")) > 3000
    assert "deeper than fits" in show.render(comb(300), ProfileView(least=0.0, depth=0), width=60)


def test_threshold_reported():
    text = show.render(usual(), ProfileView(least=0.05), width=100)

    assert "2.0 MiB   2.0% └─(8 smaller places)" in text
    assert "Nodes below 5% are gathered (--min); the tool had left out the smallest places before" in text


def test_tree_of_another_snapshot_named():
    text = show.render(usual(), ProfileView(snapshot=6), width=100)

    assert "Shown is snapshot 6, at 0.09 s, in EXECUTE, with 61.0 MiB." in text
    assert "net::pack" not in text


def test_inverted_tree_begins_at_entry():
    lines = show.render(usual(), ProfileView(invert=True), width=100).split("\n")

    (first,) = [place for place, line in enumerate(lines) if "all of the heap" in line]
    assert "99.5%" in lines[first + 1] and "main" in lines[first + 1]
    assert any("net::prepare" in line and "38.0 MiB" in line for line in lines)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (profile((0, 0.0), (1, 0.0)), "No allocation was recorded."),
        (profile(), "No allocation was recorded."),
        (profile((0, 5.0)), "No snapshot has a tree of allocation sites"),
        (profile((0, 5.0), (1, 9.0)), "No snapshot has a tree of allocation sites"),
        (profile((0, {("a",): 1}), partial="it was killed by SIGILL"), "This profile is partial: it was killed by SIGILL."),
        (profile((0, {("a",): 1}), (1, 9.0)), "The tree is not that of the peak: the peak is 9.0 MiB in snapshot 1"),
        (profile((0, {("a",): 0.0})), "No allocation was recorded."),
        (profile((5, {("a",): 1}), (5, {("a",): 1})), "Peak 1.0 MiB"),
    ],
)
def test_incomplete_profile_reported(made, said):
    assert said in show.render(made, width=200)
    assert said in json.dumps(show.facts(made)) or "No allocation" in said or said.startswith("Peak")


def test_profile_of_one_moment_has_no_peak():
    made = profile((0, {("load", "main"): 3, ("log",): 1}), tool="pprof", total="in use when the profile was written (inuse_space)")

    assert "4.0 MiB in use when the profile was written (inuse_space)." in show.render(made)
    assert "eak" not in show.render(made)
    assert "The total is the same: 4.0 MiB." in report.render(judging.diff(made, made))
    texts = " ".join(text for text, _ in drawn_texts(plot.render(made)))
    assert "total 4.00 MiB, snapshot 0" in texts and "one moment" in texts and "peak" not in texts
    nothing = profile((0, {("a",): 0.0}), total="in use when the profile was written (inuse_space)")
    assert "There is nothing in use when the profile was written (inuse_space)." in show.render(nothing)


def test_chart_keeps_every_peak():
    thin = profile(*((place, 1.0) for place in range(500)), (500, 77.0), *((place, 1.0) for place in range(501, 1000)))

    levels = show.columns(thin.snapshots, 40, 0, 999)

    assert max(levels) == 77 * MIB
    assert len(levels) == 40
    assert levels[0] == levels[-1] == MIB


def test_chart_holds_level_between_snapshots():
    levels = show.columns(profile((0, 10.0), (40, 70.0), (40, 30.0), (100, 20.0)).snapshots, 101, 0, 100)

    assert [level / MIB for level in levels] == [10.0] * 40 + [70.0] + [30.0] * 59 + [20.0]


def test_chart_drop_within_column():
    assert show.columns(profile((0, 8.0), (55, 1.0), (100, 1.0)).snapshots, 11, 0, 100) == [8 * MIB] * 6 + [MIB] * 5


def test_chart_ticks_of_few_snapshots():
    few, many = profile((0, 1.0), (50, 9.0), (100, 2.0)), profile(*((place, 1.0 + place) for place in range(100)))

    assert "┴ a snapshot, drawn until the next" in show.render(few, width=100)
    assert re.search("└┴─+▲─+┴", show.render(few, width=100))
    assert "┴" not in show.render(many, width=100)


PHASES = ("STARTUP", "MODEL_LOAD", "PREPARE", "EXECUTE")
NARROW = profile(
    *((place, 5.0 + place) for place in range(100)),
    phases=[PhaseSpan(name, begin, end) for name, begin, end in zip(PHASES, (0, 90, 90.5, 95), (90, 90.5, 95, None), strict=True)],
)


@pytest.mark.parametrize("unicode", [True, False])
def test_chart_phases_numbered_without_room(unicode):
    text = show.render(NARROW, width=80, unicode=unicode)

    bar = "│" if unicode else "|"
    assert re.search(rf"^ +[{bar}]1 +[{bar}]2[{bar}]3 *[{bar}]4$", text, re.MULTILINE)
    for words in ("1 STARTUP 0 s", "2 MODEL_LOAD 0.09 s", "3 PREPARE 0.0905 s", "4 EXECUTE 0.095 s"):
        assert words in text
    assert max(cell_len(line) for line in text.split("\n")) <= 80


def test_chart_strip_of_nested_phases():
    nested = [PhaseSpan("OUTER", 0, 100), PhaseSpan("INNER", 30, 60)]
    made = profile((0, 1.0), (100, 2.0), phases=nested)

    assert max(cell_len(line) for line in show.render(made, width=70).split("\n")) <= 70


def test_peak_between_two_times():
    made = usual(snapshots=(*usual().snapshots[:4], replace(usual().snapshots[4], time=0.0, until=5.0)))

    assert "Peak 100.0 MiB: snapshot 4, between 0 s and 0.005 s, in PREPARE." in show.render(made, width=200)
    assert show.facts(made)["peak"]["until"] == 5.0


@pytest.mark.parametrize(
    ("part", "whole", "digits", "text"),
    [
        (996, 1000, 0, ">99%"),
        (1000, 1000, 0, "100%"),
        (4, 1000, 0, "<1%"),
        (0, 1000, 0, "0%"),
        (600, 1000, 0, "60%"),
        (99_960, 100_000, 1, ">99.9%"),
        (99_940, 100_000, 1, "99.9%"),
        (40, 100_000, 1, "<0.1%"),
        (0, 0, 1, "0.0%"),
    ],
)
def test_share_rounding_at_extremes(part, whole, digits, text):
    assert share(part, whole, digits) == text


def test_facts_match_text():
    facts = json.loads(json.dumps(show.facts(usual(), ProfileView(least=0.05))))

    assert facts["peak"]["total_bytes"] == 100 * MIB and facts["peak_tree_is_peak"] is True
    assert facts["shown"]["index"] == 4 and facts["shown"]["phase"] == "PREPARE"
    assert facts["sites"][0] == {
        "name": "net::Weights::read",
        "module": "libnet",
        "source": "",
        "lines": 1,
        "self_bytes": 60 * MIB,
        "total_bytes": 60 * MIB,
    }
    assert facts["modules"][0]["name"] == "libnet"
    assert facts["tree"][0] == {"parent": -1, "name": "all of the heap", "module": "", "source": "", "lines": 1, "bytes": 100 * MIB}
    assert facts["tree"][-1]["places"] == 8
    assert sum(node["bytes"] for node in facts["tree"] if node["parent"] == 0) == 100 * MIB


def test_areas_add_up_to_total():
    made = usual(extra=3.0)
    areas = series.series(made, "function", 2)
    all_rows = series.rows(areas)

    assert [row.name.text for row in all_rows] == [
        "net::Weights::read",
        "net::pack",
        "other sites",
        "places the tool left out as too small",
        "added by the allocator",
    ]
    for place, snapshot in enumerate(areas.snapshots):
        assert sum(int(row.values[place]) for row in all_rows) == snapshot.total_bytes


def test_areas_estimated_add_up():
    made = usual()
    areas = series.series(made, "function", 5)
    numpy = pytest.importorskip("numpy")
    rows = numpy.array([row.values for row in series.rows(areas)])

    values, known = series.filled(areas, made.snapshots)

    assert values.sum(0) == pytest.approx([snapshot.total_bytes for snapshot in made.snapshots])
    assert known.tolist() == [snapshot.tree is not None or not snapshot.total_bytes for snapshot in made.snapshots]
    assert values[:, 4].tolist() == rows[:, 1].tolist()
    assert values[:, 5] == pytest.approx(rows[:, 1])  # as large as the peak, so as the peak was


STD = {
    ("std::vector<char, std::allocator<char> >::vector(unsigned long)", "rt::read_file", "rt::load", "main"): 40,
    ("operator new(unsigned long)", "void std::vector<float>::_M_assign_aux<float const*>(float const*)", "rt::load", "main"): 30,
    ("std::locale::classic()",): 2,
    ("malloc", "std::thread::_M_run()", "__gnu_cxx::start"): 1,
}


def test_site_outside_standard_library():
    """A stack that is the library's alone has its outermost frame as its site."""
    made = profile((0, STD))

    names = {site.text: int(row[0]) // MIB for table in [series.series(made, "function", 9)]
             for site, row in zip(table.sites, table.values, strict=True)}  # fmt: skip

    assert names == {"rt::read_file": 40, "rt::load": 30, "std::locale::classic": 2, "__gnu_cxx::start": 1}
    unfolded = series.series(made, "function", 9, fold=False)
    assert {"std::vector<…>::vector", "operator new", "malloc"} <= {site.text for site in unfolded.sites}


def test_line_in_names_by_line():
    sites = [Frame("std::vector<int>::vector()", "/usr/include/stl_vector.h", 552), Frame("rt::read", "/src/engine.cpp", 17)]
    trie = Trie(0)
    trie.add((1, 2), 5 * MIB)
    shot = Snapshot(0, 1, 5 * MIB, tree=trie.tree())
    made = replace(profile((0, 1.0)), snapshots=(shot,), frames=(ROOT, *sites))

    table = series.series(made, "line", 5)

    assert [site.text for site in table.sites] == ["rt::read engine.cpp:17"]
    assert plot._finding(made, table).startswith("rt::read engine.cpp:17 held 5.0 MiB")
    assert [site.text for site in series.series(made, "function", 5).sites] == ["rt::read"]


@pytest.mark.parametrize(("first_kib", "more"), [(1, ""), (512, " and 1 more line")])
@pytest.mark.parametrize("invert", [False, True])
def test_function_has_line_of_largest_site(first_kib, more, invert):
    """The line that the tool names first holds little. Every view has the largest one's, of the site and of its caller."""
    made = of_two_lines(first_kib << 10)

    text = show.render(made, ProfileView(invert=invert), width=100)

    lines = [line.partition("  ")[2].strip() for line in text.splitlines() if re.search(r"\b(read|main)  ", line)]
    assert len(lines) == 3 and all(line.endswith((f"reader.cc:16{more}", f"app.cc:7{more}")) for line in lines), text
    assert (" largest is named (--by line)" in " ".join(text.split())) == bool(more)
    assert [area["source"] for area in plot.facts(made)["areas"]] == ["reader.cc:16"]
    by_line = show.render(made, ProfileView(by="line", least=0), width=100)
    assert "reader.cc:14" in by_line and "more line" not in by_line


@pytest.mark.parametrize(
    ("sizes", "in_picture", "on_page"),
    [
        ((5, 5), "(50%), and b as much", "50% of it was allocated by a (libnet), and as much by b (libnet); "),
        ((5, 5, 5), "(33%), and each of 2 more as much", "33% of it was allocated by a (libnet), and as much by each of 2 more; "),
        ((5, 4), "(56%)", "56% of it was allocated by a (libnet); "),
    ],
)
def test_sites_of_one_size_named_together(sizes, in_picture, on_page):
    made = profile((0, {(name, "main"): size for name, size in zip("abc", sizes, strict=False)}))

    assert plot._finding(made, series.series(made, "function", 9)).endswith(in_picture)
    assert on_page in page.render([made])


def test_plot_of_site_absent_at_peak():
    """What was held before the peak is not there; what the tool left out there is named with the most that it can be."""
    before, peak = {("early", "main"): 10}, {("late", "main"): 50}
    for left_out, words in ((0.0, "none there"), (0.25, "none listed there, 256.0 KiB at most")):
        at_peak = peak | ({("(below)",): left_out} if left_out else {})
        texts = [text.get_text() for text in plot.render(profile((0, before), (10, at_peak))).texts]
        assert words in texts and not any("too small to be listed there" in text for text in texts)


def test_thinning_keeps_largest_snapshot_and_tree():
    made = profile(*((place, {("a",): 5} if place == 777 else 50.0 if place == 1234 else 1.0) for place in range(5000)))

    kept = series.thinned(made.snapshots, 100)

    assert len(kept) <= 102
    assert {0, 777, 1234, 4999} <= {snapshot.index for snapshot in kept}


MANY = profile(
    *((place, {(f"site_number_{site}_" + "y" * 60, "main"): 5 + site + place for site in range(30)}) for place in range(12)),
    phases=usual().phases,
    extra=2.0,
)


@pytest.mark.parametrize(
    "made",
    [usual(), hostile(), MANY, profile((0, 3.0), (5, 9.0)), profile((0, {("a",): 3})), profile((7, 1.0), (7, 3.0)), chain(10_000)],
    ids=["usual", "hostile", "many", "no tree", "one snapshot", "no time", "deep"],
)
def test_picture_labels_without_overlap(made):
    figure = plot.render(made)
    texts = drawn_texts(figure)
    wide, high = figure.get_size_inches() * figure.dpi

    for text, box in texts:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= wide + 1 and box.y1 <= high + 1, text
    for (label, a), (other, b) in itertools.combinations(texts, 2):
        assert not (a.x0 < b.x1 - 1 and b.x0 < a.x1 - 1 and a.y0 < b.y1 - 1.5 and b.y0 < a.y1 - 1.5), (label, other)


def test_picture_shows_peak_phases_and_sites():
    texts = [text for text, _ in drawn_texts(plot.render(usual()))]

    for said in ("peak 100.0 MiB, snapshot 4", "MODEL_LOAD", "PREPARE", "EXECUTE", "net::Weights::read", "60.0 MiB, 60.0% · libnet"):
        assert said in texts


def test_picture_names_tree_not_of_peak():
    texts = " ".join(text for text, _ in drawn_texts(plot.render(profile((0, {("a",): 1}), (1, 9.0)))))

    assert "The tree is not that of the peak" in texts
    assert "In snapshot 0, not the peak" in texts


@pytest.mark.parametrize(
    ("snapshots", "paler"),
    [
        (((0, 0.0), (10, PEAK), (20, PEAK)), False),
        (((0, 5.0), (10, PEAK)), False),  # one tree is a bar
        (((0, 0.0), (10, PEAK), (15, 30.0), (20, PEAK)), True),
    ],
)
def test_picture_explains_estimates(snapshots, paler):
    made = profile(*snapshots)
    texts = " ".join(text for text, _ in drawn_texts(plot.render(made)))

    assert ("drawn paler" in texts) is paler
    assert ("paler" in page.render([made]).partition("Ticks below")[2].partition("</span>")[0]) is (
        made.snapshots[0].total_bytes > 0 or paler
    )


def test_picture_total_in_steps():
    (line,) = [
        line for line in plot.render(profile((0, 10.0), (50, 90.0), (100, 20.0))).axes[0].lines if line.get_drawstyle() == "steps-post"
    ]

    assert line.get_xdata()[:3].tolist() == [0, 50, 100] and line.get_xdata()[3] > 100
    assert list(line.get_ydata()) == [10, 90, 20, 20]


def test_picture_phases_numbered_without_room():
    spans = [PhaseSpan(f"EPOCH_{'X' * 12}_{number}", number * 5, number * 5 + 5) for number in range(20)]
    texts = [text for text, _ in drawn_texts(plot.render(profile((0, 1.0), (100, PEAK), phases=spans)))]

    assert {"1", "20"} <= set(texts)
    assert any(text.startswith("Phases: 1 EPOCH_") for text in texts)
    assert not any(text.startswith("Phases: ") for text, _ in drawn_texts(plot.render(usual())))


def test_areas_differ_without_colour():
    looks = {(fill.hatch, round(luminance(fill.colour), 1)) for fill in plot._FILLS}

    assert len(looks) == len(plot._FILLS)


def luminance(colour: str) -> float:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_picture_without_allocation():
    with pytest.raises(InputError, match="holds no allocation"):
        plot.render(profile((0, 0.0)))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_difference_fits_terminal(width):
    difference = judging.diff(hostile(), usual())

    text = report.render(difference, width=width)

    assert max(cell_len(line) for line in text.split("\n")) <= width
    assert "\x1b" not in text


def test_difference_in_figures_and_tree():
    text = report.render(judging.diff(profile((0, PEAK)), profile((0, {**PEAK, ("net::pack", "net::prepare", "main"): 55.0}))), width=100)

    assert "The peak grew by 25.0 MiB (+25.0%): 100.0 MiB -> 125.0 MiB." in text
    assert re.search(r"\+25\.0 MiB +30\.0 MiB +55\.0 MiB +net::pack", text)
    assert re.search(r"\+25\.0 MiB +99\.5 MiB +124\.5 MiB +libnet", text)
    assert "log" not in text
    assert "not listed" not in text


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (100.0, 99.99, "The peak shrank by 10.2 KiB (less than 0.1%): 100.0 MiB -> 100.0 MiB."),
        (100.0, 100.01, "The peak grew by 10.2 KiB (less than 0.1%): 100.0 MiB -> 100.0 MiB."),
        (100.0, 60.0, "The peak shrank by 40.0 MiB (-40.0%): 100.0 MiB -> 60.0 MiB."),
        (100.0, 350.0, "The peak grew by 250.0 MiB (+250.0%): 100.0 MiB -> 350.0 MiB."),
        (0.1, 120.0, "The peak grew by 119.9 MiB (1,200 times): 102.4 KiB -> 120.0 MiB."),
        (0.0, 1.0, "The peak grew by 1.0 MiB: 0 B -> 1.0 MiB."),
    ],
)
def test_difference_share_has_sign(before, after, said):
    assert report.headline(judging.diff(profile((0, before)), profile((0, after)))) == said


def test_difference_of_same_profile():
    text = report.render(judging.diff(usual(), usual()), width=100)

    assert "The peak is the same: 100.0 MiB." in text
    assert text.count("no change") == 2


def test_difference_shows_cancelling_changes():
    before, after = {("a", "p"): 5, ("b", "p"): 7}, {("a", "p"): 7, ("b", "p"): 5}

    text = report.render(judging.diff(profile((0, before)), profile((0, after)), invert=True), report.DiffView(invert=True), width=100)

    assert re.search(r"0 B +12\.0 MiB +12\.0 MiB +p ", text)
    assert re.search(r"\+2\.0 MiB +5\.0 MiB +7\.0 MiB +.*a ", text)
    assert re.search(r"-2\.0 MiB +7\.0 MiB +5\.0 MiB +.*b ", text)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["show", "m.massif", "--snapshot", "99"], 2, "no snapshot 99"),
        (["show", "m.massif", "--snapshot", "5"], 5, "has no tree"),
        (["show", "m.massif", "--at-phase", "load"], 2, "knows no phases"),
        (["show", "m.massif", "--min", "x"], 2, "--min 'x' is not a percentage: write 5%"),
        (["show", "missing"], 5, "missing cannot be read: No such file or directory"),
        (["show", "."], 5, ". is a folder: name one of empty.massif, m.massif"),
        (["diff", "m.massif", "none"], 5, "none is a folder, and no profile lies in it"),
        (["show", "notes.txt"], 5, "notes.txt"),
        (["plot", "m.massif", "-o", "a.gif"], 2, ".png, .svg or .pdf"),
        (["plot", "m.massif", "-o", "notes.txt"], 2, ".png, .svg or .pdf"),
        (["plot", "m.massif", "-o", "nowhere/a.png"], 5, "there is no folder nowhere"),
        (["plot", "empty.massif", "-o", "a.png"], 5, "empty.massif holds no allocation"),
        (["view", "m.massif", "-o", "notes.txt"], 5, "is not a page of memprof's"),
        (["view", "m.massif", "-o", "nowhere/a.html"], 5, "there is no folder nowhere"),
        (["view", "m.massif", "--json"], 2, "-o FILE.html"),
        (["view"], 2, "FILE..."),
        (["diff", "m.massif"], 2, "B"),
        (["diff", "m.massif", "m.massif", "--fail-if-grows", "-5%"], 2, "--fail-if-grows '-5%' is not a percentage"),
        (["shwo"], 2, "there is no command 'shwo'; did you mean show?"),
    ],
)
def test_heap_command_refusals(memprof, tmp_path, words, code, said):
    write(usual(), tmp_path / "m.massif")
    write(profile((0, 0.0)), tmp_path / "empty.massif")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "none").mkdir()

    done = memprof("heap", *words)

    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_plot_formats_and_facts(memprof, tmp_path):
    write(usual(), tmp_path / "m.massif")

    for ending, head in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        done = memprof("heap", "plot", "m.massif", "-o", f"a.{ending}", "--json", "--by", "module")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / f"a.{ending}").read_bytes().startswith(head)
    facts = json.loads(done.stdout)
    assert facts["areas"][0]["name"] == "libnet" and facts["picture"] == "a.pdf"


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("40", 0), (None, 0)])
def test_diff_fails_if_heap_grows(memprof, tmp_path, limit, code):
    write(profile((0, PEAK)), tmp_path / "a.massif")
    write(profile((0, {**PEAK, ("new", "main"): 20.0})), tmp_path / "b.massif")

    done = memprof("heap", "diff", "a.massif", "b.massif", *(["--fail-if-grows", limit] if limit else []), "--json")

    assert done.returncode == code, done.stderr
    facts = json.loads(done.stdout)
    assert facts["growth_bytes"] == 20 * MIB
    assert facts["sites"][0] == {
        "name": "new",
        "module": "libnet",
        "source": "",
        "before_bytes": None,
        "after_bytes": 20 * MIB,
        "growth_bytes": 20 * MIB,
    }
    assert ("more than the 5% allowed" in done.stderr) is (code == 1)


@pytest.mark.parametrize("command", [[], ["show"], ["plot"], ["view"], ["diff"]])
def test_help_has_example(memprof, command):
    done = memprof("heap", *command, "--help")

    assert done.returncode == 0
    assert "Examples:" in done.stdout
