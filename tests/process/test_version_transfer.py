"""Commits on their way to a fleet's worker: what the desk packs, and what a worker with another cache builds of it."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.checkout import ENGINE, RUNTIME, SUITE, Checkout

from memprof.base.cache import cache_folder
from memprof.base.errors import InputError, UsageError
from memprof.campaign.fleet import comparison_runs, message, payload, remote_builds
from memprof.campaign.fleet.message import ComparisonTask
from memprof.campaign.fleet.payload import SearchTrial
from memprof.campaign.fleet.remote_builds import Unmade
from memprof.regressions.bisect import version_range
from memprof.subjects.order import Order
from memprof.subjects.suite import Suite
from memprof.versions import builds, worktrees
from memprof.versions.measurement import Selection

SUITE_FILE = "bench/suite.toml"


@pytest.fixture(autouse=True)
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "desk"))
    monkeypatch.setattr(builds.installation, "leave_page_cache", lambda folder: None)  # it waits for the disk


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A repository with a commit that is older than what is searched."""
    made = Checkout(tmp_path / "a checkout, é")
    made.commit(old="older than the search")
    return made


def suite(checkout: Checkout, command: str = "true") -> str:
    return f"{SUITE}[build]\npython = {str(checkout.folder / 'quick-python')!r}\ncommand = {command!r}\n"


def three(checkout: Checkout, command: str = "true", **files: str) -> None:
    """Three commits with a suite, a runtime and its model."""
    for number in range(3):
        text = f"{ENGINE.format(2)}# {number}\n"
        written = {"runtime_dot_py": RUNTIME, "engine_dot_py": text, "bench__net_dot_bin": "1", **files}
        checkout.commit(bench__suite_dot_toml=suite(checkout, command), **written)


@dataclass
class Search:
    """A search at its desk, and a worker of another cache that gets files from it."""

    labels: Sequence[str]
    packed: object
    worker: Path
    monkeypatch: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)

    def asked(self, *numbers: int) -> SearchTrial:
        return self.packed.asked({self.labels[number]: (1, 2) for number in numbers}, {}, None)  # type: ignore[attr-defined, no-any-return]

    def task(self, *numbers: int) -> ComparisonTask:
        return payload.sought(self.asked(*numbers), frozenset({("kind", "x")}))

    @contextmanager
    def built(self, *numbers: int) -> Iterator[list[Order]]:
        """The orders of these commits at the worker."""
        task = pickle.loads(pickle.dumps(self.task(*numbers)))
        folder = self.worker / "comparison"
        shutil.rmtree(folder, ignore_errors=True)
        for sent in task.files:
            target = folder / sent.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(sent.path, target)
        assert task.sought is not None and task.sought.commits is not None
        with self.monkeypatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self.worker / "cache"))
            with remote_builds.built(task.sought.commits, task.sought.repeats, folder, self.said.append) as orders:
                yield orders

    @property
    def kept(self) -> list[Path]:
        """The worker's folders of builds."""
        return [path for path in (self.worker / "cache/memprof/commits").glob("*") if path.is_dir()]


@contextmanager
def search(checkout: Checkout, monkeypatch: pytest.MonkeyPatch, good: str, said: list[str] | None = None) -> Iterator[Search]:
    of = version_range.of_commits(checkout.folder / SUITE_FILE, good, "HEAD", None, (said if said is not None else []).append)
    assert of.travels is not None
    with of.travels(Selection(), (said if said is not None else []).append) as packed:
        yield Search(of.labels, packed, checkout.folder.parent / "worker", monkeypatch)


def tree_of(order: Order) -> Path:
    return Path(order.job.runtime).parent


def test_worker_builds_and_alternates_commits(checkout: Checkout, monkeypatch) -> None:
    three(checkout, "git log --format=%s > log.txt")
    checkout.git("tag", "v1", "HEAD~2")
    checkout.write(engine_dot_py="not committed", bench__suite_dot_toml=suite(checkout, "git describe --tags > log.txt"))
    said: list[str] = []
    with search(checkout, monkeypatch, "v1", said) as asked:
        with asked.built(0, 2) as orders:
            a, b = (asked.labels[number] for number in (0, 2))
            assert [(order.job.version, order.job.repeat) for order in orders] == [(a, 1), (b, 1), (a, 2), (b, 2)]
            assert {order.job.variant for order in orders} == {"engine"}
            trees = [tree_of(order) for order in orders[:2]]
            assert [(tree / "engine.py").read_text()[-2] for tree in trees] == ["0", "2"], "not what is in no commit"
            assert {Path(order.job.model.path) for order in orders} == {tree / "bench/net.bin" for tree in trees}
            # The suite is the checkout's, also where it is in no commit; tags and what lies between the ends are there.
            assert [(tree / "log.txt").read_text().partition("-g")[0].strip() for tree in trees] == ["v1", "v1-2"]
        assert asked.said == [f"{asked.labels[number]}: git describe --tags > log.txt" for number in (0, 2)]
        assert sorted(asked.kept) == sorted({tree.parent for tree in trees})
        with asked.built(0, 2) as orders:
            assert [tree_of(order) for order in orders[:2]] == trees and len(asked.said) == 2, "built before"
        assert not (asked.worker / "comparison/objects.git").exists(), "nothing to build, nothing to unpack"
    assert said[0].endswith(f"only {checkout.folder / SUITE_FILE} is taken as it is")
    assert said[1].endswith(f"travel to each worker, once: 3 commits of {checkout.folder.name}, and bench/suite.toml")
    assert len(checkout.git("worktree", "list").splitlines()) == 1


