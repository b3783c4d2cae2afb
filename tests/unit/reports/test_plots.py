"""Pictures from made-up Runs: what is drawn equals what was measured, names stay text, nothing overlaps, and files are written with care."""

from __future__ import annotations

import functools
import itertools
import os
import xml.etree.ElementTree as ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import explanations, fit_results, growth_runs, sample_profiles, scale_scenarios
from support import sample_runs as maker
from support.examples import examples
from support.picture_text import drawn_texts
from support.sample_runs import MIB, machine, run, runs

from memprof.base.errors import InputError, UsageError
from memprof.records import store
from memprof.records.types import Outcome, Process
from memprof.reports import columns as columns_of
from memprof.reports.heap import plot as heap_plot
from memprof.reports.page import drawn
from memprof.reports.pictures import (
    choosing,
    fit,
    growth,
    lettering,
    peaks,
    placing,
    saving,
    scale,
    spread,
    style,
    threads,
    timeline,
    tradeoff,
    waterfall,
)
from memprof.reports.tables import grid

numpy = pytest.importorskip("numpy")

CRASH = Outcome("signal", phase="PREPARE", signal="SIGSEGV", rss_last_bytes=200 * MIB)
KINDS = {
    "peaks": peaks.render,
    "timeline": timeline.render,
    "threads": threads.render,
    "tradeoff": tradeoff.render,
    "spread": spread.render,
}
LONG = "onnxruntime, optimization=all, prepacking=off, mem_pattern={}, arena=off, build of a Monday " + "x" * 120
HOSTILE = [
    "a|b",
    "<b>a</b> & c",
    "$x^2$ and $y$",
    "a $ b",
    "a\nb\tc",
    "ü漢字",
    "_a",
    "x" * 200,
    r"\$\frac{1}{0}$",
    "a\x00\x1b[31m\u202eb",
    "",
]


def sweep(variants, counts=(1, 2), **rest):
    """Runs of these variants that every kind of picture can draw: two thread counts, three repeats, different in memory and time."""
    measured = []
    for place, variant in enumerate(variants):
        for count in counts:
            for repeat in (1, 2, 3):
                repeated = run(variant, repeat, threads=count, extra_mib=place * 3 + repeat / 10, **rest)
                marks = [
                    msgspec.structs.replace(mark, times_ns=tuple(int(time * (1 + place % 5) / count) for time in mark.times_ns))
                    for mark in repeated.marks
                ]
                measured.append(msgspec.structs.replace(repeated, marks=tuple(marks)))
    return measured


def counts_of(kind):
    """The thread counts with which a kind of picture shows each variant once. Lines over thread counts need two."""
    return (1, 2) if kind == "threads" else (1,)


@functools.cache
def drawn_once(kind):
    """The picture of two variants, for tests that look at it and change nothing."""
    return KINDS[kind](sweep(["a", "b"]))


def words(figure):
    return [text for text, _ in drawn_texts(figure)]


