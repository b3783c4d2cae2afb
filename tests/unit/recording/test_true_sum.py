"""Whatever processes do, the true sum of their memory lies between the bounds of each poll."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from .world import World
from .written import PAGE, ROOT, mark

EVENTS = [
    "poll",
    "poll",
    "look",
    "round",
    "maps",
    "fork",
    "vfork",
    "exec",
    "spawn",
    "grow",
    "copy",
    "drop",
    "map",
    "unmap",
    "end",
    "waited",
]
HISTORIES = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 7), st.sampled_from([1, 5, 30, 100, 400])), max_size=60)


def told(history: list[tuple[str, int, int]], measured: int) -> World:
    """The world after these events."""
    world = World(measured)
    for event, number, size in history:
        process = world.one(number)
        if event in ("poll", "look"):
            world.poll(stats=event == "look")
        elif event == "round":
            world.step_round()
        elif event == "maps":
            world.read_maps()
        elif event in ("fork", "vfork", "spawn"):
            world.have_child(process, event)
        elif event == "exec":
            world.execute(process)
        elif event == "grow":
            world.grow(process, size, number)
        elif event == "copy":
            world.copy(process, size)
        elif event == "drop":
            world.drop(process, size)
        elif event == "map":
            world.map(process, size % 3, size)
        elif event == "unmap":
            world.unmap(process, size % 3)
        elif event in ("end", "waited"):
            world.end(process, waited=event == "waited")
    world.poll()
    return world


@pytest.mark.parametrize("measured", [ROOT, 101])
@given(HISTORIES)
@examples(300)
def test_true_sum_lies_within_bounds(measured: int, history: list[tuple[str, int, int]]) -> None:
    world = told(history, measured)

    run = world.run()

    for place, pages in enumerate(world.truth):
        found = mark(run, f"P{place}")
        low, high = found.rss_peak_bytes, found.rss_peak_high_bytes or found.rss_peak_bytes
        assert low is not None and high is not None and low <= pages * PAGE <= high, (place, low / PAGE, pages, high / PAGE)
