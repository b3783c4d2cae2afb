"""The names of source files in the views: the shortest path that tells a file from the others. And which files of two profiles are the same one."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import takewhile

_COMMON_FILES = ("__init__.py", "__main__.py", "conftest.py")
_LIBRARY_FOLDERS = re.compile(r".*/(?:site|dist)-packages/|.*/lib(?:64)?/(?:python|pypy)[\d.]+/", re.ASCII)


class FileNames:
    """The names of files that are shown together: the base name or the path in the package, with more folders where another has that too."""

    def __init__(self, paths: Iterable[str | None]) -> None:
        alike: dict[str, set[str]] = defaultdict(set)
        for path in {path for path in paths if path is not None}:
            alike[os.path.basename(path)].add(one_path(path))
        self._names = {path: name for files in alike.values() for path, name in _told_apart(files).items()}

    def name(self, path: str) -> str:
        """The name of a file, as short as it can be."""
        return self._names.get(one_path(path)) or short_file(path)


@lru_cache(maxsize=1 << 16)
def one_path(path: str) -> str:
    """The path without `./` and `folder/..`: a tool may write one file in two ways. A name in place of a file, such as <string>, stays as it is."""
    return path if path.endswith(">") or not path else os.path.normpath(path)


def _told_apart(paths: Collection[str]) -> dict[str, str]:
    """Files of one base name with their names."""
    names = {path: short_file(path) for path in paths}
    counts = {path: name.count("/") + 1 for path, name in names.items()}
    while len(paths) > 1:
        times = Counter(names.values())
        shared = [path for path, name in names.items() if times[name] > 1 and name != path]
        if not shared:
            break
        for path in shared:
            counts[path] += 1
            names[path] = "/".join(path.split("/")[-counts[path] :])
    return names


def same_files(before: Collection[str], after: Collection[str]) -> dict[str, str]:
    """Which file of the earlier profile is which of the later. All have one base name.

    Those that share the most folders at the end of their paths are the same file, of several that share as many those whose other folders differ
    least: two environments have a package in different places, and a checkout of it is in a third. Files for which two are as near are not
    the same as either.
    """
    same = {path: path for path in before if path in after}
    left, right = (sorted(set(side) - set(same)) for side in (before, after))
    nearness: dict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    for first in left:
        for last in right:
            if _may_be_same(first, last):
                nearness[_nearness(first, last)].append((first, last))
    taken = set[str]()
    for near in sorted(nearness, reverse=True):
        pairs = [(first, last) for first, last in nearness[near] if first not in same and last not in taken]
        firsts, lasts = Counter(first for first, _ in pairs), Counter(last for _, last in pairs)
        for first, last in pairs:
            if firsts[first] == lasts[last] == 1:
                same[first] = last
                taken.add(last)
    return same


def _may_be_same(first: str, last: str) -> bool:
    """Whether both may be one file: files of two installed packages never are, and a release may move a file inside its package."""
    packages = package(first), package(last)
    return None in packages or packages[0] == packages[1]


def _nearness(first: str, last: str) -> tuple[int, int]:
    """How many folders both paths share at their ends, and less how many they differ in before those."""
    one, other = first.split("/"), last.split("/")
    end = _common(one[::-1], other[::-1])
    begin = _common(one[:-end], other[:-end])
    return end, 2 * (end + begin) - len(one) - len(other)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of their first words are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def short_file(path: str) -> str:
    """A file of an installed package or of the standard library by its path there: `_pytest/config/__init__.py`. Any other as `file_name` has it."""
    library = _LIBRARY_FOLDERS.match(path)
    return path[library.end() :] if library is not None and library.end() < len(path) else file_name(path)


def package(path: str) -> str | None:
    """The name of the installed package, or of the part of the standard library, that a file is of; None for a file of neither."""
    library = _LIBRARY_FOLDERS.match(path)
    return None if library is None else path[library.end() :].partition("/")[0]


def file_name(path: str) -> str:
    """A file's name, with its folder where many files have that name: `textlib/__init__.py`."""
    *folders, name = path.split("/")
    return f"{folders[-1]}/{name}" if folders and name in _COMMON_FILES else name
