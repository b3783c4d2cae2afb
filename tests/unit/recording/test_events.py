"""The fields of a recording's lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memprof.recording import events
from memprof.recording.events import Shares, StatFields


@given(st.binary(max_size=40) | st.text("\\n\n", max_size=12).map(str.encode))
def test_text_survives_its_escapes(text: bytes) -> None:
    escaped = events.escaped(text)
    assert b"\n" not in escaped
    assert events.unescaped(escaped) == text


def test_stat_is_read_from_its_place() -> None:
    assert events.stat_at([b"x", b"S", b"1", b"2", b"3", b"4", b"5", b"6", b"y"], 1) == (StatFields("S", 1, 2, 3, 4, 5, 6), 8)
    assert events.stat_at([b"-", b"y"], 0) == (None, 1)


@pytest.mark.parametrize(("state", "threads", "over"), [("S", 1, False), ("Z", 1, True), ("Z", 2, False), ("X", 1, True), ("Z", 0, True)])
def test_first_thread_may_end_alone(state: str, threads: int, over: bool) -> None:
    assert StatFields(state, 0, 0, 0, 0, threads, 0).over is over


def test_status_is_in_bytes() -> None:
    fields = b"8 9 4 5 3 1 - 2 7 next".split()
    sizes = {"vms": 8192, "vms_peak": 9216, "rss": 4096, "hwm": 5120, "anon": 3072, "file": 1024, "swap": 2048, "threads": 7}
    assert events.status_at(fields, 0) == (sizes, 9)
    assert events.status_at([b"-", b"next"], 0) == ({}, 1)


@pytest.mark.parametrize(
    ("line", "shares"),
    [
        # Rss Pss Pss_Anon Anonymous Shared_Clean Shared_Dirty Private_Clean Private_Dirty
        (b"100 60 40 80 10 70 5 15", Shares(100, 60, 80, 0, 80, 20)),
        (b"100 60 80 80 10 70 5 15", Shares(100, 60, 80, 40, 80, 20)),  # all that is shared is of files
        (b"100 60 - 80 10 20 - -", Shares(100, 60, 80, 0, 30, 0)),  # before Linux 5.4
    ],
)
def test_shares_tell_files_from_anonymous(line: bytes, shares: Shares) -> None:
    in_bytes = Shares(
        *(size << 10 for size in (shares.rss, shares.pss, shares.anon, shares.file_overlap, shares.shared_anon, shares.private))
    )
    assert events.shares_at(line.split(), 0) == (in_bytes, 8)
    assert events.shares_at([b"-"], 0) == (None, 1)
