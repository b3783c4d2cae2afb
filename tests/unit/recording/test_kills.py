"""Whether a process that was killed was killed for lack of memory."""

from __future__ import annotations

import pytest

from .written import ROOT, Recording


def killed(
    *counts: tuple[object, object], named: tuple[object, ...] = (), signal: int = 9, group: int | None = None, code: int = 0
) -> object:
    """out_of_memory of a program that ended so. counts: of the machine and of the container, before it and after; named: by the kernel's log."""
    recording = Recording()
    recording.lines[3:3] = [b"kills 1 %s %s\n" % tuple(str(part).encode() for part in counts[0])] if counts else []
    for machine, container in counts[1:]:
        recording.tell(f"kills %d {machine} {container}")
    for pid in named:
        recording.tell(f"kernel %d {pid}")
    if group is not None:
        recording.group(1, 1, 1, group)
    return recording.run(signal=signal, code=code).outcome.out_of_memory


@pytest.mark.parametrize(
    ("counts", "named", "answer"),
    [
        ([], [], False),  # nobody counts
        ([("-", "-"), ("-", "-")], [], False),
        ([(5, 2), (5, 2)], [], False),
        ([(5, 2), (6, 3)], [ROOT], True),
        ([(5, 2), (6, 3)], [78], False),  # another one was
        ([(5, 2), (7, 4)], [78], None),  # the log does not tell of the second
        ([(5, 2), (7, 4)], [78, ROOT], True),
        ([(5, 2), (6, 3)], [], None),
        ([(5, 2), (6, 3)], ["-"], None),
        ([(5, 2), (6, 3)], ["-", 78], None),  # it may have been in the part that is lost
        ([(5, 2), (6, 3)], ["-", ROOT], True),
        ([(5, 2), (6, 2)], [], False),  # in another container
        ([(5, "-"), (6, "-")], [], None),  # of the whole machine alone
        ([("-", "-"), (1, "-")], [], None),
    ],
)
def test_log_tells_whom_the_kernel_killed(counts: list[tuple[object, object]], named: list[object], answer: bool | None) -> None:
    assert killed(*counts, named=tuple(named)) is answer


def test_other_ends_are_no_want_of_memory() -> None:
    assert killed((5, 2), (6, 3), named=(ROOT,), signal=11) is False
    assert killed((5, 2), (6, 3), named=(ROOT,), signal=0, code=1) is False


def test_own_group_knows_for_certain() -> None:
    assert killed(group=1) is True
    assert killed(group=0) is False


def test_shell_tells_of_a_kill_by_its_code() -> None:
    recording = Recording(command=None)
    recording.lines[3:3] = [b"kills 1 5 2\n"]
    recording.spawn(101)
    recording.startup(101)
    recording.zombie(101)
    recording.tell("kills %d 6 3")
    recording.tell("kernel %d 101")
    run = recording.run(code=137)
    assert (run.outcome.signal, run.outcome.out_of_memory) == ("SIGKILL", True)
    assert run.outcome.sentence.endswith(": the kernel killed it for lack of memory")


def test_perhaps_is_said() -> None:
    recording = Recording()
    recording.lines[3:3] = [b"kills 1 5 2\n"]
    recording.tell("kills %d 6 3")
    run = recording.run(signal=9)
    assert "; perhaps for lack of memory: the kernel killed a process meanwhile" in run.outcome.sentence
