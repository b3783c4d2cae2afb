"""A net of layers from an .onnx file as a module of PyTorch, for runtimes whose files are made of such modules. Needs torch and numpy, not onnx.

Read are the graph and its weights, in the file or beside it. The numbers of the fields are those of onnx.proto3, and the wire format is
protobuf.dev/programming-guides/encoding. The operators are those of nets of layers for images; there are no control flow and no functions.
"""

import inspect
import keyword
import math
import mmap
import os
import re
import struct

from . import Refused

# All that `Net` computes. They are told to memprof too, which then leaves a runtime out, or refuses it, before anything is measured.
OPERATORS = (
    "Add",
    "AveragePool",
    "Clip",
    "Concat",
    "Constant",
    "Conv",
    "Flatten",
    "Gemm",
    "GlobalAveragePool",
    "Identity",
    "MaxPool",
    "Relu",
    "Softmax",
)
_TYPES = {1: "float32", 6: "int32", 7: "int64", 10: "float16", 11: "float64"}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Model:
    """What an .onnx file holds. nodes: (operator, names it reads, names it writes, attributes). weights: numpy arrays by name.

    inputs: (name, shape, dtype), a dimension None where it is open. Raises Refused if the file is no .onnx file, or holds what is not read here.
    """

    def __init__(self, path):
        self._path = path
        self.inputs, self.outputs, self.nodes, self.weights = [], [], [], {}
        try:
            with open(path, "rb") as file:
                self._data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self._read()
        except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
            raise Refused("%s is no .onnx file, or damaged: %s" % (os.path.basename(path), error)) from None

    def _read(self):
        graphs = [value for number, value in _fields(self._data) if number == 7]
        if not graphs:
            raise ValueError("it has no graph")
        values = []
        for number, value in _fields(graphs[0]):
            if number == 1:
                node = self._node(value)
                if node[0] == "Constant":
                    self._constant(node)
                else:
                    self.nodes.append(node)
            elif number == 5:
                name, array = self._tensor(value)
                self.weights[name] = array
            elif number == 11:
                values.append(_value_info(value))
            elif number == 12:
                self.outputs.append(_value_info(value)[0])
        self.inputs = [value for value in values if value[0] not in self.weights]
        lacking = sorted({node[0] for node in self.nodes} - set(OPERATORS))
        if lacking:
            raise Refused("memprof cannot convert the model for PyTorch: it has no operator %s" % ", ".join(lacking))

    def _constant(self, node):
        _, _, writes, attributes = node
        if "value" not in attributes:
            raise Refused("memprof cannot convert the model for PyTorch: it does not read how the Constant %s is written" % writes[0])
        self.weights[writes[0]] = attributes["value"]

    def _node(self, data):
        kind, domain, reads, writes, attributes = "", "", [], [], {}
        for number, value in _fields(data):
            if number == 1:
                reads.append(_text(value))
            elif number == 2:
                writes.append(_text(value))
            elif number == 4:
                kind = _text(value)
            elif number == 5:
                name, attribute = self._attribute(value)
                attributes[name] = attribute
            elif number == 7:
                domain = _text(value)
        return "%s.%s" % (domain, kind) if domain not in ("", "ai.onnx") else kind, reads, writes, attributes

    def _attribute(self, data):
        name, result, many = "", None, []
        for number, value in _fields(data):
            if number == 1:
                name = _text(value)
            elif number == 2:
                (result,) = struct.unpack("<f", value)
            elif number == 3:
                result = _signed(value)
            elif number == 4:
                result = _text(value)
            elif number == 5:
                result = self._tensor(value)[1]
            elif number == 8:
                many += _numbers(value)
        return name, many or result

    def _tensor(self, data):
        import numpy

        dims, kind, name, content, outside = [], 0, "", None, {}
        for number, value in _fields(data):
            if number == 1:
                dims += _numbers(value)
            elif number == 2:
                kind = value
            elif number == 8:
                name = _text(value)
            elif number == 9 or (number == 4 and not isinstance(value, int)):
                content = value
            elif number == 13:
                entry = dict(_fields(value))
                outside[_text(entry[1])] = _text(entry[2])
        if kind not in _TYPES:
            raise Refused("memprof cannot convert the model for PyTorch: the type of %s is number %d of ONNX" % (name, kind))
        dtype = numpy.dtype(_TYPES[kind])
        if "location" in outside:
            path = os.path.join(os.path.dirname(os.path.abspath(self._path)), outside["location"])
            return name, numpy.memmap(path, dtype, "r", int(outside.get("offset", 0)), tuple(dims))
        if content is None and math.prod(dims):
            raise Refused("memprof cannot convert the model for PyTorch: it does not read how the values of %s are written" % name)
        return name, numpy.frombuffer(content if content is not None else b"", dtype).reshape(dims)


