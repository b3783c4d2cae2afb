"""ONNX Runtime without an interpreter: the library of the same wheel, opened by a C program of memprof's, native/onnxruntime_runner.c.

This file describes it; the program is compiled on first use and started in place of the interpreter. The C interface has no setting for the
order of operators, and loads and prepares in one step.
"""

from . import onnxruntime

_LACKING = ("order", "provider")


class Runtime:
    distribution = onnxruntime.Runtime.distribution
    native = "onnxruntime_runner.c"
    library = "onnxruntime/capi/libonnxruntime.so.*"
    formats = onnxruntime.Runtime.formats
    env = onnxruntime.Runtime.env
    doubling = onnxruntime.Runtime.doubling
    reshapes = onnxruntime.Runtime.reshapes
    default_threads = onnxruntime.Runtime.default_threads
    knobs = tuple(knob for knob in onnxruntime.Runtime.knobs if knob.name not in _LACKING)
    build_uses = onnxruntime.Runtime.build_uses
    build = staticmethod(onnxruntime.Runtime.build)
