"""The mark of tests, and what it says of their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ..base.errors import UsageError
from ..base.units import format_bytes, parse_bytes

MARK = "memprof"
INI = "memprof_limit"
_LEAST_LIMIT = 64 << 10  # of bytes: who writes 40 means MiB
ONLY_LINUX = "memprof measures on Linux only"
_WORDS = '("120 MiB", above_baseline=False, repeats=1, leaks="0 B")'


@dataclass(frozen=True)
class MemoryLimit:
    """What a mark says of a test. bytes: the most that its peak may be, None for no limit. above_baseline: the limit is on the growth above the
    memory before. repeats: in how many processes its peak is measured. leaks_bytes: the most that its memory may rise with each call, None if that
    is not asked. own: the limit is the test's, and not that of all tests."""

    bytes: int | None = None
    above_baseline: bool = False
    repeats: int = 1
    leaks_bytes: int | None = None
    own: bool = True

    @classmethod
    def of(cls, item: pytest.Item) -> MemoryLimit | None:
        """The limit of a test, None if it has no mark and there is none for all tests. Raises UsageError for a mark with other arguments."""
        given = words_of(item)
        shared = _of_all(item.config) if isinstance(item, pytest.Function) else None
        if given is None:
            return None if shared is None else cls(shared, own=False)
        args, words = given
        above, repeats, leaks = words.pop("above_baseline", False), words.pop("repeats", 1), words.pop("leaks", None)
        sizes = [size for size in (*args, leaks) if size is not None]
        is_whole = isinstance(repeats, int) and repeats >= 1
        if len(args) > 1 or words or not is_whole or not all(isinstance(size, str | int) for size in sizes):
            raise UsageError(f"{item.nodeid}: write @pytest.mark.{MARK}{_WORDS}, each of them if it is needed")
        limit = parse_bytes(str(args[0])) if args else shared
        if limit is None and leaks is None and "memprof" not in getattr(item, "fixturenames", ()):
            raise UsageError(f"{item.nodeid}: @pytest.mark.{MARK} has no limit: write {_WORDS}, or {INI} in the ini file")
        if limit is not None and limit < _LEAST_LIMIT:
            raise UsageError(f"{item.nodeid}: a limit of {format_bytes(limit)} is less than any process has: write 40 MiB")
        return cls(limit, bool(above), repeats, None if leaks is None else parse_bytes(str(leaks)), bool(args))

    def check(self, peak_bytes: int, before_bytes: int, what: str = "the test") -> None:
        """Fail the test if the limit is exceeded."""
        size_bytes = peak_bytes - before_bytes if self.above_baseline else peak_bytes
        if self.bytes is not None and size_bytes > self.bytes:
            where = f" above the {format_bytes(before_bytes)} before it" if self.above_baseline else ""
            pytest.fail(f"{what}'s peak RSS is {format_bytes(size_bytes)}{where}; the limit is {format_bytes(self.bytes)}", pytrace=False)


def words_of(item: pytest.Item) -> tuple[tuple[object, ...], dict[str, Any]] | None:
    """The arguments of a test's marks, None if it has none. Of its class's and module's those count that its own do not give."""
    marks = list(item.iter_markers(MARK))
    if not marks:
        return None
    args = next((mark.args for mark in marks if mark.args), ())
    return args, {name: value for mark in reversed(marks) for name, value in mark.kwargs.items()}


def _of_all(config: pytest.Config) -> int | None:
    """The limit of all tests, None if the ini file has none. Raises UsageError."""
    text = str(config.getini(INI)).strip("\"' ")
    try:
        return parse_bytes(text) if text else None
    except UsageError as error:
        raise UsageError(f"{INI}: {error}") from None
