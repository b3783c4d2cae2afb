"""The types that cross a wall: a request (Job), observations (Mark, Timeline), and the knowledge afterwards (Run).

Frozen, with the unit in every field's name; a figure that could not be had is None, never 0. The recorder writes a Run as JSON with the stdlib
alone and so does not import this module; memprof.records.store decodes strictly what it wrote, which keeps the two in step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from ..base.terminal_text import shortened
from ..base.units import counted, format_bytes

# The version of a line of a runs file, in its first field, "memprof".
#   1   2026-11   the first
#       since then, all of it optional, so that files without it are read as before: conditions; Mark.rss_peak_high_bytes and
#       Timeline.rss_max_high_bytes (bounds of the sum of several processes); Value.note, with no value beside it; Outcome.out_of_memory
#       may be null; Mark.swap_peak_bytes and rss_swap_peak_bytes, Timeline.swap_t_ns and swap (where pages were swapped out); Job.cpus and
#       no_swap; Mark.units, Run.work and Job.use (memory by units of work); Run.attempt (of a fleet); Job.sessions, processes, release, drive,
#       at and planned_bytes; Mark.refaults and first_token_ns; Run.search (of `memprof scale`);
#       Outcome.cut; Job.ranges and fixed; Charged.with_swap_peak_bytes; Job.version and side, which older files have in the variant's name;
#       Mark.device_peak_bytes, device_end_bytes and devices, Timeline.device_t_ns and device (memory outside of all resident sets);
#       Mark.charged_peak_bytes;
#       Mark.working_set_peak_bytes and charged_..._peak_bytes, Charged.group, limit_... and kernel_log (of `memprof attach --container`);
#       Mark.charged_kernel_stacks_... and charged_percpu_peak_bytes, Charged.kernel_peak_bytes and the five below it; Job.version_number
SCHEMA = 1

STARTUP, MODEL_LOAD, PREPARE, WARMUP, EXECUTE, RELEASE = "STARTUP", "MODEL_LOAD", "PREPARE", "WARMUP", "EXECUTE", "RELEASE"
PROMPT, GENERATE = "PROMPT", "GENERATE"  # of a model that generates, in place of EXECUTE
REQUEST = "REQUEST"  # of a server that memprof asks, in place of all of these
BUILD = "BUILD"  # of a conversion before the run, in a process of its own: it is a phase of runs whose conversion failed
PHASES = (BUILD, STARTUP, MODEL_LOAD, PREPARE, WARMUP, EXECUTE, PROMPT, GENERATE, REQUEST, RELEASE)
PEAK = "PEAK"
RUN = "RUN"  # a program without phases, from its start to its end
OUTSIDE = "between phases"  # of a program that has more memory outside of its phases than in any of them
RESERVED = (STARTUP, PEAK, RUN, OUTSIDE, "BASELINE")  # no user's phase has such a name
COMMAND = "command"  # the runtime of a program
PAGE_TABLES = "page tables"  # a kind of memory that is no device's
RELOAD = "reload"  # a unit of work: a load, a prepare, a few iterations and a delete

Cache = Literal["warm", "cold", "asis"]
# A side of a gate; a side that was measured again to confirm a regression; the three that prove that a regression would be seen.
JobSide = Literal["base", "head", "base, measured again", "head, measured again", "as it is", "measured again", "5% more"]
Status = Literal["ok", "import", "refused", "error", "exit", "signal", "timeout", "start", "lost"]


class ModelFile(Struct, frozen=True):
    """A file of a model: its path, its size and the hash of its content."""

    path: str
    bytes: int
    sha256: str


class Model(Struct, frozen=True):
    """A model as a runtime takes it: a set of files that belong together."""

    name: str
    path: str  # the first file or their folder
    files: tuple[ModelFile, ...]
    bytes: int
    sha256: str
    weight_bytes: int | None = None  # the size of its weights, if they can be told apart


class Use(Struct, frozen=True):
    """Work that is repeated while memory after each unit is followed (`memprof grow`)."""

    iterations: int  # at most so many
    time_ns: int = 0  # at most so long, 0 for any time
    cycles: str | None = None  # "reload" if a unit is a load, a prepare, `runs` iterations and a delete
    runs: int = 1
    shapes: tuple[Mapping[str, tuple[int, ...]], ...] = ()  # of inputs, that iterations take
    seed: int | None = None  # of the order of shapes, which is as by chance; None for one after another
    fresh: bool = False  # whether each iteration gets inputs of new content; else it gets the same, or those of its shape
    folder: str | None = None  # of .npz files, which are the inputs of iterations one after another
    feeder: tuple[str, ...] = ()  # the words of a program that prints the inputs of iterations


class Job(Struct, frozen=True):
    """The knowledge before a measurement."""

    model: Model
    runtime: str
    variant: str  # the name of the runtime or program with its settings, as the user gave it
    repeat: int
    warmup: int
    runs: int

    # Settings.
    knobs: Mapping[str, str] = field(default_factory=dict)  # as text; one that is absent has the runtime's default
    threads: int | None = None
    env: Mapping[str, str | None] = field(default_factory=dict)  # None takes a variable away
    python: str | None = None
    cache: Cache = "warm"
    deterministic: bool = False
    timeout_ns: int = 0
    interval_ns: int = 1_000_000  # the polling period
    iterations_interval_ns: int = 5_000_000  # the same while timed iterations run, 0 for none

    # What a model is given.
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of inputs, as the user asked
    inputs: str | None = None  # the file of inputs
    values: Mapping[str, str] = field(default_factory=dict)  # of inputs, as text: of a scalar, or of each of its elements
    given: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the shapes of the arrays in it
    assumed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # shapes that nobody gave, each open dimension as 1
    fixed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # shapes that nobody gave and the model's file fixes
    ranges: Mapping[str, int] = field(default_factory=dict)  # of inputs that are made: the rows that the graph indexes by them
    built: str | None = None  # the path of the file that is loaded in place of the model, if a knob converts it

    # A program that is measured, and no runtime.
    argv: tuple[str, ...] = ()  # the program and its words
    cwd: str | None = None  # where it runs
    program: ModelFile | None = None  # the file that runs
    phases: Mapping[str, str] = field(default_factory=dict)  # each phase's function, by the phase's name
    phase_regexes: Mapping[str, str] = field(default_factory=dict)  # the pattern of the line that ends a phase, by the phase's name

    # How its process runs.
    hold: bool = False  # the child stops at the end of each phase and is looked at: no figure is set beside a plain run's
    limit: str | None = None  # the limit on its memory, in words
    cpus: str | None = None  # the CPUs that it may run on, such as 0-3; None for those of memprof
    no_swap: bool = False  # a control group keeps its pages out of swap
    sessions: int = 1  # how many sessions of the model the process has
    processes: int = 1  # how many such processes ran at once, side by side; this is the record of one
    release: bool = False  # it ends with the phase RELEASE, in which the runtime is deleted
    use: Use | None = None  # what is repeated in place of warm-up and runs, to see whether memory rises with it
    drive: str | None = None  # the load that memprof put on a server, in words

    # Which of several measurements of the same it is.
    verifies: bool = False  # it verifies the proposal of a search, and is none of the search's own trials
    at: Mapping[str, int] = field(default_factory=dict)  # the place measured for a law of memory: values by dimension
    planned_bytes: int | None = None  # the planner's own peak there, None where there was no plan
    version: str | None = None  # the label of the commit or release that it measures, where several are compared
    side: JobSide | None = None  # of a gate that distinguishes its sides
    version_number: int | None = None  # the place of the version among those of its search, the oldest is 0; None where it is not known

    @property
    def heading(self) -> str:
        """Its variant as reports name it; see `heading`."""
        return heading(self.variant, self.version, self.side)

    @property
    def label(self) -> str:
        """Its model and variant, as sentences name them; see `label`."""
        return label(self.model.name, self.variant, self.version, self.side)

    @property
    def variables(self) -> dict[str, str]:
        """The environment's variables that it sets, without those that it takes away."""
        return {name: value for name, value in self.env.items() if value is not None}


