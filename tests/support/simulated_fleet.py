"""A fleet by simulation: the planner of the fleet with a clock in place of Dask's scheduler, and machines that fail and come back."""

from __future__ import annotations

import heapq
import random
import time
from dataclasses import dataclass, field

from memprof.fleet.planner import Offer, Planner, Request

HOUR = 3600.0


@dataclass
class Simulated:
    """makespan_s and ideal_s: simulated time; ideal: all work on all machines without a gap. planning_s: CPU time of the planner, which is real.

    done: how often each comparison ended well. begun: (comparison, place) of each attempt. lost: how many attempts were lost with their machine.
    given_up: how many comparisons failed too often.
    """

    makespan_s: float = 0.0
    ideal_s: float = 0.0
    planning_s: float = 0.0
    done: dict[str, int] = field(default_factory=dict)
    begun: list[tuple[str, str]] = field(default_factory=list)
    lost: int = 0
    given_up: int = 0


def simulate(
    jobs: int,
    machines: int,
    kinds: int = 12,
    jobs_each: int = 10,
    failing_an_hour: float = 0.01,
    bound: bool = False,
    seed: int = 0,
    repair_s: float = HOUR,
) -> Simulated:
    """Comparisons of `jobs_each` Jobs, whose lengths vary and are known by estimate only, on kinds of machines of which the fastest is four times
    as fast as the slowest. bound: each comparison needs one kind of machine."""
    dice = random.Random(seed)
    speeds = [0.5 * 4 ** (number / max(1, kinds - 1)) for number in range(kinds)]
    kind_of = {f"m{number}": number % kinds for number in range(machines)}
    offers = {name: Offer(name, f"k{kind}", frozenset({("kind", f"k{kind}")})) for name, kind in kind_of.items()}
    requests, true = [], {}
    for number in range(jobs // jobs_each):
        cost = 600 * dice.lognormvariate(0, 0.4)
        needs = frozenset({("kind", f"k{number % kinds}")}) if bound else frozenset()
        requests.append(Request(f"c{number}", cost, needs))
        true[f"c{number}"] = cost * dice.lognormvariate(0, 0.15)
    planner, result = Planner(), Simulated()
    if bound:
        work = [0.0] * kinds
        for request in requests:
            work[int(dict(request.needs)["kind"][1:])] += true[request.key]
        counts = [sum(kind == number for kind in kind_of.values()) for number in range(kinds)]
        result.ideal_s = max(amount / count / speed for amount, count, speed in zip(work, counts, speeds, strict=True))
    else:
        result.ideal_s = sum(true.values()) / sum(speeds[kind] for kind in kind_of.values())

    events: list[tuple[float, int, str, str]] = []
    running: dict[str, tuple[str, int]] = {}
    ahead: dict[str, str] = {}  # by place, what begins there when the other ends
    count = 0

    def later(at: float, event: str, place: str) -> int:
        nonlocal count
        count += 1
        heapq.heappush(events, (at, count, event, place))
        return count

    def planned(now: float) -> None:
        began = time.process_time()
        assignments = planner.next()
        result.planning_s += time.process_time() - began
        for assignment in assignments:
            if assignment.place in running:
                assert assignment.place not in ahead
                ahead[assignment.place] = assignment.key
            else:
                begin(now, assignment.key, assignment.place)

    def begin(now: float, key: str, place: str) -> None:
        told(planner.began, place, now)
        length = true[key] / speeds[kind_of[place]]
        result.begun.append((key, place))
        running[place] = key, later(now + length, "end", place)
        later(now + length * (1 - 1 / jobs_each), "last job", place)

    def told(call, *words):
        began = time.process_time()
        answer = call(*words)
        result.planning_s += time.process_time() - began
        return answer

    told(planner.want, requests)
    for offer in offers.values():
        told(planner.offer, offer)
    if failing_an_hour:
        for name in kind_of:
            later(dice.expovariate(failing_an_hour / HOUR), "fail", name)
    planned(0.0)
    while len(result.done) + len(planner.given_up) < len(requests):
        now, number, event, place = heapq.heappop(events)
        if event == "end":
            if running.get(place, ("", 0))[1] != number:
                continue  # its machine was lost meanwhile
            key, _ = running.pop(place)
            result.done[key] = result.done.get(key, 0) + 1
            result.makespan_s = now
            told(planner.finished, place, now)
            if place in ahead:
                begin(now, ahead.pop(place), place)
        elif event == "last job":
            if running.get(place, ("", 0))[1] != number - 1:  # its end was put down right before
                continue
            told(planner.ending, place)
        elif event == "fail":
            if told(planner.withdraw, place) is not None:
                result.lost += 1
                running.pop(place, None)
                ahead.pop(place, None)  # waits again, by itself
                told(planner.failed, place)
            later(now + repair_s, "back", place)
        else:
            told(planner.offer, offers[place])
            later(now + dice.expovariate(failing_an_hour / HOUR), "fail", place)
        planned(now)
    result.given_up = len(planner.given_up)
    return result
