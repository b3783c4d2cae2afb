"""What a graph's weights need, and which of them the file holds twice."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError, os_reason
from ...files import sha256_of
from .graph import Constant, Graph, Span

# How often the whole of a file of weights may be read: in most models none lies over another.
_READ_AT_MOST = 4


@dataclass(frozen=True)
class Account:
    """How many weights of one sort there are and what they weigh."""

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Weights:
    """A model's weights by what becomes of them; each is in `stored`, and in as many of the others as it fits.

    shared: read by several operators, so that a runtime that keeps them apart (in two layouts, say) holds more than is stored. duplicated:
    copies beyond the first of what has the same type, shape and content. folded: read only by operators that a runtime computes once at load;
    results: what it holds in their stead. fused: read through a DequantizeLinear that is taken for a part of its reader. unused: read by
    nobody. held: what is left after folding.
    """

    stored: Account
    shared: Account
    duplicated: Account
    folded: Account
    results: Account
    fused: Account
    unused: Account
    held: Account


def account(graph: Graph) -> Weights:
    """What becomes of a graph's weights, those of its bodies included. Reads the content of those that could be alike."""
    graphs = list(_graphs(graph))
    folded = [one for each in graphs for one in each.folded]
    readers = Counter(number for each in graphs for operator in each.operators for number in operator.weights)
    folding = Counter(number for one in folded for number in one.weights)
    results = {number for one in folded if not one.fused for number in one.results}
    merged = {number for one in folded if one.fused for number in one.results}
    fused = {number for one in folded if one.fused for number in one.weights} - results
    stored = [number for number in range(len(graph.weights)) if number not in results and number not in merged]
    gone = {number for number in stored if folding[number] and not readers[number] and number not in fused}
    live = [number for number in sorted(results) if readers[number]]

    def weigh(numbers: Iterable[int]) -> Account:
        having = list(numbers)
        return Account(len(having), sum(graph.weights[number].bytes or 0 for number in having))

    return Weights(
        stored=weigh(stored),
        shared=weigh(number for number in stored if readers[number] + folding[number] > 1),
        duplicated=_duplicated([graph.weights[number] for number in stored]),
        folded=weigh(sorted(gone)),
        results=weigh(live),
        fused=weigh(sorted(fused)),
        unused=weigh(number for number in stored if not readers[number] and not folding[number] and number not in graph.weight_outputs),
        held=weigh([*(number for number in stored if number not in gone), *live]),
    )


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for operator in graph.operators:
        for body in operator.bodies:
            yield from _graphs(body.graph)


def _duplicated(weights: Sequence[Constant]) -> Account:
    """Further copies of what is there already, by type, shape and content; only what has a twin by type and shape is read at all."""
    alike: dict[tuple[str, tuple[int, ...], int], list[Constant]] = {}
    for weight in weights:
        if weight.content is not None and weight.bytes:
            stored = weight.content.bytes if isinstance(weight.content, Span) else len(weight.content)
            alike.setdefault((weight.type, weight.shape, stored), []).append(weight)
    count = total = 0
    _check_apart([weight for group in alike.values() if len(group) > 1 for weight in group])
    for group in alike.values():
        if len(group) < 2:
            continue
        spans = {weight.content: weight for weight in group}  # the same place is read once
        seen = {digest for weight in spans.values() if (digest := _digest(weight)) is not None}
        known = sum(_digest_known(weight) for weight in group)
        copies = known - len(seen)
        count += copies
        total += copies * (group[0].bytes or 0)
    return Account(count, total)


def _check_apart(weights: Sequence[Constant]) -> None:
    """Raises InputError where weights lie over one another so much that reading them would be reading their file many times."""
    spans = {weight.content for weight in weights if isinstance(weight.content, Span) and _within(weight.content)}
    wanted: Counter[Path] = Counter()
    for span in spans:
        wanted[span.path] += span.bytes
    for path, bytes in wanted.items():
        if bytes > _READ_AT_MOST * path.stat().st_size:
            raise InputError(f"{path}: the weights in it lie over one another, which no model's do")


def _digest_known(weight: Constant) -> bool:
    return not isinstance(weight.content, Span) or _within(weight.content)


def _within(span: Span) -> bool:
    try:
        return span.offset + span.bytes <= span.path.stat().st_size
    except OSError:
        return False


def _digest(weight: Constant) -> str | None:
    content = weight.content
    if not isinstance(content, Span):
        return hashlib.sha256(content or b"").hexdigest()
    if not _within(content):
        return None
    try:
        return sha256_of(content.path, offset=content.offset, length=content.bytes)[0]
    except OSError as error:
        raise InputError(f"{content.path}: {os_reason(error)}") from None