def overlaps(figure):
    """Pairs of texts that lie on one another by more than a pixel, and texts that leave the picture."""
    texts = drawn_texts(figure)
    inside = figure.bbox
    out = [
        text for text, box in texts if box.x0 < inside.x0 - 1 or box.x1 > inside.x1 + 1 or box.y0 < inside.y0 - 1 or box.y1 > inside.y1 + 1
    ]
    both = [
        (text, other)
        for (text, a), (other, b) in itertools.combinations(texts, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
    return both + out


@pytest.mark.parametrize("kind", KINDS)
def test_picture_text_without_overlap(kind):
    assert overlaps(drawn_once(kind)) == []
    assert overlaps(KINDS[kind](sweep([LONG.format(index) for index in range(6)], counts_of(kind)))) == []


def name_of(length):
    """A name of so many letters."""
    return ("mobilenet_v2_quantized/with_an_encoder-of-letters, " * 5)[: length - 5] + ".onnx"


def drawn_growth(name):
    each = growth_runs.followed(1, 300)
    return growth.render([msgspec.structs.replace(each, job=msgspec.structs.replace(each.job, model=maker.job(name).model, variant=name))])


NAMED = {
    **{kind: lambda name, render=render, kind=kind: render(sweep([name], counts_of(kind), model=name)) for kind, render in KINDS.items()},
    "two models": lambda name: peaks.render(sweep(["a"], (1,), model=name) + sweep(["a"], (1,), model=f"the other {name}")),
    "growth": drawn_growth,
    "scale": lambda name: scale.picture(scale_scenarios.made(model=name, settings=name)),
    "fit": lambda name: fit.picture(fit_results.made(model=name, settings=name, remarks=(name,))),
    "waterfall": lambda name: waterfall.draw(explanations.explanation(model=maker.job(name).model, knobs={"order": name})),
    "heap": lambda name: heap_plot.render(msgspec.structs.replace(sample_profiles.usual(), command=name)),
}


# The kinds of runs are drawn with usual names too, in test_picture_text_without_overlap.
LENGTHS = [(kind, length) for kind in NAMED for length in ((60, 200) if kind in KINDS else (10, 60, 200))]


@pytest.mark.parametrize(("kind", "length"), LENGTHS)
def test_picture_of_long_names(kind, length):
    name = name_of(length)

    figure = NAMED[kind](name)

    texts = words(figure)
    assert overlaps(figure) == []
    # The model's name stands whole, in as many lines as it takes, and what is shortened elsewhere lacks its end alone.
    assert "".join(name.split()) in "".join("".join(texts).split())
    assert [text for text in texts if "…" in text and not text.endswith("…")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_picture_with_failure_and_two_machines(kind):
    made = sweep(["a", "b"]) + sweep(["a"], model="other.onnx", where=machine("there"))
    made += [run("c", repeat, threads=1, outcome=CRASH) for repeat in (1, 2)]

    figure = KINDS[kind](made)

    said = words(figure)
    assert overlaps(figure) == []
    assert any("failed in 2 of 2 repeats: ended by SIGSEGV in PREPARE" in text for text in said)
    assert any("Measured on 2 machines, which are never averaged: here" in text for text in said)
    assert any(text.startswith("other.onnx") for text in said)
    assert any("net.onnx" in text for text in said)


@pytest.mark.parametrize("kind", KINDS)
def test_picture_hostile_names_stay_text(kind, tmp_path):
    figure = KINDS[kind](sweep(HOSTILE, counts_of(kind), model="<i>$model$</i> & co"))

    saving.save(figure, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    shown = [node.text for node in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}text") if node.text]
    for name in [*HOSTILE, "<i>$model$</i> & co"]:
        assert any(grid.plain(name)[:12] in written for written in shown), name
    assert "<b>" not in text and "<i>" not in text
    assert overlaps(figure) == []


def user_settings():
    import matplotlib

    return matplotlib.rc_context({"font.size": 20, "axes.grid": True, "savefig.dpi": 50, "lines.linewidth": 9})


@pytest.mark.parametrize(("kind", "ending"), [*((kind, "svg") for kind in KINDS), ("spread", "png"), ("spread", "pdf")])
def test_picture_bytes_independent_of_user_settings(kind, ending, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "DPI", 30)  # neither matplotlib's nor the user's
    saving.save(drawn_once(kind), tmp_path / f"one.{ending}")
    with user_settings():
        saving.save(KINDS[kind](sweep(["a", "b"])), tmp_path / f"two.{ending}")

    first = (tmp_path / f"one.{ending}").read_bytes()
    assert first == (tmp_path / f"two.{ending}").read_bytes()
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    assert b"Date" not in first


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "timeline"])
def test_picture_without_successful_run(kind):
    with pytest.raises(InputError, match=r"no run succeeded, so there is nothing to draw \(a: ended by SIGSEGV in PREPARE"):
        KINDS[kind]([run("a", outcome=CRASH)])


@pytest.mark.parametrize("kind", KINDS)
def test_picture_names_omitted_variants(kind, monkeypatch):
    limits = {peaks: "_MOST_BARS", timeline: "_MOST_ROWS", threads: "_MOST_LINES", tradeoff: "_MOST_NAMES", spread: "_MOST_ROWS"}
    for picture, most in limits.items():  # a tenth of them takes a tenth of the time
        monkeypatch.setattr(picture, most, getattr(picture, most) // 10)
    many = [run(f"variant {index}", threads=count, extra_mib=index) for index in range(7) for count in (1, 2)]

    said = words(KINDS[kind](many))

    assert any("more variants are not drawn" in text or "others are not: --variant" in text for text in said)


def luminance(colour):
    from matplotlib.colors import to_rgb

    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in to_rgb(colour)]
    return 116 * (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]) ** (1 / 3) - 16


def test_areas_distinct_in_grey():
    fills = (style.ANON, style.FILE, style.UNSEEN)

    assert all(abs(luminance(fill.colour) - luminance(other.colour)) > 15 for fill, other in itertools.combinations(fills, 2))
    assert len({fill.hatch for fill in fills}) == 3


def test_lines_distinct_without_colour():
    looks = [style.line(index) for index in range(60)]

    assert len({(str(look["linestyle"]), look["marker"]) for look in looks}) == 60
    assert len({look["marker"] for look in looks[:12]}) == 12
    assert all(abs(luminance(look["color"]) - luminance(other["color"])) > 8 for look, other in itertools.pairwise(looks[:7]))


def boxes(axes):
    """The stacked bars of a column: part -> row -> (left, right), in MiB."""
    spans = {}
    for patch in axes.patches:
        rows = spans.setdefault(patch.get_label(), {})
        for box in patch.get_path().vertices.reshape(-1, 5, 2)[:, :4]:
            rows[round((box[:, 1].min() + box[:, 1].max()) / 2)] = (box[:, 0].min(), box[:, 0].max())
    return spans


def column(figure, phase):
    return next(axes for axes in figure.axes if axes.get_title(loc="left") == phase)


def seen(*samples):
    """Timeline rows from (seconds, RSS, file-backed) in MiB."""
    return [(int(t * 1e9), rss * MIB, file * MIB, 0) for t, rss, file in samples]


def test_bar_split_at_highest_sample():
    made = [run("a", samples=seen((1.0, 50, 10), (1.2, 149, 30), (1.3, 120, 10))), run("b", samples=seen((0.1, 5, 1)))]

    spans = boxes(column(peaks.render(made), "MODEL_LOAD"))

    # a: the sample of 149 MiB at 1.2 s; b: no sample in the phase, so its end: 130 + 10; the peak of both is 150.
    assert spans["anon"][0] == pytest.approx((0, 119)) and spans["file"][0] == pytest.approx((119, 149))
    assert spans["unseen"][0] == pytest.approx((149, 150))
    assert spans["anon"][1] == pytest.approx((0, 130)) and spans["file"][1] == pytest.approx((130, 140))
    assert spans["unseen"][1] == pytest.approx((140, 150))


def test_peaks_column_per_phase():
    figure = peaks.render(sweep(["a", "b", "c"]))

    assert [axes.get_title(loc="left") for axes in figure.axes] == ["MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE"]
    assert all(len(boxes(axes)["anon"]) == 6 for axes in figure.axes)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert figure.axes[0].get_xlim()[0] == 0


def test_bar_median_and_range_of_repeats():
    figure = peaks.render(runs("a", (0, 40, 10)))

    axes = column(figure, "PREPARE")
    assert max(right for part in boxes(axes).values() for _, right in part.values()) == pytest.approx(280)
    assert [line.tolist() for line in axes.collections[1].get_segments()] == [[[270, 0], [310, 0]]]
    assert "280.0" in words(figure)


@pytest.mark.parametrize(
    ("extra_mib", "length"),
    [((0, 8, 0, 8), 270), ((0, 8), 274)],
    ids=["two modes, of which the bar has one", "two repeats, and no modes"],
)
def test_bar_of_even_repeats_is_all_seen(extra_mib, length):
    """Half of the repeats below the median and half above it made a part of the bar that no sample and no run had."""
    made = [
        msgspec.structs.replace(each, timeline=maker.timeline(seen((2.1, 270 + extra, 10))))
        for each, extra in zip(runs("a", extra_mib), extra_mib, strict=True)
    ]
    spans = boxes(column(peaks.render(made), "PREPARE"))

    assert max(right for part in spans.values() for _, right in part.values()) == pytest.approx(length)
    assert all(right - left < 1e-6 for left, right in spans.get("unseen", {}).values())


def test_bar_marks_baseline():
    axes = column(peaks.render(runs("a")), "EXECUTE")

    assert axes.collections[0].get_segments()[0][:, 0] == pytest.approx(40)


def test_peaks_failed_variant_in_place():
    figure = peaks.render([run("good"), run("bad", outcome=CRASH)])

    assert list(boxes(column(figure, "MODEL_LOAD"))["anon"]) == [0, 1]
    assert list(boxes(column(figure, "PREPARE"))["anon"]) == [0]
    assert [text.get_text() for text in column(figure, "PREPARE").texts] == ["270.0", "✗ SIGSEGV"]
    assert [text.get_text() for text in column(figure, "EXECUTE").texts] == ["268.0", "–"]


def test_peaks_phase_of_failures_alone_without_panel():
    failed = Outcome("error", phase="BUILD", message="no such operator")
    figure = peaks.render([run("good"), msgspec.structs.replace(run("bad", outcome=failed), marks=())])

    assert [axes.get_title(loc="left") for axes in figure.axes] == ["MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE"]
    assert [text.get_text() for text in column(figure, "MODEL_LOAD").texts][1] == "✗ error in BUILD"
    assert [text.get_text() for text in column(figure, "PREPARE").texts][1] == "–"


def test_bar_marks_failed_repeats():
    made = [run("a", 1), run("a", 2, outcome=msgspec.structs.replace(CRASH, phase="EXECUTE"))]

    assert "268.0 ✗" in words(peaks.render(made))


def test_peaks_bold_largest_and_tilde_inexact():
    figure = peaks.render([run("a", exact=False)])

    weights = {text.get_text(): text.get_weight() for axes in figure.axes for text in axes.texts}
    assert weights == {"~150.0": "normal", "~270.0": "bold", "~266.0": "normal", "~268.0": "normal"}


def test_peaks_swapped_out_at_least():
    made = run("a")
    marks = tuple(msgspec.structs.replace(mark, swap_peak_bytes=171 << 20) if mark.phase == "EXECUTE" else mark for mark in made.marks)

    swapped = [msgspec.structs.replace(made, marks=marks)]
    said = words(peaks.render(swapped))

    assert "≥268.0" in said and "270.0" in said and "≥ at least: pages were swapped out" in said
    for picture in (peaks, spread, timeline, tradeoff):
        text = " ".join(words(picture.render(swapped)))
        assert "Pages were swapped out (171.0 MiB in EXECUTE, at most), which RSS does not count" in text, picture


def test_peaks_panel_per_model():
    both = sweep(["a"]) + sweep(["a"], model="other.onnx")
    figure = peaks.render(both)

    shown = " ".join(words(peaks.render(sweep(["a"]))))
    assert "RSS peak of each phase: net.onnx · " in shown and "PEAK is 270.2 MiB (a, 1 thread) to 270.2 MiB (a, 2 threads)" in shown
    assert {"net.onnx", "other.onnx"} <= set(words(figure))
    assert len(figure.axes) == 8
    assert len(peaks.render(choosing.chosen(both, "other.onnx")).axes) == 4


def test_peaks_many_phases_wrap():
    made = run("a", memory={"STARTUP": (10, 10), **{f"EPOCH {index}": (50 + index, 60 + index) for index in range(6)}})

    figure = peaks.render([made])

    assert len(figure.axes) == 6
    assert overlaps(figure) == []


samples = st.lists(
    st.tuples(st.integers(1, 10**9), st.integers(0, 10**12), st.integers(0, 10**11), st.integers(0, 10**13)), min_size=1, max_size=300
)


def packed(rows):
    times = itertools.accumulate(row[0] for row in rows)
    return maker.timeline([(t_ns, rss + file, file, vms) for t_ns, (_, rss, file, vms) in zip(times, rows, strict=True)])


@given(samples)
def test_columns_match_store(rows):
    line = packed(rows)
    plain, fast = store.unpack(line), columns_of.columns(line)

    for name in ("t_ns", "rss", "file", "vms"):
        assert list(getattr(plain, name)) == getattr(fast, name).tolist()


@given(samples, st.integers(1, 40), st.integers(0, 300))
def test_thinning_keeps_maxima_and_ends(rows, buckets, cut):
    whole = columns_of.columns(packed(rows))
    middle, end = int(whole.t_ns[min(cut, len(whole) - 1)]), int(whole.t_ns[-1])
    phases = [(0, middle), (middle + 1, end)]
    few = columns_of.thin(whole, buckets, phases)

    assert len(few) <= max(5 * buckets + 4, 1) or len(few) == len(whole)
    assert set(zip(few.t_ns.tolist(), few.rss.tolist(), strict=True)) <= set(zip(whole.t_ns.tolist(), whole.rss.tolist(), strict=True))
    assert (few.t_ns[0], few.t_ns[-1]) == (whole.t_ns[0], whole.t_ns[-1])
    assert few.rss.min() == whole.rss.min()
    for name in ("rss", "anon", "file", "vms"):
        assert getattr(few, name).max() == getattr(whole, name).max()
    for phase in phases:
        assert few.between(*phase).rss.max(initial=-1) == whole.between(*phase).rss.max(initial=-1)


def test_timeline_damaged():
    for change in ({"rss": "!"}, {"rss": "eJw="}, {"rss": maker.packed((1, 2, 3))}):
        with pytest.raises(InputError, match="a timeline is damaged"):
            columns_of.columns(msgspec.structs.replace(maker.timeline([(1, 2, 3, 4)]), **change))


def test_typical_repeat_median_of_successful():
    made = [*runs("a", (5, 1, 9)), run("a", 4, extra_mib=2, outcome=CRASH)]

    assert columns_of.typical(made).job.repeat == 1
    assert columns_of.typical(runs("a", (5, 1, 9, 7))).job.repeat == 1
    assert columns_of.typical([run("a", 1, outcome=CRASH)]).job.repeat == 1


def areas(axes):
    """Points of the RSS line of a row."""
    return axes.lines[0].get_xydata().tolist()


def test_timeline_begins_at_first_phase():
    made = run("a", samples=seen((0, 20, 5), (1.2, 150, 5), (4.3, 200, 60)))

    axes = timeline.render([made]).axes[0]

    polled = [[0, 20], [1.2, 150], [4.3, 200]]
    begins, ends = [[1, 40], [2, 140], [3, 260], [4, 265]], [[0.4, 40], [1.4, 140], [2.4, 260], [3.4, 265], [4.4, 265]]
    assert areas(axes) == sorted(polled + begins + ends)
    assert axes.get_xlabel() == "time since the start of STARTUP (s)"
    assert axes.get_ylabel() == "RSS (MiB)"


def test_timeline_peak_missed_by_polling():
    made = run("a", samples=seen((0, 20, 5), (2.1, 255, 5), (4.3, 200, 60)))

    figure = timeline.render([made])

    # Phases of the made-up run last 0.4 s each, one a second.
    levels = [(segment[0][0], segment[1][0], segment[0][1]) for shape in figure.axes[0].collections[2:] for segment in shape.get_segments()]
    assert levels == [(0, 0.4, 40), (1, 1.4, 150), (2, 2.4, 270), (3, 3.4, 266), (4, 4.4, 268)]
    assert "270.0 MiB in PREPARE (polling saw 255.0)" in words(figure)


def test_timeline_peak_seen_by_polling():
    figure = timeline.render([run("a", samples=seen((0, 20, 5), (2.3, 270, 5), (4.3, 200, 60)))])

    assert "270.0 MiB in PREPARE" in words(figure)
    assert [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "v"] == [[[2.3, 270]]]


def test_timeline_rows_share_scale():
    figure = drawn_once("timeline")

    assert len(figure.axes) == 4
    assert len({axes.get_xlim() + axes.get_ylim() for axes in figure.axes}) == 1
    said = words(figure)
    assert said.count("MODEL_LOAD") == said.count("EXECUTE") == 4
    assert "a, 1 thread" in said and "b, 2 threads" in said
    assert any(text == "repeat 2, the one with the median PEAK; PEAK of 3 repeats: 270.1 to 270.3 MiB" for text in said)


def test_timeline_of_failed_run():
    made = run("a", outcome=CRASH, samples=seen((0, 20, 5), (1.2, 150, 5), (2.2, 190, 60)))

    figure = timeline.render([made])

    said = words(figure)
    assert {"✗ PREPARE", "≥190.0 MiB in PREPARE", "✗ failed: ended by SIGSEGV in PREPARE, its RSS last 200.0 MiB"} <= set(said)
    assert [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "X"] == [[[2.2, 190]]]
    trace = drawn.page([[made]]).models[0].groups[0].traces[0]
    assert (trace.peak_bytes, trace.peak_phase) == (190 * MIB, "PREPARE"), "the page has the same peak"
    assert [(phase.name, phase.finished) for phase in trace.phases[-2:]] == [("MODEL_LOAD", True), ("PREPARE", False)]


def test_timeline_chosen_phases_from_zero():
    made = run("a", samples=seen((0, 20, 5), (1.0, 50, 5), (1.4, 150, 5), (2.2, 190, 60), (4.1, 200, 60)))

    axes = timeline.render([made], phases=["MODEL_LOAD", "PREPARE"]).axes[0]

    polled, begins, ends = [[0, 50], [400, 150], [1200, 190]], [[0, 40], [1000, 140]], [[400, 140], [1400, 260]]
    assert sorted([round(x), y] for x, y in areas(axes)) == sorted(polled + begins + ends)
    assert axes.get_xlabel() == "time since the start of MODEL_LOAD (ms)"


def test_timeline_of_phase_too_short_to_be_seen():
    """Beside a phase that takes its time, one of 10 us is a point: its panel says so, and has the peaks of that phase alone."""
    long = [run("a", repeat, samples=seen((0, 20, 5), (1.2, 150, 5), (4.3, 200, 60))) for repeat in (1, 2, 3)]
    short = [
        msgspec.structs.replace(
            each,
            job=msgspec.structs.replace(each.job, variant="b"),
            marks=tuple(
                msgspec.structs.replace(mark, end_ns=mark.begin_ns + 10_000) if mark.phase == "MODEL_LOAD" else mark for mark in each.marks
            ),
        )
        for each in long
    ]

    said = words(timeline.render([*long, *short], phases=["MODEL_LOAD"]))

    assert any(text.endswith(" in MODEL_LOAD; it took 10 us, too short to be seen") for text in said)
    assert sum("too short" in text for text in said) == 1
    assert said.count("repeat 2, the one with the median PEAK; peak of MODEL_LOAD in 3 repeats: 150.0 MiB each") == 2


def test_timeline_stays_below_exact_peak():
    made = run("a", samples=seen((0, 20, 5), (0.1, 25, 5), (1.3, 150, 5), (4.3, 200, 60)))  # a poll gap crosses the end of STARTUP

    points = areas(timeline.render([made]).axes[0])

    assert max(rss for t, rss in points if t <= 0.4) == 40  # where a straight line would be at 56 MiB


def test_timeline_of_several_processes_without_marks():
    made = run("a", samples=seen((0, 20, 5), (4.3, 500, 60)))
    several = msgspec.structs.replace(made, processes=(Process(1, "a", 0, 1, 300 * MIB), Process(2, "b", 0, 1, 200 * MIB)))

    assert areas(timeline.render([several]).axes[0]) == [[0, 20], [4.3, 500]]


def test_peaks_in_order_of_run():
    names = ("STARTUP", "MODEL_LOAD", "PREPROCESS", "EXECUTE")
    figure = peaks.render([run("app.py", model="app.py", memory=dict.fromkeys(names, (40, 50)), runtime="command")])

    assert [axes.get_title(loc="left") for axes in figure.axes] == list(names[1:])
    assert "baseline: before the first phase" in words(figure)
    assert "baseline: no model loaded" in words(peaks.render([run()]))


def test_timeline_unknown_phase():
    with pytest.raises(UsageError, match="did you mean PREPARE"):
        timeline.render([run()], phases=["PREPAR"])


def test_timeline_of_unpolled_run():
    nothing = msgspec.structs.replace(run("a", outcome=Outcome("start")), marks=(), timeline=maker.timeline([]))

    with pytest.raises(InputError, match="nothing to draw"):
        timeline.render([nothing])
    figure = timeline.render([nothing, run("b")])
    assert any("Not drawn, for nothing was seen of it: a" in text for text in words(figure))


def test_timeline_unpolled_phase_pale():
    made = run("a")
    marks = tuple(msgspec.structs.replace(mark, interval_ns=0) if mark.phase == "EXECUTE" else mark for mark in made.marks)

    assert "pale: not polled, its ends joined" in words(timeline.render([msgspec.structs.replace(made, marks=marks)]))
    assert "pale: not polled, its ends joined" not in words(timeline.render([made]))


def test_threads_line_of_medians():
    figure = threads.render(sweep(["a"]), ["rss_peak_bytes", "time_ns"])

    memory, time = figure.axes
    assert memory.lines[0].get_xydata().tolist() == [[0, pytest.approx(270.2)], [1, pytest.approx(270.2)]]
    assert time.lines[0].get_xydata().tolist() == [[0, 22], [1, 11]]
    assert [label.get_text() for label in memory.get_xticklabels()] == ["1", "2"]
    assert (memory.get_title(loc="left"), time.get_title(loc="left")) == ("RSS peak (MiB)", "Latency in EXECUTE (ms)")
    assert memory.get_ylim()[0] == 0


def test_threads_failed_count_marked():
    made = [run("a", threads=1), run("a", threads=2, outcome=CRASH), run("a", threads=4)]

    figure = threads.render(made)

    assert [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "X"] == [[[1, 0]]]


def test_threads_without_sweep():
    with pytest.raises(InputError, match="--threads 1,2,4"):
        threads.render(runs("a"))


def test_metric_unknown():
    for render in (threads.render, spread.render):
        with pytest.raises(UsageError, match="did you mean rss_peak_bytes"):
            render(sweep(["a"]), ["rss_peak"])


def test_metric_not_measured():
    for render in (threads.render, spread.render):
        with pytest.raises(InputError, match="these runs have no pss_end_bytes in EXECUTE"):
            render(sweep(["a"]), ["pss_end_bytes"])


points = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=25)


