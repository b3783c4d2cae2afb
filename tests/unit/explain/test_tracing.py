"""Whose line a block of Python's memory is put down to: runners/tracing.py on stacks written by hand."""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
import tracemalloc
from typing import Any

import pytest

from memprof.base.runners import runners_path
from memprof.doors.pytest_plugin import worker
from memprof.records.python_lines import read_lines

TRACING = runpy.run_path(str(runners_path() / "tracing.py"))
KIB = 1 << 10
USER, TEST = ("/w/pkg/core.py", 12), ("/w/tests/test_core.py", 5)
NUMPY = ("/venv/lib/python3.11/site-packages/numpy/_core/numeric.py", 232)
DEBIAN = ("/usr/lib/python3/dist-packages/yaml/reader.py", 9)
JSON = (os.path.join(os.path.dirname(os.__file__), "json", "decoder.py"), 353)
RUNNER = (str(runners_path() / "function.py"), 46)


def snapshot(*blocks: tuple[int, tuple[tuple[str, int], ...]]) -> Any:
    """Blocks of so many bytes, each with its stack, the nearest frame first, as tracemalloc's C code gives them."""
    return tracemalloc.Snapshot([(0, size, stack, len(stack)) for size, stack in blocks], 16)


def rows(*blocks: tuple[int, tuple[tuple[str, int], ...]]) -> list[list[Any]]:
    grown: list[list[Any]] = TRACING["grown"](snapshot(), snapshot(*blocks))
    return grown


@pytest.mark.parametrize(
    ("library", "short"),
    [(NUMPY, ["numpy/_core/numeric.py", 232]), (DEBIAN, ["yaml/reader.py", 9]), (JSON, ["json/decoder.py", 353])],
    ids=["site-packages", "dist-packages", "standard library"],
)
def test_block_of_library_put_down_to_caller(library, short):
    assert rows((KIB, (library, ("<string>", 1), USER, TEST))) == [[*USER, KIB, 1, *short]]


def test_block_of_own_line_names_no_library():
    assert rows((KIB, (USER, NUMPY, TEST))) == [[*USER, KIB, 1, None, None]]


def test_stack_without_own_code_names_allocating_line():
    assert rows((KIB, (NUMPY, JSON, RUNNER))) == [[*NUMPY, KIB, 1, None, None]]


@pytest.mark.parametrize(
    "stack",
    [
        ((str(runners_path() / "memprof_marks.py"), 155), USER),
        (JSON, ("/w/tools/memprof_marks.py", 155), USER),  # a copy beside the user's files
        (JSON, RUNNER),
        ((worker.__file__, 100), USER),
    ],
)
def test_own_objects_of_memprof_left_out(stack):
    assert rows((KIB, stack), (2 * KIB, (USER,))) == [[*USER, 2 * KIB, 1, None, None]]


HOLDING = """
import collections

kept, recent = [], collections.deque()

class Cache:
    texts = {}
    def __init__(self):
        self.seen = set()

cache = Cache()

def call(number):
    kept.append(bytearray(2000))
    recent.append(bytearray(2000))
    Cache.texts[number] = bytearray(2000)
    cache.seen.add(b"x" * number)
    hidden(bytearray(2000))

def hide():
    values = []
    return values.append

hidden = hide()
"""


@pytest.fixture
def grown_lines(tmp_path, monkeypatch):
    """The lines of a module of this name and text that grew while its `call` was called, with the holders of their objects."""

    def grown(name, text):
        gc.freeze()  # nobody looks at what earlier tests left: seconds
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        module = importlib.import_module(name)
        lines = TRACING["Lines"](tmp_path / "lines.json")
        try:
            lines.look()
            for number in range(2000, 2050):
                module.call(number)
            lines.look()
        finally:
            tracemalloc.stop()
            del sys.modules[name]
        grew = read_lines(tmp_path / "lines.json")
        return [(line.number, line.holder) for line in grew if line.file == module.__file__ and line.bytes > 90_000]

    return grown


def test_container_of_growing_objects_named(grown_lines):
    found = dict(grown_lines("held_by", HOLDING))

    first = HOLDING.splitlines().index("    kept.append(bytearray(2000))") + 1
    assert found == {
        first: "the list `kept` of module held_by",
        first + 1: "the deque `recent` of module held_by",
        first + 2: "the dict `texts` of class held_by.Cache",
        first + 3: "the set `seen` of an object of class held_by.Cache",
        first + 4: "",  # no name leads to it
    }


NESTED = """
documents, parsed = {}, []

class Document:
    def __init__(self, number):
        self.text = "x" * number

def call(number):
    result = {}
    for key in range(3):
        result[key] = "v" * number
    documents[number] = result, number
    parsed.append(Document(number))
    [(at, at) for at in range(1900)]  # freed, and kept by Python for the next tuples
"""


