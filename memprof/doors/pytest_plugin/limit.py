"""The mark of tests, and what it says of their memory."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ...base.errors import UsageError, near_or_all
from ...base.units import format_bytes, parse_bytes

__tracebackhide__ = True  # pytest leaves these lines out of a test's traceback
MARK = "memprof"
INI = "memprof_limit"
_PLACE = f"@pytest.mark.{MARK}"
_LEAST_LIMIT = 64 << 10  # of a number without a unit: who writes 40 means MiB
TEST_PEAK = "the test's peak RSS"
TREE_PEAK = "the peak RSS of the test's process tree"
ONLY_LINUX = "memprof measures on Linux only"
REPORTS = "MEMPROF_PYTEST_REPORTS"  # the variable of a marked test's process that names the file where its reports go
_MARKS = "MEMPROF_MARKS"  # see runners/memprof_marks.py
OUTSIDE = "memprof measures this pytest from outside"
_ABOVE = "above baseline"  # behind the limit of all tests
# The folder is new each time, so that the commands can be repeated. memray calls the file of the first process so, also beside those of forked ones.
_PROFILED = (
    'folder=$(mktemp -d) && memprof heap record --tool memray -o "$folder" -- pytest {} && memprof heap show "$folder/memray.bin" --by line'
)
_ARGUMENTS = ("limit", "above_baseline", "repeats", "leaks")
_WORDS = '("120 MiB", above_baseline=False, repeats=1, leaks="0 B")'


def measured_from_outside(environment: Mapping[str, str]) -> bool:
    """Whether memprof measures the whole pytest, as `memprof gate -- pytest` does: processes of the plugin's own would be among what it measures.

    Each program that memprof measures has the variable of its marks, and the process of one marked test has that of its reports too.
    """
    return _MARKS in environment and REPORTS not in environment


@dataclass(frozen=True)
class MemoryLimit:
    """What a mark says of a test. bytes: the most that its peak may be, None for no limit. above_baseline: the limit is on the growth above the
    memory before. repeats: in how many processes its peak is measured. leaks_bytes: the most that its memory may rise with each call, None if that
    is not asked. own: the limit is the test's, and not that of all tests."""

    bytes: int | None = None
    above_baseline: bool = False
    repeats: int = 1
    leaks_bytes: int | None = None
    own: bool = False

    @classmethod
    def of(cls, item: pytest.Item) -> MemoryLimit | None:
        """The limit of a test, None if it has no mark and there is none for all tests. Raises UsageError for a mark with other arguments."""
        words = words_of(item)
        shared = _of_all(item.config) if isinstance(item, pytest.Function) else None
        if words is None:
            return shared
        wrong = next((word for word in words if word not in _ARGUMENTS), None)
        if wrong is not None:
            raise UsageError(f"{_PLACE} takes no {wrong}{near_or_all(wrong, _ARGUMENTS)}")
        given, above, repeats, leaks = words.get("limit"), words.get("above_baseline"), words.get("repeats", 1), words.get("leaks")
        is_whole = isinstance(repeats, int) and repeats >= 1
        if not is_whole or not isinstance(above, bool | None) or not all(isinstance(size, str | int | None) for size in (given, leaks)):
            raise UsageError(f"write {_PLACE}{_WORDS}, each of them if it is needed")
        limited = shared or cls() if given is None else cls(_limit(str(given), _PLACE))
        if limited.bytes is None and leaks is None and "memprof" not in getattr(item, "fixturenames", ()):
            raise UsageError(f"{_PLACE} has no limit: write {_WORDS}, or {INI} in the ini file")
        above = limited.above_baseline if above is None else above
        return cls(limited.bytes, above, repeats, None if leaks is None else _size(str(leaks), _PLACE), given is not None)

    def check(self, peak_bytes: int, before_bytes: int, peak: str = TEST_PEAK, test: str | None = None) -> None:
        """Fail the test if the limit is exceeded. peak: what it is the peak of. test: the words for it on pytest's command line, if a profile of the
        test tells who allocates."""
        size_bytes = peak_bytes - before_bytes if self.above_baseline else peak_bytes
        if self.bytes is None or size_bytes <= self.bytes:
            return
        # The figures stand first: pytest's summary shows the begin alone.
        size, before, limit = (format_bytes(count) for count in (size_bytes, before_bytes, self.bytes))
        if self.above_baseline:
            reason = f"{peak} above the {before} before it"
        elif self.bytes < before_bytes:
            reason = f"{peak}. The limit is less than the {before} before the test: above_baseline=True leaves those out"
        else:
            reason = f"{peak}. {before} of it was there before: above_baseline=True leaves that out"
        whose = "The lines of its own process" if peak == TREE_PEAK else "Its lines"
        lines = "" if test is None else f"\n{whose}: {profile_words(test)}"
        pytest.fail(f"{size}, limit {limit}: {reason}{lines}", pytrace=False)


def profile_words(test: str) -> str:
    """The commands that tell which lines need a test's memory. test: the words for it on pytest's command line."""
    return _PROFILED.format(shlex.quote(test))


def words_of(item: pytest.Item) -> dict[str, Any] | None:
    """The arguments of a test's marks by name, None if it has none. Of its class's and module's those count that its own do not give."""
    marks = list(item.iter_markers(MARK))
    if not marks:
        return None
    given: dict[str, Any] = {}
    for mark in reversed(marks):
        given.update({"limit": mark.args[0] if len(mark.args) == 1 else mark.args} if mark.args else {}, **mark.kwargs)
    return given


def _of_all(config: pytest.Config) -> MemoryLimit | None:
    """The limit of all tests, `60MiB` or `60MiB above baseline`; None if the ini file has none. Raises UsageError."""
    text = str(config.getini(INI)).strip("\"' ")
    size = text.removesuffix(_ABOVE).rstrip()
    return MemoryLimit(_limit(size, INI), size != text) if text else None


def _limit(text: str, place: str) -> int:
    """The bytes of a limit on a peak. place: where it stands. Raises UsageError."""
    limit = _size(text, place)
    if limit < _LEAST_LIMIT and text.strip().isdecimal():
        raise UsageError(f'{place}: the limit {text} has no unit, so it is in bytes: write "{text} MiB"')
    return limit


def _size(text: str, place: str) -> int:
    if place == _PLACE and text.endswith(_ABOVE):
        raise UsageError(f'{place}: "{text}" is written as "{text.removesuffix(_ABOVE).rstrip()}", above_baseline=True')
    try:
        return parse_bytes(text)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
