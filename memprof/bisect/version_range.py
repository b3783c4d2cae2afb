"""The versions that `bisect` searches: commits, each built by the suite's [build], or releases of a package, each in an environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from ..base.errors import MemprofError, UsageError
from ..base.files import sha256_of
from ..fleet import version_transfer
from ..fleet.version_transfer import Releases, Travelling
from ..models.identity import identify
from ..programs import environments
from ..subjects import suite
from ..subjects.suite import Build, Suite
from ..versions import builds, commits, installation, pip, worktrees
from ..versions.measurement import Which

Say = Callable[[str], None]


@dataclass(frozen=True)
class Versions:
    """The versions, the good one first. noun: `commit` or `release`. subject: of which there are versions. labels: their names.

    open: a version as a suite to be measured, as long as the block lasts; it raises InputError for a version that cannot be made. named: a
    version for people, with its subject. key: text that is the same for the same question. facts: what else the figures hold for, by a name for
    people: the files that are measured with and their content, interpreters and their packages. travels: the versions as the workers of a fleet get
    them, who make those that they are asked for; None where there is no fleet.
    """

    noun: str
    subject: str
    labels: tuple[str, ...]
    open: Callable[[int, Say], AbstractContextManager[Suite]]
    named: Callable[[int], str]
    key: str
    facts: Mapping[str, str] = field(default_factory=dict)
    travels: Callable[[Which, Say], AbstractContextManager[Travelling]] | None = None


def of_commits(file: Path, good: str, bad: str, path: str | None, say: Say) -> Versions:
    """The commits between two refs, by first parents. Raises UsageError for refs that are not so, InputError for a suite that is none."""
    repository = worktrees.Repository.of(file)
    build = suite.read(file).build or Build()
    names = commits.first_parents(repository.root, good, bad, path)
    labels = tuple(name[:9] for name in names)
    if commits.changed(repository.root, file):
        say(f"the checkout has changes that are in no commit: they are not measured; only {file} is taken as it is")

    def open_build(number: int, say: Say) -> AbstractContextManager[Suite]:
        return builds.suite_of(repository, names[number], build, labels[number], say)

    def named(number: int) -> str:
        subject = worktrees.git(repository.root, "log", "-1", "--format=%s", names[number], what=f"{names[number]} cannot be read")
        return f"{names[number][:9]} ({subject})"

    def travels(which: Which, say: Say) -> AbstractContextManager[Travelling]:
        return version_transfer.packed(repository, names, labels, which, say)

    key = f"{repository.root} {names} {file.read_text('utf-8')}"
    facts = _facts(suite.read(file), build, repository.root)
    return Versions("commit", repository.root.name, labels, open_build, named, key, facts, travels)


def _facts(asked: Suite, build: Build, root: Path) -> dict[str, str]:
    """What the checkout and the machine lend to every commit. What is not there is the commits' own, or is missed when it is measured."""
    facts = {}
    for path in asked.models:
        with suppress(MemprofError):
            facts[f"model {os.path.relpath(path, root)}"] = identify(path).sha256
    for file in (*asked.runtimes, *(variant.runtime for variant in asked.variants), asked.inputs):
        if file and os.path.isfile(file):
            facts[f"file {os.path.relpath(file, root)}"] = sha256_of(Path(file))[0]
    named = {python for python in (asked.python, *(variant.python for variant in asked.variants)) if python}
    for python in sorted(named) or [build.python or sys.executable]:
        facts[f"interpreter {python}"] = _packages(python)
    return facts


def _packages(python: str) -> str:
    """The version of an interpreter and its packages, or why it cannot tell them."""
    words = [os.path.expanduser(python), "-c", _PACKAGES]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout or done.stderr


# A folder of a package's metadata names the package and its version.
_PACKAGES = """
import os, site, sys
folders = [*site.getsitepackages(), site.getusersitepackages()]
names = [name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder) if name.endswith(".dist-info")]
print(sys.version, sorted(names))
"""


def of_releases(asked: Suite, package: str, first: str, last: str, pre: bool, say: Say) -> Versions:
    """The releases of a runtime's package from one to another, each in an environment that is made if it is missing.

    Raises UsageError for a runtime that pip does not install and for versions that are none of it, InputError for a model that cannot be read and
    if pip cannot tell the versions.
    """
    runtime = installation.known(package)
    assert runtime.distribution is not None
    models = [identify(path) for path in asked.models]  # before anything is installed
    listed = pip.versions(sys.executable, runtime.distribution, pre)
    ordered = sorted(listed.versions, key=environments.version_key)
    ends = [_release(ordered, listed, wanted, option, runtime.distribution) for wanted, option in ((first, "--from"), (last, "--to"))]
    if listed.unread:
        say(f"pip could not read {', '.join(listed.unread)}: releases that are only there are not searched")
    low, high = (ordered.index(end) for end in ends)
    if low >= high:
        raise UsageError(f"--from {first} must be an older version than --to {last}")
    labels = tuple(ordered[low : high + 1])

    @contextmanager
    def open_release(number: int, say: Say) -> Iterator[Suite]:
        python = installation.ensure(runtime.name, labels[number], say)
        yield replace(asked, runtimes=(), variants=(replace(asked.variants[0], python=python),))

    def named_release(number: int) -> Suite:
        return replace(asked, runtimes=(), variants=(replace(asked.variants[0], runtime=f"{runtime.name}@{labels[number]}"),))

    def travels(which: Which, say: Say) -> AbstractContextManager[Travelling]:
        return nullcontext(Releases(labels, named_release))

    # Not the place: it is this machine, and says itself by an address that each process has anew.
    words = {each.name: getattr(asked, each.name) for each in fields(asked) if each.name != "place"}
    key = f"{runtime.name} {labels} {[model.path for model in models]} {words}"
    facts = {**{f"model {model.name}": model.sha256 for model in models}, "Python": sys.version}
    return Versions("release", runtime.name, labels, open_release, lambda number: labels[number], key, facts, travels)


def _release(ordered: list[str], listed: pip.Listed, wanted: str, option: str, distribution: str) -> str:
    """The newest version that is the wanted one or of its line."""
    fitting = [version for version in ordered if environments.is_of(version, wanted)]
    if not fitting:
        few = ", ".join(ordered[-8:])
        for version, reason in listed.yanked.items():
            if environments.is_of(version, wanted):
                raise UsageError(
                    f"{option} {wanted}: {distribution} {version} was yanked{f' ({reason})' if reason else ''}, and a search passes over such "
                    f"releases; the newest others are {few}"
                )
        unread = f"; pip could not read {', '.join(listed.unread)}" if listed.unread else ""
        raise UsageError(
            f"{option} {wanted}: pip knows no such version of {distribution} for this Python and machine; the newest are {few}{unread}"
        )
    return fitting[-1]
