"""Names of frames: shortened for display, put down to a module, and told from the names of allocators."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from .file_names import FileNames
from .frames import NO_MODULE, UNKNOWN, By, Frame, is_python

# Functions that only hand out memory: their callers are who allocates. glibc's, C++'s, CPython's, and those of well-known replacements.
_ALLOCATORS = re.compile(
    r"""
    (?:__(?:GI_|interceptor_)?|_)?(?:libc_)?(?:malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc
      |valloc|pvalloc|strdup|strndup)
    | _(?:int|mid)_(?:malloc|memalign|realloc|free) | (?:ptmalloc|tcache)_\w+ | (?:m|__m)map(?:64)? | m?remap | (?:__)?s?brk
    | sysmalloc(?:_mmap)?
    | mmap_chunk | alloc_perturb | free_check | (?:sys|arena|heap)_?(?:malloc|grow|new_heap|get2)\w* | new_heap | __default_morecore
    | __glibc_morecore
    | _?Py(?:Mem|Object)_(?:Raw)?(?:Malloc|Calloc|Realloc)\w* | _PyMem_\w+ | _PyObject_(?:Malloc|Calloc|Realloc|Arena\w*) | pymalloc_\w+ | new_arena
    | (?:je|mi|tc|rp|sn)_\w*(?:alloc|memalign|new)\w* | MallocExtension\w*
    | operator\s+new(?:\[\])?(?:\(.*\))?
    | (?:std|__gnu_cxx)::(?:__\w+::)?(?:__)?(?:new_)?allocator(?:_traits)?<.*>::_?\w*allocate\w*(?:\(.*\))?(?:\s\[.*\])?
    | std::__allocate_guarded<.* | std::allocate_shared\w*<.*
    """,
    re.VERBOSE | re.DOTALL,
)
# The same of libstdc++'s containers, told by the shortened name if a tool gives it whole (`std::_Vector_base<…>::_M_allocate`), and by name and file
# if it gives `_M_allocate` alone, as for inlined functions.
_PARTS = (
    r"_[MS]_(?:allocate\w*|get_node|create(?:_nodes?|_storage)?|initialize_map)"
    r"|_(?:Vector|Bvector|Deque|List|Fwd_list)_(?:base|impl)|_(?:Scoped|Auto)_node"
)
_WHOLE = re.compile(rf"(?:std|__gnu_cxx)::(?:\S+::)?(?:{_PARTS})(?:<…>)?")
_BARE = re.compile(rf"(?:{_PARTS}|allocate(?:_at_least)?|__allocate_guarded\w*)(?:<…>)?")
_STL_FILES = frozenset(
    {
        *("new_allocator.h", "alloc_traits.h", "allocator.h", "allocated_ptr.h", "malloc_allocator.h", "pool_allocator.h"),
        *("stl_vector.h", "vector.tcc", "stl_bvector.h", "stl_deque.h", "deque.tcc", "stl_list.h", "list.tcc", "forward_list.h"),
        *("forward_list.tcc", "stl_tree.h", "hashtable.h", "hashtable_policy.h", "basic_string.h", "basic_string.tcc", "cow_string.h"),
    }
)
_ALLOCATOR_FILES = frozenset(
    {"libjemalloc", "libtcmalloc", "libtcmalloc_minimal", "libtcmalloc_and_profiler", "libtcmalloc_debug", "libmimalloc"}
)
_PYTHON_FILES = re.compile(r"(?:^|/)(?:python|pypy)[\d.]*$|libpython", re.ASCII)
_LIBC = re.compile(r"^(?:libc|libm|libpthread|libdl|librt|ld-linux[\w-]*|ld-musl[\w-]*|ld)(?:[-.]|$)", re.ASCII)


@lru_cache(maxsize=1 << 16)
def is_allocator(frame: Frame) -> bool:
    """Whether the frame only hands out memory (malloc, operator new, std::allocator, CPython's allocators, mmap, a library that is an allocator)."""
    name = frame.function
    if frame.kind not in ("site", "unknown"):
        return False
    if frame.module is not None and short_module(frame.module) in _ALLOCATOR_FILES:
        return True
    if frame.file is not None and os.path.basename(frame.file) in _STL_FILES and _BARE.fullmatch(short(name)):
        return True
    return _ALLOCATORS.fullmatch(name) is not None or ("::_" in name and _WHOLE.fullmatch(short(name)) is not None)


@lru_cache(maxsize=1 << 16)
def is_library(frame: Frame) -> bool:
    """Whether the frame is of the C++ or Rust standard library (`std::vector<…>::assign`, `__gnu_cxx::…`) or an allocator's: whoever called it
    wanted the memory."""
    return is_allocator(frame) or (frame.kind == "site" and short(frame.function).startswith(("std::", "__gnu_cxx::")))


def group_name(frame: Frame, by: By, files: FileNames) -> str:
    """The name of the group a frame belongs to, in full. files: the names of all that are shown together."""
    return with_place(own_name(frame, by), _place(frame, by, files))


def own_name(frame: Frame, by: By) -> str:
    """The same without the file or line that tells it from groups of the same name: where those stand beside it."""
    if frame.kind == "below":
        return "(below the threshold)"
    if by == "module":
        return module_name(frame)
    return nameless(frame) if frame.function == UNKNOWN and not _has_place(frame, by) else frame.function


def with_place(name: str, place: str) -> str:
    """`resize (imglib.py:9)`; the name alone where the place is empty."""
    return f"{name} ({place})" if place else name


def _place(frame: Frame, by: By, files: FileNames) -> str:
    """What the name of a frame's group has of its file and line."""
    if frame.file is None or not _has_place(frame, by):
        return ""
    name = files.name(frame.file)
    return f"{name}:{frame.line or '?'}" if by == "line" else name


def _has_place(frame: Frame, by: By) -> bool:
    """Whether the name of a frame's group has its file: that of a function only in Python, where every file has its `<module>`.
    A function of C may seem to be in several files, as tools put code that was inlined into it down to the header."""
    if frame.file is None or frame.kind == "below" or by == "module":
        return False
    return by == "line" or (frame.function != UNKNOWN and is_python(frame.file))


def nameless(frame: Frame) -> str:
    """The name shown for a frame without a name: its module's, if that is known."""
    return UNKNOWN if frame.module in (None, NO_MODULE) else f"{UNKNOWN} ({module_name(frame)})"


def module_name(frame: Frame) -> str:
    """A module's short name: `libonnxruntime`, `python`, `libc`; the source file's if only that is known, "(unknown)" otherwise."""
    if frame.module is not None:
        return short_module(frame.module)
    if frame.file is not None:
        return "python" if is_python(frame.file) else os.path.basename(frame.file)
    return "(unknown)"


@lru_cache(maxsize=4096)
def short_module(path: str) -> str:
    """`libonnxruntime` of `/usr/lib/libonnxruntime.so.1.17.0`, without hashes of builds and versions; every part of glibc is `libc`."""
    name = os.path.basename(path.rstrip("/")) or path
    if _PYTHON_FILES.search(name):
        return "python"
    if _LIBC.match(name):
        return "libc"
    stem = re.split(r"\.so\b|\.cpython-|\.abi3|\.dll$|\.dylib$", name)[0]
    stem = re.sub(r"-[0-9a-f]{8}$", "", stem)  # auditwheel's hash
    return re.sub(r"[-.]\d[\d.]*$", "", stem) or name


_OPERATOR = re.compile(r"operator(?:<=>|<<=?|>>=?|<=?|>=?|->\*?|\(\))")


@lru_cache(maxsize=1 << 16)
def short(function: str) -> str:
    """A function's name for display: without parameters, template arguments as <…>, clone suffixes and return type.

    `void std::vector<int, std::allocator<int> >::resize(unsigned long) [clone .isra.0]` is `std::vector<…>::resize`.
    """
    text = re.sub(r"\s*\[clone [^\]]*\]|\s*\[with .*\]$|\.(?:isra|part|constprop|cold|lto_priv)\.?\d*", "", function)
    if "(" not in text and "<" not in text:
        return text
    out: list[str] = []
    angles = rounds = index = 0
    while index < len(text):
        if not rounds and (operator := _OPERATOR.match(text, index)) and not text[index - 1 : index].isalnum():
            if not angles:
                out.append(operator[0])
            index = operator.end()
            continue
        char = text[index]
        if not rounds and char == "<" and (out or angles):
            if not angles:
                out.append("<…>")
            angles += 1
        elif not rounds and char == ">" and angles and text[index - 1 : index] != "-":
            angles -= 1
        elif char == "(":
            if not angles and not rounds and (special := re.match(r"\((?:anonymous namespace|anonymous class|unnamed)\)", text[index:])):
                out.append(special[0])
                index += special.end()
                continue
            rounds += 1
        elif char == ")" and rounds:
            rounds -= 1
        elif not angles and not rounds:
            out.append(char)
        index += 1
    if angles or rounds:
        return text  # not balanced: better in full than wrong
    name = re.sub(r"\s+(?:const|volatile|noexcept|&{1,2})\b", "", "".join(out)).strip()
    name = re.sub(r"^(?:[\w:<>…*&~]+\s+[*&]*)+(?=[\w~:<>…(]+(?:::|$))", "", name) if "operator" not in name else name
    return name or text