def _fields(data):
    """(number, value) of each field of a message: a whole number, or the bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire in (_BYTES, _FIXED32, _FIXED64):
            size, at = _varint(data, at) if wire == _BYTES else ({_FIXED32: 4, _FIXED64: 8}[wire], at)
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise ValueError("it ends too early")
        else:
            raise ValueError("a field has no known form")
        yield number, value


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def _numbers(value):
    """Whole numbers, packed or alone."""
    if isinstance(value, int):
        return [_signed(value)]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(_signed(number))
    return numbers


def _text(value):
    return bytes(value).decode()


def _value_info(data):
    """(name, shape, dtype) of an input or output."""
    about = dict(_fields(data))
    tensor = dict(_fields(dict(_fields(about[2])).get(1, b""))) if 2 in about else {}
    dims = [dict(_fields(value)) for number, value in _fields(tensor.get(2, b"")) if number == 1]
    return _text(about[1]), [dim.get(1) or None for dim in dims], _TYPES.get(tensor.get(1, 0), "?")


def exported(path, options):
    """torch.export's program of an .onnx file. Dimensions that the file leaves open are those of the job, else 1. Raises Refused."""
    import torch

    model = Model(path)
    examples = []
    for name, shape, dtype in model.inputs:
        if dtype == "?":
            raise Refused("memprof cannot convert the model for PyTorch: input %s is of a type that it does not read" % name)
        shape = options.shapes.get(name) or options.declared.get(name) or [size or 1 for size in shape]
        examples.append(torch.zeros(tuple(shape), dtype=getattr(torch, dtype)))
    with torch.no_grad():
        return torch.export.export(_module(model), tuple(examples))


def _module(model):
    """A torch.nn.Module that computes the model. Its parameters have the names of the weights."""
    import torch

    functions = _Functions(torch)
    names = {}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, array in model.weights.items():
                if array.ndim and array.dtype.kind == "f":
                    names[name] = name.replace(".", "/")  # what a parameter's name cannot have
                    self.register_parameter(names[name], torch.nn.Parameter(torch.from_numpy(array.copy()), requires_grad=False))

        def forward(self, *arguments):
            values = {name: getattr(self, own) for name, own in names.items()}
            values.update((name, array) for name, array in model.weights.items() if name not in names)
            values.update(zip((each[0] for each in model.inputs), arguments))
            for kind, reads, writes, attributes in model.nodes:
                given = [values[name] if name else None for name in reads]
                values[writes[0]] = getattr(functions, kind)(attributes, *given)
            return tuple(values[name] for name in model.outputs)

    # torch.export names the program's inputs by this.
    named = [inspect.Parameter(_as_name(name), inspect.Parameter.POSITIONAL_OR_KEYWORD) for name, _, _ in model.inputs]
    signature = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *named])
    Net.forward.__signature__ = signature  # type: ignore[attr-defined]
    return Net().eval()


def _as_name(text):
    name = re.sub(r"\W", "_", text)
    return name if name.isidentifier() and not keyword.iskeyword(name) else "input_" + name