def heading(variant: str, version: str | None, side: JobSide | None) -> str:
    """The name of a variant for people, with the version and the side of a gate if they distinguish it: `fp16 @ 1.2 (head)`."""
    return f"{variant}{f' @ {version}' if version else ''}{f' ({side})' if side else ''}"


def label(model: str, variant: str, version: str | None, side: JobSide | None) -> str:
    """A model and its variant for people: `net.onnx, fp16`. A program that names no model is both, and is named once."""
    shown = heading(variant, version, side)
    return shown if variant == model else f"{model}, {shown}"


class DeviceKind(Struct, frozen=True):
    """Memory of a kind that no resident set counts: `dma-buf EXPORTER`, `drm REGION`, `nvidia, approximate`, `memfd`, `hugetlb` or `page tables`."""

    kind: str
    peak_bytes: int
    end_bytes: int | None = None
    resident_end_bytes: int | None = None  # what resident sets count of such memory, beside end_bytes


class Mark(Struct, frozen=True):
    """A finished phase, as the child reported it: its times on CLOCK_MONOTONIC, its memory at the end, and the peak in between."""

    phase: str
    begin_ns: int
    end_ns: int
    rss_peak_bytes: int | None  # None only if an imported log lacks it
    rss_peak_exact: bool  # from a high-water mark that was reset where the phase began, or that rose within it
    times_ns: tuple[int, ...] = ()  # the duration of each iteration, for phases that have them
    samples: int = 0  # how often it was polled
    interval_ns: int = 0  # the polling period, 0 for no polling
    hwm_bytes: int | None = None  # the largest since the process started, as a tool that never resets it would report
    rss_begin_bytes: int | None = None
    rss_end_bytes: int | None = None
    anon_end_bytes: int | None = None
    file_end_bytes: int | None = None
    shmem_end_bytes: int | None = None
    swap_end_bytes: int | None = None
    vms_end_bytes: int | None = None
    vms_peak_bytes: int | None = None
    pss_end_bytes: int | None = None
    uss_end_bytes: int | None = None
    heap_used_end_bytes: int | None = None
    heap_free_end_bytes: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    read_bytes: int | None = None
    cpu_ns: int | None = None
    # The most that the peak can have been: of several processes, where rss_peak_bytes is the certain part of their sum, and of a single one
    # that polling saw alone, as far as the kernel's count allows. None if the peak has no such bounds.
    rss_peak_high_bytes: int | None = None
    swap_peak_bytes: int | None = None  # the most that was seen swapped out, None if nothing was
    rss_swap_peak_bytes: int | None = None  # the largest sum of resident and swapped pages seen at one moment, None as above
    units: Mapping[str, int] = field(default_factory=dict)  # the work that it did by the unit's name, such as token; without iterations
    refaults: int | None = None  # pages of files, dropped by the kernel and soon read again, of the run's own control group alone
    first_token_ns: tuple[int, ...] = ()  # of each iteration, after its begin; empty where that was not seen
    # All kinds of devices but page tables, as far as it is certain and no resident set counts it. None if that could not be seen.
    device_peak_bytes: int | None = None
    device_end_bytes: int | None = None
    devices: tuple[DeviceKind, ...] = ()
    charged_peak_bytes: int | None = None  # the most that the run's own control group was charged; None where its peak cannot be reset
    # The most that a control group that was looked at had of each, by readings ten times a second; None without such a group. Of the run's own group
    # the kernel's memory, what it is of, and sockets are known: read where the phase begins and ends too, and version 1 has a peak of the first.
    working_set_peak_bytes: int | None = None  # as kubelet counts it: all charges without pages of files that were not used for long
    charged_anon_peak_bytes: int | None = None
    charged_file_peak_bytes: int | None = None  # the page cache, shared memory in it
    charged_kernel_peak_bytes: int | None = None  # the kernel's own memory, stacks, slab, page tables and per-CPU data in it
    charged_kernel_stacks_peak_bytes: int | None = None  # of threads
    charged_slab_peak_bytes: int | None = None  # the kernel's small objects: open files, sockets, directories
    charged_page_tables_peak_bytes: int | None = None
    charged_percpu_peak_bytes: int | None = None  # what the kernel has once for each CPU
    charged_sockets_peak_bytes: int | None = None  # buffers of network connections, beside the kernel's own memory
    charged_swap_peak_bytes: int | None = None  # swapped out, beside all charges

    @property
    def page_tables_end_bytes(self) -> int | None:
        """The page tables of all its processes at the phase's end, None if they were not read."""
        return next((kind.end_bytes for kind in self.devices if kind.kind == PAGE_TABLES), None)

    @property
    def swapped_bytes(self) -> int:
        """The most that was seen swapped out, and so in no resident set, during the phase; 0 for nothing."""
        return max(self.swap_peak_bytes or 0, self.swap_end_bytes or 0)

    @property
    def with_swap_bytes(self) -> int | None:
        """The peak of resident and swapped pages together, at least; that of resident pages if nothing was swapped out."""
        if self.rss_peak_bytes is None:
            return None
        return max(self.rss_peak_bytes, self.rss_swap_peak_bytes or 0, (self.rss_end_bytes or 0) + (self.swap_end_bytes or 0))

    @property
    def time_ns(self) -> int:
        """The phase's duration."""
        return self.end_ns - self.begin_ns

    @property
    def sure(self) -> bool:
        """Whether the peak is known: exact, or between bounds that differ by no more than 1%."""
        if self.rss_peak_exact:
            return True
        return self.rss_peak_high_bytes is not None and self.rss_peak_high_bytes <= self.height_bytes * 1.01

    @property
    def height_bytes(self) -> int:
        """The peak if it is known, else 0: for finding the highest phase, never to be shown."""
        return self.rss_peak_bytes or 0


