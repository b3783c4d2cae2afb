"""Control groups of version 2 on a board's own kernel, a run's own and one that is looked at: the machine of the tests may have version 1 alone."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from support.native_programs import folded
from support.recorder_runs import with_patience

from memprof.programs.source_zips import recorder_zip
from memprof.recording.order import lines
from memprof.records.recorder_order import CommandStart, GroupOrder, Message, Start
from memprof.records.types import COMMAND, Job, Model, Run

from .booting import Board
from .test_probe import BOARD, MIB, STEADY_NS, compiled, program  # noqa: F401  (the fixture)

_HOLDS = "hold((size_t)atoi(words[1]) * MIB); sleep(words[2] ? atoi(words[2]) : 60); if (words[3]) hold((size_t)atoi(words[3]) * MIB); sleep(60);"
# $1: the group; then a program with its words. The shell enters the group first: the program is in it from its first moment on.
_START = b"""#!/bin/sh
echo 0 > "$1/cgroup.procs"; shift
setsid "$@" >/dev/null 2>&1 </dev/null &
echo $!
"""


class Pod:
    """A group with a limit, and a group below it with a higher one, on a board."""

    def __init__(self, board: Board) -> None:
        self._board, self.name = board, f"pod-{secrets.token_hex(4)}"
        self.folders = (f"/sys/fs/cgroup/{self.name}/one", f"/sys/fs/cgroup/{self.name}", "/sys/fs/cgroup")
        self._start, self._program = board.keep(_START), board.keep(compiled(_HOLDS))
        make = "cd /sys/fs/cgroup; echo +memory > cgroup.subtree_control; mkdir $0; echo +memory > $0/cgroup.subtree_control; mkdir $0/one"
        board.run(f"sh -ec '{make}; echo 64M > $0/memory.max; echo 96M > $0/one/memory.max' {self.name}")

    def start(self, *words: int) -> int:
        """The process of a program that holds so many MiB, and after so many seconds so many more."""
        text = " ".join(map(str, words))
        return int(self._board.run(f"{self._start} {self.folders[0]} {self._program} {text}"))

    def run(self, command: str, pid: int, condition: str) -> Run:
        """The Run of this recorder there, which looks at the group until this condition of a shell in the group's folder is true."""

        def meanwhile() -> bytes:
            self._board.run(f"cd {self.folders[0]}; until {condition}; do sleep 0.2; done")
            return b"leave 0\n"

        job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
        message = Message(job, Start(attach=pid, watch=self.folders), 200 * 10**9, {"": STEADY_NS})
        return folded(message, self._board.answer(command, lines(message, BOARD), meanwhile), BOARD)

    def end(self) -> None:
        """End what is in it, and remove it."""
        kill = "while read pid; do kill -9 $pid; done < $0/one/cgroup.procs; until rmdir $0/one; do sleep 0.1; done; rmdir $0"
        self._board.run(f"cd /sys/fs/cgroup; sh -c '{kill}' {self.name}")


@pytest.fixture(params=["c", "python"])
def recorder(request: pytest.FixtureRequest) -> tuple[Board, str]:
    """A board, and the command that starts a recorder on it."""
    if request.param == "c":
        board: Board = request.getfixturevalue("board")
        return board, board.keep(request.getfixturevalue("program"))
    board = request.getfixturevalue("wide_board")
    return board, f"python3 -I -S {board.keep(recorder_zip().read_bytes())}"


@pytest.fixture
def pod(recorder: tuple[Board, str]) -> Iterator[Pod]:
    made = Pod(recorder[0])
    yield made
    made.end()


def test_group_of_version_2(recorder: tuple[Board, str], pod: Pod) -> None:
    first, second = pod.start(20), pod.start(15)

    # The kernel adds what its CPUs have counted to the rows of memory.stat every two seconds.
    run = pod.run(recorder[1], first, f"awk '/^anon / {{ exit $2 < {35 * MIB} }}' memory.stat")

    (mark,), charged = run.marks, run.charged
    assert {process.pid for process in run.processes} == {first, second}
    assert charged is not None and mark.working_set_peak_bytes and mark.charged_anon_peak_bytes
    assert 35 * MIB <= mark.charged_anon_peak_bytes <= mark.working_set_peak_bytes < 45 * MIB
    assert 0 < (mark.charged_page_tables_peak_bytes or 0) <= (mark.charged_kernel_peak_bytes or 0) < 4 * MIB
    # The kernel adds a CPU's part of slab to the row when it is large enough, so a small group may have none yet.
    assert mark.charged_slab_peak_bytes is not None and mark.charged_slab_peak_bytes <= (mark.charged_kernel_peak_bytes or 0)
    assert mark.charged_swap_peak_bytes == 0
    assert (charged.limit_bytes, charged.limit_group) == (64 * MIB, pod.folders[1])
    assert 35 * MIB <= (charged.peak_bytes or 0) <= (charged.limit_peak_bytes or 0) < 64 * MIB
    assert charged.oom_kills == 0