def test_container_around_containers_named(grown_lines):
    """A cache of dicts, and one of objects with attributes; what Python itself keeps of freed objects is no line's."""
    lines = NESTED.splitlines()
    held = {
        lines.index('        self.text = "x" * number') + 1: "the list `parsed` of module nested",
        lines.index('        result[key] = "v" * number') + 1: "the dict `documents` of module nested",
    }

    assert dict(grown_lines("nested", NESTED)) == held


BOX = """
kept = []

class Box:
    def __init__(self, inner):
        self.inner = inner

def leaf(number):
    return ["x" * number, "y" * number]

"""


@pytest.mark.parametrize(
    "call",
    [
        "kept.append(Box(Box(Box(leaf(number)))))",
        "kept.append(Box([leaf(number), leaf(number), leaf(number)]))",
        "kept.append({'a': {'b': {'c': {'d': str(number) * 500}}}})",  # most of the dicts are none that gc tracks
        "first = Box(None); first.inner = Box([first, leaf(number)]); kept.append(first)",  # a circle
        "kept or kept.append({}); kept[0][number] = 'x' * number",  # one dict that grows inside it
        "text = 'x' * number; kept.append(lambda: text)",
    ],
    ids=["objects", "lists in objects", "dicts", "circle", "value", "closures"],
)
def test_container_far_around_objects_named(call, grown_lines):
    held = grown_lines("far_around", f"{BOX}def call(number):\n    {call}\n")

    assert held and {holder for _, holder in held} == {"the list `kept` of module far_around"}


@pytest.mark.parametrize(
    ("top", "call", "holder"),
    [
        ("seen = collections.defaultdict(set)", "seen['all'].add('x' * number)", "the defaultdict `seen` of module caches"),
        ("@functools.lru_cache(maxsize=None)\ndef text(number): return 'x' * number", "text(number)", "the lru_cache of caches.text"),
        ("@functools.lru_cache(maxsize=999)\ndef text(number): return 'x' * number", "text(number)", "the lru_cache of caches.text"),
    ],
)
def test_caches_of_standard_library_named(top, call, holder, grown_lines):
    held = grown_lines("caches", f"import collections, functools\n{top}\ndef call(number):\n    {call}\n")

    assert [name for _, name in held] == [holder]


def test_instance_in_container_is_held_by_it(grown_lines):
    """Python 3.11 has no traceback of an instance."""
    many = "kept.append([Box(leaf(5)) for _ in range(40)])"
    held = dict(grown_lines("instances", f"{BOX}def call(number):\n    {many}\n"))

    assert held[BOX.count("\n") + 2] == "the list `kept` of module instances"


def test_line_that_adds_to_dict_has_no_objects(grown_lines):
    text = "kept = []\ndef call(number):\n    kept.append({})\n    kept[-1].update(dict.fromkeys(range(100)))\n"

    assert grown_lines("adds", text) == [(4, None)]


def test_dict_of_call_put_down_to_its_line(tmp_path):
    """Not to that of a dict that the caller freed before, whose block of keys Python uses again."""
    file = tmp_path / "keeps.py"
    file.write_text("kept = []\ndef keep(number):\n    kept.append({'number': number})\n")
    keep = TRACING["apart"](runpy.run_path(str(file))["keep"])
    tracemalloc.start(4)
    try:
        for number in range(100):
            freed = [{"freed": at} for at in range(10)]
            del freed
            keep(number)
        traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, str(file), 3)])
    finally:
        tracemalloc.stop()

    (line,) = traces.statistics("lineno")
    assert line.count >= 200  # a header and a table of keys each


def test_keys_are_held_by_their_dict(grown_lines):
    """CPython's dict tells the collector of no key where all are texts."""
    keyed_by = "seen = {}\ndef call(number):\n    text = 'k' * number\n    seen[text] = True\n"

    assert grown_lines("keyed_by", keyed_by) == [(3, "the dict `seen` of module keyed_by")]


def test_places_of_one_line_summed():
    blocks = ((KIB, (NUMPY, USER)), (3 * KIB, (JSON, USER)), (2 * KIB, (USER,)), (5 * KIB, (TEST,)))

    assert rows(*blocks) == [[*USER, 6 * KIB, 3, "json/decoder.py", 353], [*TEST, 5 * KIB, 1, None, None]]


def test_line_that_shrank_absent():
    first, last = snapshot((4 * KIB, (NUMPY, USER)), (KIB, (TEST,))), snapshot((3 * KIB, (JSON, USER)), (2 * KIB, (TEST,)))

    assert TRACING["grown"](first, last) == [[*TEST, KIB, 0, None, None]]
