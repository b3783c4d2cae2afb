"""Reads pickles of plain values and nothing else: lists, dicts, strings, numbers, tuples, None and booleans. Nothing is imported or called.

The opcodes are those of Python's pickletools; protocols 2 to 5 write the ones here. Python's own unpickler is not used: what it may call can be
limited, but not its memory, for its memo grows to any number that a file of ten bytes names. Here memory grows with the file: a value is made for a
byte at least, strings are pieces of the file, and a memo has as many entries as there are values.

A reader of large files gives a `Reducer`, which puts something small in the place of each list and dict as soon as it is complete.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Protocol

from ..base.errors import InputError
from ..base.files import Data
from ..base.terminal_text import plain

MOST_CONTAINERS = 5_000_000
_MOST_STACK = 1 << 27  # values: torch writes a list of any length at once
_MOST_MARKS = 1000  # lists, dicts and tuples within one another
_MOST_DIGITS = 16  # bytes of a number: those of 64 bits have at most 9
_GETS = re.compile(rb"(?:j.{4}){1,10000}", re.DOTALL)
_UNCHECKED = 1 << 12  # opcodes from one look at the limits to the next
_BATCH = 1000  # items of a list that Python's pickler writes at once

# Opcodes that make or call something, with their names in pickletools.
_REFUSED = {
    ord("c"): "GLOBAL",
    0x93: "STACK_GLOBAL",
    ord("R"): "REDUCE",
    ord("b"): "BUILD",
    ord("i"): "INST",
    ord("o"): "OBJ",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
    0x96: "BYTEARRAY8",
    ord("B"): "BINBYTES",
    ord("C"): "SHORT_BINBYTES",
    0x8E: "BINBYTES8",
    0x8F: "EMPTY_SET",
    0x90: "ADDITEMS",
    0x91: "FROZENSET",
}
_TEXT_FORM = frozenset(b"ILFSVTUgp")  # of protocol 0 and of Python 2


class Reducer(Protocol):
    """Puts something small in the place of lists and dicts. A value that it returns itself is kept."""

    def of_list(self, before: Any, items: list[Any]) -> Any:
        """before: the list, or its substitute, to which these items come; long lists come in pieces of a thousand."""

    def of_dict(self, items: dict[Any, Any]) -> Any:
        """items: a dict of at most a thousand keys, complete. The dict itself where it is to be kept."""


class _Damaged(Exception):
    """The pickle contradicts itself, or ends too early."""


def read(data: Data, path: str, reducer: Reducer) -> Any:
    """The value in a pickle. Raises InputError, naming what it asks for, where it is not plain, and for one that is damaged."""
    reader = _PickleReader(data, path, reducer)
    try:
        return reader.read()
    except (_Damaged, IndexError, KeyError, TypeError, struct.error, RecursionError):
        raise InputError(f"{path} is damaged: it is no whole pickle, at byte {reader.at}") from None


class _PickleReader:
    def __init__(self, data: Data, path: str, reducer: Reducer) -> None:
        self._data, self._path, self._reducer = data, path, reducer
        self.at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []
        # Where in the memo the empty lists and dicts stand that are still to be filled, by their identity.
        self._open: dict[int, int] = {}
        self._containers = 0

    def read(self) -> Any:
        data, stack = self._data, self._stack
        table: dict[int, Callable[[], None]] = {code: getattr(self, f"_{name}") for code, name in _HANDLERS.items()}
        while True:
            for _ in range(_UNCHECKED):
                code = data[self.at]  # an IndexError at the end of the file
                if code == 0x2E:  # STOP
                    if len(stack) != 1 or self._marks:
                        raise _Damaged
                    return stack[0]
                handler = table.get(code)
                if handler is None:
                    raise self._refusal(code)
                self.at += 1
                handler()
            if len(stack) > _MOST_STACK or self._containers > MOST_CONTAINERS:
                raise InputError(
                    f"{self._path} holds more than memprof reads of a pickle: {MOST_CONTAINERS:,} lists and dicts beside those of a snapshot's rows"
                )

    def _refusal(self, code: int) -> InputError:
        name, wanted = _REFUSED.get(code), ""
        if code == ord("c") or code == ord("i"):
            words = self._data[self.at + 1 : self.at + 400].decode("utf-8", "backslashreplace").split("\n")
            wanted = ".".join(words[:2])
        elif code == 0x93:
            wanted = ".".join(word for word in self._stack[-2:] if isinstance(word, str))
        if name is not None:
            asked = f"asks for {plain(wanted)[:200]} " if wanted else "asks for more than plain values "
            return InputError(
                f"{self._path} {asked}({name} at byte {self.at}): memprof reads lists, dicts, strings and numbers of a pickle, and nothing else"
            )
        if code in _TEXT_FORM:
            return InputError(
                f"{self._path} is a pickle in the old text form, which is not read (byte {self.at}): pickle it with protocol 2 or later"
            )
        return InputError(f"{self._path} is damaged: byte {self.at} is no opcode of a pickle")

    # -- reading

    def _take(self, count: int) -> bytes:
        at = self.at
        if count > len(self._data) - at:
            raise _Damaged
        self.at = at + count
        return self._data[at : self.at]

    def _number(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _since_mark(self) -> list[Any]:
        begin = self._marks.pop()
        items = self._stack[begin:]
        del self._stack[begin:]
        return items

    def _pop(self) -> Any:
        if self._marks and self._marks[-1] >= len(self._stack):
            raise _Damaged
        return self._stack.pop()

    # -- opcodes

    def _proto(self) -> None:
        if self._number(1) > 5:
            raise InputError(f"{self._path} is a pickle of a protocol newer than 5, which is not known here")

    def _frame(self) -> None:
        self._take(8)  # a frame's length tells how much to read at once, which a mapped file does not need

    def _mark(self) -> None:
        self._marks.append(len(self._stack))
        if len(self._marks) > _MOST_MARKS:
            raise _Damaged

    def _drop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._pop()

    def _drop_mark(self) -> None:
        self._since_mark()

    def _duplicate(self) -> None:
        self._push(self._stack[-1])

    def _none(self) -> None:
        self._push(None)

    def _true(self) -> None:
        self._push(True)

    def _false(self) -> None:
        self._push(False)

    def _int1(self) -> None:
        self._push(self._number(1))

    def _int2(self) -> None:
        self._push(self._number(2))

    def _int4(self) -> None:
        self._push(int.from_bytes(self._take(4), "little", signed=True))

    def _long1(self) -> None:
        self._long(self._number(1))

    def _long4(self) -> None:
        self._long(self._number(4))

    def _long(self, count: int) -> None:
        if count > _MOST_DIGITS:
            raise InputError(f"{self._path} is damaged: a number of {count} bytes, at byte {self.at}")
        self._push(int.from_bytes(self._take(count), "little", signed=True))

    def _float(self) -> None:
        self._push(struct.unpack(">d", self._take(8))[0])

    def _text1(self) -> None:
        self._text(1)

    def _text4(self) -> None:
        self._text(4)

    def _text8(self) -> None:
        self._text(8)

    def _text(self, width: int) -> None:
        self._push(self._take(self._number(width)).decode("utf-8", "backslashreplace"))

    def _empty_list(self) -> None:
        self._containers += 1
        self._push([])

    def _empty_dict(self) -> None:
        self._containers += 1
        self._push({})

    def _empty_tuple(self) -> None:
        self._push(())

    def _tuple(self) -> None:
        self._containers += 1
        self._push(tuple(self._since_mark()))

    def _tuple1(self) -> None:
        self._tuple_of(1)

    def _tuple2(self) -> None:
        self._tuple_of(2)

    def _tuple3(self) -> None:
        self._tuple_of(3)

    def _tuple_of(self, count: int) -> None:
        self._containers += 1
        self._push(tuple([self._pop() for _ in range(count)][::-1]))

    def _append(self) -> None:
        self._fill_list([self._pop()])

    def _appends(self) -> None:
        self._fill_list(self._since_mark())

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._fill_dict([key, value])

    def _set_items(self) -> None:
        self._fill_dict(self._since_mark())

    def _fill_list(self, items: list[Any]) -> None:
        before = self._stack[-1]
        after = self._reducer.of_list(before, items)
        if after is before:
            if not isinstance(before, list):
                raise _Damaged
            before += items
        else:
            self._replace(before, after, more=len(items) in (1, _BATCH))

    def _fill_dict(self, pairs: list[Any]) -> None:
        before = self._stack[-1]
        # A tuple within a million tuples would overflow C's stack as a key.
        if not isinstance(before, dict) or len(pairs) % 2 or not all(type(key) in (str, int) for key in pairs[::2]):
            raise _Damaged
        items = dict(zip(pairs[::2], pairs[1::2], strict=True))
        after = items if before else self._reducer.of_dict(items)
        if after is items:
            before.update(items)
        else:
            self._replace(before, after, more=False)

    def _replace(self, before: Any, after: Any, more: bool) -> None:
        """Put a value's substitute on the stack and into the memo, which from then on hold the value no more. more: items may still come."""
        self._stack[-1] = after
        if isinstance(before, list | dict):
            self._containers -= 1
        place = self._open.pop(id(before), None)
        if place is not None and self._memo[place] is before:
            self._memo[place] = after
            if more:
                self._open[id(after)] = place

    # -- the memo

    def _memoize(self) -> None:
        self._put(len(self._memo))

    def _put1(self) -> None:
        self._put(self._number(1))

    def _put4(self) -> None:
        self._put(self._number(4))

    def _put(self, place: int) -> None:
        value = self._stack[-1]
        if place == len(self._memo):
            self._memo.append(value)
        elif place < len(self._memo):
            self._memo[place] = value
        else:
            raise _Damaged
        if not value and isinstance(value, list | dict):
            self._open[id(value)] = place

    def _get1(self) -> None:
        self._push(self._memo[self._number(1)])

    def _get4(self) -> None:
        """A list of known values, as a stack is, is a run of this opcode: it is read at once."""
        run = _GETS.match(self._data, self.at - 1)
        if run is None:
            raise _Damaged
        self.at = run.end()
        numbers = struct.unpack("<" + "xI" * (len(run[0]) // 5), run[0])
        self._stack.extend(map(self._memo.__getitem__, numbers))


_HANDLERS = {
    0x80: "proto",
    0x95: "frame",
    ord("("): "mark",
    ord("0"): "drop",
    ord("1"): "drop_mark",
    ord("2"): "duplicate",
    ord("N"): "none",
    0x88: "true",
    0x89: "false",
    ord("K"): "int1",
    ord("M"): "int2",
    ord("J"): "int4",
    0x8A: "long1",
    0x8B: "long4",
    ord("G"): "float",
    0x8C: "text1",
    ord("X"): "text4",
    0x8D: "text8",
    ord("]"): "empty_list",
    ord("}"): "empty_dict",
    ord(")"): "empty_tuple",
    ord("t"): "tuple",
    0x85: "tuple1",
    0x86: "tuple2",
    0x87: "tuple3",
    ord("a"): "append",
    ord("e"): "appends",
    ord("s"): "set_item",
    ord("u"): "set_items",
    0x94: "memoize",
    ord("q"): "put1",
    ord("r"): "put4",
    ord("h"): "get1",
    ord("j"): "get4",
}
