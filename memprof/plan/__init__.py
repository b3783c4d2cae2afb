"""The memory that a graph of operators needs, told before it runs: the order that needs least, and the arena of an order.

orders/ is the ground floor. Its problem.py is an abstract graph of sizes, reads and writes, and the cost of an order of its operators. Its
order.py looks for the best order: heuristics.py and search.py find it, bounds.py and search.py prove that none is better, spgraph.py solves the
easy graphs, and split.py cuts the others into pieces. arenas/ gives buffers their offsets: arena.py, with skyline.py and, where ortools is
installed, cpsat.py; minimalloc.py reads and writes such problems. These two rooms know no model's format: graphs/ reads and writes files. numpy
and ortools are imported when they are first needed.
"""

from __future__ import annotations

from .arenas.arena import Packing, greedy, load, overlapping, pack
from .orders.order import Best, best_order
from .orders.problem import Buffer, OrderStep, Problem, aliases, keeping, lifetimes, peak, steps

__all__ = [
    "Best",
    "Buffer",
    "OrderStep",
    "Packing",
    "Problem",
    "aliases",
    "best_order",
    "greedy",
    "keeping",
    "lifetimes",
    "load",
    "overlapping",
    "pack",
    "peak",
    "steps",
]
