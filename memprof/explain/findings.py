"""From the looks to findings: one rule a finding, each with its bytes, its evidence, and advice.

A rule speaks from 4 MiB on, or 2% of the run's PEAK if that is more. If a knob of this runtime can change it, the knob is proposed and can be
measured (`--verify`). All else is proposed in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..programs.runtimes import Runtime
from ..runs.records import EXECUTE, MODEL_LOAD, PREPARE, STARTUP
from ..units import counted, format_bytes
from .records import IN_USE, KEPT, MODEL_FILE, Finding, Held, Measured, Phase, Proposal
from .waterfall import ANONYMOUS, IN_FILE, IN_LIBRARY, SHARED

_LEAST = 4 << 20
_LEAST_SHARE = 0.02
_LEAST_STEPS = 3
# From this share of the resident set on, memory that no slice explains is a warning.
_UNEXPLAINED = 0.05
# An arena is called too large from twice the plan on, and this much more for the runtime's own structures.
_PLAN_TIMES, _PLAN_MORE = 2, 16 << 20
_ARENA_KNOBS = ("arena", "mem_pattern", "arena_shrink", "planner", "memory_plan", "allocator")


@dataclass(frozen=True)
class Facts:
    """The facts that the rules look at.

    knobs: those in force, defaults included. plan_bytes: the bytes that activations need at the shapes that ran, see activations; shapes: these
    shapes, in words. iterations: RSS in bytes at the end of each iteration of EXECUTE. threads: None where the runtime chooses.
    """

    runtime: Runtime
    knobs: Mapping[str, str]
    measured: Sequence[Measured]
    phases: Sequence[Phase]
    plan_bytes: int | None
    iterations: Sequence[int]
    threads: int | None = None
    shapes: str = ""

    @property
    def least(self) -> int:
        """The least number of bytes that is worth a finding."""
        return max(_LEAST, int(_LEAST_SHARE * max((phase.rss_peak_bytes for phase in self.measured), default=0)))

    def phase(self, name: str) -> Phase | None:
        """The look of that name."""
        return next((look for look in self.phases if look.name == name), None)

    @property
    def steady(self) -> Phase | None:
        """The last look: memory that stays."""
        return next((look for look in reversed(self.phases) if "/" not in look.name), None)

    @property
    def prepared(self) -> Phase | None:
        """The last look before the model first ran."""
        return next((look for look in reversed(self.phases) if look.name in (PREPARE, MODEL_LOAD)), None)

    @property
    def highest_load(self) -> Phase | None:
        """The look at MODEL_LOAD with the most weights beyond one copy."""
        looks = [look for look in self.phases if look.name in (MODEL_LOAD, f"{MODEL_LOAD}/peak")]
        return max(looks, key=lambda look: look.beyond_one_bytes or 0, default=None)

    def propose(self, text: str, **settings: str) -> tuple[Proposal, ...]:
        """The proposal, if this runtime has these knobs and they are not set so already."""
        changed = {}
        for name, value in settings.items():
            knob = self.runtime.knob(name)
            if knob is None or (isinstance(knob.values, tuple) and value not in knob.values):
                return ()
            if self.knobs.get(name) != knob.check(value):  # knobs in force are as the runtime's side reads them
                changed[name] = value
        return (Proposal(text, changed),) if changed else ()

    def propose_threads(self, text: str, count: int) -> tuple[Proposal, ...]:
        """Another number of threads, if the runtime now has a single thread."""
        return (Proposal(text, {"threads": str(count)}),) if (self.threads or self.runtime.default_threads) == 1 else ()


def doubts(facts: Facts) -> tuple[str, ...]:
    """Doubts about the explanation: the memory that no slice explains at the worst look, if it is more than a little."""
    worst = max(facts.phases, key=lambda look: look.unexplained, default=None)
    if worst is None or worst.unexplained <= _UNEXPLAINED:
        return ()
    size = format_bytes(worst.unexplained * worst.rss_bytes)
    return (f"{worst.unexplained:.1%} of the resident set {_at(worst)} ({size}) is not explained: no slice has it",)


def sight(facts: Facts) -> str:
    """Which growth can be seen here, and which cannot."""
    if len(facts.iterations) <= _LEAST_STEPS:
        return f"memprof did not look for growth: that needs at least {_LEAST_STEPS + 1} iterations of EXECUTE (--runs)"
    return (
        f"memprof looks for growth of at least {format_bytes(facts.least)} over the {len(facts.iterations)} iterations of EXECUTE, if every late "
        "iteration adds to it; it does not see a slower leak, or a leak that comes now and then"
    )


def find(facts: Facts) -> tuple[Finding, ...]:
    """All findings, worst first."""
    findings = [finding for rule in _RULES for finding in rule(facts) if finding.bytes >= facts.least]
    return tuple(sorted(findings, key=lambda finding: -finding.bytes))


# -- copies


def _library_copied(facts: Facts) -> Iterator[Finding]:
    looks = [
        look for look in facts.phases if _size(look, where=(IN_LIBRARY,)) >= facts.least and (look.beyond_one_bytes or 0) >= facts.least
    ]
    if not looks:
        return
    worst, last = max(looks, key=lambda look: look.beyond_one_bytes or 0), looks[-1]
    evidence = [_words_of(worst)]
    if last is not worst:
        evidence.append(_words_of(last) + f": {format_bytes(last.beyond_one_bytes or 0)} beyond one copy stay")
    proposals = (
        *facts.propose("keep the weights out of the library, in a file of parameters", weights="separate"),
        *_if_none(facts, "weights", "link the weights apart from the code, and map them or read them once"),
    )
    yield Finding(
        "library_copied", "weights in a library are mapped and copied", worst.beyond_one_bytes or 0, worst.name, tuple(evidence), proposals
    )


def _load_twice(facts: Facts) -> Iterator[Finding]:
    """The file's bytes and the weights parsed from them, side by side while the model is loaded."""
    look, last = facts.highest_load, facts.steady
    if look is None or last is None or _size(look, where=(IN_LIBRARY,)) >= facts.least:
        return
    beyond_one = look.beyond_one_bytes or 0
    if look is last or beyond_one - (last.beyond_one_bytes or 0) < facts.least:
        return
    evidence = [_words_of(look)]
    load = next((phase for phase in facts.measured if phase.name == MODEL_LOAD), None)
    if load is not None and load.transient_bytes >= facts.least:
        evidence.append(f"MODEL_LOAD peaks {format_bytes(load.transient_bytes)} above its end")
    proposals = (
        *facts.propose("map the weights instead of reading them into memory", mmap="on"),
        *facts.propose("let the runtime map the file itself rather than take it as a buffer", source="file"),
        *facts.propose("weights as external data, which is mapped", weights="separate"),
    ) or (Proposal("read the file piece by piece, or free each piece once it is parsed"),)
    yield Finding(
        "load_twice",
        "the file's bytes and the parsed weights are both alive in MODEL_LOAD",
        beyond_one,
        look.name,
        tuple(evidence),
        proposals,
    )


