"""What `tune` is asked and what it answers: the request, the proposals, and the best of them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import asdict

from ...base.units import counted, format_bytes
from ...campaign.fleet.search_client import Machines
from ...records.summary import costs_time
from ...records.types import Run
from ...subjects.order import Order
from ...subjects.settings import options
from ...subjects.suite import MS, Suite
from .search import SAME_VALUE, Goal, Settings, TrialPoint

# The name under which the number of threads is searched over like a knob, and the begin of that of a variable.
THREADS, ENV = "threads", "env."
VERIFYING_REPEATS = 5
ITERATION = "iteration"


class TuneRequest(Struct, frozen=True):
    """A search to be made.

    suite: of one model in a runtime, or of a program, with what holds for all trials; its thread counts are searched over, the first being the
    default's. tries: values to try by knob, in place of those that the knob names; by `env.NAME`, of a variable; or by NAME, in place of `{NAME}`
    among a program's words. tolerance: by how much outputs may differ from the default's, relative to the
    largest, and still count as the same. time_ns: how long the search may take, verification included.
    fleet: the machines to measure on, in place of the suite's place. prefix: what the names of its variants begin with, where several runtimes are
    searched.
    """

    suite: Suite
    goal: Goal = field(default_factory=Goal)
    tries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tolerance: float = 1e-3
    time_ns: int = 600 * 1000 * MS
    fleet: Machines | None = None
    prefix: str = ""

    @property
    def fixed(self) -> dict[str, str]:
        """The knobs that keep their value."""
        return {**self.suite.set, **self.suite.only.set}

    @property
    def threads(self) -> tuple[int, ...]:
        """The thread counts to search over, empty for the runtime's own."""
        return self.suite.only.threads or self.suite.threads

    @property
    def defaults(self) -> dict[str, str]:
        """The values of what only --try gives a value to, variables and a program's words, with the default settings: the first of each."""
        command = self.suite.only.command
        return {
            name: values[0] for name, values in self.tries.items() if name.startswith(ENV) or (command is not None and command.has(name))
        }


class Recommendation(Struct, frozen=True):
    """Settings with verified figures: medians of fresh interleaved runs, PEAK in bytes and an iteration's time in ns.

    number: its runs are those of the variant whose name begins with # and this, after the request's prefix; 0 is the default.
    output_error: see Run; None if the runtime hands no outputs out. command: a command line that measures the settings again. variables: the
    environment that carries those settings which act there. calls: the settings in the runtime's own words. late_rise_bytes: see
    memprof.records.summary.
    """

    number: int
    settings: Settings
    peak: float
    time: float
    peaks: tuple[float, ...]
    times: tuple[float, ...]
    output_error: float | None
    changes_outputs: bool
    command: str
    variables: Mapping[str, str]
    calls: tuple[str, ...] = ()
    late_rise_bytes: int = 0


class LeftOut(Struct, frozen=True):
    """Settings that were measured again and are no proposal. number: see Recommendation.

    rival: the number of the row that stands for it: one that beats it in those runs, or one with fewer settings and no other figures. None if it
    failed with `error`.
    """

    number: int
    settings: Settings
    rival: int | None = None
    error: str = ""


