"""The board itself: what the other tests of boards rely on."""

from __future__ import annotations

import pytest

from .booting import Board


@pytest.mark.long
def test_board_aarch64_without_python(board: Board) -> None:
    assert board.run("uname -m; nproc; command -v python3 || echo none").split() == [b"aarch64", b"2", b"none"]


def test_board_kernel_supports_peaks(board: Board) -> None:
    """Exact peaks, their end, and swapped-out pages, with counters that are kept by thread."""
    assert float(b".".join(board.run("uname -r").split(b".")[:2])) < 6.2
    board.run("echo 5 > /proc/self/clear_refs")
    assert b"Rss:" in board.run("cat /proc/self/smaps_rollup")
    assert b"VmSwap:" in board.run("cat /proc/self/status")


def test_board_files_and_failures(board: Board) -> None:
    content = bytes(range(256)) * 1000
    board.put(content, "/tmp/it is 'here'".replace("'", ""), "644")
    assert board.run("cat '/tmp/it is here'") == content
    with pytest.raises(AssertionError):
        board.run("exit 3")
