"""The published networks of the zoo, layer by layer.

Each function follows the paper and the reference implementation it names; the tests hold them to the known numbers of
parameters. Only the values of the weights are made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .graph import Builder, LayerOutput, Network

_CLASSES = 1000


def mnist() -> Network:
    """Two convolutions and two dense layers for 28 x 28 grey digits."""
    net = Builder("mnist", 28, 28, 1)
    x = net.pool(net.conv(net.input, 16, 3), "max", 2, 2)
    x = net.pool(net.conv(x, 32, 3), "max", 2, 2)
    x = net.dense(net.flatten(x), 64, "relu")
    return net.softmax(net.dense(x, 10))


def branches() -> Network:
    """Eight branches from one image, each wide and then small, written as a breadth-first exporter would: the wide parts come first."""
    net = Builder("branches", 512, 512, 3)
    stem = net.pool(net.input, "average", 2, 2)
    wide = [net.conv(stem, 64, 1) for _ in range(8)]
    small = [net.pool(x, "max", 8, 8) for x in wide]
    return net.softmax(net.dense(net.global_average(net.concat(*small)), 10))


def vgg16() -> Network:
    """Simonyan and Zisserman 2014, configuration D."""
    net = Builder("vgg16", 224, 224, 3)
    x = net.input
    for filters, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeats):
            x = net.conv(x, filters, 3)
        x = net.pool(x, "max", 2, 2)
    x = net.dense(net.flatten(x), 4096, "relu")
    x = net.dense(x, 4096, "relu")
    return net.softmax(net.dense(x, _CLASSES))


def resnet50() -> Network:
    """He et al. 2015; the stride in the 3 x 3 convolution, as torchvision has it (v1.5)."""
    net = Builder("resnet50", 224, 224, 3)
    x = net.pool(net.conv(net.input, 64, 7, stride=2), "max", 3, 2)
    for filters, repeats, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(repeats):
            x = _bottleneck(net, x, filters, stride if block == 0 else 1, project=block == 0)
    return _classify(net, x)


def _bottleneck(net: Builder, x: LayerOutput, filters: int, stride: int, project: bool) -> LayerOutput:
    shortcut = net.conv(x, 4 * filters, 1, stride, activation="none") if project else x
    branch = net.conv(x, filters, 1)
    branch = net.conv(branch, filters, 3, stride)
    return net.add(shortcut, net.conv(branch, 4 * filters, 1, activation="none"), "relu")


def mobilenet_v2() -> Network:
    """Sandler et al. 2018, width 1.0, table 2."""
    net = Builder("mobilenet_v2", 224, 224, 3)
    x = net.conv(net.input, 32, 3, stride=2, activation="relu6")
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, filters, repeats, stride in stages:
        for block in range(repeats):
            x = _inverted_residual(net, x, expansion, filters, stride if block == 0 else 1)
    return _classify(net, net.conv(x, 1280, 1, activation="relu6"))


def _inverted_residual(net: Builder, x: LayerOutput, expansion: int, filters: int, stride: int) -> LayerOutput:
    channels = x.shape[2]
    branch = net.conv(x, expansion * channels, 1, activation="relu6") if expansion > 1 else x
    branch = net.depthwise(branch, 3, stride, "relu6")
    branch = net.conv(branch, filters, 1, activation="none")
    return net.add(x, branch) if stride == 1 and channels == filters else branch


def inception_v3() -> Network:
    """Szegedy et al. 2015, as keras.applications builds it, without the auxiliary head."""
    net = Builder("inception_v3", 299, 299, 3)
    x = net.conv(net.input, 32, 3, stride=2, padding="valid")
    x = net.conv(x, 32, 3, padding="valid")
    x = net.pool(net.conv(x, 64, 3), "max", 3, 2, "valid")
    x = net.conv(x, 80, 1, padding="valid")
    x = net.pool(net.conv(x, 192, 3, padding="valid"), "max", 3, 2, "valid")
    for pooled in (32, 64, 64):
        x = _inception_a(net, x, pooled)
    x = _reduction_a(net, x)
    for filters in (128, 160, 160, 192):
        x = _inception_b(net, x, filters)
    x = _reduction_b(net, x)
    for _ in range(2):
        x = _inception_c(net, x)
    return _classify(net, x)


def _inception_a(net: Builder, x: LayerOutput, pooled: int) -> LayerOutput:
    narrow = net.conv(x, 64, 1)
    five = net.conv(net.conv(x, 48, 1), 64, 5)
    three = net.conv(net.conv(net.conv(x, 64, 1), 96, 3), 96, 3)
    return net.concat(narrow, five, three, net.conv(net.pool(x, "average", 3, 1), pooled, 1))


def _reduction_a(net: Builder, x: LayerOutput) -> LayerOutput:
    three = net.conv(x, 384, 3, stride=2, padding="valid")
    double = net.conv(net.conv(net.conv(x, 64, 1), 96, 3), 96, 3, stride=2, padding="valid")
    return net.concat(three, double, net.pool(x, "max", 3, 2, "valid"))


def _inception_b(net: Builder, x: LayerOutput, filters: int) -> LayerOutput:
    narrow = net.conv(x, 192, 1)
    seven = net.conv(net.conv(net.conv(x, filters, 1), filters, (1, 7)), 192, (7, 1))
    double = net.conv(x, filters, 1)
    for kernel in ((7, 1), (1, 7), (7, 1)):
        double = net.conv(double, filters, kernel)
    double = net.conv(double, 192, (1, 7))
    return net.concat(narrow, seven, double, net.conv(net.pool(x, "average", 3, 1), 192, 1))


def _reduction_b(net: Builder, x: LayerOutput) -> LayerOutput:
    three = net.conv(net.conv(x, 192, 1), 320, 3, stride=2, padding="valid")
    seven = net.conv(net.conv(net.conv(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    seven = net.conv(seven, 192, 3, stride=2, padding="valid")
    return net.concat(three, seven, net.pool(x, "max", 3, 2, "valid"))


def _inception_c(net: Builder, x: LayerOutput) -> LayerOutput:
    narrow = net.conv(x, 320, 1)
    three = net.conv(x, 384, 1)
    three = net.concat(net.conv(three, 384, (1, 3)), net.conv(three, 384, (3, 1)))
    double = net.conv(net.conv(x, 448, 1), 384, 3)
    double = net.concat(net.conv(double, 384, (1, 3)), net.conv(double, 384, (3, 1)))
    return net.concat(narrow, three, double, net.conv(net.pool(x, "average", 3, 1), 192, 1))


def _classify(net: Builder, x: LayerOutput) -> Network:
    return net.softmax(net.dense(net.global_average(x), _CLASSES))


ARCHITECTURES: Mapping[str, Callable[[], Network]] = {
    "inception_v3": inception_v3,
    "mobilenet_v2": mobilenet_v2,
    "resnet50": resnet50,
    "vgg16": vgg16,
    "mnist": mnist,
    "branches": branches,
}
