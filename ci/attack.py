"""Tries all cases of an attack and counts: `python ci/attack.py kills|faults|hostile|trees|buffers [--only WORD]... [--repeats N]`.

The cases and what is right of them stand in tests/support/attacks/, beside the tests that try some of each kind. Exits 1 where a case was not right.
The sums of all cases go into docs/evidence/, those of trees from 20 repeats on. Each repeat of buffers is another tree.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# bench is a package of scripts beside this one; it is never installed. The cases are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from support.attacks import buffers, faults, hostile, sandbox, trees
from support.attacks import kills as kill_cases

from bench import docs
from bench.table import aligned

_FOR_DOCS = 20  # so many repeats of each tree are a campaign, whose counts the manual keeps
_AT_ONCE = 20  # repeats of one memprof, each with a recorder of its own
_COUNTS = ("tried", "right", "narrow")
_BESIDE = (0, 2)  # busy loops
Chosen = Callable[[str], bool]
Attacked = tuple[list[tuple[str, ...]], str, bool]  # a table, its note, and whether all was right


def main() -> int:
    """Attack, print the counts, judge."""
    attacks = {"kills": _kills, "faults": _faults, "hostile": _hostile, "trees": _trees, "buffers": _buffers}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attack", choices=list(attacks))
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="only cases whose name has one of these words")
    parser.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="of each kill and each tree, or made-up trees with buffers  [default: %(default)s]",
    )
    words = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts this in the background has it ignored, by memprof too
    hits: list[str] = []

    def chosen(name: str) -> bool:
        hits.extend([name] if not words.only or any(word in name for word in words.only) else [])
        return name in hits

    rows, note, good = attacks[words.attack](chosen, words.repeats)
    if not hits:
        parser.error(f"no case of {words.attack} has one of these words")
    print(aligned(rows))
    if not words.only and (words.attack not in ("trees", "buffers") or words.repeats >= _FOR_DOCS):
        docs.write(f"attack-{words.attack}", totals(rows), [f"`python ci/attack.py {words.attack} --repeats {words.repeats}`{note}."])
    return 0 if good else 1


def totals(rows: Sequence[Sequence[str]]) -> str:
    """The sums of a table's columns of counts, in words: what the manual keeps of it."""
    cases = [row for row in rows[1:] if row[0] != "all"]
    return ", ".join(f"{sum(int(row[at]) for row in cases):,} {name}" for at, name in enumerate(rows[0]) if name in _COUNTS) + "."


def _said(name: str, wrongs: Sequence[str]) -> bool:
    """Say on standard error how a case ended; whether it was right."""
    print(f"{name}: {'; '.join(wrongs) or 'right'}", file=sys.stderr, flush=True)
    return not wrongs


def _counted(rights: Iterable[bool]) -> tuple[str, str]:
    """How many were tried, and how many of them were right."""
    counts = list(rights)
    return str(len(counts)), str(sum(counts))


def _kills(chosen: Chosen, repeats: int) -> Attacked:
    counts: dict[str, list[bool]] = {}
    for role in kill_cases.ROLES:
        with ThreadPoolExecutor(1 if role in kill_cases.GROUPING else os.cpu_count()) as pool:
            kills = [kill for kill in kill_cases.kills_of(role) if chosen(str(kill)) for _ in range(repeats)]
            for kill, wrongs in zip(kills, pool.map(lambda kill: list(kill_cases.tried(kill)), kills), strict=True):
                counts.setdefault(role, []).append(_said(str(kill), wrongs))
    every = [right for rights in counts.values() for right in rights]
    rows = [("command", "tried", "right"), *((role, *_counted(rights)) for role, rights in counts.items()), ("all", *_counted(every))]
    return rows, ": so many of each kill in each phase", all(every)


def _faults(chosen: Chosen, repeats: int) -> Attacked:
    counts: dict[str, list[bool]] = {}

    def at(door: str) -> list[tuple[str, list[str]]]:
        names = [name for name in faults.FAULTS if chosen(f"{name}, {door}")]
        return list(faults.tried_at(template, door, names)) if names else []

    with sandbox.place() as template, ThreadPoolExecutor(os.cpu_count()) as pool:
        faults.inputs(template)
        for door, results in zip(faults.DOORS, pool.map(at, faults.DOORS), strict=True):
            for name, wrongs in results:
                counts.setdefault(name, []).append(_said(f"{name}, {door}", wrongs))
    every = [right for rights in counts.values() for right in rights]
    rows = [("fault", "tried", "right"), *((name, *_counted(rights)) for name, rights in counts.items()), ("all", *_counted(every))]
    return rows, f": each fault at {len(faults.DOORS)} doors: {', '.join(faults.DOORS)}", all(every)


def _hostile(chosen: Chosen, repeats: int) -> Attacked:
    results: dict[str, list[hostile.Tried]] = {}
    with sandbox.place() as place:
        for case in hostile.prepared(place):
            if chosen(str(case)):
                result = hostile.tried(place, case)
                results.setdefault(case.kind, []).append(result)
                _said(f"{case}: {result.seconds:.2f} s, {result.bytes >> 20} MiB", result.wrongs)
    every = [result for group in results.values() for result in group]

    def row(name: str, group: Sequence[hostile.Tried]) -> tuple[str, ...]:
        seconds, size = max((result.seconds for result in group), default=0.0), max((result.bytes for result in group), default=0)
        return name, *_counted(not result.wrongs for result in group), f"{seconds:.2f} s", f"{size >> 20} MiB"

    rows = [("files", "tried", "right", "most time", "most memory"), *(row(*each) for each in results.items()), row("all", every)]
    return rows, "; processor time, and memory of the largest process", not any(result.wrongs for result in every)


def _trees(chosen: Chosen, repeats: int) -> Attacked:
    good = True
    rows: list[tuple[str, ...]] = [("case", "beside", "tried", "right", "narrow", "lowest", "highest", "truth")]
    with tempfile.TemporaryDirectory() as name:
        program = trees.built(Path(name))
        for busy in _BESIDE:
            for case in filter(chosen, trees.CASES):
                sums: list[tuple[float, float]] = []
                with trees.loops(busy):
                    while len(sums) < repeats:
                        sums += trees.measured(program, case, Path(name), min(_AT_ONCE, repeats - len(sums)))
                right, narrow, is_good = trees.judged(case, sums)
                least, most = trees.truth(case)
                ends = f"{min(low for low, _ in sums):.1f}", f"{max(high for _, high in sums):.1f}", f"{least:.0f} to {most:.0f}"
                rows.append((case, f"{busy} busy loops" if busy else "nothing", str(len(sums)), str(right), str(narrow), *ends))
                print(*rows[-1], file=sys.stderr, flush=True)
                good &= is_good
    return rows, "; sizes in MiB", good


def _buffers(chosen: Chosen, repeats: int) -> Attacked:
    counts: dict[str, list[bool]] = {}
    for seed in range(repeats):
        for kind in buffers.KINDS:
            if chosen(f"tree {seed}, {kind}"):
                counts.setdefault(kind, []).append(_said(f"tree {seed}, {kind}", buffers.tried(seed, kind)))
    every = [right for rights in counts.values() for right in rights]
    rows = [("recorder", "tried", "right"), *((kind, *_counted(rights)) for kind, rights in counts.items()), ("all", *_counted(every))]
    return rows, ": so many trees of processes that share memfds, each with the recorder in Python and with that in C", all(every)


if __name__ == "__main__":
    sys.exit(main())
