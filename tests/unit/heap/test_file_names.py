"""Functions of one name in files of one base name: each is a row of its own in every view, and is matched with itself in another profile."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.sample_profiles import MIB, of_stacks

from memprof.heap import diff
from memprof.heap.file_names import FileNames, same_files
from memprof.heap.frames import NO_MODULE, By, Frame
from memprof.heap.growth_sites import rises
from memprof.heap.profile import HeapProfile, PhaseSpan
from memprof.heap.shape import sums
from memprof.reports.heap import series, show
from memprof.reports.heap.page import drawn
from memprof.reports.heap.show import ProfileView

PACKAGES = "/env/lib/python3.11/site-packages/"
NEW_PACKAGES = "/other/lib/python3.12/site-packages/"


def load(path: str, line: int = 9) -> Frame:
    return Frame("load", path, line)


def two_files(first: int = 30, second: int = 20, folder: str = "/home/u") -> HeapProfile:
    return of_stacks(((load(f"{folder}/a/utils.py"),), first), ((load(f"{folder}/b/utils.py"),), second))


@pytest.mark.parametrize(("by", "line"), [("function", ""), ("line", ":9")])
def test_files_of_one_name_apart(by: By, line: str) -> None:
    made = two_files()
    tree = made.snapshots[0].tree
    assert tree is not None
    names = [f"load (a/utils.py{line})", f"load (b/utils.py{line})"]

    assert [(name, own // MIB) for _, name, own, _ in sums(made, tree, by=by)] == [(names[0], 30), (names[1], 20)]
    assert [site.full for site in series.series(made, by, 9).sites] == names
    assert "a/utils.py:9" in show.render(made, ProfileView(by=by))


def test_page_has_files_of_one_name_apart() -> None:
    page = drawn.page([two_files()], ["x"])

    assert {full for _, full in page.names} == {"load (a/utils.py)", "load (b/utils.py)"}


def test_lines_of_c_in_files_of_one_name_apart() -> None:
    frames = [Frame("grow", f"/build/{folder}/pool.c", 7, NO_MODULE) for folder in ("a", "b")]
    made = of_stacks(*((((frame),), 4) for frame in frames))
    tree = made.snapshots[0].tree
    assert tree is not None

    assert {name for _, name, _, _ in sums(made, tree, by="line")} == {"grow (a/pool.c:7)", "grow (b/pool.c:7)"}


def test_growth_of_files_of_one_name_apart() -> None:
    parts = [two_files(3 * size + 1, 2 * size + 1) for size in range(8)]
    snapshots = tuple(replace(part.snapshots[0], index=at, time=10.0 * at, phase="EXECUTE") for at, part in enumerate(parts))
    made = HeapProfile("memray", "", "", "ms", "", snapshots, parts[0].frames, phases=(PhaseSpan("EXECUTE", 0, 100),))

    places = rises(made, "EXECUTE", lambda time: time).places

    assert [place.sites for place in places] == [("load (a/utils.py:9)",), ("load (b/utils.py:9)",)]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/home/u/utils.py"], ["utils.py"]),
        (["/home/u/a/utils.py", "/home/u/b/utils.py"], ["a/utils.py", "b/utils.py"]),
        (["/x/a/lib/utils.py", "/x/b/lib/utils.py"], ["a/lib/utils.py", "b/lib/utils.py"]),
        (["/home/u/utils.py", PACKAGES + "torch/utils.py"], ["utils.py", "torch/utils.py"]),
        (
            ["/u/torch/utils.py", "/u/b/utils.py", PACKAGES + "torch/utils.py"],
            ["u/torch/utils.py", "b/utils.py", "site-packages/torch/utils.py"],
        ),
        (["./malloc/malloc.c", "malloc/malloc.c"], ["malloc.c", "malloc.c"]),
        (["utils.py", "/utils.py"], ["utils.py", "/utils.py"]),
        (["/x/a/__init__.py", "/y/a/__init__.py"], ["x/a/__init__.py", "y/a/__init__.py"]),
        (["<string>", "<stdin>"], ["<string>", "<stdin>"]),
    ],
)
def test_file_name_tells_file_apart(paths: list[str], names: list[str]) -> None:
    files = FileNames(paths)

    assert [files.name(path) for path in paths] == names


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PACKAGES + "pkg/utils.py", NEW_PACKAGES + "pkg/utils.py"),
        (PACKAGES + "pkg/utils.py", "/home/u/pkg/src/pkg/utils.py"),
        (PACKAGES + "pkg/utils.py", "/home/u/source/utils.py"),
        (PACKAGES + "numpy/core/numeric.py", NEW_PACKAGES + "numpy/_core/numeric.py"),
        ("/w/v1/utils.py", "/w/v2/utils.py"),
        ("/usr/lib/python3.11/json/decoder.py", "/opt/lib/python3.12/json/decoder.py"),
    ],
    ids=["two installs", "install and checkout", "flat checkout", "file that a release moved", "two checkouts", "two Pythons"],
)
@pytest.mark.parametrize("by", ["function", "line"])
def test_same_file_elsewhere_matched(before: str, after: str, by: By) -> None:
    first, last = (of_stacks(((load(path),), size)) for path, size in ((before, 20), (after, 30)))

    assert [change.growth_bytes // MIB for change in diff.diff(first, last, by=by).sites] == [10]


@pytest.mark.parametrize("by", ["function", "line"])
@pytest.mark.parametrize("folder", ["/home/u", "/home/other/checkout"])
def test_difference_has_files_of_one_name_apart(folder: str, by: By) -> None:
    made = diff.diff(two_files(), two_files(30, 25, folder), by=by)

    line = ":9" if by == "line" else ""
    assert [(change.name, change.growth_bytes // MIB) for change in made.sites] == [
        (f"load (b/utils.py{line})", 5),
        (f"load (a/utils.py{line})", 0),
    ]


def test_same_files_with_one_beside() -> None:
    """A file of the program stays itself, where the other profile has files of packages of that name too."""
    first = ["/w/v1/utils.py", PACKAGES + "a/utils.py"]
    last = ["/w/v2/utils.py", "/w/v2/sub/utils.py", NEW_PACKAGES + "a/utils.py", NEW_PACKAGES + "b/utils.py"]

    assert same_files(first, last) == dict(zip(first, [last[0], last[2]], strict=True))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([PACKAGES + "torch/utils.py"], [PACKAGES + "numpy/utils.py"]),
        (["/x/a/utils.py"], ["/x/c/utils.py", "/x/d/utils.py"]),
    ],
    ids=["other package", "two as near"],
)
def test_other_file_not_matched(before: list[str], after: list[str]) -> None:
    assert same_files(before, after) == {}
