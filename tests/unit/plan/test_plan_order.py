"""What an order of operators costs, and the best one: against hand-made cases, against brute force, and bound by bound."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.brute_force import graph, lowest_peak, series_parallel_graph
from support.examples import examples, tried

from memprof.base.errors import InputError
from memprof.plan import Problem, aliases, best_order, keeping, lifetimes, load, peak, steps
from memprof.plan.orders import heuristics
from memprof.plan.orders.bits import backwards, bits, forwards
from memprof.plan.orders.bounds import least_memory
from memprof.plan.orders.problem import kept_at
from memprof.plan.orders.search import Walk
from memprof.plan.orders.spgraph import series_parallel
from memprof.plan.orders.split import pieces

# nntrainer issue 1126: L M N P Add, tensors T1 to T6.
L, M, N, P, ADD = range(5)
FOUNDING = Problem(
    sizes=(100, 100, 25, 100, 100, 0),
    reads=((0,), (1,), (2,), (0,), (3, 4)),
    writes=((1,), (2,), (3,), (4,), (5,)),
    given=frozenset({0}),
    kept=frozenset({5}),
    names=("L", "M", "N", "P", "Add"),
)


def test_founding_case_step_by_step():
    assert [step.peak_bytes for step in steps(FOUNDING, (L, M, N, P, ADD))] == [200, 225, 225, 300, 300]
    assert [step.peak_bytes for step in steps(FOUNDING, (L, M, P, N, ADD))] == [200, 225, 225, 225, 225]
    assert list(keeping(FOUNDING, (L, M, N, P, ADD))) == [(), (0,), (0,), (3,), ()]

    third = steps(FOUNDING, (L, M, N, P, ADD))[2]
    assert (third.op, third.in_use, third.in_use_bytes, third.keep_bytes, third.memory_bytes) == (N, (2, 3), 125, 100, 225)


def test_founding_case_solved():
    best = best_order(FOUNDING)

    assert (best.peak_bytes, best.lower_bound_bytes, best.proven) == (225, 225, True)
    assert peak(FOUNDING, best.order) == 225


def test_in_place_only_at_last_use():
    chain = Problem((10, 10, 10), ((0,), (1,)), ((1,), (2,)), frozenset({0}), frozenset({2}), ((0, 1), (1, 2)))
    assert peak(chain, (0, 1)) == 10
    assert aliases(chain, (0, 1)) == (0, 0, 0)
    assert [(buffer.lower, buffer.upper, buffer.size) for buffer in lifetimes(chain, (0, 1))] == [(0, 2, 10)]

    # Two readers: only the one that runs last may overwrite.
    fork = Problem((10, 10, 10), ((0,), (0,)), ((1,), (2,)), frozenset({0}), frozenset({1, 2}), ((0, 1), (0, 2)))
    assert [step.memory_bytes for step in steps(fork, (0, 1))] == [20, 20]
    assert aliases(fork, (0, 1)) == (0, 1, 0)
    assert aliases(fork, (1, 0)) == (0, 0, 2)


def test_in_place_without_effect():
    kept = Problem((10, 10), ((0,),), ((1,),), frozenset({0}), frozenset({0, 1}), ((0, 1),))
    smaller = Problem((10, 5), ((0,),), ((1,),), frozenset({0}), frozenset({1}), ((0, 1),))

    assert peak(kept, (0,)) == 20
    assert peak(smaller, (0,)) == 15


def test_tensors_without_reader():
    """A given tensor without a reader stays to the end; a written one goes with its step."""
    problem = Problem((7, 1, 5, 1), ((1,), (3,)), ((2, 3), ()), frozenset({0, 1}))

    assert [step.memory_bytes for step in steps(problem, (0, 1))] == [14, 8]
    assert {(buffer.id, buffer.lower, buffer.upper) for buffer in lifetimes(problem, (0, 1))} == {
        (0, 0, 2),
        (1, 0, 1),
        (2, 0, 1),
        (3, 0, 2),
    }


def test_graph_without_operators():
    best = best_order(Problem((3, 4), (), (), frozenset({0, 1})))

    assert (best.order, best.peak_bytes, best.proven) == ((), 7, True)


@pytest.mark.parametrize(
    ("reads", "writes", "message"),
    [
        (((0,), (1,)), ((1,), (0,)), "cycle"),
        (((0,),), ((0,),), "cycle"),
        (((0,), ()), ((1,), (2,)), "nothing writes it"),
        (((), ()), ((0,), (0,)), "has a source already"),
    ],
)
def test_graph_refusals(reads, writes, message):
    with pytest.raises(InputError, match=message):
        Problem((1, 1, 1), reads, writes)


def test_order_refusals():
    with pytest.raises(ValueError, match="stands before"):
        steps(FOUNDING, (ADD, L, M, N, P))
    with pytest.raises(ValueError, match="once"):
        peak(FOUNDING, (L, L, M, N, P))


@pytest.mark.parametrize("inplace", [False, True])
def test_best_order_equals_brute_force(inplace):
    for seed in tried(range(400)):
        rng = random.Random(f"order {inplace} {seed}")
        problem = graph(rng, rng.randint(0, 8), inplace)
        best = best_order(problem)

        assert best.proven, seed
        assert best.peak_bytes == best.lower_bound_bytes == lowest_peak(problem), seed
        assert peak(problem, best.order) == best.peak_bytes, seed


@pytest.mark.parametrize("inplace", [False, True])
def test_search_from_either_end_alone(inplace):
    """Without heuristics and bounds to stand on, the search alone has to find and prove the same."""
    for seed in tried(range(700)):
        rng = random.Random(f"walk {inplace} {seed}")
        problem = graph(rng, rng.randint(1, 9), inplace)
        expected, masks = lowest_peak(problem), bits(problem)
        for forward in (True, False):
            walk = Walk(masks, forward, max(masks.given, masks.kept), 1 << 40)
            walk.advance(1 << 20)

            assert walk.level == expected, (seed, forward)
            assert walk.order is not None and peak(problem, walk.order) == expected, (seed, forward)


@pytest.mark.parametrize("inplace", [False, True])
def test_minimum_cut_exact_for_operator(inplace):
    """The bound of an operator is the least memory of its step in any order, which is more than being no higher than the best peak."""
    for seed in tried(range(150)):
        rng = random.Random(f"cut {inplace} {seed}")
        problem = graph(rng, rng.randint(1, 6), inplace)
        masks = bits(problem)
        least: dict[int, int] = {}
        for order in _orders(problem):
            for step in steps(problem, order):
                least[step.op] = min(step.memory_bytes, least.get(step.op, step.memory_bytes))

        assert {op: least_memory(problem, masks, op) for op in range(problem.count)} == least, seed


def _orders(problem, done=()):
    if len(done) == problem.count:
        yield done
    for op in range(problem.count):
        if op not in done and set(problem.producers[op]) <= set(done):
            yield from _orders(problem, (*done, op))


@pytest.mark.parametrize("inplace", [False, True])
def test_series_parallel_graph_solved(inplace):
    for seed in tried(range(350)):
        rng = random.Random(f"sp {inplace} {seed}")
        problem = series_parallel_graph(rng, rng.randint(1, 8), inplace)
        order = series_parallel(problem, bits(problem))

        assert order is not None, seed
        assert peak(problem, order) == lowest_peak(problem), seed


def test_series_parallel_rejects_other_graphs():
    assert series_parallel(FOUNDING, bits(FOUNDING)) is None  # L and P share T1
    n_shaped = Problem((1,) * 5, ((), (), (0, 1), (2,)), ((0, 2), (1,), (3,), (4,)), kept=frozenset({3, 4}))
    assert series_parallel(n_shaped, bits(n_shaped)) is None


def test_series_parallel_deep_graph():
    """A comb: each tooth is added to what the last one gave. Depth must not matter."""
    teeth = 600
    reads = [()] + [(0,) if tooth == 0 else (2 * tooth, 2 * tooth - 1) for tooth in range(teeth)]
    comb = Problem(
        sizes=tuple(5 + index % 7 for index in range(2 * teeth + 1)),
        reads=tuple(read for tooth in range(teeth) for read in ((), reads[tooth + 1])),
        writes=tuple(written for tooth in range(teeth) for written in ((2 * tooth,), (2 * tooth + 1,))),
        kept=frozenset({2 * teeth - 1}),
    )
    order = series_parallel(comb, bits(comb))

    assert order is not None
    assert peak(comb, order) <= 3 * 11


@given(st.integers(0, 10**9), st.booleans())
@examples(150)
def test_heuristics_give_valid_orders(seed, inplace):
    rng = random.Random(seed)
    problem = graph(rng, rng.randint(1, 14), inplace)
    masks = bits(problem)
    model = problem.model_order
    orders = [model, heuristics.depth_first(problem), heuristics.greedy(masks), heuristics.greedy_backwards(masks)]
    for order in orders:
        peak(problem, order)  # raises where it is none
    for forward in (True, False):
        beam = heuristics.beam(masks, 4, forward, peak(problem, model), bool)
        assert beam.order is None or peak(problem, beam.order) < peak(problem, model)


@given(st.integers(0, 10**9), st.booleans())
@examples(150)
def test_greedy_choice_is_best_ready(seed, inplace):
    rng = random.Random(seed)
    graph_bits = bits(graph(rng, rng.randint(1, 14), inplace))
    there = chosen_step_by_step(graph_bits.before, forwards(graph_bits), graph_bits.given)
    back = chosen_step_by_step(graph_bits.after, backwards(graph_bits), graph_bits.kept)
    assert heuristics.greedy(graph_bits) == there
    assert heuristics.greedy_backwards(graph_bits) == back[::-1]


def chosen_step_by_step(before, cost, alive):
    done, order = 0, []
    while len(order) < len(before):
        ready = [op for op in range(len(before)) if not done >> op & 1 and not before[op] & ~done]
        alive, _, op = min((*reversed(cost(done, alive, op)), op) for op in ready)
        done |= 1 << op
        order.append(op)
    return tuple(order)


def star(points):
    """A tensor that all operators but the first read, one of which has the graph's result."""
    return Problem(
        sizes=(4,) * (points + 2),
        reads=((0,), *((1,) for _ in range(points))),
        writes=tuple((tensor,) for tensor in range(1, points + 2)),
        given=frozenset({0}),
        kept=frozenset({2}),
    )


