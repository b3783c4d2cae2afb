"""`memprof fit`: limits on what the synthetic runtime is known to need, and that no control group stays behind."""

import math
import os
import sys

import pytest
from msgspec.structs import replace
from support import sample_runs as made_up
from support.fit_results import MIB, coarse, made  # noqa: F401  (the fixtures)

from memprof.base import control_groups, processes
from memprof.base.errors import InputError
from memprof.base.processes import boot
from memprof.doors.cli import answers
from memprof.footprint import fit
from memprof.footprint.fit import LimitPoint, PartLimit
from memprof.footprint.shared_files import HeldFiles
from memprof.places import cgroups
from memprof.records.types import EXECUTE, MODEL_LOAD, Outcome
from memprof.reports.pictures import fit as report
from memprof.reports.tables.fit import render

TOO_MUCH = Outcome("signal", EXECUTE, signal="SIGKILL", out_of_memory=True)


def test_group_notes_of_gone_folders_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    group = tmp_path / f"{control_groups.PREFIX}-{boot()}-{os.getpid()}-1-1"
    group.mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(processes, "pid_namespace", lambda: "another/1")
        control_groups.note_groups_in(tmp_path)
    control_groups.note_groups_in(tmp_path / "gone")

    control_groups.remove_noted_orphans()

    assert group.exists()
    (note,) = (tmp_path / "memprof" / "groups").iterdir()
    assert note.read_text() == f"another/1\n{tmp_path}"


HIERARCHIES = {
    "version 1": (
        "4:memory:/a/b\n",
        "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        [(1, "/sys/fs/cgroup/memory/a/b")],
    ),
    "version 2": ("0::/user.slice/x\n", "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", [(2, "/sys/fs/cgroup/user.slice/x")]),
    "a container's root": ("4:memory:/docker/1\n", "30 25 0:26 /docker/1 /cg rw - cgroup cgroup rw,memory\n", [(1, "/cg")]),
    "outside the mount": ("4:memory:/other\n", "30 25 0:26 /docker/1 /cg rw - cgroup cgroup rw,memory\n", [(1, "/cg")]),
    "no memory controller": ("3:cpu:/\n", "30 25 0:26 / /cg rw - cgroup cgroup rw,cpu\n", []),
}


@pytest.mark.parametrize(("memberships", "mounts", "expected"), HIERARCHIES.values(), ids=HIERARCHIES)
def test_hierarchies_of_this_process(memberships, mounts, expected, tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(memberships)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)

    assert [(version, str(own)) for version, _, own in cgroups.hierarchies(tmp_path)] == [
        (version, f"{tmp_path}{own}") for version, own in expected
    ]


def test_report_absent_figures_and_endings():
    text = render(made())

    assert (
        "a\\|b.onnx, x: runs in 52.0 MiB, where an iteration takes 2.0 times as long as with no limit; its RSS peak with no limit is 60.0 MiB."
        in text
    )
    assert [cell.strip() for cell in text.splitlines()[6].strip("|").split("|")] == ["whole run", "52.0", "60.0", "-"]
    assert "SIGKILL |" in text
    assert "- slow" in text
    assert "2.00x" in text
    assert "refaults" not in text
    again = render(made(curve=(LimitPoint(52 * MIB, 2e7, 100.0, 3.0, None, 4096.0), LimitPoint(None, 1e7, 0.0, 0.0))))
    rows = [[cell.strip() for cell in line.split("|")] for line in again.splitlines() if "2.00x" in line or "1.00x" in line]
    assert [row[7] for row in rows] == ["4096", "-"] and "| refaults |" in again


@pytest.mark.parametrize(
    ("bytes_", "unit", "said", "cells"),
    [
        (2000.4 * MIB, None, "runs in 2000 MiB; its RSS peak with no limit is 2100 MiB", ["2000", "2100"]),
        (2000.4 * MIB, "GiB", "runs in 1.95 GiB; its RSS peak with no limit is 2.05 GiB", ["1.95", "2.05"]),
        (5.126 * MIB, None, "runs in 5.13 MiB; its RSS peak with no limit is 105.1 MiB", ["5.13", "105.1"]),
    ],
)
def test_sentence_and_table_agree(bytes_, unit, said, cells):
    parts = (PartLimit("whole run", int(bytes_), int(bytes_ + 100 * MIB), None, 12),)
    text = render(made(parts=parts, threads=1, shapes={"x": (1, 8)}, assumed={"x": (1, 8)}), unit=unit)

    assert text.startswith("a\\|b.onnx, x, 1 thread, x=1x8: ")
    assert "resources:  # measured with 1 thread (set the same in the program), x=1x8 (open dimensions taken as 1: --shape)" in text
    assert "\n- x: open dimensions of the model are taken as 1 (--shape sets others)." in text
    assert said in text
    assert [cell.strip() for cell in text.splitlines()[6].strip("|").split("|")][1:3] == cells


