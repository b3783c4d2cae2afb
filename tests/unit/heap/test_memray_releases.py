"""The memray release that a capture needs: told by its header, named in a sentence, and only installed where that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from memprof.base.errors import InputError
from memprof.heap import memray_releases
from memprof.programs import environments
from memprof.programs.environments import Environment
from memprof.versions import installation

DATA = Path(__file__).parents[2] / "data" / "heap"
CAPTURES = {"1.3.1": 8, "1.6.0": 9, "1.10.0": 10, "1.18.0": 11, "1.19.3": 12, "1.20.0": 13}  # made by these releases


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("release", "number"), CAPTURES.items())
def test_format_of_real_captures(release, number):
    assert memray_releases.format_of(DATA / f"capture_memray_{release}.bin") == number


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (b"memray\0\x0b\0\0\0rest", 11),  # written with --no-compress
        (b"\x04\x22\x4d\x18\x40\x40\xc0\x0b\0\0\x80memray\0\x0b\0\0\0", 11),  # a block that LZ4 could not make smaller
        (b"\x04\x22\x4d\x18\x48\x40" + b"\0" * 8 + b"\xc0\x10\0\0\0\xb0memray\0\x0c\0\0\0", 12),  # with the content's size
        (b"\x04\x22\x4d\x18\x40\x40\xc0\x10\0\0\0\xb0nothing\0\x0c\0\0\0", None),
        (b"\x04\x22\x4d\x18", None),
        (b"memray\0\x0b", None),
        (b"", None),
    ],
)
def test_format_in_every_container(tmp_path, content, number):
    (tmp_path / "capture").write_bytes(content)

    assert memray_releases.format_of(tmp_path / "capture") == number


@pytest.mark.parametrize(
    ("release", "writers"),
    [("1.3.1", "1.3 "), ("1.6.0", "1.4 to 1.6"), ("1.10.0", "1.7 to 1.10"), ("1.18.0", "1.11 to 1.18"), ("1.19.3", "1.19 ")],
)
def test_release_named_without_yes(alone, release, writers):
    with pytest.raises(
        InputError, match=rf"is a capture of memray {writers}.*which memray {release} reads; .*--yes makes an environment with it$"
    ):
        memray_releases.interpreter(DATA / f"capture_memray_{release}.bin", None)


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (7, "a memray capture of format 7: memprof knows formats 8 to 13, of memray 1.3 to 1.20; read it with the memray that wrote it"),
        (14, "a memray capture of format 14: .*; a newer memray beside memprof may read it"),
    ],
)
def test_unknown_format_refused(alone, tmp_path, number, sentence):
    (tmp_path / "capture").write_bytes(b"memray\0" + number.to_bytes(4, "little"))

    with pytest.raises(InputError, match=sentence):
        memray_releases.interpreter(tmp_path / "capture", print)


def test_environment_there_is_used_without_yes(alone, monkeypatch):
    folder = environments.place() / "memray-1"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to("/usr/bin/env")
    made = Environment("memray", "1.18.0", "3.11.2", str(folder / "bin" / "python"), 5, False, {"memray": "1.18.0"})
    environments.finish(made)
    monkeypatch.setattr(installation, "ensure", lambda *words, **options: pytest.fail("nothing is installed"))

    assert memray_releases.interpreter(DATA / "capture_memray_1.18.0.bin", None) == made.interpreter


def test_environment_made_with_yes(alone, monkeypatch):
    said: list[object] = []
    made = Environment("memray", "1.10.0", "3.11.2", "/envs/memray/bin/python", 5, False, {})

    def ensure(package, version, say, **options):
        said.extend((package.distribution, version))
        return made

    monkeypatch.setattr(installation, "ensure", ensure)

    assert memray_releases.interpreter(DATA / "capture_memray_1.10.0.bin", print) == made.interpreter
    assert said == ["memray", "1.10.0"]
