"""Files on a worker's side: what a desk sends, kept by content, and the folder of a comparison made of it.

fleet/files/SHA256      its time is that of its last use; a comparison that uses it has a second link to it
fleet/files.lock        locked by the only place of this machine that gets files
fleet/files.part        on its way
fleet/comparison-TOKEN  see memprof.base.leftovers
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...base.cache import cache_folder
from ...base.errors import InputError, os_reason
from ...base.files import sha256_of
from ...base.leftovers import new_token
from .message import Sent

LIMIT_BYTES = 20 << 30  # of all kept files together
_FOLDER = "comparison-"

# Asks a desk for the files of these hashes, and yields their pieces, with an empty one at the end of each.
Ask = Callable[[Sequence[str]], Iterator[bytes]]


@contextmanager
def folder_of(files: Sequence[Sent], ask: Ask) -> Iterator[Path]:
    """The folder of a comparison with all its files, as long as the block lasts. Raises InputError if they cannot be kept or do not come."""
    for left in cache_folder("fleet").glob(f"{_FOLDER}*"):
        if not (cache_folder("running") / left.name.removeprefix(_FOLDER)).exists():  # its worker was killed, see leftovers
            shutil.rmtree(left, ignore_errors=True)
    with new_token() as token:
        folder = cache_folder("fleet") / f"{_FOLDER}{token}"
        try:
            try:
                folder.mkdir()
                _fetch(files, folder, ask)
            except OSError as error:
                where = f"{error.filename or folder} on {os.uname().nodename}"
                raise InputError(f"{where}: {os_reason(error)}; XDG_CACHE_HOME of its worker can name another place") from None
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _fetch(files: Sequence[Sent], folder: Path, ask: Ask) -> None:
    """Link all files into the folder, after those that are not kept have come from the desk."""
    for file in files:
        if not (folder / file.name).resolve().is_relative_to(folder.resolve()):
            raise InputError(f"the desk named a file outside of its folder: {file.name}")
    kept = cache_folder("fleet/files")
    if all(_linked(kept / file.sha256, folder / file.name) for file in files):
        return
    with kept.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another place of this machine may be getting the same files
        missing = {file.sha256: file for file in files if not (kept / file.sha256).exists()}
        pieces = ask([*missing]) if missing else iter(())
        for sha256, file in missing.items():
            _receive(file, kept / sha256, pieces)
        for file in files:
            _linked(kept / file.sha256, folder / file.name)
        _bound(kept)


def _linked(kept: Path, target: Path) -> bool:
    """Link a kept file, so that nobody removes it meanwhile; whether it was there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.utime(kept)
        os.link(kept, target)
    except FileExistsError:
        return True
    except FileNotFoundError:
        return False
    return True


def _receive(file: Sent, kept: Path, pieces: Iterator[bytes]) -> None:
    work = kept.parent.with_suffix(".part")
    try:
        with work.open("wb") as writing:
            while piece := next(pieces):
                writing.write(piece)
        if sha256_of(work)[0] != file.sha256:
            raise InputError(f"{os.path.basename(file.name)} was damaged or changed on its way to {os.uname().nodename}")
        work.chmod(0o700)
        work.rename(kept)
    finally:
        work.unlink(missing_ok=True)


def _bound(kept: Path) -> None:
    """Remove the files that were used least recently until all together take no more than the limit; none that a comparison uses."""
    found = [(path.stat(), path) for path in kept.iterdir()]
    total = sum(facts.st_size for facts, _ in found)
    for facts, path in sorted(found, key=lambda item: item[0].st_mtime):
        if total <= LIMIT_BYTES:
            return
        if facts.st_nlink == 1:
            path.unlink()
            total -= facts.st_size
