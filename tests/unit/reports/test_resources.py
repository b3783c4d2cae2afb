"""The memory of a container to paste into a manifest, as `memprof fit` and `memprof scale --within` end."""

from __future__ import annotations

import json
import math
import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as some
from msgspec.structs import replace
from support import fit_results, scale_scenarios
from support.examples import examples

from memprof.base.units import format_bytes, parse_bytes
from memprof.footprint.fit import LimitPoint, PartLimit
from memprof.footprint.shared_files import HeldFiles
from memprof.growth.laws.laws import FARTHEST, Prediction
from memprof.growth.scale import predictions
from memprof.growth.scale.answer import PlaceRun
from memprof.records.types import PEAK
from memprof.reports.tables import fit, resources, scale

MIB = 1 << 20


def of_part(least: float | None, peak: float, failed: float = 0, **changes: object) -> resources.Resources | None:
    part = PartLimit("whole run", None if least is None else int(least * MIB), int(peak * MIB), None, 12, 6, int(failed * MIB))
    return resources.of_fit(fit_results.made(parts=(part,), **changes))


def test_fit_requests_no_slow_limit() -> None:
    """An iteration took twice as long in the least limit, and a limit that worked once at full speed may have had luck."""
    once = (LimitPoint(40 * MIB, 2e7, 0.0, 9.0, runs=6), LimitPoint(48 * MIB, 1e7, 0.0, 0.0), LimitPoint(None, 1e7, 0.0, 0.0, runs=3))
    found = of_part(40.2, 59.2, curve=once)
    assert found is not None
    assert (found.requests.bytes, found.requests.margin) == (60 * MIB, 0)
    assert found.requests.figure == "the RSS peak with no limit, as no limit was measured at full speed: 59.2 MiB"
    text = fit.render(fit_results.made(parts=(PartLimit("whole run", 40 * MIB, 60 * MIB, None, 12, 6),), curve=once))
    assert (
        "No limit was measured at full speed (at most 1.1x, or no page read again, in 3 runs): --max-latency 2x searches the least limit"
        in text
    )
    searched = fit.render(fit_results.made(curve=once, max_time=2.0))
    assert "--max-latency" not in searched and "No limit was measured at full speed" in searched


def test_fit_limits_can_be_subtracted() -> None:
    """An RSS peak has the pages that others held: a limit and these make no more than it, and how far a search came changes nothing."""
    plain = LimitPoint(None, 1e7, 0.0, 0.0, runs=3)
    fast = (LimitPoint(int(84.3 * MIB), 1e7, 0.0, 0.0, runs=3), plain)
    held = HeldFiles(int(18.9 * MIB))
    default = of_part(76.7, 92.8, curve=fast, held=held)
    tuned = of_part(54.4, 77.9, curve=(LimitPoint(int(54.4 * MIB), 1e7, 0.0, 0.0), plain), held=held)
    assert default is not None and tuned is not None
    assert [each.limits.figure for each in (default, tuned)] == [f"the RSS peak with no limit: {size} MiB" for size in (92.8, 77.9)]
    assert (default.limits.bytes, tuned.limits.bytes) == (103 * MIB, 86 * MIB)
    more = "84.3 MiB + 18.9 MiB of its files that other processes held + 10% = 113.5 MiB"
    assert default.requests.figure == f"the RSS peak with no limit, as the least limit at full speed would be more ({more}): 92.8 MiB"
    assert default.requests.bytes == 93 * MIB


@pytest.mark.parametrize(("least", "failed"), [(121.6, 60.8), (80, 79), (94, 92)])
def test_unfinished_search_sets_no_limit(least: float, failed: float) -> None:
    """The upper end of a bisection is no least limit."""
    part = PartLimit("whole run", int(least * MIB), 92 * MIB, None, 2, 1, int(failed * MIB), complete=False)
    curve = (LimitPoint(int(least * MIB), 1e7, 0.0, 0.0), LimitPoint(None, 1e7, 0.0, 0.0, runs=3))
    fitted = fit_results.made(parts=(part,), curve=curve, held=HeldFiles(int(18.4 * MIB)))
    found = resources.of_fit(fitted)
    assert found is not None and "No lines for a manifest" not in fit.render(fitted)
    assert (found.requests.figure, found.requests.bytes) == (
        "the RSS peak with no limit, as the search was not finished: 92.0 MiB",
        92 * MIB,
    )
    assert (found.limits.figure, found.limits.bytes) == ("the RSS peak with no limit: 92.0 MiB", 102 * MIB)


