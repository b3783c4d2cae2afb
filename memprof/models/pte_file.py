"""ExecuTorch's .pte: a flatbuffer with the program, and segments behind it with the weights and with what each delegate was given.

Weights of the portable kernels are constants of the program. XNNPACK's lie in its part or under a name that its part gives, and its part says
their types and shapes. What another delegate was given has a form that only the delegate knows: it is bytes here, so that none of it is lost.
Formats: ExecuTorch's schema/program.fbs and extended_header.cpp; backends/xnnpack's schema.fbs and XNNHeader.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..base.files import Data, Torn
from . import MOST_DIMENSIONS, Stored, stored_bytes
from .flatbuffer import Flat

# Field numbers of the tables; of a union the number of its type, which its value follows.
_PLANS, _BUFFERS, _INLINE, _SEGMENTS, _CONSTANTS, _NAMED = 1, 2, 3, 4, 5, 7
_PLAN_VALUES, _PLAN_DELEGATES = 2, 7
_TENSOR_TYPE, _TENSOR_SIZES, _TENSOR_BUFFER, _TENSOR_ALLOCATION, _TENSOR_EXTRA = 0, 2, 5, 6, 9
_EXTRA_MUTABLE, _EXTRA_NAME, _EXTRA_LOCATION = 0, 1, 2
_XNN_VALUES, _XNN_CONSTANTS = 2, 8
_XNN_TYPE, _XNN_DIMENSIONS, _XNN_BUFFER = 0, 2, 3
_TENSOR, _XNN_QUANTIZED = 5, 2  # members of the unions of values
_NOWHERE = (1 << 64) - 1  # the offset of a constant of XNNPACK that has a name

# schema/scalar_type.fbs, enum ScalarType
_TYPES = {
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))),
    11: "bool",
    15: "bfloat16",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
# enum XNNDatatype; a quantized type as what its values are stored in
_XNN_TYPES = {1: "float32", 2: "float16", 3: "int8", 4: "uint8", 5: "int32", 6: "int8", 7: "int32", 12: "int32", 14: "bfloat16"}


def tensors(data: Data) -> Iterator[Stored]:
    """The weights of a program, each once; of uint8 where only a delegate knows the type.

    Raises Torn where it is no .pte, or where a part of it is missing.
    """
    if data[4:6] != b"ET":
        raise Torn
    seen: set[int] = set()
    for stored in _Program(Flat(data)).tensors():
        if stored.end > len(data):
            raise Torn
        if stored.end > stored.begin and stored.begin not in seen:
            seen.add(stored.begin)
            yield stored


class _Program:
    def __init__(self, flat: Flat) -> None:
        self._flat, self._root = flat, flat.root()
        base = flat.number("<Q", 24) if flat.data[8:12] == b"eh00" else 0
        self._segments = []
        for table in flat.tables(self._root, _SEGMENTS):
            begin = base + flat.scalar(table, 0, "<Q")
            self._segments.append((begin, begin + flat.scalar(table, 1, "<Q")))
        self._named = {flat.text(table, 0): self._segment(flat.scalar(table, 1, "<I")) for table in flat.tables(self._root, _NAMED)}
        self._constants = list(self._constant_places())

    def _segment(self, number: int) -> tuple[int, int]:
        if number >= len(self._segments):
            raise Torn
        return self._segments[number]

    def _constant_places(self) -> Iterator[int]:
        flat, about = self._flat, self._flat.child(self._root, _CONSTANTS)
        begin, count = flat.vector(about, 1, 8) if about else (0, 0)
        for at in range(begin, begin + 8 * count, 8):
            yield self._segment(flat.scalar(about, 0, "<I"))[0] + flat.number("<Q", at)
        if not count:  # as files from before there was a segment for them have it
            for table in flat.tables(self._root, _BUFFERS):
                yield flat.vector(table, 0, 1)[0]

    def tensors(self) -> Iterator[Stored]:
        flat = self._flat
        for plan in flat.tables(self._root, _PLANS):
            for value in flat.tables(plan, _PLAN_VALUES):
                if flat.scalar(value, 0, "<B") == _TENSOR:
                    yield from self._constant(flat.child(value, 1))
            for number, delegate in enumerate(flat.tables(plan, _PLAN_DELEGATES)):
                yield from self._delegate(f"{flat.text(delegate, 0) or 'delegate'} {number}", flat.child(delegate, 1))
        for name, (begin, end) in self._named.items():  # those that no table gave a type
            yield Stored(name, "uint8", (end - begin,), begin, end)

    def _constant(self, tensor: int) -> Iterator[Stored]:
        flat = self._flat
        number, extra = flat.scalar(tensor, _TENSOR_BUFFER, "<I"), flat.child(tensor, _TENSOR_EXTRA)
        # 0 is the empty buffer of computed values; what changes while it runs, and what another file holds, is no constant here.
        elsewhere = extra and (flat.scalar(extra, _EXTRA_MUTABLE, "<Q") or flat.scalar(extra, _EXTRA_LOCATION, "<b"))
        dtype = _TYPES.get(flat.scalar(tensor, _TENSOR_TYPE, "<b"))
        if not number or elsewhere or dtype is None or flat.field(tensor, _TENSOR_ALLOCATION):
            return
        if number >= len(self._constants):
            raise Torn
        shape = _checked(flat.integers(tensor, _TENSOR_SIZES))
        begin = self._constants[number]
        name = (flat.text(extra, _EXTRA_NAME) if extra else "") or f"constant {number}"
        yield Stored(name, dtype, shape, begin, begin + stored_bytes(dtype, shape))

    def _delegate(self, name: str, processed: int) -> Iterator[Stored]:
        flat = self._flat
        number = flat.scalar(processed, 1, "<I") if processed else 0
        if processed and flat.scalar(processed, 0, "<b"):
            begin, end = self._segment(number)
        else:
            inline = flat.tables(self._root, _INLINE)
            if number >= len(inline):
                raise Torn
            begin, length = flat.vector(inline[number], 0, 1)
            end = begin + length
        if flat.data[begin + 4 : begin + 8] == b"XH00":
            yield from self._xnnpack(name, begin)
        else:
            yield Stored(name, "uint8", (end - begin,), begin, end)

    def _xnnpack(self, delegate: str, begin: int) -> Iterator[Stored]:
        """XNNHeader: 4 zero bytes, XH00, its length (u16), where the graph lies and its size (u32 each), where the constants lie (u32)."""
        flat = self._flat
        graph = flat.follow(begin + flat.number("<I", begin + 10))
        first = begin + flat.number("<I", begin + 18)
        constants = flat.tables(graph, _XNN_CONSTANTS)
        for value in flat.tables(graph, _XNN_VALUES):
            tensor = flat.child(value, 1)
            if flat.scalar(value, 0, "<B") == _XNN_QUANTIZED and tensor:
                tensor = flat.child(tensor, 0)
            number = flat.scalar(tensor, _XNN_BUFFER, "<I") if tensor else 0
            if not number:
                continue
            if number >= len(constants):
                raise Torn
            offset, size = flat.scalar(constants[number], 0, "<Q"), flat.scalar(constants[number], 1, "<Q")
            place = first + offset
            if offset == _NOWHERE:
                key = flat.text(constants[number], 2)  # a digest of its content, which names nothing to a reader
                if key not in self._named:
                    continue  # in a .ptd beside
                place = self._named[key][0]
            shape = _checked(flat.integers(tensor, _XNN_DIMENSIONS))
            dtype = _XNN_TYPES.get(flat.scalar(tensor, _XNN_TYPE, "<h"))
            if dtype is None or stored_bytes(dtype, shape) != size:  # two values of 4 bits in a byte, for example
                dtype, shape = "uint8", (size,)
            yield Stored(f"{delegate}, constant {number}", dtype, shape, place, place + size)


def _checked(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0:  # before their product is taken
        raise Torn
    return shape
