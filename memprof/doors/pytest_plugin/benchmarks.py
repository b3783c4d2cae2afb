"""Tests of pytest-benchmark: their peaks beside their times. Another process runs such a test once, for its peak; the first process times it."""

from __future__ import annotations

import pytest

FIXTURE = "benchmark"
measured = pytest.StashKey[dict[str, int]]()  # of a test: its figures from the other process


def tell(item: pytest.Item) -> None:
    """Put a test's figures where its times are: into pytest-benchmark's JSON, and into the test's properties."""
    figures = item.stash.get(measured, None)
    if figures is not None:
        getattr(item, "funcargs", {})[FIXTURE].extra_info.update(figures)
        item.user_properties += list(figures.items())
