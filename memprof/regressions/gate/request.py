"""A gate's request, and both sides as they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from ...base.errors import UsageError
from ...base.files import check_new, check_target
from ...growth.laws import coefficients
from ...places import place as places
from ...places.place import HERE
from ...records import metrics
from ...records.summary import VariantKey
from ...records.types import JobSide
from ...verdicts import growth_limits
from ...verdicts.baseline import GateSide
from ...verdicts.budgets import Budget
from ...verdicts.verdicts import Limits

if TYPE_CHECKING:
    from ...subjects.order import Order
    from ...subjects.suite import Suite

BASE: Final = "base"
HEAD: Final = "head"


class GateRequest(Struct, frozen=True):
    """A gate's options. heads: runs files, none if something is measured; output: the runs file of head's runs that are measured now.

    command: the suite of one command, which is measured in place of `suite`. against: the git ref in whose tree it is measured too.
    budget: a limit beside those of the file `budgets`. report_only: the report says which exit code it would have had.
    in_ci: a CI service runs this, in a checkout that it throws away: a baseline that is not there yet leaves the run undecided.
    trust_runs: programs that the heads name may be executed to measure again, whoever wrote the files. on: where the suite is measured.
    """

    heads: tuple[Path, ...] = ()
    suite: Path | None = None
    command: Suite | None = None
    base: Path | None = None
    base_ref: str | None = None
    against: str | None = None
    budgets: Path | None = None
    budget: Budget | None = None
    acknowledged: Path | None = None
    metrics: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    repeats: int | None = None
    strict: bool = False
    across_machines: bool = False
    allow_gone: bool = False
    confirm: bool = False
    prove: bool = False
    trust_runs: bool = False
    in_ci: bool = False
    report_only: bool = False
    output: Path = Path("memprof-gate.jsonl")
    on: places.Place = HERE

    def check(self) -> None:
        """Raises UsageError for options that exclude each other, InputError for an output file that exists."""
        if bool(self.heads) + (self.suite is not None) + (self.command is not None) != 1:
            raise UsageError("give the runs to judge, or --run SUITE.toml or -- PROGRAM WORD... to measure them now")
        if self.against is not None and (self.command is None or self.base is not None):
            raise UsageError("--against goes with -- PROGRAM WORD..., and takes the place of --baseline")
        if self.base_ref is not None and (self.suite is None or self.base is not None):
            raise UsageError("--base-ref goes with --run, and takes the place of --baseline")
        for option, ref in (("--base-ref", self.base_ref), ("--against", self.against)):
            if ref is not None and not ref.strip():
                raise UsageError(f"{option} is empty: name a branch, a tag or a commit")
        limits = self.budgets or self.budget
        if self.base is None and self.base_ref is None and limits is None and self.command is None:
            raise UsageError("name what to judge by: --baseline FILE, --base-ref REF with --run, --budget SIZE, or --budgets FILE")
        if self.begins_baseline and (self.strict or self.across_machines or self.confirm):
            raise UsageError(f"{self.base} does not exist yet: the first run makes it, and has nothing to compare with")
        if self.trust_runs and not (self.heads and (self.confirm or self.prove)):
            raise UsageError("--trust-runs goes with --confirm or --prove, of runs from a file")
        if self.across_machines and (self.strict or self.base is None):
            raise UsageError("--across-machines goes with --baseline, and without --strict")
        if self.repeats is not None and not self.measures:
            raise UsageError("--repeats goes with --run, or with -- PROGRAM WORD...")
        if self.on is not HERE and (not self.measures or self.of_two_trees):
            raise UsageError("--on goes with what is measured, and without --base-ref and --against: their trees are on this machine")
        if self.on is not HERE and self.command is not None and self.command.build is not None:
            raise UsageError("--build goes without --on: it runs on this machine")
        for name in self.metrics:
            metrics.metric(name)
        if self.base is not None and self.begins_baseline:
            check_target(self.base)
        for path in self._outputs():  # now, and not when two builds have been made
            check_new(path, instead="-o names another")

    @property
    def measures(self) -> bool:
        """Whether head is measured now."""
        return self.suite is not None or self.command is not None

    @property
    def of_two_trees(self) -> bool:
        """Whether base is measured beside head, in a separate tree."""
        return self.base_ref is not None or self.against is not None

    @property
    def judge_words(self) -> str:
        """What head is judged by, as titles say it; empty for a command that is measured alone."""
        budget = f"a budget of {self.budget.text}" if self.budget is not None else ""
        return " and ".join(filter(None, (str(self.base or ""), str(self.budgets or ""), budget)))

    @property
    def begins_baseline(self) -> bool:
        """Whether this run of a command makes the baseline that later runs are compared with."""
        return self.command is not None and self.base is not None and not self.base.exists()

    def _outputs(self) -> Iterator[Path]:
        if self.measures:
            yield self.output
        if self.of_two_trees:
            yield self.base_output
        if self.confirm or self.prove:
            yield self.checks_output

    @property
    def base_output(self) -> Path:
        """The runs file of base's runs."""
        return self.output.with_name(f"{self.output.stem}.base.jsonl")

    @property
    def growth_output(self) -> Path:
        """The runs file of the processes whose growth was measured."""
        return self.output.with_name(f"{self.output.stem}.growth.jsonl")

    @property
    def law_output(self) -> Path:
        """The runs file of the runs that laws were fitted to."""
        return self.output.with_name(f"{self.output.stem}.law.jsonl")

    @property
    def checks_output(self) -> Path:
        """The runs file of fresh measurements."""
        return self.output.with_name(f"{self.output.stem}.checks.jsonl")


class GateSides(Struct, frozen=True):
    """Both sides as they are known now, a title for both, and how to measure a side again: again(side, place) gives its orders, none for a file.

    growth, laws: what is known of the growth of head's variants, and of their laws.
    gone: places that base's suite has and head's has not; unmeasurable: why base cannot measure what both suites have, by model and variant.
    """

    title: str
    base: GateSide
    head: GateSide
    again: Callable[[JobSide, VariantKey], Sequence[Order]]
    remarks: tuple[str, ...] = ()
    gone: tuple[VariantKey, ...] = ()
    unmeasurable: Mapping[tuple[str, str], str] = field(default_factory=dict)
    growth: tuple[growth_limits.VariantGrowth, ...] = ()
    laws: tuple[coefficients.LawAtLimit, ...] = ()