def test_failure_above_peak_needs_more_than_peak() -> None:
    """A file in tmpfs is in no resident set: the limits that were searched count, or nothing while these are not known."""
    fast = (LimitPoint(80 * MIB, 1e7, 0.0, 0.0, runs=6), LimitPoint(None, 1e7, 0.0, 0.0, runs=3))
    part = PartLimit("whole run", 80 * MIB, 30 * MIB, None, 12, 6, 79 * MIB)
    found = resources.of_fit(fit_results.made(parts=(part,), curve=fast, held=HeldFiles(10 * MIB)))
    assert found is not None and found.requests.bytes == found.limits.bytes == 99 * MIB
    assert found.limits.figure.startswith("the least limit in which 6 runs had full speed: 80.0 MiB + 10.0 MiB")

    cut = fit_results.made(parts=(replace(part, complete=False),), curve=fast)
    assert resources.of_fit(cut) is None
    assert "- No lines for a manifest: a run failed or was slow in 79.0 MiB, more than its RSS peak" in (text := fit.render(cut))
    assert "resources:" not in text


def test_fit_limit_has_margin_above_peak() -> None:
    found = of_part(40.2, 60)
    assert found is not None
    assert (found.limits.bytes, found.limits.margin, found.limits.figure) == (66 * MIB, 0.1, "the RSS peak with no limit: 60.0 MiB")


def test_files_that_others_held_are_requested() -> None:
    """A limit that was searched is charged for them too on a machine where nobody holds them; the RSS peak has them already."""
    fast = (LimitPoint(40 * MIB, 1e7, 0.0, 0.0, runs=3), LimitPoint(None, 1e7, 0.0, 0.0, runs=3))
    alone, beside = (of_part(40, 60, curve=fast, held=HeldFiles(size * MIB)) for size in (0, 8))
    assert alone is not None and beside is not None
    assert (alone.requests.bytes, beside.requests.bytes) == (44 * MIB, 53 * MIB)
    assert alone.limits.bytes == beside.limits.bytes == 66 * MIB
    held = "40.0 MiB + 8.0 MiB of its files that other processes held = 48.0 MiB"
    assert beside.requests.figure == f"the least limit in which 3 runs had full speed: {held}"
    assert "held" not in alone.requests.figure
    slow = of_part(40, 90, held=HeldFiles(20 * MIB))
    assert slow is not None and slow.requests.bytes == 90 * MIB, "the RSS peak, as no limit was measured at full speed"


def test_request_of_peak_shows_what_would_be_more() -> None:
    """23.8 MiB and 10% are less than the peak: only with the files that others held is the least limit an edge below it."""
    fast = (LimitPoint(int(23.8 * MIB), 1e7, 0.0, 0.0, runs=3), LimitPoint(None, 1e7, 0.0, 0.0, runs=3))
    found = of_part(23.8, 42.4, curve=fast, held=HeldFiles(int(18.5 * MIB)))
    assert found is not None
    total = "23.8 MiB + 18.5 MiB of its files that other processes held + 10% = 46.5 MiB"
    assert found.requests.figure == f"the RSS peak with no limit, as the least limit at full speed would be more ({total}): 42.4 MiB"
    assert (found.requests.bytes, found.limits.bytes) == (43 * MIB, 47 * MIB)


_SUM = re.compile(
    r"([0-9.]+ [KMG]?i?B)(?: \+ ([0-9.]+ [KMG]?i?B) of its files that other processes held)?(?: \+ 10%)? = ([0-9.]+ [KMG]?i?B)"
)


