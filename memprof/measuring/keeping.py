"""A runs file while something is measured: opened before, filled Run by Run, and named at the end, however that comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..runs import store


@contextmanager
def keeping(
    path: Path | None, say: Callable[[str], None], *, append: bool = False, holds: str = "the runs"
) -> Iterator[Callable[[bytes], None]]:
    """Yields what takes each Run as a line of the runs file; without a path it takes them and keeps nothing.

    At the end, an error's or an interruption's too, `say` is told which file holds what was measured; a file that nothing was written to is
    removed, unless it was there before. Raises InputError where the file cannot be opened for this.
    """
    if path is None:
        yield lambda line: None
        return
    writer = store.Writer(path, append=append)
    try:
        if writer.mended:
            say(f"{path}: its last line was torn and has been cut off")
        yield writer.write
    finally:
        writer.discard_if_empty()
        if writer.written:
            say(f"{path} holds {holds}")
