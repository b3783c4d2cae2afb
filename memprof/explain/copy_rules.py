"""Rules about weights that are held more than once: one rule a finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.units import format_bytes
from ..records.types import COMMAND, MODEL_LOAD
from .copies import BEHIND_BIAS
from .records import MODEL_FILE, Advice, Finding, Held, PhaseLook, where
from .rule_inputs import Facts, peaks, when
from .waterfall import ANONYMOUS, IN_FILE, IN_LIBRARY, SHARED

# Of a program, whose settings memprof does not know. The names are those of TensorFlow's xnnpack_delegate.h and of its Python interpreter.
_XNNPACK_IN_PROGRAM = (
    Advice("let XNNPACK keep its repacked weights in a file and map that: weight_cache_file_path of TfLiteXNNPackDelegateOptions"),
    Advice("leave XNNPACK out: OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES has kernels that compute from the file's own pages"),
)


def library_copied(facts: Facts) -> Iterator[Finding]:
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
        *_if_none(
            facts, "weights", "change how the library is built: link the weights apart from the code, and map them or read them once"
        ),
    )
    yield Finding(
        "library_copied", "weights in a library are mapped and copied", worst.beyond_one_bytes or 0, worst.name, tuple(evidence), proposals
    )


def load_twice(facts: Facts) -> Iterator[Finding]:
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
        evidence += peaks(facts, load, look)
    proposals = (
        *facts.propose("map the weights instead of reading them into memory", mmap="on"),
        *facts.propose("let the runtime map the file itself rather than take it as a buffer", source="file"),
        *facts.propose("weights as external data, which is mapped", weights="separate"),
    ) or (Advice(f"change the {facts.subject}'s loader: read the file piece by piece, or free each piece once it is parsed"),)
    yield Finding(
        "load_twice",
        "the file's bytes and the parsed weights are both alive in MODEL_LOAD",
        beyond_one,
        look.name,
        tuple(evidence),
        proposals,
    )


def held_at_peak(facts: Facts) -> Iterator[Finding]:
    """Weights held more than once in some phase, by copies that the ends of later phases lack, or after which there was no look. For MODEL_LOAD there
    is load_twice, for the last look kept_copies."""
    earlier = [
        (number, look)
        for number, look in enumerate(facts.phases)
        if look is not facts.steady and (facts.steady is None or look.name.partition("/")[0] != MODEL_LOAD)
    ]
    gone = [(_fixed_bytes(look), look, _least_later(facts, number)) for number, look in earlier]
    for size, look, later in sorted(gone, key=lambda entry: _fixed_bytes(entry[2]) - entry[0])[:1]:
        stays = _fixed_bytes(later)
        if size - stays < facts.least:
            return
        phase, _, inside = look.name.partition("/")
        evidence = [_words_of(look)]
        if later is not None:
            evidence.append(f"{where(later.name)} {format_bytes(stays) if stays else 'nothing'} is held beyond one copy")
        figures = next((figures for figures in facts.measured if figures.name == phase), None)
        if figures is not None and inside:
            evidence += peaks(facts, figures, look)
        moment = "" if later is None else ", for a moment" if inside else ", for a time"
        yield Finding(
            "held_at_peak", f"{_times(facts, look)}{moment}", size, look.name, tuple(evidence), tuple(_against_copies(facts, look))
        )


def _least_later(facts: Facts, number: int) -> PhaseLook | None:
    """The look at the end of a phase, of those behind this one, with the least weights beyond one copy; None if there is none."""
    ends = [look for look in facts.phases[number + 1 :] if "/" not in look.name]
    return min(ends, key=_fixed_bytes, default=None)


def _fixed_bytes(look: PhaseLook | None) -> int:
    """The weights beyond one copy that the kernel cannot drop, in bytes."""
    return 0 if look is None else (look.beyond_one_bytes or 0) - look.droppable_bytes


def _times(facts: Facts, look: PhaseLook) -> str:
    """How many times the weights are held in a look. One that came before its phase's peak may lack copies that were made until then."""
    whole = sum(copy.bytes for copy in look.held if not copy.freed)
    once = max(1, whole - (look.beyond_one_bytes or 0))
    peak = next((figures.rss_peak_bytes for figures in facts.measured if f"{figures.name}/peak" == look.name), 0)
    times, most = (f"{size / once:.1f}" for size in (whole, whole + max(0, peak - look.rss_bytes)))
    return f"the weights are held {times if times == most else f'at least {times}'} times"


