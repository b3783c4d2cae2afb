"""Each rule on made-up looks: it speaks where its case is, with the right bytes, and not where it is not."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from support import sample_runs

from memprof.base.errors import InputError
from memprof.explain import engine, findings
from memprof.explain.records import AGAIN, IN_USE, KEPT, LIBRARIES, MODEL_FILE, ONCE, REPACKED, REST, Held, PhaseFigures, PhaseLook, Slice
from memprof.explain.rule_inputs import Facts
from memprof.programs import native
from memprof.programs.runtimes import Knob, Runtime
from memprof.records.types import COMMAND

MIB = 1 << 20
ANON, FILE, LIBRARY = "private anonymous", "the model's file", "a mapped library"
ON_OFF = ("on", "off")
ORT = Runtime(
    "onnxruntime",
    knobs=(
        Knob("prepacking", ON_OFF, "on", "load", ""),
        Knob("constant_folding", ON_OFF, "on", "load", ""),
        Knob("optimization", ("all", "extended"), "all", "load", ""),
        Knob("arena", ON_OFF, "on", "load", ""),
        Knob("malloc_trim", ON_OFF, "off", "load", ""),
        Knob("malloc_mmap_threshold", "bytes", None, "env", ""),
        Knob("malloc_arenas", "int", None, "env", ""),
        Knob("weights", ("embedded", "separate"), None, "build", ""),
    ),
)
WITH_FORMAT = replace(ORT, knobs=(*ORT.knobs, Knob("format", ("onnx", "ort"), None, "build", "")))
TFLITE = Runtime(
    "litert",
    knobs=(
        Knob("xnnpack", ON_OFF, "on", "load", ""),
        Knob("source", ("file", "buffer"), "file", "load", ""),
        Knob("preserve_all_tensors", ON_OFF, "off", "load", ""),
        Knob("api", ("interpreter", "compiled_model"), "interpreter", "load", ""),
        Knob("weight_cache", ON_OFF, "off", "build", ""),
    ),
)
ONERT = Runtime("onert", knobs=(Knob("mmap", ON_OFF, "off", "env", ""),))
PROGRAM = Runtime(COMMAND)
TVM = Runtime("tvm", knobs=(Knob("weights", ("embedded", "separate"), "embedded", "build", ""),))


def held(layout: str, where: str, mib: int, freed: bool = False) -> Held:
    return Held(layout, "", where, 1, 1, mib * MIB, freed)


def phase(name: str, *copies: Held, beyond: int = 0, **sizes: int) -> PhaseLook:
    names = {"kept": KEPT, "use": IN_USE, "file": MODEL_FILE, "once": ONCE, "again": AGAIN, "repacked": REPACKED, "rest": REST}
    slices = [Slice(LIBRARIES, 40 * MIB, "")] + [Slice(names[key], size * MIB, "") for key, size in sizes.items() if key in names]
    return PhaseLook(name, sum(part.bytes for part in slices), tuple(slices), copies, beyond * MIB)


def facts(
    runtime: Runtime, *phases: PhaseLook, knobs: dict[str, str] | None = None, peaks: dict[str, tuple[int, int]] | None = None, **rest
) -> Facts:
    defaults = {knob.name: knob.default for knob in runtime.knobs if knob.default is not None}
    measured = [PhaseFigures(name, peak * MIB, end * MIB, 10) for name, (peak, end) in (peaks or {"EXECUTE": (150, 150)}).items()]
    words = {"plan_bytes": None, "iterations": (), **rest}
    return Facts(runtime, {**defaults, **(knobs or {})}, measured, (phase("STARTUP"), *phases), **words)


def only(made: Facts):
    (finding,) = findings.find(made)
    return finding


def settings(finding) -> list[dict[str, str]]:
    return [dict(proposal.settings) for proposal in finding.proposals if proposal.settings]


def test_tidy_run_without_findings() -> None:
    tidy = phase("EXECUTE", held("as stored", ANON, 90), once=90, use=20, kept=1)
    assert findings.find(facts(ORT, tidy, plan_bytes=10 * MIB)) == ()
    mapped = phase("EXECUTE", held("as stored", FILE, 90), file=90, use=20)
    assert findings.find(facts(ONERT, mapped)) == ()
    assert findings.find(facts(ONERT)) == ()


def test_load_holds_file_and_weights() -> None:
    inside = phase("MODEL_LOAD/peak", held("as stored", ANON, 90), held("as stored", FILE, 66), beyond=66, once=90, file=66)
    made = facts(
        ONERT, inside, phase("MODEL_LOAD", held("as stored", ANON, 90), once=90), phase("EXECUTE", held("as stored", ANON, 90), once=90)
    )
    finding = only(made)
    assert (finding.rule, finding.bytes, finding.phase) == ("load_twice", 66 * MIB, "MODEL_LOAD/peak")
    assert settings(finding) == [{"mmap": "on"}]
    assert settings(only(replace(made, knobs={"mmap": "on"}))) == []  # what is set already is not proposed


def test_library_mapped_and_copied() -> None:
    copies = (held("as stored", ANON, 270), held("as stored", LIBRARY, 90))
    inside = phase("MODEL_LOAD/peak", *copies, beyond=270, once=90, again=270)
    after = phase("EXECUTE", held("as stored", ANON, 90), held("as stored", LIBRARY, 90), beyond=90, once=90, again=90)
    finding = only(facts(TVM, inside, after))
    assert (finding.rule, finding.bytes) == ("library_copied", 270 * MIB)
    assert settings(finding) == [{"weights": "separate"}]
    assert len(finding.evidence) == 2


def test_shared_weight_folded_and_prepacked() -> None:
    copies = (held("as stored", ANON, 256), held("transposed", ANON, 256), held("in blocks of 16", ANON, 256))
    finding = only(facts(ORT, phase("EXECUTE", *copies, beyond=512, once=256, repacked=512)))
    assert (finding.rule, finding.bytes) == ("shared_repacked", 512 * MIB)
    assert settings(finding)[:3] == [{"prepacking": "off"}, {"constant_folding": "off"}, {"prepacking": "off", "constant_folding": "off"}]
    assert any(not proposal.settings for proposal in finding.proposals), "a change to the model"


def test_repacked_weights_without_finding() -> None:
    assert findings.find(facts(ORT, phase("EXECUTE", held("transposed", ANON, 90), repacked=90))) == ()


def test_xnnpack_repacking() -> None:
    copies = (held("as stored", FILE, 90), held("another order", ANON, 90))
    finding = only(facts(TFLITE, phase("EXECUTE", *copies, beyond=90, file=90, repacked=90)))
    assert (finding.rule, finding.bytes) == ("xnnpack", 90 * MIB)
    assert settings(finding) == [{"api": "compiled_model", "weight_cache": "on"}, {"xnnpack": "off"}]
    assert finding.proposals[1].text.endswith("the other kernels compute from the file's own pages")


def test_kernels_beside_xnnpack_convert_weights_of_half_size() -> None:
    copies = (held("as stored", FILE, 45), replace(held("as stored", ANON, 90), converted="float32"))
    finding = only(facts(TFLITE, phase("EXECUTE", *copies, beyond=90, file=45, repacked=90)))
    assert finding.proposals[1].text.endswith("the other kernels hold one copy of the weights, converted")


def test_file_mapped_and_read() -> None:
    copies = (held("as stored", FILE, 90), held("as stored", ANON, 90))
    finding = only(facts(ONERT, phase("EXECUTE", *copies, beyond=90, file=90, once=90)))
    assert (finding.rule, finding.bytes) == ("mapped_and_read", 90 * MIB)


def test_xnnpack_in_program_by_its_layout() -> None:
    """memprof does not know a program's settings: panels behind their bias are XNNPACK's, and others are nobody's."""
    mapped, blocks = held("as stored", FILE, 48), held("in blocks of 16", ANON, 4)
    biased = phase("EXECUTE", mapped, held("in blocks of 32, each behind its bias", ANON, 44), blocks, beyond=48, file=48, repacked=48)
    plain = phase("EXECUTE", mapped, held("in blocks of 32", ANON, 44), blocks, beyond=48, file=48, repacked=48)

    found = [only(facts(PROGRAM, look)) for look in (biased, plain)]

    assert [(finding.rule, finding.bytes) for finding in found] == [("xnnpack", 48 * MIB), ("shared_repacked", 48 * MIB)]
    assert ["weight_cache_file_path" in finding.proposals[0].text for finding in found] == [True, False]
    assert not any("small operands" in proposal.text for finding in found for proposal in finding.proposals)


