"""What a graph of operators must cost in memory before it runs: the order that needs least, and the arena that either order needs.

problem.py is the ground floor: an abstract graph of sizes, reads and writes, and what an order of its operators costs. order.py looks for
the best order and bounds.py proves that none is better; spgraph.py has the graphs that can be solved in polynomial time. arena.py gives tensors
their offsets. Nothing here knows a file format, and nothing imports numpy or ortools before it is called.
"""

from __future__ import annotations

from .problem import Buffer, Problem, Step, aliases, keeping, lifetimes, peak, steps

__all__ = ["Buffer", "Problem", "Step", "aliases", "keeping", "lifetimes", "peak", "steps"]
