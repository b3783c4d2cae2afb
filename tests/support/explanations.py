"""What the tests of explain command share."""

from __future__ import annotations

from memprof.explain.records import (
    KEPT,
    LIBRARIES,
    ONCE,
    REST,
    Advice,
    Explanation,
    Finding,
    Held,
    PhaseFigures,
    PhaseLook,
    Slice,
    Verified,
)
from support import sample_runs

MIB = 1 << 20


def explanation(**changes: object) -> Explanation:
    slices = (
        Slice(LIBRARIES, 40 * MIB, "how one"),
        Slice(ONCE, 90 * MIB, "how two"),
        Slice(KEPT, 60 * MIB, "how three"),
        Slice(REST, MIB, "how four"),
    )
    phases = (
        PhaseLook("STARTUP", 40 * MIB, slices[:1]),
        PhaseLook("MODEL_LOAD/peak", 220 * MIB, slices, (Held("as stored", "", "private anonymous", 3, 3, 90 * MIB),), 30 * MIB),
        PhaseLook("EXECUTE", 191 * MIB, slices, (Held("transposed", "", "private anonymous", 3, 3, 90 * MIB),), 0),
    )
    done = Verified(5, (2e8, 1e8), (2e8, 1e8), (1e8, 5e7), (2e8, 1e8), (1e6, 2e6), (1e9, 1e9), True)
    finding = Finding(
        "kept",
        "memory that was freed & kept | <b>",
        60 * MIB,
        "EXECUTE",
        ("because of `this`",),
        (Advice("do that", {"malloc_trim": "on"}, done),),
    )
    facts = {
        "memprof_explain": 1,
        "model": sample_runs.job("net.onnx").model,
        "runtime": "onnxruntime",
        "runtime_version": "1.0",
        "knobs": {},
        "threads": 1,
        "machine": "here",
        "measured": (PhaseFigures("MODEL_LOAD", 225 * MIB, 150 * MIB, 10), PhaseFigures("EXECUTE", 191 * MIB, 191 * MIB, 10, 5)),
        "phases": phases,
        "weight_bytes": 91 * MIB,
        "counted_bytes": 90 * MIB,
        "counted_tensors": 3,
        "not_counted": {"tiny": MIB},
        "tensors": (),
        "findings": (finding,),
    }
    return Explanation(**{**facts, **changes})
