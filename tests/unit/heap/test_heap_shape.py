"""A tree as it is looked at, and two of them set against each other: nothing is lost, whichever way a tree is turned and merged."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.sample_profiles import LIB, MIB, PEAK, Frame, chain, comb, profile, top_by, usual

from memprof.base.errors import InputError, UndecidedError, UsageError
from memprof.heap import diff as judging
from memprof.heap import phrases
from memprof.heap.file_names import FileNames
from memprof.heap.frames import NO_MODULE
from memprof.heap.profile import HeapProfile, PhaseSpan
from memprof.heap.shape import BELOW, Shape, shape, sums

NO_FILES = judging.JointFiles(FileNames([]), {})
NAMES = st.sampled_from(["a", "b", "c", "malloc", "operator new(unsigned long)", "(below)"])
STACKS = st.dictionaries(st.lists(NAMES, min_size=1, max_size=6).map(tuple), st.integers(1, 1000), min_size=1, max_size=30)


def of(made: HeapProfile, **words: object) -> Shape:
    peak = made.peak_tree
    assert peak is not None and peak[0].tree is not None
    return shape(made, peak[0].tree, **words)  # type: ignore[arg-type]


def paths(shaped: Shape) -> dict[tuple[str, ...], int]:
    """Each stack that ends somewhere, and its bytes, as the shape has it."""
    own, made = shaped.own(), {}
    for node in range(1, len(shaped)):
        if own[node]:
            path, at = [], node
            while at > 0:
                path.append(BELOW if shaped.group[at] == BELOW else shaped.names[shaped.group[at]])
                at = shaped.parent[at]
            key = tuple("(below)" if name == BELOW else str(name) for name in reversed(path))
            made[key] = made.get(key, 0) + own[node]
    return made


def only_below_at_the_end(stacks: dict[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    """What a tool writes: nothing is known above what was left out."""
    made: dict[tuple[str, ...], int] = {}
    for stack, size in stacks.items():
        end = stack.index("(below)") + 1 if "(below)" in stack else len(stack)
        made[stack[:end]] = made.get(stack[:end], 0) + size
    return made


@given(STACKS, st.booleans(), st.booleans(), st.floats(0, 0.4))
@examples(50)
def test_shape_keeps_every_byte(stacks, invert, fold, least):
    stacks = only_below_at_the_end(stacks)
    made = profile((0, {stack: size / MIB for stack, size in stacks.items()}))

    shaped = of(made, invert=invert, fold=fold, least=least)

    assert shaped.bytes[0] == sum(stacks.values())
    assert all(size > 0 for size in shaped.bytes)
    assert sum(shaped.own()) == shaped.bytes[0]
    assert all(own >= 0 for own in shaped.own())
    assert all(size >= least * shaped.bytes[0] or group == BELOW for size, group in zip(shaped.bytes, shaped.group, strict=True))
    assert all(parent < node for node, parent in enumerate(shaped.parent))


@given(STACKS)
@examples(50)
def test_shape_inverted_twice_keeps_stacks(stacks):
    stacks = only_below_at_the_end(stacks)
    made = profile((0, {stack: size / MIB for stack, size in stacks.items()}))

    straight, turned = paths(of(made, fold=False)), paths(of(made, fold=False, invert=True))

    assert straight == stacks
    assert turned == {stack[::-1]: size for stack, size in stacks.items()}


def test_shape_folds_allocators_into_callers():
    made = profile((0, {("operator new(unsigned long)", "grow", "main"): 3, ("malloc", "read", "main"): 2}))

    assert paths(of(made)) == {("grow", "main"): 3 * MIB, ("read", "main"): 2 * MIB}
    assert len(of(made, fold=False)) == len(of(made)) + 2


def test_shape_by_module_merges_frames():
    shaped = of(usual(), by="module")

    assert paths(shaped) == {("libnet",): 99.5 * MIB, ("(below)",): 0.5 * MIB}


def test_shape_gathers_small_nodes():
    shaped = of(usual(), least=0.1)

    (gathered,) = [node for node in range(len(shaped)) if shaped.parent[node] == 0 and shaped.group[node] == BELOW]
    assert shaped.bytes[gathered] == 10 * MIB
    assert shaped.places[gathered] == 7 + 2


def test_shape_keeps_recursion_merges_nameless_frames():
    made = profile((0, {("a", "a", "main"): 1, ("???", "???", "???", "main"): 2}))

    assert paths(of(made)) == {("a", "a", "main"): MIB, ("??? (libnet)", "main"): 2 * MIB}


@pytest.mark.parametrize("invert", [False, True])
def test_shape_of_deep_tree_without_recursion(invert):
    shaped = of(chain(10_000), invert=invert)

    assert len(shaped) == 10_001
    assert shaped.names[shaped.group[1]] == ("f9999" if invert else "f0")


@pytest.mark.parametrize("least", [0.0, 0.01])
def test_shape_of_deep_comb_is_bounded(least):
    begin = time.process_time()

    shaped = of(comb(250), invert=True, least=least)

    assert len(shaped) < 75_000
    assert sum(shaped.own()) == shaped.bytes[0] == 501
    assert time.process_time() - begin < 60


@given(STACKS)
@examples(50)
def test_sums_equal_tree_totals(stacks):
    made = profile((0, {stack: size / MIB for stack, size in only_below_at_the_end(stacks).items()}))
    tree = made.snapshots[0].tree
    assert tree is not None
    key, names = made.keys("function", True)
    slow = {names[group]: (own, total) for group, own, total in top_by(tree, key) if names[group] != "(below the threshold)"}

    assert {name: (own, total) for _, name, own, total in sums(made, tree)} == slow


def test_remarks_when_largest_tree_misses_peak():
    made = profile((0, 1.0), (1, {("a",): 10}), (2, 50.0))

    chosen = phrases.chosen(made)

    assert chosen is not None and chosen.index == 1
    (remark,) = phrases.remarks(made, chosen)
    assert "the peak is 50.0 MiB in snapshot 2, which has no tree" in remark
    assert "snapshot 1, 10.0 MiB, 40.0 MiB (80.0%) less" in remark


def test_remarks_on_partial_profile():
    assert "partial: it was killed by SIGILL" in phrases.remarks(usual(partial="it was killed by SIGILL"))[0]


@pytest.mark.parametrize(("word", "index"), [("prepare", 4), ("PREPARE", 4), ("load", 2), ("Execute", 6)])
def test_snapshot_by_phase_name(word, index):
    chosen = phrases.chosen(usual(), None, word)

    assert chosen is not None and chosen.index == index


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        ({"snapshot": 99}, UsageError, "no snapshot 99: its snapshots are 0 to 7"),
        ({"snapshot": 5}, InputError, "snapshot 5 of made.massif has no tree (those with trees: 2, 4, 6)"),
        ({"phase": "prepar"}, UsageError, "no phase 'prepar'; did you mean PREPARE?"),
        ({"snapshot": 4, "phase": "load"}, UsageError, "exclude one another"),
    ],
)
def test_snapshot_refusals(words, error, sentence):
    with pytest.raises(error) as caught:
        phrases.chosen(usual(), **words)
    assert sentence in str(caught.value)


def test_snapshot_by_phase_without_phases():
    with pytest.raises(UsageError, match="knows no phases"):
        phrases.chosen(usual(phases=(), snapshots=profile((0, 1.0)).snapshots), None, "load")


def test_diff_ignores_addresses_builds_versions():
    before = profile((0, PEAK), module="/build/1/libnet.so.1.2")
    bigger = {**PEAK, ("net::pack.isra.0", "net::prepare", "main"): 50.0}
    del bigger["net::pack", "net::prepare", "main"]
    after = profile((0, bigger), module="/somewhere/else/libnet.so.1.3.0")

    difference = judging.diff(before, after)

    assert difference.growth_bytes == 20 * MIB
    assert [(change.name, change.growth_bytes) for change in difference.sites if change.growth_bytes] == [("net::pack", 20 * MIB)]
    assert [(change.name, change.growth_bytes) for change in difference.modules if change.growth_bytes] == [("libnet", 20 * MIB)]
    grown = [change.name for change in difference.tree if change.growth_bytes]
    assert grown == ["all of the heap", "net::pack", "net::prepare", "main"]


def test_diff_joins_two_builds_of_program():
    """The program's functions are in one module, whatever the file of a build is called; a library keeps its name."""
    load, pack = ("read", "main"), ("pack", "main")
    before = profile((0, {load: 60, pack: 30}), module="/old/bin/run", command="/old/bin/run model.bin")
    after = profile((0, {pack: 40}), module="/new/bin/run-new", command="/new/bin/run-new model.bin")

    difference = judging.diff(before, after)

    assert [(change.name, change.growth_bytes) for change in difference.modules] == [("run -> run-new", -50 * MIB)]
    assert {change.module for change in difference.tree[1:]} == {"run -> run-new"}
    assert {change.module for change in judging.diff(before, profile((0, {pack: 40}))).tree[1:]} == {"run", "libnet"}


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("f(int) [clone .cold]", "f(int)"),
        ("f.constprop.0", "f.isra.0.part.3"),
        ("core::fmt::write::h0123456789abcdef", "core::fmt::write::hfedcba9876543210"),
        ("g::{lambda(int)#1}::operator()(int) const", "g::{lambda(int)#7}::operator()(int) const"),
    ],
)
def test_identity_same_across_builds(name, other):
    assert judging.identity(Frame(name, module=LIB), NO_FILES)[0] == judging.identity(Frame(other, module=LIB), NO_FILES)[0]


