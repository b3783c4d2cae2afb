"""Massif files in: every form of the format, real profiles, and what is wrong with a file, said in one sentence."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.sample_profiles import top_by

from memprof.base.errors import InputError, MemprofError
from memprof.heap import load, massif, massif_frames, memray
from memprof.heap.file_names import FileNames, short_file
from memprof.heap.frames import Frame
from memprof.heap.names import group_name, is_allocator, module_name, short
from memprof.heap.profile import HeapProfile
from memprof.heap.shape import shape

DATA = Path(__file__).parents[2] / "data" / "heap"
HEADER = "desc: (none)\ncmd: ./program\ntime_unit: ms\n"
ROOT = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc."
TREE = (
    f"n2: 300 {ROOT}\n n1: 200 0x4005A1: grow(int) (tree.cpp:12)\n  n0: 200 0x400600: main (tree.cpp:20)\n"
    " n0: 100 in 3 places, all below massif's threshold (1.00%)\n"
)


def snapshot(
    index: int, heap: int, tree: str = "", kind: str = "detailed", extra: int = 0, stacks: int = 0, time: str | None = None
) -> str:
    """A snapshot's text, at ten times its number unless a time is given."""
    return (
        f"#-----------\nsnapshot={index}\n#-----------\ntime={time or index * 10}\nmem_heap_B={heap}\nmem_heap_extra_B={extra}\n"
        f"mem_stacks_B={stacks}\nheap_tree={kind if tree else 'empty'}\n{tree}"
    )


def parsed(text: str | bytes) -> HeapProfile:
    data = text.encode() if isinstance(text, str) else text
    return massif.read(io.BytesIO(data), "f")


def test_snapshot_figures_and_tree() -> None:
    profile = parsed(HEADER + snapshot(0, 0) + snapshot(1, 300, TREE, extra=24, stacks=8))
    assert (profile.tool, profile.command, profile.time_unit) == ("massif", "./program", "ms")
    last = profile.snapshots[1]
    assert (last.index, last.time, last.heap_bytes, last.extra_bytes, last.stacks_bytes, last.total_bytes) == (1, 10.0, 300, 24, 8, 332)
    assert last.tree is not None
    assert (last.tree.parent.tolist(), last.tree.bytes.tolist()) == ([-1, 0, 1, 0], [300, 200, 200, 100])
    frames = [profile.frames[number] for number in last.tree.frame]
    assert frames[0] == Frame(ROOT, kind="root")
    assert frames[1] == Frame("grow(int)", "tree.cpp", 12, None, 0x4005A1)
    assert frames[3] == Frame("below the threshold", kind="below", places=3)


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("in 1 place, below massif's threshold (1.00%)", Frame("below the threshold", kind="below", places=1)),
        ("in 12 places, all below massif's threshold (01.00%)", Frame("below the threshold", kind="below", places=12)),
        ("0x4C2FB0F: ??? (in /usr/lib/libc-2.31.so)", Frame("???", module="/usr/lib/libc-2.31.so", address=0x4C2FB0F, kind="unknown")),
        ("0x10: operator()(int) const (a.c:3)", Frame("operator()(int) const", "a.c", 3, None, 16)),
        ("0x10: f(void (*)(int)) (in /a (b)/c.so)", Frame("f(void (*)(int))", module="/a (b)/c.so", address=16)),
        ("0x10: (anonymous namespace)::g (a:b.c:3)", Frame("(anonymous namespace)::g", "a:b.c", 3, None, 16)),
        ("0x10: (below main) (libc-start.c:308)", Frame("(below main)", "libc-start.c", 308, None, 16)),
        ("0x10: f(int)", Frame("f(int)", address=16)),
        ("0x7F: grow (/usr/bin/program)", Frame("grow", module="/usr/bin/program", address=0x7F)),
        ("(page allocation syscalls) mmap/mremap/brk", Frame("(page allocation syscalls) mmap/mremap/brk", kind="root")),
    ],
)  # fmt: skip
def test_place_forms(text: str, frame: Frame) -> None:
    assert massif_frames.parse_place(text) == frame


