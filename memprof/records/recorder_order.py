"""One measurement as memprof asks a recorder for it, and as the fold of its recording gets it (memprof.recording.order has the texts of both)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from .types import Cache, Job, Machine


class CommandStart(Struct, frozen=True):
    """A user's program, which owes memprof nothing: its phases come from marks, else from lines that it prints; else it has one phase, RUN.

    regexes: (phase, pattern); a line of output that matches ends that phase, which began where the one before ended, or with the program. alone: the
    process that was started only starts another (a debugger): the process whose marks come first is the root of the tree. driven: memprof
    asks the program for work, and says where its phases end. log: of a process that runs already, the file whose new lines count as output.
    """

    regexes: Sequence[tuple[str, str]] = ()
    alone: bool = False
    driven: bool = False
    log: str | None = None


class GroupOrder(Struct, frozen=True):
    """A control group to make, join and remove. settings: (file, text), in this order."""

    path: str
    settings: Sequence[tuple[str, str]] = ()


class Start(Struct, frozen=True):
    """How the child is started: the file and its words, its environment (None removes a variable), folder and standard input.

    stdin: text for the child to read; input: the descriptor that it reads from instead. grace_ns: how long it may take to end, 0 for no limit.
    rlimits: in bytes by name. writers: see heap.record. command: None for memprof's own side. attach: the process to look at, if nothing is
    started; attach_started: when it started (proc_pid_stat(5), 22), None if unknown. watch: with attach, the folder of a control group all of
    whose processes are looked at, then those of the groups above it. cpus: the numbers of the CPUs that it may run on, none for all.
    """

    argv: Sequence[str] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    cwd: str | None = None
    stdin: str = ""
    input: int | None = None
    deterministic: bool = False
    grace_ns: int = 0
    group: GroupOrder | None = None
    rlimits: Mapping[str, int] | None = None
    writers: Sequence[str] | None = None
    command: CommandStart | None = None
    attach: int | None = None
    attach_started: int | None = None
    watch: Sequence[str] = ()
    cpus: Sequence[int] = ()

    @property
    def followed(self) -> bool:
        """Whether the recorder also looks at the processes that it starts."""
        return self.command is not None or self.attach is not None


class Hold(Struct, frozen=True):
    """How long the child may be held in nanoseconds, and where it is held inside a phase, by phase: the RSS in bytes, and how much of the
    phase's first unit of work, which needs a command. With units it does not stand still at the ends of phases. A child with memprof's marks stops
    itself there; ends: its output tells them, and it is stopped from outside soon after the first end of each phase."""

    limit_ns: int
    at: Mapping[str, int] = field(default_factory=dict)
    units: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ends: bool = False

    @property
    def is_outside(self) -> bool:
        """Whether the child does not stop itself."""
        return bool(self.units) or self.ends


class Message(Struct, frozen=True):
    """One measurement. intervals: polling periods in nanoseconds by phase, "" for all others. files: whose page cache is treated as `cache` says;
    cache_drop: drop it first. silence_ns: the recorder ends the child if no line came for so long, 0 for never.
    report_ns: the time between two reports of the Run so far, 0 for none."""

    job: Job
    start: Start
    timeout_ns: int
    intervals: Mapping[str, int]
    files: Sequence[str] = ()
    cache: Cache = "asis"
    cache_drop: bool = False
    hold: Hold | None = None
    silence_ns: int = 0
    report_ns: int = 0

    @property
    def follows(self) -> bool:
        """Whether memory after each unit of work is wanted."""
        return self.start.attach is not None or self.start.env.get("MEMPROF_WORK") == "1"


class Header(Struct, frozen=True):
    """The input of the fold: the measurement, the machine as it was known before, and when memprof asked for it, in ns since 1970."""

    message: Message
    machine: Machine
    started_ns: int
