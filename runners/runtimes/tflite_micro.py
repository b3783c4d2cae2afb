"""TensorFlow Lite Micro, the runtime of microcontrollers, through the package tflite-micro, of which there are only pre-releases.

It reads the model into memory, and the interpreter's constructor lays all tensors out in one arena, which a device would have as an array of fixed
size. How much of the arena is used is its own record, beside what the process needs. Its kernels are the reference kernels: slow,
on one thread. Seen with 0.dev20261023.
"""

import os
import re

from . import ON_OFF, Knob, Refused, installed_version
from ._tflite_file import input_names

_ARENA = {"total": "arena_bytes", "head": "arena_activations_bytes", "tail": "arena_persistent_bytes"}


class Runtime:
    distribution = "tflite-micro"
    formats = (".tflite",)
    reshapes = False
    one_shape = "TensorFlow Lite Micro takes a model's inputs only in the shapes that its file says"
    default_threads = 1
    knobs = (
        Knob(
            "arena",
            "bytes",
            None,
            "the size of the arena, of which only used pages are resident; too small a size is an error (its own: 10 times the model file)",
            call="Interpreter.from_bytes(model, arena_size={value})",
        ),
        Knob(
            "preserve_all_tensors",
            ON_OFF,
            "off",
            "keep every intermediate tensor instead of reusing its memory; records no arena",
            call={"on": "Interpreter.from_bytes(model, intrepreter_config=InterpreterConfig.kPreserveAllTensors)"},
        ),
    )

    def __init__(self):
        from tflite_micro.python.tflite_micro import runtime

        self._module = runtime
        self.version = installed_version("tflite-micro")
        self.notes = []

    def load(self, model, options):
        if options.shapes:
            raise Refused(self.one_shape)
        if options.threads is not None and options.threads > 1:
            self.notes.append("TensorFlow Lite Micro runs on one thread, whatever number is asked for")
        self._model, self._arena, self._preserves = model, options.knobs["arena"], options.knobs["preserve_all_tensors"]
        with open(model, "rb") as file:
            self._content = file.read()

    def prepare(self):
        kinds = self._module.InterpreterConfig
        kind = kinds.kPreserveAllTensors if self._preserves else kinds.kAllocationRecording
        with _Said() as said:
            try:
                self._interpreter = self._module.Interpreter.from_bytes(self._content, arena_size=self._arena, intrepreter_config=kind)
            except Exception as error:  # its Python part reads the file too, and raises what struct does
                raise Refused(_reason(said.text(), error, self._arena)) from None

    def signature(self):
        self._names = input_names(self._model)
        inputs = []
        for index, name in enumerate(self._names):
            details = self._interpreter.get_input_details(index)
            inputs.append((name, tuple(int(size) for size in details["shape"]), details["dtype"].__name__))
        return inputs

    def set_inputs(self, arrays):
        self._arrays = [arrays[name] for name in self._names]

    def execute(self):
        # The inputs lie in the arena, where activations take their place during a run: each iteration copies them in, as a device must.
        for index, array in enumerate(self._arrays):
            self._interpreter.set_input(array, index)
        self._interpreter.invoke()

    def outputs(self):
        arrays = []  # type: list
        with _Said():  # it has no count of the outputs, and prints when there is none of a number
            while True:
                try:
                    arrays.append(self._interpreter.get_output(len(arrays)))
                except (IndexError, RuntimeError, ValueError):
                    return arrays

    def figures(self):
        """The arena's used bytes: all of them, those of activations, and those that are held from PREPARE on."""
        if not hasattr(self, "_interpreter") or self._preserves:
            return {}
        with _Said() as said:
            self._interpreter.print_allocations()
            lines = re.findall(r"Arena allocation (total|head|tail) (\d+) bytes", said.text())
        return {_ARENA[part]: int(size) for part, size in lines}


def _reason(text, error, arena):
    """TensorFlow Lite Micro's words for why it laid out no tensors, which it only prints."""
    operator = re.search(r"Didn't find op for builtin opcode '([^']+)'|op for builtin opcode (\S+)|custom op(?:code)?[ :']+([\w:.]+)", text)
    if operator:
        return "TensorFlow Lite Micro has no operator " + next(name for name in operator.groups() if name)
    missing = re.search(r"Failed to (?:allocate|resize)[^\n]*", text)
    if missing:
        size = f"arena={arena}" if arena is not None else "its arena of 10 times the model file"
        return f"{size} is too small: {missing[0].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join([f"TensorFlow Lite Micro cannot prepare the model: {error}", *lines[-2:]])


class _Said:
    """What C code prints to standard error while the block lasts."""

    def __enter__(self):
        self._file = open(os.memfd_create("said"), "w+b")  # of memory: the module tempfile would take 1 MiB more
        self._before = os.dup(2)
        os.dup2(self._file.fileno(), 2)
        return self

    def text(self):
        self._file.seek(0)
        return self._file.read().decode("utf-8", "replace")

    def __exit__(self, *error):
        os.dup2(self._before, 2)
        os.close(self._before)
        self._file.close()