@pytest.mark.parametrize("runtime", [ORT, TFLITE, ONERT, PROGRAM], ids=lambda runtime: runtime.name)
@pytest.mark.parametrize("sizes", list(itertools.product((0, 30, 50), repeat=3)))
@pytest.mark.parametrize("unique", [50, 70])
def test_bytes_of_copies_in_one_finding(runtime: Runtime, sizes: tuple[int, int, int], unique: int) -> None:
    kinds = (("as stored", FILE), ("as stored", ANON), ("in blocks of 32, each behind its bias", ANON))
    copies = [held(layout, where, size) for (layout, where), size in zip(kinds, sizes, strict=True) if size]
    beyond = max(0, sum(sizes) - max(unique, *sizes))

    found = findings.find(facts(runtime, phase("EXECUTE", *copies, beyond=beyond)))

    assert sum(finding.bytes for finding in found if finding.rule != "xnnpack") <= beyond * MIB
    assert sum(finding.bytes for finding in found) <= sum(sizes) * MIB


def test_tensors_partly_mapped_without_finding() -> None:
    copies = (held("as stored", FILE, 8), held("transposed", ANON, 82))
    assert findings.find(facts(ONERT, phase("EXECUTE", *copies, file=8, repacked=82))) == ()


def test_buffer_holding_file() -> None:
    copies = (held("as stored", ANON, 90), held("another order", ANON, 90))
    made = facts(TFLITE, phase("EXECUTE", *copies, beyond=90, once=90, repacked=90), knobs={"source": "buffer"})
    by_rule = {finding.rule: finding for finding in findings.find(made)}
    assert by_rule["read_whole"].bytes == 90 * MIB
    assert settings(by_rule["read_whole"]) == [{"source": "file"}]


