"""One place in a program that allocates: its function, module, file and line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FrameKind = Literal["site", "root", "below", "unknown"]
By = Literal["function", "module", "line"]

UNKNOWN = "???"


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the program.

    function: its name, demangled, in full (memprof.heap.names shortens it for display); UNKNOWN where the tool had none. module: the path of
    the file of code as the tool wrote it, NO_MODULE where it never does. address: None where the tool gives none.
    kind: "root" the whole, "below" several places left out as too small, `places` of them where the tool counted, "unknown" no name at all.
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