class Timeline(Struct, frozen=True):
    """Memory over time, by polling. The columns are packed; memprof.records.store.unpack gives them as arrays.

    Each column is base64 of zlib of the differences between neighbours as little-endian signed 64-bit integers, memory in bytes. Each
    change is one row; rows are thinned in long runs without losing a maximum. The minimum, mean (weighted by time) and maximum are of all samples. If
    several processes ran, they are of the certain part of their sum.
    """

    t_ns: str  # on CLOCK_MONOTONIC
    rss: str
    file: str  # file-backed and shared
    vms: str
    samples: int
    rss_min_bytes: int
    rss_mean_bytes: int
    rss_max_bytes: int
    rss_max_high_bytes: int | None = None  # the most that the sum of several processes can have been
    # Two columns of other rows, for swapped-out pages, which are read every 10 ms at most: from the first reading on that found any, None
    # if none did.
    swap_t_ns: str | None = None
    swap: str | None = None
    # The same for memory of devices; None if there was none.
    device_t_ns: str | None = None
    device: str | None = None


class Anchors(Struct, frozen=True):
    """Exact looks at a process between two units of work, packed as the columns of a Timeline; memory in bytes."""

    iteration: str  # after how many
    seen: str  # the resident set by the counters that the rows of Work are read from
    rss: str  # the same moment by smaps_rollup, which is exact on every kernel
    swap: str  # swapped out
    rows: int
    heap_used: str | None = None  # what the program holds of the C library's allocator, None if it does not tell
    heap_free: str | None = None  # what it freed and the allocator kept


