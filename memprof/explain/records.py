"""The result of explain, as it is printed, drawn and kept in a JSON file, which `memprof page --explain` shows.

All sizes in bytes. The file's schema has a version in its first field, "memprof_explain":
  1   2026-11   the first; later: shapes, assumed, warnings, the spread of latencies, threads among a proposal's settings,
              the PEAK of the process that was looked at, verdicts on latencies, the rise of PEAK in later iterations,
              the numbers of warm-ups and iterations, whether the weights are pieces of a file, PEAK of each verified run
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from ..base import files
from ..base.errors import InputError, os_reason
from ..records.summary import PeakPhases, costs_time, highest_phases
from ..records.types import Model
from ..verdicts.compare import Verdict

SCHEMA = 1
SEEN_SHARE = 0.9  # of a PEAK, that a look must have had: else the looks missed it

# The names of the waterfall's slices.
STACKS, LIBRARIES, MODEL_FILE, ONCE, AGAIN, REPACKED, IN_USE, KEPT, FILES, MAPPED, REST = (
    "stacks",
    "interpreter and libraries",
    "model file's pages",
    "weights, one copy",
    "weights, further copies",
    "repacked weights",
    "other blocks in use",
    "kept by the allocator",
    "other mapped files",
    "other anonymous mappings",
    "the rest",
)
TRIED = "tried"  # the rule of values that no other rule proposes
RUNTIME = "runtime"  # among a proposal's settings: another runtime of the same package
_LEAST_SAVING = 512 << 10
DEVICE = "device buffers, beside RSS"  # which are no slice of it
# In the order in which they are stacked.
SLICES = (LIBRARIES, STACKS, ONCE, MODEL_FILE, AGAIN, REPACKED, IN_USE, KEPT, FILES, MAPPED, REST)


class Slice(Struct, frozen=True):
    """A part of the resident set. how: how its bytes were found."""

    name: str
    bytes: int
    how: str


class Held(Struct, frozen=True):
    """Copies of weights of one kind in a phase: how many tensors have such a copy, how many copies, and their resident bytes.

    where: "the model's file", "a mapped library", "another mapped file", "private anonymous" or "shared". freed: 40% of each or more
    lie in blocks that were freed, so nobody holds them.
    """

    layout: str
    converted: str
    where: str
    tensors: int
    copies: int
    bytes: int
    freed: bool = False


def where(name: str) -> str:
    """The moment of a look, by its name."""
    phase, _, inside = name.partition("/")
    return f"near {phase}'s peak" if inside else f"at the end of {phase}"


class TensorCopies(Struct, frozen=True):
    """A tensor, and how many copies of it are held in each phase, by layout."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    instances: int
    copies: Mapping[str, Mapping[str, int]]


class PhaseLook(Struct, frozen=True):
    """One look: at the end of a phase, or (name PHASE/peak) inside it, near its peak.

    rss_bytes: the sum of the slices, from smaps. beyond_one_bytes: weights held beyond one copy, None if they could not be looked for;
    droppable_bytes: the part of it in clean pages of files, which the kernel can drop. kept_weight_bytes: the memory kept by the allocator that
    still holds weights. unplaced_bytes, unplaced_tensors: the weights that are counted and of which no copy was found, in any order; None if they
    could not be looked for. device_bytes: memory of devices beside the resident set, as the recorder read it while the child stood still.
    """

    name: str
    rss_bytes: int
    slices: tuple[Slice, ...]
    held: tuple[Held, ...] = ()
    beyond_one_bytes: int | None = None
    droppable_bytes: int = 0
    huge_bytes: int = 0
    huge_empty_bytes: int = 0
    swap_bytes: int = 0
    kept_weight_bytes: int = 0
    arenas: int = 0
    arenas_kept_bytes: int = 0
    moved_files: tuple[tuple[str, int], ...] = ()
    unplaced_bytes: int | None = None
    unplaced_tensors: int = 0
    device_bytes: int = 0

    def size(self, name: str) -> int:
        """The bytes of a slice, or of DEVICE."""
        if name == DEVICE:
            return self.device_bytes
        return sum(part.bytes for part in self.slices if part.name == name)

    @property
    def whole_bytes(self) -> int:
        """The resident set and the memory of devices beside it."""
        return self.rss_bytes + self.device_bytes

    @property
    def unexplained(self) -> float:
        """The share of the resident set that no slice explains."""
        return self.size(REST) / self.rss_bytes if self.rss_bytes else 0.0


