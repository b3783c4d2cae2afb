"""What a notebook and `memprof run` show first: the peak and the latency, as tables, and never a timeline's bytes."""

from __future__ import annotations

import re

import pytest

import memprof
from memprof.base.errors import MemprofError


def test_run_all_tables(memprof, tmp_path):
    (tmp_path / "s.json").write_text('{"load": [{"allocate": "w", "bytes": 1000000}]}')
    words = ["run", "s.json", "-r", "synthetic", "--repeats", "1", "--runs", "1", "--warmup", "0"]

    brief, whole = memprof(*words, "-o", "a.jsonl"), memprof(*words, "-o", "b.jsonl", "--all")

    assert brief.returncode == whole.returncode == 0
    assert "RSS peak" in brief.stdout and "| stays" in brief.stdout.replace("  ", "") and "Latency" not in brief.stdout
    assert "Anonymous memory" not in brief.stdout and "Anonymous memory" in whole.stdout
    assert all(done.stdout.startswith("s.json, synthetic: PEAK is ") for done in (brief, whole))
    explanation = "`memprof explain s.json -r synthetic --warmup 0 --runs 1` accounts for this memory"
    last = f"memprof: next: {explanation}, `memprof table a.jsonl` prints every table"
    assert brief.stderr.splitlines()[-1] == last and "next:" not in whole.stderr


@pytest.mark.parametrize(
    "words",
    [
        {"models": ["s.json"]},
        {"models": ["s.json"], "cmds": ["a=true", "a=true"]},
        {"cmds": ["a=echo {threads}"], "threads": ()},
        {"cmds": ["a=echo x"], "threads": [1, 2]},
        {"cmds": ["a=true"], "output": "taken.jsonl"},
        {"models": "s.json", "runtimes": "synthetic", "repeats": 0},
        {"models": "s.json", "runtimes": "synthetic", "cache": "hot"},
        {"models": ["s.json", "other/../s.json"], "runtimes": "synthetic"},
        {"models": "s.json", "runtimes": "synthetic", "threads": ""},
        {"models": "s.json", "runtimes": "synthetic", "threads": 1.5},
        {"models": "s.json", "runtimes": "synthetic", "threads": True},
        {"models": "s.json", "runtimes": "synthetic", "threads": 0},
        {"models": "s.json", "runtimes": "synthetic", "timeout": float("nan")},
        {"models": "s.json", "runtimes": "synthetic", "timeout": None},
        {"models": "s.json", "runtimes": "synthetic", "shapes": {"x": "1x3"}},
        {"models": "s.json", "runtimes": "synthetic", "shapes": {"x": (1, "3")}},
        {"models": "s.json", "runtimes": "synthetic", "shapes": {"x": -4}},
        {"models": "s.json", "runtimes": "synthetic", "set": {"arena": False}},
        {"models": "s.json", "runtimes": "synthetic", "runs": "5"},
        {"models": "s.json", "variants": "a=synthetic"},
        {"models": "s.json", "variants": ["a=synthetic"]},
        {"models": "s.json", "variants": [memprof.Variant("synthetic", set="arena=off")]},
        {"models": "s.json", "variants": [memprof.Variant("synthetic", shapes="x=1,3")]},
        {"models": "s.json", "variants": [memprof.Variant("synthetic", threads="2")]},
        {"models": "s.json", "runtimes": 5},
        {"models": 5, "runtimes": "synthetic"},
    ],
)
def test_library_errors_without_cli_options(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "taken.jsonl").write_text("{}")

    with pytest.raises(MemprofError) as caught:
        memprof.measure(**words)

    assert not re.search(r"(^|\s)-{1,2}[a-zA-Z]", str(caught.value))
