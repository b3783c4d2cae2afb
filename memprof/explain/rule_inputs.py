"""The facts that rules look at to find something, and the words that several of them use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from ..base.units import format_bytes
from ..programs.runtimes import Runtime
from ..records.types import COMMAND, MODEL_LOAD, PREPARE
from .records import Advice, PhaseFigures, PhaseLook

_LEAST = 4 << 20
_LEAST_SHARE = 0.02
LEAST_STEPS = 3  # between iterations, from which growth is reported


class Facts(Struct, frozen=True):
    """The facts that the rules look at.

    knobs: those in force, defaults included. plan_bytes: the bytes that activations need at the shapes that ran, see activations; shapes: these
    shapes, in words. iterations: RSS in bytes at the end of each iteration of EXECUTE, none if they are too short to be polled one by one;
    ran: how many there were. threads: None where the runtime chooses. unread_bytes: the size of mapped tables of which too few rows were read to find
    a copy of them. native: the runtime of the same package that is measured without an interpreter, None if there is none here. loops: its model is
    known to run a graph again and again. ends_alone: phases come from functions or lines, so that no look comes inside one. heap_profile: what shows
    who allocates, with its command.
    """

    runtime: Runtime
    knobs: Mapping[str, str]
    measured: Sequence[PhaseFigures]
    phases: Sequence[PhaseLook]
    plan_bytes: int | None
    iterations: Sequence[int]
    threads: int | None = None
    shapes: str = ""
    unread_bytes: int = 0
    ran: int = 0
    native: str | None = None
    loops: bool = False
    ends_alone: bool = False
    heap_profile: str = "a heap profile shows who allocates it: memprof heap record"

    @property
    def least(self) -> int:
        """The least number of bytes that is worth a finding."""
        return max(_LEAST, int(_LEAST_SHARE * max((phase.rss_peak_bytes for phase in self.measured), default=0)))

    @property
    def subject(self) -> str:
        """What can be changed by its maintainer: a program or a runtime."""
        return "program" if self.runtime.name == COMMAND else "runtime"

    def phase(self, name: str) -> PhaseLook | None:
        """The look of that name."""
        return next((look for look in self.phases if look.name == name), None)

    def encloses(self, outer: PhaseFigures, phase: PhaseFigures) -> bool:
        """Whether a phase runs inside another, or inside one that does."""
        above = {figures.name: figures.inside for figures in self.measured}
        name = phase.inside
        while name and name != outer.name:
            name = above.get(name, "")
        return name == outer.name

    def near_peak(self, phase: PhaseFigures) -> PhaseLook | None:
        """The look near a phase's peak: inside it, or at the end of a phase that runs inside it and comes near that peak."""
        inner = [self.phase(figures.name) for figures in self.measured if self.encloses(phase, figures)]
        near = [look for look in inner if look is not None and phase.rss_peak_bytes - look.rss_bytes < self.least]
        return self.phase(f"{phase.name}/peak") or max(near, key=lambda look: look.rss_bytes, default=None)

    @property
    def steady(self) -> PhaseLook | None:
        """The last look: memory that stays."""
        return next((look for look in reversed(self.phases) if "/" not in look.name), None)

    @property
    def prepared(self) -> PhaseLook | None:
        """The last look before the model first ran."""
        return next((look for look in reversed(self.phases) if look.name in (PREPARE, MODEL_LOAD)), None)

    @property
    def highest_load(self) -> PhaseLook | None:
        """The look at MODEL_LOAD with the most weights beyond one copy."""
        looks = [look for look in self.phases if look.name in (MODEL_LOAD, f"{MODEL_LOAD}/peak")]
        return max(looks, key=lambda look: look.beyond_one_bytes or 0, default=None)

    def propose(self, text: str, **settings: str) -> tuple[Advice, ...]:
        """The proposal, if this runtime has these knobs and they are not set so already."""
        changed = {}
        for name, value in settings.items():
            knob = self.runtime.knob(name)
            if knob is None or (isinstance(knob.values, tuple) and value not in knob.values):
                return ()
            if self.knobs.get(name) != knob.check(value):  # knobs in force are as the runtime's side reads them
                changed[name] = value
        return (Advice(text, changed, calls=self.runtime.in_program(changed)),) if changed else ()

    def propose_threads(self, text: str, count: int) -> tuple[Advice, ...]:
        """Another number of threads, if the runtime now has a single thread."""
        settings = {"threads": str(count)}
        single = (self.threads or self.runtime.default_threads) == 1
        return (Advice(text, settings, calls=self.runtime.in_program(settings)),) if single else ()


def peaks(facts: Facts, figures: PhaseFigures, look: PhaseLook | None) -> Iterator[str]:
    """How far a phase peaks above its end, if its end is known, and how far the process had come when it was looked at, if that was before its
    peak."""
    parts = [f"{figures.name} peaks {format_bytes(figures.transient_bytes)} above its end"] if figures.rss_end_bytes is not None else []
    if look is not None and figures.rss_peak_bytes - look.rss_bytes >= facts.least:
        parts.append(f"the look came on the way there, at {format_bytes(look.rss_bytes)} of {format_bytes(figures.rss_peak_bytes)}")
    if parts:
        yield "; ".join(parts)


def when(facts: Facts, size: Callable[[PhaseLook], int], subject: str) -> Iterator[str]:
    """The phases in which it appeared, with its growth until the end of each."""
    ends = [look for look in facts.phases if "/" not in look.name]
    steps = [(now.name, size(now) - size(before)) for before, now in itertools.pairwise(ends)]
    grown = [f"{name} ({format_bytes(step)})" for name, step in steps if step >= facts.least]
    gone = [f"{name} ({format_bytes(-step)})" for name, step in steps if step <= -facts.least]
    if grown:
        yield f"{subject} appeared in {' and '.join(grown)}{', and disappeared in ' + ' and '.join(gone) if gone else ''}"
