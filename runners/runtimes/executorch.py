"""ExecuTorch, through its Python package, which brings torch along for its tensors. Seen with 1.4 and 1.5.

_load_program reads a .pte, load_method reserves the memory that was planned for the activations and hands each delegate its part, which XNNPACK then
packs. Which operators run on XNNPACK and which on the portable kernels was decided when the .pte was made: a note says it.
"""

import mmap
import os
import struct

from . import ON_OFF, Knob, Refused, installed_version

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
        # Mapped, so that the weights behind the program are not read here.
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as self._data:
            try:
                self._read()
            except (struct.error, IndexError, UnicodeDecodeError):
                raise Refused("%s is no .pte, or damaged" % os.path.basename(path)) from None

    def _read(self):
        if self._data[4:6] != b"ET":
            raise IndexError
        program = self._u32(0)
        plan = self._tables(program, 1)[0]
        self.name = self._text(plan, 0)
        self.operators = [".".join(filter(None, (self._text(each, 0), self._text(each, 1)))) for each in self._tables(plan, 6)]
        self.delegates = [self._text(each, 0) for each in self._tables(plan, 7)]
        start, count = self._vector(plan, 8)
        # The first is not used: program.fbs, non_const_buffer_sizes.
        self.planned = struct.unpack_from("<%dq" % count, self._data, start)[1:]

    # FlatBuffers: a table begins with the distance back to its vtable, which has the fields' distances from the table.

    def _u32(self, at):
        return struct.unpack_from("<I", self._data, at)[0]

    def _field(self, table, index):
        vtable = table - struct.unpack_from("<i", self._data, table)[0]
        size = struct.unpack_from("<H", self._data, vtable)[0]
        place = 4 + 2 * index
        offset = struct.unpack_from("<H", self._data, vtable + place)[0] if place + 2 <= size else 0
        return table + offset if offset else None

    def _vector(self, table, index):
        """Where the first element of a vector lies, and how many there are."""
        field = self._field(table, index)
        if field is None:
            return 0, 0
        start = field + self._u32(field)
        count = self._u32(start)
        if count > len(self._data) // 4:
            raise IndexError
        return start + 4, count

    def _tables(self, table, index):
        start, count = self._vector(table, index)
        return [at + self._u32(at) for at in range(start, start + 4 * count, 4)]

    def _text(self, table, index):
        start, count = self._vector(table, index)
        return self._data[start : start + count].decode()
