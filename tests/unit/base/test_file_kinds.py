"""What a file is, told by its first bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from memprof.base.errors import InputError
from memprof.base.file_kinds import kind_of
from memprof.models.identity import check_kind


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty"),
        (b"hello\nworld\n", "text"),
        ("Grüße ∀".encode() * 200, "text"),
        (("a" * 1023 + "é").encode(), "text"),  # a letter that the end of the head cuts in two
        (b"\n  <!DOCTYPE html><html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS, whose file `git lfs pull` brings"),
        (b"\x7fELF\x02\x01", "an ELF program or library"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x04\x00\x3e\x00", "an ELF core dump"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x03\x00\x3e\x00", "an ELF program or library"),
        (b"PERFILE2\x68\0\0\0", "a recording of perf"),
        (b"PK\x03\x04", "a zip archive"),
        (b"memray\0\x0b\0\0\0", "a capture of memray"),
        (b"\x04\x22\x4d\x18\x40\x40\xc0", "LZ4 data, as memray's captures are"),
        (b"v 10500 3\nX /bin/true\n", "a recording of heaptrack"),
        (b"v 10.5 3.0 1.0\nv 0 0 1\n", "text"),  # a shape of Wavefront
        (b"desc: (none)\ncmd: ./a\n", "a profile of massif"),
        (b"heap profile:   1: 2 [ 3: 4] @ heapprofile\n", "a heap profile of tcmalloc, jemalloc or Go"),
        (b"heap_v2/524288\n  t*: 1: 2 [0: 0]\n", "a heap profile of jemalloc"),
        (b"--- symbol\nbinary=/a\n", "a profile with the symbols of jeprof"),
        (b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04", "a profile of pprof"),
        (b"\x5a\x04\x08\x01\x10\x02\x60\x80\x20\x0a\x04\x08\x03\x10\x04", "a profile of pprof"),  # as Go writes it
        (b"\x0a\x31\x0a\x05input\x12\x0bPlaceholder\x2a\x0b", "a TensorFlow graph (.pb)"),
        (b"\x08\x01\x12\xa3\x04\x0a\x10", "a TensorFlow SavedModel (.pb)"),
        (b"\x80\x02}q\0", "a Python pickle"),
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"\x1f\x8b\x08\x00", "gzip data"),
        (b"x" * 257 + b"ustar\x0000", "a tar archive"),
        (b"\x1c\x00\x00\x00TFL3", "a TFLite model"),
        (b"GGUF\x03\x00", "a GGUF model"),
        (b"\x80\x04\x95\x00", "a Python pickle"),
        (b"\x08\x0a\x12\x07pytorch", None),
        (bytes(range(256)), None),
    ],
)
def test_kind_by_first_bytes(tmp_path: Path, content: bytes, kind: str | None) -> None:
    (tmp_path / "file").write_bytes(content)

    assert kind_of(tmp_path / "file") == kind


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.onnx", b"<html>", "a.onnx is not in the format of its name: it is an HTML page"),
        ("a.tflite", b"GGUF\x03\x00", "a.tflite is not in the format of its name: it is a GGUF model"),
        ("a.PT2", b"text", "a.PT2 is not in the format of its name: it is text"),
        ("a.gguf", b"GGUF\x03\x00", None),
        ("a.onnx", b"\x08\x0a\x12\x07pytorch", None),
        ("a.json", b"{}", None),
    ],
)
def test_model_of_another_kind_refused(tmp_path: Path, name: str, content: bytes, sentence: str | None) -> None:
    (tmp_path / name).write_bytes(content)

    if sentence is None:
        check_kind(tmp_path / name)
        return
    with pytest.raises(InputError, match=f"{sentence}$"):
        check_kind(tmp_path / name)
