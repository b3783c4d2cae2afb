"""How the commands of `memprof heap` open a profile: which of its values they show, and whether an environment may be made to read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ...heap.profile import HeapProfile


def profile_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `opened` takes."""
    value = click.option(
        "--value",
        metavar="NAME",
        help="The value of a file with several: inuse_space or alloc_space (pprof, tcmalloc, jemalloc, Go); allocated, reserved or inactive (torch)."
        "  [default: what is in use]",
    )
    yes = click.option("--yes", is_flag=True, help="Make an environment with the memray release that reads the file, if another is needed.")
    return value(yes(command))


def opened(file: str, value: str | None, yes: bool) -> HeapProfile:
    """The profile in a file. yes: see --yes. Raises InputError and UsageError."""
    from ... import heap
    from . import talk

    return heap.load(file, value, talk if yes else None)
