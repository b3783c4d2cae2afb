"""Versions on their way to the workers of a fleet, which make them: releases by their names, commits as what git has of them.

A pack of git's objects has the commits from the good one to the bad one, with all their files, and nothing older. The suite's file travels beside it.
A model, a runtime's file and inputs travel too, if they lie in the checkout and not in each commit.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...base.errors import UsageError
from ...base.leftovers import scratch
from ...base.units import counted, format_bytes
from ...models.identity import identify
from ...records.summary import VariantKey
from ...subjects import suite
from ...subjects.suite import ALL, Build, Suite, variants_of
from ...versions.measurement import Selection
from ...versions.worktrees import Repository
from . import payload
from .message import Commits, Repeats, SearchRequest, Sent
from .payload import SearchTrial

Say = Callable[[str], None]

_PACK = "commits.pack"
_CHECKOUT = "checkout"


class Travelling(Protocol):
    """Versions that a worker makes. several: whether a version may have several places, of which one is to be followed."""

    @property
    def several(self) -> bool: ...

    def asked(self, repeats: Repeats, repeats_at: Mapping[str, Repeats], place: VariantKey | None) -> SearchTrial:
        """A comparison of the versions of these labels, of all places while none is chosen. See message.SearchRequest."""


# -- releases


class Releases(Struct, frozen=True):
    """Releases of a package. suite: what is measured of each, of one variant. package, beside: see message.SearchRequest."""

    suite: Suite
    package: str
    beside: tuple[str, ...] = ()
    several: bool = False

    def asked(self, repeats: Repeats, repeats_at: Mapping[str, Repeats], place: VariantKey | None) -> SearchTrial:
        (variant,) = self.suite.variants
        variants, most = tuple(map(variant.called, repeats)), max(map(max, repeats.values()))
        sought = SearchRequest(repeats=repeats, repeats_at=repeats_at, package=self.package, beside=self.beside, variant=variant.name)
        return SearchTrial(replace(self.suite, variants=variants, repeats=most), sought)


# -- commits


class CommitPayload(Struct, frozen=True):
    """Commits in files. commits: all of them, as a worker gets them."""

    commits: Commits
    sent: tuple[Sent, ...]
    several: bool

    def asked(self, repeats: Repeats, repeats_at: Mapping[str, Repeats], place: VariantKey | None) -> SearchTrial:
        hashes = {label: self.commits.hashes[label] for label in repeats}
        commits = replace(self.commits, hashes=hashes, which=replace(self.commits.which, place=place))
        return SearchTrial(Suite(), SearchRequest(repeats=repeats, repeats_at=repeats_at, commits=commits), sent=self.sent)


@contextmanager
def packed(repository: Repository, hashes: Sequence[str], labels: Sequence[str], which: Selection, say: Say) -> Iterator[CommitPayload]:
    """Commits, the good one first, in files that are there as long as the block lasts.

    Raises UsageError for what would be built otherwise on a worker, or does not travel; InputError if git cannot pack them.
    """
    asked = suite.read(repository.root / repository.suite)
    payload.check_phases(asked)
    lent = _lent(repository, hashes, asked)
    with scratch("commits") as work:
        objects, shallow, tags = _objects(repository, hashes, say)
        sent = [*_pack(repository, objects, work.folder), *lent]
        size = sum(one.bytes for one in sent)
        say(
            f"{format_bytes(size)} travel to each worker, once: {counted(len(hashes), 'commit')} of {repository.root.name}, and {_named(lent)}"
        )
        commits = Commits(
            hashes=dict(zip(labels, hashes, strict=True)),
            repository=f"{repository.root} of {os.uname().nodename}",
            format=repository.git("rev-parse", "--show-object-format", what="the kind of git's hashes cannot be told"),
            pack=_PACK,
            shallow=shallow,
            tags=tags,
            checkout=_CHECKOUT,
            suite=repository.suite.as_posix(),
            build=asked.build or Build(),
            which=which,
        )
        yield CommitPayload(commits, tuple(sent), _may_have_several(asked, which))


def _named(lent: Sequence[Sent]) -> str:
    names = [posixpath.relpath(one.name, _CHECKOUT) for one in lent]
    return ", ".join(names[:4]) + (f" and {counted(len(names) - 4, 'file')} more" if len(names) > 4 else "")


def _may_have_several(asked: Suite, which: Selection) -> bool:
    """Whether a suite may have several places of a model and a variant; what each runtime takes is known where it is installed."""
    variants = [variant for variant in variants_of(asked) if which.variant in (None, variant.name or variant.runtime)]
    models = [path for path in asked.models if which.model in (None, os.path.basename(path))]
    threads = max((len(variant.threads or asked.threads) for variant in variants), default=0)
    return len(models) > 1 or len(variants) != 1 or threads > 1 or variants[0].runtime == ALL


def _objects(repository: Repository, hashes: Sequence[str], say: Say) -> tuple[list[str], tuple[str, ...], dict[str, str]]:
    """The objects of all commits between the ends and of their files, with their paths; those commits whose parents are not among them; the tags that
    name any."""
    what = "the commits cannot be listed"
    listed = repository.git("rev-list", "--boundary", f"{hashes[0]}..{hashes[-1]}", what=what).split()
    commits = [name.removeprefix("-") for name in listed]
    shallow = tuple(dict.fromkeys((*(name[1:] for name in listed if name.startswith("-")), *_shallow_here(repository, set(commits)))))
    given = "\n".join(commits).encode()
    lines = repository.git("rev-list", "--objects", "--no-walk", "--stdin", what=what, given=given).splitlines()
    files = [line.partition(" ")[::2] for line in lines]
    _check_filters(repository, [name for name, path in files if posixpath.basename(path) == ".gitattributes"])
    if any(path == ".gitmodules" for _, path in files):
        say(
            f"{repository.root.name} has submodules, which do not travel: their folders are empty before the build command runs, as they are here"
        )
    tags, tag_objects = _tags(repository, set(commits))
    return [*lines, *tag_objects], shallow, tags


def _shallow_here(repository: Repository, commits: set[str]) -> list[str]:
    """Those of these commits whose parents this clone lacks too."""
    path = repository.root / repository.git("rev-parse", "--git-path", "shallow", what="git's folder cannot be found")
    return [name for name in path.read_text().split() if name in commits] if path.exists() else []


def _check_filters(repository: Repository, attributes: Sequence[str]) -> None:
    """Raises UsageError if git would make files otherwise on a machine that lacks a filter, or what it reads, such as git-lfs."""
    given = "\n".join(attributes).encode()
    text = repository.git("cat-file", "--batch", what="git's attributes cannot be read", given=given) if attributes else ""
    word = next(
        (word for line in text.splitlines() if not line.startswith("#") for word in line.split() if word.startswith("filter=")), None
    )
    if word is not None:
        raise UsageError(
            f"files of {repository.root.name} go through a filter of git's ({word} in .gitattributes), whose content does not travel: bisect builds "
            "these commits on this machine only, not on a fleet"
        )


def _tags(repository: Repository, commits: set[str]) -> tuple[dict[str, str], list[str]]:
    """The tags of these commits by their full names, and the objects of those that have one."""
    form = "%(objectname) %(*objectname) %(refname)"
    lines = repository.git("for-each-ref", f"--format={form}", "refs/tags", what="the tags cannot be listed").splitlines()
    tags, objects = {}, []
    for line in lines:
        target, peeled, name = line.split(" ", 2)
        if (peeled or target) in commits:
            tags[name] = target
            objects += [target] if peeled else []
    return tags, objects


def _pack(repository: Repository, objects: Sequence[str], folder: Path) -> Iterator[Sent]:
    """The objects in one file, and its index. With one thread the same objects make the same file."""
    words = ("-c", "pack.threads=1", "pack-objects", "-q", str(folder / "commits"))
    name = repository.git(*words, what="the commits cannot be packed", given="\n".join(objects).encode())
    for ending in (".pack", ".idx"):
        yield payload.sent_file(Path(_PACK).with_suffix(ending).name, folder / f"commits-{name}{ending}")


def _lent(repository: Repository, hashes: Sequence[str], asked: Suite) -> list[Sent]:
    """The suite's file, and the files of the checkout that some commit lacks. Raises UsageError for one that lies outside of the repository."""
    lent = [_file(repository, repository.suite)]
    singles = [
        name for name in (*asked.runtimes, *(variant.runtime for variant in asked.variants), asked.inputs) if name and os.sep in name
    ]
    for path in dict.fromkeys((*asked.models, *singles)):
        if not os.path.exists(path):
            continue  # the commits' own, or missed when it is measured
        inside = Path(os.path.relpath(os.path.normpath(path), repository.root))
        if os.pardir in inside.parts:
            raise UsageError(f"{path} lies outside of the repository {repository.root}, and does not travel to a fleet")
        if _lacks(repository, hashes, inside):
            lent += _model(path, inside) if path in asked.models else [_file(repository, inside)]
    return lent


def _lacks(repository: Repository, hashes: Sequence[str], inside: Path) -> bool:
    """Whether a path of the repository is missing in any of these commits."""
    given = "".join(f"{name}:{inside.as_posix()}\n" for name in hashes).encode()
    lines = repository.git("cat-file", "--batch-check", what="the commits' files cannot be looked up", given=given).splitlines()
    return any(line.endswith(" missing") for line in lines)


def _file(repository: Repository, inside: Path) -> Sent:
    return payload.sent_file(f"{_CHECKOUT}/{inside.as_posix()}", repository.root / inside)


def _model(path: str, inside: Path) -> list[Sent]:
    model = identify(path)
    return payload.sent_of(model, f"{_CHECKOUT}/{(inside if os.path.isdir(path) else inside.parent).as_posix()}")
