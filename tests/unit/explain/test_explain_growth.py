"""Why a process grew: two looks at one child. The function of both looks on made-up ones, and both looks at real programs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import recorder_runs
from support.examples import examples
from support.suites import one

from memprof.base.mappings import Mapping
from memprof.explain import growth as grown
from memprof.explain.glibc import GlibcHeap, ranges
from memprof.explain.memory_map import PAGE, Pages
from memprof.explain.waterfall import ProcessSnapshot
from memprof.records.python_lines import GrowthLine, read_lines

HEAP, MMAP = 0x10000000, 0x7F0000000000


def mapping(start: int, pages: int, path: str = "", perms: str = "rw-p", resident: int | None = None, **rest: object) -> Mapping:
    rss = (pages if resident is None else resident) * PAGE
    return Mapping(start, start + pages * PAGE, perms, 0, "00:00", 1 if path.startswith("/") else 0, path, rss=rss, anonymous=rss, **rest)


def look(phase: str, *mappings: Mapping, used=(), free=(), mapped=(), arenas: int = 0, stacks: tuple[int, ...] = ()) -> ProcessSnapshot:
    """A look at these mappings, all of their resident pages at their beginnings; used, free and mapped are glibc's, as (start, end)."""
    address = [begin for each in mappings for begin in range(each.start, each.start + each.rss, PAGE)]
    owner = [number for number, each in enumerate(mappings) for _ in range(each.rss // PAGE)]
    filed = [mappings[number].is_file for number in owner]
    pages = Pages(np.array(address, np.uint64), np.array(owner, np.int32), np.array(filed, bool))
    blocks = GlibcHeap(ranges(used), ranges(free), ranges(mapped), arenas, ranges([]), True)
    return ProcessSnapshot(phase, mappings, pages, blocks, stacks, None, 0, 0)


def heap(phase: str, pages: int, used, free=(), **rest) -> ProcessSnapshot:
    return look(phase, mapping(HEAP, pages, "[heap]"), used=used, free=free, **rest)


def at(first: int, last: int) -> tuple[int, int]:
    """Pages of the heap by number."""
    return HEAP + first * PAGE, HEAP + last * PAGE


def parts(growth: grown.GrowthParts) -> dict[str, int]:
    return {part.name: part.grown_bytes for part in growth.parts if part.grown_bytes}


def test_growth_of_blocks_in_use() -> None:
    growth = grown.between(heap("WARMUP", 10, [at(0, 10)]), heap("EXECUTE", 14, [at(0, 14)]))

    assert parts(growth) == {"in use by the program": 4 * PAGE}
    assert (growth.cause, growth.grown_bytes) == ("in use by the program", 4 * PAGE)
    assert growth.sentences == (
        f"RSS grew by {4 * PAGE // 1024}.0 KiB between the ends of WARMUP and EXECUTE: 16.0 KiB in use by the program",
    )


def test_growth_from_free_to_used() -> None:
    growth = grown.between(heap("WARMUP", 10, [at(0, 4)], [at(4, 10)]), heap("EXECUTE", 10, [at(0, 9)], [at(9, 10)]))

    assert parts(growth) == {"in use by the program": 5 * PAGE, "freed, kept by the allocator": -5 * PAGE}
    assert growth.grown_bytes == 0


def test_pinned_by_top_block() -> None:
    first = heap("WARMUP", 2, [at(0, 2)])
    small = (HEAP + 90 * PAGE, HEAP + 90 * PAGE + 64)
    last = heap("EXECUTE", 100, [at(0, 2), small], [at(2, 90), (small[1], HEAP + 100 * PAGE)])

    growth = grown.between(first, last)

    assert growth.cause == "freed, kept by the allocator"
    assert growth.pinned == grown.Pinned(
        kept_bytes=98 * PAGE - 64, whole_bytes=97 * PAGE, pages=1, live_bytes=64, top_bytes=98 * PAGE - 64, top_live_bytes=64
    )
    assert growth.pinned.given_back_bytes == 98 * PAGE
    assert "64 B of blocks in use near the heap's end keep 391.9 KiB from being given back when it is freed" in growth.sentences
    assert "malloc_trim(0) would give back 388.0 KiB of the 391.9 KiB that are kept" in growth.sentences


def test_pinned_by_small_blocks() -> None:
    used = [(HEAP + page * PAGE, HEAP + page * PAGE + 32) for page in range(50)]
    free = [(HEAP + page * PAGE + 32, HEAP + (page + 1) * PAGE) for page in range(50)]

    pinned = grown.pinned(heap("EXECUTE", 50, used, free))

    assert (pinned.whole_bytes, pinned.pages, pinned.live_bytes, pinned.given_back_bytes) == (0, 50, 50 * 32, 50 * PAGE)


def test_pinned_ignores_nonresident_memory() -> None:
    trimmed = look("EXECUTE", mapping(HEAP, 100, "[heap]", resident=3), used=[at(0, 3), at(99, 100)], free=[at(3, 99)])

    pinned = grown.pinned(trimmed)

    assert (pinned.kept_bytes, pinned.top_bytes, pinned.given_back_bytes) == (0, 0, 0)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (mapping(MMAP, 8, "/home/me/data.bin", "r--p"), "other mapped files"),
        (mapping(MMAP, 8, "/usr/lib/libx.so", "r--p"), "libraries"),
        (mapping(MMAP, 8), "other mappings"),
        (mapping(MMAP, 8, "/dev/shm/x", "rw-s"), "other mappings"),
    ],
)
def test_growth_names_mapping(more: Mapping, name: str) -> None:
    first = heap("WARMUP", 4, [at(0, 4)])
    last = look("EXECUTE", mapping(HEAP, 4, "[heap]"), more, used=[at(0, 4)])

    growth = grown.between(first, last)

    assert parts(growth) == {name: 8 * PAGE}
    assert growth.mappings == ((more.path or "anonymous", 8 * PAGE),)
    assert any(sentence.startswith("mappings that grew: ") for sentence in growth.sentences)


