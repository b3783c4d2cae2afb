"""What the benches share: models of the zoo, memprof's command, and the Run of an order."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from memprof.campaign import campaign
from memprof.campaign.progress import Silent
from memprof.records.types import Run
from memprof.subjects.order import Order


def zoo(name: str, path: Path, *words: str) -> Path:
    """A model of the zoo at this path, whose ending says the format; made where it is not there yet."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        command = [script("memprof"), "zoo", name, "--format", path.suffix[1:], "-o", str(path), *words]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def script(name: str) -> str:
    """A command installed beside this interpreter, or on PATH."""
    return installed(name) or name


def installed(tool: str) -> str | None:
    """The path of a command, or None where there is none."""
    beside = Path(sys.executable).parent / tool
    return str(beside) if beside.exists() else shutil.which(tool)


def measured(order: Order) -> Run:
    """The Run of an order. Raises SystemExit where it fails."""
    (run,) = campaign.measure([order], Silent(), lambda line: None)
    if not run.outcome.ok:
        raise SystemExit(f"bench: {order.job.model.name}: {run.outcome.sentence}\n{run.output_tail or ''}")
    return run


def verdict(met: bool) -> str:
    """The last cell of a row with a target."""
    return "met" if met else "**missed**"
