"""The words by which options name phases, and the phases that they stand for."""

from __future__ import annotations

from ..base.errors import UsageError
from .types import EXECUTE, MODEL_LOAD, PREPARE, RELEASE, RESERVED, STARTUP, WARMUP

WORDS = {"load": MODEL_LOAD, "prepare": PREPARE, "warmup": WARMUP, "execute": EXECUTE, "release": RELEASE}


def is_reserved(name: str) -> bool:
    """Whether a reader takes a name for that of one of memprof's own figures, in whatever case, and with _ for a space."""
    return name.casefold().replace("_", " ") in {own.casefold() for own in RESERVED}


def named(word: str) -> str:
    """The phase that a word stands for: load is MODEL_LOAD, and a name of the program's own stands for itself."""
    return {"startup": STARTUP, **WORDS}.get(word, "_".join(word.split()))


def own(name: str) -> str:
    """The name of a user's phase. Raises UsageError for the name of memprof's own figures."""
    if is_reserved(name):
        raise UsageError(f"a phase cannot be called {name}: memprof has a figure of that name; choose another name")
    return name