def test_allocator_kept_memory() -> None:
    # Of the copy 105 MiB are resident, but a part of them is in use again: what is said of the kept memory is no more than that.
    look = replace(phase("EXECUTE", held("as stored", ANON, 105, freed=True), kept=100), kept_weight_bytes=95 * MIB)
    finding = only(facts(ORT, look))
    assert (finding.rule, finding.bytes) == ("kept", 100 * MIB)
    assert settings(finding) == [{"malloc_trim": "on"}, {"malloc_mmap_threshold": "64KiB"}, {"optimization": "extended"}]
    assert "95.0 MiB of them still hold weights" in " ".join(finding.evidence)
    as_read = facts(ORT, look, knobs={"malloc_mmap_threshold": "65536", "malloc_trim": "on", "optimization": "extended"})
    assert settings(only(as_read)) == []


def test_malloc_arena_per_thread() -> None:
    look = replace(phase("EXECUTE"), arenas=8, arenas_kept_bytes=40 * MIB)
    finding = only(facts(ORT, look))
    assert (finding.rule, finding.bytes) == ("arena_a_thread", 40 * MIB)
    assert {"malloc_arenas": "1"} in settings(finding)


def test_arena_larger_than_plan() -> None:
    finding = only(facts(ORT, phase("EXECUTE", use=60), plan_bytes=10 * MIB))
    assert (finding.rule, finding.bytes) == ("arena", 50 * MIB)
    assert {"arena": "off"} in settings(finding)
    assert findings.find(facts(ORT, phase("EXECUTE", use=30), plan_bytes=10 * MIB)) == ()


def test_kernel_scratch_memory() -> None:
    runtime = replace(
        TFLITE, default_threads=1, knobs=(*TFLITE.knobs, Knob("kernels", ("optimized", "reference"), "optimized", "load", ""))
    )
    made = facts(runtime, phase("PREPARE", use=1), phase("EXECUTE", use=160), plan_bytes=5 * MIB, shapes="x=1x4")
    finding = only(made)
    assert (finding.rule, finding.title, finding.bytes) == ("scratch", "scratch memory of kernels", 154 * MIB)
    assert settings(finding) == [{"kernels": "reference"}, {"threads": "2"}]
    assert "at x=1x4" in finding.evidence[0]
    two = only(replace(made, threads=2, knobs={**made.knobs, "kernels": "reference"}))
    assert settings(two) == [] and two.proposals, "words, where there is nothing to set"
    small = facts(runtime, phase("PREPARE", use=1), phase("EXECUTE", use=34), plan_bytes=9 * MIB)
    assert [finding.bytes for finding in findings.find(small)] == [24 * MIB], "less than twice the plan, and yet no activations"
    assert findings.find(replace(small, plan_bytes=13 * MIB)) == (), "the arena may be somewhat larger than the plan"
    (arena,) = findings.find(facts(ORT, phase("PREPARE", use=1), phase("EXECUTE", use=160), plan_bytes=5 * MIB))
    assert arena.rule == "arena", "a runtime with an arena of its own keeps scratch in it"
    early = only(facts(TFLITE, phase("PREPARE", use=150), phase("EXECUTE", use=152), plan_bytes=5 * MIB))
    assert early.rule == "arena", "it was there before anything ran"


