"""The program that looks at a process on another machine, beside it: what to look for in a file, a look on its output. remote.py starts it.

It needs numpy, and of memprof only snapshot.py and what that imports. Both ways go one line of JSON and numpy's own arrays behind it, compressed: no
pickle, for neither machine need trust the other's code.

    files PATH...    the size of a page, and the device and inode of each file
    look SOUGHT PID  a look at the process; SOUGHT: the file that says what to look for, empty for no weights
"""

from __future__ import annotations

import io
import json
import os
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from . import filtering, snapshot
from .memory_map import PAGE, ProcessEndError, Unreadable
from .scan import Keys
from .whole_weights import Small

GONE = 3  # the exit code for a process that ended meanwhile


def packed(value: Any) -> bytes:
    """A tuple of numbers, texts, arrays and further tuples as bytes, the same for the same content."""
    arrays: list[Any] = []

    def plain(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            arrays.append(part)
            return {"array": len(arrays) - 1}
        return [plain(each) for each in part] if isinstance(part, tuple) else part

    out = io.BytesIO()
    out.write(json.dumps(plain(value), default=int).encode() + b"\n")
    for array in arrays:
        np.save(out, array, allow_pickle=False)
    return zlib.compress(out.getvalue(), 1)


def unpacked(data: bytes) -> Any:
    """The value of `packed`, with lists for its tuples. Raises ValueError, LookupError, zlib.error and EOFError for other bytes."""
    file = io.BytesIO(zlib.decompress(data))
    line, arrays = file.readline(), []
    while file.tell() < len(file.getbuffer()):
        arrays.append(np.load(file, allow_pickle=False))
    return json.loads(line, object_hook=lambda part: arrays[part["array"]])


def what(data: bytes) -> tuple[Keys | None, Small | None]:
    """The weights to look for, from (Keys, Small) packed."""
    keys, tiny = unpacked(data)
    return Keys(*keys) if keys is not None else None, Small(*tiny) if tiny is not None else None


def main(words: Sequence[str]) -> int | str:
    """Follow the words of the command; an exit code, or a sentence for sys.exit."""
    if words[0] == "files":
        states = []
        for path in words[1:]:
            with suppress(OSError):  # a file that is gone is no reason to lose what was measured
                states.append(os.stat(path))
        print(json.dumps({"page": PAGE, "files": [(state.st_dev, state.st_ino) for state in states]}))
        return 0
    _, sought, pid = words
    keys = tiny = None
    if sought:
        with open(sought, "rb") as file:
            keys, tiny = what(file.read())
    try:
        look = snapshot.take(int(pid), "", keys, tiny, filtering.by_numpy)
    except (ProcessEndError, Unreadable) as error:
        print(error, file=sys.stderr)
        return GONE if isinstance(error, ProcessEndError) else 1
    sys.stdout.buffer.write(packed(look))
    return 0
