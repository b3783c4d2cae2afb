"""Files that appear whole or not at all: written under another name in the same folder, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import InputError


def make_way(overwrite: bool, *paths: Path) -> None:
    """Raises InputError where a file cannot be written to each path, or would replace one that it was not meant to."""
    for path in paths:
        if not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {path.parent}")
        if path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder")
        if path.exists() and not overwrite:
            raise InputError(f"{path} exists; --force replaces it")


@contextlib.contextmanager
def replacing(*paths: Path) -> Iterator[list[BinaryIO]]:
    """Opens a file for each path; they take their names together when the block ends well, and vanish when it fails.

    The first path is the one by which others are found. It takes its name last, and an old file of that name goes first
    where there are several, so that no model ever stands beside another's data. Raises OSError.
    """
    # Not from tempfile, whose files nobody else may read.
    drafts = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(draft.open("wb")) for draft in drafts]
        if len(paths) > 1:
            paths[0].unlink(missing_ok=True)
        for draft, path in reversed(list(zip(drafts, paths, strict=True))):
            os.replace(draft, path)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
