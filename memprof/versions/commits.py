"""What git knows of the commits of a history: their facts, their order, and which of them are gone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, UsageError
from .worktrees import git, hash_of, shallow

_UNSHALLOW = "git fetch --unshallow brings the rest"
_NAMES_HEAD = ("HEAD", "@")


class Commit(Struct, frozen=True):
    """A commit. time_s: when it was committed, in seconds since 1970. tags: those that name it."""

    hash: str
    time_s: int
    parents: tuple[str, ...] = ()
    subject: str = ""
    tags: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """Its newest tag, or the beginning of its hash."""
        return self.tags[-1] if self.tags else self.hash[:9]


def here(folder: Path) -> Path | None:
    """The root of the repository that a folder lies in, None if it lies in none or git is not there."""
    with suppress(InputError):
        return Path(git(folder, "rev-parse", "--show-toplevel", what=""))
    return None


def named(root: Path, ref: str, folder: Path) -> Commit:
    """The commit that a ref names. Raises UsageError for an unknown ref, and for HEAD if the checkout has changes that are in no commit.

    folder: the history's, whose changes are none of the project's.
    """
    commit_hash = hash_of(root, ref, "--commit", _UNSHALLOW)
    if ref in _NAMES_HEAD and changed(root, folder):
        raise UsageError(
            f"--commit {ref}: the checkout has changes that are in no commit, so these runs need not be of {commit_hash[:9]}; "
            f"commit them first, or name the commit by its hash if the runs are of it"
        )
    text = git(root, "show", "--no-patch", "--format=%ct%n%P%n%s", commit_hash, what=f"{ref} cannot be read")
    time, parents, subject = (*text.split("\n"), "", "")[:3]
    tags = git(root, "tag", "--points-at", commit_hash, "--sort=creatordate", what="the tags cannot be listed").split()
    return Commit(commit_hash, int(time), tuple(parents.split()), subject, tuple(tags))


def changed(root: Path, aside: Path) -> bool:
    """Whether a checkout has changes that are in no commit. aside: a file or folder that is not looked at."""
    inside = aside.resolve().is_relative_to(root.resolve())
    outside = ["--", ".", f":(exclude){aside.resolve().relative_to(root.resolve())}"] if inside else []
    return bool(git(root, "status", "--porcelain", "--untracked-files=no", *outside, what="the checkout's state cannot be told"))


class CommitOrder(Struct, frozen=True):
    """Commits from the oldest to the newest. gone: those that the repository lacks; aside: those that are on another branch than HEAD. known: whether
    git knows any of them."""

    order: tuple[str, ...]
    gone: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    known: bool = True


def ordered(commits: Iterable[Commit], root: Path | None) -> CommitOrder:
    """The order of these commits: git's, if the repository knows any of them and is no shallow clone, else by their times."""
    by_hash = {commit.hash: commit for commit in commits}
    by_time = tuple(sorted(by_hash, key=lambda name: (by_hash[name].time_s, name)))
    if root is None or not by_hash:
        return CommitOrder(by_time)
    known = _known(root, by_time)
    if not known:
        return CommitOrder(by_time, remarks=("git knows none of these commits here: they stand in the order of their dates",), known=False)
    if shallow(root):
        return CommitOrder(by_time, remarks=("this clone is shallow, so the commits stand in the order of their dates",))
    line = git(root, "rev-list", "--topo-order", "--reverse", "HEAD", what="the commits cannot be listed").split()
    order = tuple(name for name in line if name in by_hash)
    gone = tuple(name for name in by_time if name not in known)
    aside = tuple(name for name in by_time if name in known and name not in set(order))
    remarks = []
    if gone:
        some = ", ".join(by_hash[name].short for name in gone[:3])
        more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
        remarks.append(f"{some}{more}: git has no such commits any more, so they are left out; memprof history prune --gone removes them")
    if aside:
        remarks.append(f"{len(aside)} of the commits {'is' if len(aside) == 1 else 'are'} not in HEAD's history and left out")
    return CommitOrder(order, gone, aside, tuple(remarks))


def _known(root: Path, names: Sequence[str]) -> set[str]:
    """Those that the repository has."""
    given = "\n".join(names).encode()
    lines = git(
        root, "cat-file", "--batch-check=%(objectname) %(objecttype)", given=given, what="the commits cannot be looked up"
    ).splitlines()
    return {line.split()[0] for line in lines if line.endswith(" commit")}


def first_parents(root: Path, good: str, bad: str, path: str | None = None) -> tuple[str, ...]:
    """The commits after `good` up to `bad`, the oldest first, merges by their first parent; with a path, seen from the current folder, only those
    that touch it.

    Raises UsageError if bad does not come after good, and for a path that lies outside.
    """
    ends = [hash_of(root, ref, option, _UNSHALLOW) for ref, option in ((good, "--good"), (bad, "--bad"))]
    if ends[0] == ends[1]:
        raise UsageError(f"--good {good} and --bad {bad} are the same commit")
    beside = ["--", _inside(root, path)] if path else []
    base = git(root, "merge-base", *ends, what=f"{good} and {bad} have no common history")
    if base != ends[0]:
        swapped = f"; {bad} comes before {good}" if base == ends[1] else ""
        raise UsageError(f"--good {good} is no ancestor of --bad {bad}{swapped}")
    line = git(
        root, "rev-list", "--first-parent", "--reverse", f"{ends[0]}..{ends[1]}", *beside, what="the commits cannot be listed"
    ).split()
    if not line:
        raise UsageError(f"--path {path}: no commit between {good} and {bad} touches it")
    # The last commit that touches the folder stands for bad: nothing that matters comes after it.
    return (ends[0], *line)


def _inside(root: Path, path: str) -> str:
    """A path as seen from the repository's root: as with git's own commands it is the current folder's, if that is in the repository."""
    here = Path.cwd() if Path.cwd().is_relative_to(root) else root
    absolute = os.path.normpath(here / path)  # a link in the repository is a thing that commits touch, and not followed
    if not Path(absolute).is_relative_to(root):
        raise UsageError(f"--path {path} lies outside of the repository {root}")
    return os.path.relpath(absolute, root)


_REMOTE = re.compile(
    r"(?:https?://(?:[^@/]*@)?|ssh://(?:[^@/]*@)?|[\w.-]+@)(?P<host>[\w.-]+)(?::\d+(?=/))?[:/](?P<path>[\w./~-]+?)(?:\.git)?/?"
)


def web_address(root: Path) -> str:
    """The address of a commit, {commit} for its hash, where the remote `origin` is at GitHub or GitLab; else an empty string."""
    with suppress(InputError):
        match = _REMOTE.fullmatch(git(root, "remote", "get-url", "origin", what=""))
        if match and "github" in match["host"]:
            return f"https://{match['host']}/{match['path']}/commit/{{commit}}"
        if match and "gitlab" in match["host"]:
            return f"https://{match['host']}/{match['path']}/-/commit/{{commit}}"
    return ""