def test_kill_at_limit_of_group_above(recorder: tuple[Board, str], pod: Pod) -> None:
    keeper = pod.start(10)
    killed = pod.start(12, 1, 80)  # before the recorder looks on a busy machine: the kernel counts it all the same

    run = pod.run(recorder[1], keeper, f"! grep -qx {killed} cgroup.procs")

    assert run.charged is not None and run.charged.oom_kills == 1
    assert 60 * MIB <= (run.charged.limit_peak_bytes or 0) <= 64 * MIB
    assert run.outcome.ok


# Pipes lie in the kernel's slab: of each two open files, an inode, and what describes its 16 pages. The program tells what its group's memory.stat
# says of them. The board's files are in memory, so that its kernel keeps no names of files that are missing.
_PIPES = r"""
    const char *const rows[] = {"kernel", "kernel_stack", "slab", "pagetables", "sock", "percpu"};
    char text[1 << 14], name[64];
    size_t at;
    int file, ends[2];
    memprof_begin("FEW");
    memprof_end();
    usleep((unsigned)atoi(words[2])); /* the group is read a moment after the mark */
    memprof_begin("PIPES");
    for (at = 0; at < 4000; ++at) if (pipe(ends)) return 11;
    file = open(words[1], O_RDONLY);
    text[read(file, text, sizeof text - 1)] = 0;
    for (at = 0; at < 6; ++at) {
        const char *row;
        snprintf(name, sizeof name, "\n%s ", rows[at]);
        row = strstr(text, name);
        if (row != NULL) memprof_value(rows[at], (double)atoll(row + strlen(name)));
    }
    memprof_end();
    usleep((unsigned)atoi(words[2]));
"""
# The rows of memory.stat that it tells, and what the figures of a mark call them.
_PARTS = {
    **{name: name for name in ("kernel", "slab", "percpu")},
    "kernel_stack": "kernel_stacks",
    "pagetables": "page_tables",
    "sock": "sockets",
}


def test_own_group_with_memory_of_the_kernel(recorder: tuple[Board, str]) -> None:
    there, command = recorder
    name = f"own-{secrets.token_hex(4)}"
    group = f"/sys/fs/cgroup/{name}"
    program = there.keep(compiled(_PIPES))
    there.run("echo +memory > /sys/fs/cgroup/cgroup.subtree_control")

    def attempt(limit_ns: int) -> Run:
        words = ("/bin/sh", "-c", 'ulimit -n 9000; exec "$0" "$@"', program, f"{group}/memory.stat", str(limit_ns // 1000))
        start = Start(argv=words, command=CommandStart(), group=GroupOrder(group))
        message = Message(Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1), start, 200 * 10**9, {"": STEADY_NS})
        return folded(message, there.answer(command, lines(message, BOARD)), BOARD)

    def read_after_pipes(run: Run) -> bool:
        mark = run.mark("PIPES")
        return all(abs((getattr(mark, f"charged_{_PARTS[row.name]}_peak_bytes") or 0) - (row.value or 0)) <= MIB for row in run.values)

    run = with_patience(attempt, read_after_pipes)

    few, pipes, charged = run.mark("FEW"), run.mark("PIPES"), run.charged
    assert run.outcome.ok and few is not None and pipes is not None and charged is not None
    said = {value.name: value.value for value in run.values}
    for row, part in _PARTS.items():
        figure, whole = getattr(pipes, f"charged_{part}_peak_bytes"), getattr(charged, f"{part}_peak_bytes")
        assert (figure is None) == (whole is None) == (row not in said)
        assert figure is None or (abs(figure - (said[row] or 0)) <= MIB and whole >= figure)
    assert (pipes.charged_slab_peak_bytes or 0) - (few.charged_slab_peak_bytes or 0) >= 4000 * 1024
    parts_bytes = (pipes.charged_slab_peak_bytes or 0) + (pipes.charged_page_tables_peak_bytes or 0)
    assert (pipes.charged_kernel_peak_bytes or 0) >= parts_bytes - MIB // 4  # peaks of two moments, which the kernel counts in batches
