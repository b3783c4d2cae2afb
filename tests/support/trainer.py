"""What the tests of swap table share."""

from __future__ import annotations

import pytest

from memprof.reports.tables import swap
from support.native_programs import EXAMPLES, built, ran
from support.recorder_runs import with_patience

TENSOR_KIB = 2048
LAYERS = 6
# How many tensors each variant holds at most: in anonymous memory, and mapped.
HOLDS = {"orig": (2 * LAYERS + 2, 0), "swap": (1, 3), "ahead": (1, 3 + 2), "further": (1, 3 + 4)}


@pytest.fixture(scope="module")
def trained():
    """Runs of the trainer by variant: without swapping, with it, and with one or two operations of look-ahead."""
    words = {"orig": (), "swap": ("--swap",), "ahead": ("--swap", "--look-ahead", "1"), "further": ("--swap", "--look-ahead", "2")}
    program = built(EXAMPLES / "trainer.c", "-O2", "-lm")
    shape = ("--layers", LAYERS, "--tensor-kib", TENSOR_KIB, "--epochs")

    def trained(name):
        """A Run of four epochs, or of more where the recorder was held up meanwhile."""
        return with_patience(lambda limit_ns: ran(program, *shape, 4 * limit_ns // 10**9, *words[name]), lambda run: seen(run, name))

    runs = {name: trained(name) for name in words}
    for made in runs.values():
        assert made.outcome.ok, made.outcome.sentence
    return runs


def seen(run, name):
    """Whether the recorder has looked while all was there that is to be."""
    if swap.run_extremes(run, "RSS", swap.window("EPOCH")) is None:
        return False
    anonymous, mapped = HOLDS[name]
    return tensors(run, "anonymous", 2) >= anonymous - 0.3 and tensors(run, "file-backed", 2) >= mapped - 0.1


def tensors(run, kind, place):
    """A figure of EPOCH in tensors, without the few hundred KiB that are the program's own."""
    extremes = swap.run_extremes(run, kind, swap.window("EPOCH"))
    assert extremes is not None
    return extremes[place] / (TENSOR_KIB << 10)