def _against_copies(facts: Facts, look: PhaseLook) -> Iterator[Advice]:
    yield from without_repacking(facts)
    yield from facts.propose("do not compute constant subgraphs at load: removes the folded copies", constant_folding="off")
    if _size(look, repacked=True, where=(ANONYMOUS, SHARED)) >= facts.least:
        yield Advice(f"change the {facts.subject}: repack one weight at a time, and free its first copy before the next weight is repacked")
        return
    yield Advice(
        f"change the {facts.subject}: make the next copy piece by piece and free each piece of the first, or use the weights where they were read"
    )
    if facts.runtime.name == COMMAND:
        yield Advice(facts.heap_profile)


def without_repacking(facts: Facts) -> Iterator[Advice]:
    """Settings against a peak at which weights lie as stored and repacked side by side: both at once save more than the sum of each."""
    both = facts.propose("neither a repacked copy nor the weights as stored lie in anonymous memory", prepacking="off", weights="separate")
    yield from both if both and len(both[0].settings) > 1 else ()
    yield from facts.propose("do not repack weights for the kernels: no second copy is made beside the first", prepacking="off")
    yield from facts.propose(
        "blocks from 64 KiB on get separate mappings: a copy goes back once it is freed", malloc_mmap_threshold="64KiB"
    )
    yield from facts.propose("weights as external data, which is mapped: the copy as stored is the file's", weights="separate")


def shared_repacked(facts: Facts) -> Iterator[Finding]:
    """A weight that stays as stored and is held again folded or repacked. In TFLite's runtimes XNNPACK does it, which has a separate rule."""
    look, again = facts.steady, _repacked_again(facts)
    if look is None or not again:
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
        *facts.propose("weights beside the converted file, which are read once and not kept", placed="separate"),
        (
            Advice("change the model: if several operators share a weight, transpose their small operands, not the weight")
            if facts.runtime.knob("constant_folding") is not None
            else Advice(f"change the {facts.subject}'s loader: free the copy as stored once it is repacked, or map it from the file")
        ),
    )
    evidence = [_words_of(look), *when(facts, lambda look: _size(look, repacked=True, where=(ANONYMOUS, SHARED)), "repacked copies")]
    title = "folded or prepacked copies of weights that also stay as stored"
    yield Finding("shared_repacked", title, again, look.name, tuple(evidence), proposals)


def _repacked_again(facts: Facts) -> int:
    """Bytes of repacked copies of weights that also stay as stored, 0 where XNNPACK made them."""
    look = facts.steady
    if look is None or _has_xnnpack(facts):
        return 0
    repacked = _size(look, repacked=True, where=(ANONYMOUS, SHARED))
    stored = _size(look, repacked=False, where=(ANONYMOUS, SHARED, IN_FILE))
    beyond = (look.beyond_one_bytes or 0) - _size(look, where=(IN_LIBRARY,)) - _made_running(facts)
    return max(0, min(repacked, beyond)) if stored else 0


def xnnpack(facts: Facts) -> Iterator[Finding]:
    look = facts.steady
    if look is None or not _has_xnnpack(facts):
        return
    repacked = _size(look, repacked=True, where=(ANONYMOUS,))
    evidence = [_words_of(look), *when(facts, lambda look: _size(look, repacked=True, where=(ANONYMOUS,)), "repacked copies")]
    if look.size(MODEL_FILE) >= facts.least:
        evidence.append(
            f"{format_bytes(look.size(MODEL_FILE))} of the model's file stay resident beside them, clean: the kernel can drop these"
        )
    # Kernels have no use for numbers of half the size: they are converted in any case.
    converted = sum(copy.bytes for copy in look.held if copy.where == ANONYMOUS and copy.converted and not copy.freed)
    others = "hold one copy of the weights, converted" if 2 * converted >= repacked else "compute from the file's own pages"
    proposals = (
        *facts.propose("let XNNPACK keep its repacked weights in a file and map that", api="compiled_model", weight_cache="on"),
        *facts.propose(f"switch XNNPACK off: the other kernels {others}", xnnpack="off"),
    )
    if facts.runtime.name == COMMAND:
        evidence.append("panels that begin with their bias are XNNPACK's")
        proposals = _XNNPACK_IN_PROGRAM
    yield Finding("xnnpack", "XNNPACK's repacked weights", repacked, look.name, tuple(evidence), proposals)


