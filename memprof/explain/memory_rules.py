"""Rules about memory that is not weights: what the allocator kept, arenas, scratch memory, outputs, transients. One rule a finding."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.units import counted, format_bytes
from ..records.types import EXECUTE, MODEL_LOAD, PREPARE, STARTUP
from .copy_rules import without_repacking
from .records import IN_USE, KEPT, LIBRARIES, REPACKED, RUNTIME, Advice, Finding, PhaseFigures, PhaseLook, where
from .rule_inputs import LEAST_STEPS, Facts, peaks, when

INTERPRETER = "interpreter"  # a rule
# From this share of the resident set on, what a program without an interpreter would not have is worth another interface to the runtime.
_INTERPRETER_SHARE = 0.2
# An arena is called too large from twice the plan on, and this much more for the runtime's own structures.
_PLAN_TIMES, _PLAN_MORE = 2, 16 << 20
_ARENA_KNOBS = ("arena", "mem_pattern", "arena_shrink", "planner", "memory_plan", "allocator")


def interpreter(facts: Facts) -> Iterator[Finding]:
    """The memory that was there before the model, where the runtime can be measured without the interpreter's part of it."""
    start, look = facts.phase(STARTUP), facts.steady
    if start is None or look is None or facts.native is None or start.size(LIBRARIES) < _INTERPRETER_SHARE * look.rss_bytes:
        return
    evidence = (
        f"{format_bytes(start.size(LIBRARIES))} are resident before the model is loaded: the interpreter, its modules, and the runtime's libraries",
        f"a program in C or C++ has the runtime's libraries alone, and {facts.native} is measured so",
    )
    proposal = Advice("the same runtime without an interpreter", {RUNTIME: facts.native}, calls=("the runtime's C interface",))
    yield Finding(INTERPRETER, "an interpreter around the runtime", start.size(LIBRARIES), STARTUP, evidence, (proposal,))


