"""The facts of TFLite and circle files that all their readers share: types, field numbers, and where a buffer's bytes lie.

The tables and their field numbers are those of TFLite's schema.fbs (version 3, identifier TFL3) and of ONE's circle_schema.fbs (CIR0), whose
layout is the same.
"""

from __future__ import annotations

from ..base.files import Torn
from . import MOST_DIMENSIONS
from .flatbuffer import Flat

IDENTIFIERS = (b"TFL3", b"CIR0")
# schema.fbs, enum TensorType, from 0; in numpy's spelling where numpy has the type.
_TYPE_NAMES = (
    "float32 float16 int32 uint8 int64 string bool int16 complex64 int8 float64 complex128 uint64 resource variant uint32 uint16 int4 bfloat16 "
    "int2 uint4 float8e4m3fn float8e5m2"
)
TYPES = tuple(_TYPE_NAMES.split())

# Field numbers of the tables.
MODEL_CODES, MODEL_SUBGRAPHS, MODEL_BUFFERS, MODEL_METADATA, MODEL_SIGNATURES = 1, 2, 4, 6, 7
SIGNATURE_INPUTS, NAMED_TENSOR_NAME = 0, 0
CODE_OLD, CODE_CUSTOM, CODE_NEW = 0, 1, 3
GRAPH_TENSORS, GRAPH_INPUTS, GRAPH_OUTPUTS, GRAPH_OPERATORS = 0, 1, 2, 3
TENSOR_SHAPE, TENSOR_TYPE, TENSOR_BUFFER, TENSOR_NAME = 0, 1, 2, 3
TENSOR_VARIABLE, TENSOR_SPARSITY, TENSOR_SIGNATURE = 5, 6, 7
OPERATOR_CODE, OPERATOR_INPUTS, OPERATOR_OUTPUTS, OPERATOR_OPTIONS, OPERATOR_OPTIONS_2 = 0, 1, 2, 4, 12
BUFFER_DATA, BUFFER_OFFSET, BUFFER_SIZE = 0, 1, 2
MOST_EXTENT = (1 << 31) - 1  # an element of a shape is an int


def content(flat: Flat, buffer: int) -> tuple[int, int]:
    """Where a buffer's bytes begin and how many there are: in its table, or behind the flatbuffer in models of more than 2 GiB. Raises Torn."""
    offset = flat.scalar(buffer, BUFFER_OFFSET, "<Q")
    if offset <= 1:
        return flat.vector(buffer, BUFFER_DATA, 1)
    size = flat.scalar(buffer, BUFFER_SIZE, "<Q")
    if offset + size > flat.length:
        raise Torn
    return offset, size


def operator_number(flat: Flat, code: int) -> int:
    """The operator that an OperatorCode means. Its old field ends at 127, where a placeholder stands for all above; circle has numbers below 0."""
    old, new = flat.scalar(code, CODE_OLD, "<b"), flat.scalar(code, CODE_NEW, "<i")
    return max(old, new) or min(old, new)


def type_name(flat: Flat, tensor: int) -> str:
    """A tensor's type. Raises Torn."""
    number = flat.scalar(tensor, TENSOR_TYPE, "<b")
    return TYPES[number] if 0 <= number < len(TYPES) else f"type {number}"


def shape(flat: Flat, tensor: int) -> tuple[int, ...]:
    """A tensor's shape. Raises Torn for a negative extent and for more dimensions than any model has."""
    extents = flat.integers(tensor, TENSOR_SHAPE)
    if len(extents) > MOST_DIMENSIONS or any(extent < 0 for extent in extents):
        raise Torn
    return extents
