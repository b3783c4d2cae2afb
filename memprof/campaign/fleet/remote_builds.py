"""Commits on a worker's side: each is built in the worker's cache by what builds commits for a search on one machine, and kept there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...base.errors import InputError, MemprofError, os_reason
from ...subjects.order import Order
from ...versions import builds, measurement, worktrees
from ...versions.worktrees import Repository, Unbuilt
from .message import Commits

_OBJECTS = "objects.git"


class Unmade(Exception):
    """Why commits cannot be built or started, by their labels, on a machine that can build others."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = reasons


@contextmanager
def built(commits: Commits, repeats: Mapping[str, tuple[int, ...]], folder: Path, say: Callable[[str], None]) -> Iterator[list[Order]]:
    """The orders of commits, alternating; a commit without repeats is not built. Nobody removes the builds as long as the block lasts.

    folder: the comparison's, with its files. Raises Unmade; InputError and UsageError if this machine, or the question, is to blame.
    """
    repository = Repository(folder / commits.checkout, Path(commits.suite), folder / _OBJECTS, commits.repository)
    wanted = {label: commits.hashes[label] for label, numbers in repeats.items() if numbers}
    if not all(builds.is_made(commit, commits.build) for commit in wanted.values()):
        _unpack(commits, folder)
    orders: dict[str, list[Order]] = {}
    failed: dict[str, MemprofError] = {}
    with ExitStack() as stack:
        for label, commit in wanted.items():
            try:
                suite = stack.enter_context(builds.suite_of(repository, commit, commits.build, label, say))
            except Unbuilt as error:
                failed[label] = error
                continue
            try:
                orders[label] = measurement.orders(suite, commits.which)
            except MemprofError as error:
                failed[label] = error
        if failed:
            if not orders and not any(builds.is_made(commit, commits.build) for commit in commits.hashes.values()):
                raise next(iter(failed.values()))  # nothing was ever built here: another machine may have what this one lacks
            raise Unmade({label: str(error) for label, error in failed.items()})
        turns = range(1, 1 + max((max(numbers) for numbers in repeats.values() if numbers), default=0))
        yield [
            measurement.again(order, label, number)
            for number in turns
            for label, some in orders.items()
            if number in repeats[label]
            for order in some
        ]


def _unpack(commits: Commits, folder: Path) -> None:
    """A repository of the commits that the desk sent. Raises InputError, also if there is no git."""
    objects = folder / _OBJECTS
    other = () if commits.format == "sha1" else (f"--object-format={commits.format}",)  # git before 2.29 has no such option
    worktrees.git(folder, "init", "--quiet", "--bare", "--template=", *other, str(objects), what=f"{objects} cannot be made")
    pack = folder / commits.pack
    try:
        for file in (pack, pack.with_suffix(".idx")):
            os.link(file, objects / "objects/pack" / f"pack-{file.name}")
        (objects / "shallow").write_text("".join(f"{commit}\n" for commit in commits.shallow))
    except OSError as error:
        raise InputError(f"{objects}: {os_reason(error)}") from None
    named = "".join(f"create {name} {target}\n" for name, target in commits.tags.items())
    worktrees.git(objects, "update-ref", "--stdin", what=f"the tags of {commits.repository} cannot be kept", given=named.encode())
