"""The atlas of releases: which releases it takes, how they stand in order, and its tables; nothing is installed or measured."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from made import runs

from memprof.history import folder, lines, points
from memprof.installing.pip import Listed
from memprof.judge import baseline, steps
from memprof.measuring.fleet.searching import Answer
from memprof.reports import history as page
from memprof.runs.records import Outcome

CI = Path(__file__).resolve().parents[1] / "ci"


@pytest.fixture
def atlas(monkeypatch):
    monkeypatch.syspath_prepend(str(CI))
    for name in ("atlas", "atlas.releases", "atlas.tables", "atlas.subjects", "atlas.there", "atlas.main", "bench", "bench.docs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return lambda name: import_module(f"atlas.{name}")


def loaded(atlas: Any, levels: dict[tuple[str, str], float], failing: tuple[str, str] | None = None) -> folder.Loaded:
    """A history of releases, each with its runtime's peak above that of `made`, in MiB."""
    order = list(dict.fromkeys(runtime for runtime, _ in levels))
    held = {}
    for (runtime, version), level in levels.items():
        extra = [level + 0.01 * repeat for repeat in range(3)]
        measured = runs(runtime, extra_mib=extra)
        if (runtime, version) == failing:
            measured += runs(runtime, model="other", extra_mib=extra, outcome=Outcome("failed", "MODEL_LOAD", message="no such op"))
        point = points.of(atlas("releases").commit(order.index(runtime), runtime, version), baseline.entries(measured))
        held[Path(points.encoded(point)[0])] = point
    return folder.Loaded(held)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (["1.9.0", "1.10.0", "1.10.1", "1.11.0", "1.8.1"], ["1.9.0", "1.10.1", "1.11.0"]),
        (["1.0.20250503", "1.0.20241226", "1.0.20260114", "1.0.20261020"], ["1.0.20250503", "1.0.20260114", "1.0.20261020"]),
        (["2.14.0"], ["2.14.0"]),
        ([], []),
    ],
)
def test_the_newest_of_each_line_is_measured_or_each_release_of_a_runtime_with_few_lines(atlas, versions, chosen):
    assert atlas("releases").chosen(versions, 3) == chosen


def test_releases_stand_by_runtime_and_by_version(atlas):
    named = [
        ("onnxruntime", "1.9.0"),
        ("onnxruntime", "1.10.0"),
        ("tvm", "0.27.0"),
        ("tvm", "0.27.0.post1"),
        ("ncnn", "2026.4.8672.1"),
        ("tflm", "0.dev20261023182759"),
    ]
    levels = dict.fromkeys(reversed(named), 0.0)
    order = {"onnxruntime": 0, "tvm": 1, "ncnn": 2, "tflm": 3}
    commits = [atlas("releases").commit(order[runtime], runtime, version) for runtime, version in levels]
    assert [commit.subject for commit in sorted(commits, key=lambda commit: commit.hash)] == [" ".join(release) for release in named]
    assert all(len(commit.hash) == 64 for commit in commits), "a point of a history takes no other hash"


def test_a_table_has_a_row_a_runtime_and_an_arrow_at_each_step(atlas):
    engine = {("engine", f"1.{number}.0"): 20.0 * (number >= 3) for number in range(6)}
    history = lines.read(loaded(atlas, {**engine, ("other", "0.1"): 5.0}), None, find=steps.between)
    made = atlas("tables").of(history, {"engine 0.9": "engine 0.9: there is no wheel"})
    (table,) = made.tables
    assert table.header[1:] == ("5 before", "4 before", "3 before", "2 before", "1 before", "newest")
    assert table.rows[0] == (
        "engine",
        "1.0.0: 270.0",
        "1.1.0: 270.0",
        "1.2.0: 270.0",
        "1.3.0: 290.0 ▲ +7.4%",
        "1.4.0: 290.0",
        "1.5.0: 290.0",
    )
    assert table.rows[1] == ("other", "", "", "", "", "", "0.1: 275.0")
    assert made.notes == ("engine 0.9 is missing: there is no wheel",)


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([[100, 101], [150, 151], [100, 102]], [(1, 50, 49, 51, 2, False), (2, -49.5, -51, -48, None, True)]),
        ([[100, 101], [103.1, 104]], [(1, 3.05, 2.1, 4, None, False)]),
        ([[100, 101], [103, 104]], []),  # 101 and 103 lie closer than 2% of 100.5
        ([[100, 150], [150, 151]], []),
        ([[0], [3]], []),  # not beyond the bound
        ([[0], [4]], [(1, 4, 4, 4, None, False)]),
        ([[100]], []),
        ([], []),
    ],
)
def test_releases_differ_if_all_their_repeats_do(points, told):
    seen = steps.between(points, bound=3 if points[:1] == [[0]] else 0)
    assert [(step.at, step.size, step.low, step.high, step.until, step.undoes) for step in seen] == [
        (at, pytest.approx(size), pytest.approx(low), pytest.approx(high), until, undoes) for at, size, low, high, until, undoes in told
    ]


def test_a_model_that_a_release_cannot_run_is_a_note(atlas):
    history = lines.read(
        loaded(atlas, {("engine", "1.0"): 0.0, ("engine", "1.1"): 0.0}, failing=("engine", "1.0")), None, find=steps.between
    )
    (note,) = atlas("tables").of(history, {}).notes
    assert note.startswith("engine 1.0, other: 3 of 3 runs failed: ") and "no such op" in note


