"""The memory of a container as Kubernetes reads it (resources of a container, in its API reference): what is to be requested, and its limit.

A pod is scheduled by what it requests; above its limit the kernel kills. Sizes are rounded up to a MiB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from memprof.base.terminal_text import plain
from memprof.base.units import counted, format_bytes
from memprof.footprint.fit import WHOLE, Fitted
from memprof.growth.laws.laws import FARTHEST
from memprof.growth.scale.answer import Scaled, words_of

_FULL_SPEED = 1.1  # times as long as with no limit
MARGIN = 0.1  # above a peak that was measured a few times only
_MIB = 1 << 20


@dataclass(frozen=True)
class Resource:
    """A size in bytes with its margin, which is a share of the figure that it comes from, and what that figure is."""

    bytes: int
    margin: float
    figure: str


@dataclass(frozen=True)
class Resources:
    """What a container requests of memory, and its limit."""

    requests: Resource
    limits: Resource


def of_fit(fitted: Fitted) -> Resources | None:
    """Of the whole run; None where no limit was found under which it works.

    The least limit is slow, so what is requested is the least limit at full speed, if one was measured. What a group is charged beyond the resident
    set is page cache, which the kernel takes back at the limit. A limit on allocated memory is none that a container has: then both come from the
    peak. The limit of a container is never below what it requests, and each says the figure that it comes from.
    """
    part = next((part for part in fitted.parts if part.name == WHOLE), None)
    if part is None or part.least_bytes is None or fitted.within_bytes is not None:
        return None
    peak = part.rss_peak_bytes, "the RSS peak with no limit"
    if not fitted.exact:
        return Resources(_resource(*peak, 0), _resource(*peak, MARGIN))
    least = part.least_bytes, f"the least limit of the whole run, which has worked {counted(part.worked, 'time')}"
    requested = _fast(fitted, part.least_bytes) or least
    highest = max(peak, requested, key=lambda figure: figure[0])
    return Resources(_resource(*requested, 0), _resource(*highest, MARGIN))


def _fast(fitted: Fitted, least_bytes: int) -> tuple[int, str] | None:
    """The least limit of the curve from the least on under which all runs worked about as fast as with none, and what it is. None where none did.

    It lies above each limit where a run was slow and read pages again: what runs faster in less had pages that others held.
    """
    *limited, usual = fitted.curve
    points = {point.limit_bytes: point for point in limited if point.limit_bytes and point.limit_bytes >= least_bytes and point.time_ns}
    slow = {limit for limit, point in points.items() if (point.time_ns or 0) > _FULL_SPEED * (usual.time_ns or 0)}
    starved = max((limit for limit in slow if (points[limit].major_faults or 0) > (usual.major_faults or 0)), default=0)
    fast = min((limit for limit in points if limit not in slow and limit > starved), default=None)
    if fast is None:
        return None
    above = f" above {format_bytes(starved)}, where one was slow" if any(limit < starved for limit in points.keys() - slow) else ""
    return fast, f"the least limit that was measured at full speed{above}, in {counted(points[fast].runs, 'run')}"


def of_scale(scaled: Scaled) -> Resources | None:
    """Of the largest values that surely fit into the limit that was given; None where there is no law, or nothing fits."""
    if scaled.within_bytes is None or scaled.undecided:
        return None
    ends = {dimension.label: dimension.last for dimension in scaled.varying}
    places = []
    for row in scaled.within:
        value = row.surely if row.surely is not None else row.value
        if value is not None:
            at = {**row.others, row.dimension: ends[row.dimension] if value >= FARTHEST else value}
            places.append({label: at[label] for label in ends})
    predictions = scaled.predict(places)
    if not predictions:
        return None
    at, largest = max(zip(places, predictions, strict=True), key=lambda pair: pair[1].high_bytes)
    where = f"{scaled.main} at {words_of(at)} by the law"
    if largest.high_bytes <= scaled.within_bytes:
        requests = _resource(largest.high_bytes, f"{where}, the upper end of its 95% interval", 0)
    else:
        requests = _resource(min(largest.bytes, scaled.within_bytes), f"{where}, whose 95% interval goes beyond the limit", 0)
    return Resources(requests, _resource(scaled.within_bytes, "--within", 0))


def _resource(size: float, figure: str, margin: float) -> Resource:
    return Resource(math.ceil(size * (1 + margin) / _MIB) * _MIB, margin, f"{figure}: {format_bytes(size)}")


def yaml(resources: Resources) -> str:
    """The lines to paste into a container of a manifest."""
    lines = ["resources:"]
    for name, resource in (("requests", resources.requests), ("limits", resources.limits)):
        margin = f"{resource.margin:.0%} margin" if resource.margin else "no margin"
        lines += [f"  {name}:  # {plain(resource.figure)}, {margin}", f"    memory: {resource.bytes // _MIB}Mi"]
    return "\n".join(lines)


def block(resources: Resources | None, format: str) -> str:
    """The end of a report: these lines below it, in Markdown as a block of code; empty without resources."""
    if resources is None:
        return ""
    return f"\n\n{yaml(resources)}" if format == "text" else f"\n\n```yaml\n{yaml(resources)}\n```"
