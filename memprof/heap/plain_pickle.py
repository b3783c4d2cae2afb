"""Reads pickles of plain values and nothing else: lists, dicts, strings, numbers, tuples, None and booleans. Nothing is imported or called.

The opcodes are those of Python's pickletools; protocols 2 to 5 write the ones here. Python's own unpickler is not used: what it may call can be
limited, but not its memory, for its memo grows to any number that a file of ten bytes names. Here memory grows with the file: a value is made for a
byte at least, strings are pieces of the file, and a memo has as many entries as there are values.

A reader of large files gives a `Reducer`, which puts something small in the place of each list and dict as soon as it is complete.
"""

from __future__ import annotations

import re
import struct
from functools import partial
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

_TEXT_FORM = frozenset(b"ILFSVTUgpld")  # of protocol 0 and of Python 2


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
        table = {code: partial(handler, self, *arguments) for code, (handler, *arguments) in _HANDLERS.items()}
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
        import pickletools  # it takes as long to load as a small snapshot to read

        name, wanted = next((opcode.name for opcode in pickletools.opcodes if ord(opcode.code) == code), None), ""
        if code == ord("c") or code == ord("i"):
            words = self._data[self.at + 1 : self.at + 400].decode("utf-8", "backslashreplace").split("\n")
            wanted = ".".join(words[:2])
        elif code == 0x93:
            wanted = ".".join(word for word in self._stack[-2:] if isinstance(word, str))
        if name is not None and code not in _TEXT_FORM:
            asked = f"asks for {plain(wanted)[:200]} " if wanted else "asks for more than plain values "
            return InputError(
                f"{self._path} {asked}({name} at byte {self.at}): memprof reads lists, dicts, strings and numbers of a pickle, and nothing else"
            )
        if name is not None:
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

    def _duplicate(self) -> None:
        self._push(self._stack[-1])

    def _integer(self, width: int) -> None:
        self._push(self._number(width))

    def _signed(self, count: int) -> None:
        self._push(int.from_bytes(self._take(count), "little", signed=True))

    def _long(self, width: int) -> None:
        count = self._number(width)
        if count > _MOST_DIGITS:
            raise InputError(f"{self._path} is damaged: a number of {count} bytes, at byte {self.at}")
        self._signed(count)

    def _float(self) -> None:
        self._push(struct.unpack(">d", self._take(8))[0])

    def _text(self, width: int) -> None:
        self._push(self._take(self._number(width)).decode("utf-8", "backslashreplace"))

    def _empty(self, kind: type[list[Any]] | type[dict[Any, Any]]) -> None:
        self._containers += 1
        self._push(kind())

    def _tuple(self, count: int | None = None) -> None:
        """count: of its items, None for all since the mark."""
        self._containers += 1
        items = self._since_mark() if count is None else [self._pop() for _ in range(count)][::-1]
        self._push(tuple(items))

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

    def _put(self, width: int) -> None:
        """width: of the place's number, 0 for the next place."""
        place, value = self._number(width) if width else len(self._memo), self._stack[-1]
        if place == len(self._memo):
            self._memo.append(value)
        elif place < len(self._memo):
            self._memo[place] = value
        else:
            raise _Damaged
        if not value and isinstance(value, list | dict):
            self._open[id(value)] = place

    def _get(self) -> None:
        self._push(self._memo[self._number(1)])

    def _get_run(self) -> None:
        """A list of known values, as a stack is, is a run of this opcode: it is read at once."""
        run = _GETS.match(self._data, self.at - 1)
        if run is None:
            raise _Damaged
        self.at = run.end()
        numbers = struct.unpack("<" + "xI" * (len(run[0]) // 5), run[0])
        self._stack.extend(map(self._memo.__getitem__, numbers))


# By opcode: what takes it, and what that is given.
_HANDLERS: dict[int, tuple[Any, ...]] = {
    0x80: (_PickleReader._proto,),
    0x95: (_PickleReader._frame,),
    ord("("): (_PickleReader._mark,),
    ord("0"): (_PickleReader._drop,),
    ord("1"): (_PickleReader._since_mark,),
    ord("2"): (_PickleReader._duplicate,),
    ord("N"): (_PickleReader._push, None),
    0x88: (_PickleReader._push, True),
    0x89: (_PickleReader._push, False),
    ord("K"): (_PickleReader._integer, 1),
    ord("M"): (_PickleReader._integer, 2),
    ord("J"): (_PickleReader._signed, 4),
    0x8A: (_PickleReader._long, 1),
    0x8B: (_PickleReader._long, 4),
    ord("G"): (_PickleReader._float,),
    0x8C: (_PickleReader._text, 1),
    ord("X"): (_PickleReader._text, 4),
    0x8D: (_PickleReader._text, 8),
    ord("]"): (_PickleReader._empty, list),
    ord("}"): (_PickleReader._empty, dict),
    ord(")"): (_PickleReader._push, ()),
    ord("t"): (_PickleReader._tuple,),
    0x85: (_PickleReader._tuple, 1),
    0x86: (_PickleReader._tuple, 2),
    0x87: (_PickleReader._tuple, 3),
    ord("a"): (_PickleReader._append,),
    ord("e"): (_PickleReader._appends,),
    ord("s"): (_PickleReader._set_item,),
    ord("u"): (_PickleReader._set_items,),
    0x94: (_PickleReader._put, 0),
    ord("q"): (_PickleReader._put, 1),
    ord("r"): (_PickleReader._put, 4),
    ord("h"): (_PickleReader._get,),
    ord("j"): (_PickleReader._get_run,),
}
