"""The sum of a tree: programs whose memory is known, and the arithmetic of what may change the overlap of processes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.attacks import trees
from support.native_programs import built, program, ran, ran_until_seen
from support.recorder_runs import MIB, with_patience
from support.sample_runs import run as made_run

from memprof.records.types import Process
from memprof.reports.tables import table

# Those that hold little enough for many tests at once, whose bounds are close, and that a busy recorder does not miss.
SMALL = [case for case, (held, _) in trees.CASES.items() if held < 1000 and case not in (*trees.WIDE, "vfork-short")]


# The recorders take turns: what each of them reads is shown alike by tests/process/recorder.
TURNS = [(("python", "c")[place % 2], case) for place, case in enumerate(SMALL)]


@pytest.mark.parametrize(("recorder", "case"), TURNS, indirect=["recorder"])
def test_tree_sum_within_bounds(recorder, case):
    least, most = trees.truth(case)
    # A recorder that was held up until all was over has not seen it: then all goes on for longer.
    run = with_patience(
        lambda limit_ns: ran(built(trees.SOURCE), case, limit_ns // 10**9),
        lambda run: run.marks and (run.marks[0].rss_peak_high_bytes or 0) >= least * MIB,
    )

    (mark,) = run.marks
    assert mark.rss_peak_bytes <= most * MIB
    assert mark.rss_peak_high_bytes >= least * MIB
    assert run.timeline.rss_max_bytes <= mark.rss_peak_bytes
    assert run.timeline.rss_max_high_bytes >= mark.rss_peak_high_bytes


def test_phase_bounds_independent(tmp_path):
    body = """memprof_begin("FORKS"); hold(40 * MIB); for (int i = 0; i < 3; ++i) if (fork() == 0) { usleep(atoi(words[2])); _exit(0); }
        while (wait(NULL) > 0); memprof_end();
        memprof_begin("OWN"); if (fork() == 0) { hold(60 * MIB); until(words[1]); _exit(0); } wait(NULL); memprof_end();
        memprof_begin("ALONE"); memprof_end();"""
    run = with_patience(
        lambda limit_ns: ran_until_seen(99, tmp_path / f"seen {limit_ns}", program(body), limit_ns // 4000),
        lambda run: run.mark("FORKS").rss_peak_high_bytes,
    )

    forks, own, alone = (run.mark(phase) for phase in ("FORKS", "OWN", "ALONE"))
    assert 40 * MIB <= forks.rss_peak_bytes <= 46 * MIB <= 99 * MIB <= own.rss_peak_bytes <= 104 * MIB
    assert forks.rss_peak_bytes <= forks.rss_peak_high_bytes and own.rss_peak_bytes <= own.rss_peak_high_bytes
    assert alone.rss_peak_exact and alone.rss_peak_high_bytes is None


def test_peak_marked_when_bounds_apart():
    run = made_run(exact=False)
    mark = run.marks[-1]
    for processes, why in (
        ((), "smaller than memprof's recorder"),
        ((Process(1, "a", 0, 1, MIB), Process(2, "b", 0, 1, MIB)), "for certain"),
    ):
        for high, shown in ((mark.rss_peak_bytes * 1.009, False), (mark.rss_peak_bytes * 1.2, True)):
            text = table.render([replace(run, processes=processes, marks=(replace(mark, rss_peak_high_bytes=round(high)),))])
            assert ("~" in text) == shown
            assert (f"{why}, and up to 20% more is possible" in text) == shown
