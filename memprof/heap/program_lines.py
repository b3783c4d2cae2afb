"""The lines of a program in the stacks of a Python process: who wanted the memory, where C code below a line of Python allocates it.

Of a stack that leads to Python the frames of C give way to the lines that called them, if the tool has no line for them or they are the
interpreter's. Of the lines of Python those count that are nearest to the user: the program's own, else those of packages, else those of the
standard library. So a site is the line of the program, and not numpy's `default_malloc` or pytest's calls of a test. What pytest needs for itself,
its imports and plugins, is one row: the line that starts it. Stacks without Python stay as they are, and so do those of a job that memprof's runner
starts: there the frames of the runtime are the answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ..base.runners import runners_path
from .frames import NO_MODULE, By, Frame, is_python
from .names import is_allocator
from .profile import HeapProfile
from .trees import CallTree, Trie

_C, _STANDARD, _PACKAGE, _OWN = range(4)
_STANDARD_FILES = re.compile(r"<frozen |.*/lib(?:64)?/(?:python|pypy)[\d.]+/(?!(?:site|dist)-packages/)")
# memray's own frames are at the begin of each stack, and the marks only read memory: an arena of Python's that they are the first to need is for the
# program's small objects. A text such as `-c` has is the program's; a name such as <attrs generated> a package's.
_PACKAGE_FILES = re.compile(r".*/(?:site|dist)-packages/|<(?!string>|stdin>)")
_TOOL_FILES = re.compile(r".*/(?:site|dist)-packages/memray/|(?:.*/)?memprof_marks\.py$")
_PYTEST_FILES = re.compile(r".*/(?:site|dist)-packages/_?pytest/")
_RUNNER_FILES = re.compile(r".*/memprof/runners/")
_C_FILES = re.compile(r".*\.(?:c|cc|cpp|cxx|h|hh|hpp|hxx|inc|rs|pyx|cu|cuh|f|f90)$")
# CPython's, by the folders of its source: `Objects/call.c`, `./Modules/_csv.c`. pyenv's extensions have the whole path of the build in front.
_INTERPRETER_FILES = re.compile(r"(?:.*/)?(?:Objects|Python|Modules|Parser|Include|Programs)/.*\.[ch]$")
_INTERPRETER_FUNCTIONS = re.compile(r"_?Py[A-Z]\w*$")


def program_tree(profile: HeapProfile, tree: CallTree, by: By) -> CallTree:
    """The tree with the stacks of Python cut down to the program's lines. By modules, code of a known library stays too."""
    frames = profile.frames
    if not has_python(profile):
        return tree
    ranks = [_rank(frame) for frame in frames]
    folder = f"{runners_path()}/"
    runner = [_is_runner(frame, folder) for frame in frames]
    tells = _has_library if by == "module" else _has_line
    kept = [tells(frame) for frame in frames]
    pytest = [_PYTEST_FILES.match(frame.file or "") is not None for frame in frames]
    last = [frame.kind == "below" for frame in frames]
    trie = Trie(tree.frame[0])
    trie.own[0] = tree.self_bytes()[0]
    for stack, size in tree.stacks():
        if stack:
            highest = max(ranks[number] for number in stack)
            is_cut = highest != _C and not any(runner[number] for number in stack)
            started = [number for number in stack if pytest[number]] if highest in (_STANDARD, _PACKAGE) else []
            trie.add(started[-1:] or (_cut(stack, ranks, highest, kept, last) if is_cut else stack), size)
    return trie.tree()


def is_interpreter(frame: Frame) -> bool:
    """Whether the frame is CPython's own code: by its file, or without one by its function."""
    return bool(_INTERPRETER_FILES.match(frame.file) if frame.file else _INTERPRETER_FUNCTIONS.match(frame.function))


def has_python(profile: HeapProfile) -> bool:
    """Whether any stack leads to Python."""
    return any(is_python(frame.file) for frame in profile.frames)


def _cut(stack: Sequence[int], ranks: Sequence[int], highest: int, kept: Sequence[bool], last: Sequence[bool]) -> list[int]:
    """The lines of the highest rank, the kept frames that they called, and the frame of what a tool left out."""
    outermost = max(place for place, number in enumerate(stack) if ranks[number] == highest)
    lines = [number for number in stack[: outermost + 1] if ranks[number] == highest or kept[number]]
    return [*lines, *(number for number in stack[outermost + 1 :] if last[number])]


@lru_cache(maxsize=1 << 16)
def _rank(frame: Frame) -> int:
    """How near a frame is to the user."""
    file = frame.file
    if file is None or not is_python(file) or _TOOL_FILES.match(file):
        return _C
    if _STANDARD_FILES.match(file):
        return _STANDARD
    return _PACKAGE if _PACKAGE_FILES.match(file) else _OWN


def _is_runner(frame: Frame, folder: str) -> bool:
    file = frame.file or ""
    return file.startswith(folder) or _RUNNER_FILES.match(file) is not None


def _has_line(frame: Frame) -> bool:
    """Whether C code has a line that tells more than the line of Python which called it."""
    return bool(frame.file and frame.line and _C_FILES.match(frame.file)) and not (is_interpreter(frame) or is_allocator(frame))


def _has_library(frame: Frame) -> bool:
    return frame.module not in (None, NO_MODULE) and not is_allocator(frame)