def test_diff_notes_different_module_names():
    by_library = profile((0, PEAK))
    by_source = profile(
        (0, {("f", "main"): 1}), tool="heaptrack", frames=(Frame("all", kind="root"), Frame("f", "a.c", 3), Frame("main", "a.c", 9))
    )
    assert judging.identity(Frame("f", "a.c", 3, NO_MODULE), NO_FILES) == ("f", "f", "", "")
    nowhere = profile((0, {("f",): 1}), tool="memray", frames=(Frame("all", kind="root"), Frame("f", "a.c", 3, NO_MODULE)))

    assert "B: heaptrack names source files instead of libraries for code with debug information" in " ".join(
        judging.diff(by_library, by_source).notes
    )
    assert "B: memray does not say which library a function of C or C++ is in" in " ".join(judging.diff(by_library, nowhere).notes)
    assert not any("librar" in note for note in judging.diff(by_library, by_library).notes)


def test_identity_differs_by_python_file():
    places = [judging.identity(Frame("__init__", file=f"/site/{file}.py", line=3), NO_FILES) for file in ("a", "b")]

    assert [place.source for place in places] == ["a.py", "b.py"]
    assert places[0].key != places[1].key


@pytest.mark.parametrize("by", ["function", "line"])
def test_diff_matches_package_with_its_checkout(by):
    paths = ("/home/u/net/textlib/parse.py", "/env/lib/python3.11/site-packages/textlib/parse.py")
    checkout, installed = (profile((0, {("load",): 3}), frames=(Frame("all", kind="root"), Frame("load", path, 7))) for path in paths)

    (change,) = judging.diff(checkout, installed, by=by).sites

    assert change.growth_bytes == 0 and change.source.startswith("textlib/parse.py")