def in_units(size: float, like: str) -> str:
    """A size with the unit and the digits of another."""
    number, unit = like.split()
    return f"{size / parse_bytes(f'1{unit}'):.{len(number.partition('.')[2])}f} {unit}"


def check_sums(comment: str, memory: int) -> None:
    """Calculate a comment's sums again from its own figures, up to the memory beside it."""
    figure, margin = comment.rsplit(", ", 1)
    for total in _SUM.finditer(figure):
        *parts, result = [word for word in total.groups() if word]
        size = sum(map(parse_bytes, parts)) * (1.1 if "10%" in total[0] else 1)
        assert in_units(size, result) == result, comment
    size = parse_bytes(re.split(": |= ", figure)[-1])
    more = round(size * (1.1 if margin == "10% margin" else 1) / MIB, 5)
    assert math.ceil(more) * MIB == memory, comment
    if "would be more" in figure:
        assert parse_bytes(_SUM.search(figure)[3]) > size, comment


@given(
    some.integers(1, 400_000),
    some.one_of(some.just(0), some.integers(1, 100_000)),
    some.one_of(some.floats(0.5, 2), some.floats(1.0, 1.11)),
    some.booleans(),
    some.booleans(),
)
@example(12_800, 0, 0.9, True, True)  # 50 MiB, and 10% make 55 MiB
@example(10_754, 0, 1.2, False, False)  # 42.008 MiB are 43 MiB, which 42.0 MiB are not
@examples(200)
def test_comments_follow_from_their_figures(pages: int, held: int, peak: float, fast: bool, failed: bool) -> None:
    """Whatever the sizes are, whoever adds up the figures of a comment, as they are shown, gets the memory below it. The limit is 10% above the RSS
    peak, unless a run failed in more than that or was slow there for lack of pages."""
    least = pages * 4096
    curve = (LimitPoint(least, 1e7 if fast else 9e8, 0.0, 9.0, runs=3), LimitPoint(None, 1e7, 0.0, 0.0, runs=3))
    top = max(1, round(peak * (pages + held))) / 256
    below = (pages - 1) / 256 if failed else 0
    found = of_part(least / MIB, top, below, curve=curve, held=HeldFiles(held * 4096))
    assert found is not None and found.requests.bytes <= found.limits.bytes
    if below <= top and (fast or least / MIB <= top):
        assert found.limits.figure.startswith("the RSS peak with no limit: ")
    else:
        assert found.limits.bytes > 1.1 * least - 1
    comments = re.findall(r"  (?:requests|limits):  # (.*)\n    memory: ([0-9]+)Mi", resources.yaml(found))
    assert len(comments) == 2
    for comment, memory in comments:
        check_sums(comment, int(memory) * MIB)


@given(some.integers(1, 400_000), some.floats(0.01, 1))
@examples(100)
def test_spare_follows_from_limit_and_peak(pages: int, share: float) -> None:
    limit, peak = pages * 4096, max(1, int(pages * share)) * 4096
    found = of_part(limit / MIB, peak / MIB, within_bytes=limit)
    assert found is not None
    words = re.search(r"--within: .*, (\S+ \S+) \((\d+)%\) above the RSS peak", found.limits.figure)
    if limit == peak:
        assert words is None
        return
    usual, alike = ([parse_bytes(show(size)) for size in (limit, peak)] for show in (format_bytes, lambda size: in_units(size, words[1])))
    assert words[1] in (format_bytes(usual[0] - usual[1]), in_units(alike[0] - alike[1], words[1])) and parse_bytes(words[1]) > 0
    assert abs(int(words[2]) - 100 * (limit - peak) / limit) <= 1 + 10 * MIB / limit


def test_page_cache_in_charge_needs_no_limit() -> None:
    found = of_part(40, 60, charged_bytes=80 * MIB)
    assert found is not None and found.limits.bytes == 66 * MIB