@given(points)
def test_tradeoff_front_unbeaten(places):
    everyone = [tradeoff.TradeoffPoint(str(index), (float(x),), (float(y),)) for index, (x, y) in enumerate(places)]

    unbeaten = [
        point
        for point in everyone
        if not any(other.at != point.at and other.at[0] <= point.at[0] and other.at[1] <= point.at[1] for other in everyone)
    ]
    assert sorted(tradeoff.front(everyone), key=lambda point: point.name) == sorted(unbeaten, key=lambda point: point.name)


def test_tradeoff_medians_without_failed_repeats():
    made = [*runs("a", (0, 2, 40)), run("a", 4, extra_mib=1000, outcome=CRASH)]

    axes = tradeoff.render(made).axes[0]

    assert [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"] == [[[272, 22]], []]


def test_tradeoff_program_by_its_duration():
    whole = run("engine")
    mark = msgspec.structs.replace(whole.marks[-1], phase="RUN", times_ns=(), begin_ns=0, end_ns=7_000_000)

    axes = tradeoff.render([msgspec.structs.replace(whole, marks=(mark,))]).axes[0]

    assert [line.get_ydata().tolist() for line in axes.lines if line.get_marker() == "o"] == [[7], []]
    assert axes.get_ylabel() == "Duration (ms)"


def test_tradeoff_named_as_table_with_limit():
    """Rows that a table beside the picture has are called as there, and a limit is a line."""
    names = {f"#{number} {'with many settings, ' * 3}{number}": f"#{number}" for number in (0, 2, 5)}
    made = [run(name, extra_mib=place * 20) for place, name in enumerate(names)]
    figure = tradeoff.render(made, rows=names, limit_bytes=200 * MIB, finding="the best is #2")
    axes, texts = figure.axes[0], {text.get_text() for text in figure.texts}

    assert {text.get_text() for text in axes.texts} >= {"#0", "#2", "#5"}
    assert any(list(line.get_xdata()) == [200, 200] for line in axes.lines)
    assert axes.get_xlim()[0] < 200 < axes.get_xlim()[1]
    assert "the best is #2" in texts
    assert any(text.startswith("#5  with many settings") for text in texts)


def test_tradeoff_beaten_point_hollow():
    slow = run("slow", extra_mib=50)
    figure = tradeoff.render([run("good"), slow])

    reached = {line.get_color(): line.get_xdata().tolist() for line in figure.axes[0].lines if line.get_marker() == "o"}
    assert reached == {"#0072B2": [270], "white": [320]}


def test_tradeoff_front_is_of_the_table():
    """A row that the table leaves out is not drawn as the front, though its medians are the lowest: its own best row would look beaten."""
    best, apart = run("#2 best", extra_mib=1), run("#1 more knobs")
    figure = tradeoff.render([best, apart], rows={"#2 best": "#2", "#1 more knobs": "#1"}, left_out=["#1 more knobs"])
    reached = {line.get_color(): line.get_xdata().tolist() for line in figure.axes[0].lines if line.get_marker() == "o"}
    assert reached == {"#0072B2": [271], "white": [270]}
    assert "another is better, or no worse beyond noise" in words(figure)


def test_tradeoff_labels_beside_points():
    """A label goes to another side of its point where it would lie on one."""
    spots = [(5.0, 2.0), (5.4, 2.08), (9.0, 2.0)]
    texts = [(f"runtime #{number}", spot) for number, spot in enumerate(spots)]
    labels = tradeoff._placed(texts, spots, 9.08)
    assert not tradeoff._crowded(labels, spots)
    assert [label.right for label in labels] == [False, True, False]
    assert labels[1].box.y0 > spots[1][1] and labels[2].box.x1 < spots[2][0]


def test_tradeoff_logarithmic_axis():
    slow = run("slow", extra_mib=50)
    slow = msgspec.structs.replace(
        slow, marks=tuple(msgspec.structs.replace(mark, times_ns=tuple(100 * time for time in mark.times_ns)) for mark in slow.marks)
    )

    axes = tradeoff.render([run("good"), slow]).axes[0]

    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
    assert "logarithmic" in axes.get_ylabel()


def test_tradeoff_crowded_points_numbered():
    figure = tradeoff.render([run(f"a variant with a rather long name, number {index}") for index in range(40)])

    said = words(figure)
    assert any(text.startswith("17  ") and "number 16" in text for text in said)
    assert "1–40" in said


def test_tradeoff_names_beside_points():
    figure = tradeoff.render([run("small"), run("large", extra_mib=200)])

    axes = figure.axes[0]
    places = {text.get_text(): axes.transAxes.transform(text.get_position())[0] for text in axes.texts}
    spots = axes.transData.transform([(270, 22), (470, 22)])[:, 0]
    assert places["small"] > spots[0]
    assert places["large"] > places["small"]


def dots(axes):
    return [sorted(line.get_xdata().tolist()) for line in axes.lines if line.get_marker() == "o"]


def test_spread_point_per_repeat():
    figure = spread.render([*runs("two modes", (0, 0.1, 5, 5.1, 5.2)), *runs("b", (50,))])

    absolute, relative = figure.axes
    assert dots(absolute) == [pytest.approx([270, 270.1, 275, 275.1, 275.2], abs=1e-5), [320]]
    assert dots(relative) == [pytest.approx([-5, -4.9, 0, 0.1, 0.2], abs=1e-5), [0]]
    assert {"275.0  (5 repeats)", "320.0  (1 repeat)"} <= set(words(figure))


def test_spread_counts_failed_repeats():
    made = [*runs("a", (0, 1)), run("a", 3, outcome=CRASH), run("b", 1, outcome=CRASH)]

    assert {"270.5  (2 repeats, ✗ 1)", "✗ none succeeded"} <= set(words(spread.render(made)))


def heights(axes):
    (line,) = [line for line in axes.lines if line.get_marker() == "o"]
    return line.get_ydata().tolist()


def test_spread_repeats_in_order_from_top():
    figure = spread.render(runs("a", (0, 0, 0, 0)))

    assert dots(figure.axes[1]) == [[0, 0, 0, 0]]
    for axes in figure.axes:
        assert heights(axes) == sorted(set(heights(axes)))
        assert axes.yaxis_inverted()


def test_spread_many_repeats_stay_in_row():
    figure = spread.render(runs("a", range(200)))

    assert -0.5 < min(heights(figure.axes[0])) < max(heights(figure.axes[0])) < 0.5


@pytest.mark.parametrize("text", ["onnxruntime, optimization=all, AVATAR", "MODEL_LOAD", "148.6 ✗", "WWWW iiii", "привет ü", "e\u0301"])
@pytest.mark.parametrize(("size", "weight"), [(8, "normal"), (9, "bold"), (12, "bold")])
def test_width_matches_drawn_text(text, size, weight):
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

    font = FontProperties(family=["DejaVu Sans"], size=size, weight=weight)
    drawn = RendererAgg(1, 1, style.DPI).get_text_width_height_descent(text, font, ismath=False)[0] / style.DPI

    assert drawn * 0.98 <= lettering.width(text, size, weight) <= drawn * 1.08 + 0.02


@given(st.text(max_size=100), st.floats(0.3, 3))
@examples(40)
def test_text_shortened_at_end(text, inches):
    readable = lettering.readable(text)
    short = lettering.shortened(readable, inches)

    assert lettering.width(short) <= inches or len(short) <= 2
    assert short == readable or (short.endswith("…") and readable.startswith(short[:-1]))


@pytest.mark.parametrize(("text", "short"), [("with your sizes for N", "with your…"), ("with_your_sizes_for_N", "with_your_siz…")])
def test_text_shortened_at_end_of_word(text, short):
    assert lettering.shortened(text, lettering.width("with your sizexx")) == short


def test_text_shortened_stays_distinct():
    names = ["a" * 60 + middle + "z" * 60 for middle in ("mem_pattern=on", "mem_pattern=off", "arena=on")]
    same_but_for_more_than_fits = ["b" * 100 + "c" * 100, "b" * 100 + "c" * 99]

    assert len(set(lettering.distinct([*names, *same_but_for_more_than_fits], 2.0))) == 5
    assert lettering.distinct(["short", "short"], 2.0) == ["short", "short"]
    assert lettering.distinct(["a\nb", "a b"], 2.0) == ["a b #1", "a b #2"]


def test_letters_without_font_named(tmp_path, monkeypatch):
    monkeypatch.setattr(lettering, "_drawable", lambda: frozenset(range(32, 127)))
    figure = peaks.render([run("ü [U+0041]")])

    assert "[U+00FC] [U+0041]" in words(figure)
    saving.save(figure, tmp_path / "a.svg")
    assert "ü [U+0041]" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "[U+00FC] [U+0041]" in words(figure)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 0.9)), min_size=1, max_size=10))
