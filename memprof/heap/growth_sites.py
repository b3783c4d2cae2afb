"""Call sites whose live bytes rise with work: the stacks of a profile at several moments of a phase, held against how much work was done by then.

A site rises if its bytes follow the work: a straight line explains them nearly wholly. Memory that comes and goes, such as a
buffer inside an iteration, does not follow it.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from ..base.errors import InputError
from ..base.runners import runners_path
from .file_names import FileNames
from .frames import Frame, is_python
from .names import group_name, is_allocator, is_library, short
from .profile import HeapProfile
from .program_lines import is_interpreter, program_tree

MOMENTS = 12  # of the phase; the tools' readers keep the stacks of each
_LEAST_MOMENTS = 4
_FOLLOWS = 0.9  # the correlation of bytes with work from which they follow it
_SHARE = 0.01  # of all that rose: less is noise of the tool
_CALLERS = 2
_START = re.compile(r"_start|__libc_start\w*|start_thread|(?:__)?clone3?")
_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


class Rise(Struct, frozen=True):
    """A place that holds more with each unit of work: the function that allocates, then callers; bytes per unit, and in all between the moments."""

    sites: tuple[str, ...]
    each_bytes: float
    bytes: int


class Rises(Struct, frozen=True):
    """The places that rise, the steepest first, and by how much all blocks rose a unit. units: how many lie between the first and the last moment."""

    places: tuple[Rise, ...]
    each_bytes: float
    units: float


def rises(profile: HeapProfile, phase: str, done: Callable[[float], float]) -> Rises:
    """The places of a phase that rise. done: how many units were done at a time of the profile. Raises InputError for too few moments with stacks."""
    moments = [snapshot for snapshot in profile.snapshots if snapshot.phase == phase and snapshot.tree is not None]
    # The program's end frees what rose. The clocks of heaptrack 1.4 and of the marks differ by up to 0.3 s, so the end may seem to lie in the phase.
    while len(moments) > _LEAST_MOMENTS and moments[-1].heap_bytes < moments[-2].heap_bytes:
        moments.pop()
    work = np.array([done(snapshot.time) for snapshot in moments])
    if len(moments) < _LEAST_MOMENTS or work[-1] - work[0] <= 0:
        raise InputError(
            f"{profile.tool} has the stacks of {len(moments)} moments of {phase}, too few to see a rise: more units are needed"
        )
    sites = _sites(profile)
    sizes: dict[tuple[str, ...], _Numbers] = defaultdict(lambda: np.zeros(len(moments)))
    for number, snapshot in enumerate(moments):
        assert snapshot.tree is not None
        for stack, size in program_tree(profile, snapshot.tree, "line").stacks():
            sizes[_shown(sites[frame] for frame in stack)][number] += size
    whole = _slope(work, np.array([snapshot.heap_bytes for snapshot in moments]))
    span = float(work[-1] - work[0])
    places = [
        Rise(shown, each, round(each * span))
        for shown, held in sizes.items()
        if shown and (each := _slope(work, held)) > _SHARE * max(whole, 0) and each > 0 and _follows(work, held)
    ]
    return Rises(tuple(sorted(places, key=lambda place: -place.each_bytes)), whole, span)


def _slope(work: _Numbers, held: _Numbers) -> float:
    return float(np.polyfit(work, held, 1)[0])


def _follows(work: _Numbers, held: _Numbers) -> bool:
    return float(np.std(held)) > 0 and float(np.corrcoef(work, held)[0, 1]) >= _FOLLOWS


class _Site(Struct, frozen=True):
    """A frame as it is shown. python: a line of Python. library: of the standard library, or the interpreter's own code. starts: who started the
    program; its callers are of no interest."""

    name: str
    python: bool
    library: bool
    starts: bool


def _sites(profile: HeapProfile) -> list[_Site | None]:
    """A profile's frames; None for one that only hands out memory, or stands for many."""
    runner = str(runners_path())
    return [_site(frame, runner, profile.file_names) for frame in profile.frames]


def _site(frame: Frame, runner: str, files: FileNames) -> _Site | None:
    if frame.kind in ("root", "below") or is_allocator(frame):
        return None
    name = group_name(frame, "line", files)
    python = is_python(frame.file)
    starts = os.path.dirname(frame.file or "") == runner or _START.fullmatch(frame.function) is not None
    return _Site(name if python else short(name), python, is_library(frame) or is_interpreter(frame), starts)


def _shown(stack: Iterable[_Site | None]) -> tuple[str, ...]:
    """The site and its nearest callers; of a stack that leads to Python the nearest lines of Python, since the interpreter lies between them."""
    known = [site for site in stack if site is not None]
    sites = [site for site in known if not site.library] or known
    if not sites:
        return ()
    callers = list(takewhile(lambda site: not site.starts, sites[1:]))
    lines = [site for site in callers if site.python]
    return (sites[0].name, *(site.name for site in (lines or callers)[:_CALLERS]))
