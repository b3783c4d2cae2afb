"""How a setting's value is written."""

from __future__ import annotations

from collections.abc import Mapping

from ..units import exact_bytes

# Which of the knobs that every runtime has are sizes: a Run keeps what was set as plain text, a size as a number of bytes.
SIZES = frozenset({"malloc_mmap_threshold", "ballast"})


def written(knobs: Mapping[str, str]) -> dict[str, str]:
    """The knobs of a job as a person writes them: sizes with their unit."""
    return {name: exact_bytes(int(value)) if name in SIZES and value.isdecimal() else value for name, value in knobs.items()}
