"""The memory of a container as Kubernetes reads it (resources of a container, in its API reference): what is to be requested, and its limit.

A pod is scheduled by what it requests; above its limit the kernel kills. Sizes are rounded up to a MiB. The comment beside each says how it follows
from figures, which have as many digits as that needs: whoever calculates it again gets the same size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from memprof.base.terminal_text import plain
from memprof.base.units import BYTE_UNITS, counted, format_bytes, parse_bytes
from memprof.footprint.fit import CONFIRMATIONS, Fitted, LimitPoint
from memprof.growth.scale.answer import PlaceRun, Scaled, words_of

FULL_SPEED = 1.1  # times as long as with no limit
MARGIN = 0.1  # above a peak that was measured a few times only
_MIB = 1 << 20
_HELD = "of its files that other processes held"
_REQUESTED = "the size requested"


class Resource(Struct, frozen=True):
    """A size in bytes with its margin, which is a share of the figure that it comes from, and what that figure is, with its sum."""

    bytes: int
    margin: float
    figure: str


class _Figure(Struct, frozen=True):
    """A size in bytes and what it is. held_bytes: the part of it that no group was charged for, as other processes held these files."""

    bytes: float
    words: str
    held_bytes: int = 0


class Resources(Struct, frozen=True):
    """What a container requests of memory, and its limit. env: the variables of its environment with which that was measured."""

    requests: Resource
    limits: Resource
    env: Mapping[str, str] = field(default_factory=dict)


def of_fit(fitted: Fitted) -> Resources | None:
    """Of the whole run; None where no limit was found under which it works, where it was too short for its peak to be seen, where the limit that
    was given is below the RSS peak (it may not be enough for the first container), and where `short_words` says why.

    The limit of a container is the RSS peak and a margin, so that two settings can be subtracted. The peak has the pages of all files that are
    mapped, whoever is charged for them. What a group is charged beyond the resident set is page cache, which the kernel takes back at the limit,
    and the kernel's memory, for which the margin is. Only where a run failed or was slow in more than its RSS peak does it need what no resident
    set has, such as files in tmpfs: then the limit comes from those that were searched. How far a search came changes no limit.

    The least limit is slow, so what is requested is the least limit at full speed and a margin, or the RSS peak if that is less or none was measured.
    What others held of its files is added to a limit, for which no group was charged. A limit on allocated memory is none that a container has:
    then both come from the peak. The limit of a container is never below what it requests, and each says the figure that it comes from.
    """
    part = fitted.whole
    if part is None or part.least_bytes is None or not part.rss_peak_bytes:
        return None
    peak = _Figure(part.rss_peak_bytes, "the RSS peak with no limit")
    if fitted.within_bytes is not None:
        if peak.bytes > fitted.within_bytes or not part.complete:
            return None
        return Resources(*_under(fitted.within_bytes, peak.bytes, peak.words, "the RSS peak"), fitted.env)
    if not fitted.exact:
        return Resources(_resource(peak, 0), _resource(peak, MARGIN), fitted.env)
    if not part.complete:
        unfinished = _Figure(peak.bytes, f"{peak.words}, as the search was not finished")
        return None if short_words(fitted) else Resources(_resource(unfinished, 0), _resource(peak, MARGIN), fitted.env)
    fast = fast_limit(fitted)
    full_speed = _with_held(*fast, fitted) if fast is not None else None
    unmeasured = _Figure(peak.bytes, f"{peak.words}, as no limit was measured at full speed")
    if not _short_bytes(fitted):
        requests = _above_edge(full_speed, peak) if full_speed is not None else _resource(unmeasured, 0)
        return Resources(requests, _resource(peak, MARGIN), fitted.env)
    least = _with_held(part.least_bytes, f"the least limit of the whole run, which has worked {counted(part.worked, 'time')}", fitted)
    requested = full_speed or max(unmeasured, least, key=lambda figure: figure.bytes)
    highest = max(requested, least, peak, key=lambda figure: figure.bytes)
    return Resources(_resource(requested, 0 if requested is unmeasured else MARGIN), _resource(highest, MARGIN), fitted.env)


def _short_bytes(fitted: Fitted) -> int:
    """The highest limit above the RSS peak in which a run failed, or was slow and read pages again: it needs what no resident set has. 0 for none."""
    part = fitted.whole
    if part is None or not part.rss_peak_bytes or not fitted.exact:
        return 0
    short = max(part.failed_bytes, *_starved(fitted), 0)
    return short if short > part.rss_peak_bytes else 0


def short_words(fitted: Fitted) -> str:
    """Why a search that was not finished has no lines for a manifest, as a sentence; empty where it has them, or none was to be had."""
    part, short = fitted.whole, _short_bytes(fitted)
    if part is None or part.complete or part.least_bytes is None or fitted.within_bytes is not None or not short:
        return ""
    return (
        f"No lines for a manifest: a run failed or was slow in {format_bytes(short)}, more than its RSS peak, so it needs memory that RSS does not "
        "count, and the search for how much was not finished."
    )


def _with_held(limit: int, words: str, fitted: Fitted) -> _Figure:
    """A limit that was searched, with what other processes held of the files meanwhile: the first container on a machine is charged for that too."""
    return _Figure(limit + fitted.held.bytes, words, fitted.held.bytes)


def _above_edge(limit: _Figure, peak: _Figure) -> Resource:
    """What is requested for a limit that was searched: an edge, in which what worked six times may fail the next time. It is never above
    the RSS peak: what others held of its files is the most that it can be, and a curve has few limits."""
    more = round(limit.bytes * (1 + MARGIN))
    if more <= peak.bytes:
        return _resource(limit, MARGIN)

    size = _rounded_up(peak.bytes, 0)

    def follows(show: _Show) -> bool:
        parts = _seen(show, limit.bytes - limit.held_bytes) + _seen(show, limit.held_bytes)
        is_more = show(parts * (1 + MARGIN)) == show(more) and _seen(show, more) > _seen(show, peak.bytes)
        return is_more and _rounded_up(_seen(show, peak.bytes), 0) == size

    show = _shown(follows)
    beside = f" + {show(limit.held_bytes)} {_HELD}" if limit.held_bytes else ""
    total = f"{show(limit.bytes - limit.held_bytes)}{beside} + {MARGIN:.0%} = {show(more)}"
    return Resource(size, 0, f"{peak.words}, as the least limit at full speed would be more ({total}): {show(peak.bytes)}")


def spare_words(fitted: Fitted) -> str:
    """What a limit that was given has above the RSS peak: `28.2 MiB (29%)`; empty where it has nothing."""
    peak_bytes = fitted.whole.rss_peak_bytes if fitted.whole is not None else 0
    return _spare(fitted.within_bytes or 0, peak_bytes) if peak_bytes else ""


def _spare(limit: int, size: float) -> str:
    """What a limit has above a size, in bytes both; see `spare_words`."""
    spare = limit - size
    if spare <= 0:
        return ""

    def follows(show: _Show) -> bool:
        return show(_seen(show, limit) - _seen(show, size)) == show(spare) and _seen(show, spare) > 0

    show = _shown(follows)
    return f"{show(spare)} ({_seen(show, spare) / limit:.0%})"


def fast_limit(fitted: Fitted) -> tuple[int, str] | None:
    """The least limit of the curve from the least on under which several runs worked, all of them, about as fast as with none, and what it is. None
    where none did. On a busy machine runs that read no page again count too, whatever time they took.

    It lies above each limit where a run was slow and read pages again: what runs faster in less had pages that others held. It also lies above each
    where a run was ended by time, and worked when it was tried again.
    """
    *limited, usual = fitted.curve
    least_bytes = fitted.whole.least_bytes if fitted.whole is not None else None
    if least_bytes is None:
        return None
    points = {point.limit_bytes: point for point in limited if point.limit_bytes and point.limit_bytes >= least_bytes and point.time_ns}
    slow = {limit for limit, point in points.items() if _is_slow(point, usual)}
    starved = max(_starved(fitted), default=0)
    undisturbed = {limit for limit, point in points.items() if limit not in slow or not reads_again(point, usual)}
    late = fitted.whole.late_bytes if fitted.whole is not None else 0
    reason, starved = ("was ended by time", late) if late >= starved else ("was slow", starved)
    fast = min((limit for limit in undisturbed if limit > starved and points[limit].runs >= CONFIRMATIONS), default=None)
    if fast is None:
        return None
    below = f" (in {format_bytes(starved)} one {reason})" if any(limit < starved for limit in points.keys() - slow) else ""
    had = "read no page again" if fast in slow else "had full speed"
    return fast, f"the least limit in which {counted(points[fast].runs, 'run')} {had}{below}"


def _is_slow(point: LimitPoint, usual: LimitPoint) -> bool:
    return (point.time_ns or 0) > FULL_SPEED * (usual.time_ns or 0)


def _starved(fitted: Fitted) -> list[int]:
    """The limits from the least on in which a run was slow and read pages again from the disk."""
    *limited, usual = fitted.curve
    least_bytes = fitted.whole.least_bytes if fitted.whole is not None else None
    return [
        point.limit_bytes
        for point in limited
        if point.limit_bytes and least_bytes is not None and point.limit_bytes >= least_bytes
        if _is_slow(point, usual) and (point.major_faults or 0) > (usual.major_faults or 0)
    ]


def reads_again(point: LimitPoint, usual: LimitPoint) -> bool:
    """Whether a run under a limit may have read pages again, or found them again, that the limit took from it. usual: with no limit."""
    counts = [(getattr(point, kind), getattr(usual, kind)) for kind in ("major_faults", "refaults")]
    return any(limited is None or limited > (free or 0) for limited, free in counts)


def of_scale(scaled: Scaled) -> Resources | None:
    """What the largest values that surely fit into the limit need, and each value below them, by the law or as measured; where the law is undecided,
    the largest size that was measured and fits, with those at no larger place. None where nothing fits."""
    if scaled.within_bytes is None:
        return None
    if scaled.undecided:
        measured = _measured(scaled)
        dead = [point.at for point in scaled.points if point.least]
        too_large = dead + [point.at for size, point in measured if size > scaled.within_bytes]
        fitting = [(size, point) for size, point in measured if not any(_up_to(at, point.at) for at in too_large)]
        if not fitting:
            return None
        size, point = max(fitting, key=lambda pair: pair[0])
        return Resources(*_under(scaled.within_bytes, size, _as_measured(scaled, point), _REQUESTED), scaled.env)
    if scaled.limit_places is None:
        return None
    bound, most = scaled.limit_places
    at = {label: int(most.at[label]) for label in bound}
    smaller = "" if at == bound else f", the most of all places up to {words_of(bound)}"
    where = f"{scaled.main} at {words_of(at)} by {scaled.source}{smaller}"
    requested: tuple[float, str]
    confirmed = next((point for point in scaled.confirmations if dict(point.at) == at), None)
    if confirmed is not None:
        size = confirmed.most_bytes(scaled.main)
        beyond = ", which goes beyond the limit" if size > scaled.within_bytes else ""
        requested = size, f"{_as_measured(scaled, confirmed)}{smaller}{beyond}"
    elif most.high_bytes <= scaled.within_bytes:
        requested = most.high_bytes, f"{where}, the upper end of its 95% interval"
    else:
        requested = most.bytes, f"{where}, whose 95% interval goes beyond the limit"
    seen = [(size, point) for size, point in _measured(scaled) if _up_to(point.at, bound)]
    for size, point in sorted(seen, key=lambda pair: pair[0])[-1:]:
        if size > requested[0]:
            beyond = ", which goes beyond the limit" if size > scaled.within_bytes else ""
            requested = size, f"{_as_measured(scaled, point)}, more than by {scaled.source}{beyond}"
    return Resources(*_under(scaled.within_bytes, requested[0], requested[1], _REQUESTED), scaled.env)


def _measured(scaled: Scaled) -> list[tuple[int, PlaceRun]]:
    """The points that were measured, with the largest size of the runs at each."""
    return [(point.most_bytes(scaled.main), point) for point in scaled.points if not point.ended]


def _as_measured(scaled: Scaled, point: PlaceRun) -> str:
    runs = f"the largest of {counted(len(point.again), 'run')}" if point.again else "in one run"
    return f"{scaled.main} as measured at {words_of(point.at)}, {runs}"


def _up_to(at: Mapping[str, int], place: Mapping[str, int]) -> bool:
    """Whether no value of a place is larger than that of another."""
    return all(at[name] <= place[name] for name in place)


def _under(limit: int, size: float, words: str, name: str) -> tuple[Resource, Resource]:
    """What is requested under a limit that was given, in bytes, and that limit as it is, with what it has above the size: rounded up, neither would
    keep to it. name: of the size, in the words on the limit."""
    requests = _resource(_Figure(size, words), 0)
    if requests.bytes > limit:
        cut = "cut to the limit" if size > limit else "rounded up to the limit"
        requests = Resource(limit, 0, f"{requests.figure}, {cut}")
    spare = _spare(limit, size)
    above = f", {spare} above {name}" if spare else ""
    return requests, Resource(limit, 0, f"--within: {format_bytes(limit)}{above}")


def _resource(figure: _Figure, margin: float) -> Resource:
    """The memory that a figure and its margin make, with the figure as the sum of its parts."""
    size = _rounded_up(figure.bytes, margin)
    charged = figure.bytes - figure.held_bytes

    def follows(show: _Show) -> bool:
        total = show(_seen(show, charged) + _seen(show, figure.held_bytes))
        return total == show(figure.bytes) and _rounded_up(_seen(show, figure.bytes), margin) == size

    show = _shown(follows)
    parts = f"{show(charged)} + {show(figure.held_bytes)} {_HELD} = " if figure.held_bytes else ""
    return Resource(size, margin, f"{figure.words}: {parts}{show(figure.bytes)}")


def _rounded_up(size: float, margin: float) -> int:
    """A size with its margin, in bytes of whole MiB. A sum that is exact in MiB stays so: 50 MiB and 10% are 55.00000000000001 MiB to a float."""
    return math.ceil(round(size * (1 + margin) / _MIB, 5)) * _MIB


_Show = Callable[[float], str]


def _shown(follows: Callable[[_Show], bool]) -> _Show:
    """The way to write sizes with the fewest digits in which an arithmetic holds of the figures as they are written: in people's units, in MiB with
    more digits, or in KiB, which write pages as they are. follows: whether it holds where sizes are written so."""
    ways = [format_bytes, *(_in("MiB", digits) for digits in (1, 2, 3))]
    return next((show for show in ways if follows(show)), _in("KiB", 1))


def _in(unit: str, digits: int) -> _Show:
    return lambda size: f"{size / BYTE_UNITS[unit]:.{digits}f} {unit}"


def _seen(show: _Show, size: float) -> int:
    """The bytes that a reader takes a size for, as it is written."""
    return parse_bytes(show(size))


def yaml(resources: Resources, threads: int | None = None, shapes: str = "") -> str:
    """The lines to paste into a container of a manifest. threads: with how many it was measured, None for the runtime's own count. shapes: with
    which inputs, as `ran.shaped` writes them."""
    conditions = [counted(threads, "thread") + " (set the same in the program)" if threads else "", plain(shapes)]
    measured = ", ".join(filter(None, conditions))
    lines = [f"resources:  # measured with {measured}" if measured else "resources:"]
    for name, resource in (("requests", resources.requests), ("limits", resources.limits)):
        margin = f"{resource.margin:.0%} margin" if resource.margin else "no margin"
        size = f"{resource.bytes}" if resource.bytes % _MIB else f"{resource.bytes // _MIB}Mi"
        lines += [f"  {name}:  # {plain(resource.figure)}, {margin}", f"    memory: {size}"]
    if resources.env:
        lines.append("env:  # with which this was measured")
        for name, value in sorted(resources.env.items()):
            lines.append(f"  - {{name: {json.dumps(name)}, value: {json.dumps(value)}}}")
    return "\n".join(lines)


def block(resources: Resources | None, format: str, threads: int | None, shapes: str = "") -> str:
    """The end of a report: these lines below it, in Markdown as a block of code; empty without resources."""
    if resources is None:
        return ""
    lines = yaml(resources, threads, shapes)
    return f"\n\n{lines}" if format == "text" else f"\n\n```yaml\n{lines}\n```"