class PhaseFigures(Struct, frozen=True):
    """A phase of the plain run: its peak, its end, its duration (ns) and the median of its iterations.

    inside: the phase that encloses it and has its peak too, such as the caller of a function; empty if there is none.
    """

    name: str
    rss_peak_bytes: int
    rss_end_bytes: int | None
    time_ns: int
    iteration_ns: int | None = None
    inside: str = ""

    @property
    def transient_bytes(self) -> int:
        """How far its peak lies above its end, in bytes."""
        return max(0, self.rss_peak_bytes - (self.rss_end_bytes or self.rss_peak_bytes))


class Verified(Struct, frozen=True):
    """The measured effect of a proposal, medians of `repeats` interleaved runs of each: before and after, bytes and ns.

    peaks_bytes: PEAK of each run, before and after; none in a file of an older memprof.

    iteration_spread_ns, prepared_spread_ns: the distance of the farthest run from each median. peak_raised: PEAK rose by more than the kernel's
    own bound. error: why it could not run. iteration_verdict, prepared_verdict: compare's on the time, empty where an older memprof gave none.
    late_rise_bytes: by how much iterations peak above those of WARMUP.
    """

    repeats: int
    peak_bytes: tuple[float, float] | None = None
    end_bytes: tuple[float, float] | None = None
    anon_bytes: tuple[float, float] | None = None
    phase_bytes: tuple[float, float] | None = None
    iteration_ns: tuple[float, float] | None = None
    prepared_ns: tuple[float, float] | None = None
    beyond_noise: bool = False
    error: str | None = None
    iteration_spread_ns: tuple[float, float] | None = None
    prepared_spread_ns: tuple[float, float] | None = None
    peak_raised: bool = False
    iteration_verdict: Verdict | Literal[""] = ""
    prepared_verdict: Verdict | Literal[""] = ""
    late_rise_bytes: int = 0
    peaks_bytes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def costs_time(self) -> bool:
        """Whether an iteration takes clearly more time, of which only a little is no matter; or, without iterations, load and prepare."""
        times, verdict = self.timed
        return times is not None and costs_time(*times, verdict == "noise")

    def saved_bytes(self, bound_bytes: int) -> tuple[float, float]:
        """What it saves of PEAK and at the end, 0 for what is within the bound of a peak (see Explanation), and for what it raises.

        Everything that says or ranks what a setting saves asks here.
        """
        pairs = [pair or (0.0, 0.0) for pair in (self.peak_bytes, self.end_bytes)]
        of_peak, at_end = (before - after if before - after > max(bound_bytes, _LEAST_SAVING) else 0.0 for before, after in pairs)
        return of_peak, at_end

    @property
    def timed(self) -> tuple[tuple[float, float] | None, Verdict | Literal[""]]:
        """The times in ns that weigh against a saving, and the verdict on them: of an iteration, else of load and prepare."""
        if self.iteration_ns is not None and self.iteration_ns[0]:
            return self.iteration_ns, self.iteration_verdict
        return self.prepared_ns, self.prepared_verdict


class Advice(Struct, frozen=True):
    """Advice: `settings` are knobs of this runtime, its number of threads as "threads", or another runtime of its package as "runtime".

    Without settings it is a change to the model or the machine, which cannot be tried here. calls: what a program writes for the settings, in the
    runtime's own words.
    """

    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    verified: Verified | None = None
    calls: tuple[str, ...] = ()


def worth(proposal: Advice, bound_bytes: int) -> tuple[int, float]:
    """A key that sorts proposals by what was measured: less PEAK, less at the end or not measured, no effect, more PEAK, no run. Of those with less
    PEAK that with the least comes first. bound_bytes: see Explanation."""
    done = proposal.verified
    if done is None:
        return 1, 0.0
    if done.error is not None:
        return 4, 0.0
    of_peak, at_end = done.saved_bytes(bound_bytes)
    if of_peak:
        return 0, -of_peak
    change = done.peak_bytes[1] - done.peak_bytes[0] if done.peak_bytes is not None else 0.0
    if done.peak_raised:
        return 3, change
    return (1, -at_end) if at_end else (2, change)


class Finding(Struct, frozen=True):
    """Something that makes the memory larger than it must be. bytes: how much of it, in `phase`; for TRIED what its best proposal saves of PEAK."""

    rule: str
    title: str
    bytes: int
    phase: str
    evidence: tuple[str, ...]
    proposals: tuple[Advice, ...]

    def best(self, bound_bytes: int) -> Advice | None:
        """The proposal that was measured to save the most PEAK, None if none saves any. bound_bytes: see Explanation."""
        saving = [proposal for proposal in self.proposals if worth(proposal, bound_bytes)[0] == 0]
        return min(saving, key=lambda proposal: worth(proposal, bound_bytes), default=None)


