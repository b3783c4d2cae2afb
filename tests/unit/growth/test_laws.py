"""Laws of memory from made-up points: which terms are found, how far they are from the truth, and what is not claimed."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from msgspec.structs import replace
from support.law_points import MIB, QUIET, SIX, grid, line, measured

from memprof.growth.laws import design, laws
from memprof.growth.laws.arena import ArenaLaw
from memprof.growth.laws.terms import SizePoint, Term


def designed(ranges, count=6):
    """The first places of the design."""
    return list(itertools.islice(design.places(ranges), count))


def words(law):
    return [coefficient.term.words for coefficient in law.coefficients]


CASES = {
    "constant": (lambda a: 80, line("a", 1, 64, 20, 40), [""]),
    "a dimension": (lambda a: 80 + 0.5 * a, line("a", 1, 64, 20, 40), ["", "a"]),
    "a square": (lambda a: 80 + 0.01 * a * a, line("a", 1, 64, 20, 40, 7), ["", "a²"]),
    "both": (lambda a: 80 + 2 * a + 0.01 * a * a, line("a", 1, 64, 20, 40, 7, 50), ["", "a", "a²"]),
    "a product": (lambda a, s: 80 + 0.01 * a * s, SIX, ["", "a x s"]),
    "attention": (lambda a, s: 80 + 0.02 * a * s + 0.0001 * a * s * s, SIX, ["", "a x s", "a x s²"]),
    "two dimensions apart": (lambda a, s: 80 + 3 * a + 0.1 * s, SIX, ["", "a", "s"]),
    "an arena that doubles": (
        lambda a: 80 + 2 * 2 ** (int(a) - 1).bit_length(),
        line("a", 1, 64, 26, 7, 40, 15),
        ["", "(a rounded up to a power of two)"],
    ),
    "pages": (
        lambda c: 80 + 0.02 * 256 * -(-c // 256),
        line("c", 1, 4000, 1700, 400, 2900, 900),
        ["", "(c rounded up to a multiple of 256)"],
    ),
    "a dimension and an arena that doubles": (
        lambda a: 80 + 0.8 * a + 2 * 2 ** (int(a) - 1).bit_length(),
        line("a", 1, 64, 26, 7, 35, 38),
        ["", "a", "(a rounded up to a power of two)"],
    ),
    "pages and an arena that doubles": (
        lambda a: 80 + 1.3 * 16 * -(-a // 16) + 0.9 * 2 ** (int(a) - 1).bit_length(),
        line("a", 1, 64, 26, 7, 35, 38),
        ["", "(a rounded up to a multiple of 16)", "(a rounded up to a power of two)"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_law_terms_and_coefficients_found(case):
    truth, places, terms = CASES[case]
    law = laws.law(measured(truth, places), noise=QUIET)
    assert law is not None
    assert sorted(words(law)) == sorted(terms)
    for place in grid(**dict.fromkeys(places[0], (3, 23, 111))):
        assert law.predict(place).bytes == pytest.approx(truth(**place) * MIB, rel=1e-3)


def test_coefficient_interval_follows_noise():
    intervals = []
    for noise in (0.01, 0.5):
        law = laws.law(measured(lambda a: 80 + 0.5 * a, line("a", 1, 64, 20, 40, 7, 50), noise), noise=(noise * MIB, 0))
        slope = law.coefficient("a")
        assert slope.low_bytes < 0.5 * MIB < slope.high_bytes
        intervals.append(slope.high_bytes - slope.low_bytes)
    assert intervals[1] > 10 * intervals[0]
    assert law.coefficient("b") is None


def test_intervals_hold_truth():
    held = 0
    for seed in range(100):
        points = measured(lambda a: 80 + 0.5 * a, line("a", 1, 64, 20, 40, 7, 50), 0.2, seed)
        prediction = laws.law(points, noise=(0.2 * MIB, 0)).predict({"a": 100})
        held += prediction.low_bytes <= 130 * MIB <= prediction.high_bytes
    assert held >= 90


def test_interval_wider_beyond_range():
    law = laws.law(measured(lambda a: 80 + 0.5 * a, line("a", 1, 64, 20, 40)), noise=(0.1 * MIB, 0.001))
    near, far, farther = law.predict_all(line("a", 30, 128, 512))
    assert (near.beyond, far.beyond) == ((), ("a",))
    assert near.high_bytes - near.low_bytes < far.high_bytes - far.low_bytes < farther.high_bytes - farther.low_bytes


def test_law_resists_outlier():
    points = measured(lambda a: 80 + 0.5 * a, line("a", 1, 8, 16, 24, 32, 40, 48, 56, 64), 0.05)
    points[4] = SizePoint(points[4].at, points[4].bytes + 9 * MIB)
    law = laws.law(points, noise=(0.1 * MIB, 0.001))
    assert words(law) == ["", "a"]
    assert law.coefficient("a").bytes == pytest.approx(0.5 * MIB, rel=0.02)


def test_no_coefficient_below_zero():
    law = laws.law(measured(lambda a: 200 - 0.01 * a, line("a", 1, 64, 20, 40, 7)), noise=(MIB, 0.001))
    assert words(law) == [""] and law.coefficient("").bytes == pytest.approx(200 * MIB, rel=0.01)
    assert laws.law(measured(lambda a: 200 - a, line("a", 1, 64, 20, 40, 7)), noise=QUIET) is None


def test_rounding_needs_two_values_that_it_changes():
    places = [*grid(a=(1, 8), s=(16, 256)), {"a": 8, "s": 100}, {"a": 4, "s": 256}]
    points = measured(lambda a, s: 160 + a * s / 128, places)
    points[4] = SizePoint(points[4].at, points[4].bytes + 1.3 * MIB)  # a power of two would have it: 128 for 100
    assert words(laws.law(points, noise=(MIB / 8, 0.001))) == ["", "a x s"]


def test_law_bounded_by_dead_run():
    points = measured(lambda a: 80 + 0.5 * a + 0.01 * a * a, line("a", 1, 5, 10, 20, 30))
    without = laws.law(points, noise=QUIET).predict({"a": 200})
    held = laws.law([*points, SizePoint({"a": 64}, 140 * MIB, least=True)], noise=QUIET)
    assert held.predict({"a": 64}).bytes >= 140 * MIB
    assert held.predict({"a": 200}).bytes == pytest.approx(without.bytes, rel=0.01)
    # Where the points alone would have said less, it pulls the law up.
    straight = measured(lambda a: 80 + 0.5 * a, line("a", 1, 10, 20))
    assert laws.law([*straight, SizePoint({"a": 64}, 200 * MIB, least=True)], noise=QUIET).predict({"a": 64}).bytes > 150 * MIB


def test_bounds_without_law():
    points = measured(lambda a: 80 + 60 * (a > 3) - 50 * (a > 9) + 70 * (a > 30), line("a", 1, 5, 12, 20, 40, 64), 3)
    assert laws.law(points, noise=QUIET) is None
    assert laws.law(points[:1], noise=QUIET) is None
    table = [SizePoint({"a": 1}, 10), SizePoint({"a": 9}, 30), SizePoint({"a": 20}, 50, least=True)]
    assert laws.bounds(table, {"a": 5}) == (10, 30)
    assert laws.bounds(table, {"a": 15}) == (30, None)
    assert laws.bounds(table, {"a": 25}) == (50, None)


def test_law_error_needs_spare_points():
    assert laws.law(measured(lambda a: 80 + 2 * a, line("a", 1, 2)), noise=QUIET).error is None
    assert laws.law(measured(lambda a: 80 + 2 * a, line("a", 1, 2, 3, 4)), noise=QUIET).error == pytest.approx(0, abs=1e-6)


def test_design_corners_then_halves():
    both = {"a": (1, 16, 1), "s": (16, 512, 1)}
    assert design.first_places(both) == [{"a": 1, "s": 16}, {"a": 16, "s": 16}, {"a": 1, "s": 512}]
    assert designed(both, 7)[3:] == [{"a": 16, "s": 512}, {"a": 16, "s": 177}, {"a": 6, "s": 512}, {"a": 6, "s": 177}]
    assert [at["a"] for at in designed({"a": (1, 65, 1)})] == [1, 65, 21, 36, 10, 48]
    assert [tuple(at.values()) for at in designed({"a": (1, 2, 1), "s": (16, 17, 1)}, 9)] == [(1, 16), (2, 16), (1, 17), (2, 17)]


@pytest.mark.parametrize(("low", "high", "step"), [(1, 8, 1), (224, 1024, 32), (512, 32768, 1), (3, 3, 1)])
def test_design_keeps_ends_and_step(low, high, step):
    values = [at["a"] for at in design.places({"a": (low, high, step)})]
    assert values[:2] == [low, high][: len({low, high})] and len(values) == len(set(values))
    assert all(low <= value <= high and (value - low) % step == 0 for value in values)


def test_law_of_six_designed_runs():
    """The whole way: 6 runs at places that the design chose."""
    ranges = {"a": (1, 16, 1), "s": (16, 512, 1)}

    def truth(a, s):
        return 120 + 0.02 * a * s + 0.0002 * a * s * s

    law = laws.law(measured(truth, designed(ranges), 0.05), noise=(0.1 * MIB, 0.0005))
    assert sorted(words(law)) == ["", "a x s", "a x s²"]
    for place in grid(a=(3, 11, 30), s=(40, 300, 1000)):
        assert law.predict(place).bytes == pytest.approx(truth(**place) * MIB, rel=0.02)


def test_largest_between_sure_and_possible():
    law = laws.law(measured(lambda a: 80 + 2 * a, line("a", 1, 16, 32, 8), 0.2), noise=(0.3 * MIB, 0))
    value, surely, possibly = laws.largest(law.predict_all, "a", {}, 300 * MIB, 1)
    assert value == pytest.approx(110, abs=2) and surely < value < possibly
    assert laws.largest(law.predict_all, "a", {}, 50 * MIB, 1) == (None, None, None)
    flat = laws.law(measured(lambda a: 80, line("a", 1, 16, 32, 8)), noise=QUIET)
    assert laws.largest(flat.predict_all, "a", {}, 300 * MIB, 1)[0] == 1 << 40


def test_largest_stops_at_first_crossing():
    # Rounded up to a power of two, a step lies beyond each measured value, and intervals are wider between measured values than at them.
    offs = zip((1, 2, 3, 4, 6, 8), (-4.4, 4.2, 3.2, -2.9, -0.1, -0.6), strict=True)
    points = [SizePoint({"a": a}, (20 + 15 * 2 ** math.ceil(math.log2(a)) + off) * MIB) for a, off in offs]
    law = laws.law(points, noise=(MIB / 8, 0.001))
    assert "(a rounded up to a power of two)" in words(law)
    ends = {a: law.predict({"a": a}).high_bytes for a in range(4, 9)}
    assert ends[4] < ends[8] < ends[5], "it says more at 8, which was measured, than at 5"
    value, surely, possibly = laws.largest(law.predict_all, "a", {}, (ends[8] + ends[5]) / 2, 1)
    assert (value, surely) == (8, 4) and 8 <= possibly <= 16

    far = law.predict_all(line("a", *range(9, 2000)))
    assert far[-1].low_bytes == 0
    limit = max(prediction.low_bytes for prediction in far) + MIB
    value, surely, possibly = laws.largest(law.predict_all, "a", {}, limit, 1)
    assert value < 1 << 10 and surely <= value and possibly is None


def test_largest_asks_nothing_beyond_doubt():
    """Where the interval holds 0 over a stretch, what lies beyond decides nothing, and a place may take milliseconds to predict."""
    asked = []

    def predict(places):
        asked.extend(place["a"] for place in places)
        return [laws.Prediction(place, place["a"] * MIB, max(100 - place["a"], 0) * MIB, 3 * place["a"] * MIB) for place in places]

    assert laws.largest(predict, "a", {}, 300 * MIB, 1) == (300, 100, None)
    assert max(asked) < 1000


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (Term(), ""),
        (Term((("batch", 1), ("sequence", 2))), "batch x sequence²"),
        (Term((("batch", 1),), "doubling", "batch"), "(batch rounded up to a power of two)"),
        (Term((("context", 1), ("slots", 1)), "pages", "context", 256.0), "(context rounded up to a multiple of 256) x slots"),
    ],
)
def test_terms_in_words(term, words):
    assert term.words == words


def stepping(batch, sequence):
    """As ONNX Runtime's arena was seen with an LSTM: MiB by a product, with steps at the same places of each octave."""
    grown = batch * sequence / 256
    octave = math.log2(grown) % 1
    return 91 + grown * (7.0 if octave < 0.4 else 5.0 if octave < 0.7 else 4.6)