@pytest.mark.parametrize("rule", [heuristics.greedy, heuristics.greedy_backwards])
def test_star_not_reweighed_each_step(rule, monkeypatch):
    weighed = 0
    for name, made in (("forwards", forwards), ("backwards", backwards)):

        def counting(graph_bits, made=made):
            cost = made(graph_bits)

            def counted(*state):
                nonlocal weighed
                weighed += 1
                return cost(*state)

            return counted

        monkeypatch.setattr(heuristics, name, counting)
    assert rule(bits(star(2000))) is not None
    assert weighed < 5 * 2000


def test_star_result_comes_last():
    best = best_order(star(2000), 60)
    assert (best.peak_bytes, best.proven, best.order[-1]) == (8, True, 1)


def test_proof_by_single_order():
    chain = Problem(sizes=(1, 9, 1), reads=((0,), (1,)), writes=((1,), (2,)), given=frozenset({0}), kept=frozenset({2}))
    assert best_order(chain).how.endswith("; proven by there being no other order")

    # Two operators that could change places, behind one that needs most: the piece of that one has a single order, the graph has two.
    fork = Problem(
        sizes=(90, 9, 1, 1),
        reads=((0,), (1,), (1,)),
        writes=((1,), (2,), (3,)),
        given=frozenset({0}),
        kept=frozenset({2, 3}),
    )
    best = best_order(fork)
    assert best.proven
    assert "no other order" not in best.how


