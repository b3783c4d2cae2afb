"""Lower bounds on the peak of every order, by minimum cuts.

When an operator runs, the operators done are some downset that holds its ancestors and neither it nor its descendants. Memory alive after a
downset is a cut of the hypergraph of tensors, so the least of it over all these downsets is a maximum flow (the closure construction
of Picard, "Maximal closure of a graph and applications to combinatorial problems", Management Science 1976; minimum topological cuts as
bounds on peak memory: Kayaaslan, Lambert, Marchal and Uçar, "Scheduling series-parallel task graphs to minimize peak memory", TCS 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .bits import Bits, members
from .problem import Problem


def lower_bound(problem: Problem, graph: Bits, least_seen: Mapping[int, int], enough: int, expired: Callable[[], bool]) -> int:
    """The best of the bounds of single operators, for bytes of the whole graph.

    least_seen: for each operator the least memory, in bytes, that its step had in some order. Its bound cannot be above that, so operators are
    tried from the largest down until no further one can help. enough: a peak that is known to suffice; a bound that reaches it ends the work.
    """
    best = max(graph.given, graph.kept)
    for op in sorted(least_seen, key=lambda op: (-least_seen[op], op)):
        if least_seen[op] <= best or best >= enough or expired():
            break
        best = max(best, least_memory(problem, graph, op))
    return best


def least_memory(problem: Problem, graph: Bits, op: int) -> int:
    """The least memory, in bytes, that the step of one operator can have in any order: the tensors alive after the best downset before it,
    and those it writes. An input that it may overwrite only counts while another reader of that input is still to come."""
    done, later = graph.above[op], graph.below[op] | 1 << op
    nodes = {other: index + 2 for index, other in enumerate(members(graph.all & ~done & ~later))}
    network = _Network(2 + len(nodes), sum(problem.sizes) + 1)
    for other, node in nodes.items():
        for source in members(graph.before[other] & ~done):
            network.link(node, nodes[source])
    memory = graph.written[op]
    for tensor, size in enumerate(problem.sizes):
        writer = problem.writer[tensor]
        if not size or (writer is None and tensor not in problem.given) or (writer is not None and later >> writer & 1):
            continue
        start = _SOURCE if writer is None or done >> writer & 1 else nodes[writer]
        readers = problem.readers[tensor]
        if tensor in problem.kept or (writer is None and not readers):
            ends = {_SINK}
        else:
            others = (other for other in readers if not (other == op and problem.overwrites[op] == tensor) and not done >> other & 1)
            ends = {_SINK if later >> other & 1 else nodes[other] for other in others}
        if start == _SOURCE and _SINK in ends:
            memory += size
        elif _SINK in ends:
            network.link(start, _SINK, size)
        elif ends:
            middle = network.add()
            network.link(start, middle, size)
            for end in sorted(ends):
                network.link(middle, end)
    return memory + network.flow()


_SOURCE, _SINK = 0, 1


class _Network:
    """Maximum flow by Dinic's algorithm (Soviet Mathematics Doklady 1970), with capacities of any size."""

    def __init__(self, nodes: int, endless: int) -> None:
        self._endless = endless
        self._links: list[list[int]] = [[] for _ in range(nodes)]
        self._ends: list[int] = []
        self._room: list[int] = []

    def add(self) -> int:
        """A new node."""
        self._links.append([])
        return len(self._links) - 1

    def link(self, start: int, end: int, room: int | None = None) -> None:
        """An edge of this capacity; without a capacity, no cut can afford the edge."""
        for a, b, capacity in ((start, end, self._endless if room is None else room), (end, start, 0)):
            self._links[a].append(len(self._ends))
            self._ends.append(b)
            self._room.append(capacity)

    def flow(self) -> int:
        """The value of the maximum flow from source to sink."""
        total = 0
        while levels := self._levels():
            following = [0] * len(self._links)
            while pushed := self._push(levels, following):
                total += pushed
        return total

    def _levels(self) -> list[int] | None:
        levels = [-1] * len(self._links)
        levels[_SOURCE] = 0
        queue = [_SOURCE]
        for node in queue:  # grows while it is walked
            for link in self._links[node]:
                end = self._ends[link]
                if self._room[link] and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    queue.append(end)
        return levels if levels[_SINK] >= 0 else None

    def _push(self, levels: list[int], following: list[int]) -> int:
        """One augmenting path along the levels; 0 where there is none left."""
        path: list[int] = []
        node = _SOURCE
        while node != _SINK:
            links = self._links[node]
            while following[node] < len(links):
                link = links[following[node]]
                if self._room[link] and levels[self._ends[link]] == levels[node] + 1:
                    break
                following[node] += 1
            if following[node] < len(links):
                path.append(links[following[node]])
                node = self._ends[path[-1]]
            elif path:
                node = self._ends[path.pop() ^ 1]
                following[node] += 1
            else:
                return 0
        pushed = min(self._room[link] for link in path)
        for link in path:
            self._room[link] -= pushed
            self._room[link ^ 1] += pushed
        return pushed
