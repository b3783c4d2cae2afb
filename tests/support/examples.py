"""How many examples a property is tried with, and how many cases a test goes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import settings

Case = TypeVar("Case")


def examples(count: int, **more: Any) -> settings:
    """The settings of a property that takes `count` examples, and a twentieth of them in `make quick`, whose profile says so."""
    return settings(max_examples=max(1, count // 20) if _quick() else count, **more)


def tried(cases: Sequence[Case]) -> Sequence[Case]:
    """The cases that a test goes through, in their order: all, and every twentieth in `make quick`. The first is among them."""
    return cases[::20] if _quick() else cases


def _quick() -> bool:
    return settings.get_current_profile_name() == "quick"
