"""The probe in Python on a board with Debian's Python, for runtimes that need an interpreter there."""

from __future__ import annotations

from memprof.measuring.bundle import probe_zip
from memprof.measuring.message import Message, Start, encode
from memprof.probe import procfs
from memprof.runs import store
from memprof.runs.records import COMMAND, Job, Model

from .booting import Board
from .test_probe import looked_at


def test_it_answers_there(wide_board: Board) -> None:
    wide_board.put(probe_zip().read_bytes(), "/tmp/probe.zip", "644")
    job = Job(Model("m", "/m", (), 0, ""), COMMAND, "v", 1, 0, 1)
    start = Start(argv=("/bin/sh", "-c", "test $(nproc) = 1 && sleep 1"), command={"regexes": [], "alone": False}, cpus=(0,))

    out = wide_board.answer("python3 -I -S /tmp/probe.zip", encode(Message(job, start, 60 * 10**9, {"": 10**6})))

    run = store.decode(out[out.rindex(b"run {") + 4 :].rstrip(), "its answer")
    assert run.outcome.ok, run
    assert (run.machine.arch, run.machine.name) == ("aarch64", "board")
    assert run.machine.peak_bound_bytes == procfs.peak_bound(1, 1, 8, run.machine.kernel)
    mark = run.mark("RUN")
    assert mark is not None and (mark.rss_peak_bytes or 0) > 0


def test_a_process_that_is_held_may_be_looked_at_where_yama_forbids_it(wide_board: Board) -> None:
    wide_board.put(probe_zip().read_bytes(), "/tmp/probe.zip", "644")
    assert looked_at(wide_board, "python3 -I -S /tmp/probe.zip", held=True)
    assert not looked_at(wide_board, "python3 -I -S /tmp/probe.zip", held=False)