def test_the_page_speaks_of_releases_and_holds_tables_and_notes(atlas):
    history = lines.read(loaded(atlas, {("engine", f"1.{number}"): 20.0 * (number >= 3) for number in range(6)}), None, find=steps.between)
    made = atlas("tables").of(history, {"engine 0.9": "<no> wheel"})
    html = page.render(history, "Atlas", noun="release", tables=made.tables, notices=made.notes)
    assert "Memory by release" in html and "6 releases, " in html and "the newest is" not in html
    assert "<td>1.3: 290.0 ▲ +7.4%</td>" in html and "engine 0.9 is missing: &lt;no&gt; wheel" in html
    assert "Memory by commit" in page.render(history, "Commits")


def test_every_runtime_of_the_atlas_is_one_that_memprof_installs(atlas):
    from memprof.installing import making

    for runtime in atlas("subjects").RUNTIMES:
        assert making.known(runtime).distribution


def test_what_was_just_written_leaves_the_page_cache(monkeypatch, tmp_path):
    import os

    from memprof.installing import making

    done = []
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.so").write_bytes(b"code")
    (tmp_path / "link").symlink_to(tmp_path / "lib" / "a.so")
    monkeypatch.setattr(os, "sync", lambda: done.append("sync"))
    monkeypatch.setattr(os, "posix_fadvise", lambda number, *words: done.append((os.readlink(f"/proc/self/fd/{number}"), *words)))
    making.leave_page_cache(tmp_path)
    assert done == ["sync", (str(tmp_path / "lib" / "a.so"), 0, 0, os.POSIX_FADV_DONTNEED)]


class Fleet:
    """Machines that answer at once, each comparison on one. lacking: a release that no worker can install; given_up: a model; ends: after so many."""

    def __init__(self, lacking: str = "", given_up: str = "", ends: int = 99) -> None:
        self.lacking, self.given_up, self.ends, self.asked = lacking, given_up, ends, []

    def check_hosts(self) -> None: ...

    def measure(self, asked: Any, progress: Any, keep: Any) -> Any:
        for number, each in enumerate(asked):
            names = [(variant.name, variant.runtime) for variant in each.suite.variants]
            self.asked.append((each.suite.name, names, each.suite.repeats))
            assert each.sought.makes
            if names[0][1] == self.lacking or (len(names) > 1 and each.suite.name == self.given_up):
                yield number, Answer(why="net failed 3 times, on 3 machines and is given up: x: /env/lib/site-packages/there is no wheel")
                continue
            if len(self.asked) > self.ends:
                raise KeyboardInterrupt
            made = [
                run
                for name, _ in names
                for run in runs(name, model=each.suite.name, extra_mib=[0.01 * n for n in range(each.suite.repeats)])
            ]
            yield number, Answer(tuple(made), True)


@pytest.fixture
def on_fleet(atlas, monkeypatch, tmp_path):
    """The atlas of two runtimes with two releases and two models each, on a fleet: how it ended, and what it then has."""
    main = atlas("main")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(main.pip, "versions", lambda python, name: Listed(("1.0", "1.1")))
    monkeypatch.setattr(main.subjects, "models", lambda runtime, folder: {"mnist": tmp_path / "mnist", "net": tmp_path / "net"})

    def call(fleet: Fleet) -> tuple[list[str], dict[str, str]]:
        place = main.Place()
        try:
            main._on_fleet(place, fleet, ["onnxruntime", "ncnn"], 6, 3, False)
        except KeyboardInterrupt:
            pass
        done = [commit.subject for commit in folder.load(place.points).commits.values()] if place.done() else []
        return sorted(done), place.unable()

    return call


def test_on_a_fleet_all_releases_over_a_model_are_a_comparison(on_fleet):
    fleet = Fleet(lacking="ncnn@1.0")
    done, unable = on_fleet(fleet)

    # Each release once, to see whether it can be installed, then those that can by model.
    assert fleet.asked[:4] == [
        ("mnist", [(f"{runtime} {version}", f"{runtime}@{version}")], 1)
        for runtime in ("onnxruntime", "ncnn")
        for version in ("1.0", "1.1")
    ]
    both = [(f"onnxruntime {version}", f"onnxruntime@{version}") for version in ("1.0", "1.1")]
    ncnn = [("ncnn 1.1", "ncnn@1.1")]
    assert fleet.asked[4:] == [("mnist", both, 3), ("net", both, 3), ("mnist", ncnn, 3), ("net", ncnn, 3)]
    assert done == ["ncnn 1.1", "onnxruntime 1.0", "onnxruntime 1.1"]
    assert unable == {"ncnn 1.0": "net failed 3 times, on 3 machines and is given up: x: there is no wheel"}

    fleet.asked.clear()
    assert on_fleet(fleet) == (done, unable) and fleet.asked == []  # nothing is missing


def test_on_a_fleet_only_what_is_whole_is_kept(on_fleet, capsys):
    assert on_fleet(Fleet(given_up="net"))[0] == []
    assert "onnxruntime is not kept: net failed 3 times" in capsys.readouterr().err
    done, unable = on_fleet(Fleet(ends=7))  # four tries, and three comparisons of four

    assert done == ["onnxruntime 1.0", "onnxruntime 1.1"] and not unable
