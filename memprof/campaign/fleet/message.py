"""All that travels between a desk and a worker. They may be of different versions of memprof, as long as PROTOCOL is the same number.

    desk -> worker     a ComparisonTask, as an argument of the Dask task
    worker -> desk     Events, through a queue of the scheduler; an Offered and a Doing, among the worker's facts and figures

Each side unpickles what the other sends. A scheduler does not: it needs no memprof.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Literal

import msgspec
from msgspec import Struct, field

from ...records.types import Model
from ...subjects.suite import Build, Suite
from ...versions.measurement import Selection

# To be raised when a record of this module, a Suite or a Variant changes.
PROTOCOL = 7
FACTS = "memprof"  # among a worker's facts and figures at the scheduler

Labels = frozenset[tuple[str, str]]
OWN = frozenset({"host", "machine", "place"})  # labels that name one place
Repeats = Mapping[str, tuple[int, ...]]  # their numbers, by variant

# Why a comparison failed: its words cannot be meant so, anywhere; a commit cannot be made, where others can; the place or what is on it is to blame.
How = Literal["usage", "unmade", "refused"]


class Sent(Struct, frozen=True):
    """A file that a comparison needs. name: its path in the folder that the comparison is measured in. path: where the desk has it."""

    name: str
    path: str
    sha256: str
    bytes: int


class Commits(Struct, frozen=True):
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


class SearchRequest(Struct, frozen=True):
    """What a search asks of a comparison beyond its suite's words. at, sessions, verifies, planned_bytes: of its Jobs, see records.Job.

    repeats: those to be measured; of a variant that is not named all. Of commits by label, and of others none. repeats_at: the same at a place by its
    name, where something of it was measured before. outputs: whether each Run tells how far its outputs are from the default's; "sent" if the desk
    gets the default's. reference: the comparison's file that has the default's outputs; empty if they are those of the first variant. package: whose
    releases the suite's variants are, each named by its label; the worker makes an environment for each that lacks one. beside: their other packages
    (`bisect --with`). variant: the name of the only one whose releases they are. commits: what is measured in place of a suite's words.
    """

    at: Mapping[str, int] = field(default_factory=dict)
    sessions: int = 1
    verifies: bool = False
    planned_bytes: int | None = None
    repeats: Repeats = field(default_factory=dict)
    repeats_at: Mapping[str, Repeats] = field(default_factory=dict)
    outputs: Literal["", "compared", "sent"] = ""
    reference: str = ""
    package: str = ""
    beside: tuple[str, ...] = ()
    variant: str = ""
    commits: Commits | None = None


class ComparisonTask(Struct, frozen=True):
    """Runs that one machine measures. title, desk: for people. suite: its files by their names in the comparison's folder. model: as the desk knows
    it, None for commands. names: what the desk calls the files that Jobs name. key: a hash of the whole request.

    needs: labels that its machine must have. runs: how many it has as far as its words say; only its worker knows that. cost: its estimated length
    in any unit. repeats: those to be measured, none for all. part: its number, if it shares no machine with the other parts of the same runs. kind:
    see records.Attempt. sought: of a search, None for a campaign.
    """

    title: str
    desk: str
    suite: Suite
    files: tuple[Sent, ...] = ()
    model: Model | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    needs: Labels = frozenset()
    runs: int = 0
    cost: float = 0.0
    repeats: tuple[int, ...] = ()
    part: int | None = None
    kind: str | None = None
    sought: SearchRequest | None = None


class Result(Struct, frozen=True):
    """How a comparison ended; without `how` it was measured. why: a sentence. unmade: why a commit cannot be built or started, by label."""

    how: How | None = None
    why: str = ""
    unmade: Mapping[str, str] = field(default_factory=dict)


class Event(Struct, frozen=True):
    """Something that happens while a comparison is measured, at the worker of this address. task: its key at the scheduler.

    begins: in the first event. needs: hashes of files that the worker lacks. plan: how many runs there are. run: a line of a runs file. remark: for
    people. outputs: the default's. end: in the last event.
    """

    comparison: str
    task: str
    address: str
    begins: bool = False
    needs: tuple[str, ...] = ()
    plan: int = 0
    run: bytes = b""
    remark: str = ""
    outputs: bytes = b""
    end: Result | None = None


class Offered(Struct, frozen=True):
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


class Doing(Struct, frozen=True):
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


def version() -> str:
    """The version of this memprof."""
    try:
        return metadata.version("ml-memprof")
    except metadata.PackageNotFoundError:  # run from a checkout
        return "of a checkout"