def test_loop_copies_apart_from_folded() -> None:
    folded = (held("as stored", ANON, 20), held("transposed", ANON, 18))
    before = phase("PREPARE", *folded, beyond=18, once=20, repacked=18)
    after = phase("EXECUTE", held("as stored", ANON, 60), folded[1], beyond=58, once=20, again=40, repacked=18)
    by_rule = {finding.rule: finding for finding in findings.find(facts(ORT, before, after))}
    assert {rule: finding.bytes for rule, finding in by_rule.items()} == {"loop_copies": 40 * MIB, "shared_repacked": 18 * MIB}
    assert settings(by_rule["loop_copies"]) == [] and "loop" not in by_rule["loop_copies"].title + str(by_rule["loop_copies"].proposals)
    (of_loop, _) = findings.find(facts(ORT, before, after, loops=True))
    assert of_loop.title.endswith("by a loop's state") and "a loop's body" in of_loop.proposals[0].text
    turned = phase("EXECUTE", folded[0], held("transposed", ANON, 58), beyond=58, once=20, repacked=58)
    by_rule = {finding.rule: finding.bytes for finding in findings.find(facts(ORT, before, turned))}
    assert by_rule == {"loop_copies": 40 * MIB, "shared_repacked": 18 * MIB}
    (only_folded,) = findings.find(facts(ORT, before, replace(before, name="EXECUTE")))
    assert only_folded.rule == "shared_repacked"


