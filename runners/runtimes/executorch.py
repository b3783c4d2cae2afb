"""ExecuTorch, through its Python package, which brings torch along for its tensors. Seen with 1.4 and 1.5.

_load_program reads a .pte, load_method reserves the memory that was planned for the activations and hands each delegate its part, which XNNPACK then
packs. Which operators run on XNNPACK and which on the portable kernels was decided when the .pte was made: a note says it.
"""

import os
import struct

from . import ON_OFF, Knob, Refused, installed_version
from ._flatbuffers import FlatFile

# c10::ScalarType (c10/core/ScalarType.h)
_TYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool"}


class Runtime:
    distribution = "executorch"
    needs = ("torch", "numpy")  # from 1.5 on it does not name torch itself
    without_wheels = ("antlr4-python3-runtime",)
    formats = (".pte",)
    default_threads = None
    threads_call = "_unsafe_reset_threadpool({value})"
    # One knob is left out: program_verification, which changed no peak by more than 0.2 MiB (1.4).
    knobs = (
        Knob(
            "mmap",
            ON_OFF,
            "on",
            "map the .pte, or read it into memory",
            call={"off": "_load_program_from_buffer(data) in place of _load_program(path)"},
        ),
    )

    def __init__(self):
        import torch  # first: the library beneath is linked to torch's

        try:
            from executorch.extension.pybindings import _C as core
        except ImportError:  # before 1.5
            from executorch.extension.pybindings import _portable_lib as core

        self.torch, self._core = torch, core
        self.version = installed_version("executorch")
        self.notes = ["the package needs torch for its tensors: the baseline holds torch, which a device does not have"]

    def load(self, model, options):
        if options.threads:
            self._core._unsafe_reset_threadpool(options.threads)
        self._described = Program(model)
        if options.knobs["mmap"]:
            self._program = self._core._load_program(model)
        else:
            with open(model, "rb") as file:
                self._data = file.read()
            self._program = self._core._load_program_from_buffer(self._data)
        self._name = self._described.name
        delegates = sorted(set(self._described.delegates))
        self.notes.append("delegates in this .pte: %s" % ", ".join(delegates) if delegates else "this .pte has portable kernels only")

    def prepare(self):
        lacking = sorted(set(self._described.operators) - set(self._core._get_operator_names()))
        if lacking:
            raise Refused("this build of executorch lacks the operator %s" % ", ".join(lacking))
        lacking = sorted(set(self._described.delegates) - set(self._core._get_registered_backend_names()))
        if lacking:
            raise Refused("this build of executorch lacks the delegate %s" % ", ".join(lacking))
        self._method = self._program.load_method(self._name)

    def signature(self):
        about = self._method.method_meta()
        inputs = []
        for index in range(about.num_inputs()):
            tensor = about.input_tensor_meta(index)
            if tensor.dtype() not in _TYPES:
                raise Refused("input %d is of torch's type %d, for which no input can be made" % (index, tensor.dtype()))
            inputs.append(("input_%d" % index, tuple(tensor.sizes()), _TYPES[tensor.dtype()]))
        return inputs

    def set_inputs(self, arrays):
        self._inputs = [self.torch.from_numpy(arrays[name]) for name in sorted(arrays, key=lambda name: int(name[6:]))]

    def execute(self):
        # The inputs are copied into the planned memory only if they were planned; the outputs stay where they are.
        self._method.set_inputs(self._inputs)
        self._method.execute()

    def outputs(self):
        self.execute()
        return [output.numpy() for output in self._method.get_outputs()]

    def figures(self):
        """What the memory planner reserved for activations, inputs and outputs, as the .pte has it."""
        return {"planned_bytes": sum(self._described.planned)}


class Program:
    """The first method of a .pte: its name, operators, delegates and planned memory, by schema/program.fbs (file identifier ET..).

    Raises Refused if the file is no .pte, or torn.
    """

    def __init__(self, path):
        with open(path, "rb") as file:
            try:
                self._read(FlatFile(file))
            except (struct.error, IndexError, ValueError):
                raise Refused("%s is no .pte, or damaged" % os.path.basename(path)) from None

    def _read(self, flat):
        if flat.values("2s", 4) != (b"ET",):
            raise ValueError
        plan = flat.tables(flat.follow(0), 1)[0]
        self.name = flat.text(plan, 0)
        self.operators = [".".join(filter(None, (flat.text(each, 0), flat.text(each, 1)))) for each in flat.tables(plan, 6)]
        self.delegates = [flat.text(each, 0) for each in flat.tables(plan, 7)]
        start, count = flat.vector(plan, 8)
        # The first is not used: program.fbs, non_const_buffer_sizes.
        self.planned = flat.values("%dq" % count, start)[1:]
