"""ONNX Runtime without an interpreter: the library of the same wheel, opened by a C program of memprof's, native/onnxruntime_runner.c.

This file describes it; the program is compiled on first use and started in place of the interpreter. The C interface has no setting for the
order of operators, and loads and prepares in one step.
"""

from . import onnxruntime

_LACKING = ("order", "provider")
# What native/onnxruntime_runner.c calls, of OrtApi. Models are converted from Python here too.
_CALLS = {
    "optimization": {
        "extended": "SetSessionGraphOptimizationLevel(options, ORT_ENABLE_EXTENDED)",
        "basic": "SetSessionGraphOptimizationLevel(options, ORT_ENABLE_BASIC)",
        "off": "SetSessionGraphOptimizationLevel(options, ORT_DISABLE_ALL)",
    },
    "prepacking": {"off": 'AddSessionConfigEntry(options, "session.disable_prepacking", "1")'},
    "constant_folding": {"off": 'AddSessionConfigEntry(options, "optimization.disable_specified_optimizers", "ConstantFolding")'},
    "mem_pattern": {"off": "DisableMemPattern(options)"},
    "arena": {"off": "DisableCpuMemArena(options)"},
    "arena_shrink": {"on": 'AddRunConfigEntry(run_options, "memory.enable_memory_arena_shrinkage", "cpu:0")'},
    "mode": {"parallel": "SetSessionExecutionMode(options, ORT_PARALLEL)"},
    "spinning": {"off": 'AddSessionConfigEntry(options, "session.intra_op.allow_spinning", "0")'},
}


class Runtime:
    distribution = onnxruntime.Runtime.distribution
    native = "onnxruntime_runner.c"
    library = "onnxruntime/capi/libonnxruntime.so.*"
    formats = onnxruntime.Runtime.formats
    env = onnxruntime.Runtime.env
    doubling = onnxruntime.Runtime.doubling
    reshapes = onnxruntime.Runtime.reshapes
    default_threads = onnxruntime.Runtime.default_threads
    threads_call = "SetIntraOpNumThreads(options, {value})"
    knobs = tuple(knob.calling(_CALLS.get(knob.name, knob.call)) for knob in onnxruntime.Runtime.knobs if knob.name not in _LACKING)
    build_uses = onnxruntime.Runtime.build_uses
    build = staticmethod(onnxruntime.Runtime.build)
