"""What the tests of models bounds share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from support.plan_models import node, save, value, weight


@pytest.fixture
def boxed(tmp_path: Path) -> Path:
    """A model of somebody else, box/m.onnx with its data in box/w.bin, beside a file of the reader's."""
    (tmp_path / "mine.bin").write_bytes(bytes(256))
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "w.bin").write_bytes(bytes(range(256)))
    return stored_in(tmp_path / "box" / "m.onnx", "w.bin")


def stored_in(path: Path, location: str) -> Path:
    tensor = weight("w", 8, 8)
    onnx.external_data_helper.set_external_data(tensor, location, 0, 256)
    tensor.ClearField("raw_data")
    return save(path, [node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 8])], [value("y", [1, 8])], [tensor])


def _linked(link: Path, target: str) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _store(repository: Path, form: str, number: int, name: str) -> Path:
    """Where a store keeps the content of a file: git-annex under a key with the file's ending, DVC under a hash without."""
    return repository / form.format("abcdef"[number], f"SHA256E-s{number}--{'9' * 64}{Path(name).suffix}", f"{number:030x}")


def into_store(repository: Path, form: str, *names: str) -> None:
    """Moves files into the repository's store and leaves links, as `git annex add` (relative) and `dvc add` (absolute) do."""
    for number, name in enumerate(names):
        content = _store(repository, form, number, name)
        content.parent.mkdir(parents=True)
        (repository / name).rename(content)
        (repository / name).symlink_to(os.path.relpath(content, (repository / name).parent) if "annex" in form else content)