def arena_law(truth, arena, seed=0):
    """The law of six well-chosen points, and held-out points up to twice beyond their range."""
    generator = random.Random(seed)
    points = measured(truth, designed({"batch": (1, 32, 1), "sequence": (8, 128, 1)}))
    held = measured(truth, [{"batch": generator.randint(1, 64), "sequence": generator.randint(8, 256)} for _ in range(40)])
    return laws.law(points, noise=(MIB / 8, 0.001), arena=arena), held


def in_interval(law, points):
    pairs = zip(points, law.predict_all([point.at for point in points]), strict=True)
    return sum(said.low_bytes <= point.bytes <= said.high_bytes for point, said in pairs) / len(points)


def test_arena_steps_within_interval():
    law, held = arena_law(stepping, ArenaLaw())
    assert law.steps and words(law) == ["", "batch x sequence"]
    assert in_interval(law, held) >= 0.9
    errors = sorted(abs(law.predict(point.at).bytes / point.bytes - 1) for point in held)
    assert errors[len(errors) // 2] < 0.08
    slope = law.coefficient("batch x sequence")
    assert slope.low_bytes < 4.6 / 256 * MIB and slope.high_bytes > 7 / 256 * MIB  # as memory grows between steps

    without, _ = arena_law(stepping, None)
    assert without is None or in_interval(without, held) < 0.9


def test_memory_beside_simulated_arena_within_interval():
    """An output that a program holds while the next run goes on is in no request of the arena, and grows beyond the measured range too."""

    def arena(at):
        return stepping(at["batch"], at["sequence"]) * MIB

    law, held = arena_law(lambda batch, sequence: stepping(batch, sequence) + 0.3 * batch * sequence / 256, ArenaLaw(arena))
    assert law.simulated and in_interval(law, held) >= 0.9


def test_arena_grows_with_plan():
    places = [(1, 8), (32, 8), (1, 128), (32, 128), (26, 128), (22, 128)]  # which the square of the batch would fit as well
    points = measured(stepping, [{"batch": batch, "sequence": sequence} for batch, sequence in places])
    plan = Term((("batch", 1), ("sequence", 1)))
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=ArenaLaw(terms=(plan,)))
    assert law.steps and words(law) == ["", "batch x sequence"]


