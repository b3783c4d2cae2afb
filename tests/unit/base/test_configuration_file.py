"""memprof's configuration: which file it is, and sentences for what it must not hold."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.configurations import configure, folder  # noqa: F401  (the fixture)

from memprof.base import configuration_file
from memprof.base.configuration_file import ConfigurationFile, read
from memprof.base.errors import InputError

PYPROJECT = "[project]\nname = 'x'\n[tool.memprof.defaults]\nruns = 1\n"


def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder two below, the current one."""
    below = folder / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    return below


def test_configuration_without_file_is_empty(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.other]\nmemprof = 1\n")

    assert read() == ConfigurationFile()
    assert read().path is None


def test_configuration_holds_three_parts(folder: Path) -> None:
    path = configure(folder, "insecure_fleet = true\n[defaults]\nruns = 3\n[places]\nboard = 'ssh:b'\n")

    assert read() == ConfigurationFile(path, {"runs": 3}, {"board": "ssh:b"}, True)


def test_configuration_in_pyproject(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text(PYPROJECT)
    inside(folder, monkeypatch)

    assert read() == ConfigurationFile(folder / "pyproject.toml", {"runs": 1})


def test_memprof_toml_before_pyproject(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(PYPROJECT)
    path = configure(folder, "[defaults]\nwarmup = 1\n")

    assert (read().path, dict(read().defaults)) == (path, {"warmup": 1})


def test_nearest_configuration_counts_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(folder, "insecure_fleet = true\n")
    below = inside(folder, monkeypatch)
    (below.parent / "pyproject.toml").write_text(PYPROJECT)
    (below / "pyproject.toml").write_text("[project]\nname = 'without a table of memprof'\n")

    assert read() == ConfigurationFile(below.parent / "pyproject.toml", {"runs": 1})


@pytest.mark.parametrize("end", ["repository", "worktree", "home"])
def test_search_ends_at_repository_or_home(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    configure(folder, "[defaults]\nruns = 9\n")
    below = inside(folder, monkeypatch)
    if end == "repository":
        (below.parent / ".git").mkdir()
    elif end == "worktree":
        (below.parent / ".git").write_text("gitdir: elsewhere\n")
    else:
        monkeypatch.setenv("HOME", str(below.parent))
    assert read().path is None

    path = configure(below.parent, "[defaults]\nruns = 1\n")
    assert read().path == path


def test_file_of_stranger_in_open_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = configure(folder, "[defaults]\npython = './theirs'\n")
    inside(folder, monkeypatch)
    monkeypatch.setattr(configuration_file, "os", SimpleNamespace(geteuid=lambda: path.stat().st_uid + 1, path=os.path))
    stat = Path.stat

    def strangers(self: Path, **words: Any) -> Any:
        facts = stat(self, **words)
        return SimpleNamespace(st_mode=facts.st_mode, st_uid=4711) if self == path else facts

    monkeypatch.setattr(Path, "stat", strangers)
    assert read().path == path
    folder.chmod(0o1777)
    read.cache_clear()
    assert read().path is None


def test_configuration_after_folder_was_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Path:
        raise FileNotFoundError

    monkeypatch.setattr(configuration_file.Path, "cwd", gone)
    assert read() == ConfigurationFile()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("defalts = {}", "there is no 'defalts'; did you mean defaults?"),
        ("colour = 1", "there is no 'colour'; there are defaults, places, insecure_fleet"),
        ("defaults = 1", "defaults is a table"),
        ("places = []", "places is a table"),
        ("insecure_fleet = 1", "insecure_fleet is true or false"),
        ("insecure_fleet = ", "Invalid value"),
    ],
)
def test_configuration_refusals_name_file(folder: Path, text: str, sentence: str) -> None:
    path = configure(folder, text)
    with pytest.raises(InputError) as refused:
        read()

    assert str(refused.value).startswith(f"{path}: {sentence}")


def test_pyproject_refusals_name_file(folder: Path) -> None:
    path = folder / "pyproject.toml"
    for text, sentence in (("[tool]\nmemprof = 1", "tool.memprof is a table"), ("[tool.memprof]\nplace = 1", "did you mean places?")):
        path.write_text(text)
        with pytest.raises(InputError) as refused:
            read()
        assert str(refused.value).startswith(f"{path}: ") and sentence in str(refused.value)


def test_unreadable_configuration_is_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = configure(folder, "")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(configuration_file.toml, "read", refuse)
    with pytest.raises(InputError, match=f"{path}: Permission denied"):
        read()
