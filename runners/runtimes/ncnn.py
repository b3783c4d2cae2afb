"""ncnn, through its Python package: a .param file, which is text, with its weights in a .bin file beside it.

load_model reads the weights and brings them into the layouts of its kernels in one step, so MODEL_LOAD includes PREPARE. ncnn has no batch: an
input of shape (1, 3, 224, 224) elsewhere is (3, 224, 224) here, and the leading 1 is put back before its outputs. An .onnx model is converted
by the program that the package pnnx carries. Two knobs are left out, because they changed no figure of memory: use_packing_layout, and weights as
float16 in the .bin file. Formats: ncnn's wiki, param-and-model-file-structure. Seen with 1.0.20261020.
"""

import os
import re

from . import ON_OFF, Knob, Refused

# Numbers of the parameters of the layer Input, and the axes that they give the sizes of, the innermost first.
_SIZES = {1: ("0",), 2: ("0", "1"), 3: ("0", "1", "2"), 4: ("0", "1", "11", "2")}
_PNNX_TIMEOUT_S = 3000
_WITHOUT_F16 = "net.opt.use_fp16_storage = net.opt.use_fp16_packed = net.opt.use_fp16_arithmetic = False"


class Runtime:
    distribution = "ncnn"
    formats = (".param", ".onnx")
    converts = (".onnx",)
    converter = (
        "pnnx",
        "ncnn takes .onnx by pnnx, which is not installed: pip install --no-deps pnnx (its program does not need the torch that it asks for)",
    )
    default_threads = None
    threads_call = "net.opt.num_threads = {value}"
    knobs = (
        Knob(
            "storage",
            ("f16", "bf16", "f32"),
            "f16",
            "the type in which weights and activations are held, where the CPU has it",
            call={"bf16": f"net.opt.use_bf16_storage = True, and {_WITHOUT_F16}", "f32": _WITHOUT_F16},
        ),
        Knob(
            "winograd",
            ON_OFF,
            "on",
            "transform the weights of 3x3 convolutions for Winograd's algorithm, which enlarges them",
            call="net.opt.use_winograd_convolution = {flag}",
        ),
        Knob(
            "sgemm",
            ON_OFF,
            "on",
            "compute other convolutions as a product of matrices",
            call="net.opt.use_sgemm_convolution = {flag}",
        ),
        Knob(
            "light",
            ON_OFF,
            "on",
            "free weights once they are packed, and each activation after its last use",
            call="net.opt.lightmode = {flag}",
        ),
        Knob(
            "pool_clear",
            ON_OFF,
            "off",
            "give the blocks of activations back after every run, rather than keep those of every shape",
            call={"on": "net.opt.blob_allocator and net.opt.workspace_allocator of your own, and clear() of both after each run"},
        ),
    )

    def __init__(self):
        import ncnn
        import numpy

        self._ncnn, self._numpy = ncnn, numpy
        self.version = ncnn.__version__
        self.notes = ["ncnn reads and packs weights in one step: MODEL_LOAD includes PREPARE"]
        # An object's attributes go in the order in which they came: outputs and the net before the pools whose blocks they hold.
        self._results = []
        self._net = ncnn.Net()
        self._pools = []

    def load(self, model, options):
        knobs, settings = options.knobs, self._net.opt
        if options.threads:
            settings.num_threads = options.threads
        if knobs["pool_clear"]:  # the pools that a net makes itself cannot be reached
            self._pools = [self._ncnn.UnlockedPoolAllocator(), self._ncnn.PoolAllocator()]
            settings.blob_allocator, settings.workspace_allocator = self._pools
        settings.lightmode = knobs["light"]
        settings.use_winograd_convolution = knobs["winograd"]
        settings.use_sgemm_convolution = knobs["sgemm"]
        settings.use_bf16_storage = knobs["storage"] == "bf16"
        if knobs["storage"] != "f16":
            settings.use_fp16_storage = settings.use_fp16_packed = settings.use_fp16_arithmetic = False
        layers = _layers(model)
        self._own_shapes = _input_shapes(layers)
        self._given = options.shapes
        if self._net.load_param(model) != 0:
            missing = sorted({words[0] for words in layers if self._ncnn.layer_to_index(words[0]) < 0})
            raise Refused(f"ncnn has no operator {', '.join(missing)}" if missing else f"ncnn cannot read {os.path.basename(model)}")
        if self._net.load_model(os.path.splitext(model)[0] + ".bin") != 0:
            raise Refused("ncnn cannot read the weights: the .bin file does not fit the .param file")

    def prepare(self):
        self._inputs, self._outputs = list(self._net.input_names()), list(self._net.output_names())

    def signature(self):
        inputs = []
        for name in self._inputs:
            shape = self._given.get(name) or self._own_shapes.get(name)
            if shape is None:
                raise Refused(f"the .param file does not say the shape of input {name}: give it one, without the batch")
            inputs.append((name, shape, "float32"))
        return inputs

    def set_inputs(self, arrays):
        given = [self._numpy.ascontiguousarray(_without_batch(name, arrays[name]), "float32") for name in self._inputs]
        # Copied: a Mat over numpy's memory has no count of its users, and an operator that works in place crashes on it.
        self._mats = [self._ncnn.Mat(array).clone() for array in given]

    def execute(self):
        extractor = self._net.create_extractor()
        for name, mat in zip(self._inputs, self._mats):
            extractor.input(name, mat)
        self._results = []
        for name in self._outputs:
            code, mat = extractor.extract(name)
            if code != 0:
                raise RuntimeError(f"ncnn could not compute {name}: code {code}")
            self._results.append(mat)
        if self._pools:
            del extractor  # it holds blocks
            for pool in self._pools:
                pool.clear()

    def outputs(self):
        return [self._numpy.array(mat)[None] for mat in self._results]

    @staticmethod
    def build(model, folder, options):
        """Convert an .onnx model into a .param and a .bin file in the folder; return the .param file's path."""
        if not model.lower().endswith(".onnx"):
            return model
        stem = os.path.join(folder, os.path.splitext(os.path.basename(model))[0])
        link = stem + ".onnx"  # pnnx writes beside the model that it is given
        os.symlink(os.path.abspath(model), link)
        words = ["fp16=0"]
        inputs = _converted(link, words)
        if options.shapes or any(None in shape for shape, _ in inputs):
            shapes = list(options.declared.values())
            if len(shapes) != len(inputs):
                raise Refused("pnnx needs the shape of every input of a model whose shapes are open")
            kinds = [kind for _, kind in inputs]
            words.append("inputshape=" + _described(shapes, kinds))
            if options.varied:  # what is of another size here stays open; with one shape alone pnnx computes for that
                words.append(
                    "inputshape2=" + _described([options.varied[-1].get(name, shape) for name, shape in options.declared.items()], kinds)
                )
            inputs = [(shape, kind) for shape, (_, kind) in zip(shapes, _converted(link, words))]
        for number, (_, kind) in enumerate(inputs):
            if kind != "f32":
                raise Refused(f"input {number} is of type {kind}: memprof gives ncnn inputs of type f32 only")
        _describe_inputs(stem + ".param", [shape for shape, _ in inputs], list(options.declared))
        for ending in (".onnx", ".pnnxsim.onnx", ".pnnx.param", ".pnnx.bin", ".pnnx.onnx", "_pnnx.py", "_ncnn.py"):
            if os.path.lexists(stem + ending):
                os.remove(stem + ending)
        return stem + ".param"


