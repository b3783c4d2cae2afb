"""The measured side's programs (runners/) as a zip file, named by its content, for a place that does not have them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import lru_cache
from pathlib import Path

from ... import files
from ...cache import cache_folder
from ...programs import runtimes


@lru_cache(maxsize=1)
def runners_zip() -> Path:
    """The path of the zip file, written on first use. Raises InputError."""
    top = runtimes.runners_path()
    texts = {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*.py"))}
    path = cache_folder("probe") / f"runners-{hashlib.sha256(repr(texts).encode()).hexdigest()[:16]}.zip"
    if not path.exists():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in texts.items():
                archive.writestr(zipfile.ZipInfo(name), text)  # of one date, so that the content decides
        files.write(path, packed.getvalue())
    return path
