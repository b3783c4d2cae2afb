"""Functions by name in ELF files, as elf(5) has them: what a program or a library defines, wants and needs, and which of its functions is meant
by a name as it is written in C++ source.

Stdlib only, Python 3.8 and later: gdb's own Python runs this file too (see runners/native/symbols.py), where a library is opened while a program
runs. Names are demangled by the C++ library's own __cxa_demangle, where there is one.
"""

from __future__ import annotations

import ctypes
import difflib
import os
import re
import struct
from functools import lru_cache
from typing import Any, Iterable, Iterator, NamedTuple  # noqa: UP035  (Python 3.8)


class Elf(NamedTuple):
    """What an ELF file says: the functions it has and the ones it wants from elsewhere, by the linker's names, and the libraries it needs."""

    path: str
    machine: int
    functions: tuple[str, ...]
    wanted: frozenset[str]
    needed: tuple[str, ...]
    search: tuple[str, ...]
    stripped: bool


def read(path: str) -> Elf | None:
    """What an ELF file says, None where it is none, is damaged or cannot be read."""
    try:
        return _read(path)
    except (OSError, struct.error, IndexError, ValueError, OverflowError, MemoryError):
        return None


def _read(path: str) -> Elf:
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            raise ValueError("no ELF file")
        order, wide = "<" if head[5] == 1 else ">", head[4] == 2
        # e_machine; e_shoff, then e_flags, e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum
        (machine,) = struct.unpack_from(order + "H", head, 18)
        offset, size, count = (
            (struct.unpack_from(order + "Q", head, 40)[0], *struct.unpack_from(order + "HH", head, 58))
            if wide
            else (struct.unpack_from(order + "I", head, 32)[0], *struct.unpack_from(order + "HH", head, 46))
        )
        file.seek(offset)
        table = file.read(size * count)
        # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize
        form = order + ("IIQQQQIIQQ" if wide else "IIIIIIIIII")
        sections = [struct.unpack_from(form, table, index * size) for index in range(count)]

        def content(index: int) -> bytes:
            file.seek(sections[index][4])
            return file.read(sections[index][5])

        functions: dict[str, None] = {}
        wanted: set[str] = set()
        needed: list[str] = []
        search: list[str] = []
        for index, section in enumerate(sections):
            kind, link = section[1], section[6]
            if kind in (_SYMTAB, _DYNSYM):
                for name, defined in _symbols(content(index), content(link), order, wide):
                    if defined:
                        functions[name] = None
                    else:
                        wanted.add(name)
            elif kind == _DYNAMIC:
                names = content(link)
                for tag, value in struct.iter_unpack(order + ("QQ" if wide else "II"), content(index)):
                    if tag == _DT_NEEDED:
                        needed.append(_text(names, value))
                    elif tag in (_DT_RPATH, _DT_RUNPATH):
                        search += (
                            _text(names, value)
                            .replace("$ORIGIN", os.path.dirname(path))
                            .replace("${ORIGIN}", os.path.dirname(path))
                            .split(":")
                        )
        stripped = not any(section[1] == _SYMTAB for section in sections)
    return Elf(path, machine, tuple(functions), frozenset(wanted), tuple(needed), tuple(search), stripped)


_SYMTAB, _DYNAMIC, _DYNSYM = 2, 6, 11
_DT_NEEDED, _DT_RPATH, _DT_RUNPATH = 1, 15, 29
_STT_FUNC, _STT_GNU_IFUNC = 2, 10


def _symbols(data: bytes, names: bytes, order: str, wide: bool) -> Iterator[tuple[str, bool]]:
    """(name, whether it is defined here) of each function in a symbol table."""
    form = order + ("IBBHQQ" if wide else "IIIBBH")
    for entry in struct.iter_unpack(form, data[: len(data) - len(data) % struct.calcsize(form)]):
        name, info, section = (entry[0], entry[1], entry[3]) if wide else (entry[0], entry[3], entry[5])
        if name and (info & 15 in (_STT_FUNC, _STT_GNU_IFUNC) or section == 0):
            yield _text(names, name), section != 0


def _text(names: bytes, place: int) -> str:
    return names[place : names.index(b"\0", place)].decode("utf-8", "replace")


# -- names


def is_system(path: str) -> bool:
    """Whether a library is the C or C++ library's own: it opens libraries for others, and its names are no suggestions."""
    return os.path.basename(path).startswith(
        ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libstdc++.", "libgcc_s.", "libc++", "ld-")
    )