class Tuned(Struct, frozen=True):
    """The answer: the default, the proposals of the front by their numbers, that with the least peak in the search first, and the search's further
    results.

    model: the program's name where it has none. runtime: the program's name for a program. timed: what the times are of: an iteration, or a phase
    of a program, or all of it. compares: whether outputs could be compared. given: see TuneRequest.defaults.
    best: the proposal that reaches the goal, None if none does; it never changes the outputs. repeats: how many fresh runs of each the verified
    figures stand on. shapes, assumed: see explain's records. idle: values that change nothing by themselves. failed: the smallest combinations
    that failed, each with its sentence. left_out: the numbers that the proposals lack. complete: False if the time was up or the search was
    interrupted before it had nothing left to gain.
    verified: False if its proposals were not measured again. runs: those behind the figures, which are the trials if nothing was verified;
    settings that differ only in values that change nothing are one variant. within: how many of the settings that were tried keep within the
    budget, and how many were tried. remarks: on the machine, as it was at the begin. interrupted: by Ctrl-C or SIGTERM. values: how many there
    were to try; untried: how many of them were not tried by themselves; needed_ns: how long a search that tries each takes, as far as is known.
    unverified: settings of the front for whose fresh runs there was no time. baseline: what the default holds
    before a model is loaded, in bytes, None for a program. beaten: settings below the default's peak that were not measured again, as the trials of
    a proposal had less PEAK and less time, the least peak first. gate_command: see memprof.footprint.fit.Fitted, for the settings of `offered`.
    fit_command: a command line that finds the least limit under which these work, empty where they were measured elsewhere.
    time_noise: by how much the default's times in the search differ, as a share of the least.
    """

    model: str
    runtime: str
    goal: Goal
    default: Recommendation
    proposals: tuple[Recommendation, ...]
    best: Recommendation | None
    idle: tuple[tuple[str, str], ...]
    failed: tuple[tuple[Settings, str], ...]
    trials: int
    complete: bool
    verified: bool
    tolerance: float
    runs: tuple[Run, ...] = ()
    repeats: int = VERIFYING_REPEATS
    threads: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    assumed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    interrupted: bool = False
    timed: str = ITERATION
    compares: bool = True
    given: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    values: int = 0
    untried: int = 0
    needed_ns: int = 0
    within: tuple[int, int] = (0, 0)
    remarks: tuple[str, ...] = ()
    baseline: float | None = None
    beaten: tuple[TrialPoint, ...] = ()
    unverified: tuple[TrialPoint, ...] = ()
    gate_command: tuple[str, str] = ("", "")
    fit_command: str = ""
    time_noise: float = 0.0

    @property
    def offered(self) -> Recommendation | None:
        """The row that most users want: see `offer_of`."""
        return offer_of(self.goal, self.default, self.proposals, self.best)

    @property
    def unmet(self) -> str:
        """That no settings keep within the budget, as a sentence; empty if some do, or there is no budget."""
        if self.goal.budget is None or self.best is not None:
            return ""
        return f"{self.model}, {self.runtime}: no settings were found that stay within {format_bytes(self.goal.budget)}{self.cut}"

    @property
    def cut(self) -> str:
        """How much of the search was made where the time was up before its end, as the end of a sentence; empty where it went to its end."""
        if self.complete or self.interrupted:
            return ""
        if self.untried:
            return f": the time was up after {self.values - self.untried} of {counted(self.values, 'value')}"
        return f": the time was up after {counted(self.values, 'value')} and some of their combinations"

    @property
    def least(self) -> Recommendation:
        """The row with the least PEAK that keeps the outputs."""
        rows = (self.default, *self.proposals)
        return min((row for row in rows if not row.changes_outputs), key=lambda row: row.peak, default=self.default)


