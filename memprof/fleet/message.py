"""All that travels between a desk, a worker and the process that measures at a place. Each of the three may be of another version of memprof, as long
as PROTOCOL is the same number.

    desk -> worker             a Task, as an argument of the Dask task, as JSON
    worker -> desk             Events, through a queue of the scheduler; an Offered, in the worker's facts
    worker -> place's process  a Task, a line of JSON
    place's process -> worker  an Event a line: the first has the place's facts, or the end
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
from ..versions.measurement import Selection

# 2: a Task may be a part of a search; 3: a search may ask for outputs, for versions of runtimes, and for some repeats of a variant; 4: and for
# commits; 5: the version of a Job is a field, and a search may ask for releases of any package; 6: Dask chooses the place, by resources, and an
# attempt's number is the desk's own.
PROTOCOL = 6
FACTS = "memprof"  # among a worker's facts and figures at the scheduler
# Fields of a suite that mean something on one machine only, or lie in others here.
_HERE_ONLY = ("place", "build", "stdin", "model_shapes", "version")

_Kind = TypeVar("_Kind")
Content = bytes  # a field called bytes would hide the type
Labels = frozenset[tuple[str, str]]
OWN = frozenset({"host", "machine", "place"})  # labels that name one place

# Why a comparison failed: its words cannot be meant so, anywhere; a commit cannot be made, where others can; the place or what is on it is to blame;
# the machine was lost.
How = Literal["usage", "unmade", "refused", "lost"]


@dataclass(frozen=True)
class Sent:
    """A file that a comparison needs. name: its path in the folder that the comparison is measured in. path: where the desk has it."""

    name: str
    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Commits:
    """Commits that a worker builds, as `bisect --suite` does on its own machine, and measures alternately with the comparison's suite.

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
    which: Selection


@dataclass(frozen=True)
class SearchRequest:
    """What a search asks of a comparison beyond its suite's words. at, sessions, verifies: of its Jobs, see records.Job.

    repeats: the numbers of those to be measured, by variant; of a variant that is not named all. Of commits by label, and of others none.
    outputs: whether each Run tells how far its outputs are from the default's; "sent" if the desk gets the default's. reference: the comparison's
    file that has the default's outputs; empty if they are those of the first variant. variant: the only one, if those of the suite are its versions,
    each named by its label; else empty. makes: whether the worker makes an environment for each variant that lacks one: for its runtime at a version
    (NAME@VERSION), or, of a package, for the release that is its label. beside: the other packages of its environments (`bisect --with`).
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

    repeats: those to be measured, none for all. names: what the desk calls the files that Jobs name. desk: its name, for other people. sought: of a
    search, None for a campaign. repeats_at: its repeats for a worker by its address, where these differ. execution: a word of the worker's own for
    this time that it measures the task.
    """

    comparison: str
    title: str
    desk: str
    suite: Mapping[str, Any]
    files: tuple[Sent, ...]
    model: Model | None
    repeats: tuple[int, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    sought: SearchRequest | None = None
    repeats_at: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    execution: str = ""


@dataclass(frozen=True)
class Result:
    """How a comparison ended: with this number of Runs, or not, and why not. unmade: why a commit cannot be built or started, by label."""

    runs: int = 0
    how: How | None = None
    why: str = ""
    unmade: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """Something that happens while a comparison is measured. task: its key at the scheduler. execution: see Task. place: in the first event, the
    address of the worker that begins. needs: hashes of files that it lacks. plan: how many runs it has. run: a line of a runs file. remark: for
    people. outputs: a piece of the default's. end: in the last event. facts: of a place that can be measured at."""

    task: str = ""
    execution: str = ""
    place: str = ""
    needs: tuple[str, ...] = ()
    plan: int = 0
    run: str = ""
    remark: str = ""
    outputs: Content = b""
    end: Result | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Offered:
    """A place that a worker offers. host: the worker's. machine: the name of the place's machine."""

    place: str
    host: str
    machine: str
    labels: Mapping[str, str]
    protocol: int
    version: str

    @property
    def labels_of_kind(self) -> Labels:
        """Its labels without those that name this one place. Places with the same are of one kind."""
        return frozenset((label, value) for label, value in self.labels.items() if label not in OWN)

    @property
    def resources(self) -> dict[str, int]:
        """What its Dask worker offers: one of each, because a place measures one comparison at a time."""
        return resources(frozenset(self.labels.items()), self.labels_of_kind)


@dataclass(frozen=True)
class Doing:
    """What a place does now: nothing where title is empty. done and runs: how many Runs there are, of how many. for_s: since when, in seconds."""

    title: str = ""
    desk: str = ""
    done: int = 0
    runs: int = 0
    for_s: float = 0.0


def resources(labels: Labels, kind: Labels | None = None) -> dict[str, int]:
    """The resources that a comparison asks Dask for: a place of this protocol with these labels. kind: all labels of its kind, if it must be of
    that."""
    words = [f"memprof {PROTOCOL}", *(f"{name}={value}" for name, value in labels)]
    if kind is not None:
        words.append(f"kind of {msgspec.json.encode(sorted(kind)).decode()}")
    return dict.fromkeys(words, 1)


def encode(message: Task | Event | Offered | Doing) -> bytes:
    """A message as JSON, without a line's end."""
    return msgspec.json.encode(message)


def task(data: bytes) -> Task:
    """Raises msgspec.DecodeError for a message of another form, as `event` does."""
    return _decoded(data, _TASK)


def event(data: bytes) -> Event:
    return _decoded(data, _EVENT)


# Made here, before there are threads: msgspec crashes when two of them are the first to decode a dataclass (0.22).
_TASK = msgspec.json.Decoder(Task)
_EVENT = msgspec.json.Decoder(Event)


def _decoded(data: bytes, decoder: msgspec.json.Decoder[_Kind]) -> _Kind:
    try:
        return decoder.decode(data)
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
    return cache_folder("fleet") / f"comparison-{task.comparison}-{task.execution}"


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
