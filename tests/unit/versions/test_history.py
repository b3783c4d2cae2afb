"""A history: files that are only added, lines and their steps, and what can be wrong with either."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from support.histories import made
from support.sample_runs import machine, runs

from memprof.reports.tables import history as history_table
from memprof.verdicts import baseline
from memprof.versions import history_file, history_folder, series
from memprof.versions.commits import Commit


def test_step_told_once_across_machine_kinds():
    levels = [0.0] * 8 + [8.0] * 6
    where = [machine("there", cpus=8) if number in (0, 4, 7, 12) else machine("here") for number in range(14)]
    told = [bool(history_file.check(made(levels[:count], where[:count]), None).worse) for count in range(9, 15)]
    assert told == [True, False, False, False, False, False]


def test_steps_at_one_commit_share_change():
    both = {**made([0] * 6 + [9] * 6).points, **made([0] * 6 + [20] * 4 + [0] * 2, variant="b").points}
    changes = history_file.read(history_folder.FolderPoints(both), None).changes
    assert [(change.head.after, change.head.at, change.variants) for change in changes] == [
        (5, 6, ("net.onnx, b", "net.onnx, a")),
        (9, 10, ("net.onnx, b",)),
    ]
    assert changes[0].head.until == 10 and changes[1].head.step.undoes


def test_changed_machine_not_compared():
    another = machine("there", cpus=8)
    history = history_file.read(made([0] * 5 + [30] * 5, [machine()] * 5 + [another] * 5), None)
    assert history.changes == ()
    assert history.remarks == (
        f"{5:040x}"[:9] + " is the first commit of another machine (CPUs 2 against 8): figures of the two are not compared",
    )
    # Hosts of a CI service have a new name each time.
    alike = history_file.read(made([0] * 5 + [30] * 5, [machine(f"host-{number}") for number in range(10)]), None)
    assert len(alike.changes) == 1 and not alike.remarks


def test_change_names_other_differences():
    loaded = dict(made([0] * 5).points)
    for number in range(5, 10):
        repeats = runs(extra_mib=[9 + 0.01 * repeat for repeat in range(5)], warmup=7)
        point = series.of(Commit(f"{number:040x}", number), baseline.entries(repeats))
        loaded[Path(series.encoded(point)[0])] = point
    (change,) = history_file.read(history_folder.FolderPoints(loaded), None).changes
    assert change.also == ("warm-up 5 → 7",)


def test_point_round_trip():
    entries = baseline.entries(runs(), ("rss_peak_bytes", "time_ns"))
    point = series.of(Commit("ab" * 20, 7, ("cd" * 20,), "ä subject", ("v1",)), entries)
    name, content = series.encoded(point)
    assert series.decoded(content, Path(name)) == point
    assert name.startswith("abababababab-here-")
    tagged = series.of(Commit("ab" * 20, 7, ("cd" * 20,), "ä subject", ("v1", "v2")), entries)
    assert series.encoded(tagged)[0] == name, "a tag makes no other figures"


def test_variants_keep_their_names():
    both = {**made([0] * 6 + [9] * 6, variant="fp16 @ cpu").points, **made([0] * 6 + [20] * 6, variant="x (head)").points}
    history = history_file.read(history_folder.FolderPoints(both), None)
    assert {line.key.variant for line in history.lines} == {"fp16 @ cpu", "x (head)"}
    assert history.changes[0].variants == ("net.onnx, x (head)", "net.onnx, fp16 @ cpu")


def test_point_keeps_version_and_side():
    entries = baseline.entries([*runs("a", version="1.0"), *runs("a", side="base")])
    point = series.of(Commit("ab" * 20, 7), entries)
    name, content = series.encoded(point)
    assert series.decoded(content, Path(name)) == point
    history = history_file.read(history_folder.FolderPoints({Path(name): point}), None)
    assert {line.key.heading for line in history.lines} == {"a @ 1.0", "a (base)"}
    assert b'"version"' not in series.encoded(series.of(Commit("ab" * 20, 7), baseline.entries(runs())))[1]


def test_tag_does_not_steer_terminal():
    odd = "v1\x1b]0;x\x07\u202e`"
    point = series.of(Commit("ab" * 20, 7, (), "subject", (odd,)), baseline.entries(runs()))
    for count in (1, 3):
        others = {Path(f"{number}"): replace(point, commit=Commit(f"{number:040x}", number)) for number in range(count - 1)}
        told = history_table.render_check(history_file.check(history_folder.FolderPoints({**others, Path("x"): point}), None))
        assert "v1" in told and not set("\x1b\x07\u202e") & set(told), told
