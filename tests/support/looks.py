"""What the tests of explain look share."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.recorder_runs import wait_for


def told(process: subprocess.Popen) -> str:
    """The line that a program prints, once it waits after it: until then its heap is on the move."""
    line = process.stdout.readline()
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")
    return line