def _shared_repacked(facts: Facts) -> Iterator[Finding]:
    """A weight that stays as stored and is held again folded or repacked. In TFLite's runtimes XNNPACK does it, which has a separate rule."""
    look = facts.steady
    if look is None or _has_xnnpack(facts):
        return
    repacked = _size(look, repacked=True, where=(ANONYMOUS, SHARED))
    stored = _size(look, repacked=False, where=(ANONYMOUS, SHARED, IN_FILE))
    beyond = (look.beyond_one_bytes or 0) - _size(look, where=(IN_LIBRARY,)) - _made_running(facts)
    if not repacked or not stored or beyond < facts.least:
        return
    both_off = facts.propose("both: one copy is left", prepacking="off", constant_folding="off")
    proposals = (
        *facts.propose("do not repack weights for the kernels: removes the prepacked copies", prepacking="off"),
        *facts.propose("do not compute constant subgraphs at load: removes the folded copies", constant_folding="off"),
        *(both_off if both_off and len(both_off[0].settings) > 1 else ()),
        *facts.propose(
            "convert the model to the runtime's own format, whose weights are mapped: the copy as stored is the file's", format="ir"
        ),
        *facts.propose("weights as external data, which is mapped: the copy as stored is the file's", weights="separate"),
        Proposal("change the model: if several operators share a weight, transpose their small operands, not the weight"),
    )
    evidence = [_words_of(look), *_when(facts, lambda look: _size(look, repacked=True, where=(ANONYMOUS, SHARED)), "repacked copies")]
    yield Finding(
        "shared_repacked", "folded or prepacked copies of weights that also stay as stored", beyond, look.name, tuple(evidence), proposals
    )


