"""What a file can hold is shown and never obeyed: words that would steer a terminal or a spreadsheet, and figures that no machine has."""

from __future__ import annotations

import resource

import pytest
from support.sample_runs import runs

from memprof.records import store


@pytest.mark.parametrize("words", [("page",), ("trace",), ("table", "--format", "csv")])
def test_report_kept_on_full_disk(memprof, tmp_path, words):
    (tmp_path / "runs.jsonl").write_bytes(b"".join(store.encode(made) for made in runs()))
    assert memprof(*words, "runs.jsonl", "-o", "report").returncode == 0
    before = (tmp_path / "report").read_bytes()

    # A file may have 512 bytes: what a full disk does to a report.
    done = memprof(
        *words, "runs.jsonl", "-o", "report", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))
    )

    assert done.returncode == 5
    assert "report cannot be written" in done.stderr
    assert (tmp_path / "report").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "runs.jsonl"]