def test_fit_requests_full_speed() -> None:
    curve = (
        LimitPoint(40 * MIB, 9e8, 0.0, 9.0),
        LimitPoint(44 * MIB, 1e7, 0.0, 0.0, "1 of 3 failed"),
        LimitPoint(48 * MIB, 1.1e7, 0.0, 0.0, runs=3),
        LimitPoint(52 * MIB, 1e7, 0.0, 0.0, runs=3),
        LimitPoint(None, 1e7, 0.0, 0.0),
    )
    assert "No limit was measured" not in fit.render(
        fit_results.made(parts=(PartLimit("whole run", 46 * MIB, 60 * MIB, None, 9),), curve=curve)
    )
    found = of_part(46, 60, curve=curve)
    assert found is not None and (found.requests.bytes, found.requests.margin) == (53 * MIB, 0.1)
    assert found.requests.figure == "the least limit in which 3 runs had full speed: 48.0 MiB"


@pytest.mark.parametrize(
    ("peak", "late", "requested", "figure"),
    [
        (90, 0, 53, "the least limit in which 6 runs had full speed: 48.0 MiB"),
        (
            90,
            50,
            58,
            "the least limit in which 3 runs had full speed (in 50.0 MiB one was ended by time): 52.0 MiB",
        ),  # a run took too long in 50 MiB
        (51, 0, 51, "the RSS peak with no limit, as the least limit at full speed would be more (48.0 MiB + 10% = 52.8 MiB): 51.0 MiB"),
        (40, 0, 53, "the least limit in which 6 runs had full speed: 48.0 MiB"),  # a run failed in more than its RSS peak
    ],
)
def test_fit_requests_more_than_edge(peak: int, late: int, requested: int, figure: str) -> None:
    """The least limit that was searched is one that fails at times."""
    curve = (LimitPoint(48 * MIB, 1e7, 0.0, 0.0, runs=6), LimitPoint(52 * MIB, 1e7, 0.0, 0.0, runs=3), LimitPoint(None, 1e7, 0.0, 0.0))
    part = PartLimit("whole run", 48 * MIB, peak * MIB, None, 12, 6, 47 * MIB, late_bytes=late * MIB)
    found = resources.of_fit(fit_results.made(parts=(part,), curve=curve))

    assert found is not None and (found.requests.bytes, found.requests.figure) == (requested * MIB, figure)
    assert found.limits.bytes >= found.requests.bytes


def test_fit_requests_above_slow_limits() -> None:
    """A run beside others that hold the same libraries is fast in less than it needs by itself; one that is slow without reading was disturbed."""
    curve = (
        LimitPoint(51 * MIB, 9e7, 0.0, 90.0),
        LimitPoint(52 * MIB, 1e7, 0.0, 0.0, runs=3),
        LimitPoint(55 * MIB, 1.6e8, 0.0, 46.0),
        LimitPoint(56 * MIB, 1e7, 0.0, 0.0, runs=3),
        LimitPoint(60 * MIB, 5e7, 0.0, 0.0),
        LimitPoint(None, 1e7, 0.0, 0.0),
    )
    found = of_part(51, 73, curve=curve)
    assert found is not None
    assert found.requests.figure == "the least limit in which 3 runs had full speed (in 55.0 MiB one was slow): 56.0 MiB"
    none = of_part(51, 73, curve=(*curve[:3], curve[-1]))
    assert none is not None and none.requests.figure.startswith("the RSS peak with no limit, as no limit was measured at full speed")


def test_fit_requests_limit_without_reading_on_busy_machine() -> None:
    """Times are too long there, and differ by more than a limit costs."""
    usual = LimitPoint(None, 1e7, 0.0, 0.0, None, 0.0, 3)
    still, reading = LimitPoint(52 * MIB, 3e7, 0.0, 0.0, None, 0.0, 3), LimitPoint(52 * MIB, 3e7, 0.0, 0.0, None, 9.0, 3)
    found = of_part(52, 73, curve=(still, usual))
    assert found is not None and found.requests.figure == "the least limit in which 3 runs read no page again: 52.0 MiB"
    for curve in ((reading, usual), (replace(still, refaults=None), usual), (replace(still, runs=2), usual)):
        slow = of_part(52, 73, curve=curve)
        assert slow is not None and slow.requests.figure.startswith("the RSS peak with no limit")


