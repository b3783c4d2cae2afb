"""The kinds of processes that `memprof grow` sets against each other: what iterations of each get as inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..base.errors import UsageError
from ..records.types import Use

Wish = Literal["same", "fresh", "both"]


@dataclass(frozen=True)
class Kind:
    """What the iterations of a process get. varied: inputs of several shapes in turn; fresh: new content each time."""

    varied: bool = False
    fresh: bool = False

    @property
    def words(self) -> str:
        """What the inputs are, as a sentence has it after `with`."""
        if self.varied:
            return "several shapes and fresh inputs" if self.fresh else "several shapes"
        return "fresh inputs" if self.fresh else "the same input"


def kind_of(use: Use | None) -> Kind:
    """The kind of a process that did this work."""
    return Kind(bool(use.shapes), use.fresh) if use is not None else Kind()


def kinds_of(wish: Wish, varied: bool, fixed: str) -> tuple[Kind, ...]:
    """The kinds for this wish, the one with the same input first.

    varied: whether shapes were named. They are then what differs between two kinds. fixed: why the work has inputs of one kind only, empty where
    it has not. Raises UsageError if fresh inputs were wished and cannot be.
    """
    if fixed:
        if wish == "fresh":
            raise UsageError(f"--fresh: {fixed}: memprof cannot make its inputs anew")
        return (Kind(varied),)
    if wish != "both":
        return (Kind(varied, wish == "fresh"),)
    return (Kind(), Kind(varied=True)) if varied else (Kind(), Kind(fresh=True))