def matching(function: str, symbols: Iterable[str]) -> list[str]:
    """The linker's names of the functions that are written so: a qualified name may lack its first scopes, and without parameters or
    template arguments all overloads and instances are meant."""
    word = _word(function)
    wanted = _plain(function)
    found = []
    for symbol in symbols:
        if word not in symbol or _MOVED_OUT.search(symbol):
            continue
        bare = _CLONE.sub("", symbol)
        if bare == function or (bare.startswith("_Z") and _same(wanted, _plain(_without_type(demangled(bare))))):
            found.append(symbol)
    return found


# What GCC and LLVM add to the name of a copy of a function; a part that was moved out of it (.part, .cold) has no entry of its own.
_CLONE = re.compile(r"\.(constprop|isra|lto_priv|llvm|localalias)\b.*$")
_MOVED_OUT = re.compile(r"\.(part|cold)\b")
_STRING = re.compile(r"std::(__cxx11::|__1::)?basic_string<char, ?std::(__1::)?char_traits<char>, ?std::(__1::)?allocator<char> ?>")
_CONST = re.compile(r"\bconst ([\w:]+)")


def _same(wanted: str, name: str) -> bool:
    """Whether a plain name is the wanted one: with or without its parameters, its template arguments and its first scopes."""
    bare = _without_parameters(name)
    return any(("::" + candidate).endswith("::" + wanted) for candidate in (name, bare, _without_template(bare)))


def _plain(name: str) -> str:
    """A name in one spelling: no spaces, const behind its type, std::string by that name, a method's own const left out."""
    name = _CONST.sub(r"\1 const", _STRING.sub("std::string", name.strip()))
    name = name[: -len(" const")] if name.endswith(") const") else name
    return name.replace("(anonymous namespace)::", "").replace(" ", "")


def _without_type(name: str) -> str:
    """A demangled name without the return type that an instance of a template has before it: `int ml::prepare<int>(int)`."""
    depth, end = 0, len(_without_parameters(name))
    if "operator" in name[:end]:
        return name
    for place in range(end - 1, -1, -1):
        depth += (name[place] in ">)") - (name[place] in "<(")
        if depth == 0 and name[place] == " ":
            return name[place + 1 :]
    return name


def _without_parameters(name: str) -> str:
    """A demangled name up to its parameters: the last bracket that opens at depth 0."""
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        if name[place] == ")":
            depth += 1
        elif name[place] == "(":
            depth -= 1
            if depth == 0 and place and not name.endswith("operator()"):
                return name[:place]
    return name


def _without_template(name: str) -> str:
    if not name.endswith(">"):
        return name
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += (name[place] == ">") - (name[place] == "<")
        if depth == 0:
            return name[:place]
    return name


def _word(function: str) -> str:
    """The identifier that stands in every linker's name of the function."""
    name = re.sub(r"<.*", "", re.split(r"\(", function)[0])
    last = name.split("::")[-1]
    return re.sub(r"\W", "", last) if not last.startswith(("operator", "~")) else ""


def suggestions(function: str, symbols: Iterable[str], most: int = 3) -> list[str]:
    """Names close to the function's, as they would be written."""
    word = _word(function)
    words: dict[str, str] = {}
    for symbol in symbols:
        if symbol.startswith("_Z"):
            for part in _identifiers(symbol):
                words.setdefault(part, symbol)
        else:
            words.setdefault(symbol, symbol)
    close = difflib.get_close_matches(word, words, n=most, cutoff=0.6)
    close += [name for name in words if word and word.lower() in name.lower() and name not in close][: most - len(close)]
    return list(dict.fromkeys(_without_parameters(demangled(words[name])) for name in close))[:most]


def _identifiers(symbol: str) -> Iterator[str]:
    """The identifiers in a mangled name (Itanium C++ ABI: each is its length and then itself)."""
    place = 2
    while match := re.compile(r"\d+").search(symbol, place):
        length = int(match[0])
        name = symbol[match.end() : match.end() + length]
        if length == 0 or len(name) < length:
            return
        yield name
        place = match.end() + length


@lru_cache(maxsize=None)  # noqa: UP033  (Python 3.8)
def demangled(symbol: str) -> str:
    """A C++ name as people write it; the symbol itself where it is none or no C++ library is here."""
    call = _demangler()
    if call is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int()
    address = call(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))


@lru_cache(maxsize=None)  # noqa: UP033  (Python 3.8)
def _demangler() -> Any:
    for name in ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"):
        try:
            call = ctypes.CDLL(name).__cxa_demangle
        except (OSError, AttributeError):
            continue
        call.restype = ctypes.c_void_p
        return call
    return None