def mapped_and_read(facts: Facts) -> Iterator[Finding]:
    """The file is mapped, or read whole, and its weights are held in memory besides, to the end."""
    look = facts.steady
    if look is None or (_has_xnnpack(facts) and facts.knobs.get("source") != "buffer"):
        return
    stored = _size(look, repacked=False, where=(ANONYMOUS,))
    if facts.knobs.get("source") == "buffer" and stored >= facts.least:
        buffer = facts.propose("give the runtime the file's name: it maps the file, and the kernel can drop unused pages", source="file")
        yield Finding("read_whole", "the model's file is held in a buffer", stored, look.name, (_words_of(look),), buffer)
        return
    proposals = (
        *facts.propose("map the weights instead of reading them into memory", mmap="on"),
        *facts.propose("weights as external data, which is mapped", weights="separate"),
    ) or (Advice(f"change the {facts.subject}'s loader: unmap the file once its weights are read, or use them where they are mapped"),)
    yield Finding(
        "mapped_and_read",
        "the model's file is mapped, and its weights are read into memory too",
        _mapped_again(facts),
        look.name,
        (_words_of(look),),
        proposals,
    )


def _mapped_again(facts: Facts) -> int:
    """Bytes of the mapped file's weights that also lie as stored in memory, 0 where the file is held in a buffer or XNNPACK computes from it."""
    look = facts.steady
    if look is None or _has_xnnpack(facts):
        return 0
    beyond = (look.beyond_one_bytes or 0) - _made_running(facts) - _repacked_again(facts)
    return max(0, min(_size(look, where=(IN_FILE,)), _size(look, repacked=False, where=(ANONYMOUS,)), beyond))


def kept_copies(facts: Facts) -> Iterator[Finding]:
    """Copies that stay to the end and that no other rule speaks of, such as a file's bytes beside the weights that were copied from them."""
    look = facts.steady
    if look is None or facts.knobs.get("source") == "buffer" or _size(look, where=(IN_LIBRARY,)) >= facts.least:
        return
    of_xnnpack = _size(look, repacked=True, where=(ANONYMOUS,)) if _has_xnnpack(facts) else 0
    named = _made_running(facts) + _repacked_again(facts) + _mapped_again(facts) + of_xnnpack
    rest = min(_fixed_bytes(look), (look.beyond_one_bytes or 0) - named)
    evidence = (_words_of(look), *when(facts, _fixed_bytes, "the weights beyond one copy"))
    yield Finding("kept_copies", f"{_times(facts, look)}, to the end", rest, look.name, evidence, tuple(_against_copies(facts, look)))


def loop_copies(facts: Facts) -> Iterator[Finding]:
    """Copies that are made while the model runs: by its own loop whose state holds weights, or by kernels. Folding has nothing to do with these."""
    look, before = facts.steady, facts.prepared
    if look is None or before is None:
        return
    evidence = (
        _words_of(before),
        _words_of(look),
        f"{format_bytes(_made_running(facts))} beyond one copy were not there before the model first ran",
    )
    loop = Advice("change the model: a loop's body takes weights from outside the loop, and not as a part of its state")
    kernel = Advice(f"change the {facts.subject}: free a weight as stored once a kernel has made its own copy of it")
    advice = (loop,) if facts.loops else (kernel,)
    yield Finding(
        "loop_copies",
        "copies of weights made while the model runs" + (", for example by a loop's state" if facts.loops else ""),
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


def _has_xnnpack(facts: Facts) -> bool:
    """Whether XNNPACK repacks the weights: by the runtime's setting, or for a program by how they lie."""
    look = facts.steady
    if facts.runtime.name != COMMAND or look is None:
        return facts.knobs.get("xnnpack") == "on"
    return any(copy.layout.endswith(BEHIND_BIAS) and not copy.freed for copy in look.held)


def _size(look: PhaseLook, *, where: Sequence[str], repacked: bool | None = None) -> int:
    copies = [copy for copy in look.held if copy.where in where and not copy.freed]
    return sum(copy.bytes for copy in copies if repacked is None or repacked == (copy.layout != "as stored" or bool(copy.converted)))


def _words_of(look: PhaseLook) -> str:
    """The copies of a look in a sentence, the largest first."""
    parts = [_words(copy) for copy in look.held if not copy.freed][:6]
    return f"{where(look.name)} the weights lie {', '.join(parts)}" if parts else f"{where(look.name)} no copy of the weights was found"


def _words(copy: Held) -> str:
    kind = f"{copy.layout}{f' as {copy.converted}' if copy.converted else ''}"
    where = {ANONYMOUS: "private anonymous memory", SHARED: "shared memory"}.get(copy.where, copy.where)
    return f"{kind} in {where} ({format_bytes(copy.bytes)})"


def _if_none(facts: Facts, knob: str, text: str) -> tuple[Advice, ...]:
    return () if facts.runtime.knob(knob) is not None else (Advice(text),)