def test_partly_failed_runs_told_apart():
    curve = (
        LimitPoint(52 * MIB, 2e7, 100.0, 3.0),
        LimitPoint(54 * MIB, 1e7, 5.0, 0.0, "1 of 3 failed (timeout)"),
        LimitPoint(60 * MIB, 1e7, 5.0, 0.0),
        LimitPoint(None, 1e7, 0.0, 0.0),
    )
    parts = (PartLimit("whole run", 60 * MIB, 60 * MIB, None, 12, 3),)
    mixed = made(parts=parts, curve=curve)
    figure = report.picture(mixed)

    assert "Where some runs failed, time and page faults are medians of those that worked." in render(mixed)
    assert (
        "All runs worked in 52.0 MiB, and yet some failed in up to 54.0 MiB: a group is not charged for the pages of libraries"
        in render(mixed)
    )
    assert "some failed in up to 54.0 MiB: a run on a busy machine can fail" in render(replace(mixed, exact=False))
    assert "and yet some failed" not in render(made(curve=curve[:1] + curve[2:]))
    assert "Where some runs failed" not in render(made()), "nothing is shown of a limit at which all failed"
    for axes in figure.axes[:2]:
        hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white" and len(line.get_xdata())]
        joined = [line for line in axes.lines if line.get_marker() not in ("None", "") and line not in hollow and len(line.get_xdata())]
        assert hollow and all(list(line.get_xdata()) == [54.0] and line.get_linestyle() == "None" for line in hollow)
        assert all(list(line.get_xdata()) == [52.0, 54.0, 60.0] for line in joined)
        assert all([math.isnan(value) for value in line.get_ydata()] == [False, True, False] for line in joined), "no line over a failure"
    assert "of the runs that did not fail" in {text.get_text() for text in figure.texts}


def test_failures_are_counted():
    ended = [made_up.run(outcome=outcome) for outcome in (Outcome("timeout", EXECUTE), None, Outcome("timeout", EXECUTE), TOO_MUCH)]

    assert fit._at(MIB, ended).ended == "3 of 4 failed (timeout, out of memory)"
    assert fit._at(MIB, ended[::2]).ended == "2 of 2 failed (timeout)"
    assert fit._at(MIB, ended[1:2]).ended is None


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        # the peak with no limit is below the limit, or above it; what its group was charged
        (
            (60, 40),
            {"charged": 55},
            "runs here within 60.0 MiB, in 3 of 3 trials. Its group was charged 55.0 MiB at most, with the page cache that the kernel drops at "
            "the limit; 5.00 MiB stayed free. "
            "With no limit its RSS peak is 40.0 MiB, 20.0 MiB (33%) below the limit. The first container on a machine may need as much",
        ),
        (
            (60, 85),
            {"charged": 60},
            "Its group was charged the whole limit: there the kernel drops pages of files, and reads them again when needed. "
            "With no limit its RSS peak is 85.0 MiB, 25.0 MiB more than the limit. The first container on a machine may need as much, for the "
            "pages of its libraries are charged to it. So no lines for a manifest follow, as these need a limit of 85.0 MiB or more.",
        ),
        (
            (60, 40),
            {"times": 4},
            "runs here within 60.0 MiB, in 3 of 3 trials, where an iteration takes 4.0 times as long as with no limit. Its group",
        ),
        ((60, 40), {"times": 4, "refaults": 0}, "runs here within 60.0 MiB, in 3 of 3 trials. Its"),
        (
            (60, 40),
            {"complete": False, "worked": 2},
            "whether it runs within 60.0 MiB is not known: it ran in 2 of 3 trials, and 3 are needed; ",
        ),
        ((None, 40), {"failed_bytes": 60 * MIB}, "does not run within 60.0 MiB: trial 3 of 3 failed, which ended them; "),
    ],
)
def test_verdict_within_limit(part, changes, words):
    least, peak = (None if mib is None else mib * MIB for mib in part)
    times, charged, refaults = (changes.pop(name, usual) for name, usual in (("times", 1), ("charged", 60), ("refaults", 9.0)))
    whole = PartLimit("whole run", least, peak, None, **{"trials": 3, "worked": 3, **changes})
    under = LimitPoint(60 * MIB, times * 1e7, 9.0, refaults, None, refaults, 3, (times * 1e7,) * 3, charged * MIB)
    fitted = made(parts=(whole,), curve=(under, LimitPoint(None, 1e7, 0.0, 0.0, None, 0.0, 3, (1e7,) * 3)), within_bytes=60 * MIB)
    text = render(replace(fitted, tune_command="memprof tune m --budget 60MiB", gate_command=("memprof gate --budget", "-- m")))

    assert words in text
    sure = least is not None and whole.complete
    assert ("resources:" in text) == ("    memprof gate --budget 60MiB -- m" in text) == (sure and peak <= least)
    assert ("no lines for a manifest follow" in text) == (sure and peak > least)
    assert ("    memprof tune m --budget 60MiB" in text) == (not sure or peak > least)
    assert (fitted.unmet == "") == sure


