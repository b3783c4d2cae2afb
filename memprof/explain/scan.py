"""One pass over a process's memory that finds every place where a snippet of the weights lies (snippets.py chooses them)."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from . import filtering
from .filtering import Filter
from .hashing import Places, Table, Words, hashed, table
from .memory_map import PAGE, Memory, Pages


class Keys(NamedTuple):
    """What is looked for: the first eight bytes of the snippets, sorted, and the constant that the first four of each equal under the mask."""

    words: Words
    mask: int
    constant: int


class Hits(NamedTuple):
    """The result of a scan: addresses, and the snippet at each; the bytes read, and the time it took."""

    addresses: Words
    keys: Places
    bytes: int
    time_ns: int


def scan(sought: Keys, pid: int, pages: Pages, passing: Filter | None = None) -> Hits:
    """Look at every present page for every snippet, on two CPUs if there are two, because the child stands still meanwhile.

    passing: finds the words with that in common, None for the fastest way. Raises memory_map.ProcessEndError or memory_map.Unreadable.
    """
    begin_ns = time.monotonic_ns()
    workers = min(2, len(os.sched_getaffinity(0)))
    memories = [Memory(pid) for _ in range(workers)]
    if not len(sought.words):
        return Hits(np.zeros(0, np.uint64), np.zeros(0, np.int64), 0, 0)
    likely = table(sought.words)
    with ThreadPoolExecutor(workers) as pool:
        parts = pool.map(
            lambda pair: _scan_part(sought, likely, passing or filtering.ready(), *pair),
            zip(memories, _shares(*pages.ranges(), workers), strict=True),
        )
        address, key = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((key, address))
    address, key = address[order], key[order]
    distinct = np.ones(len(address), bool)  # a snippet in an overlap is seen twice
    distinct[1:] = (np.diff(address) != 0) | (np.diff(key) != 0)
    return Hits(address[distinct], key[distinct], sum(memory.bytes for memory in memories), time.monotonic_ns() - begin_ns)


def _scan_part(sought: Keys, likely: Table, passing: Filter, memory: Memory, part: tuple[Words, Words]) -> tuple[Words, Places]:
    """(addresses, snippets) of the words in these ranges that are snippets. likely: see hashing."""
    values, addresses = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for piece in memory.read(*part):
        words = piece.data[: len(piece.data) // 4 * 4].view(np.uint32)
        passed = passing(words[:-1], sought.mask, sought.constant)
        value = words[passed + 1].astype(np.uint64) << np.uint64(32) | words[passed]
        some = np.flatnonzero(likely[hashed(value)])
        if len(some):
            values.append(value[some])
            addresses.append(piece.address_of(passed[some] * 4))
    value, address = np.concatenate(values), np.concatenate(addresses)
    order = np.argsort(value)  # neighbours are looked up in neighbouring memory
    value, address = value[order], address[order]
    place = np.minimum(np.searchsorted(sought.words, value), len(sought.words) - 1)
    sure = sought.words[place] == value
    return address[sure], place[sure]


def _shares(starts: Words, ends: Words, workers: int) -> list[tuple[Words, Words]]:
    """Ranges in as many parts of about the same size. A range that would lie in two parts is cut at a page."""
    sums = np.concatenate(([0], np.cumsum((ends - starts).astype(np.int64))))
    shares = []
    for number in range(workers):
        low, high = (int(sums[-1]) * part // workers // PAGE * PAGE for part in (number, number + 1))
        if number == workers - 1:
            high = int(sums[-1])
        first, last = int(np.searchsorted(sums, low, side="right")) - 1, int(np.searchsorted(sums, high, side="left"))
        some_starts, some_ends = starts[first:last].copy(), ends[first:last].copy()
        if len(some_starts):
            some_starts[0] += np.uint64(low - int(sums[first]))
            some_ends[-1] -= np.uint64(int(sums[last]) - high)
        shares.append((some_starts, some_ends))
    return shares