def test_fit_limit_names_its_own_figure() -> None:
    """It is never below the request, and the comment beside it says which figure it comes from."""
    doubled = (LimitPoint(57 * MIB, 9e8, 0.0, 9.0), LimitPoint(115 * MIB, 1e7, 0.0, 0.0, runs=3), LimitPoint(None, 1e7, 0.0, 0.0))
    found = of_part(57, 68, curve=doubled)
    assert found is not None and (found.requests.bytes, found.limits.bytes) == (68 * MIB, 75 * MIB)
    starved = of_part(57, 50, curve=doubled)  # slow for lack of pages in more than the RSS peak: its page cache counts
    assert starved is not None and (starved.requests.bytes, starved.limits.bytes) == (127 * MIB, 127 * MIB)
    assert starved.limits.figure == starved.requests.figure == "the least limit in which 3 runs had full speed: 115.0 MiB"

    slow = of_part(82, 73, curve=(LimitPoint(82 * MIB, 9e8, 0.0, 9.0), LimitPoint(None, 1e7, 0.0, 0.0)))
    assert slow is not None and slow.limits.figure == "the least limit of the whole run, which has worked 6 times: 82.0 MiB"
    assert slow.requests.figure == slow.limits.figure


def test_limit_of_allocated_memory_counts_for_nothing() -> None:
    found = of_part(300, 60, exact=False)
    assert found is not None and found.requests.bytes == 60 * MIB
    assert found.requests.bytes <= found.limits.bytes


def test_fit_without_limit_has_none() -> None:
    assert of_part(None, 60) is None
    fitted = fit_results.made(parts=(PartLimit("PREPARE", MIB, MIB, None, 1),))
    assert resources.of_fit(fitted) is None
    assert "resources:" not in fit.render(fitted)
    assert json.loads(fit.render(fitted, format="json"))["resources"] is None


@pytest.mark.parametrize("form", ["markdown", "text"])
def test_fit_ends_with_yaml(form: str) -> None:
    text = fit.render(fit_results.made(), format=form)
    lines = [line for line in text.splitlines() if not line.startswith("```")][-5:]
    assert [line.partition("#")[0].rstrip() for line in lines] == [
        "resources:",
        "  requests:",
        "    memory: 60Mi",
        "  limits:",
        "    memory: 66Mi",
    ]
    assert "set the same" not in text
    assert "resources:  # measured with 2 threads (set the same in the program)" in fit.render(fit_results.made(threads=2), format=form)
    assert "no margin" in lines[1] and "10% margin" in lines[3]
    assert ("```yaml" in text) == (form == "markdown")


def test_environment_is_yaml_of_kubernetes() -> None:
    """A value of a variable is text, and no letter of it ends the line."""
    env = {"ORT_DISABLE_TELEMETRY": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "WORDS": 'a: "b"\n- c # d'}
    found = resources.of_fit(fit_results.made(env=env))
    assert found is not None
    content = yaml.safe_load(resources.yaml(found))
    assert content["env"] == [{"name": name, "value": env[name]} for name in sorted(env)]
    assert json.loads(fit.render(fit_results.made(env=env), format="json"))["resources"]["env"] == env


@pytest.mark.parametrize(
    ("within", "peak", "exact", "requests", "limits", "words"),
    [
        (96 * MIB, 67.2, True, "68Mi", "96Mi", "--within: 96.0 MiB, 28.8 MiB (30%) above the RSS peak, no margin"),
        (90_000_000, 85.5, True, "90000000", "90000000", "--within: 85.8 MiB, 0.3 MiB (0%) above the RSS peak, no margin"),
        (96 * MIB, 67.2, False, "68Mi", "96Mi", "--within: 96.0 MiB, 28.8 MiB (30%) above the RSS peak, no margin"),
    ],
)
def test_fit_limit_is_what_was_given(within: int, peak: float, exact: bool, requests: str, limits: str, words: str) -> None:
    """A limit that was tried is not rounded: more was not tried, and less would be another limit."""
    found = of_part(within / MIB, peak, within_bytes=within, exact=exact)
    assert found is not None
    text = resources.yaml(found)
    content = yaml.safe_load(text)["resources"]
    assert (str(content["requests"]["memory"]), str(content["limits"]["memory"])) == (requests, limits)
    assert f"  limits:  # {words}" in text.splitlines()
    rounded = ", rounded up to the limit" if requests == limits else ""
    assert f"  requests:  # the RSS peak with no limit: {peak} MiB{rounded}, no margin" in text.splitlines()