class Work(Struct, frozen=True):
    """Memory right after units of a phase's work, packed as the columns of a Timeline; memprof.records.work.unpack gives them as arrays.

    Memory is in bytes. The first row is from before the first unit. Long phases have rows at a rate that is halved again and again.
    """

    phase: str
    units: tuple[str, ...]  # the names, such as iteration, shape (distinct shapes so far) and token
    t_ns: str  # on CLOCK_MONOTONIC
    rss: str
    file: str  # file-backed and shared
    swap: str  # as it was read last, every 10 ms at most
    counts: tuple[str, ...]  # how many of each unit were done by then, in the order of units
    rows: int
    anchors: Anchors | None = None


class Polling(Struct, frozen=True):
    """How often it was polled, and the period really achieved over the newest 4,096 polls of phases with the job's default period."""

    polls: int
    median_ns: int
    p99_ns: int


class Machine(Struct, frozen=True):
    """The machine of a run."""

    name: str
    arch: str
    kernel: str
    libc: str
    cpu: str
    cpus: int
    cpus_usable: int
    memory_bytes: int
    swap_bytes: int
    page_bytes: int
    huge_pages: str
    peak_bound_bytes: int  # how far a high-water mark of the run can lie from the truth (see memprof.base.counter_bounds)

    @property
    def words(self) -> str:
        """CPU, architecture and kernel, for people; an imported log may lack some of them."""
        count = counted(self.cpus, "CPU") if self.cpus else ""
        return ", ".join(word for word in (self.cpu, count, self.arch, f"Linux {self.kernel}" if self.kernel else "") if word)