def kept(facts: Facts) -> Iterator[Finding]:
    look, start = facts.steady, facts.phase(STARTUP)
    if look is None:
        return
    weights = look.kept_weight_bytes
    kept = look.size(KEPT) - (start.size(KEPT) if start is not None and start is not look else 0)
    evidence = [
        f"{format_bytes(look.size(KEPT))} of resident pages lie in blocks that glibc's free() got back, at the end of {look.name}",
        *when(facts, lambda look: look.size(KEPT), "it"),
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


def arenas(facts: Facts) -> Iterator[Finding]:
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


def arena_too_large(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    if look is None or facts.plan_bytes is None or _preserves(facts):
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


def transformed(facts: Facts) -> Iterator[Finding]:
    """Weights of which no copy is left in any order once the model has run: kernels hold values that were computed from them."""
    look = facts.steady
    size = (look.unplaced_bytes or 0) - facts.unread_bytes if look is not None else 0
    if look is None or size < facts.least:
        return
    proposals = (
        *facts.propose("keep the weights of 3x3 convolutions as they are", winograd="off"),
        *facts.propose("keep the weights of 3x3 convolutions as they are", winograd="0"),
    )
    evidence = (
        f"{where(look.name)} no copy of {counted(look.unplaced_tensors, 'tensor')} is found in any order",
        "kernels may hold values computed from them: Winograd's algorithm makes 1.8 to 7.1 bytes of each of a 3x3 kernel's",
    )
    yield Finding("transformed", "weights of which no copy is found", size, look.name, evidence, proposals)


def scratch(facts: Facts) -> Iterator[Finding]:
    """Working memory of kernels, which is in no plan of tensors."""
    look, size = facts.steady, _scratch_bytes(facts)
    # A runtime's own arena may be somewhat larger than the plan.
    if look is None or facts.plan_bytes is None or _preserves(facts) or size <= facts.plan_bytes / 2 + _PLAN_MORE:
        return
    evidence = (
        f"{_plan_words(facts)}; blocks in use hold {format_bytes(look.size(IN_USE))}, and most of it came when the model first ran",
        *when(facts, lambda look: look.size(IN_USE), "memory in use"),
    )
    proposals = (
        *facts.propose("use kernels that need no scratch memory; they are slower", kernels="reference"),
        *facts.propose_threads("use other kernels, which may need less scratch memory", 2),
    ) or (Advice("use fewer threads, if each has its own scratch memory, or another form of the operator that needs it"),)
    yield Finding("scratch", "scratch memory of kernels", size, look.name, evidence, proposals)


def _scratch_bytes(facts: Facts) -> int:
    """The growth of blocks in use when the model first ran, beyond the activations, in bytes; 0 if it may be an arena that grew then."""
    look, before = facts.steady, facts.prepared
    if look is None or before is None or look is before or any(facts.runtime.knob(name) is not None for name in _ARENA_KNOBS):
        return 0
    return max(0, look.size(IN_USE) - before.size(IN_USE) - (facts.plan_bytes or 0))


def _plan_words(facts: Facts) -> str:
    at = f" at {facts.shapes}" if facts.shapes else ""
    return f"activations that live at once need {format_bytes(facts.plan_bytes or 0)} in the order of the file{at}"


def huge(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    if look is None:
        return
    evidence = (
        f"{format_bytes(look.huge_bytes)} lie in transparent huge pages, of which {format_bytes(look.huge_empty_bytes)} hold nothing but zeros",
    )
    proposals = (
        Advice(
            "set /sys/kernel/mm/transparent_hugepage/enabled to madvise, or switch them off for the program with prctl(PR_SET_THP_DISABLE)"
        ),
    )
    yield Finding("huge_pages", "transparent huge pages that were never filled", look.huge_empty_bytes, look.name, evidence, proposals)


def outputs(facts: Facts) -> Iterator[Finding]:
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
    if len(steps) >= LEAST_STEPS and min(late) > 0 and 2 * min(late) > max(steps):
        evidence = (
            f"RSS grew with every one of the last {len(late)} iterations of EXECUTE, by {format_bytes(sum(steps) / len(steps))} each,"
            f" {format_bytes(sum(steps))} in all",
        )
        advice = (
            Advice("change the program: free an iteration's outputs before the next iteration, or give the runtime the same buffers"),
        )
        yield Finding(
            "outputs_kept", "output tensors are kept alive from one iteration to the next", sum(steps), look.name, evidence, advice
        )


def _preserves(facts: Facts) -> bool:
    return facts.knobs.get("preserve_all_tensors") == "on"


def moved(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    for path, size in look.moved_files if look is not None else ():
        evidence = (
            f"{path} is mapped shared and writable, and {format_bytes(size)} of it are resident: file-backed in every count, though it is the"
            " program's own data",
        )
        advice = (Advice("judge by the sum: anonymous memory alone makes it look smaller, and RSS larger, than without the file"),)
        yield Finding(
            "swap_file", "a swap file that moves anonymous memory to file-backed", size, look.name if look else "", evidence, advice
        )


def transient(facts: Facts) -> Iterator[Finding]:
    """Phases that set the run's PEAK for a moment, by something other than weights held twice. Several may share it."""
    phases, without = _momentary(facts)
    # The rules about copies speak of copies.
    if not phases or all(_holds_copies(facts, phase) for phase in phases):
        return
    worst = max(phases, key=lambda phase: phase.rss_peak_bytes)
    looks = [facts.near_peak(phase) for phase in phases]
    evidence = [
        *(text for phase, look in zip(phases, looks, strict=True) for text in _peak_evidence(facts, phase, look)),
        f"without {'that' if len(phases) == 1 else 'these'}, PEAK is {format_bytes(without)}, which is"
        f" {format_bytes(worst.rss_peak_bytes - without)} less",
    ]
    names = [phase.name for phase in phases]
    repacked = any(look is not None and look.size(REPACKED) >= facts.least for look in looks)
    proposals = (
        *(without_repacking(facts) if PREPARE in names and repacked else ()),
        *(facts.propose("do not compute constant subgraphs at load", constant_folding="off") if PREPARE in names else ()),
        # ONNX Runtime 1.32 reads an .ort file into one more buffer as large as the weights, while it repacks them.
        *(
            facts.propose("convert the model beforehand, so that nothing is parsed and rewritten at load", format="ort")
            if {MODEL_LOAD, PREPARE} & set(names) and not repacked
            else ()
        ),
        Advice(f"change the {facts.subject}: free each intermediate result of {' and '.join(names)} once the next is made from it"),
        *_without_look(facts, [phase.name for phase, look in zip(phases, looks, strict=True) if look is None]),
    )
    title = f"a transient of {names[0]} sets the PEAK" if len(names) == 1 else f"transients of {' and '.join(names)} set the PEAK"
    yield Finding("transient", title, worst.transient_bytes, f"{worst.name}/peak", tuple(evidence), proposals)


def _without_look(facts: Facts, names: list[str]) -> Iterator[Advice]:
    """What shows the content of the peaks of these phases, which no look came near."""
    if not names:
        return
    if facts.ends_alone:
        yield Advice(
            f"name functions inside {' and '.join(names)} as phases too (--phase NAME=FUNCTION): memprof then looks at the end of each"
        )
        yield Advice("mark the phases in the source (memprof marks): memprof then looks near their peaks too")
    yield Advice(f"no look came near this peak; {facts.heap_profile}")


def _momentary(facts: Facts) -> tuple[list[PhaseFigures], int]:
    """The fewest phases that peak above their ends and without whose transients PEAK would be less, as they ran, and that PEAK; none where
    a phase that stays as high has it too."""
    highest = sorted(_outermost(facts), key=lambda phase: -phase.rss_peak_bytes)
    for count, last in enumerate(highest, 1):
        if last.name in (STARTUP, EXECUTE) or last.rss_end_bytes is None:
            break
        ends = [phase.rss_end_bytes or 0 for phase in highest[:count]]
        without = max(*ends, *(phase.rss_peak_bytes for phase in highest[count:]), 0)
        if highest[0].rss_peak_bytes - without >= facts.least:
            return [phase for phase in facts.measured if phase in highest[:count]], without
    return [], 0


def _outermost(facts: Facts) -> list[PhaseFigures]:
    """The phases in which no other has a part: what one of its steps holds at that step's end may be gone at the end of the whole phase. A phase that
    has the load or the timed iterations inside it is the program around them: it counts where it has a higher peak than they have."""

    def inner(outer: PhaseFigures) -> list[PhaseFigures]:
        return [phase for phase in facts.measured if facts.encloses(outer, phase)]

    around = [phase for phase in facts.measured if any(step.name in (MODEL_LOAD, EXECUTE) for step in inner(phase))]
    higher = [phase for phase in around if phase.rss_peak_bytes - max(step.rss_peak_bytes for step in inner(phase)) >= facts.least]
    steps = [step for phase in facts.measured if phase not in around for step in inner(phase)]
    return [phase for phase in facts.measured if phase in higher or (phase not in around and phase not in steps)]


def _holds_copies(facts: Facts, phase: PhaseFigures) -> bool:
    """Whether near its peak a phase has copies of weights that are gone at its end."""
    look, end = facts.near_peak(phase), facts.phase(phase.name)
    return look is not None and end is not None and (look.beyond_one_bytes or 0) - (end.beyond_one_bytes or 0) >= facts.least


def _peak_evidence(facts: Facts, phase: PhaseFigures, look: PhaseLook | None) -> Iterator[str]:
    """How far a phase peaks above its end, and of what."""
    yield from peaks(facts, phase, look)
    if look is not None and look.name not in (phase.name, f"{phase.name}/peak"):
        yield f"{look.name} runs inside it, and comes to that peak"
    end = facts.phase(phase.name)
    if look is None or end is None:
        return
    grown = [(part.name, part.bytes - end.size(part.name)) for part in look.slices]
    parts = [f"{format_bytes(size)} {name}" for name, size in sorted(grown, key=lambda pair: -pair[1]) if size >= 1 << 20]
    yield (
        f"near its peak it had more than at its end: {', '.join(parts)}" if parts else "near its peak it has the same slices as at its end"
    )