def test_inlined_frames_stay_apart() -> None:
    tree = f"n1: 9 {ROOT}\n n1: 9 0x10: inner (a.h:1)\n  n0: 9 0x10: outer (a.c:2)\n"
    profile = parsed(HEADER + snapshot(0, 9, tree))
    assert [frame.function for frame in profile.frames[1:]] == ["inner", "outer"]


@pytest.mark.parametrize(("unit", "time"), [("i", "12345678901"), ("ms", "17"), ("B", "0"), ("s", "0.015625")])
def test_time_units(unit: str, time: str) -> None:
    profile = parsed(HEADER.replace("ms", unit) + snapshot(0, 1, time=time))
    assert (profile.time_unit, profile.snapshots[0].time) == (unit, float(time))


def test_windows_and_blank_lines() -> None:
    text = HEADER + "\n" + snapshot(0, 300, TREE)
    assert parsed(text.replace("\n", "\r\n")).frames == parsed(text).frames


def test_counts_description() -> None:
    assert "address space" in parsed(HEADER.replace("(none)", "--pages-as-heap=yes") + snapshot(0, 1)).counts
    assert "stacks" in parsed(HEADER + snapshot(0, 1, stacks=5)).counts.rpartition(";")[2]
    assert "stacks are counted" not in parsed(HEADER + snapshot(0, 1)).counts


def test_peak_without_tree() -> None:
    profile = parsed(HEADER + snapshot(0, 300, TREE, kind="peak") + snapshot(1, 5000) + snapshot(2, 100))
    assert profile.peak.index == 1
    peak = profile.peak_tree
    assert peak is not None and (peak[0].index, peak[1]) == (0, False)


def test_peak_tree_without_peak_snapshot() -> None:
    profile = parsed(HEADER + snapshot(0, 300, TREE) + snapshot(1, 400, TREE.replace("n2: 300", "n2: 400")))
    peak = profile.peak_tree
    assert peak is not None and (peak[0].index, peak[1]) == (1, True)


def test_peak_tie_prefers_tree() -> None:
    profile = parsed(HEADER + snapshot(0, 300) + snapshot(1, 300, TREE) + snapshot(2, 300, TREE))
    assert profile.peak.index == 1


