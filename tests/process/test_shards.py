"""A suite in shards and its runs put together again: comparisons stay whole, lines stay as they are, contradictions are refused."""

from __future__ import annotations

from support.recorder_runs import QUICK, runs_in


def test_shards_measured_and_merged(memprof, scenario, tmp_path):
    for name in ("a.json", "b.json", "c.json"):
        scenario(name, **QUICK)
    words = ("run", "a.json", "b.json", "c.json", "-r", "synthetic", "--warmup", 0, "--runs", 1, "--repeats", 2)

    for number in (1, 2):
        done = memprof(*words, "--shard", f"{number}/2", "-o", f"part{number}.jsonl")
        assert done.returncode == 0, done.stderr
    empty = memprof(*words, "--shard", "4/4", "-o", "part4.jsonl")
    one = memprof("run", "a.json", *words[4:], "--shard", "2/2", "-o", "part4.jsonl")
    merged = memprof("merge", "part1.jsonl", "part2.jsonl", "-o", "runs.jsonl")

    assert [[line["job"]["model"]["name"] for line in runs_in(tmp_path / f"part{n}.jsonl")] for n in (1, 2)] == [
        ["a.json", "c.json"] * 2,
        ["b.json"] * 2,
    ]
    assert (empty.returncode, empty.stderr) == (0, "memprof: shard 4 of 4 has nothing to measure: there are 3 models\n")
    assert (one.returncode, one.stderr) == (0, "memprof: shard 2 of 2 has nothing to measure: there is 1 model\n")
    assert not (tmp_path / "part4.jsonl").exists()
    assert merged.stdout == "6 runs of 2 files\n"