def _layers(path):
    """The lines of a .param file's layers as words; none if it is no such file, which ncnn will say."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    return [line.split() for line in lines[2:] if line.strip()] if lines[:1] == ["7767517"] else []


def _input_shapes(layers):
    """The shape of each input that says it, by name: `Input NAME 0 1 BLOB 0=w 1=h 2=c`."""
    shapes = {}
    for words in layers:
        if words[0] == "Input" and len(words) > 5:
            sizes = dict(word.split("=", 1) for word in words[5:] if "=" in word)
            shape = tuple(int(sizes[number]) for number in ("2", "11", "1", "0") if int(sizes.get(number, 0)) > 0)
            if shape:
                shapes[words[4]] = shape
    return shapes


def _without_batch(name, array):
    """The array as ncnn takes it: of four dimensions, or of more than one in a (1, N) vector, the first is a batch of 1."""
    if array.ndim in (2, 4, 5) and array.shape[0] == 1:
        return array[0]
    if array.ndim > 3:
        raise Refused(f"input {name} has a batch of {array.shape[0]}: ncnn has none")
    return array


def _pnnx():
    """The program that the package brings, which is found and never imported: it would import torch."""
    from importlib.util import find_spec

    spec = find_spec("pnnx")
    if spec is None or spec.origin is None:
        raise Refused(Runtime.converter[1])
    return os.path.join(os.path.dirname(spec.origin), "pnnx")


def _converted(link, words):
    """Run pnnx on a model; (shape, type) of each input, a dimension None where it is open."""
    import subprocess

    stem = os.path.splitext(link)[0]
    targets = {"pnnxparam": ".pnnx.param", "pnnxbin": ".pnnx.bin", "pnnxpy": "_pnnx.py", "pnnxonnx": ".pnnx.onnx"}
    targets.update(ncnnparam=".param", ncnnbin=".bin", ncnnpy="_ncnn.py")
    command = [_pnnx(), link, *words, *(f"{key}={stem}{ending}" for key, ending in targets.items())]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=_PNNX_TIMEOUT_S)
    if done.returncode != 0 or not os.path.isfile(stem + ".param"):
        raise Refused("pnnx cannot convert the model: " + _reason(done.stdout.decode("utf-8", "replace"), done.returncode))
    with open(stem + ".pnnx.param", encoding="utf-8") as file:
        return [_typed(line) for line in file if line.startswith("pnnx.Input ")]


def _described(shapes, kinds):
    """Inputs as pnnx reads them: [1,3,8,8]f32,[1,4]f32."""
    return ",".join("[%s]%s" % (",".join(map(str, shape)), kind) for shape, kind in zip(shapes, kinds))


def _typed(line):
    described = re.search(r"#\d+=\(([^)]*)\)(\w+)", line)
    if described is None:
        raise Refused("pnnx does not say the shape of an input")
    shape, kind = described.groups()
    return tuple(int(size) if size.isdigit() else None for size in shape.split(",") if size), kind


def _reason(text, code):
    """pnnx's own words for why it stopped; it often ends by a crash after it has said them."""
    import signal

    if "External file" in text:
        return "it reads no external data, so the weights must lie inside the .onnx file"
    operators = sorted(set(re.findall(r"unexpected op_type (\S+)", text)))
    if operators:
        return "it has no operator " + ", ".join(operators)
    said = [line for line in text.splitlines() if re.search(r"fail|error|not ", line, re.IGNORECASE)]
    return said[-1].strip() if said else "it ended by " + signal.Signals(-code).name if code < 0 else f"it ended with code {code}"


def _describe_inputs(path, shapes, names):
    """Give the inputs of a converted .param file the model's names in place of in0, in1..., and their shapes without the batch."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    # Words of a .param file are separated by spaces.
    usable = len(names) == len(shapes) and not any(re.search(r"\s|=", name) or not name for name in names)
    renamed = {f"in{number}": name for number, name in enumerate(names)} if usable else {}
    result = lines[:2]
    for line in lines[2:]:
        words = line.split()
        count = 4 + int(words[2]) + int(words[3])
        words[4:count] = [renamed.get(word, word) for word in words[4:count]]
        if words[0] == "Input":
            shape = shapes[int(line.split()[4][2:])]
            shape = shape[1:] if len(shape) in (2, 4, 5) else shape
            words += ["%s=%d" % (number, size) for number, size in zip(_SIZES.get(len(shape), ()), reversed(shape))]
        result.append(" ".join(words))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(result) + "\n")