@pytest.mark.parametrize(
    ("program", "more", "is_told"),
    [
        ("/usr/bin/python3.11", mapping(MMAP, 8), True),
        ("/usr/lib/libpython3.12.so.1.0", mapping(MMAP, 8), True),
        ("/usr/bin/python3.11", mapping(MMAP, 8, "/dev/shm/x", "rw-s"), False),
        ("/usr/bin/benchmark_model", mapping(MMAP, 8), False),
        ("/usr/lib/python3.11/lib-dynload/_json.so", mapping(MMAP, 8), False),
    ],
)
def test_growth_of_anonymous_mappings_names_objects_of_python(program: str, more: Mapping, is_told: bool) -> None:
    of_program = mapping(MMAP - 8 * PAGE, 2, program, "r-xp")
    growth = grown.between(look("WARMUP", of_program), look("EXECUTE", of_program, more))

    assert any("Python keeps its objects in anonymous mappings" in sentence for sentence in growth.sentences) is is_told


def test_growth_of_mapped_blocks() -> None:
    last = look("EXECUTE", mapping(HEAP, 4, "[heap]"), mapping(MMAP, 8), used=[at(0, 4)], mapped=[(MMAP, MMAP + 8 * PAGE)])

    growth = grown.between(heap("WARMUP", 4, [at(0, 4)]), last)

    assert (parts(growth), growth.mappings) == ({"in use by the program": 8 * PAGE}, ())


def test_growth_counts_threads_and_arenas() -> None:
    stack = mapping(MMAP, 3)
    last = look("EXECUTE", mapping(HEAP, 4, "[heap]"), stack, used=[at(0, 4)], stacks=(MMAP + PAGE,), arenas=2)

    growth = grown.between(heap("WARMUP", 4, [at(0, 4)], arenas=1), last)

    assert parts(growth) == {"threads' stacks": 3 * PAGE}
    assert {"1 arena more (1, then 2)", "1 thread more (0, then 1)"} <= set(growth.sentences)


def test_growth_absent_and_swap_counted() -> None:
    first = heap("WARMUP", 10, [at(0, 10)])
    assert grown.between(first, heap("EXECUTE", 9, [at(0, 9)])).sentences == ("RSS did not grow between the ends of WARMUP and EXECUTE",)
    swapped = look("EXECUTE", mapping(HEAP, 12, "[heap]", resident=11, swap=5 * PAGE), used=[at(0, 12)])
    assert grown.between(first, swapped).grown_bytes == 6 * PAGE


def test_growth_with_incomplete_heap() -> None:
    last = heap("EXECUTE", 14, [])
    growth = grown.between(heap("WARMUP", 10, []), last._replace(heap=last.heap._replace(complete=False)))
    assert growth.sentences[-1] == "the allocator's blocks could not be followed, so its memory and other mappings are one part"
    assert parts(growth) == {"in use, kept by the allocator, or other mappings": 4 * PAGE}


@given(st.lists(st.tuples(st.integers(0, 59), st.sampled_from(["used", "free", "neither"])), max_size=60), st.integers(1, 60))
@examples(100)
def test_growth_parts_sum_to_rss(kinds: list[tuple[int, str]], pages: int) -> None:
    kind = dict(kinds)
    areas = {word: [at(page, page + 1) for page in range(60) if kind.get(page) == word] for word in ("used", "free")}
    first, last = heap("WARMUP", 1, [at(0, 1)]), look("EXECUTE", mapping(HEAP, 60, "[heap]", resident=pages), **areas)

    growth = grown.between(first, last)

    assert sum(part.before for part in growth.parts) == growth.rss_bytes[0]
    assert sum(part.after for part in growth.parts) == growth.rss_bytes[1] == pages * PAGE
    assert growth.pinned.whole_bytes <= growth.pinned.kept_bytes <= growth.pinned.given_back_bytes <= pages * PAGE


def test_growth_lines_from_plain_rows(tmp_path) -> None:
    path = tmp_path / "lines.json"
    path.write_text(json.dumps([["a.py", 3, 100, 2]]))
    assert read_lines(path) == (GrowthLine("a.py", 3, 100, 2),)


def test_why_skipped_when_steady() -> None:
    from memprof.growth.grow import cause
    from memprof.growth.grow.grow import GrowRequest, GrowthAnswer
    from memprof.verdicts.growth import Verdict

    answer = GrowthAnswer("m", "r", "", "", Verdict("steady", "iteration"), ())

    explained = cause.explained(GrowRequest(one("m", "r")), answer, recorder_runs.Silent())

    assert (explained.why, explained.remarks) == (None, ("--why: it is steady, so there is no rise to look into",))
