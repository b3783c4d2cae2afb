"""The lines of a program in the stacks of a Python process: they are what allocates in every view, in place of C code that they call."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.sample_profiles import MIB, PEAK, of_stacks, profile, write

from memprof.base.runners import runners_path
from memprof.heap import diff
from memprof.heap.file_names import short_file
from memprof.heap.frames import BELOW, NO_MODULE, Frame
from memprof.heap.growth_sites import rises
from memprof.heap.names import group_name
from memprof.heap.profile import HeapProfile, PhaseSpan
from memprof.heap.shape import LargestFrame, shape, sums
from memprof.reports.heap import labels, plot, show
from memprof.reports.heap.diff import DiffView
from memprof.reports.heap.diff import render as render_diff
from memprof.reports.heap.page import drawn
from memprof.reports.heap.show import ProfileView

MALLOC = Frame("malloc", module=NO_MODULE)
NUMPY = Frame("default_malloc", module=NO_MODULE)
ASTYPE = Frame("array_astype", module=NO_MODULE)
CALL = Frame("PyObject_Vectorcall", "Objects/call.c", 299, NO_MODULE)
MEAN = Frame("_mean", "/venv/lib/python3.11/site-packages/numpy/core/_methods.py", 118)
RESIZE = Frame("resize", "/home/u/imglib.py", 9)
TEST = Frame("test_batch", "/home/u/test_imglib.py", 17)
PYTEST = Frame("pytest_pyfunc_call", "/venv/lib/python3.11/site-packages/_pytest/python.py", 187)
CONSOLE = Frame("console_main", "/venv/lib/python3.11/site-packages/_pytest/config/__init__.py", 201)
MEMRAY = Frame("run", "/venv/lib/python3.11/site-packages/memray/commands/run.py", 70)
IMPORT = Frame("_compile_bytecode", "<frozen importlib._bootstrap_external>", 729)
RUNPY = Frame("run_path", "/usr/lib/python3.11/runpy.py", 291)
MARKS = Frame("_words", "/home/u/memprof_marks.py", 340)
PACKAGE = Frame("<module>", "/home/u/imglib/__init__.py", 17)
START = Frame("__libc_start_main_impl", "../csu/libc-start.c", 360, NO_MODULE)
OUTSIDE = (CALL, PYTEST, RUNPY, MEMRAY, START)


def paths(made: HeapProfile, invert: bool = False, by: str = "line", fold: bool = True) -> list[list[str]]:
    """The names from the root to each end of the tree."""
    tree = made.snapshots[0].tree
    assert tree is not None
    shaped = shape(made, tree, by=by, invert=invert, fold=fold)  # type: ignore[arg-type]
    ends = []
    for node in range(1, len(shaped)):
        if node not in shaped.parent:
            path, at = [], node
            while at > 0:
                path.append(shaped.names[shaped.group[at]] if shaped.group[at] >= 0 else "(smaller)")
                at = shaped.parent[at]
            ends.append(path[::-1])
    return ends


@pytest.mark.parametrize(
    ("stack", "lines"),
    [
        ((MALLOC, NUMPY, ASTYPE, CALL, RESIZE, CALL, TEST, *OUTSIDE), ["resize (imglib.py:9)", "test_batch (test_imglib.py:17)"]),
        ((NUMPY, CALL, MEAN, CALL, RESIZE, *OUTSIDE), ["resize (imglib.py:9)"]),
        ((NUMPY, IMPORT, *OUTSIDE), ["pytest_pyfunc_call (_pytest/python.py:187)"]),
        ((NUMPY, IMPORT, MEAN, PYTEST, CONSOLE, RUNPY, MEMRAY), ["console_main (_pytest/config/__init__.py:201)"]),
        ((NUMPY, IMPORT, RUNPY, MEMRAY), ["_compile_bytecode (<frozen importlib._bootstrap_external>:729)", "run_path (runpy.py:291)"]),
        ((NUMPY, Frame("<module>", "<string>", 1), RUNPY, MEMRAY), ["<module> (<string>:1)"]),
        ((NUMPY, Frame("grow", "src/ext.c", 40, NO_MODULE), CALL, RESIZE, *OUTSIDE), ["grow (ext.c:40)", "resize (imglib.py:9)"]),
        ((NUMPY, START), ["default_malloc", "__libc_start_main_impl (libc-start.c:360)"]),
        ((MALLOC, MARKS, CALL, RESIZE, *OUTSIDE), ["resize (imglib.py:9)"]),
        ((MALLOC, PACKAGE, TEST, *OUTSIDE), ["<module> (imglib/__init__.py:17)", "test_batch (test_imglib.py:17)"]),
        ((MEAN, BELOW), ["_mean (numpy/core/_methods.py:118)", "(smaller)"]),
    ],
    ids=[
        "own",
        "package",
        "import",
        "plugin",
        "standard library",
        "text",
        "own C",
        "no Python",
        "marks",
        "package's file",
        "cut by the tool",
    ],
)
def test_stack_has_lines_of_program(stack, lines):
    others = (RESIZE,), 1.0  # so that the profile has Python
    made = of_stacks((stack, 6), others)
    assert lines in paths(made)
    assert lines[::-1] in paths(made, invert=True)


def test_stack_of_runner_keeps_runtime_frames():
    runtime = Frame("tflite::Invoke", module="/lib/libtflite.so")
    file = f"{runners_path()}/runtimes/tflite.py"
    runner = Frame("execute", file, 90)
    own = Frame("load", "/home/u/my_runtime.py", 3)
    made = of_stacks(((MALLOC, runtime, CALL, own, runner), 6))

    lines = ["load (my_runtime.py:3)", f"execute ({short_file(file)}:90)"]
    assert paths(made) == [["tflite::Invoke", "PyObject_Vectorcall (call.c:299)", *lines]]


def test_no_fold_keeps_every_frame():
    stack = (MALLOC, NUMPY, ASTYPE, CALL, RESIZE, CALL, TEST, *OUTSIDE)

    assert len(paths(of_stacks((stack, 6)), fold=False)[0]) == len(stack)


def test_library_stays_a_module():
    offset = Frame("libonnxruntime.so+0x12", module="/lib/libonnxruntime.so.1", kind="unknown")
    made = of_stacks(((MALLOC, offset, CALL, RESIZE, *OUTSIDE), 6), ((NUMPY, CALL, RESIZE, *OUTSIDE), 2))

    assert paths(made, by="module") == [["libonnxruntime", "python"], ["python"]]


def before_and_after() -> tuple[HeapProfile, HeapProfile]:
    return (
        of_stacks(((MALLOC, NUMPY, CALL, RESIZE, CALL, TEST, *OUTSIDE), 24), ((NUMPY, CALL, TEST, *OUTSIDE), 6), path="a.bin"),
        of_stacks(((MALLOC, NUMPY, CALL, RESIZE, CALL, TEST, *OUTSIDE), 96), ((NUMPY, CALL, TEST, *OUTSIDE), 6), path="b.bin"),
    )


def test_every_view_names_program_line():
    _, made = before_and_after()
    tree = made.snapshots[0].tree
    assert tree is not None

    assert [(name, own // MIB) for _, name, own, _ in sums(made, tree, by="line")] == [
        ("resize (imglib.py:9)", 96),
        ("test_batch (test_imglib.py:17)", 6),
    ]
    assert show.facts(made, ProfileView(by="line"))["sites"][0]["source"] == "imglib.py:9"
    assert "resize  python imglib.py:9" in show.render(made)
    assert json.dumps(plot.facts(made, by="line")).count("default_malloc") == 0
    page = drawn.page([made], ["b"])
    assert {full for _, full in page.names} == {"resize (imglib.py)", "test_batch (test_imglib.py)"}
    assert page.files[0].stacks["function"].names[0] == "resize"


@pytest.mark.parametrize("by", ["function", "line"])
def test_full_name_has_its_line_once(by):
    first, made = before_and_after()

    shown = show.render(made, ProfileView(by=by, full_names=True))
    compared = render_diff(diff.diff(first, made, by=by), DiffView(by=by, full_names=True))

    assert "resize  python imglib.py:9" in shown and "resize  python imglib.py" in compared
    assert "(imglib.py" not in shown + compared


@pytest.mark.parametrize("by", ["function", "line"])
@pytest.mark.parametrize("function", ["resize", "operator< <int", "resize (imglib.py)"])
def test_label_has_place_beside_name(by, function):
    """A name with an open bracket is not shortened, and one may end like a place."""
    frame = Frame(function, "/home/u/imglib.py", 9)
    made = of_stacks(((frame,), 24))

    named = labels.group_label(made, LargestFrame(made.frames.index(frame)), group_name(frame, by, made.file_names), by, full_names=True)

    assert (named.text, named.source) == (function, "imglib.py:9")
    assert named.full == f"{function} (imglib.py{':9' if by == 'line' else ''})"


def test_difference_names_program_lines():
    first, made = before_and_after()

    by_function, by_line = (diff.diff(first, made, by=by) for by in ("function", "line"))  # type: ignore[arg-type]

    assert [(change.name, change.source, change.growth_bytes // MIB) for change in by_function.sites] == [
        ("resize (imglib.py)", "imglib.py", 72),
        ("test_batch (test_imglib.py)", "test_imglib.py", 0),
    ]
    assert (by_line.sites[0].name, by_line.sites[0].source) == ("resize (imglib.py:9)", "imglib.py:9")
    assert "resize  python imglib.py:9" in render_diff(by_line, DiffView(by="line"))


def test_line_that_moved_is_another_line():
    moved = Frame("resize", "/home/u/imglib.py", 12)
    first, last = of_stacks(((NUMPY, CALL, RESIZE), 5)), of_stacks(((NUMPY, CALL, moved), 5))

    assert [change.growth_bytes for change in diff.diff(first, last).sites] == [0]
    assert {change.source: change.growth_bytes // MIB for change in diff.diff(first, last, by="line").sites} == {
        "imglib.py:9": -5,
        "imglib.py:12": 5,
    }


RUN = Frame("_execute", str(runners_path() / "__main__.py"), 180)  # a job's, whose stacks stay whole
LONG = Frame("_PyLong_FromMedium", "Objects/longobject.c", 230, NO_MODULE)
STRIPPED = Frame("PyList_Append")


@pytest.mark.parametrize(
    "stack",
    [
        (MALLOC, NUMPY, CALL, MEAN, CALL, RESIZE, CALL, TEST, *OUTSIDE),
        (MALLOC, LONG, CALL, RESIZE, CALL, TEST, CALL, RUN, START),
        (MALLOC, STRIPPED, RESIZE, STRIPPED, TEST, RUN, START),
    ],
    ids=["program", "job", "job without symbols"],
)
def test_growth_names_program_line(stack):
    parts = [of_stacks((stack, 2 * size + 1)) for size in range(8)]
    snapshots = tuple(replace(part.snapshots[0], index=at, time=10.0 * at, phase="EXECUTE") for at, part in enumerate(parts))
    made = HeapProfile("memray", "", "", "ms", "", snapshots, parts[0].frames, phases=(PhaseSpan("EXECUTE", 0, 100),))

    (place,) = rises(made, "EXECUTE", lambda time: time).places

    assert place.sites == ("resize (imglib.py:9)", "test_batch (test_imglib.py:17)")


def test_diff_command_by_line(memprof, tmp_path):
    for name in ("a", "b"):
        write(profile((0, PEAK)), tmp_path / name)

    done = memprof("heap", "diff", "a", "b", "--by", "line", "--json")

    assert (done.returncode, json.loads(done.stdout)["by"]) == (0, "line")
