"""The scanner against processes that hold known copies, and what it must never call one."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from support.held_copies import LAYOUTS, holding, named, resident_bytes, score, write_tensors
from support.looks import READY, told, waiting

from memprof.explain import copies, small_weights, snapshot, snippets, waterfall
from memprof.explain.records import AGAIN, IN_USE, ONCE
from memprof.models.tensors import StoredTensor
from memprof.programs import native

RNG = np.random.default_rng(5)
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _values_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test draws the same values whichever tests ran before it."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(5))


def written(path: Path, *arrays: np.ndarray, shift: int = 0) -> list[StoredTensor]:
    stored = []
    with path.open("wb") as file:
        file.write(b"\1" * shift)
        for number, array in enumerate(arrays):
            stored.append(StoredTensor(f"w{number}", str(array.dtype), array.shape, array.nbytes, str(path), file.tell()))
            file.write(array.tobytes())
    return stored


def held(tensors, kept, noise: int = 8 * MIB) -> list[copies.Copy]:
    index = snippets.index(tensors)
    with holding(tensors, kept, noise) as pid:
        seen = snapshot.take(pid, "x", index.keys)
    return list(waterfall.account(seen, None, index, ()).held)


def normal(*shape: int, dtype: str = "f4") -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.05).astype(dtype)


def test_copies_found_with_number_and_layout(tmp_path: Path) -> None:
    tensors = write_tensors(tmp_path / "w.bin", 60, mean_bytes=200_000)
    draw = random.Random(2)
    kept = [draw.choices((*LAYOUTS, "near"), k=draw.randrange(5)) for _ in tensors]
    index = snippets.index(tensors)
    with holding(tensors, kept, 16 * MIB) as pid:
        seen = snapshot.take(pid, "x", index.keys)
    held_copies = waterfall.account(seen, None, index, ()).held
    right, exact, claimed, there = score(index, held_copies, kept)
    assert there > 60
    assert right >= 0.99 * there
    assert right >= 0.99 * claimed
    assert exact >= 0.97 * there


def test_copies_counted_in_each_layout(tmp_path: Path) -> None:
    kept = [[layout] * count for layout in LAYOUTS for count in (1, 2, 4) for _ in range(2)]
    tensors = written(tmp_path / "w.bin", *(normal(*shape) for _ in kept[::2] for shape in ((200, 333), (128, 64, 3, 3))))
    held_copies = held(tensors, kept)
    assert [[named(copy) for copy in held_copies if copy.weight == number] for number in range(len(kept))] == kept
    for copy in held_copies:
        tensor, layout = tensors[copy.weight], named(copy)
        size = tensor.bytes // (2 if layout == "float16" else 1)
        if layout == "padded":  # the holder puts 12 elements behind each row
            size = size // tensor.shape[-1] * (tensor.shape[-1] + 12)
        assert abs(copy.bytes - size) <= (0.35 * size if layout == "block16" else 8192)


def test_copies_exclude_close_values(tmp_path: Path) -> None:
    assert held(written(tmp_path / "w.bin", normal(300, 300)), [["near", "near"]]) == []


def test_copy_of_file_at_any_alignment(tmp_path: Path) -> None:
    tensors = [written(tmp_path / f"w{shift}.bin", normal(256, 400), shift=shift)[0] for shift in (0, 1, 2, 3, 5)]
    program = f"data = [open(path, 'rb').read() for path in {[tensor.path for tensor in tensors]!r}]; {READY}"
    with waiting(program) as process:
        seen = snapshot.take(process.pid, "x", (index := snippets.index(tensors)).keys)
    held_copies = waterfall.account(seen, None, index, ()).held
    found = sorted((copy.weight, copy.layout, copy.bytes) for copy in held_copies)
    assert found == [(number, copies.STORED, tensor.bytes) for number, tensor in enumerate(tensors)]


def test_copy_found_after_conversion(tmp_path: Path) -> None:
    tensors = [written(tmp_path / dtype, normal(400, 300, dtype=dtype))[0] for dtype in ("f2", "f4")]
    pairs = [(tensor.path, tensor.dtype, target) for tensor, target in zip(tensors, ("float32", "float16"), strict=True)]
    program = f"import numpy; kept = [numpy.fromfile(path, dtype).astype(target) for path, dtype, target in {pairs!r}]; "
    with waiting(program + READY) as process:
        seen = snapshot.take(process.pid, "x", (index := snippets.index(tensors)).keys)
    held_copies = waterfall.account(seen, None, index, ()).held
    assert {(0, "float32"), (1, "float16")} <= {(copy.weight, copy.converted) for copy in held_copies}


def test_copies_of_quantised_weights(tmp_path: Path) -> None:
    tensors = written(tmp_path / "w.bin", RNG.integers(-60, 60, (400, 500), dtype=np.int8), normal(300, 400, dtype="f2"))
    held_copies = held(tensors, [["stored", "transposed"], ["stored"]])
    assert [sum(copy.weight == number for copy in held_copies) for number in (0, 1)] == [2, 1]


def test_copies_exclude_constant_and_tiny_tensors(tmp_path: Path) -> None:
    zeros, poor, tiny = np.zeros((300, 300), "f4"), RNG.integers(0, 2, (300, 300)).astype("f4"), normal(10, 10)
    tensors = written(tmp_path / "w.bin", zeros, poor, tiny, normal(300, 300))
    index = snippets.index(tensors)
    assert [weight.why_not for weight in index.weights] == ["constant or of low entropy", "constant or of low entropy", "tiny", ""]
    held_copies = held(tensors, [["stored"] * 3] * 4)
    assert {copy.weight for copy in held_copies} == {3}
    assert len(held_copies) == 3


def test_duplicate_tensors_due_twice(tmp_path: Path) -> None:
    same = normal(300, 300)
    tensors = written(tmp_path / "w.bin", same, same, normal(200, 300))
    index = snippets.index(tensors)
    assert [weight.instances for weight in index.weights] == [2, 1]
    with holding(tensors, [["stored"], ["stored"], ["stored"]], MIB) as pid:
        seen = waterfall.account(snapshot.take(pid, "x", index.keys), None, index, ())
    assert seen.phase.beyond_one_bytes == 0
    with holding(tensors, [["stored"], ["stored"], ["stored", "stored"]], MIB) as pid:
        seen = waterfall.account(snapshot.take(pid, "x", index.keys), None, index, ())
    assert abs(seen.phase.beyond_one_bytes - tensors[2].bytes) <= 8192


def test_tensor_without_copy_not_placed(tmp_path: Path) -> None:
    tensors = written(tmp_path / "w.bin", normal(300, 300), normal(200, 300))
    index = snippets.index(tensors)
    with holding(tensors, [["block8"], []], MIB) as pid:
        seen = waterfall.account(snapshot.take(pid, "x", index.keys), None, index, ())
    assert (seen.phase.unplaced_bytes, seen.phase.unplaced_tensors) == (tensors[1].bytes, 1)


def test_freed_weights_not_counted_as_held(tmp_path: Path) -> None:
    (tensor,) = written(tmp_path / "w.bin", normal(50, 500))  # below the threshold of a mapping of its own
    program = (
        "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; c.free.argtypes = [ctypes.c_void_p]\n"
        f"data = open({tensor.path!r}, 'rb', 0); kept = []; last = []\n"
        "for number in range(3):\n"
        f"    block = c.malloc({tensor.bytes}); data.seek(0); data.readinto((ctypes.c_char * {tensor.bytes}).from_address(block))\n"
        "    last.append(c.malloc(4096)); kept.append(block)\n"
        f"c.free(kept[1]); c.malloc({tensor.bytes // 4}); print('ready', flush=True); input()"  # a quarter of it is in use again
    )
    with waiting(program) as process:
        seen = snapshot.take(process.pid, "x", (index := snippets.index([tensor])).keys)
    account = waterfall.account(seen, None, index, ())
    assert len(account.held) == 2
    assert [(copy.freed, copy.copies) for copy in account.phase.held] == [(False, 2), (True, 1)]
    assert 0.6 * tensor.bytes < account.phase.kept_weight_bytes <= 0.75 * tensor.bytes < account.phase.held[1].bytes


# The functions that a block is got by, and how the next one gets that of the weights again.
GOT = {
    "malloc": "c.malloc({size})",
    "aligned_alloc": "c.aligned_alloc(64, {size})",
    "memalign": "c.memalign(64, {size})",
    "posix_memalign": "(c.posix_memalign(c.byref(p), 64, {size}), p.value)[1]",
    "realloc": "c.realloc(c.malloc(24), {size})",
}


@pytest.mark.parametrize("function", GOT)
def test_block_in_use_again_holds_no_old_weights(tmp_path: Path, function: str) -> None:
    """Its weights were freed; the program that got the block next has not written to it. Without the library they look held."""
    (tensor,) = written(tmp_path / "w.bin", normal(50, 500))  # below the threshold of a mapping of its own
    program = (
        "import ctypes, types; lib = ctypes.CDLL(None); p = ctypes.c_void_p()\n"
        "c = types.SimpleNamespace(byref=ctypes.byref, posix_memalign=lib.posix_memalign)\n"
        "for name in ('malloc', 'aligned_alloc', 'memalign', 'realloc'):\n"
        "    get = getattr(lib, name); get.restype = ctypes.c_void_p; setattr(c, name, get)\n"
        "    get.argtypes = [ctypes.c_void_p if name == 'realloc' else ctypes.c_size_t, *[ctypes.c_size_t] * (name != 'malloc')]\n"
        "lib.free.argtypes = [ctypes.c_void_p]\n"
        f"data = open({tensor.path!r}, 'rb', 0); block = c.malloc({tensor.bytes}); fence = c.malloc(4096)\n"
        f"data.readinto((ctypes.c_char * {tensor.bytes}).from_address(block)); lib.free(block)\n"
        f"again = {GOT[function].format(size=tensor.bytes - 256)}; print(abs(again - block), flush=True); input()"
    )
    index = snippets.index([tensor])
    counts = []
    for env in ({}, native.preloaded("wipe.c", {})):
        with waiting(program, env) as process:
            assert int(process.line) < 4096, "it is not the block of the weights"
            seen = snapshot.take(process.pid, "x", index.keys)
        counts.append(len(waterfall.account(seen, None, index, ()).held))
    assert counts == [1, 0]


def test_wiped_blocks_stay_untouched() -> None:
    """A block that the program has not written to becomes no more resident by what is preloaded."""
    program = (
        "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p\n"
        "pages = lambda: int(open('/proc/self/statm').read().split()[1]); c.malloc(100); before = pages()\n"
        "blocks = [c.malloc(size) for size in (64 << 20, 100 << 10, 100 << 10, 64 << 10)]; print(pages() - before, flush=True); input()"
    )
    with waiting(program, native.preloaded("wipe.c", {})) as process:
        assert int(process.line) < 64  # of 16,450


def test_look_moves_child_below_one_mebibyte(tmp_path: Path) -> None:
    tensors = written(tmp_path / "w.bin", normal(600, 700))
    program = (
        "import mmap, numpy; big = mmap.mmap(-1, 512 << 20); big[: 1 << 20] = b'x' * (1 << 20)\n"
        f"file = numpy.memmap({str(tmp_path / 'sparse')!r}, 'u1', 'w+', 0, 256 << 20); held = numpy.fromfile({tensors[0].path!r}, 'f4')\n"
        + READY
    )
    with waiting(program) as process:
        before = resident_bytes(process.pid)
        seen = snapshot.take(process.pid, "x", snippets.index(tensors).keys)
        moved = resident_bytes(process.pid) - before
    assert seen.hits is not None and len(seen.hits.addresses)
    assert abs(moved) < MIB


def test_small_weights_not_called_activations(tmp_path: Path) -> None:
    tensors = written(tmp_path / "w.bin", *(normal(40, 100 + number) for number in range(100)), np.zeros((50, 50), "f4"), normal(3))
    index = snippets.index(tensors)
    tiny = small_weights.choose([weight.tensor for weight in index.weights if weight.why_not])
    assert len(tiny.contents) == 100 and tiny.unseen_bytes == 10_012
    program = (
        "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; kept = []\n"
        f"data = open({str(tmp_path / 'w.bin')!r}, 'rb', 0)\n"
        "def hold(offset, size):\n"
        "    block = c.malloc(size); data.seek(offset); data.readinto((ctypes.c_char * size).from_address(block)); kept.append(block)\n"
        f"{READY}\n"
        f"for offset, size in {[(tensor.offset, tensor.bytes) for tensor in tensors]!r}: hold(offset, size)\n"
        f"for offset, size in {[(tensor.offset, tensor.bytes) for tensor in tensors[:10]]!r}: hold(offset, size)\n"
        f"torn = c.malloc({tensors[20].bytes}); ctypes.memset(torn, 7, {tensors[20].bytes}); data.seek({tensors[20].offset})\n"
        "data.readinto((ctypes.c_char * 4000).from_address(torn))\n"
        f"activations = c.malloc(600000); ctypes.memset(activations, 7, 600000); {READY}"
    )
    total, again = sum(tensor.bytes for tensor in tensors[:100]), sum(tensor.bytes for tensor in tensors[:10])
    with waiting(program) as process:
        base = snapshot.take(process.pid, "STARTUP", None)
        process.stdin.write("\n")
        process.stdin.flush()
        told(process)
        seen = snapshot.take(process.pid, "x", index.keys, tiny)
    with_them = waterfall.account(seen, base, index, (), tiny).phase
    without = waterfall.account(seen._replace(whole=()), base, index, ()).phase
    assert abs(with_them.size(ONCE) - total) < 32 << 10, "of some tensors a page was there before"
    assert abs(with_them.size(AGAIN) - again) < 16 << 10
    assert abs(without.size(IN_USE) - with_them.size(IN_USE) - total - again) < 64 << 10
    assert with_them.rss_bytes == without.rss_bytes == sum(part.bytes for part in with_them.slices)


def test_index_empty_without_large_tensors() -> None:
    index = snippets.index([])
    assert len(index.keys.words) == 0
