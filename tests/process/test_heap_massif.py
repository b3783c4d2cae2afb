"""Massif files in: every form of the format, real profiles, and what is wrong with a file, said in one sentence."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "heap"

_MEMORY = """
import resource, sys
from memprof.heap import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
profile = load(sys.argv[1])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(len(profile.snapshots), sum(len(s.tree) for s in profile.snapshots if s.tree), grown >> 10)
"""


def test_large_file_memory(tmp_path: Path) -> None:
    with gzip.open(DATA / "massif_onnxruntime_inception_v3.gz", "rt") as file:
        head, _, body = file.read().partition("#-----------")
    path = tmp_path / "large.massif"
    with path.open("w") as large:
        large.write(head)
        for number in range(30):  # other sizes each time, so that no tree is that of another round
            large.write("#-----------" + body.replace("n1: 1", f"n1: {number + 1}"))
    done = subprocess.run([sys.executable, "-c", _MEMORY, path], capture_output=True, text=True, check=True)
    snapshots, nodes, grown_mib = map(int, done.stdout.split())
    assert (snapshots, nodes > 300_000) == (51 * 30, True)
    assert grown_mib < path.stat().st_size / (1 << 20) * 0.28 + 8  # 300 MiB for 1 GiB