def test_labels_in_line_pushed_apart(spots):
    spots.sort()
    sizes = [size for _, size in spots]
    centres = placing.apart([centre for centre, _ in spots], sizes, 0, 10)

    edges = [(centre - size / 2, centre + size / 2) for centre, size in zip(centres, sizes, strict=True)]
    assert all(edge[1] <= other[0] + 1e-9 for edge, other in itertools.pairwise(edges))
    assert edges[0][0] >= -1e-9 and edges[-1][1] <= 10 + 1e-9


def test_label_with_room_stays():
    assert placing.apart([1, 5, 5.2, 9.9], [1, 1, 1, 1], 0, 10) == pytest.approx([1, 5, 6, 9.5])


@pytest.fixture
def figure(monkeypatch):
    monkeypatch.setattr(saving, "DPI", 30)  # pixels take most of the time, and none is looked at
    return spread.render(runs("a", (0,)))


def test_save_replaces_earlier_picture(figure, tmp_path):
    path = tmp_path / "a.PNG"
    path.write_bytes(b"\x89PNG old")

    saving.save(figure, path)

    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert os.listdir(tmp_path) == ["a.PNG"]


@pytest.mark.parametrize("content", [b'{"memprof":1,"job":{}}\n', b"my thesis", b"%PDF-1.4"])
def test_save_keeps_other_files(figure, tmp_path, content):
    path = tmp_path / "a.png"
    path.write_bytes(content)

    with pytest.raises(InputError, match="exists and is not a PNG picture; it was left as it is"):
        saving.save(figure, path)
    assert path.read_bytes() == content


