"""The planner of a fleet: who gets what, when a comparison begins again, and how near the plan comes to the ideal, by simulation."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.simulated_fleet import simulate

from memprof.fleet.message import FACTS, PROTOCOL
from memprof.fleet.planner import Assignment, Offer, Planner, Request
from memprof.fleet.scheduler import as_before, places_among


def labels(**words: str) -> frozenset[tuple[str, str]]:
    return frozenset(words.items())


def planner(requests, offers) -> Planner:
    made = Planner()
    made.want(requests)
    for offer in offers:
        made.offer(offer)
    return made


def test_planner_longest_comparison_first():
    plan = planner([Request("short", 1), Request("long", 9), Request("longer", 10)], [Offer("p"), Offer("q")])

    assert plan.next() == [Assignment("longer", "p", 1), Assignment("long", "q", 1)]
    assert plan.next() == []
    plan.began("q", 0)
    plan.finished("q", 5)
    assert plan.next() == [Assignment("short", "q", 1)]
    assert (plan.waiting, plan.running) == (0, 2)


def test_labels_choose_place():
    pi = labels(kind="pi5", arch="aarch64")
    plan = planner(
        [Request("any", 9), Request("for pi", 1, labels(kind="pi5")), Request("nowhere", 1, labels(kind="phone"))],
        [Offer("pc", "x", labels(kind="pc")), Offer("board", "y", pi)],
    )

    # What needs the board most gets it: nothing else can serve that.
    assert {(a.key, a.place) for a in plan.next()} == {("any", "pc"), ("for pi", "board")}
    assert plan.unmatched() == [labels(kind="phone")]


def test_busy_place_asked_last():
    plan = planner([Request("a", 2), Request("b", 1)], [Offer("busy", busy=True), Offer("idle")])

    assert plan.next() == [Assignment("a", "idle", 1), Assignment("b", "busy", 1)]


def test_lost_comparison_restarts_elsewhere():
    plan = planner([Request("a", 1)], [Offer("p"), Offer("q")])
    assert plan.next() == [Assignment("a", "p", 1)]

    assert plan.withdraw("p") == Request("a", 1)
    assert plan.failed("p")
    plan.offer(Offer("p"))

    assert plan.next() == [Assignment("a", "q", 2)]


def test_failed_comparison_returns_to_only_place():
    plan = planner([Request("a", 1)], [Offer("p")])
    plan.next()
    assert plan.failed("p")
    assert plan.next() == [Assignment("a", "p", 2)]


def test_comparison_given_up_after_three_failures():
    plan = planner([Request("poison", 1)], [Offer("p"), Offer("q"), Offer("r"), Offer("s")])

    places = []
    for _ in range(3):
        (assignment,) = plan.next()
        places.append(assignment.place)
        again = plan.failed(assignment.place)

    assert not again
    assert sorted(places) == sorted(set(places))
    assert (plan.given_up, plan.failures("poison"), plan.next()) == (["poison"], places, [])


def test_unrepeatable_failure_given_up():
    plan = planner([Request("a", 1)], [Offer("p"), Offer("q")])
    plan.next()

    assert not plan.failed("p", again=False)
    assert plan.given_up == ["a"]
    assert not plan.benched


def test_failing_place_benched():
    plan = planner([Request(f"c{n}", 1) for n in range(9)], [Offer("bad"), *(Offer(f"p{n}") for n in range(2))])
    done = []
    while plan.waiting or plan.running:
        for assignment in plan.next():
            plan.began(assignment.place, 0)
            if assignment.place == "bad":
                plan.failed("bad")
            else:
                plan.finished(assignment.place, 1)
                done.append(assignment.key)

    assert plan.benched == {"bad"}
    assert plan.given_up == []
    assert Counter(done) == Counter(f"c{n}" for n in range(9))


def test_vanishing_place_not_benched():
    plan = planner([Request(f"c{n}", 1) for n in range(5)], [Offer("p")])
    for _ in range(5):
        plan.next()
        plan.withdraw("p")
        plan.failed("p")
        plan.offer(Offer("p"))

    assert not plan.benched
    assert len(plan.next()) == 1


def test_spread_parts_on_different_places():
    parts = [Request(f"part{n}", 1, apart="model") for n in range(3)]
    plan = planner(parts, [Offer("p")])
    assert len(plan.next()) == 1
    for name in ("q", "r"):
        plan.offer(Offer(name))
    plan.finished("p", 1)

    assert {a.place for a in plan.next()} == {"q", "r"}


def test_spread_continues_without_vanished_place():
    plan = planner([Request(f"part{n}", 1, apart="model") for n in range(2)], [Offer("p"), Offer("q")])
    assert {a.place for a in plan.next()} == {"p", "q"}
    plan.withdraw("q")
    plan.failed("q")
    plan.finished("p", 1)

    assert [a.place for a in plan.next()] == ["p"]


def test_comparison_sent_ahead_to_ending_place():
    plan = planner([Request(key, cost) for key, cost in (("a", 5), ("b", 4), ("c", 3), ("d", 2), ("e", 1))], [Offer("p"), Offer("q")])
    assert [a.key for a in plan.next()] == ["a", "b"]

    plan.ending("p")
    assert plan.next() == [Assignment("c", "p", 1)]
    assert (plan.at("p"), plan.running, plan.waiting) == ("a", 2, 2)
    plan.ending("p")
    assert plan.next() == [], "one is sent ahead at most"
    plan.finished("p", 1)
    assert (plan.at("p"), plan.next()) == ("c", [])
    plan.ending("q")
    assert plan.next() == [Assignment("d", "q", 1)]
    plan.ending("p")
    assert plan.next() == [Assignment("e", "p", 1)], "each place has one ahead"


def test_last_comparison_never_sent_ahead():
    plan = planner([Request(key, 1) for key in "abc"], [Offer("p"), Offer("q")])
    plan.next()
    plan.ending("p")

    assert plan.next() == []
    plan.finished("q", 1)
    assert plan.next() == [Assignment("c", "q", 1)]


def test_comparison_ahead_survives_vanished_place():
    plan = planner([Request(key, 1) for key in "ab"], [Offer("p")])
    plan.next()
    plan.ending("p")
    assert plan.next() == [Assignment("b", "p", 1)]

    assert plan.withdraw("p") == Request("a", 1)
    assert plan.failed("p")
    assert (plan.waiting, plan.failures("a"), plan.failures("b")) == (2, ["p"], [])
    plan.offer(Offer("p"))
    assert plan.next()[0].place == "p"


def test_comparison_ahead_fails_alone():
    plan = planner([Request(key, 1) for key in "ab"], [Offer("p")])
    plan.next()
    plan.ending("p")
    plan.next()

    assert plan.failed("p", ahead=True)
    assert (plan.at("p"), plan.failures("b"), plan.next()) == ("a", ["p"], [])
    plan.finished("p", 1)
    assert plan.next() == [Assignment("b", "p", 2)]


def test_slow_place_leaves_long_comparison():
    plan = planner([Request(f"learn{n}", 1) for n in range(2)], [Offer("fast", "f"), Offer("slow", "s")])
    for assignment in plan.next():
        plan.began(assignment.place, 0)
    plan.finished("fast", 1)
    plan.finished("slow", 10)
    plan.want([Request("long", 100)])

    assert plan.next() == [Assignment("long", "fast", plan.attempts["long"])]


def test_desks_take_turns():
    # Each desk has a planner; the scheduler serves the tasks of a place in the order in which they came.
    desks = [planner([Request(f"{desk}{n}", 1) for n in range(3)], [Offer("p")]) for desk in "AB"]
    line = [(desk, assignment) for desk in desks for assignment in desk.next()]
    served = []
    while line:
        desk, assignment = line.pop(0)
        served.append(assignment.key[0])
        desk.began("p", 0)
        desk.finished("p", 1)
        line += [(desk, following) for following in desk.next()]

    assert "".join(served) == "ABABAB"


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 5.0]), st.booleans())
def test_comparisons_done_once_despite_failures(seed, failing, bound):
    result = simulate(400, 12, kinds=3, failing_an_hour=failing, bound=bound, seed=seed, repair_s=600)

    # At five failures an hour some comparisons fail three times. None is done twice, and none is forgotten.
    assert set(result.done.values()) <= {1}
    assert len(result.done) + result.given_up == 40


@pytest.mark.parametrize("bound", [False, True])
def test_plan_near_ideal(bound):
    result = simulate(20_000, 200, bound=bound)

    assert len(result.done) == 2_000
    assert result.makespan_s <= 1.2 * result.ideal_s


def test_place_name_stays_stable():
    names: dict[str, str] = {}

    def seen(*addresses: str) -> dict[str, str]:
        facts = {"place": "here", "host": "vm", "machine": "vm", "labels": {}, "protocol": PROTOCOL, "version": "1"}
        there, sentences = places_among({address: {FACTS: facts} for address in addresses})
        assert sentences == []
        named = as_before(there, names)
        assert len({place.name for place in named}) == len(addresses)
        return {place.address: place.name for place in named}

    assert seen("tcp://a") == {"tcp://a": "here of vm"}
    # A renamed place is a place that went, for the planner: what it measures would begin again.
    assert seen("tcp://b", "tcp://a") == {"tcp://a": "here of vm", "tcp://b": "here of vm at tcp://b"}
    assert seen("tcp://a") == {"tcp://a": "here of vm"}
    assert seen("tcp://b") == {"tcp://b": "here of vm at tcp://b"}
    assert seen("tcp://c", "tcp://b") == {"tcp://b": "here of vm at tcp://b", "tcp://c": "here of vm at tcp://c"}
