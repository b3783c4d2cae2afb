"""What a file is, told by the bytes at its begin, for sentences about a file that is something else than its reader takes.

The bytes are those that the formats' own documents name, as file(1) has them.
"""

from __future__ import annotations

import re
from pathlib import Path

HEAD_BYTES = 1024
_LFS = b"version https://git-lfs.github.com/spec/"
# (offset, bytes there, what the file is)
_MAGIC = (
    (16, b"\x04\x00\x3e\x00", "an ELF core dump"),
    (16, b"\x04\x00\xb7\x00", "an ELF core dump"),
    (0, b"\x7fELF", "an ELF program or library"),
    (0, b"MZ", "a Windows program"),
    (0, b"\x89PNG\r\n", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"GIF8", "a GIF picture"),
    (0, b"%PDF", "a PDF document"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ\x00", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (257, b"ustar", "a tar archive"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"\x89HDF\r\n", "an HDF5 file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"PERFILE2", "a recording of perf"),
    (0, b"GGUF", "a GGUF model"),
    (4, b"TFL3", "a TFLite model"),
    (4, b"CIR0", "a circle model"),
    (4, b"ORTM", "a model in ONNX Runtime's own format"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x03", "a Python pickle"),
    (0, b"\x80\x04\x95", "a Python pickle"),
    (0, b"\x80\x05\x95", "a Python pickle"),
    (0, b"memray\x00", "a capture of memray"),
    (0, b"\x04\x22\x4d\x18", "LZ4 data, as memray's captures are"),
    (0, b"desc: ", "a profile of massif"),
    (0, b"heap profile: ", "a heap profile of tcmalloc, jemalloc or Go"),
    (0, b"heap_v2/", "a heap profile of jemalloc"),
    (0, b"--- symbol\n", "a profile with the symbols of jeprof"),
)
# heaptrack's version and its format's.
_HEAPTRACK = re.compile(rb"v [0-9a-f]{5,6} [0-9a-f]\n")
# Messages of protobuf have no magic bytes: their first fields identify them.
_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
# Numbers of google/pprof's Profile (period_type, period, times), then its first sample_type.
_PPROF = re.compile(
    rb"(?:\x5a[\x02-\x0c]\x08" + _VARINT + rb"\x10" + _VARINT + rb"|[\x48\x50\x60\x70]" + _VARINT + rb"){0,8}"
    rb"\x0a[\x02-\x0c]\x08" + _VARINT + rb"\x10" + _VARINT,
    re.DOTALL,
)
# The first node of TensorFlow's GraphDef, with its name and the name of its operator.
_GRAPH_DEF = re.compile(rb"\x0a" + _VARINT + rb"\x0a[\x01-\x7f][\w./-]{1,127}\x12[\x01-\x40][A-Z]\w{0,63}")
# schema_version of TensorFlow's SavedModel, and its first graph.
_SAVED_MODEL = re.compile(rb"\x08\x01\x12" + _VARINT + rb"\x0a")
# What `memprof heap show` reads, or may read.
HEAP_KINDS = frozenset(
    {
        "a Python pickle",
        "a capture of memray",
        "LZ4 data, as memray's captures are",
        "a recording of heaptrack",
        "a profile of massif",
        "a heap profile of tcmalloc, jemalloc or Go",
        "a heap profile of jemalloc",
        "a profile with the symbols of jeprof",
        "a profile of pprof",
    }
)
_PATTERNS = (
    (_HEAPTRACK, "a recording of heaptrack"),
    (_PPROF, "a profile of pprof"),
    (_GRAPH_DEF, "a TensorFlow graph (.pb)"),
    (_SAVED_MODEL, "a TensorFlow SavedModel (.pb)"),
)


def kind_of(path: Path) -> str | None:
    """What a file is, in words that may follow `is`; None for bytes of no known kind. Raises OSError."""
    with path.open("rb") as file:
        return kind_of_head(file.read(HEAD_BYTES))


def kind_of_head(head: bytes) -> str | None:
    """The same of a file that begins with these bytes, at most so many as HEAD_BYTES."""
    head = head[:HEAD_BYTES]
    if not head:
        return "empty"
    for offset, magic, words in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return words
    for pattern, words in _PATTERNS:
        if pattern.match(head):
            return words
    if head.startswith(_LFS):
        return "a pointer of Git LFS, whose file `git lfs pull` brings"
    if not _is_text(head):
        return None
    return "an HTML page" if head.lstrip().lower().startswith((b"<!doctype html", b"<html")) else "text"


def is_pprof(head: bytes) -> bool:
    """Whether a file that begins so is a profile of pprof that is not compressed."""
    return _PPROF.match(head) is not None


def _is_text(head: bytes) -> bool:
    text = head.decode("utf-8", "ignore")  # a letter may be cut in two at the end
    whole = len(text.encode()) > len(head) - 4
    return whole and all(letter.isprintable() or letter in "\t\n\r\f" for letter in text)
