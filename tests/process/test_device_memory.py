"""Memory of devices on its way through commands: memfds of known sizes that nobody maps, in attach, gate and budgets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.recorder_runs import MIB

from memprof.base.runners import runners_path
from memprof.records import store

HOLD = "import os, time\nfile = os.memfd_create('it'); os.write(file, bytes({mib} << 20))\n"


def test_attached_process_by_kind(memprof: Any, tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD.format(mib=8) + "print('ready', flush=True); time.sleep(60)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        done = memprof("attach", str(process.pid), "--for", "300ms", "-o", "r.jsonl")
        process.kill()

    assert done.returncode == 0, done.stderr
    (run,) = store.load([tmp_path / "r.jsonl"]).runs
    (mark,) = run.marks
    assert (mark.device_peak_bytes, mark.device_end_bytes) == (8 * MIB, 8 * MIB)
    assert {kind.kind: kind.end_bytes for kind in mark.devices if kind.kind == "memfd"} == {"memfd": 8 * MIB}
    assert "Device memory by kind, peak (MiB)" in done.stdout and "Device memory by kind, at the end (MiB)" in done.stdout


def test_gate_and_budget_judge_devices(memprof: Any, tmp_path: Path) -> None:
    """RSS has nothing of what the program holds more of. All is read where its phase ends, on a busy machine too."""
    (tmp_path / "memprof_marks.py").write_bytes((runners_path() / "memprof_marks.py").read_bytes())
    for name, mib in (("small", 8), ("large", 24)):
        text = HOLD.format(mib=mib) + "import memprof_marks\nwith memprof_marks.phase('HOLD'): pass\ntime.sleep(0.05)"
        (tmp_path / "hold.py").write_text(text)
        done = memprof("exec", "--repeats", "5", "-o", f"{name}.jsonl", "--", sys.executable, "hold.py")
        assert done.returncode == 0, done.stderr
    (tmp_path / "b.toml").write_text('device_peak_bytes = "16 MiB"\n')
    assert memprof("baseline", "update", "small.jsonl", "-o", "base.json", "--metric", "device_peak_bytes").returncode == 0

    for name, code in (("small", 0), ("large", 1)):
        gate = memprof("gate", f"{name}.jsonl", "--baseline", "base.json", "--metric", "device_peak_bytes", "--json")
        budget = memprof("gate", f"{name}.jsonl", "--budgets", "b.toml", "--json")
        assert (gate.returncode, budget.returncode) == (code, code), gate.stderr + budget.stderr
        assert {row["metric"] for row in json.loads(gate.stdout)["rows"]} == {"device_peak_bytes"}
