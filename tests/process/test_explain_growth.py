"""Why a process grew: two looks at one child. The function of both looks on made-up ones, and both looks at real programs."""

from __future__ import annotations

import json

import pytest
from support import recorder_runs
from support.recorder_runs import runtime_file

from memprof.base.errors import MeasurementError
from memprof.explain import growth as grown
from memprof.subjects.order import Order
from memprof.subjects.orders import plan
from memprof.subjects.suite import Suite

LIBC = "import ctypes, mmap\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\nlibc.malloc.argtypes = [ctypes.c_size_t]\n"
LIBC += "libc.free.argtypes = [ctypes.c_void_p]\nlibc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]\nkept = []\n"
LIBC += "libc.mallopt(-3, 1 << 30)\n"  # M_MMAP_THRESHOLD: every block comes from the heap
LIBC += "def block(size):\n    place = libc.malloc(size)\n    libc.memset(place, 1, size)\n    return place"
RUNS = 40


def order_of(folder, scenario, execute: str, **words: object) -> Order:
    mine = runtime_file(folder, top=LIBC, execute=execute)
    suite = Suite(models=(str(scenario()),), runtimes=(str(mine),), repeats=1, **{"warmup": 3, "runs": RUNS, **words})
    return plan(suite).orders[0]


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        ("kept.append(block(100_000))", "in use by the program"),
        ("area = mmap.mmap(-1, 100_000)\narea[:] = b'x' * len(area)\nkept.append(area)", "other mappings"),
        # All blocks are freed in the last iteration, below a block that stays.
        (
            f"kept.append(block(100_000))\nif len(kept) == {3 + RUNS}:\n    block(150_000)\n    while kept: libc.free(kept.pop())",
            "freed, kept by the allocator",
        ),
    ],
)
def test_growing_part_found(tmp_path, scenario, nothing_left, leak: str, name: str) -> None:
    growth = grown.why(order_of(tmp_path, scenario, leak), recorder_runs.Silent())

    sizes = {part.name: part.grown_bytes for part in growth.parts}
    assert growth.cause == name, growth.sentences
    assert sizes[name] == pytest.approx(RUNS * 100_000, rel=0.15)
    assert growth.complete
    if name.startswith("freed"):
        assert growth.pinned.whole_bytes > 0.8 * RUNS * 100_000
        assert growth.pinned.given_back_bytes >= growth.pinned.kept_bytes
        assert 150_000 <= growth.pinned.top_live_bytes < 400_000 < growth.pinned.top_bytes


def test_growing_python_lines_named(tmp_path, scenario, nothing_left) -> None:
    order = order_of(tmp_path, scenario, "import json\nkept.append(json.JSONEncoder().encode('x' * 50_000))")

    (first, *_) = grown.lines(order, recorder_runs.Silent())

    assert first.file.endswith("mine.py")
    assert "kept.append" in (tmp_path / "mine.py").read_text().splitlines()[first.number - 1]
    assert first.library_file == "json/encoder.py" and first.library_number is not None
    assert first.bytes == pytest.approx(RUNS * 50_000, rel=0.1)
    assert first.blocks == pytest.approx(RUNS, abs=2)


def test_growth_of_failing_run_refused(tmp_path, scenario) -> None:
    with pytest.raises(MeasurementError, match=r"mine\.json, mine: in WARMUP: ValueError: too much|in WARMUP: ValueError: too much"):
        grown.why(order_of(tmp_path, scenario, "raise ValueError('too much')"), recorder_runs.Silent())


def test_grow_why_names_growing_part(memprof, scenario, tmp_path, nothing_left) -> None:
    scenario()
    runtime_file(tmp_path, top="kept = []", execute="kept.append(bytearray(b'1') * 65536)")

    done = memprof("grow", "scenario.json", "-r", "./mine.py", "--budget", "200", "--why", "--json")

    content = json.loads(done.stdout)
    assert (done.returncode, content["verdict"]["word"]) == (1, "grows")
    parts = {part["name"]: part["after"] - part["before"] for part in content["why"]["parts"]}
    assert max(parts, key=parts.__getitem__) == "in use by the program"
    assert parts["in use by the program"] > 100 * 65536 * 0.9
    said = "\n".join(content["remarks"])
    assert "between the ends of WARMUP and EXECUTE" in said
    assert "Objects of Python from mine.py, line " in said
