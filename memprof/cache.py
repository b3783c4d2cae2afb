"""The folders that memprof keeps in the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import InputError, os_reason


def cache_folder(name: str) -> Path:
    """A folder of memprof's in the user's cache, made where it is missing. Raises InputError where that cannot be."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "memprof" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {os_reason(error)}; XDG_CACHE_HOME can name another place") from None
    return folder
