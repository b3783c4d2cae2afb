"""The recorder in Python on a board with Debian's Python, for runtimes that need an interpreter there."""

from __future__ import annotations

from msgspec.structs import replace
from support.native_programs import folded

from memprof.base.counter_bounds import peak_bound
from memprof.programs.source_zips import recorder_zip
from memprof.recording.order import lines
from memprof.records.recorder_order import CommandStart, Message, Start
from memprof.records.types import COMMAND, Job, Model

from .booting import Board
from .test_probe import BOARD, STEADY_NS, looked_at


def test_python_recorder_answers_on_board(wide_board: Board) -> None:
    recorder = f"python3 -I -S {wide_board.keep(recorder_zip().read_bytes())}"
    job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
    start = Start(argv=("/bin/sh", "-c", "test $(nproc) = 1 && sleep 0.3"), command=CommandStart(), cpus=(0,))

    message, machine = Message(job, start, 60 * 10**9, {"": STEADY_NS}), replace(BOARD, cpus=4)

    run = folded(message, wide_board.answer(recorder, lines(message, machine)), machine)

    assert run.outcome.ok, run
    assert run.machine.peak_bound_bytes == peak_bound(run.machine.kernel, 4096, 4, 1)
    mark = run.mark("RUN")
    assert mark is not None and (mark.rss_peak_bytes or 0) > 0


def test_held_process_readable_despite_yama(wide_board: Board) -> None:
    recorder = f"python3 -I -S {wide_board.keep(recorder_zip().read_bytes())}"
    assert looked_at(wide_board, recorder, held=True)
    assert not looked_at(wide_board, recorder, held=False)
