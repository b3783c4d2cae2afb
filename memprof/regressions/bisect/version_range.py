"""The versions that `bisect` searches: commits, each built by the suite's [build], or releases of any package, each in an environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ...base.errors import MemprofError, UsageError, near
from ...base.files import sha256_of
from ...campaign.fleet import version_transfer
from ...campaign.fleet.version_transfer import Releases, Travelling
from ...programs import environments, runtimes
from ...programs.environments import Environment
from ...subjects import orders
from ...subjects.suite import Build, Suite, Variant, variants_of
from ...versions import builds, commits, packages, worktrees
from ...versions.measurement import Selection
from ...versions.packages import Package
from ...versions.pip import Listed

Say = Callable[[str], None]


class Versions(Struct, frozen=True):
    """The versions, the good one first. noun: `commit` or `release`. subject: of which there are versions. labels: their names.

    open: a version as a suite to be measured, as long as the block lasts; it raises InputError for a version that cannot be made. named: a
    version for people, with its subject. key: text that is the same for the same versions. facts: other conditions of the figures, by a name for
    people: the files that are measured with and their content, interpreters and their packages. travels: the versions as the workers of a fleet get
    them, who make those of their comparisons; None where no fleet is asked. suite: what is measured of each, as it was asked. packages: what the
    environment of a version has, by name, once it was opened.
    """

    noun: str
    subject: str
    labels: tuple[str, ...]
    open: Callable[[int, Say], AbstractContextManager[Suite]]
    named: Callable[[int], str]
    key: str
    facts: Mapping[str, str] = field(default_factory=dict)
    travels: Callable[[Selection, Say], AbstractContextManager[Travelling]] | None = None
    suite: Suite = field(default_factory=Suite)
    packages: Callable[[int], Mapping[str, str]] = lambda number: {}


def of_commits(file: Path, good: str, bad: str, path: str | None, say: Say) -> Versions:
    """The commits between two refs, by first parents. Raises UsageError for refs that are not so, InputError for a suite that is none."""
    repository = worktrees.Repository.of(file)
    asked = worktrees.checkout_suite(repository)
    build = asked.build or Build()
    names = commits.first_parents(repository.root, good, bad, path)
    labels = tuple(name[:9] for name in names)
    if commits.changed(repository.root, file):
        say(f"the checkout has changes that are in no commit: they are not measured; only {file} is taken as it is")

    def open_build(number: int, say: Say) -> AbstractContextManager[Suite]:
        return builds.suite_of(repository, names[number], build, labels[number], say)

    def named(number: int) -> str:
        subject = worktrees.git(repository.root, "log", "-1", "--format=%s", names[number], what=f"{names[number]} cannot be read")
        return f"{names[number][:9]} ({subject})"

    def travels(which: Selection, say: Say) -> AbstractContextManager[Travelling]:
        return version_transfer.packed(repository, names, labels, which, say)

    key = f"{repository.root} {names} {file.read_text('utf-8')}"
    facts = _facts(asked, build, repository.root)
    return Versions("commit", repository.root.name, labels, open_build, named, key, facts, travels, asked)


def _facts(asked: Suite, build: Build, root: Path) -> dict[str, str]:
    """What the checkout and the machine lend to every commit. Everything else is the commits' own, or its absence shows when it is measured."""
    facts = {}
    for path in asked.models:
        with suppress(MemprofError):
            (model,) = orders.models_of(Suite(models=(path,)))
            facts[f"model {os.path.relpath(path, root)}"] = model.sha256
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


