"""Small random graphs and offset problems, and their answers by brute force, from the definitions alone."""

from __future__ import annotations

import random

from memprof.plan import Buffer, Problem


def graph(rng: random.Random, operators: int, inplace: bool) -> Problem:
    """Any graph: given tensors or none, several outputs, unread and kept ones, sizes of 0, operators in no useful order."""

    def size() -> int:
        return rng.choice((0, 1, 2, 5, 9, rng.randint(0, 20)))

    sizes = [size() for _ in range(rng.randint(0, 2))]
    given = frozenset(range(len(sizes)))
    reads, writes, pairs = [], [], []
    for _ in range(operators):
        inputs = tuple(rng.sample(range(len(sizes)), min(len(sizes), rng.choice((0, 1, 1, 2, 2, 3)))))
        outputs = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            outputs.append(len(sizes))
            sizes.append(sizes[rng.choice(inputs)] if inputs and rng.random() < 0.4 else size())
        alike = [(source, target) for source in inputs for target in outputs if sizes[source] == sizes[target]]
        reads.append(inputs)
        writes.append(tuple(outputs))
        pairs.append(rng.choice(alike) if inplace and alike and rng.random() < 0.7 else None)
    return _shuffled(rng, sizes, reads, writes, pairs, given)


def series_parallel_graph(rng: random.Random, operators: int, inplace: bool) -> Problem:
    """A graph whose precedence is series-parallel, with a tensor of its own for each edge."""
    edges: list[tuple[int, int]] = []

    def build(first: int, count: int) -> tuple[list[int], list[int]]:
        if count == 1:
            return [first], [first]
        many = rng.randint(1, count - 1)
        (begins, ends), (begins_2, ends_2) = build(first, many), build(first + many, count - many)
        if rng.random() < 0.5:
            return begins + begins_2, ends + ends_2
        edges.extend((a, b) for a in ends for b in begins_2)
        return begins, ends_2

    build(0, operators)
    sizes: list[int] = []
    given = set()
    reads: list[list[int]] = [[] for _ in range(operators)]
    writes: list[list[int]] = [[] for _ in range(operators)]

    def add(*places: list[int]) -> int:
        for place in places:
            place.append(len(sizes))
        sizes.append(rng.choice((0, 1, 2, 3, rng.randint(0, 9))))
        return len(sizes) - 1

    for a, b in edges:
        add(writes[a], reads[b])
    for op in range(operators):
        if rng.random() < 0.3:
            add(writes[op])
        if not reads[op] and rng.random() < 0.5:
            given.add(add(reads[op]))
    alike = [[(a, b) for a in reads[op] for b in writes[op] if sizes[a] == sizes[b]] for op in range(operators)]
    pairs = [rng.choice(some) if inplace and some else None for some in alike]
    return _shuffled(rng, sizes, reads, writes, pairs, frozenset(given))


def _shuffled(rng, sizes, reads, writes, pairs, given) -> Problem:
    order = list(range(len(reads)))
    rng.shuffle(order)
    kept = frozenset(tensor for tensor in range(len(sizes)) if rng.random() < 0.12)
    return Problem(
        tuple(sizes),
        tuple(tuple(reads[op]) for op in order),
        tuple(tuple(writes[op]) for op in order),
        given,
        kept,
        tuple(pairs[op] for op in order),
    )


def lowest_peak(problem: Problem) -> int:
    """The peak of the best of all orders, by going through the sets of operators that can have run."""
    stays = problem.kept | {tensor for tensor in problem.given if not problem.readers[tensor]}
    known: dict[frozenset[int], int] = {frozenset(range(problem.count)): 0}

    def alive(done: frozenset[int]) -> int:
        total = 0
        for tensor, size in enumerate(problem.sizes):
            there = tensor in problem.given or problem.writer[tensor] in done
            if there and (tensor in stays or not done.issuperset(problem.readers[tensor])):
                total += size
        return total

    def from_here(done: frozenset[int]) -> int:
        if done not in known:
            before = alive(done)
            peaks = []
            for op in range(problem.count):
                if op in done or not done.issuperset(problem.producers[op]):
                    continue
                memory = before + sum(problem.sizes[tensor] for tensor in problem.writes[op])
                if pair := problem.inplace[op]:
                    others = set(problem.readers[pair[0]]) - {op}
                    if problem.sizes[pair[0]] == problem.sizes[pair[1]] and pair[0] not in problem.kept and done.issuperset(others):
                        memory -= problem.sizes[pair[0]]
                peaks.append(max(memory, from_here(done | {op})))
            known[done] = min(peaks)
        return known[done]

    return max(from_here(frozenset()), sum(problem.sizes[tensor] for tensor in problem.given))


def buffers(rng: random.Random, count: int, steps: int) -> list[Buffer]:
    """Buffers with any lifetimes."""
    buffers = []
    for index in range(count):
        lower = rng.randint(0, steps - 1)
        buffers.append(Buffer(index, lower, rng.randint(lower + 1, steps), rng.choice((1, 2, 3, rng.randint(1, 12)))))
    return buffers


def dense_buffers(rng: random.Random) -> list[Buffer]:
    """Short-lived buffers put where there is room until hardly any is left: some of these do not fit into their own load."""
    steps, room = rng.randint(8, 16), rng.randint(5, 12)
    alive = [0] * steps
    buffers: list[Buffer] = []
    misses = 0
    while misses < 30:
        lower = rng.randint(0, steps - 1)
        upper, size = min(steps, lower + rng.randint(1, 6)), rng.randint(1, room // 2)
        if any(alive[step] + size > room for step in range(lower, upper)):
            misses += 1
            continue
        buffers.append(Buffer(len(buffers), lower, upper, size))
        for step in range(lower, upper):
            alive[step] += size
    return buffers


def smallest_arena(some: list[Buffer]) -> int:
    """The size of the best of all packings in which each buffer lies on the floor or on another one: one of those is the best of all."""
    best = sum(buffer.size for buffer in some)
    offsets: dict[int, int] = {}

    def place(low: int, top: int) -> None:
        nonlocal best
        if top >= best:
            return
        if len(offsets) == len(some):
            best = top
            return
        for index, buffer in enumerate(some):
            if index in offsets:
                continue
            below = (
                offset + some[other].size
                for other, offset in offsets.items()
                if buffer.lower < some[other].upper and some[other].lower < buffer.upper
            )
            offset = max(below, default=0)
            if offset >= low:
                offsets[index] = offset
                place(offset, max(top, offset + buffer.size))
                del offsets[index]

    place(0, 0)
    return best
