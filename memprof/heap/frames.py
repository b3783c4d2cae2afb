"""One place in a program that allocates: its function, module, file and line. A table numbers the places of a profile."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FrameKind = Literal["site", "root", "below", "unknown"]
By = Literal["function", "module", "line"]

UNKNOWN = "???"


def is_python(file: str | None) -> bool:
    """Whether a frame's file is Python's: a module, or a name in its place, such as <string>."""
    return file is not None and file.endswith((".py", ">"))


class Frame(Struct, frozen=True):
    """A place in the program.

    function: its name, demangled, in full (memprof.heap.names shortens it for display); `libx.so+0x1234`, or UNKNOWN, if the tool had none.
    module: the path of the file of code as the tool wrote it, NO_MODULE if it never writes any. address: None if the tool gives none.
    kind: "root" the whole, "below" several places left out as too small (`places` counts them, if the tool did), "unknown" no name at all.
    """

    function: str
    file: str | None = None
    line: int | None = None
    module: str | None = None
    address: int | None = None
    kind: FrameKind = "site"
    places: int | None = None


BELOW = Frame("below the threshold", kind="below")
NO_MODULE = "(unknown module)"  # of code that the tool does not put down to a file


class FrameTable:
    """The distinct frames of a profile in the order in which they came. fixed: those it begins with, which `number` is never asked for."""

    def __init__(self, *fixed: Frame) -> None:
        self.frames = list(fixed)
        self._numbers: dict[Frame, int] = {}

    def number(self, frame: Frame) -> int:
        """The place of a frame in `frames`."""
        number = self._numbers.setdefault(frame, len(self.frames))
        if number == len(self.frames):
            self.frames.append(frame)
        return number
