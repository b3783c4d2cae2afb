"""Processes that hold known copies of known tensors, against which the scanner of `memprof explain` is judged; copy_holder.py is the program."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from memprof.explain import copies, snippets
from memprof.models.tensors import StoredTensor

HOLDER = Path(__file__).with_name("copy_holder.py")
LAYOUTS = ("stored", "transposed", "block8", "block16", "float16", "padded")


def write_tensors(path: Path, count: int, seed: int = 0, mean_bytes: int = 300_000) -> list[StoredTensor]:
    """A file of random weights, and where they lie in it: matrices and convolutions, some of low entropy, one of zeros."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    tensors = []
    with path.open("wb") as file:
        for number in range(count):
            elements = max(17_000, int(mean_bytes / 4 * 2 ** draw.uniform(-1.5, 1.5)))
            wide = draw.choice((64, 96, 200, 333, 512))
            shape = (max(2, elements // wide), wide) if number % 3 else (max(16, elements // (9 * 64)), 64, 3, 3)
            values = (rng.standard_normal(shape) * 0.05).astype("float32")
            if number % 97 == 50:
                values = np.choose(rng.integers(0, 2, shape), [np.float32(0), np.float32(1)])
            elif number == count - 1:
                values[:] = 0
            offset = file.tell()
            file.write(values.tobytes())
            tensors.append(StoredTensor(f"w{number}", "float32", shape, values.nbytes, str(path), offset))
    return tensors


@contextmanager
def holding(tensors: Sequence[StoredTensor], kept: Sequence[Sequence[str]], noise_bytes: int) -> Iterator[int]:
    """The id of a process that holds these copies and stands still."""
    order: dict[str, Any] = {"noise_bytes": noise_bytes, "tensors": []}
    for tensor, layouts in zip(tensors, kept, strict=True):
        facts = {"path": tensor.path, "offset": tensor.offset, "shape": tensor.shape, "dtype": tensor.dtype, "copies": list(layouts)}
        order["tensors"].append(facts)
    with subprocess.Popen([sys.executable, str(HOLDER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the process that holds the copies did not come up")
            while (
                Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S"
            ):  # until it waits its heap is on the move
                time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            yield process.pid
        finally:
            process.kill()


def named(copy: copies.Copy) -> str:
    """A found copy in the holder's word for its layout."""
    if copy.converted:
        return copy.converted if copy.layout == copies.STORED else f"{copy.converted} {copy.layout}"
    if copy.layout.startswith("transposed"):
        return "transposed"
    return {copies.STORED: "stored", copies.PADDED: "padded", "in blocks of 8": "block8", "in blocks of 16": "block16"}.get(
        copy.layout, copy.layout
    )


def score(index: snippets.Index, held: Sequence[copies.Copy], kept: Sequence[Sequence[str]]) -> tuple[int, int, int, int]:
    """(right, right with their layout named, found, there) over all copies. A tensor that is not counted must have no copies found."""
    found_layouts: dict[int, Counter[str]] = {}
    for copy in held:
        found_layouts.setdefault(copy.weight, Counter())[named(copy)] += 1
    right = exact = claimed = there = 0
    for number, weight in enumerate(index.weights):
        truth = Counter(name for name in kept[int(weight.tensor.name[1:])] if name != "near") if not weight.why_not else Counter()
        layouts = found_layouts.get(number, Counter())
        right += min(layouts.total(), truth.total())
        exact += (layouts & truth).total()
        claimed += layouts.total()
        there += truth.total()
    return right, exact, claimed, there


def resident_bytes(pid: int) -> int:
    """The resident set of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