def test_transfer_includes_merges_excludes_older_commits(checkout: Checkout, monkeypatch) -> None:
    checkout.git("checkout", "-q", "-b", "side")
    checkout.commit(side="1")
    checkout.git("checkout", "-q", "main")
    three(checkout)
    checkout.git("merge", "-q", "--no-ff", "-m", "merged", "side")
    with search(checkout, monkeypatch, "HEAD~2") as asked:
        assert len(asked.labels) == 3
        with asked.built(0, 2) as orders:
            assert [(tree_of(order) / "side").exists() for order in orders[:2]] == [False, True]
        objects = asked.worker / "comparison/objects.git"
        subjects = worktrees.git(objects, "log", "--format=%h", asked.task(2).sought.commits.hashes[asked.labels[2]], what="")
        assert len(subjects.split()) == 5, "the merge, its sides, and those that the sides stand on"
        roots = set(
            worktrees.git(
                objects, "log", "--format=%H", "--max-parents=0", "--all", *asked.asked(2).sought.commits.shallow, what=""
            ).split()
        )
        assert roots == set(asked.asked(2).sought.commits.shallow)


def test_transfer_from_shallow_clone(checkout: Checkout, monkeypatch) -> None:
    checkout.git("checkout", "-q", "-b", "side")
    for number in range(3):
        checkout.commit(side=str(number))
    checkout.git("checkout", "-q", "main")
    three(checkout, "git log --format=%h > log.txt")
    checkout.git("merge", "-q", "--no-ff", "-m", "merged", "side")
    url, clone = f"file://{checkout.folder}", checkout.folder.parent / "clone"
    checkout.git("clone", "-q", "--depth", "3", url, str(clone))
    monkeypatch.setattr(checkout, "folder", clone)
    with search(checkout, monkeypatch, "HEAD~1") as asked, asked.built(0, 1) as orders:
        assert [len((tree_of(order) / "log.txt").read_text().split()) for order in orders[:2]] == [1, 4]


def test_repository_with_missing_file_refused(checkout: Checkout, monkeypatch) -> None:
    three(checkout)
    blob = checkout.git("rev-parse", "HEAD:engine.py").strip()
    (checkout.folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(InputError, match=r"^the commits cannot be listed: fatal: missing blob"), search(checkout, monkeypatch, "HEAD~1"):
        pytest.fail("it was packed")


def test_files_missing_from_commit_sent_along(checkout: Checkout, monkeypatch) -> None:
    (checkout.folder / ".gitignore").write_text("*.bin\nquick-python\n")
    three(checkout)
    checkout.git("mv", "runtime.py", "younger.py")
    text = suite(checkout).replace("../runtime.py", "../younger.py")
    checkout.commit(bench__suite_dot_toml=text)
    with search(checkout, monkeypatch, "HEAD~1") as asked:
        names = {sent.name: sent.path for sent in asked.asked(0, 1).sent}
        assert set(names) == {"commits.pack", "commits.idx", "checkout/bench/suite.toml", "checkout/bench/net.bin", "checkout/younger.py"}
        assert asked.task(0).names["checkout/bench/net.bin"] == str(checkout.folder / "bench/net.bin")
        with asked.built(0, 1) as orders:
            folder = asked.worker / "comparison/checkout"
            assert {order.job.model.path for order in orders} == {str(folder / "bench/net.bin")}
            assert tree_of(orders[0]) == folder and tree_of(orders[1]) != folder


def test_commits_packed_into_same_file(checkout: Checkout, monkeypatch) -> None:
    three(checkout)
    hashes = []
    for _ in range(2):
        with search(checkout, monkeypatch, "HEAD~2") as asked:
            hashes.append([sent.sha256 for sent in asked.asked(0).sent])
            assert asked.task(0, 1).key != asked.task(0, 2).key
            assert asked.task(0, 1).cost > asked.task(0).cost
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("lfs", r"^files of .* go through a filter of git's \(filter=lfs in \.gitattributes\), whose content does not travel"),
        ("outside", r"outside\.bin lies outside of the repository .*, and does not travel to a fleet$"),
        ("phase", "--phase, for which gdb follows the program, works on this machine only"),
    ],
)
def test_transfer_refusals(checkout: Checkout, monkeypatch, change: str, says: str) -> None:
    three(checkout, **({"_dot_gitattributes": "# filter=none\n*.txt text\n*.big filter=lfs -text\n"} if change == "lfs" else {}))
    if change == "lfs":
        checkout.git("rm", "-q", ".gitattributes")
        checkout.commit(more="only older commits have it")
    if change == "outside":
        (checkout.folder.parent / "outside.bin").write_text("1")
        checkout.write(bench__suite_dot_toml=suite(checkout).replace("net.bin", "../../outside.bin"))
    if change == "phase":
        checkout.write(bench__suite_dot_toml=f"{suite(checkout)}[phase]\nload = 'f'\n")
    with pytest.raises(UsageError, match=says), search(checkout, monkeypatch, "HEAD~2"):
        pytest.fail("it was packed")