class TunedRuntimes(Struct, frozen=True):
    """The answers of several runtimes to the same request. failed: the sentence of each runtime whose default settings fail, by name."""

    answers: tuple[Tuned, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def unmet(self) -> str:
        """As that of an answer: no runtime keeps within the budget."""
        return "" if self.best is not None else self.answers[0].unmet

    @property
    def best(self) -> Tuned | None:
        """The answer whose best settings reach the goal best, or whose default does where it has none better; None if none reaches it."""
        within = self.answers[0].goal.budget
        reached = {answer.runtime: answer.best or answer.default for answer in self.answers if answer.best or within is None}
        return min(
            (answer for answer in self.answers if answer.runtime in reached),
            key=lambda answer: reached[answer.runtime].peak if within is None else reached[answer.runtime].time,
            default=None,
        )


def shown(settings: Settings) -> str:
    """Settings as a variant is written: `mmap=on,prepacking=off`; `default` if there are none."""
    return ",".join(f"{name}={value}" for name, value in sorted(settings)) or "default"


class SettingValues(Struct, frozen=True):
    """Settings by their kind: knobs, thread counts (none if it is the default's), and what is filled in: variables, a program's words."""

    knobs: dict[str, str]
    threads: tuple[int, ...]
    filled: dict[str, str]


def apart(settings: Settings, filled: Collection[str]) -> SettingValues:
    """Settings by their kind. filled: the names of variables and of a program's words."""
    return SettingValues(
        {name: value for name, value in settings if name != THREADS and name not in filled},
        tuple(int(value) for name, value in settings if name == THREADS and name not in filled),
        {name: value for name, value in settings if name in filled},
    )


def beats(proposal: Recommendation, other: Recommendation) -> bool:
    """Whether a proposal has less of one figure, peak or time, and no more of the other."""
    return proposal.peak <= other.peak and proposal.time <= other.time and (proposal.peak < other.peak or proposal.time < other.time)


def alike(one: Recommendation, other: Recommendation) -> bool:
    """Whether two recommendations differ neither in peak nor in time beyond noise."""
    near = abs(one.peak - other.peak) <= SAME_VALUE * one.peak or not _apart(one.peaks, other.peaks)
    return near and not _apart(one.times, other.times)


def _apart(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether no value of one lies among the other's: of 5 repeats each that is what compare's verdict asks for, and fewer have none."""
    return max(one) < min(other) or max(other) < min(one)


def rivals(measured: Sequence[Recommendation]) -> dict[int, int]:
    """By the number of each recommendation that another stands for, the number of that other: one with fewer settings that is alike, or one that
    beats it, of several that of the least peak.

    One that changes the outputs does not push out one that keeps them.
    """
    standing: dict[int, int] = {}
    plain: list[Recommendation] = []
    for proposal in sorted(measured, key=lambda each: (len(each.settings), each.peak, each.time)):
        same = [
            other
            for other in plain
            if len(other.settings) < len(proposal.settings) and other.changes_outputs <= proposal.changes_outputs and alike(other, proposal)
        ]
        if same:
            standing[proposal.number] = same[0].number
        else:
            plain.append(proposal)
    beaten = {}
    for proposal in plain:
        better = [other for other in plain if beats(other, proposal) and other.changes_outputs <= proposal.changes_outputs]
        if better:
            beaten[proposal.number] = min(better, key=lambda other: (other.peak, other.time)).number
    return beaten | {number: beaten.get(other, other) for number, other in standing.items()}


def over_time(goal: Goal, default: Recommendation, proposal: Recommendation) -> bool:
    """Whether a proposal takes longer than the goal lets it."""
    return goal.max_time is not None and proposal.time > goal.max_time * default.time


def best_of(goal: Goal, default: Recommendation, proposals: Sequence[Recommendation]) -> Recommendation | None:
    """The recommendation that reaches the goal, None if none does. With a budget, of those that keep within it and are as fast as the fastest
    within noise, that with the fewest settings."""
    if goal.budget is not None:
        within = [proposal for proposal in (default, *proposals) if proposal.peak <= goal.budget and not proposal.changes_outputs]
        fastest = min(within, key=lambda proposal: proposal.time, default=None)
        as_fast = [proposal for proposal in within if fastest is proposal or (fastest and not _apart(proposal.times, fastest.times))]
        return min(as_fast, key=lambda proposal: (len(proposal.settings), proposal.peak, proposal.time), default=None)
    within = [proposal for proposal in proposals if not proposal.changes_outputs]
    within = [proposal for proposal in within if not over_time(goal, default, proposal)]
    return min(within, key=lambda proposal: proposal.peak, default=None)


def offer_of(
    goal: Goal, default: Recommendation, proposals: Sequence[Recommendation], best: Recommendation | None
) -> Recommendation | None:
    """The row whose settings are handed on. With a budget or a bound on the time, the best. Where the goal is the least peak alone, the least peak
    below the default's that costs no time worth minding (see costs_time); the default where each setting costs more, None where nothing is better."""
    if goal.budget is not None or goal.max_time is not None:
        return best
    quick = [
        row
        for row in proposals
        if row.peak < default.peak and not row.changes_outputs
        if not costs_time(default.time, row.time, not _apart(row.times, default.times))
    ]
    return min(quick, key=lambda row: row.peak, default=None if best is None else default)


def command_of(request: TuneRequest, settings: Settings, order: Order) -> str:
    """The command line that measures settings again. order: that of these settings."""
    suite, own = request.suite, request.suite.only
    given = asdict(suite) | {"env": order.job.env, "set": {}}
    if own.command is not None:  # knobs of a program are variables, and its words have every value filled in
        env = {name: value for name, value in order.env.items() if value is not None}
        filled = {"threads": (), "cwd": order.job.cwd} | ({} if suite.drive is not None else {"warmup": None, "runs": None})
        return shlex.join(["memprof", "exec", *options(given | {"env": env} | filled), "--", *order.job.argv])
    values = apart(settings, request.defaults)
    knobs = {**request.fixed, **values.knobs}
    variant = ",".join([f"tuned={own.runtime}", *(f"{name}={value}" for name, value in sorted(knobs.items()))])
    given["threads"] = values.threads or request.threads[:1]
    given |= {"python": own.python or suite.python, "shapes": {**suite.shapes, **own.shapes}}
    return shlex.join(["memprof", "run", *suite.models, "--variant", variant, *options(given)])