def test_arena_without_steps():
    law, held = arena_law(lambda batch, sequence: 75 + batch * sequence / 64, ArenaLaw())
    assert not law.steps and words(law) == ["", "batch x sequence"]
    for point in held:
        assert law.predict(point.at).bytes == pytest.approx(point.bytes, rel=0.001)


def simulated(at):
    """What `stepping` says, but for its constant."""
    return (stepping(**at) - 91) * MIB


def test_arena_simulated_predictions():
    law, held = arena_law(stepping, ArenaLaw(size=simulated))
    assert law.simulated and words(law) == ["", "batch x sequence"]
    for point in held:
        assert law.predict(point.at).bytes == pytest.approx(point.bytes, rel=0.003)
    assert in_interval(law, held) == 1
    widths = [said.high_bytes / said.bytes - 1 for said in law.predict_all([point.at for point in held])]
    assert max(widths) < 0.08


@pytest.mark.parametrize("chance", [5, -40])
def test_simulation_ignores_chance_outlier(chance):
    points = measured(stepping, [{"batch": batch, "sequence": 64} for batch in (1, 5, 9, 14, 23, 32)])
    points[2] = replace(points[2], bytes=points[2].bytes + chance * MIB)
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=ArenaLaw(size=simulated))
    (truth,) = measured(stepping, [{"batch": 50, "sequence": 200}])
    assert law.simulated and law.predict(truth.at).bytes == pytest.approx(truth.bytes, rel=0.005)


