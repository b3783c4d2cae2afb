"""onnx's own C++ code (shape inference, putting local functions in place) in a process apart, with limits on its memory and time.

A file of a hundred bytes can ask that code for gigabytes: a dimension of 2147483648 behind a Cast, or functions that call functions. The code can
also end its process. The process loads onnx's compiled module alone, without onnx's Python and without numpy: it starts in 40 ms
and holds 13 MiB (onnx 1.23). Only the time is limited where the system has no RLIMIT_AS (it is Linux's).
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any, Literal

from ...base.errors import os_reason

Task = Literal["inline", "shapes", "values"]

# Small models need next to nothing; large ones about thirty times their size.
_LEAST_BYTES, _BYTES_EACH = 64 << 20, 64
_LEAST_S, _S_EACH = 10.0, 10.0 / (1 << 20)
# Inference adds a shape for each tensor, and a function's body stands in place of each of its calls.
_LEAST_RESULT, _RESULT_EACH = 16 << 20, 16

_CHILD = """
import importlib.util, sys
path, headroom, seconds = sys.argv[1:]
spec = importlib.util.spec_from_file_location("onnx_cpp2py_export", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    import resource
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(headroom),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, OSError, ValueError):
    pass
while line := sys.stdin.buffer.readline():
    task, length = line.decode().split()
    model = sys.stdin.buffer.read(int(length))
    try:
        if task == "inline":
            answer, result = "made", module.inliner.inline_local_functions(model, False)
        else:
            answer, result = "made", module.shape_inference.infer_shapes(model, False, False, task == "values")
    except MemoryError:
        break
    except Exception as error:
        answer, result = "refused", str(error)[:2000].encode("utf-8", "replace")
    del model
    sys.stdout.buffer.write(b"%s %d\\n" % (answer.encode(), len(result)))
    sys.stdout.buffer.write(result)
    sys.stdout.buffer.flush()
    del result
"""


class ModelRefusal(Exception):
    """onnx refuses the model; its words are the message."""


class Bounded(Exception):
    """The task would take more memory or time than a model of that size may, or onnx broke."""


class Apart:
    """The process, started at first need and again where it has ended. Its limits follow from the model's size."""

    def __init__(self, model_bytes: int) -> None:
        self._headroom = _LEAST_BYTES + _BYTES_EACH * model_bytes
        self._end_s = max(_LEAST_S, _S_EACH * model_bytes)
        self._most_result_bytes = _LEAST_RESULT + _RESULT_EACH * model_bytes
        self._spent_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self, task: Task, model: Any) -> Any:
        """The ModelProto that onnx makes of a ModelProto. Raises ModelRefusal and Bounded."""
        try:
            process = self._started()
        except OSError as error:
            raise Bounded(f"no process can be started for it: {os_reason(error)}") from None
        begin = time.monotonic()
        over = threading.Timer(max(self._end_s - self._spent_s, 0), process.kill)
        over.start()
        try:
            answer, result = self._exchange(process, task, model.SerializeToString())
        finally:
            over.cancel()
            self._spent_s += time.monotonic() - begin
        if answer == "refused":
            raise ModelRefusal(result.decode("utf-8", "replace"))
        return type(model).FromString(result)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            from onnx import onnx_cpp2py_export

            words = [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _CHILD,
                onnx_cpp2py_export.__file__,
                str(self._headroom),
                str(int(self._end_s) + 1),
            ]
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], task: Task, content: bytes) -> tuple[str, bytes]:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(b"%s %d\n" % (task.encode(), len(content)) + content)
            process.stdin.flush()
            answer, length = process.stdout.readline().decode().split()
            if int(length) > self._most_result_bytes:
                raise Bounded(f"its result is larger than {self._most_result_bytes >> 20} MiB")
            result = process.stdout.read(int(length))
            if len(result) == int(length):
                return answer, result
        except (OSError, ValueError):
            pass
        except BaseException:
            self._end()
            raise
        self._end()
        raise Bounded(f"it takes more than {self._headroom >> 20} MiB of memory or {self._end_s:.0f} s, or breaks on this model")

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