def test_fit_without_peak_has_no_lines() -> None:
    """A program that ends at once has none that was seen, and 0 is no request."""
    assert of_part(4, 0, within_bytes=4 * MIB) is None and of_part(4, 0) is None
    part = PartLimit("whole run", 4 * MIB, 0, None, 3, 3)
    assert "RSS peak is" not in fit.render(fit_results.made(parts=(part,), within_bytes=4 * MIB))


def test_fit_within_too_little_has_no_lines() -> None:
    assert of_part(None, 60, within_bytes=40 * MIB) is None
    for exact in (True, False):
        assert of_part(60, 67, within_bytes=60 * MIB, exact=exact) is None, "the first container may need more"


def test_fit_json_has_resources() -> None:
    found = json.loads(fit.render(fit_results.made(), format="json"))["resources"]
    assert (found["requests"]["bytes"], found["limits"]["bytes"]) == (60 * MIB, 66 * MIB)


def within(mib: int) -> object:
    made = replace(scale_scenarios.made(), within_bytes=mib * MIB)
    return replace(made, within=predictions.within(made))


def test_scale_limit_is_what_was_given() -> None:
    scaled = within(200)
    found = resources.of_scale(scaled)
    assert found is not None and found.limits.bytes == 200 * MIB and not found.limits.margin
    assert found.limits.figure == "--within: 200.0 MiB, 0.03 MiB (0%) above the size requested"
    assert 190 * MIB < found.requests.bytes <= 200 * MIB
    assert "by the law, the upper end of its 95% interval" in found.requests.figure
    assert scale.render(scaled, format="text").endswith("    memory: 200Mi")
    in_program = scale.render(replace(scaled, settings="arena=off", threads=2, calls=("so.a = 1", "so.threads = 2")))
    assert in_program.endswith("In your program, for `arena=off,threads=2`: `so.a = 1`; `so.threads = 2`.")
    assert json.loads(scale.render(scaled, format="json"))["resources"]["limits"]["bytes"] == 200 * MIB


def test_scale_lines_have_environment() -> None:
    found = resources.of_scale(replace(within(200), env={"OMP_NUM_THREADS": "2"}))
    assert found is not None and yaml.safe_load(resources.yaml(found))["env"] == [{"name": "OMP_NUM_THREADS", "value": "2"}]


def test_scale_within_unmet_where_nothing_fits() -> None:
    assert within(200).unmet == "" and scale_scenarios.made().unmet == ""
    assert within(10).unmet.endswith("fits into 10.0 MiB")


def test_undecided_law_requests_what_was_measured() -> None:
    """What was measured stands; of several runs of a place the largest counts, and a place above the limit does not."""
    scaled = scale_scenarios.made()
    points = [(1, 120, ()), (4, 150, (150, 190, 140)), (8, 180, ()), (16, 210, ())]
    points = tuple(PlaceRun({"a": a}, {PEAK: size * MIB}, again=tuple(mib * MIB for mib in again)) for a, size, again in points)
    found = resources.of_scale(replace(scaled, points=points, within_bytes=200 * MIB, undecided="more"))
    assert found is not None
    assert found.requests == resources.Resource(190 * MIB, 0, "PEAK as measured at a=4, the largest of 3 runs: 190.0 MiB")
    assert found.limits.bytes == 200 * MIB


