"""What a check of doctor says, and the sections of its report."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import os_reason

State = Literal["ok", "limited", "missing", "unknown"]
Finding = tuple[State, str, str]

ROOT = Path("/")
MS = 1_000_000
MIB = 1 << 20

FIGURES, MACHINE, CHILD, TOOLS = "figures", "machine", "measured process", "tools"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: its state, what was found, and what that means for the figures."""

    topic: str
    name: str
    state: State
    found: str
    meaning: str


def mib_up(size: int) -> str:
    return f"{math.ceil(size / MIB * 100) / 100:.2f}"


def guarded(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except OSError as error:
        reason = os_reason(error)
        return "unknown", f"cannot be told ({error.filename}: {reason})" if error.filename else f"cannot be told ({reason})", ""
    except Exception as error:  # a file in a form of its own, a system call that is not there
        return "unknown", f"cannot be told ({type(error).__name__}: {' '.join(str(error).split())[:200]})", ""