@given(STACKS, STACKS)
@examples(50)
def test_diff_changes_add_up(stacks, other):
    sides = [profile((0, {stack: size / MIB for stack, size in only_below_at_the_end(each).items()})) for each in (stacks, other)]

    difference = judging.diff(*sides)
    back = judging.diff(*reversed(sides))

    growth = sum(other.values()) - sum(stacks.values())
    assert difference.tree[0].growth_bytes == growth == -back.tree[0].growth_bytes
    assert {(change.name, -change.growth_bytes) for change in difference.sites} == {
        (change.name, change.growth_bytes) for change in back.sites
    }
    assert all(parent < node for node, parent in enumerate(difference.parent))
    same = judging.diff(sides[0], sides[0])
    assert not any(change.growth_bytes for change in (*same.tree, *same.sites, *same.modules))


def test_diff_omitted_place_not_gone():
    before, after = profile((0, PEAK)), profile((0, {("net::Weights::read", "net::load", "main"): 60, ("(below)",): 3}))

    difference = judging.diff(before, after)

    assert any(
        "B: places that its tree does not list were too small for the tool, not gone: at most 3.0 MiB" in note for note in difference.notes
    )


@pytest.mark.parametrize(
    ("grown", "limit", "fails"), [(5, 0.05, False), (5.1, 0.05, True), (0, 0.0, False), (0.1, 0.0, True), (-50, 0.0, False)]
)
def test_verdict_judges_peak(grown, limit, fails):
    difference = judging.diff(profile((0, {("a",): 100}), (1, 100.0)), profile((0, {("a",): 10}), (1, 100.0 + grown)))

    assert judging.verdict(difference, limit) is fails


def test_verdict_on_growth_from_nothing():
    assert judging.verdict(
        judging.diff(
            profile((0, 0.0)),
            profile((0, {("a",): 1})),
        ),
        10.0,
    )


@pytest.mark.parametrize(("before", "after"), [("x", None), (None, "x")])
def test_verdict_undecided_for_partial_profile(before, after):
    small, large = {("a",): 100}, {("a",): 200}
    first = profile((0, small), partial=before)
    other = profile((0, large if before else small), partial=after)

    with pytest.raises(UndecidedError, match="is partial"):
        judging.verdict(judging.diff(first, other), 0.05)
    if after:
        assert judging.verdict(judging.diff(first, profile((0, large), partial="x")), 0.05)


def test_verdict_undecided_for_different_counts():
    with pytest.raises(UndecidedError, match="do not count the same"):
        judging.verdict(judging.diff(usual(), usual(counts="massif counts pages")), 0.05)


def test_diff_names_different_moments() -> None:
    phases = (PhaseSpan("MODEL_LOAD", 0, 40), PhaseSpan("EXECUTE", 40, None))
    read, run = ("read",), ("run",)
    early = profile((10, {read: 60}), (50, {run: 40}), phases=phases, path="early.massif")
    late = profile((10, {read: 60}), (50, {run: 80}), phases=phases, path="late.massif")

    (note,) = [note for note in judging.diff(early, late).notes if note.startswith("The peaks are at different moments")]

    assert note.endswith("MODEL_LOAD and EXECUTE. One phase of both: memprof heap diff early.massif late.massif --at-phase EXECUTE")
    assert "different moments" not in " ".join((*judging.diff(early, early).notes, *judging.diff(early, late, phase="EXECUTE").notes))
