"""Sizes that follow counts of strides, such as frames of a sound or pooled rows of a picture: found at few places, and what they leave in doubt."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_runs import MIB

from memprof.growth.laws import laws
from memprof.growth.laws.arena import ArenaLaw
from memprof.growth.laws.terms import SizePoint
from memprof.growth.scale import predictions, requests, strides
from memprof.growth.scale.arena_requests import replayed
from memprof.growth.scale.requests import Recording
from memprof.records.types import PEAK, RequestTrace

SAMPLES = (16000, 22627, 32001, 45255)  # as `arena_requests.places` chooses them of 16000..64000


def known_sizes(places, *sizes, numbers=None):
    """The requests of a model whose tensors have these sizes, each a function of the place."""
    first = tuple(range(len(sizes)))
    recordings = [Recording(first, (), tuple(size(**at) for size in sizes), ("t",) * len(sizes), ()) for at in places]
    # A runtime that makes no block: the second run asks again for all.
    recordings = [msgspec.structs.replace(each, second=first) for each in recordings]
    return requests.requests(list(zip(places, recordings, strict=True)))


def sized(known, at, rival=None):
    sizes = known._sizes(at, rival)
    return [sizes[amount] for amount in known.amounts]


FRAMES = [
    lambda samples: 4 * samples,
    lambda samples: 1024 * (samples // 256 + 3),  # padded by three frames
    lambda samples: 496 * (samples // 256) + 64,  # frames, and a constant beside them
    lambda samples: 8192 * (samples // 256),
    lambda samples: 4 * (samples // 256) ** 2,  # attention between frames
    lambda samples: 12 * samples + 40 * (samples // 256),
]


@pytest.mark.parametrize("samples", [16001, 52479, 52480, 52549, 90000])
def test_frames_exact_at_other_places(samples):
    known = known_sizes([{"samples": each} for each in SAMPLES], *FRAMES)
    assert sized(known, {"samples": samples}) == [size(samples) for size in FRAMES]
    assert not known.errors and not known.doubtful({"samples": samples})


@pytest.mark.parametrize(("step", "certain"), [(2, True), (4, True), (8, True), (16, False), (32, False)])
def test_pooled_rows_of_batch(step, certain):
    """Rows and columns have one value, and a layer has one row of several, begun ones too. At these places each row of 32 may be two of 16."""

    def layer(batch, size):
        return 32 * batch * (-(-size // step)) ** 2

    places = [{"batch": batch, "size": size} for batch, size in ((3, 115), (1, 64), (1, 149), (5, 64), (5, 149))]
    known = known_sizes(places, layer)
    at = {"batch": 7, "size": 321}
    assert not known.errors and bool(known.doubtful(at)) is not certain
    sizes = [sized(known, at, rival)[0] for rival in (None, *known.doubtful(at))]
    assert layer(**at) in sizes and (sizes[0] == layer(**at) or not certain)


@given(st.integers(2, 600), st.integers(-500, 500), st.integers(1, 4000))
def test_count_as_recorded_and_near_elsewhere(stride, offset, factor):
    """Any stride: the recorded counts are met, and elsewhere the true one lies among those of the rivals, or within one of them."""

    def count(samples):
        return (samples + offset) // stride

    places = [{"samples": each} for each in SAMPLES]
    found = strides.strided(places, [factor * count(each) for each in SAMPLES])
    assert found is not None and found.power == 1 and found.others == ()
    parts = round(found.factor / factor)  # counts that have a common divisor are counts of a longer stride
    for samples in (*SAMPLES, 64000):
        at = {"samples": samples}
        counts = [found.stride.count(at, rival) + found.shift for rival in (None, 0, 1, 2, 3)]
        if samples in SAMPLES:
            assert {parts * each for each in counts} == {count(samples)}
        elif parts == 1:
            certain = 0 if found.stride.rivals else 2
            assert min(counts) - 1 - certain <= count(samples) <= max(counts) + 1 + certain


@pytest.mark.parametrize(
    "size",
    [
        lambda samples: 4 * samples + samples % 13,  # rounded in another way
        lambda samples: 4096,  # the same everywhere
        lambda samples: 1024 * (samples // 20000),  # two values alone
        lambda samples: 0 if samples < 20000 else 1024 * (samples // 256),
    ],
)
def test_other_sizes_are_no_counts(size):
    assert strides.strided([{"samples": each} for each in SAMPLES], [size(each) for each in SAMPLES]) is None


def test_sizes_near_only_are_doubtful():
    """A size that no terms have exactly is larger in some rivals and smaller in others, by its error; exact sizes beside it stay."""
    rough = [lambda samples, part=part: part * samples + samples % 131 for part in (4, 8, 12)]
    known = known_sizes([{"samples": each} for each in SAMPLES], *rough, lambda samples: 64 * samples)
    at = {"samples": 50000}
    assert known.doubtful(at) == [0, 1, 2, 3]
    taken, *others = (sized(known, at, rival) for rival in (None, 0, 1, 2, 3))
    assert len(set(map(tuple, others))) > 1
    assert all(other[3] == taken[3] and abs(other[0] / taken[0] - 1) < 0.01 for other in others)


def test_doubt_widens_interval_where_it_is():
    """A simulation that may be off by 8 MiB at one place is fitted as before, and the interval there says so."""
    points = [SizePoint({"a": a}, (50 + a) * MIB) for a in (1, 2, 4, 8, 12, 16)]
    arena = ArenaLaw(size=lambda at: at["a"] * MIB, doubt=lambda at: 8.0 * MIB if at["a"] == 10 else 0.0)
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=arena)
    certain, doubtful = law.predict_all([{"a": 9}, {"a": 10}])
    assert doubtful.bytes == pytest.approx(60 * MIB) and certain.high_bytes - certain.bytes < 4 * MIB
    assert doubtful.high_bytes - doubtful.bytes >= 6 * MIB


def test_measured_peaks_of_strided_model():
    """A detector of pitch (swift-f0) with frames of 256 samples, recorded at four places and measured at others: 22000 and 52549 lie beside places
    where the arena needs more, and 52400 is one of these."""
    case = json.loads((Path(__file__).parents[2] / "data" / "strided_requests.json").read_text())
    arena = predictions.simulated(ArenaLaw(), PEAK, replayed(msgspec.convert(case["requests"], RequestTrace), case["runs"]))
    beside = {int(samples): peak - arena.size({"samples": int(samples)}) for samples, peak in case["peak_bytes"].items()}
    assert {22000, 52400, 52549, 90000} < set(beside)
    assert max(beside.values()) - min(beside.values()) < MIB
    assert not any(arena.doubt({"samples": samples}) for samples in beside)
    spike, after = (arena.size({"samples": int(samples)}) for samples in (52400, 52549))
    assert spike - after > 4 * MIB
