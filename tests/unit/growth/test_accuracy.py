"""How near the laws of real models are to their memory: points that `ci/bench/laws.py models --keep` measured once, fitted again by today's code.

The bounds are those of docs/scale.md: 1% in the median and 3% at worst at places that no law was fitted to, up to twice beyond the measured range,
and 95% of them in their interval. The points are the only thing that depends on a machine, and they are kept.
"""

from __future__ import annotations

import itertools
import json
import statistics
from functools import cache
from pathlib import Path

import msgspec
import pytest
from support.sample_runs import job

from memprof.growth.laws import design
from memprof.growth.scale import predictions
from memprof.growth.scale.answer import PlaceRun, Scaled
from memprof.growth.scale.arena_requests import planned_again, replayed
from memprof.records.types import PEAK, Arenas, RequestTrace
from memprof.subjects.dimensions import parse

pytestmark = pytest.mark.xdist_group("accuracy")  # one worker makes what its tests share

NOISE = (131072.0, 0.001)  # of two runs at a place, as the machine had it that measured them
CASES = {case["name"]: case for case in map(json.loads, (Path(__file__).parents[2] / "data" / "laws.jsonl").read_text().splitlines())}


@cache
def answered(name: str) -> Scaled:
    """The laws of a case, as `memprof scale` makes them of these points."""
    case = CASES[name]
    dimensions = [parse(text) for text in case["vary"]]
    points = [PlaceRun(**point) for point in case["points"]]
    of_run = job(runtime=case["runtime"], knobs=case["knobs"], runs=2)
    labels = [dimension.label for dimension in dimensions if dimension.varies]
    doubles = case["runtime"] == "onnxruntime"
    requests, arenas = msgspec.convert(case["requests"], RequestTrace | None), msgspec.convert(case["arenas"], Arenas | None)
    simulation = replayed(requests, of_run.runs) if doubles else planned_again(arenas, labels)
    arena = predictions.arena(doubles, of_run, dimensions, points, simulation)
    return predictions.answer(of_run, dimensions, points, PEAK, NOISE, arena, simulation)


@pytest.fixture(scope="module")
def held_out() -> dict[str, list[tuple[float, bool]]]:
    """For each case the errors at places that no law was fitted to, as shares of what was measured, and whether each lies in its interval."""
    told = {}
    for name in CASES:
        answer = answered(name)
        points = [point for point in answer.points if point.held_out]
        pairs = zip([point.sizes[PEAK] for point in points], answer.predict([point.at for point in points]), strict=True)
        told[name] = [(abs(said.bytes / size - 1), said.low_bytes <= size <= said.high_bytes) for size, said in pairs]
    return told


def test_thirteen_cases_of_ten_places_or_more(held_out):
    assert len(held_out) == 13 and all(len(errors) >= 10 for errors in held_out.values())
    for case in CASES.values():
        assert sum(not point["held_out"] for point in case["points"]) == (12 if len(case["points"][0]["at"]) == 3 else 6)


@pytest.mark.parametrize("name", CASES)
def test_points_are_those_of_design(name):
    ranges = {each.label: (each.low, each.last, each.step) for each in map(parse, CASES[name]["vary"]) if each.varies}
    fitted = [point["at"] for point in CASES[name]["points"] if not point["held_out"]]
    assert fitted == list(itertools.islice(design.places(ranges), len(fitted)))


@pytest.mark.parametrize("name", CASES)
def test_error_within_bounds(name, held_out):
    errors = [error for error, _ in held_out[name]]
    assert statistics.median(errors) <= 0.01
    assert max(errors) <= 0.03


def test_intervals_hold_95_percent(held_out):
    held = [inside for errors in held_out.values() for _, inside in errors]
    assert sum(held) >= 0.95 * len(held)


@pytest.mark.parametrize("name", CASES)
def test_interval_no_wider_than_needed(name, held_out):
    """An interval that holds everything says nothing. Only `loop`, whose arena cannot be simulated, has one of the steps' height."""
    answer = answered(name)
    said = answer.predict([point.at for point in answer.points if point.held_out])
    half = statistics.median((prediction.high_bytes - prediction.bytes) / prediction.bytes for prediction in said)
    assert half < (0.3 if name == "loop" else 0.05)
