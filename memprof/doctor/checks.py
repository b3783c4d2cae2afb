"""The checks of doctor, and the sections of its report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ..base.errors import os_reason

State = Literal["ok", "limited", "missing", "unknown"]
Finding = tuple[State, str, str]  # see Check: state, found, meaning

ROOT = Path("/")
MS = 1_000_000
MIB = 1 << 20

FIGURES, DEVICES, MACHINE, CHILD, TOOLS = "figures", "device memory", "machine", "measured process", "tools"


class Check(Struct, frozen=True):
    """A look at one property of the machine. found: the fact, as people read it. meaning: its consequence for the figures, empty if unknown."""

    topic: str
    name: str
    state: State
    found: str
    meaning: str


def guarded(look: Callable[[], Finding]) -> Finding:
    """The finding of a look, "unknown" with the reason if it raises anything."""
    try:
        return look()
    except OSError as error:
        reason = os_reason(error)
        return "unknown", f"cannot be told ({error.filename}: {reason})" if error.filename else f"cannot be told ({reason})", ""
    except Exception as error:  # a file in an unknown form, a missing system call
        return "unknown", f"cannot be told ({type(error).__name__}: {' '.join(str(error).split())[:200]})", ""