@pytest.mark.parametrize(
    ("failed", "interrupted", "cell", "words"),
    [
        (
            40,
            False,
            "40.0 to 52.0",
            "the least limit in which it runs is between 40.0 MiB and 52.0 MiB (the time was up); in 52.0 MiB an iteration takes 2.0 times",
        ),
        (0, True, "0.000 to 52.0", "the least limit in which it runs is at most 52.0 MiB (the search was interrupted); in 52.0 MiB an"),
    ],
)
def test_least_limit_of_unfinished_search(failed, interrupted, cell, words):
    part = PartLimit("whole run", 52 * MIB, 60 * MIB, None, 2, 1, failed * MIB, complete=False)
    text = render(made(parts=(part,), interrupted=interrupted))

    assert words in text and "runs in 52.0" not in text
    assert f"| {cell} |" in " ".join(text.split())


def test_settings_in_words_of_runtime():
    words = render(made(settings="optimization=off", calls=("so.level = ALL_OFF",)))
    threads = render(made(threads=1, calls=("so.threads = 1",)))

    assert "In your program, for `optimization=off`: `so.level = ALL_OFF`." in words and "In your program" not in render(made())
    assert "In your program, for `threads=1`: `so.threads = 1`." in threads


def test_late_runs_stand_in_their_row():
    """A time beside a run that was ended may be the limit's own: no mark says otherwise."""
    under = LimitPoint(75 * MIB, 9e5, 26.0, 0.0, None, 0.0, 1, (9e5,))
    plain = LimitPoint(None, 6e5, 26.0, 0.0, None, 0.0, 3, (5.9e5, 6e5, 7e5))
    late = " ".join(render(made(curve=(replace(under, late="1 of 2 was ended after 5 s"), plain))).split())

    assert "| 1.50x | 26 | 0 | 0 | 1 of 2 was ended after 5 s |" in late and "not by the limit" not in late
    assert "1.50x (not by the limit) |" in render(made(curve=(under, plain)))


