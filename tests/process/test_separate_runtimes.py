"""Runtimes that live in environments of their own, where none was made."""

from __future__ import annotations

from support.exported_models import DATA


def test_run_names_missing_environment(memprof):
    done = memprof("run", str(DATA / "net.pt2"), "-r", "torch")

    assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    assert done.stderr.endswith("memprof runtimes install torch\n")