class _Functions:
    """ONNX's operators by torch's functions: the attributes, then the inputs."""

    def __init__(self, torch):
        self._torch, self._functional = torch, torch.nn.functional

    def Add(self, attributes, first, second):
        return first + second

    def AveragePool(self, attributes, x):
        before, after = _pads("AveragePool", attributes)
        if before != after:
            raise Refused("memprof cannot convert the model for PyTorch: an AveragePool has more padding on one side")
        size, stride = attributes["kernel_shape"], _strides(attributes)
        return self._functional.avg_pool2d(x, size, stride, before, count_include_pad=bool(attributes.get("count_include_pad", 0)))

    def Clip(self, attributes, x, least=None, most=None):
        least = attributes.get("min") if least is None else least.item()
        most = attributes.get("max") if most is None else most.item()
        # XNNPACK has a kernel for this one.
        return self._functional.hardtanh(x, least, most) if None not in (least, most) else self._torch.clamp(x, least, most)

    def Concat(self, attributes, *parts):
        return self._torch.cat(parts, attributes["axis"])

    def Conv(self, attributes, x, kernel, bias=None):
        attributes = {"kernel_shape": list(kernel.shape[2:]), **attributes}
        before, after = _pads("Conv", attributes)
        if before != after:
            x, before = self._padded(x, before, after, 0.0), [0] * len(before)
        dilation = attributes.get("dilations") or [1] * len(before)
        convolution = {1: self._functional.conv1d, 2: self._functional.conv2d, 3: self._functional.conv3d}[len(before)]
        return convolution(x, kernel, bias, _strides(attributes), before, dilation, attributes.get("group", 1))

    def Flatten(self, attributes, x):
        axis = attributes.get("axis", 1)
        if axis != 1:
            raise Refused("memprof cannot convert the model for PyTorch: a Flatten at axis %d" % axis)
        return self._torch.flatten(x, 1)

    def Gemm(self, attributes, x, matrix, bias=None):
        alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
        if attributes.get("transA") or alpha != 1 or beta != 1:
            raise Refused("memprof cannot convert the model for PyTorch: a Gemm with transA, alpha or beta")
        return self._functional.linear(x, matrix if attributes.get("transB") else matrix.t(), bias)

    def GlobalAveragePool(self, attributes, x):
        return x.mean((-1, -2), keepdim=True)

    def Identity(self, attributes, x):
        return x

    def MaxPool(self, attributes, x):
        before, after = _pads("MaxPool", attributes)
        if before != after:
            x, before = self._padded(x, before, after, -math.inf), [0] * len(before)
        return self._functional.max_pool2d(x, attributes["kernel_shape"], _strides(attributes), before)

    def Relu(self, attributes, x):
        return self._functional.relu(x)

    def Softmax(self, attributes, x):
        return self._functional.softmax(x, attributes.get("axis", -1))

    def _padded(self, x, before, after, value):
        # torch lists the last axis first, each with its two sides.
        sides = [size for pair in zip(reversed(before), reversed(after)) for size in pair]
        return self._functional.pad(x, sides, value=value)


def _pads(kind, attributes):
    """The padding before and after each axis. Raises Refused for a window whose padding depends on the image."""
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or attributes.get("ceil_mode"):
        raise Refused("memprof cannot convert the model for PyTorch: a %s with auto_pad or ceil_mode" % kind)
    if "Pool" in kind and (len(attributes["kernel_shape"]) != 2 or set(attributes.get("dilations") or [1]) != {1}):
        raise Refused("memprof cannot convert the model for PyTorch: a %s that is not of images, or with dilations" % kind)
    axes = len(attributes["kernel_shape"])
    pads = attributes.get("pads") or [0] * 2 * axes
    return pads[:axes], pads[axes:]


def _strides(attributes):
    return attributes.get("strides") or [1] * len(attributes["kernel_shape"])