def test_undecided_request_holds_at_smaller_places() -> None:
    """A larger place that fits is none to name where a smaller one does not fit, or died."""
    sizes = [(1, 120), (8, 210), (16, 190)]
    points = tuple(PlaceRun({"a": a}, {PEAK: size * MIB}) for a, size in sizes)
    died = PlaceRun({"a": 8}, {PEAK: 90 * MIB}, ended="out of memory", least=True)
    for every in (points, (points[0], died, points[2])):
        found = resources.of_scale(replace(scale_scenarios.made(), points=every, within_bytes=200 * MIB, undecided="more"))
        assert found is not None and found.requests.figure == "PEAK as measured at a=1, in one run: 120.0 MiB"


def falls(*seen: tuple[int, int]) -> resources.Resources:
    """The lines within 390 MiB, of an arena that needs more at 27 than at 29; seen: values and the MiB that confirmed them."""
    scaled = scale_scenarios.in_arena(within_bytes=390 * MIB)
    points = tuple(PlaceRun({"batch": value}, {PEAK: size * MIB}, held_out=True) for value, size in seen)
    scaled = replace(scaled, within=predictions.within(scaled), points=(*scaled.points, *points))
    (row,) = scaled.within
    assert row.bound is not None and row.bound > 28
    found = resources.of_scale(scaled)
    assert found is not None
    return found


def test_request_holds_at_smaller_values() -> None:
    found = falls((20, 308))
    assert "PEAK at batch=27 by the simulated arena, the most of all places up to batch=3" in found.requests.figure
    assert 367 * MIB < found.requests.bytes <= 390 * MIB


def test_request_of_confirmed_place_is_its_measurement() -> None:
    found = falls((20, 308), (27, 367))
    assert found.requests.figure == "PEAK as measured at batch=27, in one run, the most of all places up to batch=31: 367.0 MiB"
    assert found.requests.bytes == 367 * MIB


def test_request_takes_larger_measurement() -> None:
    assert falls((20, 389)).requests.figure == "PEAK as measured at batch=20, in one run, more than by the simulated arena: 389.0 MiB"
    beyond = falls((20, 420), (90, 800))
    words = "batch=20, in one run, more than by the simulated arena, which goes beyond the limit: 420.0 MiB, cut to the limit"
    assert words in beyond.requests.figure
    assert beyond.requests.bytes == beyond.limits.bytes == 390 * MIB


def test_request_never_exceeds_limit() -> None:
    """Kubernetes refuses such a pod."""
    scaled = within(200)
    wide = tuple(replace(row, surely=None) for row in scaled.within)
    found = resources.of_scale(replace(scaled, within=wide))
    assert found is not None and found.requests.bytes <= found.limits.bytes


def test_request_above_limit_says_its_cut() -> None:
    """A place whose prediction is above the limit is requested up to the limit, and its figure stays what was predicted."""
    scaled = within(200)
    most = Prediction({"a": 16.0, "s": 512.0}, 210.0 * MIB, 205.0 * MIB, 220.0 * MIB, ())
    found = resources.of_scale(replace(scaled, within=tuple(replace(row, most=most) for row in scaled.within)))
    assert found is not None and found.requests.bytes == 200 * MIB
    assert found.requests.figure.endswith("whose 95% interval goes beyond the limit: 210.0 MiB, cut to the limit")


def test_dimension_without_influence_ends_with_range() -> None:
    made = scale_scenarios.made(lambda a, s: 80 + 2 * a, within_bytes=200 * MIB)
    rows = [row for row in predictions.within(made) if row.dimension == "s"]
    assert [row.value for row in rows] == [FARTHEST, FARTHEST]
    found = resources.of_scale(replace(made, within=tuple(rows)))
    assert found is not None and "a=16,s=512" in found.requests.figure


def test_nothing_fits_nothing_is_requested() -> None:
    assert resources.of_scale(within(10)) is None
    assert resources.of_scale(replace(within(10), undecided="more")) is None
    assert resources.of_scale(scale_scenarios.made()) is None
    assert "resources:" not in scale.render(within(10))


def test_hostile_dimension_stays_in_comment() -> None:
    found = resources.Resources(*[resources.Resource(MIB, 0, "at a\nevil: true=1")] * 2)
    assert [line.split(":")[0].strip() for line in resources.yaml(found).splitlines()] == [
        "resources",
        "requests",
        "memory",
        "limits",
        "memory",
    ]
