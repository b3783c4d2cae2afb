"""Builds of commits in the cache: each is made once, whole or not at all, and serves every later search.

    commits/KEY.TOKEN/           a lasting folder (see memprof.base.cache_folders)
        head/                    the commit's files and what the build command made of them, no worktree of git's any more
        head-env/                the environment in which the command ran

KEY is a hash of all that makes the build: the commit, the command, the interpreter, the kind of machine, and the variables that steer compilers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ..base import cache_folders
from ..base.cache import cache_folder
from ..base.errors import InputError, os_reason
from ..base.leftovers import end_leftovers, half_made
from ..base.units import format_bytes
from ..programs import conversion_cache
from ..subjects.suite import Build, Suite
from . import installation, worktrees
from .worktrees import Repository, Worktree

LIMIT_BYTES = 20 << 30  # of all builds together
_TREE = "head"
_STEERING = ("CC", "CXX", "CPPFLAGS", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS")

Say = Callable[[str], None]


class _Made(Struct, frozen=True):
    """What the stamp of a build says. folder: where it was made. python: its environment's interpreter. bytes: what it takes on the disk."""

    folder: str
    label: str
    python: str
    bytes: int


@contextmanager
def suite_of(repository: Repository, commit: str, build: Build, label: str, say: Say) -> Iterator[Suite]:
    """The checkout's suite with a build of a commit, which is made if it is missing, and which nobody removes as long as the block lasts.

    Every version answers the same questions: the checkout's suite takes the place of the commit's own. Raises InputError if the commit cannot be
    checked out or built.
    """
    end_leftovers()
    lock = cache_folder(cache_folders.COMMITS) / f"{_hash(repository.name)}.lock"
    with cache_folders.locked(lock, f"another memprof builds a commit of {repository.name}", say):
        key = _key(commit, build)
        made = _made(key) or _make(repository, key, commit, build, label, say)
        held = cache_folders.hold(Path(made.folder))
        try:
            suite = _suite(repository, Worktree(Path(made.folder) / _TREE, made.python, label))
            _make_room(say)
        except BaseException:
            os.close(held)
            raise
    try:
        yield suite
    finally:
        with suppress(OSError):  # somebody may have removed the cache by hand
            cache_folders.touch(Path(made.folder))
        os.close(held)


def is_made(commit: str, build: Build) -> bool:
    """Whether there is a build of a commit. Raises InputError if the build's interpreter is missing."""
    return _made(_key(commit, build)) is not None


def _key(commit: str, build: Build) -> str:
    steering = [os.environ.get(name) for name in _STEERING]
    return _hash(repr((commit, build.command, os.path.realpath(worktrees.base_interpreter(build)), os.uname().machine, steering)))


def _hash(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]


def _suite(repository: Repository, tree: Worktree) -> Suite:
    source, target = repository.root / repository.suite, tree.folder / repository.suite
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    except OSError as error:
        raise InputError(f"{source} cannot be brought into {tree.folder}: {os_reason(error)}") from None
    return worktrees.suite_in(repository, tree, lent=True)


def _all(pattern: str) -> Iterator[tuple[Path, _Made]]:
    for stamp in cache_folder(cache_folders.COMMITS).glob(f"{pattern}/{cache_folders.STAMP}"):
        with suppress(OSError, msgspec.DecodeError):
            yield stamp.parent, msgspec.json.decode(stamp.read_bytes(), type=_Made)


def _made(key: str) -> _Made | None:
    """The build of this key. One that works no more, because the cache was moved or its interpreter is gone, is removed."""
    for folder, made in _all(f"{key}.*"):
        with suppress(OSError):
            if Path(made.folder).samefile(folder) and os.access(made.python, os.X_OK):
                return made
        cache_folders.remove(folder)
    return None


def _make(repository: Repository, key: str, commit: str, build: Build, label: str, say: Say) -> _Made:
    with half_made(cache_folder(cache_folders.COMMITS), key, label) as work:
        folder = work.folder
        folder.mkdir()
        with worktrees.checked_out(repository, folder / _TREE, commit, label):
            say(f"{label}: {build.command}")
            python = worktrees.built(folder / _TREE, work.variables, build, label)
        # Some of a search's builds are new and some are not: their files must lie in memory alike.
        installation.leave_page_cache(folder)
        made = _Made(str(folder), label, python, installation.disk_bytes(folder))
        cache_folders.finish(folder, msgspec.json.encode(made))
        return made


def _make_room(say: Say) -> None:
    """Remove the builds that were used least recently and that nobody uses, until all are within the limit."""
    builds = sorted(_all("*"), key=lambda build: cache_folders.last_used(build[0]))
    total = sum(made.bytes for _, made in builds)
    for folder, made in builds:
        if total <= LIMIT_BYTES:
            return
        if cache_folders.remove(folder):
            conversion_cache.forget_made_below(folder)
            say(f"the build of {made.label} was removed, to keep builds of commits below {format_bytes(LIMIT_BYTES)}")
            total -= made.bytes
