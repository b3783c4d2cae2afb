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