def _loop_copies(facts: Facts) -> Iterator[Finding]:
    """Copies that the model's own operators make while it runs: a loop whose state holds weights. Folding has nothing to do with these."""
    look, before = facts.steady, facts.prepared
    if look is None or before is None:
        return
    evidence = (
        _words_of(before),
        _words_of(look),
        f"{format_bytes(_made_running(facts))} beyond one copy were not there before the model first ran",
    )
    advice = (Proposal("change the model: a loop's body takes weights from outside the loop, and not as a part of its state"),)
    yield Finding(
        "loop_copies",
        "copies of weights made while the model runs, for example by a loop's state",
        _made_running(facts),
        look.name,
        evidence,
        advice,
    )


def _made_running(facts: Facts) -> int:
    """Bytes of weights held beyond one copy only since the model first ran. XNNPACK's repacked copies have a separate rule."""
    look, before = facts.steady, facts.prepared
    if look is None or before is None or look is before:
        return 0
    repacked = False if _has_xnnpack(facts) else None
    grown = _size(look, where=(ANONYMOUS, SHARED), repacked=repacked) - _size(before, where=(ANONYMOUS, SHARED), repacked=repacked)
    return max(0, min(grown, (look.beyond_one_bytes or 0) - (before.beyond_one_bytes or 0)))


