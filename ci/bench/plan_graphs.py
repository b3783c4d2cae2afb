"""Graphs for the benchmark of `memprof plan`: networks with irregular wiring, written from the cells in their papers, and random ones.

They hold only the things on which memory depends: shapes of activations in float32, one image, no weights. Batch normalisation is
taken as folded into its convolution, as every converter for inference does, so that operators are counted as a runtime would.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memprof.plan import Buffer, Problem

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Map:
    """A feature map: its tensor, channels, height (and width)."""

    tensor: int
    channels: int
    side: int


@dataclass
class Net:
    """A graph that grows operator by operator."""

    sizes: list[int] = field(default_factory=list)
    reads: list[tuple[int, ...]] = field(default_factory=list)
    writes: list[tuple[int, ...]] = field(default_factory=list)

    def tensor(self, channels: int, side: int) -> Map:
        """A new tensor."""
        self.sizes.append(FLOAT_BYTES * channels * side * side)
        return Map(len(self.sizes) - 1, channels, side)

    def op(self, inputs: Sequence[Map], channels: int | None = None, side: int | None = None) -> Map:
        """A new operator; its output is like its first input unless told otherwise."""
        output = self.tensor(channels or inputs[0].channels, side or inputs[0].side)
        self.reads.append(tuple(source.tensor for source in inputs))
        self.writes.append((output.tensor,))
        return output

    def conv(self, x: Map, channels: int, stride: int = 1) -> Map:
        """A convolution or a pooling with padding: sides are divided by the stride, rounded up."""
        return self.op([x], channels, -(-x.side // stride))

    def pool(self, x: Map, stride: int = 1) -> Map:
        """Pooling, the channels as they are."""
        return self.conv(x, x.channels, stride)

    def concat(self, maps: Sequence[Map]) -> Map:
        """Channels side by side."""
        return self.op(maps, sum(feature_map.channels for feature_map in maps))

    def separable(self, x: Map, channels: int, stride: int = 1) -> Map:
        """ReLU, depthwise, pointwise, twice over, as NASNet and DARTS have it; the stride in the first."""
        for step in (stride, 1):
            x = self.conv(self.pool(self.op([x]), step), channels)
        return x

    def classify(self, x: Map) -> Map:
        """Global pooling and a dense layer."""
        return self.op([self.op([x], x.channels, 1)], 1000, 1)

    def problem(self, first: Map, last: Map) -> Problem:
        """The graph as a problem of planning."""
        return Problem(tuple(self.sizes), tuple(self.reads), tuple(self.writes), frozenset({first.tensor}), frozenset({last.tensor}))


# Genotypes of DARTS (Liu, Simonyan and Yang, "DARTS: differentiable architecture search", ICLR 2019, figures 4 and 5: second order, CIFAR-10):
# two (operation, state) for each of four nodes; states 0 and 1 are the two cells before.
_DARTS_NORMAL = (("sep", 0), ("sep", 1), ("sep", 0), ("sep", 1), ("sep", 1), ("skip", 0), ("skip", 0), ("dil", 2))
_DARTS_REDUCE = (("max", 0), ("max", 1), ("skip", 2), ("max", 1), ("max", 0), ("skip", 2), ("skip", 2), ("max", 1))


def darts(cells: int, channels: int, side: int) -> Problem:
    """DARTS's network: `cells` cells, reductions at one and two thirds. side 32: CIFAR's stem of one convolution; else ImageNet's of three."""
    net = Net()
    first = net.tensor(3, side)
    if side == 32:
        previous = before = net.conv(first, 3 * channels)
    else:
        before = net.conv(net.op([net.conv(first, channels // 2, 2)]), channels, 2)
        previous = net.conv(net.op([before]), channels, 2)
    reduced = side != 32
    for cell in range(cells):
        reduce = cell in (cells // 3, 2 * cells // 3)
        channels *= 2 if reduce else 1
        # The older of the two inputs is of the size before a reduction: halved by DARTS's factorized reduction.
        states = [
            _halve(net, before, channels) if reduced else net.conv(net.op([before]), channels),
            net.conv(net.op([previous]), channels),
        ]
        genotype = _DARTS_REDUCE if reduce else _DARTS_NORMAL
        for node in range(4):
            states.append(net.op([_darts_edge(net, *edge, states, reduce) for edge in genotype[2 * node : 2 * node + 2]]))
        before, previous, reduced = previous, net.concat(states[2:]), reduce
    return net.problem(first, net.classify(previous))


def _darts_edge(net: Net, name: str, source: int, states: Sequence[Map], reduce: bool) -> Map:
    x = states[source]
    stride = 2 if reduce and source < 2 else 1
    if name == "sep":
        return net.separable(x, x.channels, stride)
    if name == "dil":
        return net.conv(net.pool(net.op([x]), stride), x.channels)
    if name == "max":
        return net.pool(x, stride)
    return x if stride == 1 else _halve(net, x, x.channels)


def _halve(net: Net, x: Map, channels: int) -> Map:
    active = net.op([x])
    return net.concat([net.conv(active, channels // 2, 2), net.conv(active, channels - channels // 2, 2)])


def nasnet(repeats: int, filters: int, side: int, stem: int) -> Problem:
    """NASNet-A (Zoph et al., "Learning transferable architectures for scalable image recognition", CVPR 2018, figure 4 and its appendix):
    a stem, two reduction cells, then three times `repeats` normal cells with a reduction cell between. Mobile: 4, 44, 224, 32."""
    net = Net()
    first = net.tensor(3, side)
    x = net.op([first], stem, (side - 1) // 2)
    before, now = x, _nasnet_reduction(net, x, x, filters // 4)
    before, now = now, _nasnet_reduction(net, now, before, filters // 2)
    for stage in range(3):
        if stage:
            before, now = now, _nasnet_reduction(net, now, before, filters << stage)
        for _ in range(repeats):
            before, now = now, _nasnet_normal(net, now, before, filters << stage)
    return net.problem(first, net.classify(net.op([now])))


def _nasnet_fit(net: Net, h: Map, p: Map, filters: int) -> tuple[Map, Map]:
    if p.side != h.side:
        active = net.op([p])
        halves = [net.conv(net.op([active], active.channels, h.side), filters // 2) for _ in range(2)]
        p = net.concat(halves)
    else:
        p = net.conv(net.op([p]), filters)
    return net.conv(net.op([h]), filters), p


def _nasnet_normal(net: Net, h: Map, p: Map, filters: int) -> Map:
    h, p = _nasnet_fit(net, h, p, filters)

    def sep(x: Map) -> Map:
        return net.separable(x, filters)

    blocks = [
        net.op([sep(h), h]),
        net.op([sep(p), sep(h)]),
        net.op([net.pool(h), p]),
        net.op([net.pool(p), net.pool(p)]),
        net.op([sep(p), sep(p)]),
    ]
    return net.concat([p, *blocks])


def _nasnet_reduction(net: Net, h: Map, p: Map, filters: int) -> Map:
    h, p = _nasnet_fit(net, h, p, filters)

    def sep(x: Map, stride: int = 2) -> Map:
        return net.separable(x, filters, stride)

    first = net.op([sep(h), sep(p)])
    second = net.op([net.pool(h, 2), sep(p)])
    third = net.op([net.pool(h, 2), sep(p)])
    fourth = net.op([net.pool(first), second])
    fifth = net.op([sep(first, 1), net.pool(h, 2)])
    return net.concat([second, third, fourth, fifth])


def randwire(seed: int, kind: str, nodes: int = 32, channels: int = 78, side: int = 224) -> Problem:
    """RandWire's small regime (Xie et al., "Exploring randomly wired neural networks for image recognition", ICCV 2019, table 1): a stage of
    nodes / 2 and three of `nodes`. kind: ws(4, 0.75), er(0.2) or ba(5), the paper's best of each. A node sums its inputs, then ReLU,
    depthwise and pointwise; results that no node reads are averaged."""
    rng = random.Random(f"randwire {kind} {nodes} {seed}")
    net = Net()
    first = net.tensor(3, side)
    x = net.conv(first, channels // 2, 2)
    for count, width in ((nodes // 2, channels), (nodes, channels), (nodes, 2 * channels), (nodes, 4 * channels)):
        x = _random_stage(net, x, width, count, _EDGES[kind](rng, count))
    return net.problem(first, net.classify(net.conv(net.op([x]), 1280)))


def _random_stage(net: Net, x: Map, channels: int, count: int, edges: set[tuple[int, int]]) -> Map:
    outputs: list[Map] = []
    for node in range(count):
        sources = [outputs[a] for a, b in sorted(edges) if b == node]
        stride = 1 if sources else 2
        total = sources[0] if len(sources) == 1 else net.op(sources) if sources else x
        outputs.append(net.conv(net.pool(net.op([total]), stride), channels))
    return net.op([outputs[node] for node in range(count) if not any(a == node for a, _ in edges)])


def _watts_strogatz(rng: random.Random, count: int) -> set[tuple[int, int]]:
    neighbours, rewire = 4, 0.75
    edges = {tuple(sorted((node, (node + step) % count))) for step in range(1, neighbours // 2 + 1) for node in range(count)}
    for step in range(1, neighbours // 2 + 1):
        for node in range(count):
            edge = tuple(sorted((node, (node + step) % count)))
            free = [other for other in range(count) if other != node and tuple(sorted((node, other))) not in edges]
            if rng.random() < rewire and free and edge in edges:
                edges.remove(edge)
                edges.add(tuple(sorted((node, rng.choice(free)))))
    return {(a, b) for a, b in edges}


def _erdos_renyi(rng: random.Random, count: int) -> set[tuple[int, int]]:
    return {(a, b) for b in range(count) for a in range(b) if rng.random() < 0.2}


def _barabasi_albert(rng: random.Random, count: int) -> set[tuple[int, int]]:
    links = 5
    edges: set[tuple[int, int]] = set()
    ends = list(range(links))
    for node in range(links, count):
        chosen: set[int] = set()
        while len(chosen) < links:
            chosen.add(rng.choice(ends))
        edges |= {(other, node) for other in chosen}
        ends += [*sorted(chosen), *[node] * links]
    return edges


_EDGES: dict[str, Callable[[random.Random, int], set[tuple[int, int]]]] = {
    "ws": _watts_strogatz,
    "er": _erdos_renyi,
    "ba": _barabasi_albert,
}


def windowed(seed: int, nodes: int, window: int) -> Problem:
    """A random graph: each operator reads one to three of the `window` results before its own; sizes from 1 to 100; unread results are kept."""
    rng = random.Random(f"windowed {nodes} {window} {seed}")
    sizes, reads = [rng.randint(1, 100)], []
    for node in range(nodes):
        recent = range(max(1, node + 1 - window), node + 1)
        reads.append(tuple(sorted(rng.sample(recent, min(len(recent), rng.choice((1, 1, 2, 2, 3)))))) or (0,))
        sizes.append(rng.randint(1, 100))
    read = {tensor for tensors in reads for tensor in tensors}
    writes = tuple((node + 1,) for node in range(nodes))
    return Problem(tuple(sizes), tuple(reads), writes, frozenset({0}), frozenset(range(nodes + 1)) - read)


def wired() -> dict[str, Problem]:
    """The irregularly wired networks of the benchmark by name."""
    return {
        "darts, imagenet, 14 cells": darts(14, 48, 224),
        "darts, cifar-10, 20 cells": darts(20, 36, 32),
        "nasnet-a mobile": nasnet(4, 44, 224, 32),
        "nasnet-a 6 @ 4032": nasnet(6, 168, 331, 96),
        **{f"randwire {kind}, seed {seed}": randwire(seed, kind) for kind in ("ws", "er", "ba") for seed in (1, 2)},
        "randwire ws, 60 nodes": randwire(1, "ws", 60),
    }


def cut_rectangle(seed: int, count: int, grain: int = 1, dropped: float = 0.0, steps: int = 200, capacity: int = 1 << 20) -> list[Buffer]:
    """Buffers that fill a rectangle of `steps` by `capacity` bytes: it is cut again and again, in time or in memory, the largest of three
    pieces each time. So they fit exactly into their own load. grain: memory is cut at multiples of it; dropped: the share then taken out."""
    rng = random.Random(f"rectangle {count} {seed} {grain} {dropped}")
    pieces = [(0, steps, 0, capacity)]
    while len(pieces) < count:
        sample = rng.sample(range(len(pieces)), min(3, len(pieces)))
        chosen = max(sample, key=lambda index: (pieces[index][1] - pieces[index][0]) * (pieces[index][3] - pieces[index][2]))
        lower, upper, low, high = pieces[chosen]
        if rng.random() < 0.5:
            if upper - lower > 1:
                at = rng.randint(lower + 1, upper - 1)
                pieces[chosen : chosen + 1] = [(lower, at, low, high), (at, upper, low, high)]
        elif high - low > grain:
            at = low + grain * rng.randint(1, (high - low) // grain - 1)
            pieces[chosen : chosen + 1] = [(lower, upper, low, at), (lower, upper, at, high)]
    rng.shuffle(pieces)
    kept = [piece for piece in pieces if rng.random() >= dropped]
    return [Buffer(index, lower, upper, high - low) for index, (lower, upper, low, high) in enumerate(kept)]
