"""The bytes of a graph's weights by what becomes of them, and the weights that the file holds twice."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from ...base.errors import InputError, os_reason
from ...base.files import sha256_of
from .graph import Constant, Graph, Span

# How often the whole of a file of weights may be read. In most models no weight lies over another.
_READ_AT_MOST = 4


class Account(Struct, frozen=True):
    """How many weights of a sort there are, and their bytes."""

    count: int = 0
    bytes: int = 0


class Weights(Struct, frozen=True):
    """A model's weights by what becomes of them. Each is in `stored`, and in as many of the others as it fits.

    shared: read by several operators, so that a runtime that keeps them apart (in two layouts, say) holds more than is stored. duplicated:
    copies beyond the first of weights of the same type, shape and content. folded: read only by operators that a runtime computes once at load;
    results: the tensors it holds in their stead. fused: read through a DequantizeLinear that is taken for a part of its reader. unused: read by
    no operator. held: the weights left after folding, with its results.
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
    """A graph's weights, those of its bodies included, by what becomes of them. Reads the content of weights that could be alike. Raises
    InputError where it cannot be read."""
    graphs = list(_graphs(graph))
    folded = [operator for part in graphs for operator in part.folded]
    readers = Counter(number for part in graphs for operator in part.operators for number in operator.weights)
    folding = Counter(number for operator in folded for number in operator.weights)
    results = {number for operator in folded if not operator.fused for number in operator.results}
    merged = {number for operator in folded if operator.fused for number in operator.results}
    fused = {number for operator in folded if operator.fused for number in operator.weights} - results
    stored = [number for number in range(len(graph.weights)) if number not in results and number not in merged]
    folded_away = {number for number in stored if folding[number] and not readers[number] and number not in fused}
    live = [number for number in sorted(results) if readers[number]]

    def weigh(numbers: Iterable[int]) -> Account:
        members = list(numbers)
        return Account(len(members), sum(graph.weights[number].bytes or 0 for number in members))

    return Weights(
        stored=weigh(stored),
        shared=weigh(number for number in stored if readers[number] + folding[number] > 1),
        duplicated=_duplicated([graph.weights[number] for number in stored]),
        folded=weigh(sorted(folded_away)),
        results=weigh(live),
        fused=weigh(sorted(fused)),
        unused=weigh(number for number in stored if not readers[number] and not folding[number] and number not in graph.weight_outputs),
        held=weigh([*(number for number in stored if number not in folded_away), *live]),
    )


def _graphs(graph: Graph) -> Iterator[Graph]:
    yield graph
    for operator in graph.operators:
        for body in operator.bodies:
            yield from _graphs(body.graph)


def _duplicated(weights: Sequence[Constant]) -> Account:
    """Copies beyond the first, by type, shape and content. Only weights that have a twin by type and shape are read."""
    alike: dict[tuple[str, tuple[int, ...], int], list[Constant]] = {}
    for weight in weights:
        if weight.content is not None and weight.bytes:
            stored = weight.content.bytes if isinstance(weight.content, Span) else len(weight.content)
            alike.setdefault((weight.type, weight.shape, stored), []).append(weight)
    count = total = 0
    groups = [group for group in alike.values() if len(group) > 1]
    _check_apart([weight for group in groups for weight in group])
    for group in groups:
        digests = {content: _digest(content) for content in {weight.content for weight in group}}  # the same place is read once
        known = [digest for weight in group if (digest := digests[weight.content]) is not None]
        copies = len(known) - len(set(known))
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


def _within(span: Span) -> bool:
    try:
        return span.offset + span.bytes <= span.path.stat().st_size
    except OSError:
        return False


def _digest(content: Span | bytes | None) -> str | None:
    """None where the file ends before."""
    if not isinstance(content, Span):
        return hashlib.sha256(content or b"").hexdigest()
    if not _within(content):
        return None
    try:
        return sha256_of(content.path, offset=content.offset, length=content.bytes)[0]
    except OSError as error:
        raise InputError(f"{content.path}: {os_reason(error)}") from None
