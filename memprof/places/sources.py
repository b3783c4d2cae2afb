"""Sources of Python as a zip file, named by its content, for a place that does not have them: the measured side's programs (runners/), and others."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from ..base import files
from ..base.cache import cache_folder
from ..base.runners import runners_path


@lru_cache(maxsize=1)
def runners_zip() -> Path:
    """The zip file of runners/, written on first use. Raises InputError."""
    top = runners_path()
    return zipped("runners", {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*.py"))})


def zipped(name: str, texts: Mapping[str, bytes]) -> Path:
    """The path of the zip file of these sources by their paths inside, written on first use. Raises InputError."""
    path = cache_folder("recorder") / f"{name}-{hashlib.sha256(repr(texts).encode()).hexdigest()[:16]}.zip"
    if not path.exists():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for inside, text in texts.items():
                archive.writestr(zipfile.ZipInfo(inside), text)  # of one date, so that the content decides
        files.write(path, packed.getvalue())
    return path