class Explanation(Struct, frozen=True):
    """The knowledge about one model in one runtime, or about a program.

    runtime: the program's name for a program. shapes: the inputs' shapes as they ran, as far as they are known; assumed: those of them in which open
    dimensions were taken as 1. warnings: doubts about the rest. looked_peak_bytes: the PEAK of the process that was looked at, None in a file of an
    older memprof. peak_bound_bytes: how far a peak can lie from the truth. of_pieces: the model's format is not known, so that its weights are
    pieces of the file, which no list names.
    """

    memprof_explain: int
    model: Model
    runtime: str
    runtime_version: str
    knobs: Mapping[str, str]
    threads: int | None
    machine: str
    measured: tuple[PhaseFigures, ...]
    phases: tuple[PhaseLook, ...]
    weight_bytes: int | None
    counted_bytes: int | None
    counted_tensors: int
    not_counted: Mapping[str, int]
    tensors: tuple[TensorCopies, ...]
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    assumed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    looked_peak_bytes: int | None = None
    peak_bound_bytes: int = 0
    python_version: str = ""
    machine_words: str = ""  # its CPUs and kernel
    libc: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)  # those that the child had imported, and their versions
    warmup: int | None = None  # iterations of WARMUP and of EXECUTE, None for a program
    runs: int | None = None
    of_pieces: bool = False

    @property
    def noun(self) -> str:
        """What copies are looked for of."""
        return "piece" if self.of_pieces else "tensor"

    @property
    def peak(self) -> PhaseFigures | None:
        """The phase with the run's PEAK."""
        return max(self.measured, key=lambda phase: phase.rss_peak_bytes, default=None)

    @property
    def peak_phases(self) -> PeakPhases:
        """That phase, and those that do not differ from it."""
        return highest_phases([(phase.name, phase.rss_peak_bytes) for phase in self.measured], self.peak_bound_bytes)

    @property
    def peak_bytes(self) -> int:
        """The run's PEAK."""
        return max((phase.rss_peak_bytes for phase in self.measured), default=0)

    @property
    def ranked(self) -> tuple[Advice, ...]:
        """The proposals that were measured, each settings once, the one that saves the most PEAK first. Another runtime is another program: it stands
        behind the settings that save PEAK, and before those that do not."""
        measured = {
            frozenset(proposal.settings.items()): proposal
            for finding in self.findings
            for proposal in finding.proposals
            if proposal.verified is not None
        }

        def rank(proposal: Advice) -> tuple[int, bool, float]:
            effect, change = worth(proposal, self.peak_bound_bytes)
            return effect, RUNTIME in proposal.settings, change

        return tuple(sorted(measured.values(), key=rank))

    @property
    def best(self) -> Advice | None:
        """The proposal to take, of those that save PEAK, and of settings if any does: that which saves the most and costs little time; where all cost
        more, that which saves the most. None if none that was measured saves any."""
        saving = [proposal for proposal in self.ranked if worth(proposal, self.peak_bound_bytes)[0] == 0]
        own = [proposal for proposal in saving if RUNTIME not in proposal.settings] or saving
        cheap = [proposal for proposal in own if proposal.verified is not None and not proposal.verified.costs_time]
        return next(iter(cheap or own), None)

    @property
    def looked_bytes(self) -> int:
        """The resident set of the largest look."""
        return max((look.rss_bytes for look in self.phases), default=0)

    def phase(self, name: str) -> PhaseLook | None:
        """The look of that name."""
        return next((look for look in self.phases if look.name == name), None)


def encode(explanation: Explanation) -> bytes:
    """As JSON, indented, with a line's end."""
    return msgspec.json.format(msgspec.json.encode(explanation), indent=1) + b"\n"


def load(path: Path) -> Explanation:
    """An explanation from its file. Raises InputError if it cannot be read, is no explanation, or was written by a newer memprof."""
    try:
        data = files.content(path)
    except OSError as error:
        raise InputError(f"{path}: {os_reason(error)}") from None
    try:
        content = msgspec.json.decode(data)
        version = content.get("memprof_explain") if isinstance(content, dict) else None
        if not isinstance(version, int):
            raise InputError(f"{path} is not an explanation that memprof wrote")
        if version > SCHEMA:
            raise InputError(f"{path}: written by a newer memprof (schema {version}; this one reads up to {SCHEMA})")
        return msgspec.convert(content, Explanation)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise InputError(f"{path}: {error}") from None
        raise InputError(f"{path} is not an explanation that memprof wrote") from None
