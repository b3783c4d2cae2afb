"""Laws of memory from made-up points: which terms are found, how far they are from the truth, and what is not claimed."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from support.law_points import MIB, QUIET, SIX, grid, line, measured

from memprof.laws import design, laws
from memprof.laws.log_periodic import Arena
from memprof.laws.terms import Point, Term


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
    points[4] = Point(points[4].at, points[4].bytes + 9 * MIB)
    law = laws.law(points, noise=(0.1 * MIB, 0.001))
    assert words(law) == ["", "a"]
    assert law.coefficient("a").bytes == pytest.approx(0.5 * MIB, rel=0.02)


def test_law_with_change_point():
    law = laws.law(measured(lambda a: max(100, 60 + 2 * a) + a, line("a", 1, 8, 16, 25, 34, 48, 64)), noise=(0.05 * MIB, 0.0005))
    if law.floor_bytes:
        pytest.fail("it also grows where it is low")
    assert [dimension for dimension, _ in law.changes] == ["a"]
    assert law.changes[0][1] == pytest.approx(20, abs=2)
    assert law.predict({"a": 100}).bytes == pytest.approx(360 * MIB, rel=0.02)


def test_law_floor_of_reused_memory():
    law = laws.law(measured(lambda a, s: max(90, 60 + 0.03 * a * s), SIX), noise=(0.1 * MIB, 0.001))
    assert law.predict({"a": 1, "s": 100}).bytes == pytest.approx(90 * MIB, rel=0.01)
    assert law.predict({"a": 16, "s": 400}).bytes == pytest.approx((60 + 0.03 * 6400) * MIB, rel=0.02)
    assert law.floor_bytes == pytest.approx(90 * MIB, rel=0.01)


def test_law_bounded_by_dead_run():
    points = measured(lambda a: 80 + 0.5 * a + 0.01 * a * a, line("a", 1, 5, 10, 20, 30))
    without = laws.law(points, noise=QUIET).predict({"a": 200})
    held = laws.law([*points, Point({"a": 64}, 140 * MIB, least=True)], noise=QUIET)
    assert held.predict({"a": 64}).bytes >= 140 * MIB
    assert held.predict({"a": 200}).bytes == pytest.approx(without.bytes, rel=0.01)
    # Where the points alone would have said less, it pulls the law up.
    straight = measured(lambda a: 80 + 0.5 * a, line("a", 1, 10, 20))
    assert laws.law([*straight, Point({"a": 64}, 200 * MIB, least=True)], noise=QUIET).predict({"a": 64}).bytes > 150 * MIB


def test_bounds_without_law():
    points = measured(lambda a: 80 + 60 * (a > 3) - 50 * (a > 9) + 70 * (a > 30), line("a", 1, 5, 12, 20, 40, 64), 3)
    assert laws.law(points, noise=QUIET) is None
    assert laws.law(points[:1], noise=QUIET) is None
    table = [Point({"a": 1}, 10), Point({"a": 9}, 30), Point({"a": 20}, 50, least=True)]
    assert laws.bounds(table, {"a": 5}) == (10, 30)
    assert laws.bounds(table, {"a": 15}) == (30, None)
    assert laws.bounds(table, {"a": 25}) == (50, None)


def test_law_error_needs_spare_points():
    assert laws.law(measured(lambda a: 80 + 2 * a, line("a", 1, 2)), noise=QUIET).error is None
    assert laws.law(measured(lambda a: 80 + 2 * a, line("a", 1, 2, 3, 4)), noise=QUIET).error == pytest.approx(0, abs=1e-6)


def test_design_first_and_next_places():
    assert design.first_places({"a": (1, 64), "s": (16, 512)}) == [{"a": 1, "s": 16}, {"a": 64, "s": 16}, {"a": 1, "s": 512}]
    candidates = line("a", *range(1, 65))
    points = measured(lambda a: 80 + 0.5 * a, line("a", 1, 64))
    place = design.next_place([points], candidates)
    assert 10 < place["a"] < 50  # a line and a square through the ends are farthest apart in the middle
    corner = design.next_place(
        [measured(lambda a, s: 80 + a + s, [*grid(a=(1, 16), s=(16,)), {"a": 1, "s": 512}])], grid(a=(1, 8, 16), s=(16, 256, 512))
    )
    assert corner == {"a": 16, "s": 512}  # it tells a product from a sum


def test_design_skips_known_and_dead():
    points = [*measured(lambda a: 80 + a, line("a", 1, 20)), Point({"a": 40}, 90 * MIB, least=True)]
    assert design.next_place([points], line("a", 1, 20, 40, 50, 64)) is None
    assert design.next_place([points], line("a", 1, 20, 30, 40, 64)) == {"a": 30}


def test_law_of_six_designed_runs():
    """The whole way: 6 runs at places that the design chose."""
    ranges = {"a": (1, 16), "s": (16, 512)}

    def truth(a, s):
        return 120 + 0.02 * a * s + 0.0002 * a * s * s

    points = measured(truth, design.first_places(ranges), 0.05)
    candidates = grid(a=design.values_of(1, 16, most=12), s=design.values_of(16, 512, most=12))
    while len(points) < 6:
        points += measured(truth, [design.next_place([points], candidates)], 0.05, seed=len(points))
    law = laws.law(points, noise=(0.1 * MIB, 0.0005))
    assert sorted(words(law)) == ["", "a x s", "a x s²"]
    for place in grid(a=(3, 11, 30), s=(40, 300, 1000)):
        assert law.predict(place).bytes == pytest.approx(truth(**place) * MIB, rel=0.02)


@pytest.mark.parametrize(
    ("low", "high", "step", "most", "count"), [(1, 8, 1, 24, 8), (1, 64, 1, 10, 10), (224, 1024, 32, 8, 8), (512, 32768, 1, 24, 24)]
)
def test_design_values_keep_ends_and_step(low, high, step, most, count):
    values = design.values_of(low, high, step, most)
    assert values[0] == low and values[-1] == high and values == sorted(set(values))
    assert all((value - low) % step == 0 for value in values)
    assert count - 2 <= len(values) <= count


def test_largest_between_sure_and_possible():
    law = laws.law(measured(lambda a: 80 + 2 * a, line("a", 1, 16, 32, 8), 0.2), noise=(0.3 * MIB, 0))
    value, surely, possibly = laws.largest(law, "a", {}, 300 * MIB, 1)
    assert value == pytest.approx(110, abs=2) and surely < value < possibly
    assert laws.largest(law, "a", {}, 50 * MIB, 1) == (None, None, None)
    flat = laws.law(measured(lambda a: 80, line("a", 1, 16, 32, 8)), noise=QUIET)
    assert laws.largest(flat, "a", {}, 300 * MIB, 1)[0] == 1 << 40


def test_largest_stops_at_first_crossing():
    # Rounded up to a power of two, a step lies beyond each measured value, and intervals are wider between measured values than at them.
    offs = zip((1, 2, 3, 4, 6, 8), (-4.4, 4.2, 3.2, -2.9, -0.1, -0.6), strict=True)
    points = [Point({"a": a}, (20 + 15 * 2 ** math.ceil(math.log2(a)) + off) * MIB) for a, off in offs]
    law = laws.law(points, noise=(MIB / 8, 0.001))
    assert "(a rounded up to a power of two)" in words(law)
    ends = {a: law.predict({"a": a}).high_bytes for a in range(4, 9)}
    assert ends[4] < ends[8] < ends[5], "it says more at 8, which was measured, than at 5"
    value, surely, possibly = laws.largest(law, "a", {}, (ends[8] + ends[5]) / 2, 1)
    assert (value, surely) == (8, 4) and 8 <= possibly <= 16

    far = law.predict_all(line("a", *range(9, 2000)))
    assert far[-1].low_bytes == 0
    limit = max(prediction.low_bytes for prediction in far) + MIB
    value, surely, possibly = laws.largest(law, "a", {}, limit, 1)
    assert value < 1 << 10 and surely <= value and possibly is None


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (Term(), ""),
        (Term((("batch", 1), ("sequence", 2))), "batch x sequence²"),
        (Term((("batch", 1),), "doubling", "batch"), "(batch rounded up to a power of two)"),
        (Term((("context", 1), ("slots", 1)), "pages", "context", 256.0), "(context rounded up to a multiple of 256) x slots"),
        (Term((("batch", 1),), "beyond", "batch", 17.5), "(batch beyond 17.5)"),
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
    candidates = grid(batch=design.values_of(1, 32, most=12), sequence=design.values_of(8, 128, most=12))
    points = measured(truth, design.first_places({"batch": (1, 32), "sequence": (8, 128)}))
    while len(points) < 6:
        points += measured(truth, [design.next_place([points], candidates, noise=(MIB / 8, 0.001), arena=arena)])
    held = measured(truth, [{"batch": generator.randint(1, 64), "sequence": generator.randint(8, 256)} for _ in range(40)])
    return laws.law(points, noise=(MIB / 8, 0.001), arena=arena), held


def in_interval(law, points):
    pairs = zip(points, law.predict_all([point.at for point in points]), strict=True)
    return sum(said.low_bytes <= point.bytes <= said.high_bytes for point, said in pairs) / len(points)


def test_arena_steps_within_interval():
    law, held = arena_law(stepping, Arena())
    assert law.steps and words(law) == ["", "batch x sequence"]
    assert in_interval(law, held) >= 0.9
    errors = sorted(abs(law.predict(point.at).bytes / point.bytes - 1) for point in held)
    assert errors[len(errors) // 2] < 0.08

    without, _ = arena_law(stepping, None)
    assert without is None or in_interval(without, held) < 0.9


def test_arena_grows_with_plan():
    places = [(1, 8), (32, 8), (1, 128), (32, 128), (26, 128), (22, 128)]  # which the square of the batch would fit as well
    points = measured(stepping, [{"batch": batch, "sequence": sequence} for batch, sequence in places])
    plan = (Term((("batch", 1), ("sequence", 1))), 4096.0)
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=Arena((plan,)))
    assert law.steps and words(law) == ["", "batch x sequence"]


def test_arena_scales_with_tensor_size():
    places = [(1, 8), (16, 64), (22, 64), (26, 64), (30, 64), (19, 64)]
    points = measured(stepping, [{"batch": batch, "sequence": sequence} for batch, sequence in places])
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=Arena())
    for batch, sequence in places[1:]:
        (truth,) = measured(stepping, [{"batch": 2 * batch, "sequence": 2 * sequence}])
        assert law.predict(truth.at).bytes == pytest.approx(truth.bytes, rel=0.08)


def test_arena_without_steps():
    law, held = arena_law(lambda batch, sequence: 75 + batch * sequence / 64, Arena())
    assert not law.steps and words(law) == ["", "batch x sequence"]
    for point in held:
        assert law.predict(point.at).bytes == pytest.approx(point.bytes, rel=0.001)


def simulated(at):
    """What `stepping` says, but for its constant."""
    return (stepping(**at) - 91) * MIB


def test_arena_simulated_predictions():
    law, held = arena_law(stepping, Arena(simulated=(lambda at: 0.0, simulated)))
    assert law.simulated and words(law) == ["", "batch x sequence"]
    for point in held:
        assert law.predict(point.at).bytes == pytest.approx(point.bytes, rel=0.003)
    assert in_interval(law, held) == 1
    widths = [said.high_bytes / said.bytes - 1 for said in law.predict_all([point.at for point in held])]
    assert max(widths) < 0.08


def test_interval_holds_minority_heap():
    def whole(at):
        return 15 * at["batch"] * MIB

    def cut(at):
        return whole(at) + min(8 * at["batch"], 61) * MIB

    noise = (MIB / 8, 0.001)
    points = [Point({"batch": batch}, 305 * MIB + (cut if batch == 7 else whole)({"batch": batch})) for batch in (1, 4, 5, 6, 7, 8)]
    law = laws.law(points, noise=noise, arena=Arena(simulated=(cut, whole)))
    for batch in (3, 10, 16):
        said = law.predict({"batch": batch})
        assert said.bytes == pytest.approx(305 * MIB + whole(said.at), rel=0.003)
        assert said.high_bytes > 305 * MIB + cut(said.at)
    alone = laws.law([point for point in points if point.at["batch"] != 7], noise=noise, arena=Arena(simulated=(cut, whole)))
    assert alone.predict({"batch": 10}).high_bytes < 305 * MIB + cut({"batch": 10})


@pytest.mark.parametrize("chance", [5, -40])
def test_simulation_ignores_chance_outlier(chance):
    points = measured(stepping, [{"batch": batch, "sequence": 64} for batch in (1, 5, 9, 14, 23, 32)])
    points[2] = replace(points[2], bytes=points[2].bytes + chance * MIB)
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=Arena(simulated=(simulated,)))
    (truth,) = measured(stepping, [{"batch": 50, "sequence": 200}])
    assert law.simulated and law.predict(truth.at).bytes == pytest.approx(truth.bytes, rel=0.003)


@pytest.mark.parametrize("wrong", [lambda at: simulated({**at, "batch": 4}), lambda at: 0.0, lambda at: 3 * simulated(at)])
def test_simulation_far_from_points_ignored(wrong):
    law, held = arena_law(stepping, Arena(simulated=(wrong,)))
    assert not law.simulated and in_interval(law, held) >= 0.9


def test_simulation_below_dead_run_ignored():
    points = measured(stepping, [{"batch": batch, "sequence": 64} for batch in (1, 5, 9, 14, 23)])
    died = Point({"batch": 32, "sequence": 64}, 400 * MIB, least=True)
    answers = [laws.law(every, noise=QUIET, arena=Arena(simulated=(simulated,))) for every in (points, [*points, died])]
    assert [law.simulated for law in answers] == [True, False]


def test_dimension_divided_rounds_up():
    def cells(context, slots):
        return 70 + 0.007 * 256 * slots * -(-context // (256 * slots))

    candidates = grid(context=design.values_of(512, 8192, most=12), slots=(1, 2, 3, 4))
    points = measured(cells, design.first_places({"context": (512, 8192), "slots": (1, 4)}))
    while len(points) < 6:
        points += measured(cells, [design.next_place([points], candidates, noise=QUIET)])
    law = laws.law(points, noise=QUIET)
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
        laws.law(points, noise=noise, arena=arena) for arena in (Arena(doubles=False, simulated=(lambda at: worst(**at) * MIB,)), None)
    )
    assert law.simulated and not without.simulated and words(law) == words(without) == ["", "batch x sequence"]
    for truth in measured(lambda **at: 88 + worst(**at), BEYOND):
        assert law.predict(truth.at).bytes == pytest.approx(truth.bytes, rel=0.001)
        assert without.predict(truth.at).bytes < 0.95 * truth.bytes


def test_simulation_yields_to_simple_law():
    points = measured(
        lambda batch, sequence: 88 + batch * sequence / 50,
        [*grid(batch=(1, 8), sequence=(16, 256)), *grid(batch=(5,), sequence=(100, 200))],
    )
    law = laws.law(points, noise=(MIB / 8, 0.001), arena=Arena(doubles=False, simulated=(lambda at: worst(**at) * MIB,)))
    assert not law.simulated and words(law) == ["", "batch x sequence"]


def test_session_weights_beside_arenas():
    def truth(batch, sequence, sessions):
        kept = 0.2 * worst(batch, sequence) * (sessions > 1) * (sequence < 150)
        return 49 + 14.3 * sessions + worst(batch, sequence, sessions) + kept

    places = [*grid(batch=(1, 8), sequence=(16, 256), sessions=(1, 3)), *grid(batch=(8,), sequence=(100,), sessions=(1, 2, 3))]
    arena = Arena(doubles=False, simulated=(lambda at: worst(**at) * MIB,), beside=(Term((("sessions", 1),)),))
    law = laws.law(measured(truth, places), noise=(MIB / 8, 0.001), arena=arena)
    held = measured(truth, grid(batch=(3, 15), sequence=(90, 300, 500), sessions=(1, 2, 5)))
    assert law.simulated and in_interval(law, held) >= 0.9
    for point in held:
        assert law.predict(point.at).bytes == pytest.approx(point.bytes, rel=0.04)


def test_stepped_law_raised_by_dead_run():
    points = measured(lambda a: 90 + a * (7 if math.log2(a) % 1 < 0.4 else 5), line("a", 1, 8, 11, 13, 15))
    free, bound = (laws.law(every, noise=QUIET, arena=Arena()) for every in (points, [*points, Point({"a": 16}, 400 * MIB, least=True)]))
    assert free.steps and bound is not None
    assert bound.predict({"a": 16}).high_bytes > free.predict({"a": 16}).high_bytes


def test_growth_of_sums_plan_terms():
    both = laws.law(measured(lambda a: 2 * a + 0.01 * a * a, line("a", 1, 64, 20, 40, 7, 50)), noise=QUIET)
    (a, each), (square, of_square) = laws.growth_of(both)
    assert (a.words, square.words) == ("a", "a²")
    assert each / of_square == pytest.approx(200, rel=0.01)
    assert laws.growth_of(None) == ()
    assert (
        laws.growth_of(laws.law(measured(lambda a: 80 + 2 * 2 ** (int(a) - 1).bit_length(), line("a", 1, 64, 26, 7, 40, 15)), noise=QUIET))
        == ()
    )
