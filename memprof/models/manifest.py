"""The small JSON file by which a folder says which file in it is the model."""

from __future__ import annotations

import json
from pathlib import Path

from ..base.files import Torn, opened

_LARGEST = 16 << 20


def text(path: Path, *places: str | int) -> str:
    """The text at a place in the file, by names and numbers from the outside in. Raises OSError, Torn where there is none."""
    with opened(path) as file:
        content = file.read(_LARGEST)
    try:
        value = json.loads(content)
        for place in places:
            value = value[place]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Torn from None
    if not isinstance(value, str):
        raise Torn
    return value