def test_submodules_reported_as_left_behind(checkout: Checkout, monkeypatch) -> None:
    three(checkout, _dot_gitmodules="[submodule 'x']\n")
    said: list[str] = []
    with search(checkout, monkeypatch, "HEAD~1", said):
        assert "has submodules, which do not travel: their folders are empty" in said[0]


def test_worker_without_git(checkout: Checkout, monkeypatch, tmp_path: Path) -> None:
    three(checkout)
    (tmp_path / "bare").mkdir()
    with search(checkout, monkeypatch, "HEAD~1") as asked, monkeypatch.context() as patch:
        asked.task(0)
        patch.setenv("PATH", str(tmp_path / "bare"))
        with pytest.raises(InputError, match=r"^git cannot be started: No such file or directory$"), asked.built(0):
            pytest.fail("it was built")
        assert asked.kept == []


def test_commit_blamed_after_other_commit_builds(checkout: Checkout, monkeypatch) -> None:
    three(checkout, "! grep -q broken more")
    checkout.commit(more="broken")
    checkout.commit(more="mended")
    with search(checkout, monkeypatch, "HEAD~1") as asked:
        broken = asked.labels[0]
        with pytest.raises(InputError, match=f"^{broken} cannot be built: .* ended with exit code 1"), asked.built(0):
            pytest.fail("it was built")
        with pytest.raises(Unmade) as unmade, asked.built(0, 1):
            pytest.fail("it was built")
        (reason,) = unmade.value.reasons.items()
        assert reason[0] == broken and reason[1].startswith(f"{broken} cannot be built")
        assert len(asked.kept) == 1, "no half build, and the other one stays"


def test_commit_blamed_after_ends_were_built(checkout: Checkout, monkeypatch) -> None:
    three(checkout, "! grep -q broken more", more="1")
    checkout.commit(more="broken")
    with search(checkout, monkeypatch, "HEAD~1") as asked:
        with asked.built(0):
            pass
        have = {asked.labels[0]: (), asked.labels[1]: (1,)}
        only = asked.packed.asked(have, {}, None)  # type: ignore[attr-defined]
        monkeypatch.setattr(asked, "asked", lambda *numbers: only)
        with pytest.raises(Unmade), asked.built(0, 1):
            pytest.fail("it was built")


def test_commit_with_unstartable_suite_skipped(checkout: Checkout, monkeypatch) -> None:
    for name in ("there", "gone"):
        checkout.commit(bench__suite_dot_toml="", name=name)
    checkout.write(
        bench__suite_dot_toml=f"[build]\npython = {str(checkout.folder / 'quick-python')!r}\n"
        "command = 'grep there name && cp /bin/true program || true'\n[[variant]]\ncmd = '../program'\n"
    )
    with search(checkout, monkeypatch, "HEAD~1") as asked, pytest.raises(Unmade) as unmade, asked.built(0, 1):
        pytest.fail("it was started")
    assert list(unmade.value.reasons) == [asked.labels[1]]


def test_full_disk_blames_machine(checkout: Checkout, monkeypatch) -> None:
    three(checkout, "grep -q full more && { echo 'ld: No space left on device'; exit 1; } || true", more="0")
    checkout.commit(more="full")
    with search(checkout, monkeypatch, "HEAD~1") as asked:
        says = r"ended with exit code 1: No space left on device in .*/worker/cache/memprof/commits/"
        with pytest.raises(InputError, match=says), asked.built(0, 1):
            pytest.fail("it was built")
        assert len(asked.kept) == 1, "what was built before stays, and no half build"


def test_board_builds_no_commit() -> None:
    class Board:
        def only_here(self, subject: str) -> None:
            raise UsageError(f"{subject} works on this machine only")

    commits = message.Commits({}, "r", "sha1", "p", (), {}, "checkout", "suite.toml", None, Selection())  # type: ignore[arg-type]
    comparison = ComparisonTask("t", "me", Suite(), sought=message.SearchRequest(commits=commits))
    result = comparison_runs.measure(comparison, Board(), "board", pytest.fail, pytest.fail)  # type: ignore[arg-type]
    assert (result.how, result.why.startswith("a commit, which is built first, works on this machine only")) == ("usage", True)
    assert not list(cache_folder("fleet").glob("comparison-*"))