def test_profile_without_allocations() -> None:
    profile = parsed(HEADER + snapshot(0, 0))
    assert (profile.peak.total_bytes, profile.peak_tree, profile.partial) == (0, None, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("desc: x\ncmd: y\n", "f: the file ends within its header"),
        ("desc: x\ncmd: y\ntime_unit: m", "f: the file ends within its header"),
        ("desc: x\ncmd: y\ntime_unit: years\n", "f, line 3: time_unit 'years' is not i, ms, s or B"),
        ("desc: x\nnonsense\n", "f, line 2: no massif header has such a line"),
        (HEADER, "f: this massif file has no complete snapshot"),
        (HEADER + "#---\nsnapshot=0\n#---\ntime=1\nmem_he", "f: this massif file has no complete snapshot"),
        (HEADER + "snapshot=zero\n", "f, line 4: snapshot=zero is not a number"),
        (HEADER + "time=1\n", "f, line 4: a snapshot was expected here"),
        (HEADER + snapshot(0, 1).replace("mem_heap_B=1", "mem_heap_B=1x"), "f, line 8: mem_heap_B=1x is not a number"),
        (HEADER + snapshot(0, 1).replace("mem_heap_B=1", "mem_heap_B=-1"), "f, line 8: mem_heap_B=-1 is not a number"),
        (HEADER + snapshot(0, 1 << 64), "f, line 8: mem_heap_B is a number beyond 64 bits"),
        (HEADER + snapshot(0, (1 << 63) - 1, extra=1), "f, line 11: its sizes sum up beyond 64 bits"),
        (HEADER + snapshot(0, 1).replace("time=0", "time=1e999"), "f, line 7: time= is not a number, or is beyond 64 bits"),
        (HEADER + snapshot(0, 1).replace("mem_heap_B=1\n", ""), "f, line 10: the snapshot has no mem_heap_B"),
        (HEADER + snapshot(0, 1).replace("empty", "sideways"), "f, line 11: heap_tree=sideways is not empty, detailed or peak"),
        (HEADER + snapshot(0, 1).replace("empty", "detailed") + snapshot(1, 1), "f, line 12: a tree is announced, but does not follow"),
        (HEADER + snapshot(0, 1, TREE.replace("n2", "n3")) + snapshot(1, 1), "f, line 12: a wrong child count: 3 announced, another number follows"),
        (HEADER + snapshot(0, 1, TREE.replace("n2", "n1")) + snapshot(1, 1), "f, line 12: a wrong child count: 1 announced, another number follows"),
        (HEADER + snapshot(0, 1, TREE.replace("  n0", "    n0")), "f, line 14: a line that is indented too far for a child of the line above it"),
        (HEADER + snapshot(0, 1, " " + TREE), "f, line 12: a line that is indented too far for a child of the line above it"),
        (HEADER + snapshot(0, 1, TREE.replace("n1: 200", "n1: 99999999999999999999")), "f, line 13: a number beyond 64 bits"),
        (HEADER + snapshot(0, 1, TREE.replace("n1: 200", "n1: 9223372036854775808")), "f, line 13: a number beyond 64 bits"),
        (HEADER + snapshot(0, 1, TREE.replace("n1: 200", "n1: " + "9" * 6000)), "f, line 13: a number beyond 64 bits"),
        (HEADER + snapshot(0, 1, TREE.replace("n1: 200", "n1: 2OO")), "f, line 13: this is not a line of a tree"),
        (HEADER + snapshot(0, 1, TREE + TREE), "f, line 12: a wrong child count: 2 announced, another number follows"),
        (HEADER + "x" * 5_000_000 + "\n", "f, line 4: a line of more than 4 MiB"),
    ],
)  # fmt: skip
def test_damage_messages(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        parsed(text)
    assert str(error.value) == sentence


def test_cut_file_keeps_snapshots() -> None:
    whole = HEADER + snapshot(0, 10) + snapshot(1, 300, TREE) + snapshot(2, 20)
    whole_snapshots = (HEADER + snapshot(0, 10), HEADER + snapshot(0, 10) + snapshot(1, 300, TREE))
    least = len(whole_snapshots[0])
    for end in range(least, len(whole)):
        profile = parsed(whole[:end])
        assert profile.snapshots[0].heap_bytes == 10
        assert (profile.partial is None) == (whole[:end].removesuffix("#-----------\n") in whole_snapshots), whole[end - 30 : end]


def test_cut_tree_keeps_bytes() -> None:
    profile = parsed(HEADER + snapshot(0, 300, TREE[: TREE.index("  n0")]))
    tree = profile.snapshots[0].tree
    assert tree is not None and profile.partial == "the file ends within a tree, in line 13"
    assert tree.self_bytes().tolist() == [100, 200]


def test_cut_compressed_file_partial(tmp_path: Path) -> None:
    packed = gzip.compress((HEADER + snapshot(0, 300, TREE) + "".join(snapshot(n, n * 7919 % 1013) for n in range(1, 2000))).encode())
    (tmp_path / "torn.gz").write_bytes(packed[: len(packed) // 2])
    profile = load(tmp_path / "torn.gz")
    assert profile.partial is not None and 1 < len(profile.snapshots) < 2000


def test_load_missing_file_or_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none cannot be read"):
        load(tmp_path / "none")
    with pytest.raises(InputError, match="is a folder, and no profile lies in it"):
        load(tmp_path)
    for number in range(8):
        (tmp_path / f"massif.out.{number}").write_text(HEADER + snapshot(0, 300, TREE))
        if not number:
            assert load(tmp_path).path == str(tmp_path / "massif.out.0")
    with pytest.raises(InputError, match=r"is a folder: name one of .+massif\.out\.0, .* and 2 more$"):
        load(tmp_path)


def test_tree_three_thousand_deep() -> None:
    lines = "".join(f"{' ' * depth}n1: 64 0x{depth + 1:X}: f{depth % 7} (deep.c:{depth})\n" for depth in range(1, 3000))
    tree_text = f"n1: 64 {ROOT}\n{lines}{' ' * 3000}n0: 64 0xFFFF: main (deep.c:1)\n"
    profile = parsed(HEADER + snapshot(0, 64, tree_text))
    tree = profile.snapshots[0].tree
    assert tree is not None and len(tree) == 3001
    assert tree.depths()[-1] == 3000
    assert len(shape(profile, tree)) > 1500
    turned = shape(profile, tree, invert=True)
    assert len(turned) == 3001 and turned.names[turned.group[1]] == "main"


@pytest.mark.parametrize(
    ("name", "heap_bytes", "is_peak", "site", "module"),
    [
        ("massif_tflite_mobilenet_v2.gz", 15_338_713, True, "tflite::SimpleMemoryArena::Commit", "_pywrap_tensorflow_interpreter_wrapper"),
        ("massif_tflite_mobilenet_v2_pages.gz", 184_332_288, False, "", ""),
        ("massif_onert_inception_v3.gz", 117_483_049, True, "", "libonert_core"),
        ("massif_onnxruntime_inception_v3.gz", 206_126_456, True, "", "onnxruntime_pybind11_state"),
    ],
)
def test_real_profiles(name: str, heap_bytes: int, is_peak: bool, site: str, module: str) -> None:
    profile = load(DATA / name)
    assert profile.partial is None and profile.peak.heap_bytes == heap_bytes
    peak = profile.peak_tree
    assert peak is not None and peak[1] == is_peak and peak[0].tree is not None
    tree = peak[0].tree
    assert tree.bytes[0] == peak[0].heap_bytes
    assert sum(tree.self_bytes()) == tree.bytes[0] == shape(profile, tree, invert=True).bytes[0]
    for by, wanted in (("function", site), ("module", module)):
        key, names = profile.keys(by)  # type: ignore[arg-type]
        top = top_by(tree, key)
        assert sum(own for _, own, _ in top) <= tree.bytes[0]
        assert not wanted or names[top[0][0]].startswith(wanted)


@pytest.mark.long
def test_tools_agree_on_one_job() -> None:
    massif_peak = load(DATA / "massif_onnxruntime_inception_v3.gz").peak.heap_bytes
    # The heaptrack recording kept here holds only blocks of 64 KiB and more.
    assert load(DATA / "heaptrack_onnxruntime_inception_v3.gz").peak.heap_bytes == pytest.approx(massif_peak, rel=0.08)
    with gzip.open(DATA / "memray_onnxruntime_inception_v3.jsonl.gz") as file:
        from memprof.heap import memray

        assert memray._profile(Path("x"), file).peak.heap_bytes == pytest.approx(massif_peak, rel=0.03)


def test_memray_capture_nested_too_deep() -> None:
    from memprof.heap import memray

    with pytest.raises(InputError, match="x: memray's answer cannot be understood"):
        memray._profile(Path("x"), [b'{"a":' * 5000])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("main", "main"),
        ("grow(int)", "grow"),
        ("std::vector<int, std::allocator<int> >::resize(unsigned long)", "std::vector<…>::resize"),
        ("void std::vector<float, std::allocator<float> >::emplace<int>(int&&) [clone .isra.0]", "std::vector<…>::emplace<…>"),
        ("(anonymous namespace)::Loader::load(char const*)", "(anonymous namespace)::Loader::load"),
        ("std::function<void (int)>::operator()(int) const", "std::function<…>::operator()"),
        ("operator new(unsigned long)", "operator new"),
        ("bool operator< <int>(A<int> const&, A<int> const&)", "bool operator< <…>"),
        ("onnxruntime::Tensor::Tensor(long, void*)", "onnxruntime::Tensor::Tensor"),
        ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place<…>"),
        ("<module>", "<module>"),
        ("broken<(", "broken<("),
        ("???", "???"),
    ],
)
def test_short_names(name: str, expected: str) -> None:
    assert short(name) == expected


@given(st.text(alphabet="ab:<>() ,*&~[]-", max_size=40))
def test_short_name_never_empty_nor_longer(name: str) -> None:
    assert len(short(name)) <= len(name) + name.count("<") * 2 and (short(name) or not name)


@pytest.mark.parametrize(
    ("function", "allocates"),
    [
        ("malloc", True),
        ("calloc", True),
        ("posix_memalign", True),
        ("operator new(unsigned long)", True),
        ("operator new[](unsigned long, std::align_val_t)", True),
        ("_PyObject_Malloc", True),
        ("PyMem_RawCalloc", True),
        ("__gnu_cxx::new_allocator<float>::allocate(unsigned long, void const*)", True),
        ("std::allocator_traits<std::allocator<int> >::allocate(std::allocator<int>&, unsigned long)", True),
        ("std::_Vector_base<float, std::allocator<float> >::_M_allocate(unsigned long)", True),
        ("std::_Vector_base<float, std::allocator<float> >::_M_create_storage(unsigned long)", True),
        ("std::_Vector_base<int, std::allocator<int> >::_Vector_base(unsigned long, std::allocator<int> const&)", True),
        ("std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create(unsigned long&, unsigned long)", True),
        ("int* std::vector<int, std::allocator<int> >::_M_allocate_and_copy<int const*>(unsigned long, int const*, int const*)", True),
        ("std::vector<int, std::allocator<int> >::vector(unsigned long)", False),
        ("std::vector<int, std::allocator<int> >::_M_default_append(unsigned long)", False),
        ("mine::_M_allocate(unsigned long)", False),
        ("main", False),
        ("onert::backend::basic::Allocator::Allocator(unsigned int)", False),
        ("tflite::SimpleMemoryArena::Commit(TfLiteContext*, bool*)", False),
        ("my_malloc_wrapper", False),
        ("PyUnicode_New", False),
    ],
)
def test_allocator_frames(function: str, allocates: bool) -> None:
    assert is_allocator(Frame(function)) == allocates


@pytest.mark.parametrize(
    ("function", "file", "allocates"),
    [
        ("allocate", "new_allocator.h", True),
        ("allocate", "/usr/include/c++/12/bits/alloc_traits.h", True),
        ("_S_allocate", "alloc_traits.h", True),
        ("_M_allocate", "stl_vector.h", True),
        ("_M_create_storage", "stl_vector.h", True),
        ("_Vector_base", "stl_vector.h", True),
        ("_Vector_impl", "stl_vector.h", True),
        ("_M_create", "basic_string.tcc", True),
        ("_M_get_node", "stl_tree.h", True),
        ("vector", "stl_vector.h", False),
        ("push_back", "stl_vector.h", False),
        ("basic_string<char*>", "basic_string.h", False),
        ("allocate", "pool.cc", False),
        ("_M_allocate_node<std::pair<int const, Blob>, std::tuple<> >", "hashtable_policy.h", True),
        ("_Auto_node<int const&>", "stl_tree.h", True),
        ("_M_create", "mine.h", False),
    ],
)
def test_allocators_inlined_from_standard_library(function: str, file: str, allocates: bool) -> None:
    assert is_allocator(Frame(function, file, 151)) == allocates


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("/usr/lib/x86_64-linux-gnu/libonnxruntime.so.1.17.0", "libonnxruntime"),
        ("/opt/a/libgomp-a34b3233.so.1.0.0", "libgomp"),
        ("/opt/a/onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so", "onnxruntime_pybind11_state"),
        ("/usr/bin/python3.11", "python"),
        ("/usr/lib/libpython3.11.so.1.0", "python"),
        ("/usr/lib/x86_64-linux-gnu/libc-2.31.so", "libc"),
        ("/lib64/ld-linux-x86-64.so.2", "libc"),
        ("/usr/lib/libcrypto.so.3", "libcrypto"),
        ("/home/user/program", "program"),
    ],
)
def test_module_names(module: str, name: str) -> None:
    assert module_name(Frame("f", module=module)) == name