class About(Struct, frozen=True):
    """The child's report of itself: versions, and notes for the reader of its figures. packages: versions of the packages it had imported."""

    runtime_version: str
    python_version: str
    notes: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)


class Value(Struct, frozen=True):
    """A figure that the measured program reports of itself: bytes where its name ends in _bytes, ns where in _ns."""

    name: str
    t_ns: int  # when, on CLOCK_MONOTONIC
    value: float | None  # None if the figure was no finite number
    phase: str | None = None  # the phase that ran, None for none
    note: str | None = None  # which kind of number it was, if none that is finite


class Process(Struct, frozen=True):
    """A process of a command's tree, as far as polling saw it."""

    pid: int
    name: str  # the last that it gave itself
    begin_ns: int  # when it was first seen
    end_ns: int  # when it was last seen
    rss_peak_bytes: int  # the largest of its samples and its high-water mark, if that was looked at
    command: str = ""  # its words, shortened
    parent: int | None = None
    pss_peak_bytes: int | None = None  # its largest share of memory that processes have in common, None if never read
    samples: int = 0


class Charged(Struct, frozen=True):
    """The charges of a control group: its peak, which holds only pages that the run itself brought in, the peak of memory and swap together, and how
    many of its processes were killed for lack of memory. None for a figure that this kernel's version lacks.

    Of a group that memprof did not make (`memprof attach --container`), the peak and the kills count from the time on that it was made.
    """

    peak_bytes: int | None = None
    oom_kills: int | None = None
    with_swap_peak_bytes: int | None = None
    group: str | None = None  # the folder of a group that memprof did not make
    limit_bytes: int | None = None  # the lowest limit of this group and of those above it, None for no limit
    limit_group: str | None = None  # the folder of the group above that has the lowest limit, None if it is this group's own
    limit_peak_bytes: int | None = (
        None  # the peak of the group that has the lowest limit; the most of the readings where the kernel keeps no peak
    )
    kernel_log: tuple[str, ...] | None = None  # the kernel's lines on these kills, the newest last; None if its log was not read
    # The most of the kernel's memory and of what it is of, as a Mark has them, over the whole run.
    kernel_peak_bytes: int | None = None
    kernel_stacks_peak_bytes: int | None = None
    slab_peak_bytes: int | None = None
    page_tables_peak_bytes: int | None = None
    percpu_peak_bytes: int | None = None
    sockets_peak_bytes: int | None = None


class Conditions(Struct, frozen=True):
    """The machine right before a run and right after it, as far as its kernel tells: its hottest sensor, and the clock of its fastest CPU."""

    temperature_begin_celsius: float | None = None
    temperature_end_celsius: float | None = None
    frequency_begin_hz: int | None = None
    frequency_end_hz: int | None = None


