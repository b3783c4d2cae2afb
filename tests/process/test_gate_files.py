"""What a gate reads: baselines, budgets and runs files, whole and broken; each fault is one sentence and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys

from support.gate_files import files, memprof  # noqa: F401  (the fixtures)


def test_confirm_without_measurable_runs(memprof, files):
    done = memprof("gate", "head.jsonl", "--baseline", "base.json", "--confirm", "--prove", "--trust-runs", "-o", "new.jsonl", "--json")

    content = json.loads(done.stdout)
    worse = [row["reason"] for row in content["rows"] if row["verdict"] == "regressed"]
    assert done.returncode == 1 and worse
    assert all("; it cannot be measured again: " in reason and "no such file" in reason for reason in worse)
    assert any("fresh measurements are of the code that is here now" in remark for remark in content["remarks"])
    assert any(row["reason"].startswith("the positive control could not be made: ") for row in content["rows"])
    assert memprof("gate", "base.json", "--baseline", "base.json", "--prove").returncode == 2
    assert not (files / "new.checks.jsonl").exists()


def test_gate_imports_nothing_heavy(files):
    code = (
        "import sys; absent = ('fcntl', 'resource', 'termios', 'pwd', 'grp', 'pty', 'numpy', 'pandas', 'scipy', 'matplotlib', 'psutil');"
        "sys.modules.update(dict.fromkeys(absent)); from memprof.doors.cli import group;"
        "code = group.main(['gate', 'head.jsonl', '--baseline', 'base.json', '--also', 'junit=x.xml'], standalone_mode=False);"
        "assert not {'memprof.campaign.campaign', 'memprof.subjects.suite', 'memprof.recorder', "
        "'memprof.versions.worktrees'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=files, capture_output=True, text=True, check=False)

    assert done.returncode == 1, done.stderr
