"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(count: int, **more: Any) -> settings:
    """The settings of a property that takes `count` examples, and a twentieth of them in `make quick`, whose profile says so."""
    quick = settings.get_current_profile_name() == "quick"
    return settings(max_examples=max(1, count // 20) if quick else count, **more)