class Attempt(Struct, frozen=True):
    """The attempt of a fleet at a comparison, to which a run belongs."""

    comparison: str  # a hash of the whole request
    number: int  # from 1 on; a comparison that lost its machine begins again as the next
    runs: int  # how many the whole comparison has
    place: str = ""  # the machine's, as its worker offers it
    labels: Mapping[str, str] = field(default_factory=dict)  # the machine's
    kind: str | None = None  # the machines of this kind are interchangeable, None if a machine stands for itself


class ArenaRequests(Struct, frozen=True):
    """What a model asked of ONNX Runtime's arena at a place, in bytes: the size of each request, and of each array that the model was given."""

    at: Mapping[str, int]
    sizes: tuple[int, ...]
    inputs: tuple[int, ...]


class RequestTrace(Struct, frozen=True):
    """A model's requests to ONNX Runtime's arena, from runs apart from the measurements: from them the arena is simulated anywhere."""

    # Those of two runs of a session in order: n allocates number n, and ~n releases it.
    first: tuple[int, ...]
    second: tuple[int, ...]
    sites: tuple[int, ...]  # of each number, the same number for the same place in the runtime's code
    places: tuple[ArenaRequests, ...]  # where it was recorded, with the sizes there
    # The sizes of the free chunks that PREPARE leaves in the heap, None if the heap was not seen.
    heap_free_bytes: tuple[int, ...] | None = None
    mapped_from_bytes: int | None = None  # the size from which on a request to the heap is mapped


class Product(Struct, frozen=True):
    """A term of an amount: numerator / denominator bytes for each unit of a product of dimensions, each with its power."""

    powers: Mapping[str, int]
    numerator: int
    denominator: int = 1


Buffers = tuple[tuple[int, int, int], ...]


class Arenas(Struct, frozen=True):
    """A TFLite model's buffers as its interpreter and XNNPACK share them, from its graph: from them both arenas are planned anywhere."""

    amounts: tuple[tuple[Product, ...], ...]  # sizes in bytes, each a sum of products
    between: Buffers  # of the interpreter's arena: first step, step after the last, number of the amount
    workspaces: tuple[Buffers, ...]  # of XNNPACK's workspace, as each part of the graph needs it


class LawSearch(Struct, frozen=True):
    """What a search for a law of memory was asked, and what it knew beside its runs."""

    predictions: tuple[Mapping[str, int], ...] = ()  # places to predict, a value for each dimension by its label
    within_bytes: int | None = None  # the limit that values were to fit into
    # The lowest and the highest value of each dimension by its label, and the step between its values. Runs of earlier versions lack it.
    ranges: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    # In one run of the search alone, the first after they were known.
    requests: RequestTrace | None = None
    arenas: Arenas | None = None
    # Of processes that ran side by side, in one of their runs alone: what all had together, in bytes by the name of the figure; what they
    # had at least where they died for lack of memory.
    sums: Mapping[str, int] = field(default_factory=dict)


