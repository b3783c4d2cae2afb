"""Runs files: whole lines, strict decoding, torn ends mended."""

from __future__ import annotations

import base64
import fcntl
import json
import random
import re
import tracemalloc
import zlib
from array import array
from functools import cache

import pytest
from msgspec.structs import replace
from support.sample_runs import of_program, run, runs, timeline

from memprof.base.errors import InputError
from memprof.records import attempts, store, summary
from memprof.records.types import Outcome, Timeline
from memprof.reports.columns import columns


def written(path, made):
    writer = store.RunsWriter(path, append=False)
    for kept in made:
        writer.write(store.encode(kept))
    return path


def test_store_round_trip(tmp_path):
    made = runs()

    loaded = store.load([written(tmp_path / "runs.jsonl", made)])

    assert list(loaded.runs) == made
    assert loaded.warnings == ()


def test_load_torn_end_with_warning(tmp_path):
    path = written(tmp_path / "runs.jsonl", runs())
    path.write_bytes(path.read_bytes()[:-50])

    loaded = store.load([path])

    assert len(loaded.runs) == 4
    assert "torn" in loaded.warnings[0]


def test_load_waits_for_unfinished_line(tmp_path, monkeypatch):
    path = written(tmp_path / "runs.jsonl", runs())
    whole = path.read_bytes()
    path.write_bytes(whole[:-50])

    def wait(_, how):
        if how == fcntl.LOCK_SH:
            path.write_bytes(whole)  # who held the lock has done its work

    monkeypatch.setattr(fcntl, "flock", wait)
    loaded = store.load([path])

    assert list(loaded.runs) == runs()
    assert loaded.warnings == ()


def test_append_to_file_made_by_other(tmp_path, monkeypatch):
    path = tmp_path / "runs.jsonl"
    exists = type(path).exists
    monkeypatch.setattr(type(path), "exists", lambda self, **_: self != path and exists(self))  # the other one makes it a moment later
    written(path, runs())

    store.RunsWriter(path, append=True).write(store.encode(run("b")))

    assert [kept.job.variant for kept in store.load([path]).runs] == ["a"] * 5 + ["b"]


def test_append_recreates_file_removed_meanwhile(tmp_path, monkeypatch):
    path = written(tmp_path / "runs.jsonl", runs())
    is_file = type(path).is_file

    def removed(self, **_):
        there = is_file(self)
        self.unlink(missing_ok=True)
        return there

    with monkeypatch.context() as patched:
        patched.setattr(type(path), "is_file", removed)
        writer = store.RunsWriter(path, append=True)
    writer.write(store.encode(run("b")))

    assert [kept.job.variant for kept in store.load([path]).runs] == ["b"]


def test_append_cuts_torn_end(tmp_path):
    path = written(tmp_path / "runs.jsonl", runs())
    path.write_bytes(path.read_bytes()[:-50])

    writer = store.RunsWriter(path, append=True)
    writer.write(store.encode(run("b")))

    assert writer.mended
    assert [kept.job.variant for kept in store.load([path]).runs] == ["a"] * 4 + ["b"]


@pytest.mark.parametrize(
    ("append", "said"), [(False, "exists: --append adds to it, or name another file$"), (None, "exists: name another file$")]
)
def test_writer_never_overwrites(tmp_path, append, said):
    path = written(tmp_path / "runs.jsonl", runs())
    before = path.read_bytes()

    with pytest.raises(InputError, match=said):
        store.RunsWriter(path, append=append)

    assert path.read_bytes() == before


def test_append_refuses_foreign_file(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\nmore of them")

    with pytest.raises(InputError, match="not a memprof runs file"):
        store.RunsWriter(path, append=True)

    assert path.read_text() == "my notes\nmore of them"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no complete run"),
        (b"my notes", "is not a memprof runs file"),
        (b"my notes\n", "not a run of memprof"),
        (b"{}\n", "not a run of memprof"),
        (b"[" * 100_000 + b"\n", "not a run of memprof"),
        (b"\xff\xfe\n", "not a run of memprof"),
        (b'{"memprof": 99, "new": true}\n', "newer memprof"),
        (b'{"memprof": 1}\n', "missing required field `job`"),
        (b'{"memprof":1,"job":{"mod', "holds no complete run"),
    ],
)
def test_load_refuses_invalid_content(tmp_path, content, said):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)

    with pytest.raises(InputError, match=said):
        store.load([path])


