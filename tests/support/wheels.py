"""Small wheels made on the spot, and pip's settings that let it see no others: installing then needs no network and takes a second.

The made onnxruntime has of the real one's interface what memprof's runner calls. As with the real one, releases before 1.18 cannot be imported
with numpy 2.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from memprof.versions import installation, pip
from support.session_cache import own_cache

_ONNXRUNTIME = """
import numpy
__version__ = "{version}"
if __version__ < "1.18" and numpy.__version__ >= "2":
    raise ImportError("numpy.core.multiarray failed to import")
class _Any:
    def __getattr__(self, name):
        return self
    def __call__(self, *words):
        return self
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Any()
def get_available_providers():
    return ["CPUExecutionProvider"]
"""
_STATE = """
class InferenceSession:
    inputs_meta = outputs_meta = ()
    def __init__(self, *words):
        pass
    def initialize_session(self, *words):
        pass
    def run(self, *words):
        return []
"""


def wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: tuple[str, ...] = (), tag: str = "py3-none-any"
) -> Path:
    """A wheel of these files, as the binary distribution format has it."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {text}\n" for text in requires)
    content = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{path},,{len(text)}\n" for path, text in content.items()) + f"{info}/RECORD,,\n"
    path = folder / f"{name.replace('-', '_')}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in content.items():
            archive.writestr(inside, text)
    return path


def onnxruntime(folder: Path, version: str, more: str = "") -> Path:
    """A wheel of the made onnxruntime. more: further lines of its code."""
    files = {
        "onnxruntime/__init__.py": _ONNXRUNTIME.format(version=version) + more,
        "onnxruntime/capi/__init__.py": "",
        "onnxruntime/capi/_pybind_state.py": _STATE,
    }
    return wheel(folder, "onnxruntime", version, files, ("numpy",))


def numpy(folder: Path, version: str) -> Path:
    """A wheel that is called numpy."""
    return wheel(folder, "numpy", version, {"numpy/__init__.py": f"__version__ = '{version}'\n"})


def only(monkeypatch: pytest.MonkeyPatch, folder: Path, cache: Path) -> None:
    """From now on pip sees the wheels of this folder alone, and memprof has this cache."""
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    own_cache(monkeypatch, cache)


def unpacked(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on this folder's wheels are unpacked where pip would install them, which takes no time: what pip does, others look at. Each package
    that is asked for or needed is NAME==VERSION."""

    def files_for(python: str, requirements: Sequence[str], *words: object) -> list[pip.Download]:
        return [pip.Download(name, version, 0, 0) for name, version in dict(map(_pinned, _needed(folder, requirements))).items()]

    def install(python: str, packages: Sequence[str], *words: object) -> None:
        (place,) = Path(python).parent.parent.glob("lib/python*/site-packages")
        for package in packages:
            with zipfile.ZipFile(_of(folder, package)) as archive:
                archive.extractall(place)

    monkeypatch.setattr(pip, "files_for", files_for)
    monkeypatch.setattr(pip, "install", install)


def _needed(folder: Path, requirements: Sequence[str]) -> Iterator[str]:
    """The requirements, and what the wheels of these need."""
    for text in requirements:
        yield text
        with zipfile.ZipFile(_of(folder, text)) as archive:
            (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
            yield from _needed(folder, re.findall("^Requires-Dist: (.*)$", archive.read(metadata).decode(), re.MULTILINE))


def _of(folder: Path, requirement: str) -> Path:
    """The wheel of NAME==VERSION."""
    name, version = _pinned(requirement)
    (path,) = (path for path in folder.glob(f"*-{version}-*.whl") if installation.canonical(path.name.partition("-")[0]) == name)
    return path


def _pinned(requirement: str) -> tuple[str, str]:
    name, version = requirement.split("==")
    return installation.canonical(name), version
