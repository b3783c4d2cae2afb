"""What the tests of explain look share: programs that stand still."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from support.recorder_runs import wait_for

READY = "print('ready', flush=True); input()"  # how a program ends that is to be looked at


@contextmanager
def waiting(program: str, env: Mapping[str, str] = MappingProxyType({})) -> Iterator[subprocess.Popen[str]]:
    """The process of a program that prints a line and waits. Its `line` is that line. env: variables beside those of this process."""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    ) as process:
        try:
            process.line = told(process)  # type: ignore[attr-defined]
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> str:
    """The line that a program prints, once it waits after it: until then its heap is on the move."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the program has ended"
    wait_for(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")
    return line
