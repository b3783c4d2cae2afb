"""Apache TVM, through its Python package: an ONNX model is compiled into a shared library first, and the library is measured.

Beside the library lie a JSON file that names its arguments and, where the weights are separate, a file of parameters. Compiling needs
the package onnx and a linker (gcc or clang). Seen with 0.27.
"""

import json
import math
import os
import platform
import shutil
import warnings

from . import ON_OFF, Knob, Refused, in_words, open_note

# Weights worth a place in the file of parameters. Others stay constants, which some operators' converters insist on (shapes, scales).
_WORTH_SEPARATING = 4096
_SEPARABLE = ("float16", "float32", "float64", "int8", "uint8")

# The linkers that TVM looks for (tvm/support/cc.py); without any it fails with a TypeError.
_COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")
# Seen with 0.27 between 1.0 and 2.3 GiB of weights: the peak of compiling is this many times their size.
_COPIES_TO_EMBED = 5


def _own_threads():
    # threading_backend.cc: half of what the machine reports on x86, "to ignore hyper-threading", even if there is none.
    if platform.machine().lower() in ("x86_64", "amd64", "i686", "i386"):
        return max(1, (os.cpu_count() or 1) // 2)
    return None


class Runtime:
    distribution = "apache-tvm"
    needs = ("onnx",)  # to compile
    formats = (".onnx",)
    always_builds = True
    threads_env = "TVM_NUM_THREADS"
    default_threads = _own_threads()
    knobs = (
        Knob(
            "weights",
            ("embedded", "separate"),
            "embedded",
            "weights inside the library, or in a file of parameters beside it",
            acts="build",
            call={"separate": "weights as inputs of the compiled graph, from tvm.runtime.load_param_dict_from_file"},
        ),
        Knob(
            "memory_plan",
            ON_OFF,
            "on",
            "plan the activations' storage when compiling, rather than allocate each in a run",
            acts="build",
            call={"off": 'tvm.transform.PassContext(disabled_pass=["StaticPlanBlockMemory"]) when compiling'},
        ),
        Knob(
            "allocator",
            ("pooled", "naive"),
            "pooled",
            "keep freed activations for reuse, or give them back at once",
            call={"naive": 'VirtualMachine(library, device, "naive")'},
        ),
        Knob(
            "runtime_only",
            ON_OFF,
            "off",
            "load TVM's runtime without its compiler",
            env={"on": {"TVM_USE_RUNTIME_LIB": "1"}, "off": {"TVM_USE_RUNTIME_LIB": "0"}},
        ),
    )

    def __init__(self):
        import tvm
        from tvm.runtime.vm import VirtualMachine

        self.tvm = tvm
        self.version = tvm.__version__
        self.notes = []
        self._machine_class = VirtualMachine
        self._device = tvm.cpu()

    def load(self, model, options):
        stem = os.path.splitext(model)[0]
        with open(stem + ".json", encoding="utf-8") as file:
            self._description = json.load(file)
        self._allocator = options.knobs["allocator"]
        if options.threads and options.threads > 1:
            self.notes.append("compiled without tuning, most of TVM's operators run on one thread whatever number is asked for")
        if (
            options.release
        ):  # seen with 0.27: it stays mapped when the last reference to its module is gone, and a second load maps it again
            self.notes.append("TVM does not unload a compiled library: its weights stay after RELEASE, unless they are separate")
        left = [name for name, shape, _ in self._description["inputs"] if None in shape]
        self.notes += open_note(left, self._description.get("fixed", {}))  # a library that an older memprof compiled does not say
        self._library = self.tvm.runtime.load_module(model)
        self._weights = []
        if self._description["weights"]:
            by_name = self.tvm.runtime.load_param_dict_from_file(stem + ".params")
            self._weights = [by_name[name] for name in self._description["weights"]]

    def prepare(self):
        self._main = self._machine_class(self._library, self._device, self._allocator)["main"]

    def signature(self):
        return [(name, tuple(shape), dtype) for name, shape, dtype in self._description["inputs"]]

    def set_inputs(self, arrays):
        inputs = [self.tvm.runtime.tensor(arrays[name]) for name, _, _ in self._description["inputs"]]
        self._arguments = inputs + self._weights

    def execute(self):
        return self._main(*self._arguments)

    def outputs(self):
        result = self.execute()
        return [tensor.numpy() for tensor in (result if hasattr(result, "__len__") and not hasattr(result, "numpy") else [result])]

    @staticmethod
    def build(model, folder, options):
        """Compile the model into a library in the folder; return the library's path."""
        # runtime_only=on sets it for the measured process; compiling needs all of TVM.
        os.environ.pop("TVM_USE_RUNTIME_LIB", None)
        try:
            import onnx
        except ImportError:
            raise Refused("compiling for tvm needs the package onnx: pip install onnx") from None
        if not (os.environ.get("CXX") or os.environ.get("CC") or any(map(shutil.which, _COMPILERS))):
            raise Refused("compiling for tvm needs a C compiler to link with, such as gcc")

        stem = os.path.join(folder, os.path.splitext(os.path.basename(model))[0])
        module, inputs, fixed, weights = _read(onnx, model, options)
        _compile(module, options, stem + ".so")
        if weights:
            _save_weights(weights, model, stem + ".params")
        with open(stem + ".json", "w", encoding="utf-8") as file:
            json.dump({"inputs": inputs, "fixed": fixed, "weights": list(weights)}, file)
        return stem + ".so"


def _read(onnx, model, options):
    """The model for TVM, its inputs, the shapes to which it fixes open ones, and the weights that are not in it. The ONNX form is dropped here: it
    is a copy of all weights."""
    separate = options.knobs["weights"] == "separate"
    network = onnx.load(model, load_external_data=False)
    if not separate:
        _check_memory(sum(_bytes(weight) for weight in network.graph.initializer))
    if options.varied:
        _check_shapes(onnx, model, options.varied[-1])
    shapes = {name: shape for name, shape in options.shapes.items() if name not in options.dynamic}
    _open(network.graph, options.dynamic)
    inputs = _signature(network.graph, shapes)
    sizes = {value.name: value.type.tensor_type.shape.dim for value in network.graph.input}
    fixed = {name: shape for name, shape in shapes.items() if not all(size.dim_value for size in sizes.get(name, ()))}
    weights = _take_weights_out(network.graph) if separate else {}
    onnx.load_external_data_for_model(network, _folder(model))
    return _imported(network, shapes), inputs, fixed, weights


def _imported(network, shapes):
    from tvm.relax.frontend.onnx import from_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning for every name that TVM has to change
        return from_onnx(network, shape_dict={name: list(shape) for name, shape in shapes.items()})


def _check_shapes(onnx, model, shapes):
    """Raise Refused if the graph fixes what depends on the inputs' shapes. With open dimensions TVM would compute something (0.27)."""
    try:
        _imported(onnx.load(model), shapes)
    except ValueError as error:
        raise Refused(f"the model cannot be fed {in_words(shapes)}: {str(error).strip().splitlines()[0]}") from None


def _check_memory(embedded):
    needed = _COPIES_TO_EMBED * embedded
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file)
        available = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return
    if needed > available:
        raise Refused(
            f"compiling {embedded / 2**30:.1f} GiB of weights into a library takes about {needed / 2**30:.0f} GiB of memory,"
            f" and {available / 2**30:.0f} GiB are free: use weights=separate"
        )


