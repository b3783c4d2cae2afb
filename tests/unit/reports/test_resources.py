"""The memory of a container to paste into a manifest, as `memprof fit` and `memprof scale --within` end."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml
from support import fit_results, scale_scenarios

from memprof.footprint.fit import LimitPoint, PartLimit
from memprof.growth.laws.laws import FARTHEST
from memprof.growth.scale import predictions
from memprof.growth.scale.answer import Within
from memprof.reports.tables import fit, resources, scale

MIB = 1 << 20


def of_part(least: float | None, peak: float, **changes: object) -> resources.Resources | None:
    part = PartLimit("whole run", None if least is None else int(least * MIB), int(peak * MIB), None, 12, 6)
    return resources.of_fit(fit_results.made(parts=(part,), **changes))


def test_fit_requests_least_limit() -> None:
    found = of_part(40.2, 60)
    assert found is not None
    assert (found.requests.bytes, found.requests.margin) == (41 * MIB, 0)
    assert found.requests.figure == "the least limit of the whole run, which has worked 6 times: 40.2 MiB"
    assert (found.limits.bytes, found.limits.margin, found.limits.figure) == (66 * MIB, 0.1, "the RSS peak with no limit: 60.0 MiB")


def test_page_cache_in_charge_needs_no_limit() -> None:
    found = of_part(40, 60, charged_bytes=80 * MIB)
    assert found is not None and found.limits.bytes == 66 * MIB


def test_fit_requests_full_speed() -> None:
    curve = (
        LimitPoint(40 * MIB, 9e8, 0.0, 9.0),
        LimitPoint(44 * MIB, 1e7, 0.0, 0.0, "1 of 3 failed"),
        LimitPoint(48 * MIB, 1.1e7, 0.0, 0.0, runs=3),
        LimitPoint(52 * MIB, 1e7, 0.0, 0.0),
        LimitPoint(None, 1e7, 0.0, 0.0),
    )
    found = of_part(46, 60, curve=curve)
    assert found is not None and found.requests.bytes == 48 * MIB
    assert found.requests.figure == "the least limit that was measured at full speed, in 3 runs: 48.0 MiB"


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
    assert (
        found.requests.figure == "the least limit that was measured at full speed above 55.0 MiB, where one was slow, in 3 runs: 56.0 MiB"
    )
    none = of_part(51, 73, curve=(*curve[:3], curve[-1]))
    assert none is not None and none.requests.figure.startswith("the least limit of the whole run, which has worked 6 times")


def test_fit_limit_names_its_own_figure() -> None:
    """It is never below the request, and the comment beside it says which figure it comes from."""
    doubled = (LimitPoint(57 * MIB, 9e8, 0.0, 9.0), LimitPoint(115 * MIB, 1e7, 0.0, 0.0), LimitPoint(None, 1e7, 0.0, 0.0))
    found = of_part(57, 68, curve=doubled)
    assert found is not None and (found.requests.bytes, found.limits.bytes) == (115 * MIB, 127 * MIB)
    assert found.limits.figure == found.requests.figure == "the least limit that was measured at full speed, in 1 run: 115.0 MiB"

    slow = of_part(82, 73, curve=(LimitPoint(82 * MIB, 9e8, 0.0, 9.0), LimitPoint(None, 1e7, 0.0, 0.0)))
    assert slow is not None and slow.limits.figure == "the least limit of the whole run, which has worked 6 times: 82.0 MiB"


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
        "    memory: 52Mi",
        "  limits:",
        "    memory: 66Mi",
    ]
    assert "no margin" in lines[1] and "10% margin" in lines[3]
    assert ("```yaml" in text) == (form == "markdown")


def test_block_is_yaml_of_kubernetes() -> None:
    found = resources.of_fit(fit_results.made())
    assert found is not None
    content = yaml.safe_load(resources.yaml(found))
    assert content == {"resources": {"requests": {"memory": "52Mi"}, "limits": {"memory": "66Mi"}}}


def test_fit_json_has_resources() -> None:
    found = json.loads(fit.render(fit_results.made(), format="json"))["resources"]
    assert (found["requests"]["bytes"], found["limits"]["bytes"]) == (52 * MIB, 66 * MIB)


def within(mib: int) -> object:
    made = replace(scale_scenarios.made(), within_bytes=mib * MIB)
    return replace(made, within=predictions.within(made))


def test_scale_limit_is_what_was_given() -> None:
    scaled = within(200)
    found = resources.of_scale(scaled)
    assert found is not None and found.limits == resources.Resource(200 * MIB, 0, "--within: 200.0 MiB")
    assert 190 * MIB < found.requests.bytes <= 200 * MIB
    assert "by the law, the upper end of its 95% interval" in found.requests.figure
    assert scale.render(scaled, format="text").endswith("    memory: 200Mi")
    assert json.loads(scale.render(scaled, format="json"))["resources"]["limits"]["bytes"] == 200 * MIB


def test_request_never_exceeds_limit() -> None:
    """Kubernetes refuses such a pod."""
    scaled = within(200)
    wide = tuple(replace(row, surely=None) for row in scaled.within)
    found = resources.of_scale(replace(scaled, within=wide))
    assert found is not None and found.requests.bytes <= found.limits.bytes


def test_dimension_without_influence_ends_with_range() -> None:
    scaled = replace(within(200), within=(Within("s", {"a": 4}, FARTHEST, FARTHEST, FARTHEST),))
    found = resources.of_scale(scaled)
    assert found is not None and "a=4,s=512" in found.requests.figure


def test_nothing_fits_nothing_is_requested() -> None:
    assert resources.of_scale(within(10)) is None
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
