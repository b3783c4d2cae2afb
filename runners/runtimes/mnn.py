"""MNN on the CPU, through its Python package: an Interpreter loads, createSession prepares, runSession executes.

The Interpreter keeps the model file's content beside the session's packed weights; the Python package has no way to release it. An .onnx or
.tflite model is converted by the converter inside the package. It is called directly: the command `mnnconvert` around it installs packages
and reports each conversion to its makers. Seen with 3.6.1.
"""

import os
import re
import sys

from . import Knob, Refused

# Numbers of Interpreter::HintMode in MNN/Interpreter.hpp.
_WINOGRAD_MEMORY_LEVEL = 3
_TIMEOUT_S = 3000
_FRAMEWORKS = {".onnx": "ONNX", ".tflite": "TFLITE"}


class Runtime:
    distribution = "MNN"
    formats = (".mnn", ".onnx", ".tflite")
    converts = (".onnx", ".tflite")
    converter = ("_tools", "this package of MNN comes without the converter that makes an .mnn file of other models")
    default_threads = 4
    threads_call = 'Interpreter.createSession({"numThread": {value}})'
    knobs = (
        Knob(
            "weights",
            ("f32", "f16", "int8"),
            "f32",
            "the type of the weights in the file that a model is converted to; the session holds them as f32 again",
            acts="build",
            call={
                "f16": "mnnconvert --fp16 writes the .mnn file to load",
                "int8": "mnnconvert --weightQuantBits 8 writes the .mnn file to load",
            },
        ),
        Knob(
            "placed",
            ("embedded", "separate"),
            "embedded",
            "weights in the .mnn file that a model is converted to, or beside it, from where they are read once and not kept",
            acts="build",
            call={
                "separate": "mnnconvert --saveExternalData writes the .mnn file to load, with Interpreter.setExternalFile(path of the weights)"
            },
        ),
        Knob(
            "winograd",
            ("0", "1", "2", "3"),
            "3",
            "how far the weights of 3x3 convolutions may grow for Winograd's algorithm; 0 leaves them as they are",
            call="Interpreter.setSessionHint(3, {value}), where 3 is WINOGRAD_MEMORY_LEVEL of HintMode in C++",
        ),
    )

    def __init__(self):
        import MNN
        import numpy

        self._mnn, self._numpy = MNN, numpy
        self.version = MNN.version()
        self.notes = []
        self._session = None

    def load(self, model, options):
        if not os.access(model, os.R_OK):
            raise Refused(f"MNN cannot read {os.path.basename(model)}")
        self._shapes = options.shapes
        self._settings = {"backend": "CPU"}
        if options.threads:
            self._settings["numThread"] = options.threads
        self._interpreter = self._mnn.Interpreter(model)
        self._interpreter.setSessionHint(_WINOGRAD_MEMORY_LEVEL, int(options.knobs["winograd"]))
        if os.path.isfile(model + ".weight"):
            self._interpreter.setExternalFile(model + ".weight")

    def prepare(self):
        self._session = self._interpreter.createSession(self._settings)
        if self._session is None:
            raise Refused("MNN made no session: its words on standard error say why")
        self._inputs = self._interpreter.getSessionInputAll(self._session)
        open_as_one = {name: tuple(max(1, size) for size in tensor.getShape()) for name, tensor in self._inputs.items()}
        self._resize({name: self._shapes.get(name, shape) for name, shape in open_as_one.items()})
        self._outputs = self._interpreter.getSessionOutputAll(self._session)

    def signature(self):
        return [(name, tuple(tensor.getShape()), tensor.getNumpyData().dtype.name) for name, tensor in self._inputs.items()]

    def set_inputs(self, arrays):
        self._resize({name: arrays[name].shape for name in self._inputs})
        self._arrays = {name: self._numpy.ascontiguousarray(arrays[name]) for name in self._inputs}
        self._hosts = [(tensor, self._host(tensor, self._arrays[name])) for name, tensor in self._inputs.items()]

    def execute(self):
        # A run takes the inputs' memory for activations that come later, so each iteration copies its inputs in, as any program must.
        for tensor, host in self._hosts:
            tensor.copyFrom(host)
        code = self._interpreter.runSession(self._session)
        if code != 0:
            raise RuntimeError(f"MNN's runSession ended with code {code}")

    def outputs(self):
        arrays = []
        for tensor in self._outputs.values():
            array = self._numpy.zeros(tensor.getShape(), tensor.getNumpyData().dtype)
            host = self._host(tensor, array)
            tensor.copyToHostTensor(host)
            arrays.append(self._numpy.array(host.getNumpyData()))
        return arrays

    def figures(self):
        """The session's memory by MNN's own account, which has neither the model's content nor what the process holds besides."""
        if self._session is None:
            return {}
        megabytes = self._interpreter.getSessionInfo(self._session, 0)
        return {"mnn_session_bytes": round(megabytes * 2**20)} if megabytes else {}

    def _resize(self, shapes):
        """Give each input its shape, and the session the memory for them, where a shape is another than before."""
        resized = [name for name, tensor in self._inputs.items() if tuple(tensor.getShape()) != tuple(shapes[name])]
        for name in resized:
            self._interpreter.resizeTensor(self._inputs[name], tuple(shapes[name]))
        if resized:
            self._interpreter.resizeSession(self._session)

    def _host(self, tensor, array):
        return self._mnn.Tensor(tuple(tensor.getShape()), tensor.getDataType(), array, tensor.getDimensionType())

    @staticmethod
    def build(model, folder, options):
        """Convert an .onnx or .tflite model into an .mnn file in the folder; return its path."""
        stem, ending = os.path.splitext(os.path.basename(model))
        if ending.lower() not in _FRAMEWORKS:  # asked for by a knob alone
            raise Refused(
                "%s%s is in MNN's own format: weights and placed act where an .onnx or .tflite model is converted" % (stem, ending)
            )
        target = os.path.join(folder, stem + ".mnn")
        words = ["mnnconvert", "-f", _FRAMEWORKS[ending.lower()], "--modelFile", os.path.abspath(model), "--MNNModel", target]
        words += ["--bizCode", "memprof"]
        words += {"f32": [], "f16": ["--fp16"], "int8": ["--weightQuantBits", "8"]}[options.knobs["weights"]]
        words += ["--saveExternalData"] if options.knobs["placed"] == "separate" else []
        import subprocess

        # In a process of its own: only its output names an operator that it lacks, and a model that it cannot read may end it.
        code = "import sys, _tools; _tools.mnnconvert(sys.argv[1:])"
        done = subprocess.run(
            [sys.executable, "-I", "-c", code, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0 or not os.path.isfile(target):
            raise Refused("MNN cannot convert the model: " + _reason(done.stdout.decode("utf-8", "replace"), done.returncode))
        return target


def _reason(text, code):
    """The converter's own words for why it stopped."""
    import signal

    missing = re.search(r"These Op Not Support: (.*)", text)
    if missing:
        operators = sorted({name.partition("::")[2] or name for name in re.split(r"[\s|,]+", missing[1]) if name})
        return "it has no operator " + ", ".join(operators)
    said = [line for line in text.splitlines() if re.search(r"fail|error|not ", line, re.IGNORECASE)]
    return (
        re.sub(r"^\[[\d:]+\]\s*:\d+:\s*", "", said[0]).strip()
        if said
        else "it ended by " + signal.Signals(-code).name
        if code < 0
        else f"it ended with code {code}"
    )
