"""The program that looks at a process on another machine, beside it: what to look for in a file, a look on its output. remote.py starts it.

It needs numpy, and of memprof only snapshot.py and what that imports. Both ways go one line of JSON and numpy's own arrays behind it, compressed: no
pickle, for neither machine need trust the other's code.

    files PATH...   the size of a page, and the device and inode of each file
    look KEYS PID   a look at the process; KEYS: the file that says what to look for, empty for no weights
"""

from __future__ import annotations

import io
import json
import os
import sys
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from . import filtering, hashing, snapshot
from .hashing import Words
from .memory_map import PAGE, ProcessEndError, Unreadable
from .scan import Keys
from .snapshot import ProcessSnapshot
from .whole_weights import Small

GONE = 3  # the exit code for a process that ended meanwhile
Arrays = dict[str, NDArray[Any]]


class _Keys(Struct, frozen=True):
    keys: Words
    mask: int
    constant: int
    table: NDArray[np.bool_]


def packed(facts: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Facts and arrays as bytes, the same for the same content."""
    out = io.BytesIO()
    out.write(json.dumps([facts, list(arrays)]).encode() + b"\n")
    for array in arrays.values():
        np.save(out, array, allow_pickle=False)
    return zlib.compress(out.getvalue(), 1)


def unpacked(data: bytes) -> tuple[Any, Arrays]:
    """The facts and arrays of `packed`. Raises ValueError, zlib.error and EOFError for other bytes."""
    file = io.BytesIO(zlib.decompress(data))
    facts, names = json.loads(file.readline())
    return facts, {name: np.load(file, allow_pickle=False) for name in names}


def sought(index: Keys | None, tiny: Small | None) -> bytes:
    """What to look for, as a file for the program."""
    arrays: Arrays = {}
    facts: dict[str, Any] = {"index": None, "tiny": None}
    if index is not None:
        facts["index"] = {"mask": int(index.mask), "constant": int(index.constant)}
        arrays["keys"] = index.keys
    if tiny is not None:
        facts["tiny"] = {"instances": tiny.instances, "lengths": [len(content) for content in tiny.contents]}
        arrays.update(contents=np.concatenate([np.zeros(0, np.uint8), *tiny.contents]))
        arrays.update(tiny_keys=tiny.keys, owners=tiny.owners, offsets=tiny.offsets)
    return packed(facts, arrays)


def _what(data: bytes) -> tuple[Keys | None, Small | None]:
    facts, arrays = unpacked(data)
    index = tiny = None
    if facts["index"] is not None:
        index = _Keys(arrays["keys"], **facts["index"], table=hashing.table(arrays["keys"]))
    if facts["tiny"] is not None:
        bounds = np.cumsum(facts["tiny"]["lengths"])[:-1]
        contents = tuple(np.split(arrays["contents"], bounds)) if facts["tiny"]["lengths"] else ()
        keys = arrays["tiny_keys"]
        tiny = Small(contents, tuple(facts["tiny"]["instances"]), keys, arrays["owners"], arrays["offsets"], hashing.table(keys))
    return index, tiny


def told(look: ProcessSnapshot) -> bytes:
    """A look as bytes."""
    heap, hits = look.heap, look.hits
    facts = {
        "page": PAGE,
        "mappings": [asdict(mapping) for mapping in look.mappings],
        "arenas": heap.arenas,
        "complete": heap.complete,
        "stack_pointers": look.stack_pointers,
        "hits": {"bytes": hits.bytes, "skipped": hits.skipped, "time_ns": hits.time_ns} if hits is not None else None,
        "empty_huge_bytes": look.empty_huge_bytes,
        "stood_still_ns": look.stood_still_ns,
        "whole": [asdict(whole) for whole in look.whole],
    }
    pages = look.pages
    arrays: Arrays = {"address": pages.address, "mapping": pages.mapping, "filed": pages.filed}
    for name, area in (("used", heap.used), ("free", heap.free), ("mapped", heap.mapped), ("arenas_free", heap.arenas_free)):
        arrays[name] = np.stack((area.starts, area.ends))
    if hits is not None:
        arrays.update(hit_addresses=hits.addresses, hit_keys=hits.keys)
    return packed(facts, arrays)


def main(words: Sequence[str]) -> int | str:
    """Follow the words of the command; an exit code, or a sentence for sys.exit."""
    if words[0] == "files":
        states = []
        for path in words[1:]:
            with suppress(OSError):  # a file that is gone is no reason to lose what was measured
                states.append(os.stat(path))
        print(json.dumps({"page": PAGE, "files": [(state.st_dev, state.st_ino) for state in states]}))
        return 0
    _, keys, pid = words
    index = tiny = None
    if keys:
        with open(keys, "rb") as file:
            index, tiny = _what(file.read())
    try:
        look = snapshot.take(int(pid), "", index, tiny, filtering.by_numpy)
    except (ProcessEndError, Unreadable) as error:
        print(error, file=sys.stderr)
        return GONE if isinstance(error, ProcessEndError) else 1
    sys.stdout.buffer.write(told(look))
    return 0
