"""The marks of tests, and the limit that a mark sets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ..base.errors import UsageError
from ..base.units import format_bytes, parse_bytes

PEAK_RSS = "peak_rss"
NO_GROWTH = "no_growth"
ONLY_LINUX = "memprof measures on Linux only"


@dataclass(frozen=True)
class MemoryLimit:
    """The limit of a mark: a size in bytes, and whether it is on the peak or on its growth above the memory before."""

    bytes: int
    above_baseline: bool = False

    @classmethod
    def of(cls, item: pytest.Item) -> MemoryLimit | None:
        """The limit of a test, None if it has no mark. Raises UsageError for a mark with other arguments."""
        mark = item.get_closest_marker(PEAK_RSS)
        if mark is None:
            return None
        words = dict(mark.kwargs)
        above = words.pop("above_baseline", False)
        if len(mark.args) != 1 or words or not isinstance(mark.args[0], str | int):
            raise UsageError(f'{item.nodeid}: write @pytest.mark.{PEAK_RSS}("120 MiB")')
        return cls(parse_bytes(str(mark.args[0])), bool(above))

    def check(self, peak_bytes: int, before_bytes: int, what: str = "the test") -> None:
        """Fail the test if the limit is exceeded."""
        size_bytes = peak_bytes - before_bytes if self.above_baseline else peak_bytes
        if size_bytes > self.bytes:
            where = f" above the {format_bytes(before_bytes)} before it" if self.above_baseline else ""
            pytest.fail(f"{what}'s peak RSS is {format_bytes(size_bytes)}{where}; the limit is {format_bytes(self.bytes)}", pytrace=False)
