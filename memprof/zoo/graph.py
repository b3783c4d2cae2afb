"""A network as both writers read it: operators in the order of execution, shapes without layout, weights by name.

Nothing here knows a file format, numpy, or the weights' values. Shapes are (height, width, channels), or (features,)
after a Flatten, and the batch is always one. Batch normalisation is taken as folded: a convolution has a bias.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

Activation = Literal["none", "relu", "relu6"]
Padding = Literal["same", "valid"]
PoolKind = Literal["max", "average"]

# Every convolution is scaled to give this standard deviation before its activation, as batch normalisation would. With
# 1.5 the bound of ReLU6 lies at four standard deviations, so one int8 range serves ReLU, ReLU6 and pools of them.
_DEVIATION = 1.5
_LIMIT_DEVIATIONS = 4.0
# A maximum over 2 x 2 or 3 x 3 places raises noise by 1.5 to 1.9 and smooth images by 1.0 to 1.2; this lies between.
_MAX_POOL_GAIN = 1.3
# Classes then differ clearly: the likeliest of a thousand gets a tenth or so, which int8 steps of 1/256 can show.
_LOGITS_DEVIATION = 4.0
_BIAS_LIMIT = 0.2 * _DEVIATION


class LayerOutput(Struct, frozen=True):
    """An activation. `rms` is the root mean square to expect, `limit` the magnitude at which int8 saturates."""

    name: str
    shape: tuple[int, ...]
    rms: float
    limit: float
    signed: bool

    @property
    def scale(self) -> float:
        """The real value of one int8 step."""
        return self.limit / (127 if self.signed else 255)

    @property
    def zero_point(self) -> int:
        """The int8 value that stands for 0."""
        return 0 if self.signed else -128


class Weight(Struct, frozen=True):
    """A constant drawn evenly from -limit..limit. Kernels are (out, in, height, width), dense matrices (out, in)."""

    name: str
    shape: tuple[int, ...]
    limit: float


class Conv(Struct, frozen=True):
    """A convolution. A depthwise convolution has a kernel of shape (channels, 1, height, width)."""

    source: LayerOutput
    output: LayerOutput
    kernel: Weight
    bias: Weight
    stride: int
    padding: Padding
    activation: Activation
    depthwise: bool


class Pool(Struct, frozen=True):
    """A square window. Places outside the image count neither for a maximum nor for an average."""

    source: LayerOutput
    output: LayerOutput
    kind: PoolKind
    size: int
    stride: int
    padding: Padding


class GlobalAverage(Struct, frozen=True):
    """The mean of each channel: (height, width, channels) to (channels,)."""

    source: LayerOutput
    output: LayerOutput


class Concat(Struct, frozen=True):
    """Side by side along the channels. All sources have the output's int8 range, as TFLite demands."""

    sources: tuple[LayerOutput, ...]
    output: LayerOutput


class Add(Struct, frozen=True):
    """The sum of two tensors of one shape."""

    first: LayerOutput
    second: LayerOutput
    output: LayerOutput
    activation: Activation


class Flatten(Struct, frozen=True):
    """An image to a vector, in the layout of the format that is written."""

    source: LayerOutput
    output: LayerOutput


class Dense(Struct, frozen=True):
    """A fully connected layer.

    `image` is the (height, width, channels) that the input was flattened from, if it was: the matrix's columns stand for
    channels, height, width in this order, and a writer of channels-last files must reorder them.
    """

    source: LayerOutput
    output: LayerOutput
    matrix: Weight
    bias: Weight
    activation: Activation
    image: tuple[int, int, int] | None


class Softmax(Struct, frozen=True):
    """Logits to probabilities."""

    source: LayerOutput
    output: LayerOutput


Operator = Conv | Pool | GlobalAverage | Concat | Add | Flatten | Dense | Softmax


