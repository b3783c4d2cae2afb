"""All that travels between a desk, a worker and the process that tends a place. Each of the three may be of another version of memprof, as long as
PROTOCOL is the same number.

    desk -> worker      a Task, as an argument of the Dask task, as JSON
    worker -> desk      Said, through a queue of the scheduler; a Result, which the Dask task returns; an Offered, in the worker's facts
    worker -> tender    a Task, a line of JSON
    tender -> worker    a line each: `ready FACTS`, `plan COUNT`, `run RUN`, `say TEXT`, `outputs BASE64`, `done`, `failed HOW TEXT`,
                        `unmade REASONS`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from ..base.cache import cache_folder
from ..base.errors import InputError
from ..places.place import Place
from ..records.types import Model
from ..subjects.suite import Build, Suite
from ..versions.measurement import Which

# 2: a Task may be a part of a search; 3: a search may ask for outputs, for versions of runtimes, and for some repeats of a variant; 4: and for
# commits; 5: the version of a Job is a field, and a search may ask for releases of any package.
PROTOCOL = 5
RESOURCE = "memprof"  # of each place there is one
FACTS = "memprof"  # among a worker's facts and figures at the scheduler
# Fields of a suite that mean something on one machine only, or lie in others here.
_HERE_ONLY = ("place", "build", "stdin", "model_shapes", "version")

_Kind = TypeVar("_Kind")
Content = bytes  # a field called bytes would hide the type

# Why a comparison failed: its words cannot be meant so, anywhere; a commit cannot be made, where others can; the place or what is on it is to blame;
# the machine was lost.
How = Literal["usage", "unmade", "refused", "lost"]


@dataclass(frozen=True)
class Sent:
    """A file that a comparison needs. name: its path in the folder that the comparison is measured in. path: where the desk has it.
    content: of a small file, so that its worker need not ask for it; empty for others, and where the worker has it already."""

    name: str
    path: str
    sha256: str
    bytes: int
    content: Content = b""


@dataclass(frozen=True)
class Commits:
    """Commits that a worker builds, as `bisect --suite` does on its own machine, and measures by turns with the comparison's suite.

    hashes: by their labels. repository: what the desk calls it. format: of its hashes, in git's words. pack: the comparison's file with git's
    objects; beside it lies its index, with the ending .idx. shallow: those of its commits whose parents are not in it. tags: hashes by full names.
    checkout: the comparison's folder with files that a commit may lack, where they lie in the checkout. suite: the suite's file, in there.
    which: what of the suite is measured.
    """

    hashes: Mapping[str, str]
    repository: str
    format: str
    pack: str
    shallow: tuple[str, ...]
    tags: Mapping[str, str]
    checkout: str
    suite: str
    build: Build
    which: Which


@dataclass(frozen=True)
class Sought:
    """What a search asks of a comparison beyond its suite's words. at, sessions, verifies: of its Jobs, see records.Job.

    repeats: the numbers of those to be measured, by variant; of a variant that is not named all. Of commits by label, and of others none.
    outputs: whether each Run tells how far its outputs are from the default's; "sent" if the desk gets the default's. reference: the comparison's
    file that has the default's outputs; empty if they are those of the first variant. variant: the only one, if those of the suite are its versions,
    each named by its label; else empty. makes: whether the worker makes an environment for each variant that lacks one: for its runtime at a version
    (NAME@VERSION), or, of a package, for the release that is its label. beside: what else the environments of a package have (`bisect --with`).
    commits: what is measured in place of a suite's words.
    """

    at: Mapping[str, int] = field(default_factory=dict)
    sessions: int = 1
    verifies: bool = False
    planned_bytes: int | None = None
    repeats: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: Literal["", "compared", "sent"] = ""
    reference: str = ""
    makes: bool = False
    package: str = ""
    beside: tuple[str, ...] = ()
    variant: str = ""
    commits: Commits | None = None


@dataclass(frozen=True)
class Task:
    """A comparison on its way. suite: the suite's words, its files by their names in the folder. model: as the desk knows it, None for commands.

    repeats: those to be measured, none for all. names: what the desk calls the files that Jobs name. kind: see records.Attempt. desk: who asks.
    sought: of a search, None for a campaign.
    """

    comparison: str
    attempt: int
    title: str
    desk: str
    suite: Mapping[str, Any]
    files: tuple[Sent, ...]
    model: Model | None
    repeats: tuple[int, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    kind: str | None = None
    sought: Sought | None = None


@dataclass(frozen=True)
class Said:
    """What a worker says while a comparison is measured. task: its key. began: its place is free now. needs: hashes of files that it lacks.
    plan: how many runs it has. run: a line of a runs file. outputs: a piece of the default's. ended: last, what the Dask task returns soon; Dask's
    own way to there is longer."""

    task: str
    began: bool = False
    needs: tuple[str, ...] = ()
    plan: int = 0
    run: str = ""
    say: str = ""
    outputs: Content = b""
    ended: Result | None = None


@dataclass(frozen=True)
class Result:
    """How a comparison ended: with this number of Runs, or not, and why not. unmade: why a commit cannot be built or started, by label."""

    runs: int = 0
    how: How | None = None
    why: str = ""
    unmade: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Offered:
    """A place that a worker offers. host: the worker's. machine: the name of the place's machine."""

    place: str
    host: str
    machine: str
    labels: Mapping[str, str]
    protocol: int
    version: str


@dataclass(frozen=True)
class Doing:
    """What a place does now: nothing where title is empty. done and runs: how many Runs there are, of how many. for_s: since when, in seconds."""

    title: str = ""
    desk: str = ""
    done: int = 0
    runs: int = 0
    for_s: float = 0.0


def encode(message: Task | Said | Result | Offered | Doing) -> bytes:
    """A message as JSON, without a line's end."""
    return msgspec.json.encode(message)


def task(data: bytes) -> Task:
    """Raises msgspec.DecodeError for a message of another form, as `said` and `result` do."""
    return _decoded(data, Task)


def said(data: bytes) -> Said:
    return _decoded(data, Said)


def result(data: bytes) -> Result:
    return _decoded(data, Result)


def _decoded(data: bytes, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deep") from None


def version() -> str:
    """The version of this memprof."""
    try:
        return metadata.version("ml-memprof")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "of a checkout"


def folder_of(task: Task) -> Path:
    """The folder on a worker's machine that a comparison is measured in. The worker puts its files there. Raises InputError."""
    return cache_folder("fleet") / f"comparison-{task.comparison}-{task.attempt}"


def words_of(suite: Suite) -> dict[str, Any]:
    """A suite's words, to travel."""
    words = {name: getattr(suite, name) for name in suite.__dataclass_fields__ if name not in _HERE_ONLY}
    return msgspec.to_builtins(words)  # type: ignore[no-any-return]


def suite_of(words: Mapping[str, Any], place: Place) -> Suite:
    """The suite of words that travelled, to be measured at a place. Raises InputError for a word that no suite has."""
    types = get_type_hints(Suite)
    try:
        known = {item.name for item in fields(Suite)} - set(_HERE_ONLY)
        values = {name: msgspec.convert(value, types[name]) for name, value in words.items() if name in known}
    except msgspec.ValidationError as error:
        raise InputError(f"the desk sent a suite that this memprof does not know: {error}") from None
    unknown = words.keys() - known
    if unknown:
        raise InputError(f"the desk sent a suite that this memprof does not know: it has {', '.join(sorted(unknown))}")
    return Suite(**values, place=place)
