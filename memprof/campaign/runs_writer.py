"""A runs file while something is measured: opened before, filled Run by Run, and named at the end, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..records import store


@contextmanager
def keeping(
    path: Path | None, say: Callable[[str], None], *, append: bool | None = None, option: str = "--append", holds: str = "the runs"
) -> Iterator[Callable[[bytes], None]]:
    """Yields a function that takes each Run as a line of the runs file. Without a path it keeps nothing. append, option: see store.RunsWriter.

    At the end, also after an error or an interruption, `say` gets the name of the file that holds the Runs. A file that nothing was written to is
    removed, unless it was there before. Raises InputError if the file cannot be opened for this.
    """
    if path is None:
        yield lambda line: None
        return
    writer = store.RunsWriter(path, append=append, option=option)
    try:
        if writer.mended:
            say(f"{path}: its last line was torn and has been cut off")
        yield writer.write
    finally:
        writer.discard_if_empty()
        if writer.written:
            say(f"{path} holds {holds}")