def test_load_names_line_and_bad_field(tmp_path):
    path = written(tmp_path / "runs.jsonl", runs())
    lines = path.read_text().splitlines()
    broken = json.loads(lines[1])
    broken["marks"][2]["rss_end_bytes"] = "many"
    path.write_text("\n".join([lines[0], json.dumps(broken), *lines[2:]]) + "\n")

    with pytest.raises(InputError, match=r"line 2: Expected `int \| null`, got `str` - at `\$\.marks\[2\]\.rss_end_bytes`"):
        store.load([path])


@pytest.mark.parametrize("damage", ["not base64!", "AAAA", ""])
def test_unpack_damaged_timeline(damage):
    good = run().timeline
    broken = type(good)(damage, good.rss, good.file, good.vms, 1, 0, 0, 0)

    with pytest.raises(InputError, match="timeline is damaged"):
        store.unpack(broken)


@cache
def packed_zeros():
    """A column of a few kilobytes that unpacks to 64 MiB."""
    return base64.b64encode(zlib.compress(bytes(64 << 20), 9)).decode()


def bomb(samples):
    """A timeline of a few kilobytes whose columns unpack to 64 MiB each."""
    column = packed_zeros()
    return Timeline(column, column, column, column, samples, 0, 0, 0)


@pytest.mark.parametrize("samples", [5, 1 << 40])
@pytest.mark.parametrize("unpack", [store.unpack, columns])
def test_unpack_stops_beyond_limit(unpack, samples):
    made = bomb(samples)
    tracemalloc.start()
    with pytest.raises(InputError, match="unpacks to more than"):
        unpack(made)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert most < 200 << 20


def test_unpack_long_imported_log():
    draw = random.Random(1)
    made = timeline([(index * 10**8 + draw.randrange(10**6), index % 1013 << 12, 0, 0) for index in range(200_000)])

    assert len(store.unpack(made).t_ns) == len(columns(made)) == 200_000


def test_impossible_figures_refused():
    far = timeline([(0, 0, 0, 0), ((1 << 63) - 1, 0, 0, 0)])
    past = replace(far, t_ns=packed_steps([1 << 62, 1 << 62]))
    for unpack in (store.unpack, columns):
        with pytest.raises(InputError, match="larger than any that was measured"):
            unpack(past)
        with pytest.raises(InputError, match="no row in it"):
            unpack(replace(timeline([(0, 0, 0, 0)]), **dict.fromkeys(("t_ns", "rss", "file", "vms"), packed_steps([]))))
    line = store.encode(run())
    for number in (b"9" * 19, b"-9223372036854775808", b"1e101", b"2.5E+300"):
        with pytest.raises(InputError, match="a number in it is larger"):
            store.decode(line.replace(b'"begin_ns":0', b'"begin_ns":' + number, 1), "line 1")
    for field, number in (
        (b'"rss_end_bytes":', b"-1"),
        (b'"rss_end_bytes":', b"9007199254740993"),
        (b'"repeat":', b"-1"),
        (b'"end_ns":', b"-1"),
    ):
        damaged = re.sub(field + b"[0-9]+", field + number, line, count=1)
        with pytest.raises(InputError, match=f"line 1: {field[1:-2].decode()} is below 0, or larger"):
            store.decode(damaged, "line 1")
    with pytest.raises(InputError, match="a time of 'MODEL_LOAD' is below 0"):
        store.decode(line.replace(b'"begin_ns":1000000000', b'"begin_ns":3000000000'), "line 1")
    fine = json.loads(line) | {"output_tail": "x: [1234567890123456789012, 1e999]"}
    assert store.decode(json.dumps(fine).encode(), "line 1").output_tail == fine["output_tail"]


def packed_steps(steps):
    return base64.b64encode(zlib.compress(array("q", steps).tobytes())).decode()


