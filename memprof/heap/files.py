"""Opens a profile's file, tells by its first bytes which tool wrote it, and hands it to the parser for it."""

from __future__ import annotations

import gzip
import lzma
import mmap
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from msgspec import Struct
from msgspec.structs import replace

from ..base import file_kinds
from ..base.errors import InputError, UsageError, os_reason
from ..base.files import Data, mapped
from ..base.units import format_bytes
from . import heap_text, heaptrack, massif, pprof, torch_snapshot
from .phases import spans, with_phases
from .profile import HeapProfile
from .unnamed import located

_XZ = b"\xfd7zXZ\x00"
_MASSIF = b"desc:"
_MEMRAY_BEGINNINGS = (b"memray\x00", b"\x04\x22\x4d\x18")  # the second of LZ4
_HEAD_BYTES = 128
_MOST_NAMED = 6
_MOST_UNPACKED = 256 << 20  # of a file that is read in one piece; the disk holds it, not memory
_PIECE = 1 << 20


class ReaderChoice(Struct, frozen=True):
    """The options of a reader. split: a phase, and the number of equal parts of its time of which memray's and heaptrack's readers keep the stacks.
    value: which of a file's values the profile is of, see HeapProfile. install: see memray.read."""

    split: tuple[str, int] | None = None
    value: str | None = None
    install: Callable[[str], None] | None = None


def read(path: Path, choice: ReaderChoice = ReaderChoice()) -> HeapProfile:
    """See memprof.heap.load."""
    try:
        if path.is_dir():
            path = _within(path)
        with path.open("rb") as file:
            profile = located(demangled(with_phases(_read(file, path, choice), path)))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {os_reason(error)}") from None
    if choice.value is not None and not profile.values:
        raise UsageError(f"{path}: {profile.tool} has one value of each block, so there is none to choose")
    return profile


def _read(file: BinaryIO, path: Path, choice: ReaderChoice) -> HeapProfile:
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    if not head.startswith((heaptrack.GZIP, _XZ)):
        return _by_content(file, path, choice, is_packed=False)
    unpacking = cast(BinaryIO, gzip.open(file) if head.startswith(heaptrack.GZIP) else lzma.open(file))
    try:
        return _by_content(unpacking, path, choice, is_packed=True)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error):
        raise InputError(f"{path}: the compressed file is damaged") from None


def _by_content(file: BinaryIO, path: Path, choice: ReaderChoice, is_packed: bool) -> HeapProfile:
    """is_packed: what is read from `file` is unpacked meanwhile."""
    head = file.read(file_kinds.HEAD_BYTES)
    file.seek(0)
    if head.startswith(_MEMRAY_BEGINNINGS) and not is_packed:
        from . import memray

        return memray.read(path, spans(path, "ms", 0, choice.split), choice.install)
    if _is_heaptrack(head):
        return heaptrack.read(path, spans(path, "ms", None, choice.split))
    if reader := _whole_reader(head):
        with _unpacked(file, path) if is_packed else mapped(path) as data:
            return reader(data, str(path), choice.value)
    if head.startswith(heap_text.BEGINNINGS):
        return heap_text.read(file, str(path), choice.value)
    if head.startswith(_MASSIF):
        return massif.read(cast(massif.Stream, file), str(path))
    kind = file_kinds.kind_of_head(head)
    raise InputError(f"{path} is {f'{kind}, and not' if kind else 'not'} a heap profile of a tool that memprof knows ({', '.join(TOOLS)})")


def _whole_reader(head: bytes) -> Callable[[Data, str, str | None], HeapProfile] | None:
    """The reader of a binary file that is read in one piece and not as a stream."""
    if head[:1] == b"\x80" and b"\x02" <= head[1:2] <= b"\x0f":  # PROTO and a pickle's protocol
        return torch_snapshot.read
    return pprof.read if file_kinds.is_pprof(head) else None


TOOLS = ("massif", "heaptrack", "memray", "pprof", "tcmalloc", "jemalloc", "Go", "torch")


@contextmanager
def _unpacked(file: BinaryIO, path: Path) -> Iterator[mmap.mmap]:
    """A compressed file's content, mapped from a file without a name."""
    with tempfile.TemporaryFile() as whole:
        while piece := file.read(_PIECE):
            whole.write(piece)
            if whole.tell() > _MOST_UNPACKED:
                raise InputError(
                    f"{path} unpacks to more than {format_bytes(_MOST_UNPACKED)}: unpack it yourself, memprof reads that file in place"
                )
        whole.flush()
        with mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _is_heaptrack(head: bytes) -> bool:
    # The first line holds `v`, heaptrack's version and its format's, in hexadecimal: `v 10400 3`.
    return head.startswith(heaptrack.ZSTD) or (head[:2] == b"v " and head[2:3].isalnum())


def _within(folder: Path) -> Path:
    """The only profile in a folder. Raises InputError for none, and for several, which it names."""
    profiles = [path for path in sorted(folder.iterdir()) if path.is_file() and _may_be_profile(path)]
    if len(profiles) == 1:
        return profiles[0]
    if not profiles:
        raise InputError(f"{folder} is a folder, and no profile lies in it")
    more = f" and {len(profiles) - _MOST_NAMED} more" if len(profiles) > _MOST_NAMED else ""
    raise InputError(f"{folder} is a folder: name one of {', '.join(map(str, profiles[:_MOST_NAMED]))}{more}")


def _may_be_profile(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    beginnings = (*_MEMRAY_BEGINNINGS, heaptrack.GZIP, _XZ, _MASSIF, *heap_text.BEGINNINGS)
    return head.startswith(beginnings) or _is_heaptrack(head) or _whole_reader(head) is not None


_MANGLED = re.compile(r"_{1,2}Z[\w.$]{1,4000}$|_R[A-Z][\w.$]{1,4000}$", re.ASCII)
_FILTER_S = 20


def demangled(profile: HeapProfile) -> HeapProfile:
    """The profile with the names that its tool left mangled (`_ZN3app4growEi`, Rust's too) as their author wrote them.

    binutils' c++filt does it, if installed: as a separate process, so that a hostile name can at worst stay as it is.
    """
    names = sorted({frame.function for frame in profile.frames if _MANGLED.match(frame.function)})
    program = shutil.which("c++filt") if names else None
    if program is None:
        return profile
    try:
        done = subprocess.run(
            [program],
            input="".join(f"{name}\n" for name in names).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_FILTER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return profile
    readable = done.stdout.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
    if len(readable) != len(names):
        return profile
    known = dict(zip(names, readable, strict=True))
    return replace(
        profile,
        frames=tuple(replace(frame, function=known[frame.function]) if frame.function in known else frame for frame in profile.frames),
    )
