"""Looking at a process that stands still, and what can go wrong meanwhile."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.looks import READY, told, waiting

from memprof.explain import glibc, memory_map, remote, remote_look, scan, small_weights, snapshot, snippets, waterfall
from memprof.explain.glibc import ranges
from memprof.models.tensors import StoredTensor

MIB = 1 << 20
NOBODY = 65534


def test_look_at_ended_process() -> None:
    with waiting(READY) as process:
        mappings = memory_map.mappings(process.pid)
        pages = memory_map.present_pages(process.pid, mappings)
        process.kill()
        process.wait()
        for call in (
            lambda: memory_map.mappings(process.pid),
            lambda: memory_map.present_pages(process.pid, mappings),
            lambda: list(memory_map.Memory(process.pid).read(*pages.ranges())),
            lambda: glibc.walk(process.pid, mappings, pages),
            lambda: snapshot.take(process.pid, "x", None),
        ):
            with pytest.raises(memory_map.ProcessEndError, match="ended while it was looked at"):
                call()


def test_scan_of_ending_process() -> None:
    with waiting("x = bytearray(b'x') * (64 << 20); " + READY) as process:
        pages = memory_map.present_pages(process.pid, memory_map.mappings(process.pid))
        pieces = memory_map.Memory(process.pid).read(*pages.ranges())
        next(pieces)
        process.kill()
        process.wait()
        with pytest.raises(memory_map.ProcessEndError, match="ended while it was looked at"):
            list(pieces)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_look_at_foreign_process_refused() -> None:
    with waiting(READY) as process:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"nothing was raised"
            try:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
                memory = memory_map.Memory(process.pid)
                page = np.array([4096 * 100, 4096 * 101], np.uint64)
                list(memory.read(page[:1], page[1:]))
            except memory_map.Unreadable as error:
                said = str(error).encode()
            except BaseException as error:
                said = repr(error).encode()
            os.write(write, said)
            os._exit(0)
        os.close(write)
        said = os.read(read, 4096).decode()
        os.close(read)
        os.waitpid(child, 0)
    assert said.startswith(f"the memory of process {process.pid} cannot be read: Operation not permitted")


@pytest.mark.parametrize(
    ("scope", "said"),
    [(b"2\n", "kernel.yama.ptrace_scope is 2"), (b"1\n", "scope is 1: only root and")],
)
def test_yama_named_in_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path, scope: bytes, said: str) -> None:
    (tmp_path / "scope").write_bytes(scope)
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *rest: real(tmp_path / "scope" if "yama" in str(path) else path, *rest))
    assert said in str(memory_map._refused(1, 1))


def test_look_survives_transfer(tmp_path) -> None:
    values = np.random.default_rng(1).standard_normal(30_000).astype("f4")
    (tmp_path / "w").write_bytes(values.tobytes())
    large, tiny = (StoredTensor(name, "float32", (size,), 4 * size, str(tmp_path / "w"), 0) for name, size in (("l", 30_000), ("t", 500)))
    index, chosen = snippets.index([large]), small_weights.choose([tiny])
    with waiting(f"kept = bytearray(open({str(tmp_path / 'w')!r}, 'rb').read()); {READY}") as process:
        looks = [
            snapshot.take(process.pid, "EXECUTE", *sought)
            for sought in ((index.keys, chosen), remote_look.what(remote_look.packed((index.keys, chosen))))
        ]
        bare = snapshot.take(process.pid, "STARTUP", *remote_look.what(remote_look.packed((None, None))))
    came = remote.look("EXECUTE", remote_look.packed(looks[1]))

    assert came.hits is not None and len(came.hits.addresses) and came.whole
    for seen in looks:
        assert (came.phase, came.mappings, came.whole, came.stack_pointers) == (seen.phase, seen.mappings, seen.whole, seen.stack_pointers)
        accounts = [waterfall.account(each, bare, index, (), chosen) for each in (came, seen)]
        assert accounts[0].held == accounts[1].held and accounts[0].phase.slices == accounts[1].phase.slices
    assert remote.look("STARTUP", remote_look.packed(bare)).hits is None


def test_looker_needs_numpy_alone(tmp_path) -> None:
    """As the interpreter on a board has it, without memprof's other packages."""
    for folder in Path(np.__file__).parents[1].glob("numpy*"):
        (tmp_path / folder.name).symlink_to(folder)
    with waiting(READY) as process:
        program = [sys.executable, "-S", "-c", remote._START, str(remote._sources()), "look", "", str(process.pid)]
        done = subprocess.run(program, capture_output=True, check=False, env={"PYTHONPATH": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        seen = snapshot.take(process.pid, "x", None)

    came = remote.look("x", done.stdout)
    assert (came.mappings, came.heap.used.bytes) == (seen.mappings, seen.heap.used.bytes)


def test_unreadable_mapping_skipped() -> None:
    program = (
        "import ctypes, mmap\n"
        "libc = ctypes.CDLL(None); kept = [mmap.mmap(-1, 8 << 20) for _ in range(3)]\n"
        "for mapping in kept: mapping[:] = b'x' * len(mapping)\n"
        "address = lambda mapping: ctypes.addressof(ctypes.c_char.from_buffer(mapping))\n"
        "print(*map(address, kept), flush=True); input()\n"
        "libc.mprotect(ctypes.c_void_p(address(kept[0])), ctypes.c_size_t(4 << 20), 0)\n"
        "libc.munmap(ctypes.c_void_p(address(kept[1])), ctypes.c_size_t(8 << 20)); print('ready', flush=True); input()"
    )
    with waiting(program) as process:
        first, second, third = (int(word) for word in process.line.split())
        mappings = memory_map.mappings(process.pid)
        pages = memory_map.present_pages(process.pid, mappings)
        process.stdin.write("\n")
        process.stdin.flush()
        told(process)
        memory = memory_map.Memory(process.pid)
        wanted = ranges([(start, start + (8 << 20)) for start in (first, second, third)])
        good = sum(int(np.count_nonzero(piece.data == ord("x"))) for piece in memory.read(wanted.starts, wanted.ends))
        assert good >= 8 * MIB  # all of the third
        assert memory.bytes <= 16 * MIB
        keys = snippets.index([]).keys
        scan.scan(keys, process.pid, pages)  # pages that are no longer there
        assert snapshot.take(process.pid, "x", keys).pages.resident(third, third + (8 << 20)) == 8 * MIB


def test_untouched_pages_stay_absent() -> None:
    with waiting("import mmap; x = mmap.mmap(-1, 256 << 20); x[:4096] = b'x' * 4096; " + READY) as process:
        before = _rss(process.pid)
        mappings = memory_map.mappings(process.pid)
        pages = memory_map.present_pages(process.pid, mappings)
        read = sum(len(piece.data) for piece in memory_map.Memory(process.pid).read(*pages.ranges()))
        glibc.walk(process.pid, mappings, pages)
        assert abs(_rss(process.pid) - before) < MIB
        assert read < 64 * MIB
        assert abs(len(pages.address) * memory_map.PAGE - sum(mapping.rss for mapping in mappings)) < MIB


def test_memory_pieces_match_addresses() -> None:
    block = np.random.default_rng(0).integers(0, 256, 5 * MIB, dtype=np.uint8)
    start = (block.ctypes.data + memory_map.PAGE - 1) // memory_map.PAGE * memory_map.PAGE
    pairs = [
        (start, start + 3 * MIB),
        (start + 3 * MIB + memory_map.PAGE, start + 3 * MIB + 2 * memory_map.PAGE),
        (start + 4 * MIB, start + 4 * MIB + 8192),
    ]
    wanted = ranges(pairs)
    seen = np.zeros(5 * MIB, bool)
    for piece in memory_map.Memory(os.getpid()).read(wanted.starts, wanted.ends):
        where = (piece.address_of(np.arange(len(piece.data))) - np.uint64(block.ctypes.data)).astype(np.int64)
        assert np.array_equal(block[where], piece.data)
        seen[where] = True
    assert seen.sum() == sum(end - begin for begin, end in pairs)


def test_stopped_process_stacks() -> None:
    with waiting("import threading, time; threading.Thread(target=time.sleep, args=(99,), daemon=True).start(); " + READY) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        seen = snapshot.take(process.pid, "STARTUP", None)
        phase = waterfall.account(seen, None, None, ()).phase
        assert len(seen.stack_pointers) == 2
        assert 0 < phase.size("stacks") < 2 * MIB
        assert sum(part.bytes for part in phase.slices) == phase.rss_bytes


def _rss(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * memory_map.PAGE


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 60)), max_size=12), st.tuples(st.integers(0, 600), st.integers(0, 200)))
def test_ranges_cover_byte_set(pairs: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    made = ranges([(start, start + size) for start, size in pairs])
    truth = {byte for start, size in pairs for byte in range(start, start + size)}
    begin, end = asked[0], asked[0] + asked[1]
    covered = int(made.covered(np.array([begin], np.uint64), np.array([end], np.uint64))[0])
    assert covered == len(truth & set(range(begin, end)))
    assert made.bytes == len(truth)


_BLOCKS = (
    "import ctypes, threading\n"
    "libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; libc.free.argtypes = [ctypes.c_void_p]\n"
    "class Info(ctypes.Structure):\n"
    "    _fields_ = [(n, ctypes.c_size_t) for n in 'arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost'.split()]\n"
    "libc.mallinfo2.restype = Info\n"
    "def work(count, size):\n"
    "    blocks = [libc.malloc(size) for _ in range(count)]\n"
    "    for block in blocks: ctypes.memset(block, 1, size)\n"
    "    for block in blocks[::2]: libc.free(block)\n"
    "    return blocks\n"
)


def test_glibc_walk_matches_mallinfo() -> None:
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("this C library has no mallinfo2")
    tell = "info = libc.mallinfo2(); print(info.uordblks, info.fordblks, info.hblkhd, flush=True); input()"
    program = _BLOCKS + "a = work(400, 100_000); b = work(3, 8 << 20); " + tell
    with waiting(program) as process:
        used, free, mapped = (int(word) for word in process.line.split())
        mappings = memory_map.mappings(process.pid)
        walked = glibc.walk(process.pid, mappings, memory_map.present_pages(process.pid, mappings))
    assert walked.complete
    assert abs(walked.free.bytes - free) < 256 << 10
    assert abs(walked.used.bytes - used) < 256 << 10
    assert abs(walked.mapped.bytes - mapped) < 256 << 10
    assert mapped > 8 * MIB


@pytest.mark.parametrize(
    ("before", "bound"),
    [("", 128 << 10), ("work(1, 8 << 20); ", (8 << 20) + 4096), ("libc.mallopt(-3, 1 << 20); work(1, 8 << 20); ", 1 << 20)],
)
def test_glibc_mmap_threshold(before, bound) -> None:
    with waiting(_BLOCKS + before + "print('ready', flush=True); input()") as process:
        mappings = memory_map.mappings(process.pid)
        assert glibc.mapped_from(process.pid, mappings, memory_map.present_pages(process.pid, mappings)) == bound


def test_glibc_thread_arenas() -> None:
    program = _BLOCKS + (
        "gate = threading.Barrier(4)\n"
        "def worker():\n    gate.wait(); work(100, 60_000); gate.wait(); gate.wait()\n"
        "for _ in range(3): threading.Thread(target=worker, daemon=True).start()\n"
        "gate.wait(); gate.wait(); print('ready', flush=True); input()"
    )
    with waiting(program) as process:
        mappings = memory_map.mappings(process.pid)
        walked = glibc.walk(process.pid, mappings, memory_map.present_pages(process.pid, mappings))
    assert walked.arenas == 3
    assert walked.arenas_free.bytes > 3 * 2 * MIB
