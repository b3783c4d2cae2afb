"""onert, the runtime of Samsung's ONE, through its Python package: .tflite and .circle files, and nnpackages, which are folders.

The class under `onert.native` separates loading, preparing and running. Most settings are environment variables (runtime/onert/core/include/
util/Config.lst), read when the library first needs them. Seen with 0.1.0.
"""

import json
import os
import struct

from . import ON_OFF, Knob, installed_version
from ._tflite_file import input_names


class Runtime:
    distribution = "onert"
    formats = (".tflite", ".circle", "/metadata/MANIFEST")  # an nnpackage is a folder
    threads_env = "NUM_THREADS"
    default_threads = None
    knobs = (
        Knob(
            "mmap",
            ON_OFF,
            "off",
            "map the weights from the model file instead of reading them into memory",
            env={"on": {"USE_MMAPED_DATA": "1"}, "off": {"USE_MMAPED_DATA": "0"}},
        ),
        Knob(
            "planner",
            ("wic", "firstfit", "bump"),
            "wic",
            "how activations share one block; bump gives each its own place; executors other than linear use bump",
            env={name.lower(): {"CPU_MEMORY_PLANNER": name} for name in ("WIC", "FirstFit", "Bump")},
        ),
        Knob(
            "executor",
            ("linear", "dataflow", "parallel"),
            "linear",
            "run operators in a fixed order, as their inputs become ready, or several at once",
            env={name.lower(): {"EXECUTOR": name} for name in ("Linear", "Dataflow", "Parallel")},
        ),
        Knob(
            "backend",
            ("cpu", "ruy"),
            "cpu",
            "who computes convolutions and dense layers; the rest is always cpu's",
            env={"cpu": {}, "ruy": {"OP_BACKEND_Conv2D": "ruy", "OP_BACKEND_FullyConnected": "ruy"}},
            call={"ruy": 'backends "cpu;ruy" of the session; OP_BACKEND_Conv2D=ruy and OP_BACKEND_FullyConnected=ruy in the environment'},
        ),
    )

    def __init__(self):
        import numpy
        from onert.native.libnnfw_api_pybind import infer, prepare_config

        self.version = installed_version("onert")
        self.notes = []
        self._numpy = numpy
        self._session_class = infer.nnfw_session
        self._internal_outputs = prepare_config.ENABLE_INTERNAL_OUTPUT_ALLOC

    def load(self, model, options):
        # Seen in 0.1.0: the cpu backend's convolutions take a thread a CPU from Eigen in any case; depthwise convolutions and ruy's obey.
        if options.threads is not None and options.knobs["backend"] == "cpu":
            self.notes.append("onert's convolutions use every CPU, with any number of threads")
        self._model = model
        self._shapes = options.shapes
        self._session = self._session_class(model, "cpu;ruy" if options.knobs["backend"] == "ruy" else "cpu")

    def prepare(self):
        self._resize(self._shapes)
        # The Python package has no set_output, so this is the only way to run.
        self._session.set_prepare_config(self._internal_outputs)
        self._session.prepare()

    def signature(self):
        inputs = []
        for index, name in enumerate(self._names()):
            info = self._session.input_tensorinfo(index)
            inputs.append((name, tuple(size if size >= 0 else None for size in info.dims[: info.rank]), info.dtype))
        return inputs

    def set_inputs(self, arrays):
        # The session keeps addresses, so the arrays are kept here, in a layout that the binding does not have to copy.
        self._resize({name: array.shape for name, array in arrays.items()})
        self._arrays = [self._numpy.ascontiguousarray(arrays[name]) for name in self._names()]
        for index, array in enumerate(self._arrays):
            self._session.set_input(index, array)

    def execute(self):
        # The outputs stay in the session: get_output would copy them.
        self._session.run()

    def outputs(self):
        return [self._session.get_output(index) for index in range(self._session.output_size())]

    def _resize(self, shapes):
        """Give inputs these shapes, where they are others than before. set_input takes as many bytes as the shape says, whatever it is given.

        An open dimension is 1, as inputs.make takes it: a session that was prepared with one cannot run, even if it is set later.
        """
        for index, name in enumerate(self._names()):
            info = self._session.input_tensorinfo(index)
            shape = tuple(shapes.get(name, [size if size >= 0 else 1 for size in info.dims[: info.rank]]))
            if shape != tuple(info.dims[: info.rank]):
                info.rank, info.dims = len(shape), list(shape)
                self._session.set_input_tensorinfo(index, info)

    def _names(self):
        """The inputs' names, which onert does not tell: from the model file, or input_0, input_1... if they cannot be had."""
        count = self._session.input_size()
        try:
            names = input_names(_model_file(self._model))
        except (OSError, ValueError, KeyError, IndexError, struct.error):
            names = []
        return names if len(set(names)) == count else [f"input_{index}" for index in range(count)]


def _model_file(model):
    """The first model of an nnpackage, by its manifest; a model file is returned as it is."""
    if not os.path.isdir(model):
        return model
    with open(os.path.join(model, "metadata", "MANIFEST"), encoding="utf-8") as file:
        return os.path.join(model, json.load(file)["models"][0])