@pytest.mark.parametrize("wrong", [lambda at: simulated({**at, "batch": 4}), lambda at: 0.0, lambda at: 3 * simulated(at)])
def test_simulation_far_from_points_ignored(wrong):
    law, held = arena_law(stepping, ArenaLaw(size=wrong))
    assert not law.simulated and in_interval(law, held) >= 0.9


def test_simulation_below_dead_run_ignored():
    points = measured(stepping, [{"batch": batch, "sequence": 64} for batch in (1, 5, 9, 14, 23)])
    died = SizePoint({"batch": 32, "sequence": 64}, 400 * MIB, least=True)
    answers = [laws.law(every, noise=QUIET, arena=ArenaLaw(size=simulated)) for every in (points, [*points, died])]
    assert [law.simulated for law in answers] == [True, False]


def test_dimension_divided_rounds_up():
    def cells(context, slots):
        return 70 + 0.007 * 256 * slots * -(-context // (256 * slots))

    law = laws.law(measured(cells, designed({"context": (512, 8192, 1), "slots": (1, 4, 1)})), noise=QUIET)
    assert words(law) == ["", "(context rounded up to a multiple of 256 x slots)"]
    for truth in measured(cells, grid(context=(600, 3000, 16000), slots=(1, 3, 8))):
        assert law.predict(truth.at).bytes == pytest.approx(truth.bytes, rel=0.001)


def worst(batch, sequence, sessions=1):
    """What the worst of two moments needs in each session, in MiB: attention's beyond a sequence of 320, which no place in the range has."""
    return sessions * batch * sequence * max(15, 8.75 + 0.01953 * sequence) / 1024


BEYOND = [{"batch": 8, "sequence": 512}, {"batch": 16, "sequence": 400}]


def test_simulation_follows_peak_beyond_range():
    points = measured(lambda **at: 88 + worst(**at), [*grid(batch=(1, 8), sequence=(16, 256)), *grid(batch=(5,), sequence=(100, 200))])
    noise = (MIB / 8, 0.001)
    law, without = (
        laws.law(points, noise=noise, arena=arena) for arena in (ArenaLaw(doubles=False, size=lambda at: worst(**at) * MIB), None)
    )
    assert law.simulated and not without.simulated and words(law) == words(without) == ["", "batch x sequence"]
    for truth in measured(lambda **at: 88 + worst(**at), BEYOND):
        assert law.predict(truth.at).bytes == pytest.approx(truth.bytes, rel=0.001)
        assert without.predict(truth.at).bytes < 0.95 * truth.bytes


def test_highest_upper_end_below_a_value():
    def predict(places):
        sizes = [300 if at["batch"] == 13 else 280 if at["batch"] == 10 else 200 for at in places]
        return [laws.Prediction(at, size, size - 5, size + 5) for at, size in zip(places, sizes, strict=True)]

    found = [laws.highest(predict, "batch", {"s": 4}, *ends) for ends in ((1, 20), (1, 12), (1, 9), (1, 20, 3), (1, 18, 3), (13, 13))]
    assert [prediction.at for prediction in found] == [{"s": 4, "batch": value} for value in (13, 10, 9, 13, 13, 13)]
    assert laws.highest(predict, "batch", {}, 2, 20, 4).at == {"batch": 10}  # 13 is none of its values


def test_simulation_yields_to_simple_law():
    points = measured(
        lambda batch, sequence: 88 + batch * sequence / 50,
        [*grid(batch=(1, 8), sequence=(16, 256)), *grid(batch=(5,), sequence=(100, 200))],
    )
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=ArenaLaw(doubles=False, size=lambda at: worst(**at) * MIB))
    assert not law.simulated and words(law) == ["", "batch x sequence"]