def _xnnpack(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    if look is None or not _has_xnnpack(facts):
        return
    repacked = _size(look, repacked=True, where=(ANONYMOUS,))
    evidence = [_words_of(look), *_when(facts, lambda look: _size(look, repacked=True, where=(ANONYMOUS,)), "repacked copies")]
    if look.size(MODEL_FILE) >= facts.least:
        evidence.append(
            f"{format_bytes(look.size(MODEL_FILE))} of the model's file stay resident beside them, clean: the kernel can drop these"
        )
    proposals = (
        *facts.propose("let XNNPACK keep its repacked weights in a file and map that", api="compiled_model", weight_cache="on"),
        *facts.propose("switch XNNPACK off: the other kernels compute from the file's own pages", xnnpack="off"),
    )
    yield Finding("xnnpack", "XNNPACK's repacked weights", repacked, look.name, tuple(evidence), proposals)


def _has_xnnpack(facts: Facts) -> bool:
    return facts.knobs.get("xnnpack") == "on"


def _mapped_and_read(facts: Facts) -> Iterator[Finding]:
    """The file is mapped, or read whole, and its weights are held in memory besides, to the end."""
    look = facts.steady
    if look is None or (_has_xnnpack(facts) and facts.knobs.get("source") != "buffer"):
        return
    in_file, stored = _size(look, where=(IN_FILE,)), _size(look, repacked=False, where=(ANONYMOUS,))
    if facts.knobs.get("source") == "buffer" and stored >= facts.least:
        buffer = facts.propose("give the runtime the file's name: it maps the file, and the kernel can drop unused pages", source="file")
        yield Finding("read_whole", "the model's file is held in a buffer", stored, look.name, (_words_of(look),), buffer)
        return
    twice = min(in_file, look.beyond_one_bytes or 0)
    proposals = (
        *facts.propose("map the weights instead of reading them into memory", mmap="on"),
        *facts.propose("weights as external data, which is mapped", weights="separate"),
    ) or (Proposal("unmap the file once its weights are read, or use them where they are mapped"),)
    yield Finding(
        "mapped_and_read",
        "the model's file is mapped, and its weights are read into memory too",
        twice,
        look.name,
        (_words_of(look),),
        proposals,
    )


# -- the allocator and its arenas


def _kept(facts: Facts) -> Iterator[Finding]:
    look, start = facts.steady, facts.phase(STARTUP)
    if look is None:
        return
    weights = look.kept_weight_bytes
    kept = look.size(KEPT) - (start.size(KEPT) if start is not None and start is not look else 0)
    evidence = [
        f"{format_bytes(look.size(KEPT))} of resident pages lie in blocks that glibc's free() got back, at the end of {look.name}",
        *_when(facts, lambda look: look.size(KEPT), "it"),
        *([f"{format_bytes(weights)} of them still hold weights, as they were before they were freed"] if weights >= facts.least else []),
    ]
    proposals = (
        *facts.propose("give it back once, at the end of MODEL_LOAD and PREPARE", malloc_trim="on"),
        *facts.propose("blocks from 64 KiB on get separate mappings, which go back when they are freed", malloc_mmap_threshold="64KiB"),
        *(
            facts.propose("do not rewrite the weights for another layout at load", optimization="extended")
            if facts.knobs.get("optimization") == "all"
            else ()
        ),
    )
    yield Finding("kept", "memory that was freed and kept by the allocator", kept, look.name, tuple(evidence), proposals)


def _arenas(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    if look is None or look.arenas < 2:
        return
    evidence = (
        f"{look.arenas} arenas beside the main arena, one per thread, keep {format_bytes(look.arenas_kept_bytes)} of freed memory resident",
    )
    proposals = (
        *facts.propose("one arena for all threads", malloc_arenas="1"),
        *facts.propose("give it back once, at the end of MODEL_LOAD and PREPARE", malloc_trim="on"),
    )
    yield Finding(
        "arena_a_thread", "one arena per thread, each keeping freed memory", look.arenas_kept_bytes, look.name, evidence, proposals
    )


def _arena_too_large(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    if look is None or facts.plan_bytes is None or _preserves(facts) or not _beyond_plan(facts):
        return
    scratch = _scratch_bytes(facts)
    held = look.size(IN_USE) - scratch
    if held <= _PLAN_TIMES * facts.plan_bytes + _PLAN_MORE:
        return
    proposals = (
        *facts.propose("no arena: activations go back to the allocator", arena="off"),
        *facts.propose("do not plan all activations as one block", mem_pattern="off"),
        *facts.propose("give unused arena blocks back at the end of every run", arena_shrink="on"),
        *facts.propose("let activations share one block", planner="wic"),
        *facts.propose("plan the activations' storage when compiling", memory_plan="on"),
        *facts.propose("give freed activations back at once", allocator="naive"),
    )
    text = f"{_plan_words(facts)}; blocks in use hold {format_bytes(held)}"
    if look.unplaced_bytes:
        text += f", perhaps among them {format_bytes(look.unplaced_bytes)} of weights that were found in no order"
    yield Finding("arena", "the arena is larger than the plan", held - facts.plan_bytes, look.name, (text,), proposals)


def _transformed(facts: Facts) -> Iterator[Finding]:
    """Weights of which no copy is left in any order once the model has run: kernels hold values that were computed from them."""
    look = facts.steady
    if look is None or (look.unplaced_bytes or 0) < facts.least:
        return
    proposals = (
        *facts.propose("keep the weights of 3x3 convolutions as they are", winograd="off"),
        *facts.propose("keep the weights of 3x3 convolutions as they are", winograd="0"),
    )
    evidence = (
        f"{_at(look)} no copy of {counted(look.unplaced_tensors, 'tensor')} is found in any order",
        "kernels may hold values computed from them: Winograd's algorithm makes 1.8 to 7.1 bytes of each of a 3x3 kernel's",
    )
    yield Finding("transformed", "weights of which no copy is found", look.unplaced_bytes or 0, look.name, evidence, proposals)


def _scratch(facts: Facts) -> Iterator[Finding]:
    """Working memory of kernels, which is in no plan of tensors."""
    look, size = facts.steady, _scratch_bytes(facts)
    if look is None or facts.plan_bytes is None or _preserves(facts) or not _beyond_plan(facts):
        return
    evidence = (
        f"{_plan_words(facts)}; blocks in use hold {format_bytes(look.size(IN_USE))}, and most of it came when the model first ran",
        *_when(facts, lambda look: look.size(IN_USE), "memory in use"),
    )
    proposals = (
        *facts.propose("use kernels that need no scratch memory; they are slower", kernels="reference"),
        *facts.propose_threads("use other kernels, which may need less scratch memory", 2),
    ) or (Proposal("use fewer threads, if each has its own scratch memory, or another form of the operator that needs it"),)
    yield Finding("scratch", "scratch memory of kernels", size, look.name, evidence, proposals)


def _beyond_plan(facts: Facts) -> bool:
    """Whether blocks in use hold clearly more than activations need."""
    held = facts.steady.size(IN_USE) if facts.steady is not None else 0
    return facts.plan_bytes is not None and held > _PLAN_TIMES * facts.plan_bytes + _PLAN_MORE


def _scratch_bytes(facts: Facts) -> int:
    """The growth of blocks in use when the model first ran, beyond the activations, in bytes; 0 if it may be an arena that grew then."""
    look, before = facts.steady, facts.prepared
    if look is None or before is None or look is before or any(facts.runtime.knob(name) is not None for name in _ARENA_KNOBS):
        return 0
    return max(0, look.size(IN_USE) - before.size(IN_USE) - (facts.plan_bytes or 0))


def _plan_words(facts: Facts) -> str:
    at = f" at {facts.shapes}" if facts.shapes else ""
    return f"activations that live at once need {format_bytes(facts.plan_bytes or 0)} in the order of the file{at}"


def _huge(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    if look is None:
        return
    evidence = (
        f"{format_bytes(look.huge_bytes)} lie in transparent huge pages, of which {format_bytes(look.huge_empty_bytes)} hold nothing but zeros",
    )
    proposals = (
        Proposal(
            "set /sys/kernel/mm/transparent_hugepage/enabled to madvise, or switch them off for the program with prctl(PR_SET_THP_DISABLE)"
        ),
    )
    yield Finding("huge_pages", "transparent huge pages that were never filled", look.huge_empty_bytes, look.name, evidence, proposals)


def _outputs(facts: Facts) -> Iterator[Finding]:
    """Memory that grows with the iterations: results that are kept; or every tensor, if a knob tells the runtime to keep them."""
    look = facts.phase(EXECUTE)
    if look is None:
        return
    if _preserves(facts):
        held = look.size(IN_USE) - (facts.plan_bytes or 0)
        text = f"every intermediate tensor is kept: {format_bytes(look.size(IN_USE))} in use"
        plan = f", where {format_bytes(facts.plan_bytes)} live at once" if facts.plan_bytes else ""
        proposal = facts.propose("let tensors share memory", preserve_all_tensors="off")
        yield Finding("outputs_kept", "tensors are kept alive beyond their last use", held, look.name, (text + plan,), proposal)
        return
    steps = [after - now for now, after in zip(facts.iterations, facts.iterations[1:], strict=False)]
    late = steps[len(steps) // 2 :]
    # An arena grows at first, and then no more; kept tensors grow as much at the end as at the beginning.
    if len(steps) >= _LEAST_STEPS and min(late) > 0 and 2 * min(late) > max(steps):
        evidence = (
            f"RSS grew with every one of the last {len(late)} iterations of EXECUTE, by {format_bytes(sum(steps) / len(steps))} each,"
            f" {format_bytes(sum(steps))} in all",
        )
        advice = (Proposal("free an iteration's outputs before the next iteration, or give the runtime the same buffers each time"),)
        yield Finding(
            "outputs_kept", "output tensors are kept alive from one iteration to the next", sum(steps), look.name, evidence, advice
        )


def _preserves(facts: Facts) -> bool:
    return facts.knobs.get("preserve_all_tensors") == "on"


def _moved(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    for path, size in look.moved_files if look is not None else ():
        evidence = (
            f"{path} is mapped shared and writable, and {format_bytes(size)} of it are resident: file-backed in every count, though it is the"
            " program's own data",
        )
        advice = (Proposal("judge by the sum: anonymous memory alone makes it look smaller, and RSS larger, than without the file"),)
        yield Finding(
            "swap_file", "a swap file that moves anonymous memory to file-backed", size, look.name if look else "", evidence, advice
        )


def _transient(facts: Facts) -> Iterator[Finding]:
    """A phase that sets the run's PEAK for a moment, by something other than weights held twice."""
    worst = max(facts.measured, key=lambda phase: phase.rss_peak_bytes, default=None)
    if worst is None or worst.name in (STARTUP, EXECUTE) or worst.rss_end_bytes is None:
        return
    others_peak = max((phase.rss_peak_bytes for phase in facts.measured if phase is not worst), default=0)
    above = min(worst.transient_bytes, worst.rss_peak_bytes - others_peak)
    look, end = facts.phase(f"{worst.name}/peak"), facts.phase(worst.name)
    evidence = [
        f"{worst.name} peaks {format_bytes(worst.transient_bytes)} above its end, and {format_bytes(above)} above every other phase"
    ]
    if look is not None and end is not None:
        beyond_end = (look.beyond_one_bytes or 0) - (end.beyond_one_bytes or 0)
        if worst.name == MODEL_LOAD and beyond_end >= facts.least:
            return  # a finding of the rules about copies
        grown = [(part.name, part.bytes - end.size(part.name)) for part in look.slices]
        parts = [f"{format_bytes(size)} {name}" for name, size in sorted(grown, key=lambda pair: -pair[1]) if size >= 1 << 20]
        evidence.append(
            f"near its peak it had more than at its end: {', '.join(parts)}"
            if parts
            else "near its peak it has the same slices as at its end"
        )
    proposals = (
        *(facts.propose("do not compute constant subgraphs at load", constant_folding="off") if worst.name == PREPARE else ()),
        *(
            facts.propose("convert the model beforehand, so that nothing is parsed and rewritten at load", format="ort")
            if worst.name in (MODEL_LOAD, PREPARE)
            else ()
        ),
        Proposal("free each intermediate result as soon as the next is made"),
    )
    yield Finding("transient", f"a transient of {worst.name} sets the PEAK", above, worst.name, tuple(evidence), proposals)


_RULES: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    *(_library_copied, _load_twice, _shared_repacked, _xnnpack, _mapped_and_read),
    *(_loop_copies, _kept, _arenas, _arena_too_large, _transformed, _scratch, _huge, _outputs, _moved, _transient),
)


# -- words


def _size(look: Phase, *, where: Sequence[str], repacked: bool | None = None) -> int:
    copies = [copy for copy in look.held if copy.where in where and not copy.freed]
    return sum(copy.bytes for copy in copies if repacked is None or repacked == (copy.layout != "as stored" or bool(copy.converted)))


def _words_of(look: Phase) -> str:
    """The copies of a look in a sentence, the largest first."""
    parts = [_words(copy) for copy in look.held if not copy.freed][:6]
    return f"{_at(look)} the weights lie {', '.join(parts)}" if parts else f"{_at(look)} no copy of the weights was found"


def _at(look: Phase) -> str:
    return f"near {look.name.partition('/')[0]}'s peak" if "/" in look.name else f"at the end of {look.name}"


def _words(copy: Held) -> str:
    kind = f"{copy.layout}{f' as {copy.converted}' if copy.converted else ''}"
    where = {ANONYMOUS: "private anonymous memory", SHARED: "shared memory"}.get(copy.where, copy.where)
    return f"{kind} in {where} ({format_bytes(copy.bytes)})"


def _when(facts: Facts, size: Callable[[Phase], int], subject: str) -> Iterator[str]:
    """The phases in which it appeared, with its growth until the end of each."""
    ends = [look for look in facts.phases if "/" not in look.name]
    steps = [(now.name, size(now) - size(before)) for before, now in itertools.pairwise(ends)]
    grown = [f"{name} ({format_bytes(step)})" for name, step in steps if step >= facts.least]
    gone = [f"{name} ({format_bytes(-step)})" for name, step in steps if step <= -facts.least]
    if grown:
        yield f"{subject} appeared in {' and '.join(grown)}{', and disappeared in ' + ' and '.join(gone) if gone else ''}"


def _if_none(facts: Facts, knob: str, text: str) -> tuple[Proposal, ...]:
    return () if facts.runtime.knob(knob) is not None else (Proposal(text),)