def test_remark_where_blocks_are_not_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler the process is looked at as it is, and the report says what that leaves open."""

    def refuse(source: str, env: object) -> dict[str, str]:
        raise InputError("there is no C compiler here")

    monkeypatch.setattr(native, "preloaded", refuse)
    order = SimpleNamespace(place=SimpleNamespace(only_here=lambda subject: None), env={})
    remarks: list[str] = []
    assert engine._with_wiped_blocks(order, remarks) is order  # type: ignore[arg-type,comparison-overlap]
    assert remarks == ["old weights in blocks that were freed and are in use again count as copies here: there is no C compiler here"]


def test_unexplained_memory_warning() -> None:
    (warning,) = findings.doubts(facts(ORT, phase("PREPARE", use=100), phase("EXECUTE", use=100, rest=20)))
    assert warning.startswith("12.5% of the resident set at the end of EXECUTE (20.0 MiB) is not explained")
    assert findings.doubts(facts(ORT, phase("EXECUTE", use=100, rest=7))) == ()


@pytest.mark.parametrize(
    ("told_mib", "looked_mib", "said"),
    [
        (112, 105, "peaked at 105.0 MiB; memory of the plain run beyond it is not explained"),
        (105, 112, "peaked at 112.0 MiB, more than the plain run"),
        (1000, 998, "peaked at 998.0 MiB; memory"),  # 0.2%, but 2 MiB
        (80, 79, "peaked at 79.0 MiB; memory"),  # 1 MiB, but 1.25%
        (112, 111.2, None),
        (20, 19.6, None),  # 2%, but not beyond the kernel's own bound
    ],
)
def test_look_with_other_peak_warning(told_mib, looked_mib, said) -> None:
    told, looked = (
        sample_runs.run(memory={"STARTUP": (10, 10), "EXECUTE": (10, peak), "RELEASE": (10, 2000)}) for peak in (told_mib, looked_mib)
    )
    warnings = engine._not_looked_at(told, looked)

    assert (said is None) == (not warnings)
    assert all(warning.startswith("the process that was looked at ") and said in warning for warning in warnings)


def test_growth_visible_from_iterations() -> None:
    assert "growth of at least 4.0 MiB over the 5 iterations of EXECUTE, if every late iteration" in findings.sight(
        facts(ORT, iterations=(1, 1, 1, 1, 1), ran=5)
    )
    assert "needs at least 4 iterations of EXECUTE (--runs)" in findings.sight(facts(ORT, iterations=(1, 2, 3), ran=3))
    too_short = findings.sight(facts(ORT, iterations=(), ran=10))
    assert "the 10 iterations of EXECUTE are too short to be polled one by one; memprof grow looks at memory after each" in too_short


def test_iterations_not_polled_left_out() -> None:
    run = sample_runs.run(samples=((0, 1, 0, 1),))
    assert [len(engine._iterations(replace(run, marks=[replace(mark, samples=polls) for mark in run.marks]))) for polls in (5, 4, 0)] == [
        5,
        0,
        0,
    ]


def test_huge_pages_never_filled() -> None:
    finding = only(facts(ORT, replace(phase("EXECUTE"), huge_bytes=64 * MIB, huge_empty_bytes=50 * MIB)))
    assert (finding.rule, finding.bytes) == ("huge_pages", 50 * MIB)


def test_outputs_kept() -> None:
    growing = tuple((100 + 5 * number) * MIB for number in range(6))
    finding = only(facts(ORT, phase("EXECUTE", use=30), iterations=growing))
    assert (finding.rule, finding.bytes) == ("outputs_kept", 25 * MIB)
    settling = tuple(size * MIB for size in (100, 120, 125, 125, 125, 125))
    assert findings.find(facts(ORT, phase("EXECUTE", use=30), iterations=settling)) == ()
    finding = only(facts(TFLITE, phase("EXECUTE", use=60), knobs={"preserve_all_tensors": "on", "xnnpack": "off"}, plan_bytes=10 * MIB))
    assert (finding.rule, finding.bytes, settings(finding)) == ("outputs_kept", 50 * MIB, [{"preserve_all_tensors": "off"}])


def test_swap_file() -> None:
    finding = only(facts(ORT, replace(phase("EXECUTE"), moved_files=(("/data/swap", 70 * MIB),))))
    assert (finding.rule, finding.bytes) == ("swap_file", 70 * MIB)
    assert "/data/swap" in finding.evidence[0]


def test_transient_sets_peak() -> None:
    inside, end = phase("PREPARE/peak", use=60), phase("PREPARE", use=10)
    finding = only(facts(ORT, inside, end, peaks={"PREPARE": (200, 150), "EXECUTE": (160, 160)}))
    assert (finding.rule, finding.bytes, finding.phase) == ("transient", 50 * MIB, "PREPARE/peak")
    early, grown, without = finding.evidence
    assert early.startswith("PREPARE peaks 50.0 MiB above its end; the look came on the way there, at ")
    assert without == "without that, PEAK is 160.0 MiB, which is 40.0 MiB less"
    assert "50.0 MiB other blocks in use" in grown
    assert not any("memprof heap record" in advice.text for advice in finding.proposals)


def test_transient_without_look() -> None:
    finding = only(facts(ORT, phase("PREPARE", use=10), peaks={"PREPARE": (200, 150), "EXECUTE": (160, 160)}))
    assert finding.evidence[0] == "PREPARE peaks 50.0 MiB above its end"
    assert finding.proposals[-1].text == "no look came near this peak; a heap profile shows who allocates it: memprof heap record"
    of_functions = facts(PROGRAM, phase("PREPARE", use=10), peaks={"PREPARE": (200, 150), "EXECUTE": (160, 160)}, ends_alone=True)
    freed, inner, marks, heap = [advice.text for advice in only(of_functions).proposals]
    assert freed.startswith("change the program: ") and "functions inside PREPARE as phases too (--phase NAME=FUNCTION)" in inner
    assert marks.startswith("mark the phases in the source") and "memprof heap record" in heap
    slightly = {"PREPARE": (200, 150), "EXECUTE": (198, 160)}
    assert findings.find(facts(ORT, phase("PREPARE", use=10), peaks=slightly)) == (), "without it PEAK would be nearly the same"


def test_transients_share_peak() -> None:
    """Each of two phases peaks as high: one alone would not lower PEAK, both together do."""
    looks = (phase("MODEL_LOAD/peak", use=80), phase("MODEL_LOAD", use=40), phase("PREPARE/peak", use=81), phase("PREPARE", use=40))
    peaks = {"MODEL_LOAD": (121, 81), "PREPARE": (122, 82), "EXECUTE": (90, 90)}
    finding = only(facts(PROGRAM, *looks, peaks=peaks))
    assert finding.title == "transients of MODEL_LOAD and PREPARE set the PEAK"
    assert (finding.bytes, finding.phase) == (40 * MIB, "PREPARE/peak")
    assert [text.split(" peaks ")[0] for text in finding.evidence if " peaks " in text] == ["MODEL_LOAD", "PREPARE"]
    assert finding.evidence[-1] == "without these, PEAK is 90.0 MiB, which is 32.0 MiB less"
    assert findings.find(facts(PROGRAM, *looks, peaks={**peaks, "EXECUTE": (120, 120)})) == (), "EXECUTE needs as much"
    assert findings.find(facts(PROGRAM, *looks, peaks={**peaks, "PREPARE": (122, 121)})) == (), "PREPARE keeps as much"


def nested(*looks: PhaseLook, **figures: tuple[int, int, str]) -> Facts:
    """Facts of phases with their peaks and ends (MiB), and the phase that encloses each."""
    measured = [PhaseFigures(name, peak * MIB, end * MIB, 10, inside=inside) for name, (peak, end, inside) in figures.items()]
    return replace(facts(PROGRAM, *looks), measured=measured)


LOADER = (phase("read", use=60), phase("pack", use=120), phase("MODEL_LOAD", use=60))


def test_transient_with_phases_inside() -> None:
    """Both steps of a loader end as high as they come, and the loader ends lower: it is the loader that has the transient."""
    alone = only(nested(LOADER[-1], MODEL_LOAD=(162, 100, "")))
    finding = only(nested(*LOADER, read=(101, 101, "MODEL_LOAD"), pack=(161, 161, "MODEL_LOAD"), MODEL_LOAD=(162, 100, "")))
    assert finding.title == alone.title == "a transient of MODEL_LOAD sets the PEAK"
    assert finding.bytes == alone.bytes == 62 * MIB
    assert "pack runs inside it, and comes to that peak" in finding.evidence
    assert any(text.startswith("near its peak it had more than at its end: 60.0 MiB other blocks in use") for text in finding.evidence)
    assert not any("no look came near" in advice.text for advice in finding.proposals), "the look at the end of pack did"


@pytest.mark.parametrize(
    ("figures", "found"),
    [
        ({"pack": (161, 161, "MODEL_LOAD"), "MODEL_LOAD": (161, 160, "")}, []),
        ({"pack": (161, 161, ""), "MODEL_LOAD": (101, 100, "")}, []),
        ({"copy": (161, 161, "pack"), "pack": (161, 100, "MODEL_LOAD"), "MODEL_LOAD": (161, 100, "")}, ["MODEL_LOAD"]),
        ({"MODEL_LOAD": (161, 161, "main"), "EXECUTE": (161, 161, "main"), "main": (161, 20, "")}, []),
        ({"MODEL_LOAD": (161, 100, "main"), "EXECUTE": (110, 110, "main"), "main": (161, 20, "")}, ["MODEL_LOAD"]),
        ({"MODEL_LOAD": (100, 100, "main"), "EXECUTE": (110, 110, "main"), "main": (161, 20, "")}, ["main"]),
    ],
    ids=["it stays", "not inside", "two levels", "a program around all", "a load in a program", "the program beside its phases"],
)
def test_phase_whose_transient_sets_peak(figures: dict[str, tuple[int, int, str]], found: list[str]) -> None:
    titles = [finding.title for finding in findings.find(nested(**figures)) if finding.rule == "transient"]
    assert titles == [f"a transient of {name} sets the PEAK" for name in found]


def test_inner_phase_known_by_time() -> None:
    def mark(name: str, begin: int, end: int, peak: int):
        return replace(sample_runs.run().marks[0], phase=name, begin_ns=begin, end_ns=end, rss_peak_bytes=peak * MIB, times_ns=())

    marks = (
        mark("read", 1, 3, 60),
        mark("copy", 5, 6, 120),
        mark("pack", 4, 7, 120),
        mark("MODEL_LOAD", 1, 9, 121),
        mark("EXECUTE", 10, 12, 90),
    )
    inside = {figures.name: figures.inside for figures in engine.measured(replace(sample_runs.run(), marks=marks))}
    assert inside == {"read": "MODEL_LOAD", "copy": "pack", "pack": "MODEL_LOAD", "MODEL_LOAD": "", "EXECUTE": ""}
    apart = (mark("load", 2, 3, 200), mark("infer", 1, 9, 60))  # between two calls of the other
    assert [figures.inside for figures in engine.measured(replace(sample_runs.run(), marks=apart))] == ["", ""]


@pytest.mark.parametrize(
    ("repacked", "proposed"),
    [
        (
            20,
            [
                {"prepacking": "off", "weights": "separate"},
                {"prepacking": "off"},
                {"malloc_mmap_threshold": "64KiB"},
                {"weights": "separate"},
                {"constant_folding": "off"},
            ],
        ),
        (0, [{"constant_folding": "off"}, {"format": "ort"}]),
    ],
)
def test_transient_of_repacking(repacked, proposed) -> None:
    inside, end = phase("PREPARE/peak", use=60, repacked=repacked), phase("PREPARE", use=10, repacked=repacked)
    made = facts(WITH_FORMAT, inside, end, peaks={"PREPARE": (200, 150), "EXECUTE": (160, 160)})
    (finding,) = (finding for finding in findings.find(made) if finding.rule == "transient")

    assert settings(finding) == proposed


def test_weights_held_at_peak() -> None:
    """inception_v3 in onnxruntime 1.32 holds its weights 1.8 times while it repacks them, and once at the end."""
    copies = (held("as stored", ANON, 92), held("in blocks of 16", ANON, 73), held("as stored", ANON, 9, freed=True))
    inside = phase("PREPARE/peak", *copies, beyond=75, once=90, again=2, repacked=73, kept=49)
    end = phase("PREPARE", held("in blocks of 16", ANON, 90), repacked=90, kept=110)
    made = facts(ORT, inside, end, peaks={"MODEL_LOAD": (148, 146), "PREPARE": (278, 265)})
    kept, finding = findings.find(made)
    assert kept.rule == "kept" and finding.rule == "held_at_peak"
    assert (finding.title, finding.bytes, finding.phase) == (
        "the weights are held at least 1.8 times, for a moment",
        75 * MIB,
        "PREPARE/peak",
    )
    assert "PREPARE peaks 13.0 MiB above its end; the look came on the way there, at 254.0 MiB of 278.0 MiB" in finding.evidence
    assert {"prepacking": "off"} in settings(finding) and {"constant_folding": "off"} in settings(finding)
    stays = replace(end, beyond_one_bytes=72 * MIB)
    assert "held_at_peak" not in [finding.rule for finding in findings.find(replace(made, phases=(inside, stays)))]
    in_clean_pages = replace(inside, droppable_bytes=72 * MIB)
    assert "held_at_peak" not in [finding.rule for finding in findings.find(replace(made, phases=(in_clean_pages, end)))]


TWICE = held("as stored", ANON, 128)
ONE_COPY = held("as stored", ANON, 64)


@pytest.mark.parametrize("later", [("PREPARE", "EXECUTE"), ("EXECUTE",)])
def test_copies_at_end_that_later_phase_frees(later: tuple[str, ...]) -> None:
    """The PEAK is at the end of a phase of the program's own, where two copies stand side by side."""
    looks = (phase("MODEL_LOAD", ONE_COPY, once=64), phase("pack", TWICE, beyond=64, once=64, again=64))
    ends = tuple(phase(name, ONE_COPY, once=64) for name in later)
    finding = only(facts(PROGRAM, *looks, *ends, peaks={"MODEL_LOAD": (104, 104), "pack": (168, 168), **dict.fromkeys(later, (110, 110))}))
    assert (finding.rule, finding.title, finding.bytes) == ("held_at_peak", "the weights are held 2.0 times, for a time", 64 * MIB)
    assert finding.phase == "pack"
    assert finding.evidence[1:] == (f"at the end of {later[0]} nothing is held beyond one copy",)
    assert not any("repack" in advice.text for advice in finding.proposals), "nothing is repacked"


