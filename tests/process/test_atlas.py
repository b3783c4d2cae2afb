"""The atlas of releases: which releases it takes, how they stand in order, and its tables; nothing is installed or measured."""

from __future__ import annotations

from typing import Any

import pytest
from support.atlas import atlas  # noqa: F401  (the fixtures)
from support.sample_runs import runs

from memprof.campaign.fleet.search_client import ComparisonResult
from memprof.versions import history_folder as folder
from memprof.versions.pip import Listed


def test_atlas_runtimes_are_installable(atlas):
    from memprof.versions import installation

    for runtime in atlas("subjects").RUNTIMES:
        assert installation.known(runtime).distribution


class Fleet:
    """Machines that answer at once, each comparison on one. lacking: a release that no worker can install; given_up: a model; ends: after so many."""

    def __init__(self, lacking: tuple[str, str] = ("", ""), given_up: str = "", ends: int = 99) -> None:
        self.lacking, self.given_up, self.ends, self.asked = lacking, given_up, ends, []

    def check_hosts(self) -> None: ...

    def measure(self, asked: Any, progress: Any, keep: Any) -> Any:
        for number, each in enumerate(asked):
            names = [variant.name for variant in each.suite.variants]
            runtime = each.sought.package
            self.asked.append((each.suite.name, runtime, names, each.suite.repeats))
            assert {variant.runtime for variant in each.suite.variants} == {runtime}
            if (runtime, names[0]) == self.lacking or (len(names) > 1 and each.suite.name == self.given_up):
                yield (
                    number,
                    ComparisonResult(why="net failed 3 times, on 3 machines and is given up: x: /env/lib/site-packages/there is no wheel"),
                )
                continue
            if len(self.asked) > self.ends:
                raise KeyboardInterrupt
            made = [
                run
                for name in names
                for run in runs(runtime, model=each.suite.name, extra_mib=[0.01 * n for n in range(each.suite.repeats)], version=name)
            ]
            yield number, ComparisonResult(tuple(made), True)


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


def test_fleet_compares_releases_by_model(on_fleet):
    fleet = Fleet(lacking=("ncnn", "1.0"))
    done, unable = on_fleet(fleet)

    # Each release once, to see whether it can be installed, then those that can by model.
    assert fleet.asked[:4] == [("mnist", runtime, [version], 1) for runtime in ("onnxruntime", "ncnn") for version in ("1.0", "1.1")]
    both, ncnn = ("onnxruntime", ["1.0", "1.1"], 3), ("ncnn", ["1.1"], 3)
    assert fleet.asked[4:] == [("mnist", *both), ("net", *both), ("mnist", *ncnn), ("net", *ncnn)]
    assert done == ["ncnn 1.1", "onnxruntime 1.0", "onnxruntime 1.1"]
    assert unable == {"ncnn 1.0": "net failed 3 times, on 3 machines and is given up: x: there is no wheel"}

    fleet.asked.clear()
    assert on_fleet(fleet) == (done, unable) and fleet.asked == []  # nothing is missing


def test_fleet_keeps_only_whole_results(on_fleet, capsys):
    assert on_fleet(Fleet(given_up="net"))[0] == []
    assert "onnxruntime is not kept: net failed 3 times" in capsys.readouterr().err
    done, unable = on_fleet(Fleet(ends=7))  # four tries, and three comparisons of four

    assert done == ["onnxruntime 1.0", "onnxruntime 1.1"] and not unable