@pytest.mark.parametrize(
    ("times_ns", "faults", "cell"),
    [
        ((7e6, 7.3e6, 8e6), (0.0, 0.0), "12.17x (not by the limit)"),  # no page had to be read again: something else made it slow
        ((7e6, 7.3e6, 8e6), (90.0, 0.0), "12.17x"),
        ((7e6, 7.3e6, 8e6), (0.0, 1970.0), "12.17x"),
        ((5e5, 7.3e6, 8e6), (90.0, 2000.0), "12.17x"),  # one fast run does not take that from the others
        ((6.5e5, 8e5, 9e5), (90.0, 2000.0), "1.33x (not by the limit)"),
        ((7e6, 7.3e6, 8e6), (None, None), "12.17x"),
        ((1e5,), (2.0, 0.0), "0.17x"),
    ],
)
def test_noise_in_times_is_marked(times_ns, faults, cell):
    time_ns = times_ns[len(times_ns) // 2]
    under = LimitPoint(75 * MIB, time_ns, 26.0, faults[0], None, faults[1], 3, times_ns)
    plain = LimitPoint(None, 6e5, 26.0, 0.0, None, 0.0, 3, (5.9e5, 6e5, 7e5))
    text = render(made(curve=(under, plain)))

    assert f"| {cell} |" in " ".join(text.split())
    assert ("- (not by the limit): " in text) == ("not by" in cell)


@pytest.mark.parametrize(
    ("slow_ns", "scale", "words"), [(9e6, "linear", "one iteration (ms)"), (1.2e9, "log", "one iteration (ms), logarithmic")]
)
def test_picture_shows_small_latencies_beside_large(slow_ns, scale, words):
    curve = (LimitPoint(50 * MIB, slow_ns, 9.0, 9.0), LimitPoint(57 * MIB, 2e6, 0.0, 0.0), LimitPoint(None, 1e6, 0.0, 0.0))
    figure = report.picture(made(curve=curve))
    figure.canvas.draw()
    upper = figure.axes[0]

    assert (upper.get_yscale(), upper.get_ylabel()) == (scale, words)
    low, high = (upper.transData.transform((57, value))[1] for value in (1, 2))
    assert high - low > 10, "a factor of two is seen"


def test_nothing_found_without_picture():
    nothing = made(parts=(PartLimit("whole run", None, 60 * MIB, None, 5),), curve=(LimitPoint(None, 1e7, 0.0, 0.0),))

    assert "no limit was found under which it runs" in render(nothing)
    with pytest.raises(InputError, match="nothing to draw"):
        report.picture(nothing)


def test_picture_without_least_limit_has_curve():
    """All limits that worked did so below one that failed, and the time was up."""
    curve = (LimitPoint(52 * MIB, 2e7, 0.0, 0.0), LimitPoint(54 * MIB, 2e7, 0.0, 0.0, "1 of 3 failed"), LimitPoint(None, 1e7, 0.0, 0.0))
    figure = report.picture(made(parts=(PartLimit("whole run", None, 60 * MIB, None, 5),), curve=curve))

    written = " ".join(text.get_text() for text in figure.texts)
    assert "No limit was found under which it runs" in written and "RSS peak with no limit 60.0 MiB" in written
    assert "least limit" not in written


def test_files_that_others_hold_are_told():
    """The limit holds only beside those who hold the files; without such, nothing is said."""
    text = render(made(held=HeldFiles(12 * MIB, ("python 12", "java 13"))))
    assert "runs in 52.0 MiB while other processes hold 12.0 MiB of its files, where an iteration takes 2.0 times" in text
    assert "up to 12.0 MiB of them here, those of python 12, java 13 and memprof." in text
    assert "hold" not in render(made()).partition(";")[0] and "of them here" not in render(made())
    (part,) = made().parts
    unfinished = render(made(parts=(replace(part, complete=False, failed_bytes=50 * MIB),), held=HeldFiles(12 * MIB)))
    assert "between 50.0 MiB and 52.0 MiB while other processes hold 12.0 MiB of its files (the time was up)" in unfinished


def test_report_text_and_markdown():
    fitted = made(remarks=("MODEL_LOAD: <lambda> | a",))

    assert "a|b.onnx, x: runs" in render(fitted, format="text")
    assert "- MODEL_LOAD: <lambda> | a" in render(fitted, format="text")
    assert "- MODEL_LOAD: `<lambda>` \\| a" in render(fitted)


@pytest.mark.parametrize(("terminal", "said"), [(True, "- <b> | x"), (False, "- `<b>` \\| x")])
def test_answer_format_by_terminal(terminal, said, monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    answers.answer("fit", lambda progress, keep: made(remarks=("<b> | x",)), answers.Showing(None, False, None, None, False, False))

    assert said in capsys.readouterr().out


def test_report_single_phase_and_allocation_limit():
    load = made(parts=(PartLimit(MODEL_LOAD, 30 * MIB, 50 * MIB, 20 * MIB, 9),), curve=(LimitPoint(None, 1e7, 0.0, 0.0),))

    assert "x: MODEL_LOAD works in 30.0 MiB." in render(load)
    assert "Under a limit" not in render(load), "there is no curve"
    assert "of what it allocates" in render(made(exact=False))
    assert "compare limits with one another" in render(made(exact=False))


@pytest.mark.parametrize(
    ("faults", "labels"),
    [((100.0, 0.0), {"0", "60", "120"}), ((20_000.0, 3.0), {"0", "1", "100", "10,000"}), ((0.0, 0.0), {"0", "1"})],
)
def test_picture_axes_plain_numbers(faults, labels):
    curve = (LimitPoint(52 * MIB, 2e7, *faults), LimitPoint(57 * MIB, 1.5e7, 0.0, 0.0), LimitPoint(None, 1e7, 0.0, 0.0))
    figure = report.picture(made(curve=curve))
    figure.canvas.draw()
    lower = figure.axes[1]

    assert labels <= {label.get_text() for label in lower.get_yticklabels()}
    assert lower.get_xlabel() == "limit over the whole run (MiB)"
    written = " ".join(text.get_text() for text in figure.texts)
    assert "least limit 52.0 MiB" in written
    assert "RSS peak with no limit 60.0 MiB" in written


@pytest.mark.parametrize(("phase", "where"), [("PREPARE", "in PREPARE"), ("after PREPARE", "after PREPARE")])
def test_outcome_place_in_sentence(phase, where):
    assert Outcome("timeout", phase).sentence.endswith(where)
    assert Outcome("timeout", phase).where == where