class Network(Struct, frozen=True):
    """A whole network with one input and one output."""

    name: str
    input: LayerOutput
    operators: tuple[Operator, ...]

    @property
    def output(self) -> LayerOutput:
        """The output of the last operator."""
        return self.operators[-1].output

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Every constant, in the order of first use."""
        return tuple(weight for operator in self.operators for weight in _weights(operator))


def _weights(operator: Operator) -> tuple[Weight, ...]:
    match operator:
        case Conv():
            return operator.kernel, operator.bias
        case Dense():
            return operator.matrix, operator.bias
    return ()


def out_size(size: int, window: int, stride: int, padding: Padding) -> int:
    """Places a window takes along one axis, by TensorFlow's rules for SAME and VALID."""
    return -(-size // stride) if padding == "same" else (size - window) // stride + 1


def pads(size: int, window: int, stride: int, padding: Padding) -> tuple[int, int]:
    """Rows of padding before and after one axis. With SAME the odd row comes after, as in TensorFlow."""
    if padding == "valid":
        return 0, 0
    total = max((out_size(size, window, stride, padding) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


class Builder:
    """Appends operators one by one, and follows shapes and magnitudes so that no layer dies or explodes.

    The magnitudes are expectations for independent weights, not measurements: a calibration with a runtime would make the
    int8 file's bytes depend on that machine's order of summation.
    """

    def __init__(self, name: str, height: int, width: int, channels: int) -> None:
        self.name = name
        self.operators: list[Operator] = []
        self._counts: dict[str, int] = {}
        # Images are taken as spread evenly over -1..1.
        self.input = LayerOutput("input", (height, width, channels), rms=1 / math.sqrt(3), limit=1.0, signed=True)

    def conv(
        self,
        source: LayerOutput,
        filters: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: Padding = "same",
        activation: Activation = "relu",
    ) -> LayerOutput:
        """A convolution with bias and activation."""
        rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
        shape = (filters, source.shape[2], rows, columns)
        return self._conv(source, shape, stride, padding, activation, depthwise=False)

    def depthwise(self, source: LayerOutput, size: int, stride: int, activation: Activation) -> LayerOutput:
        """A convolution of each channel with a separate kernel."""
        return self._conv(source, (source.shape[2], 1, size, size), stride, "same", activation, depthwise=True)

    def pool(self, source: LayerOutput, kind: PoolKind, size: int, stride: int, padding: Padding = "same") -> LayerOutput:
        """A maximum or an average over a square window."""
        height, width, channels = source.shape
        shape = (out_size(height, size, stride, padding), out_size(width, size, stride, padding), channels)
        output = self._like(source, f"{kind}_pool", shape, gain=_MAX_POOL_GAIN if kind == "max" else 1.0)
        self.operators.append(Pool(source, output, kind, size, stride, padding))
        return output

    def global_average(self, source: LayerOutput) -> LayerOutput:
        """The mean of each channel."""
        output = self._like(source, "global_average", source.shape[2:])
        self.operators.append(GlobalAverage(source, output))
        return output

    def concat(self, *sources: LayerOutput) -> LayerOutput:
        """Channels side by side. Raises ValueError where the sources' int8 ranges differ."""
        if len({(source.limit, source.signed) for source in sources}) > 1:
            raise ValueError(f"{self.name}: concat of tensors with different int8 ranges")
        channels = [source.shape[2] for source in sources]
        power = sum(source.rms**2 * width for source, width in zip(sources, channels, strict=True)) / sum(channels)
        shape = (*sources[0].shape[:2], sum(channels))
        output = LayerOutput(self._name("concat"), shape, math.sqrt(power), sources[0].limit, sources[0].signed)
        self.operators.append(Concat(sources, output))
        return output

    def add(self, first: LayerOutput, second: LayerOutput, activation: Activation = "none") -> LayerOutput:
        """The sum of a shortcut and a branch. Their signs are independent, so their powers add."""
        deviation = math.hypot(first.rms, second.rms)
        output = _activated(self._name("add"), first.shape, deviation, activation)
        if not first.signed:
            # A positive shortcut lifts the sum above zero, and a ReLU takes almost nothing.
            output = replace(output, rms=deviation)
        self.operators.append(Add(first, second, output, activation))
        return output

    def flatten(self, source: LayerOutput) -> LayerOutput:
        """An image to a vector."""
        output = self._like(source, "flatten", (math.prod(source.shape),))
        self.operators.append(Flatten(source, output))
        return output

    def dense(self, source: LayerOutput, features: int, activation: Activation = "none") -> LayerOutput:
        """A fully connected layer with bias. Without an activation it gives logits."""
        deviation = _LOGITS_DEVIATION if activation == "none" else _DEVIATION
        name = self._name("dense")
        matrix = _he_weight(f"{name}/weight", (features, source.shape[0]), source, deviation)
        bias = Weight(f"{name}/bias", (features,), _BIAS_LIMIT)
        output = _activated(name, (features,), deviation, activation)
        self.operators.append(Dense(source, output, matrix, bias, activation, self._image_before(source)))
        return output

    def softmax(self, source: LayerOutput) -> Network:
        """Probabilities, and the end of the network."""
        # TFLite's int8 softmax gives steps of 1/256 from -128 on, and nothing else.
        output = LayerOutput("output", source.shape, rms=1.0, limit=255 / 256, signed=False)
        self.operators.append(Softmax(source, output))
        return Network(self.name, self.input, tuple(self.operators))

    def _conv(
        self,
        source: LayerOutput,
        shape: tuple[int, int, int, int],
        stride: int,
        padding: Padding,
        activation: Activation,
        depthwise: bool,
    ) -> LayerOutput:
        name = self._name("depthwise" if depthwise else "conv")
        filters, _, rows, columns = shape
        height = out_size(source.shape[0], rows, stride, padding)
        width = out_size(source.shape[1], columns, stride, padding)
        kernel = _he_weight(f"{name}/weight", shape, source, _DEVIATION)
        bias = Weight(f"{name}/bias", (filters,), _BIAS_LIMIT)
        output = _activated(name, (height, width, filters), _DEVIATION, activation)
        self.operators.append(Conv(source, output, kernel, bias, stride, padding, activation, depthwise))
        return output

    def _image_before(self, source: LayerOutput) -> tuple[int, int, int] | None:
        for operator in self.operators:
            if isinstance(operator, Flatten) and operator.output == source:
                height, width, channels = operator.source.shape
                return height, width, channels
        return None

    def _name(self, kind: str) -> str:
        """`conv_3` for the third convolution: stable, because architectures are built in one order."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}_{self._counts[kind]}"

    def _like(self, source: LayerOutput, kind: str, shape: tuple[int, ...], gain: float = 1.0) -> LayerOutput:
        """A tensor in the same int8 steps: TFLite's pools and reshapes do not rescale."""
        return replace(source, name=self._name(kind), shape=shape, rms=gain * source.rms)


def _activated(name: str, shape: tuple[int, ...], deviation: float, activation: Activation) -> LayerOutput:
    """The activation of normal values of this deviation. A ReLU takes half of their power."""
    rectified = activation != "none"
    rms = deviation * math.sqrt(0.5) if rectified else deviation
    return LayerOutput(name, shape, rms, _LIMIT_DEVIATIONS * deviation, signed=not rectified)


def _he_weight(name: str, shape: tuple[int, ...], source: LayerOutput, deviation: float) -> Weight:
    """He et al. 2015, section 2.2: sums of fan-in products keep their power from layer to layer."""
    fan_in = math.prod(shape[1:])
    # Even values in -a..a have the deviation a / sqrt(3).
    return Weight(name, shape, deviation / source.rms * math.sqrt(3 / fan_in))