class Outcome(Struct, frozen=True):
    """How a measurement ended.

    status: ok; import, refused or error (reported by the child: the runtime could not be imported, memprof's side refused, the runtime raised);
    exit (with a code other than 0), signal, timeout; start (it could not be started); lost (it ended well, but its marks are not complete;
    or its recorder was ended).
    """

    status: Status
    phase: str | None = None  # in which it ended
    message: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    rss_last_bytes: int | None = None  # its resident set when it was last seen
    # Whether the kernel killed it for lack of memory, None if it killed a process meanwhile and does not say which.
    out_of_memory: bool | None = False
    hints: tuple[
        str, ...
    ] = ()  # other possible reasons, each a piece of a sentence: what it printed, shapes that were assumed, integers made
    # Why the recording of a run that is lost has no end: its recorder was ended, or the connection to it broke. Such a run is no evidence
    # about its job.
    cut: Literal["recorder", "connection"] | None = None

    @property
    def ok(self) -> bool:
        """Whether the job was completed."""
        return self.status == "ok"

    @property
    def word(self) -> str:
        """How it ended, in a word or two: `SIGSEGV`, `exit code 3`, `timeout`; `not measured` where memprof's side refused."""
        if self.status == "refused":
            return "not measured"
        return self.signal or (f"exit code {self.exit_code}" if self.status == "exit" and self.exit_code else self.status)

    @property
    def where(self) -> str:
        """Where it ended: `in PREPARE`, `after PREPARE`, or nothing if that is not known."""
        return f"in {self.phase}" if self.phase and not self.phase.startswith("after") else self.phase or ""

    @property
    def sentence(self) -> str:
        """How it ended, for people: a piece of a sentence, without the full stop of the runtime's own words."""
        return "; ".join(_unstopped(text) for text in (self._how, *self.hints))

    @property
    def _how(self) -> str:
        where = self.where
        last = f", its RSS last {format_bytes(self.rss_last_bytes)}" if self.rss_last_bytes else ""
        message = shortened(self.message or "", _MESSAGE_LETTERS)
        if self.status == "signal":
            return f"ended by {self.signal} {where}{last}{_WANT_OF_MEMORY[self.out_of_memory]}"
        if self.status == "timeout":
            return f"{message or 'did not end in time'} {where}{last}"
        if self.status == "exit":
            return f"ended with exit code {self.exit_code} {where}{f' ({message})' if message else ''}"
        if self.status == "lost":
            return message or f"ended {where} without saying that it was done: the rest is not known"
        return f"{where}: {message or self.status}"


_WANT_OF_MEMORY = {
    True: ": the kernel killed it for lack of memory",
    False: "",
    None: "; perhaps for lack of memory: the kernel killed a process meanwhile",
}


def _unstopped(text: str) -> str:
    return text if text.endswith("..") else text.removesuffix(".")


_MESSAGE_LETTERS = 300


class Run(Struct, frozen=True):
    """The knowledge after a measurement: a line of a runs file.

    If a command was more than one process, the timeline is of their sum, pages they share counted once as far as PSS could be had, and
    processes names each.
    """

    memprof: int
    job: Job
    machine: Machine
    started_ns: int
    outcome: Outcome
    timeline: Timeline
    marks: tuple[Mark, ...] = ()
    about: About | None = None
    polling: Polling | None = None
    warnings: tuple[str, ...] = ()
    output_bytes: int = 0  # how much the child printed
    charged: Charged | None = None
    # How far the model's outputs lie from those of other settings they were compared with: the largest difference over the largest
    # magnitude; 0 for the same, None if nothing was compared.
    output_error: float | None = None
    output_tail: str | None = None  # the end of what the child printed
    values: tuple[Value, ...] = ()
    processes: tuple[Process, ...] = ()
    conditions: Conditions | None = None
    work: tuple[Work, ...] = ()
    attempt: Attempt | None = None  # None unless a fleet measured it
    search: LawSearch | None = None  # None unless the request to `memprof scale` had more than a law, or knew more than its runs tell

    @property
    def imported(self) -> bool:
        """Whether the run comes from another tool's log: a recorder always knows the kernel it runs on."""
        return not self.machine.kernel

    @property
    def complete(self) -> bool:
        """Whether all phases before RELEASE ended well: their figures and PEAK count, even if the runtime then failed to be deleted."""
        return self.outcome.ok or (self.job.release and self.outcome.phase in (RELEASE, f"after {RELEASE}"))

    @property
    def followed(self) -> bool:
        """Whether `memprof grow` followed its memory by units."""
        return self.job.use is not None and bool(self.work)

    @property
    def before_release(self) -> tuple[Mark, ...]:
        """The finished phases that PEAK is the largest of: what is touched to delete a runtime is none of what it needs to run."""
        return tuple(mark for mark in self.marks if mark.phase != RELEASE)

    @property
    def height_bytes(self) -> int:
        """The largest of these phases, 0 if it finished none."""
        return max((mark.height_bytes for mark in self.before_release), default=0)

    def mark(self, phase: str) -> Mark | None:
        """The finished phase of that name, or None."""
        return next((mark for mark in self.marks if mark.phase == phase), None)