def test_copies_that_stay_to_end() -> None:
    """A program reads a file and keeps the bytes beside the weights that it copied from them: no rule of a runtime's own speaks of these."""
    looks = [phase(name, TWICE, beyond=64, once=64, again=64) for name in ("MODEL_LOAD", "EXECUTE")]
    finding = only(facts(PROGRAM, *looks))
    assert (finding.rule, finding.title, finding.bytes) == ("kept_copies", "the weights are held 2.0 times, to the end", 64 * MIB)
    assert finding.evidence[1] == "the weights beyond one copy appeared in MODEL_LOAD (64.0 MiB)"
    mapped = [replace(look, droppable_bytes=64 * MIB) for look in looks]
    assert findings.find(facts(PROGRAM, *mapped)) == (), "the kernel can drop these"


@pytest.mark.parametrize(("distance", "times"), [(0, "2.0 times"), (3, "2.0 times"), (4, "at least 2.0 times"), (30, "at least 2.0 times")])
def test_copies_of_program_without_phases(distance: int, times: str) -> None:
    """Its one look is near its peak: what is held later is not known."""
    near = phase("RUN/peak", TWICE, beyond=64, once=64, again=64)
    peak = near.rss_bytes + distance * MIB
    made = replace(facts(PROGRAM, near), phases=(near,), measured=[PhaseFigures("RUN", peak, None, 10)])
    finding = only(made)
    assert (finding.title, finding.bytes, finding.phase) == (f"the weights are held {times}", 64 * MIB, "RUN/peak")
    assert not any("end" in text.split() for text in finding.evidence)