def _open(graph, dynamic):
    """Give inputs the shapes that iterations vary, None for a dimension that stays open; one that is open in the file keeps its name."""
    for value in graph.input:
        dimensions = value.type.tensor_type.shape.dim
        shape = dynamic.get(value.name, ())
        if shape and len(shape) != len(dimensions):
            raise Refused(f"input {value.name} has {len(dimensions)} dimensions, not {len(shape)}")
        for axis, size in enumerate(shape):
            if size is not None:
                dimensions[axis].dim_value = size
            elif not dimensions[axis].dim_param:
                dimensions[axis].dim_param = f"{value.name}_{axis}"


def _signature(graph, shapes):
    """(name, shape, dtype) of each input, as the library will take them; None for a dimension that stays open."""
    weights = {weight.name for weight in graph.initializer}  # before IR version 4 they were listed among the inputs
    inputs = []
    for value in graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        if value.name not in shapes and not tensor.HasField("shape"):
            raise Refused(f"input {value.name} has no shape in the model: give it one")
        own = [size.dim_value or None for size in tensor.shape.dim]
        inputs.append((value.name, list(shapes.get(value.name, own)), _dtype(tensor.elem_type).name))
    return inputs


def _take_weights_out(graph):
    """Turn the large weights into inputs of the graph, after its own inputs; return their TensorProtos by name.

    The frontend can do this itself (keep_params_in_input), but reads every weight into memory, and takes from the converters also
    the constants that they need.
    """
    from onnx import helper

    taken, kept = {}, []
    for weight in graph.initializer:
        copy = type(weight)()
        copy.CopyFrom(weight)
        if _dtype(weight.data_type).name in _SEPARABLE and _bytes(weight) >= _WORTH_SEPARATING:
            taken[weight.name] = copy
        else:
            kept.append(copy)
    own = [value for value in graph.input if value.name not in taken]
    weights = [helper.make_tensor_value_info(name, weight.data_type, weight.dims) for name, weight in taken.items()]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(own + weights)
    return taken


def _compile(module, options, target):
    import tvm

    skipped = [] if options.knobs["memory_plan"] else ["StaticPlanBlockMemory"]
    with tvm.transform.PassContext(opt_level=3, disabled_pass=skipped):
        tvm.compile(module, "llvm").export_library(target)


def _save_weights(weights, model, target):
    import tvm

    tvm.runtime.save_param_dict_to_file({name: _as_tensor(tvm, weight, model) for name, weight in weights.items()}, target)


def _as_tensor(tvm, weight, model):
    """A weight for TVM; external data stays in its file and is mapped, so that 5 GB of weights need no memory."""
    import numpy
    from onnx import external_data_helper, numpy_helper

    if not external_data_helper.uses_external_data(weight):
        return tvm.runtime.tensor(numpy_helper.to_array(weight))
    where = external_data_helper.ExternalDataInfo(weight)
    path = os.path.join(_folder(model), where.location)
    # mode c: TVM takes writable arrays only.
    mapped = numpy.memmap(path, _dtype(weight.data_type), "c", where.offset or 0, tuple(weight.dims))
    aligned = (where.offset or 0) % 64 == 0  # 0.27 refuses others: kAllocAlignment
    return tvm.runtime.from_dlpack(mapped) if aligned else tvm.runtime.tensor(mapped)


def _folder(model):
    return os.path.dirname(os.path.abspath(model))


def _dtype(number):
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(number)


def _bytes(weight):
    return _dtype(weight.data_type).itemsize * math.prod(weight.dims)
