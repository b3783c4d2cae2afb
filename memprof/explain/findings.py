"""From the looks to findings: one rule a finding, each with its bytes, its evidence, and advice.

A rule speaks from 4 MiB on, or 2% of the run's PEAK if that is more. If a knob of this runtime can change it, the knob is proposed and can be
measured (`--verify`). Other proposals are words alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..base.units import counted, format_bytes
from . import copy_rules, memory_rules
from .records import Finding, where
from .rule_inputs import LEAST_STEPS, Facts

# From this share of the resident set on, memory that no slice explains is a warning.
_UNEXPLAINED = 0.05
_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    *(
        copy_rules.library_copied,
        copy_rules.load_twice,
        copy_rules.held_at_peak,
        copy_rules.shared_repacked,
        copy_rules.xnnpack,
        copy_rules.mapped_and_read,
        copy_rules.kept_copies,
    ),
    *(copy_rules.loop_copies, memory_rules.kept, memory_rules.arenas, memory_rules.arena_too_large, memory_rules.transformed),
    *(memory_rules.scratch, memory_rules.huge, memory_rules.outputs, memory_rules.moved, memory_rules.transient),
    memory_rules.interpreter,
)


def doubts(facts: Facts) -> tuple[str, ...]:
    """Doubts about the explanation: the memory that no slice explains at the worst look, if it is more than a little."""
    worst = max(facts.phases, key=lambda look: look.unexplained, default=None)
    if worst is None or worst.unexplained <= _UNEXPLAINED:
        return ()
    size = format_bytes(worst.unexplained * worst.rss_bytes)
    return (f"{worst.unexplained:.1%} of the resident set {where(worst.name)} ({size}) is not explained: no slice has it",)


def sight(facts: Facts) -> str:
    """Which growth can be seen here, and which cannot."""
    if facts.ran <= LEAST_STEPS:
        return f"memprof did not look for growth: that needs at least {LEAST_STEPS + 1} iterations of EXECUTE (--runs)"
    if not facts.iterations:
        return (
            f"memprof did not look for growth: the {facts.ran} iterations of EXECUTE are too short to be polled one by one; memprof grow looks at "
            "memory after each of them"
        )
    return (
        f"memprof looks for growth of at least {format_bytes(facts.least)} over the {counted(len(facts.iterations), 'iteration')} of EXECUTE, "
        "if every late iteration adds to it; it does not see a slower leak, or a leak that comes now and then, for which there is memprof grow"
    )


def find(facts: Facts) -> tuple[Finding, ...]:
    """All findings, worst first; behind them the interpreter, which is the same beside every model."""
    findings = [finding for rule in _RULES for finding in rule(facts) if finding.bytes >= facts.least]
    return tuple(sorted(findings, key=lambda finding: (finding.rule == memory_rules.INTERPRETER, -finding.bytes)))