def test_findings_worst_first_without_small() -> None:
    assert findings.find(facts(ORT, phase("EXECUTE", kept=3))) == ()
    copies = (held("as stored", ANON, 20), held("transposed", ANON, 20))
    made = facts(ORT, phase("EXECUTE", *copies, beyond=20, once=20, repacked=20, kept=90))
    assert [finding.rule for finding in findings.find(made)] == ["kept", "shared_repacked"]


def test_shared_repacked_proposes_weights_beside_file() -> None:
    """MNN's knob has another name than that of other runtimes."""
    runtime = Runtime("mnn", knobs=(Knob("placed", ("embedded", "separate"), "embedded", "build", ""),))
    copies = (held("as stored", ANON, 20), held("in blocks of 4", ANON, 20))
    finding = only(facts(runtime, phase("EXECUTE", *copies, beyond=20, once=20, repacked=20)))
    assert (finding.rule, settings(finding)) == ("shared_repacked", [{"placed": "separate"}])


NCNN = Runtime("ncnn", knobs=(Knob("winograd", ON_OFF, "on", "load", ""),))
MNN = Runtime("mnn", knobs=(Knob("winograd", ("0", "1", "2", "3"), "3", "load", ""),))


@pytest.mark.parametrize(("runtime", "proposed"), [(NCNN, {"winograd": "off"}), (MNN, {"winograd": "0"}), (ONERT, None)])
def test_transformed_weights_with_algorithm_proposal(runtime, proposed):
    look = replace(phase("EXECUTE", held("in blocks of 16", ANON, 70), use=20), unplaced_bytes=20 * MIB, unplaced_tensors=11)
    finding = only(facts(runtime, look))
    assert (finding.rule, finding.bytes) == ("transformed", 20 * MIB)
    assert "no copy of 11 tensors is found" in finding.evidence[0]
    assert settings(finding) == ([proposed] if proposed else [])
    assert only(facts(runtime, look, unread_bytes=8 * MIB)).bytes == 12 * MIB, "a table that was not read is not computed from"
    assert not findings.find(facts(runtime, look, unread_bytes=19 * MIB))
    assert not findings.find(facts(runtime, replace(look, unplaced_bytes=MIB // 2, unplaced_tensors=1)))
    assert not findings.find(facts(runtime, replace(look, unplaced_bytes=None, unplaced_tensors=0)))


def test_interpreter_is_proposed_away_where_it_can_be() -> None:
    """Where the same package has a runner without an interpreter, and what was there before the model is no small part."""
    steady = phase("EXECUTE", use=60)
    finding = only(facts(ORT, steady, native="onnxruntime-native"))
    assert (finding.rule, finding.bytes, finding.phase) == ("interpreter", 40 * MIB, "STARTUP")
    assert settings(finding) == [{"runtime": "onnxruntime-native"}]
    assert findings.find(facts(ORT, steady)) == ()
    assert findings.find(facts(ORT, phase("EXECUTE", use=400), native="onnxruntime-native")) == ()
