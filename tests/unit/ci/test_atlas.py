"""The atlas of releases: which releases it takes, how they stand in order, and its tables; nothing is installed or measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.atlas import atlas  # noqa: F401  (the fixtures)
from support.sample_runs import runs

from memprof.records.types import Outcome
from memprof.reports import history as page
from memprof.verdicts import baseline, steps
from memprof.versions import history_file, history_folder
from memprof.versions import series as points


def loaded(atlas: Any, levels: dict[tuple[str, str], float], failing: tuple[str, str] | None = None) -> history_folder.FolderPoints:
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
    return history_folder.FolderPoints(held)


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (["1.9.0", "1.10.0", "1.10.1", "1.11.0", "1.8.1"], ["1.9.0", "1.10.1", "1.11.0"]),
        (["1.0.20250503", "1.0.20241226", "1.0.20260114", "1.0.20261020"], ["1.0.20250503", "1.0.20260114", "1.0.20261020"]),
        (["2.14.0"], ["2.14.0"]),
        ([], []),
    ],
)
def test_releases_chosen_per_line(atlas, versions, chosen):
    assert atlas("releases").chosen(versions, 3) == chosen


def test_releases_ordered_by_runtime_and_version(atlas):
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


def test_atlas_table_rows_and_arrows(atlas):
    engine = {("engine", f"1.{number}.0"): 20.0 * (number >= 3) for number in range(6)}
    history = history_file.read(loaded(atlas, {**engine, ("other", "0.1"): 5.0}), None, find=steps.between)
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
def test_steps_between_releases(points, told):
    seen = steps.between(points, bound=3 if points[:1] == [[0]] else 0)
    assert [(step.at, step.size, step.low, step.high, step.until, step.undoes) for step in seen] == [
        (at, pytest.approx(size), pytest.approx(low), pytest.approx(high), until, undoes) for at, size, low, high, until, undoes in told
    ]


def test_release_failing_model_noted(atlas):
    history = history_file.read(
        loaded(atlas, {("engine", "1.0"): 0.0, ("engine", "1.1"): 0.0}, failing=("engine", "1.0")), None, find=steps.between
    )
    (note,) = atlas("tables").of(history, {}).notes
    assert note.startswith("engine 1.0, other: 3 of 3 runs failed: ") and "no such op" in note


def test_atlas_page_tables_and_notes(atlas):
    history = history_file.read(
        loaded(atlas, {("engine", f"1.{number}"): 20.0 * (number >= 3) for number in range(6)}), None, find=steps.between
    )
    made = atlas("tables").of(history, {"engine 0.9": "<no> wheel"})
    html = page.render(history, "Atlas", noun="release", tables=made.tables, notices=made.notes)
    assert "Memory by release" in html and "6 releases, " in html and "the newest is" not in html
    assert ">1.3: 290.0 ▲ +7.4%</td>" in html and "engine 0.9 is missing: &lt;no&gt; wheel" in html
    assert "Memory by commit" in page.render(history, "Commits")


def test_page_cache_dropped_after_install(monkeypatch, tmp_path):
    import os

    from memprof.versions import installation

    done = []
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.so").write_bytes(b"code")
    (tmp_path / "link").symlink_to(tmp_path / "lib" / "a.so")
    monkeypatch.setattr(os, "sync", lambda: done.append("sync"))
    monkeypatch.setattr(os, "posix_fadvise", lambda number, *words: done.append((os.readlink(f"/proc/self/fd/{number}"), *words)))
    installation.leave_page_cache(tmp_path)
    assert done == ["sync", (str(tmp_path / "lib" / "a.so"), 0, 0, os.POSIX_FADV_DONTNEED)]