def of_releases(asked: Suite, name: str, first: str, last: str, pre: bool, say: Say, beside: tuple[str, ...] = ()) -> Versions:
    """The releases of a package from one to another, each in an environment that is made if it is missing.

    asked: the one thing to measure there: a model in a runtime, that of the package if none is named, or a program. beside: requirements that stay as
    they are. Raises UsageError for a package that has nothing to measure it and for versions that are none of it, InputError for a model
    that cannot be read and if the versions cannot be told.
    """
    asked = asked.over(Suite(warmup=1, runs=2))  # a search has many runs
    variant = _variant(asked, name)
    asked = replace(asked, runtimes=(), variants=(variant,))
    program = variant.command is not None
    package = packages.parse(name, None if program else variant.runtime, beside, asked.python)
    models = orders.models_of(replace(asked, name=None))  # before anything is installed
    facts = {**{f"model {model.name}": model.sha256 for model in models}, **_files_among(asked, variant), **package.facts()}
    listed = package.versions(pre)
    ordered = listed.versions[::-1]
    ends = [_release(ordered, listed, wanted, option, package) for wanted, option in ((first, "--from"), (last, "--to"))]
    if listed.unread:
        say(f"pip could not read {', '.join(listed.unread)}: releases that are only there are not searched")
    low, high = (ordered.index(end) for end in ends)
    if low >= high:
        raise UsageError(f"--from {first} must be an older version than --to {last}")
    labels = tuple(ordered[low : high + 1])
    made: dict[int, Environment] = {}

    @contextmanager
    def open_release(number: int, say: Say) -> Iterator[Suite]:
        environment = made[number] = package.ensure(labels[number], say)
        yield replace(asked, variants=(packages.inside(variant, package, environment),))

    def travels(which: Selection, say: Say) -> AbstractContextManager[Travelling]:
        return nullcontext(Releases(asked, name, beside))

    def packages_of(number: int) -> Mapping[str, str]:
        return made[number].packages if number in made else {}

    key = f"{package.name} {labels} {package.beside} {[model.path for model in models]}"
    return Versions(
        "release",
        package.name,
        labels,
        open_release,
        lambda number: labels[number],
        key,
        facts,
        travels,
        asked,
        packages_of,
    )


def _variant(asked: Suite, name: str) -> Variant:
    """What is measured of each release. Raises UsageError."""
    if variants_of(asked):
        variant = asked.only
    else:
        runtime = packages.runtime_of(name) if asked.models else None
        if runtime is None:
            known = [each.name for each in runtimes.describe(sys.executable) if each.distribution]
            hint = near(name, known) if asked.models else ""
            raise UsageError(
                f"--package {name} is measured by a MODEL in its runtime or in that of -r NAME, or by -- PROGRAM WORD...{hint}"
            )
        variant = Variant(runtime=runtime.name)
    if variant.command is None and not asked.models:
        raise UsageError(f"-r {variant.runtime}: name a MODEL to measure")
    if len(asked.models) > 1:
        raise UsageError(f"one MODEL: these are {', '.join(asked.models)}")
    if len(asked.threads) > 1:
        raise UsageError(f"one thread count: these are {', '.join(map(str, asked.threads))}")
    return replace(variant, name=variant.name or os.path.basename(packages.without_version(variant.runtime)).removesuffix(".py"))


def _files_among(asked: Suite, variant: Variant) -> dict[str, str]:
    """The content of the files that a program is given, and of a runtime's file and inputs."""
    words = variant.command.argv[1:] if variant.command is not None else (variant.runtime, asked.inputs or "")
    paths = {word: Path(asked.cwd or "." if variant.command is not None else ".") / os.path.expanduser(word) for word in words if word}
    return {f"file {word}": sha256_of(path)[0] for word, path in paths.items() if os.path.isfile(path) and os.access(path, os.R_OK)}


def _release(ordered: Sequence[str], listed: Listed, wanted: str, option: str, package: Package) -> str:
    """The newest version that is the wanted one or of its line."""
    fitting = [version for version in ordered if environments.is_of(version, wanted)]
    if not fitting:
        few = ", ".join(ordered[-8:])
        for version, reason in listed.yanked.items():
            if environments.is_of(version, wanted):
                yanked = f"{package.distribution} {version} was yanked{f' ({reason})' if reason else ''}"
                raise UsageError(f"{option} {wanted}: {yanked}, and a search passes over such releases; the newest others are {few}")
        here = " for this Python and machine" if package.tool == "pip" else ""
        unread = f"; pip could not read {', '.join(listed.unread)}" if listed.unread else ""
        raise UsageError(
            f"{option} {wanted}: {package.tool} knows no such version of {package.distribution}{here}; the newest are {few}{unread}"
        )
    return fitting[-1]
