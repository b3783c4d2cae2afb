"""From a place's name to the place, for as long as it is used: `ssh:[user@]host[:port]`, `adb:[serial]`, `labgrid:place`, a name of memprof's
configuration, or None for here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from ..base.errors import UsageError, near
from ..base.leftovers import scratch
from . import adb, labgrid, names, ssh
from .connection import Link
from .place import HERE, Place
from .remote import Remote
from .sending import Sending


@contextmanager
def reached(
    name: str | None,
    folder: str | None = None,
    python: str | None = None,
    leases: bool = True,
    tell: Callable[[Sending], None] = lambda sending: None,
) -> Iterator[Place]:
    """The place of that name, reached, leased and let go at the end of the block.

    folder, python, leases, tell: see Remote. Raises UsageError for a name that is none, InputError if it cannot be reached or is in use.
    """
    if name is None or names.meant(name).on == "here":
        if folder is not None:
            raise UsageError("--remote-dir goes with --on, and a place that is not this machine")
        yield HERE
        return
    with remote(name, folder, python, leases, tell) as place:
        yield place


@contextmanager
def remote(
    name: str,
    folder: str | None = None,
    python: str | None = None,
    leases: bool = True,
    tell: Callable[[Sending], None] = lambda sending: None,
) -> Iterator[Remote]:
    """As `reached`, for another machine."""
    named = names.meant(name)
    folder = folder if folder is not None else named.remote_dir
    if folder is not None and ("\n" in folder or not folder):
        raise UsageError(f"--remote-dir {folder!r}: write the path of a folder")
    with scratch("place") as work, _link(named.on, work.folder / "s") as link:
        place = Remote(link, folder, python if python is not None else named.python, leases, tell)
        try:
            place.open()
            yield place
        finally:
            place.close()


def _link(name: str, socket: Path) -> AbstractContextManager[Link]:
    kind, colon, _ = name.partition(":")
    match kind if colon else "":
        case "ssh":
            return nullcontext(ssh.parse(name, socket))
        case "adb":
            return nullcontext(adb.parse(name))
        case "labgrid":
            return labgrid.acquired(name, socket)
        case "dask":
            raise UsageError(f"--on {name}: {names.ON_A_FLEET}")
    kinds = "ssh:[USER@]HOST[:PORT], adb:[SERIAL], labgrid:PLACE, here, or a name of memprof's configuration"
    raise UsageError(f"--on {name}: there is no such kind of place{near(kind, (*names.KINDS, *names.known()))}; write {kinds}")
