"""ci/image: an OCI image of memprof, made without a daemon, whose memprof follows a process from beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import need_tool

ROOT = Path(__file__).resolve().parents[2]
_LEAK = """
import time
kept = []
while True:
    kept.append(bytearray(b"x") * (1 << 18))
    time.sleep(0.01)
"""
# As a sidecar: another root, and the processes of the pod in its /proc.
_BESIDE = 'mount --rbind /proc "$1/proc"; shift; exec "$@"'


@pytest.mark.skipif("MEMPROF_MAKES_IMAGE" not in os.environ, reason="it takes minutes: make image-test")
@pytest.mark.timeout(900)
def test_image_follows_process(tmp_path):
    need_tool("mmdebstrap")
    umoci, unshare = need_tool("umoci"), need_tool("unshare")
    if os.geteuid() != 0:
        pytest.skip("ci/image runs as root")
    image, bundle = tmp_path / "image", tmp_path / "bundle"

    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([ROOT / "ci" / "image", image], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = subprocess.run([ROOT / "ci" / "image", image], env=environment, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (1, f"ci/image: {image} exists\n")

    subprocess.run([umoci, "unpack", "--image", f"{image}:memprof", bundle], capture_output=True, check=True)
    assert json.loads((bundle / "config.json").read_text())["process"]["args"] == ["memprof", "--help"]
    root = bundle / "rootfs"
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", _LEAK]) as leaking:
        words = ["memprof", "attach", "--grow", str(leaking.pid), "--for", "4s", "--interval", "10ms", "--json", "-o", "/tmp/r.jsonl"]
        command = [unshare, "--mount", "sh", "-ec", _BESIDE, "sh", root, "chroot", root, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        leaking.kill()
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["word"] == "grows"
