"""The nets of the benchmarks as files in bench/: the zoo's, and for PyTorch and ExecuTorch torchvision's, exported by export_net.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

from memprof import zoo
from memprof.programs.runtimes import located

FOLDER = Path(__file__).resolve().parents[2] / "bench"
EXPORTED = {".pt2": "torch", ".pte": "executorch"}


def model(name: str, ending: str) -> Path:
    """A net's file, made where it is missing.

    Raises InputError where the runtime that exports it is not installed, CalledProcessError where the export fails.
    """
    path = FOLDER / f"{name}{ending}"
    if path.exists():
        return path
    FOLDER.mkdir(exist_ok=True)
    if ending in EXPORTED:
        _, python = located(EXPORTED[ending], None)
        subprocess.run([python, str(Path(__file__).with_name("export_net.py")), name, str(path)], check=True)
    else:
        zoo.make(name, path, format={form: format for format, form in zoo.ENDINGS.items()}[ending])
    return path
