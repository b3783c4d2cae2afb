"""Builds of commits in the cache: made once, whole or not at all, within a size, and never removed under a search that uses them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.checkout import SUITE, Checkout

from memprof.base.errors import InputError
from memprof.subjects.suite import Build, Suite
from memprof.versions import builds, worktrees
from memprof.versions.worktrees import Repository

LIMIT = "LIMIT_BYTES"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(builds.installation, "leave_page_cache", lambda folder: None)  # it waits for the disk
    for name in ("CC", "CFLAGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache/memprof/commits"


class Project:
    """A repository of commits, each with a file that names it, and a build command that notes where it ran."""

    def __init__(self, folder: Path, commits: int) -> None:
        self.checkout = Checkout(folder)
        self.noted = folder.parent / "built"
        for number in range(commits):
            self.checkout.commit(bench__suite_dot_toml=SUITE, code=str(number))
        self.hashes = self.checkout.git("log", "--format=%H", "--reverse").split()
        self.repository = Repository.of(folder / "bench/suite.toml")
        self.said: list[str] = []

    def build(self, command: str = "true") -> Build:
        return Build(f"{command} && git rev-parse HEAD && pwd >> '{self.noted}'", str(self.checkout.folder / "quick-python"))

    def opened(self, number: int, command: str = "true") -> Any:
        return builds.suite_of(self.repository, self.hashes[number], self.build(command), self.hashes[number][:9], self.said.append)

    def use(self, number: int, command: str = "true") -> Suite:
        with self.opened(number, command) as suite:
            return suite

    @property
    def built(self) -> list[Path]:
        """The trees of all that was built, in their order."""
        return [Path(line) for line in self.noted.read_text().splitlines()] if self.noted.exists() else []


@pytest.fixture
def project(tmp_path: Path, cache: Path) -> Project:
    return Project(tmp_path / "a project, é", 2)


def folders(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir()]


def test_commit_built_once_for_current_suite(project: Project, cache: Path) -> None:
    first = project.use(0)
    assert Path(str(first.python)).is_relative_to(cache)
    project.checkout.write(bench__suite_dot_toml=f"{SUITE}\n[build]\ncommand = 'never run'\n")

    again = project.use(0)

    (tree,) = project.built
    assert (again.python, (tree / "code").read_text()) == (first.python, "0")
    assert again.build is not None and again.build.command == "never run"
    assert not (tree / ".git").exists()
    assert len(project.checkout.git("worktree", "list").splitlines()) == 1
    assert project.said == [f"{project.hashes[0][:9]}: {project.build().command}"]


@pytest.mark.parametrize("changed", ["commit", "command", "compiler", "interpreter"])
def test_build_repeated_after_change(project: Project, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    project.use(0)
    if changed == "compiler":
        monkeypatch.setenv("CFLAGS", "-O3")
    if changed == "interpreter":
        python = project.checkout.folder / "quick-python"
        python.rename(python.with_name("quick-python-3"))
        python.symlink_to("quick-python-3")

    project.use(1 if changed == "commit" else 0, "echo" if changed == "command" else "true")

    assert len(set(project.built)) == 2


def test_failed_build_leaves_nothing(project: Project, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=f"^{project.hashes[0][:9]} cannot be built: .* ended with exit code 1"):
        project.use(0, "false")
    assert folders(cache) == []
    do = worktrees._do

    def interrupted(command: list[str], *rest: Any) -> None:
        do(command, *rest)
        if command[0] == "sh":
            raise KeyboardInterrupt

    monkeypatch.setattr(worktrees, "_do", interrupted)
    with pytest.raises(KeyboardInterrupt):
        project.use(0)
    assert folders(cache) == [] and len(project.checkout.git("worktree", "list").splitlines()) == 1
    monkeypatch.setattr(worktrees, "_do", do)

    project.use(0)

    assert len(set(project.built)) == 2


def test_unfinished_build_never_used(project: Project, cache: Path) -> None:
    project.use(0)
    (folder,) = folders(cache)
    (folder / "environment.json").unlink()
    shutil.rmtree(folder / "head")
    project.checkout.git("worktree", "add", "-q", "--detach", str(folder / "head"), project.hashes[0])

    project.use(0)

    assert len(project.built) == 2 and folder not in folders(cache)
    assert len(project.checkout.git("worktree", "list").splitlines()) == 1


def test_moved_or_broken_build_repeated(project: Project, cache: Path) -> None:
    project.use(0)
    (folder,) = folders(cache)
    folder.rename(folder.with_name(f"{folder.name[:-1]}x"))
    project.use(0)
    (folder,) = folders(cache)
    (folder / "head-env/bin/python").unlink()
    project.use(0)
    assert len(set(project.built)) == 3 and len(folders(cache)) == 1


def test_oldest_unused_build_removed(project: Project, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, LIMIT, 1)
    with project.opened(0):
        project.use(1)
        assert len(folders(cache)) == 2, "neither may go: one is held, the other is being opened"
        with project.opened(0):
            assert len(folders(cache)) == 1
    assert f"the build of {project.hashes[1][:9]} was removed, to keep builds of commits below 1 B" in project.said
    project.use(1)
    assert len(project.built) == 3 and len(folders(cache)) == 1


def test_converted_models_removed_with_build(project: Project, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = project.use(0)
    model = cache.parent / "built/key"
    model.mkdir(parents=True)
    (model / "made_by.txt").write_text(str(suite.python))
    project.use(0)
    assert model.exists()
    monkeypatch.setattr(builds, LIMIT, 1)
    project.use(1)
    assert not model.exists()


def test_checkout_failure_message(project: Project, cache: Path) -> None:
    project.hashes[0] = "0" * 40
    with pytest.raises(InputError, match=r"^000000000 cannot be checked out: "):
        project.use(0)
    assert folders(cache) == []


def test_missing_suite_files_from_checkout(project: Project) -> None:
    project.checkout.commit(bench__suite_dot_toml=SUITE, bench__net_dot_bin="1", runtime_dot_py="younger")
    suite = project.use(0)
    assert suite.models == (str(project.checkout.folder / "bench/net.bin"),)
    assert Path(suite.variants[0].runtime).read_text() == "younger"
    project.hashes = project.checkout.git("log", "--format=%H", "--reverse").split()
    suite = project.use(2)
    assert suite.models == (str(project.built[-1] / "bench/net.bin"),)


def test_model_beside_repository(project: Project) -> None:
    beside = project.checkout.folder.parent / "net.bin"
    beside.write_text("1")
    project.checkout.write(bench__suite_dot_toml=SUITE.replace("net.bin", "../../net.bin"))
    assert project.use(0).models == (str(beside),)