def test_save_refuses_bad_paths(figure, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder.png").mkdir()

    for path, error, words in [
        (tmp_path / "a.gif", UsageError, "a picture's name ends in .png, .svg or .pdf"),
        (tmp_path / "a", UsageError, "a picture's name ends in"),
        (tmp_path / "no" / "a.png", InputError, "there is no folder"),
        (tmp_path / "file" / "a.png", InputError, "there is no folder"),
        (tmp_path / "folder.png", InputError, "is a folder"),
        (tmp_path / ("x" * 300 + ".png"), InputError, "File name too long"),
    ]:
        with pytest.raises(error, match=words) as caught:
            saving.save(figure, path)
        assert "\n" not in str(caught.value)


def test_save_without_permission(figure, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root, who may write everywhere

    with pytest.raises(InputError, match="no permission to write in"):
        saving.save(figure, tmp_path / "a.png")


def test_save_on_full_disk(figure, tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG old")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        saving.save(figure, path)
    assert path.read_bytes() == b"\x89PNG old"
    assert os.listdir(tmp_path) == ["a.png"]


@pytest.fixture
def runs_file(tmp_path):
    (tmp_path / "runs.jsonl").write_bytes(
        b"".join(store.encode(measured) for measured in sweep(["a", "b"]) + sweep(["a"], model="other.onnx"))
    )
    return "runs.jsonl"


@pytest.mark.parametrize(
    "arguments",
    [
        ("peaks", "--model", "net.onnx"),
        ("timeline", "--phase", "PREPARE"),
        ("threads", "--metric", "time_ns"),
        ("tradeoff", "--metric", "anon_end_bytes", "--phase", "PREPARE"),
        ("spread", "--variant", "b"),
    ],
)
def test_plot_draws_each_kind(memprof, runs_file, tmp_path, arguments, monkeypatch):
    monkeypatch.setattr(saving, "DPI", 30)  # pixels take most of the time, and none is looked at
    done = memprof("plot", arguments[0], runs_file, "-o", "a.png", *arguments[1:])

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (done.stdout, done.stderr) == ("", "memprof: a.png is drawn\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("runs.jsonl", "-o", "a.bmp"), 2, "ends in .png, .svg or .pdf"),
        (("runs.jsonl", "-o", "a.png", "--model", "nett.onnx"), 2, "did you mean net.onnx"),
        (("runs.jsonl", "-o", "a.png", "--variant", "c"), 2, "they have a; b"),
        (("runs.jsonl", "-o", "runs.jsonl"), 2, "ends in"),
        (("runs.jsonl", "-o", "no/a.png"), 5, "there is no folder no"),
        (("empty.jsonl", "-o", "a.png"), 5, "holds no complete run"),
        (("failed.jsonl", "-o", "a.png"), 5, "no run succeeded"),
        (("missing.jsonl", "-o", "a.png"), 5, "No such file"),
    ],
)
def test_plot_refusals(memprof, runs_file, tmp_path, arguments, code, words):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "failed.jsonl").write_bytes(store.encode(run(outcome=CRASH)))

    done = memprof("plot", "peaks", *arguments)

    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert words in done.stderr
    assert not (tmp_path / "a.png").exists()