def test_session_weights_beside_arenas():
    def truth(batch, sequence, sessions):
        kept = 0.2 * worst(batch, sequence) * (sessions > 1) * (sequence < 150)
        return 49 + 14.3 * sessions + worst(batch, sequence, sessions) + kept

    places = [*grid(batch=(1, 8), sequence=(16, 256), sessions=(1, 3)), *grid(batch=(8,), sequence=(100,), sessions=(1, 2, 3))]
    arena = ArenaLaw(doubles=False, size=lambda at: worst(**at) * MIB, beside=(Term((("sessions", 1),)),))
    law = laws.law(measured(truth, places), noise=(MIB / 8, 0.001), arena=arena)
    held = measured(truth, grid(batch=(3, 15), sequence=(90, 300, 500), sessions=(1, 2, 5)))
    assert law.simulated and in_interval(law, held) >= 0.9
    for point in held:
        assert law.predict(point.at).bytes == pytest.approx(point.bytes, rel=0.04)


def test_stepped_law_raised_by_dead_run():
    points = measured(lambda a: 90 + a * (7 if math.log2(a) % 1 < 0.4 else 5), line("a", 1, 8, 11, 13, 15))
    free, bound = (
        laws.law(every, noise=QUIET, arena=ArenaLaw()) for every in (points, [*points, SizePoint({"a": 16}, 400 * MIB, least=True)])
    )
    assert free.steps and bound is not None
    assert bound.predict({"a": 16}).high_bytes > free.predict({"a": 16}).high_bytes