@pytest.mark.parametrize(
    ("function", "file", "module", "name", "grouped"),
    [
        ("load", "/site/a/model.py", None, "python", "load (model.py)"),
        ("_find", "<frozen importlib._bootstrap>", None, "python", "_find (<frozen importlib._bootstrap>)"),
        ("PyUnicode_New", "Objects/unicodeobject.c", None, "(unknown module)", "PyUnicode_New"),
        ("<unknown>", None, "<unknown>", "(unknown module)", "???"),
        ("clone3", "<unknown>", None, "(unknown module)", "clone3"),
    ],
)
def test_memray_frame_modules(function: str, file: str | None, module: str | None, name: str, grouped: str) -> None:
    frame = memray._frame(memray._MemrayFrame(function, file, 3, module))
    assert (module_name(frame), group_name(frame, "function", FileNames([]))) == (name, grouped)


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (
            "/opt/lib/memray/__main__.py run --native --follow-fork --quiet -o /tmp/x/memray.bin train.py --epochs 3",
            "python train.py --epochs 3",
        ),
        ("/home/a b/memray/__main__.py run -o /tmp/x.bin /home/a b/train.py", "python /home/a b/train.py"),
        ("/usr/bin/memray run -fo x.bin -m pkg.tool -v", "python -m pkg.tool -v"),
        ("/usr/bin/memray3.11 run --output x.bin -m pkg.tool -v", "python -m pkg.tool -v"),
        ("memray run -c print(1)", "python -c print(1)"),
        ("./app.py run --native", "./app.py run --native"),
        ("memray run -o x", "memray run -o x"),
        ("", ""),
    ],
)
def test_memray_program_command(command: str, own: str) -> None:
    assert memray.program(command) == own


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/venv/lib/python3.11/site-packages/_pytest/config/__init__.py", "_pytest/config/__init__.py"),
        ("/usr/lib/python3/dist-packages/six.py", "six.py"),
        ("/usr/lib64/python3.11/importlib/metadata/__init__.py", "importlib/metadata/__init__.py"),
        ("/home/u/imglib/__init__.py", "imglib/__init__.py"),
        ("/home/u/imglib/core.py", "core.py"),
        ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"),
    ],
    ids=["package", "Debian", "standard library", "own package", "own", "no file"],
)
def test_library_file_named_by_path_there(path: str, name: str) -> None:
    assert short_file(path) == name


def test_group_names() -> None:
    assert group_name(Frame("f", "/a/b.c", 7), "line", FileNames([])) == "f (b.c:7)"
    assert group_name(Frame("???", module="/lib/libx.so.1", kind="unknown"), "function", FileNames([])) == "??? (libx)"
    assert group_name(Frame("below the threshold", kind="below", places=4), "module", FileNames([])) == "(below the threshold)"


@examples(150)
@given(st.data())
def test_damaged_file_parsed_or_refused(data: st.DataObject) -> None:
    whole = (HEADER + snapshot(0, 10) + snapshot(1, 300, TREE, kind="peak") + snapshot(2, 20)).encode()
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 40)))
    damaged = whole[:begin] + data.draw(st.binary(max_size=20)) + whole[end:]
    try:
        profile = parsed(damaged)
    except MemprofError as error:
        assert "\n" not in str(error)
    else:
        assert profile.peak.total_bytes >= 0