@given(st.integers(0, 10**9), st.booleans())
@examples(150)
def test_buffers_match_steps(seed, inplace):
    """What is alive at each step is the same, counted by step or by buffer."""
    rng = random.Random(seed)
    problem = graph(rng, rng.randint(1, 10), inplace)
    order = problem.model_order
    buffers = lifetimes(problem, order)
    for position, (step, keep) in enumerate(zip(steps(problem, order), keeping(problem, order), strict=True)):
        assert step.memory_bytes == sum(buffer.size for buffer in buffers if buffer.lower <= position < buffer.upper)
        assert step.keep_bytes == sum(problem.sizes[tensor] for tensor in keep)
        assert kept_at(problem, order, position) == keep
    assert load(buffers) == peak(problem, order)


@given(st.integers(0, 10**9), st.booleans())
@examples(100)
def test_pieces_cost_same_as_whole(seed, inplace):
    rng = random.Random(seed)
    problem = graph(rng, rng.randint(1, 12), inplace)
    parts = pieces(problem, bits(problem))
    orders = [part.problem.model_order for part in parts]
    whole = tuple(part.ops[op] for part, order in zip(parts, orders, strict=True) for op in order)

    assert peak(problem, whole) == max(peak(part.problem, order) for part, order in zip(parts, orders, strict=True))


def test_best_order_is_deterministic():
    problem = graph(random.Random(5), 40, True)

    assert len({best_order(problem) for _ in range(3)}) == 1


def test_best_order_without_time_is_interval():
    rng = random.Random(3)
    count = 120
    reads = tuple(tuple(sorted(rng.sample(range(max(0, op - 40), op), min(op, 2)))) for op in range(count))
    problem = Problem(tuple(rng.randint(1, 100) for _ in range(count)), reads, tuple((op,) for op in range(count)))
    best = best_order(problem, time_limit_s=0)

    assert not best.proven
    assert best.lower_bound_bytes < best.peak_bytes == peak(problem, best.order)
    assert "optimal" not in best.how