def test_load_missing_file(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        store.load([tmp_path / "none.jsonl"])


def test_load_separates_runs_measured_differently(tmp_path):
    plain, off = written(tmp_path / "a.jsonl", runs()), written(tmp_path / "b.jsonl", runs(knobs={"xnnpack": "off"}, shapes={"x": (1, 2)}))

    loaded = store.load([plain, off])

    assert {kept.job.variant for kept in loaded.runs} == {"a (shape of x default, xnnpack default)", "a (x=1x2, xnnpack=off)"}
    assert loaded.warnings == ("net.onnx, a: runs that differ in shape of x, xnnpack are separate rows",)


def test_load_names_builds_by_file(tmp_path):
    """Hashes tell two builds of a program apart, but nobody knows them. Files tell whose they are."""
    (tmp_path / "x").mkdir()
    before, after = of_program(runs("a", model="engine"), "engine", "1"), of_program(runs("a", model="engine"), "engine", "2")
    paths = [written(tmp_path / "old.jsonl", before), written(tmp_path / "new.jsonl", after)]

    loaded = store.load(paths)

    assert [kept.job.variant for kept in loaded.runs[::5]] == ["a (old.jsonl)", "a (new.jsonl)"]
    assert loaded.warnings == ("engine, a: runs that differ in program are separate rows",)
    same_name = store.load([paths[0], written(tmp_path / "x/old.jsonl", after)])
    assert {kept.job.variant for kept in same_name.runs} == {f"a ({tmp_path.name}/old.jsonl)", "a (x/old.jsonl)"}
    for mixed in ([*before, *after], [*before, *of_program(runs(knobs={"k": "1"}, model="engine"), "engine", "3")]):
        names = {kept.job.variant for kept in store.load([written(tmp_path / f"m{len(mixed)}{id(mixed)}.jsonl", mixed), paths[1]]).runs}
        assert any("program 11111111" in name for name in names), "a file with several builds names none of them"


def test_load_joins_repeats_across_files(tmp_path):
    loaded = store.load([written(tmp_path / "a.jsonl", runs()), written(tmp_path / "b.jsonl", runs())])

    assert {kept.job.variant for kept in loaded.runs} == {"a"}
    assert loaded.warnings == ()


def test_load_joins_run_without_version(tmp_path):
    early = replace(run(repeat=2, outcome=Outcome("signal", phase="STARTUP", signal="SIGKILL")), about=None)

    loaded = store.load([written(tmp_path / "a.jsonl", [run(), early])])

    assert {kept.job.variant for kept in loaded.runs} == {"a"}


def test_load_keeps_versions_apart(tmp_path):
    loaded = store.load(
        [written(tmp_path / "a.jsonl", [*runs(version="1.0"), *runs(version="1.1", knobs={"xnnpack": "off"}), *runs(side="base")])]
    )

    assert loaded.warnings == ()
    assert [key.heading for key in summary.groups(loaded.runs)] == ["a @ 1.0", "a @ 1.1", "a (base)"]
    assert len({attempts.identity(kept) for kept in loaded.runs}) == len(loaded.runs)


def test_load_of_version_in_name(tmp_path):
    """Files of before the fields have both in the variant's name, where they stay."""
    old = [json.loads(store.encode(each)) for each in (run("fp16 @ 1.0"), run("fp16 (head)"))]
    for each in old:
        del each["job"]["version"], each["job"]["side"]
    (tmp_path / "old.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in old))

    loaded = store.load([tmp_path / "old.jsonl"]).runs

    assert [(kept.job.variant, kept.job.version, kept.job.side) for kept in loaded] == [
        ("fp16 @ 1.0", None, None),
        ("fp16 (head)", None, None),
    ]
    assert [kept.job.heading for kept in loaded] == ["fp16 @ 1.0", "fp16 (head)"]


def test_held_runs_named_without_remark():
    held = [replace(each, job=replace(each.job, hold=True)) for each in (run("a", repeat=1), run("a", repeat=2))]
    apart, remarks = store.told_apart(held)
    assert {each.job.variant for each in apart} == {"a (held)"} and remarks == []
    assert store.told_apart([held[0], run("a", repeat=2)])[1] == ["net.onnx, a: runs that differ in hold are separate rows"]
