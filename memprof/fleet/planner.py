"""Which comparison goes to which machine, and when: decided from what the desk is told, with no clock, no process and no network.

A desk asks one planner. It tells the planner which places are there, what began, ended and failed and when, and starts what the planner says. The
times may be a simulation's.

Every place measures one comparison at a time. Two desks take turns at a place, a comparison at a time, because the scheduler serves a place's tasks
in the order in which they came. A place whose comparison measures its last Run is sent the next one ahead, which begins without a way over
scheduler and desk; but only while there are enough for all places, so that none waits behind another that could have begun elsewhere.

Long comparisons go first, because what is begun last decides the end (Graham 1969). A place that is much slower than others leaves a comparison
that a faster place would end earlier, although it must be waited for: a comparison of cost c goes to a place of speed s only where
1.5 c/s <= T + c/f, with T the time that all waiting work takes and f the speed of the fastest place. The speed of a kind of place is learned from
what it ended; beside other kinds it begins with comparisons that are rather short.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

Labels = frozenset[tuple[str, str]]

_CARE = 1.5  # an estimated length may be that much too short
_NEARLY = 0.6  # of the fastest place's speed: such a place takes what comes
MOST_FAILURES = 3  # of a comparison, after which it is given up, and of a place in a row, after which it gets nothing more


@dataclass(frozen=True)
class Offer:
    """A place that is there. kind: places of one kind are as fast as one another. busy: another desk uses it now."""

    place: str
    kind: str = ""
    labels: Labels = frozenset()
    busy: bool = False


@dataclass(frozen=True)
class Request:
    """A comparison. cost: its estimated length in any unit. needs: labels that its place must have. apart: it shares no place with others of
    this word, if there are enough places."""

    key: str
    cost: float
    needs: Labels = frozenset()
    apart: str = ""


@dataclass(frozen=True)
class Assignment:
    """A comparison to be started at a place; its attempts count from 1."""

    key: str
    place: str
    attempt: int


@dataclass
class _Group:
    """The requests that need the same labels. waiting: (cost, number, request), in ascending order. places: those that are there and fit,
    counted by kind. ahead: how many of these were sent a comparison ahead."""

    needs: Labels
    waiting: list[tuple[float, int, Request]] = field(default_factory=list)
    cost: float = 0.0
    places: Counter[str] = field(default_factory=Counter)
    ahead: int = 0


@dataclass
class _Speed:
    """The cost of what a kind of place has ended, and the time it took."""

    cost: float = 0.0
    time_s: float = 0.0


@dataclass
class Planner:
    """See the module's text. Times are in seconds, of any clock that does not go back.

    attempts: how often each comparison was begun, by key; those of earlier desks are put there before. given_up: the comparisons that failed too
    often. benched: the places that get nothing more.
    """

    attempts: Counter[str] = field(default_factory=Counter)
    given_up: list[str] = field(default_factory=list)
    benched: set[str] = field(default_factory=set)
    _offers: dict[str, Offer] = field(default_factory=dict)
    _groups: dict[Labels, _Group] = field(default_factory=dict)
    _fitting: dict[str, list[_Group]] = field(default_factory=dict)  # by place
    _assigned: dict[str, tuple[Request, float | None]] = field(default_factory=dict)  # by place, with the time of its begin
    _ending: dict[str, None] = field(default_factory=dict)  # the places whose comparison measures its last Run and that have none ahead
    _ahead: dict[str, tuple[Request, list[_Group]]] = field(
        default_factory=dict
    )  # by place, beside the one in _assigned, and who counts it
    _free: dict[str, None] = field(
        default_factory=dict
    )  # the places without a comparison of this desk, in the order in which they became so
    _speeds: dict[str, _Speed] = field(default_factory=dict)
    _failed: dict[str, list[str]] = field(default_factory=dict)  # the places where a comparison failed
    _in_a_row: Counter[str] = field(default_factory=Counter)
    _apart: dict[str, set[str]] = field(default_factory=dict)
    _number: int = 0

    # -- what the desk tells

    def want(self, requests: Iterable[Request]) -> None:
        """Take comparisons."""
        for request in requests:
            self._wait(request)

    def offer(self, offer: Offer) -> None:
        """A place is there, or is there as something else now."""
        if offer.place in self.benched or self._offers.get(offer.place) == offer:
            return
        self._forget(offer.place)
        self._offers[offer.place] = offer
        self._fitting[offer.place] = [group for group in self._groups.values() if group.needs <= offer.labels]
        for group in self._fitting[offer.place]:
            group.places[offer.kind] += 1
        self._release(offer.place)

    def withdraw(self, place: str) -> Request | None:
        """A place is gone. The comparison that was there, if any: the desk tells `failed` of it. One that was sent ahead waits again."""
        self._forget(place)
        ahead = self._taken_ahead(place)
        if ahead is not None:
            self._apart.get(ahead.apart, set()).discard(place)
            self._wait(ahead)
        assigned = self._assigned.get(place)
        return assigned[0] if assigned else None

    def began(self, place: str, now_s: float) -> None:
        """The comparison assigned to a place begins there now."""
        request, _ = self._assigned[place]
        self._assigned[place] = request, now_s

    def ending(self, place: str) -> None:
        """The comparison of a place measures its last Run."""
        if place in self._assigned and place in self._offers and place not in self._ahead:
            self._ending[place] = None

    def finished(self, place: str, now_s: float) -> None:
        """The comparison of a place ended, with all its Runs."""
        request, began = self._assigned.pop(place)
        self._in_a_row[place] = 0
        if began is not None and place in self._offers:
            speed = self._speeds.setdefault(self._offers[place].kind, _Speed())
            speed.cost += request.cost
            speed.time_s += max(now_s - began, 1e-9)
        self._follow(place)

    def failed(self, place: str, again: bool = True, ahead: bool = False) -> bool:
        """The comparison of a place failed there, or was lost with it. True if it waits again, whole; False if it is given up.

        again: whether another place could do better. A place that fails at everything is benched; a place that is gone is not to blame.
        ahead: whether it is the one that was sent ahead.
        """
        request = self._taken_ahead(place) if ahead else self._assigned.pop(place)[0]
        assert request is not None
        failed = self._failed.setdefault(request.key, [])
        failed.append(place)
        self._apart.get(request.apart, set()).discard(place)
        if again and place in self._offers:
            self._in_a_row[place] += 1
        if self._in_a_row[place] >= MOST_FAILURES:
            self.benched.add(place)
            self._forget(place)
        if not ahead:
            self._follow(place)
        if not again or len(failed) >= MOST_FAILURES:
            self.given_up.append(request.key)
            return False
        self._wait(request)
        return True

    # -- what the desk asks

    @property
    def waiting(self) -> int:
        """How many comparisons have no place."""
        return sum(len(group.waiting) for group in self._groups.values())

    @property
    def running(self) -> int:
        """How many comparisons are at a place, without those that were sent ahead."""
        return len(self._assigned)

    def at(self, place: str) -> str | None:
        """The comparison at a place, by its key."""
        return self._assigned[place][0].key if place in self._assigned else None

    def failures(self, key: str) -> list[str]:
        """The places where a comparison failed."""
        return self._failed.get(key, [])

    def unmatched(self) -> list[Labels]:
        """The labels that waiting comparisons need and no place has."""
        return [group.needs for group in self._groups.values() if group.waiting and not group.places.total()]

    def next(self) -> list[Assignment]:
        """What to start now. Each assignment is taken as made. A place that another desk uses is asked last."""
        speeds = {kind: speed.cost / speed.time_s for kind, speed in self._speeds.items() if speed.cost > 0}
        assignments: list[Assignment] = []
        refused: set[tuple[str, tuple[int, ...]]] = set()  # places that are alike in all that counts need one answer
        for place in sorted(self._free, key=lambda place: self._offers[place].busy):
            offer = self._offers[place]
            alike = offer.kind, tuple(id(group) for group in self._fitting[place] if group.waiting)
            if not alike[1] or alike in refused:
                continue
            request, special = self._choice(offer, speeds)
            if request is None:
                if not special:
                    refused.add(alike)
                continue
            del self._free[place]
            self._assigned[place] = request, None
            assignments.append(self._assign(request, place))
        for place in list(self._ending) if any(map(_has_for_all, self._groups.values())) else ():
            if not any(map(_has_for_all, self._fitting[place])):
                continue
            request, _ = self._choice(self._offers[place], speeds, _has_for_all)
            if request is not None:
                del self._ending[place]
                self._ahead[place] = request, [*self._fitting[place]]
                for group in self._fitting[place]:
                    group.ahead += 1
                assignments.append(self._assign(request, place))
        return assignments

    # -- inside

    def _assign(self, request: Request, place: str) -> Assignment:
        self.attempts[request.key] += 1
        if request.apart:
            self._apart.setdefault(request.apart, set()).add(place)
        return Assignment(request.key, place, self.attempts[request.key])

    def _wait(self, request: Request) -> None:
        group = self._groups.get(request.needs)
        if group is None:
            group = self._groups[request.needs] = _Group(request.needs)
            for place, offer in self._offers.items():
                if request.needs <= offer.labels:
                    group.places[offer.kind] += 1
                    self._fitting[place].append(group)
        self._number += 1
        insort(group.waiting, (request.cost, -self._number, request))  # of equal costs the first comes first
        group.cost += request.cost

    def _forget(self, place: str) -> None:
        offer = self._offers.pop(place, None)
        self._free.pop(place, None)
        self._ending.pop(place, None)
        for group in self._fitting.pop(place, ()):
            assert offer is not None
            group.places[offer.kind] -= 1

    def _follow(self, place: str) -> None:
        """The comparison that was sent ahead to a place is there now. Without one the place is free."""
        self._ending.pop(place, None)
        ahead = self._taken_ahead(place)
        if ahead is not None:
            self._assigned[place] = ahead, None
        self._release(place)

    def _taken_ahead(self, place: str) -> Request | None:
        """What was sent ahead to a place, which is so no more."""
        request, groups = self._ahead.pop(place, (None, ()))
        for group in groups:
            group.ahead -= 1
        return request

    def _release(self, place: str) -> None:
        if place in self._offers and place not in self._assigned:
            self._free[place] = None

    def _choice(
        self, offer: Offer, speeds: Mapping[str, float], fits: Callable[[_Group], bool] = lambda group: bool(group.waiting)
    ) -> tuple[Request | None, bool]:
        """The comparison that a place should begin now, which waits no more; None if it should rather wait. Whether that is so for this place
        alone, and not for others like it. fits: whether it may be of a group."""
        special = False
        waiting = list(filter(fits, self._fitting[offer.place]))
        for group in sorted(waiting, key=lambda group: _time_left(group, speeds), reverse=True):
            for index in _candidates(group, offer.kind, speeds):
                _, _, request = group.waiting[index]
                if not self._elsewhere(group, request, offer.place):
                    del group.waiting[index]
                    group.cost = group.cost - request.cost if group.waiting else 0.0
                    return request, False
                special = True
        return None, special

    def _elsewhere(self, group: _Group, request: Request, place: str) -> bool:
        """Whether another place is to be preferred for a comparison: it failed here, or another that it keeps apart from was here."""
        avoided = {*self._failed.get(request.key, ()), *self._apart.get(request.apart, ())}
        return place in avoided and any(group.needs <= offer.labels and other not in avoided for other, offer in self._offers.items())


def _has_for_all(group: _Group) -> bool:
    """Whether a group has a comparison for each of its places that was sent none ahead."""
    return len(group.waiting) >= max(1, group.places.total() - group.ahead)


def _time_left(group: _Group, speeds: Mapping[str, float]) -> float:
    """The time that all waiting comparisons of a group take on all its places; in units of cost while no speed is known."""
    usual = sum(speeds.values()) / len(speeds) if speeds else 1.0
    together = sum(count * speeds.get(kind, usual) for kind, count in group.places.items())
    return group.cost / together if together else 0.0


def _candidates(group: _Group, kind: str, speeds: Mapping[str, float]) -> range:
    """The places of a group's waiting comparisons, which stand in ascending order, that suit a kind of place, the best first."""
    count = len(group.waiting)
    own = speeds.get(kind)
    kinds = [other for other, number in group.places.items() if number > 0]
    if own is None and len(kinds) > 1:
        return range(count // 3, count)  # a long one could be there for hours after all others; the shortest fill the gaps at the end
    fastest = max((speeds[other] for other in kinds if other in speeds), default=None)
    if own is None or fastest is None or own >= _NEARLY * fastest:
        return range(count - 1, -1, -1)
    longest = _time_left(group, speeds) / (_CARE / own - 1 / fastest)
    return range(bisect_right(group.waiting, longest, key=lambda entry: entry[0]) - 1, -1, -1)
