"""Functions by name in ELF files, as elf(5) has them: those that a program or a library defines and those it takes from elsewhere, the libraries
it needs, and the functions that a name means as it is written in C++ source.

Stdlib only, Python 3.8 and later: gdb's own Python runs this file too (see runners/native/symbols.py), where a library is opened while a program
runs. Names are demangled by the C++ library's own __cxa_demangle, if there is one.
"""

from __future__ import annotations

import ctypes
import difflib
import os
import re
import struct
from functools import lru_cache
from typing import Any, Iterable, Iterator, Mapping, NamedTuple  # noqa: UP035  (Python 3.8)

# The end of a sentence on a function that is not seen. A static one keeps its name, but is the first to be inlined.
NOT_INLINED = "a function that is inlined needs __attribute__((noinline)), a build with -fno-inline, or marks in its place (memprof marks)"


class Elf(NamedTuple):
    """The content of an ELF file: the functions it defines and its undefined symbols, by the linker's names, and the libraries it needs.

    rpath, runpath: the folders it names for these; the loader looks into the first before LD_LIBRARY_PATH and into the second after it.
    """

    path: str
    machine: int
    functions: tuple[str, ...]
    undefined: frozenset[str]
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    stripped: bool


_DAMAGED = (OSError, struct.error, IndexError, ValueError, OverflowError, MemoryError)


def read(path: str) -> Elf | None:
    """The content of an ELF file, None if it is no ELF file, is damaged or cannot be read."""
    try:
        return _read(path)
    except _DAMAGED:
        return None


class _Sections:
    """An open ELF file's sections: (sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize)."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._contents: dict[int, bytes] = {}
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            raise ValueError("no ELF file")
        self.order, self.wide = "<" if head[5] == 1 else ">", head[4] == 2
        # e_machine; e_shoff, then e_flags, e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum
        (self.machine,) = struct.unpack_from(self.order + "H", head, 18)
        offset, size, count = (
            (struct.unpack_from(self.order + "Q", head, 40)[0], *struct.unpack_from(self.order + "HH", head, 58))
            if self.wide
            else (struct.unpack_from(self.order + "I", head, 32)[0], *struct.unpack_from(self.order + "HH", head, 46))
        )
        file.seek(offset)
        table = file.read(size * count)
        form = self.order + ("IIQQQQIIQQ" if self.wide else "IIIIIIIIII")
        self.all = [struct.unpack_from(form, table, index * size) for index in range(count)]

    def content(self, index: int) -> bytes:
        """The bytes of a section."""
        if index not in self._contents:
            self._file.seek(self.all[index][4])
            self._contents[index] = self._file.read(self.all[index][5])
        return self._contents[index]

    def symbols(self, index: int) -> Iterator[_Symbol]:
        """The entries of a symbol table."""
        data, names = self.content(index), self.content(self.all[index][6])
        form = self.order + ("IBBHQQ" if self.wide else "IIIBBH")
        for entry in struct.iter_unpack(form, data[: len(data) - len(data) % struct.calcsize(form)]):
            if self.wide:
                name, info, _, section, value, size = entry
            else:
                name, value, size, info, _, section = entry
            yield _Symbol(_text(names, name) if name else "", info & 15, section, value, size)


class _Symbol(NamedTuple):
    name: str
    kind: int
    section: int
    value: int
    size: int


def _read(path: str) -> Elf:
    with open(path, "rb") as file:
        sections = _Sections(file)
        functions: dict[str, None] = {}
        undefined: set[str] = set()
        needed: list[str] = []
        search: dict[int, list[str]] = {_DT_RPATH: [], _DT_RUNPATH: []}
        for index, section in enumerate(sections.all):
            if section[1] in (_SYMTAB, _DYNSYM):
                for symbol in sections.symbols(index):
                    if symbol.name and symbol.section == 0:
                        undefined.add(symbol.name)
                    elif symbol.name and symbol.kind in (_STT_FUNC, _STT_GNU_IFUNC):
                        functions[symbol.name] = None
            elif section[1] == _DYNAMIC:
                names = sections.content(section[6])
                for tag, value in struct.iter_unpack(sections.order + ("QQ" if sections.wide else "II"), sections.content(index)):
                    if tag == _DT_NEEDED:
                        needed.append(_text(names, value))
                    elif tag in search:
                        own = os.path.dirname(os.path.abspath(path))
                        search[tag] += _text(names, value).replace("$ORIGIN", own).replace("${ORIGIN}", own).split(":")
        stripped = not any(section[1] == _SYMTAB for section in sections.all)
    # The loader heeds DT_RPATH only where there is no DT_RUNPATH (ld.so(8)).
    rpath = () if search[_DT_RUNPATH] else tuple(search[_DT_RPATH])
    return Elf(path, sections.machine, tuple(functions), frozenset(undefined), tuple(needed), rpath, tuple(search[_DT_RUNPATH]), stripped)


_SYMTAB, _RELA, _DYNAMIC, _REL, _DYNSYM, _RELR = 2, 4, 6, 9, 11, 19
_DT_NEEDED, _DT_RPATH, _DT_RUNPATH = 1, 15, 29
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_NOBITS = 8


def _text(names: bytes, place: int) -> str:
    return names[place : names.index(b"\0", place)].decode("utf-8", "replace")


# -- names


def is_system(path: str) -> bool:
    """Whether a library is the C or C++ library's own: it opens libraries for others, and its names are no suggestions."""
    return os.path.basename(path).startswith(
        ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libstdc++.", "libgcc_s.", "libc++", "ld-")
    )


def matching(function: str, symbols: Iterable[str]) -> list[str]:
    """The linker's names of the functions that a name in the source means. A qualified name may lack its first scopes. A name without
    parameters or template arguments means all overloads and instances."""
    word = _word(function)
    target = _plain(function)
    names = []
    for symbol in symbols:
        if word not in symbol or _MOVED_OUT.search(symbol):
            continue
        bare = _CLONE.sub("", symbol)
        if bare == function or (bare.startswith("_Z") and _same(target, _plain(_without_type(demangled(bare))))):
            names.append(symbol)
    return names


def is_function(symbol: str, name: str) -> bool:
    """Whether a linker's name means the function of this name in debug information, which has a local function's as it is written in the source."""
    return _plain(_without_type(demangled(_CLONE.sub("", symbol)))) == _plain(_without_type(demangled(name)))


# Endings that GCC and LLVM add to the name of a copy of a function. A part that was moved out of it (.part, .cold) is not its entry.
_CLONE = re.compile(r"\.(constprop|isra|lto_priv|llvm|localalias)\b.*$")
_MOVED_OUT = re.compile(r"\.(part|cold)\b")
_STRING = re.compile(r"std::(__cxx11::|__1::)?basic_string<char, ?std::(__1::)?char_traits<char>, ?std::(__1::)?allocator<char> ?>")
_CONST = re.compile(r"\bconst ([\w:]+)")


def _same(target: str, name: str) -> bool:
    """Whether a plain name is the target: with or without its parameters, its template arguments and its first scopes."""
    bare = _without_parameters(name)
    return any(("::" + candidate).endswith("::" + target) for candidate in (name, bare, _without_template(bare)))


def _plain(name: str) -> str:
    """A name in one spelling: no spaces, const behind its type, std::string by that name, a method's own const left out."""
    name = _CONST.sub(r"\1 const", _STRING.sub("std::string", name.strip()))
    name = name[: -len(" const")] if name.endswith(") const") else name
    return name.replace("(anonymous namespace)::", "").replace(" ", "")


def _without_type(name: str) -> str:
    """A demangled name without the return type that an instance of a template has before it: `int ml::prepare<int>(int)`."""
    end = len(_without_parameters(name))
    if "operator" in name[:end]:
        return name
    return next((name[place + 1 :] for place in _outside(name, end) if name[place] == " "), name)


def _without_parameters(name: str) -> str:
    """A demangled name up to its parameters: the last bracket that opens at depth 0."""
    if name.endswith("operator()"):
        return name
    return next((name[:place] for place in _outside(name, len(name), "(", ")") if place and name[place] == "("), name)


def _without_template(name: str) -> str:
    return name[: next(_outside(name, len(name), "<", ">"), len(name))] if name.endswith(">") else name


def _outside(name: str, end: int, opening: str = "<(", closing: str = ">)") -> Iterator[int]:
    """The places before `end`, from the right, at which no bracket is open; the one where a bracket opens counts."""
    depth = 0
    for place in range(end - 1, -1, -1):
        depth += (name[place] in closing) - (name[place] in opening)
        if depth == 0:
            yield place


def _word(function: str) -> str:
    """The identifier that stands in every linker's name of the function."""
    name = re.sub(r"<.*", "", re.split(r"\(", function)[0])
    last = name.split("::")[-1]
    return re.sub(r"\W", "", last) if not last.startswith(("operator", "~")) else ""


# -- overrides of a virtual function


def bases(path: str) -> dict[str, tuple[str, ...]]:
    """The bases of each class whose type information lies in this file, by the linker's names without _ZTI; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return _bases(_Sections(file))
    except _DAMAGED:
        return {}


def _bases(sections: _Sections) -> dict[str, tuple[str, ...]]:
    """From the layout of type information in the Itanium C++ ABI, 2.9.5: a pointer to a vtable and a pointer to the name. A class with one public
    base has a pointer to the base's type information behind them; a class with several has flags, their count, and a pointer and a number for each.
    """
    size = 8 if sections.wide else 4
    types: dict[str, _Symbol] = {}
    at: dict[int, str] = {}
    tables: dict[int, list[_Symbol]] = {}
    for index, section in enumerate(sections.all):
        if section[1] in (_SYMTAB, _DYNSYM):
            tables[index] = list(sections.symbols(index))
            for symbol in tables[index]:
                if symbol.name.startswith("_ZTI") and symbol.section:
                    types[symbol.name[4:]] = symbol
                    at[symbol.value] = symbol.name[4:]
    if not any(symbol.size > 2 * size for symbol in types.values()):
        return {}
    moved = _relocated(sections, tables)
    hierarchy = {}
    for name, symbol in types.items():
        if symbol.size == 3 * size:
            places = [symbol.value + 2 * size]
        else:
            first = symbol.value + 2 * size + 8
            places = list(range(first, symbol.value + symbol.size, 2 * size)) if symbol.size > 3 * size else []
        names = [moved.get(place) or at.get(_pointer(sections, place)) for place in places]
        hierarchy[name] = tuple(base if isinstance(base, str) else at[base] for base in names if isinstance(base, str) or base in at)
    return hierarchy


def _relocated(sections: _Sections, tables: Mapping[int, list[_Symbol]]) -> dict[int, Any]:
    """The value that the loader writes at each address: a class's name for a symbol of type information, else an address."""
    written: dict[int, Any] = {}
    for index, section in enumerate(sections.all):
        if section[1] not in (_RELA, _REL):
            continue
        explicit = section[1] == _RELA
        form = sections.order + (("QQq" if explicit else "QQ") if sections.wide else ("IIi" if explicit else "II"))
        data = sections.content(index)
        symbols = tables.get(section[6], [])
        for place, info, *added in struct.iter_unpack(form, data[: len(data) - len(data) % struct.calcsize(form)]):
            number = info >> (32 if sections.wide else 8)
            if number and number < len(symbols):
                name = symbols[number].name
                if name.startswith("_ZTI"):
                    written[place] = name[4:]
            elif not number and added:
                written[place] = added[0]
    return written


def _pointer(sections: _Sections, address: int) -> int:
    """The pointer that the file itself has at an address; 0 if it has nothing there."""
    size = 8 if sections.wide else 4
    for index, section in enumerate(sections.all):
        if section[1] not in (0, _NOBITS) and section[3] and section[3] <= address <= section[3] + section[5] - size:
            data = sections.content(index)
            return int(struct.unpack_from(sections.order + ("Q" if sections.wide else "I"), data, address - section[3])[0])
    return 0


def overrides(function: str, hierarchy: Mapping[str, tuple[str, ...]], symbols: Iterable[str]) -> list[str]:
    """The linker's names of the functions that take the place of a virtual one (`ml::Model::train`) in classes below its own.

    hierarchy: the bases of each class, as `bases` has them, of all files.
    """
    scope, last = _scope_and_last(_plain(function))
    if not scope:
        return []
    below = {name for name in {*hierarchy, *(base for bases in hierarchy.values() for base in bases)} if _same(scope, _class(name))}
    own = set(below)
    while deeper := {name for name, bases in hierarchy.items() if name not in below and below.intersection(bases)}:
        below |= deeper
    names, word = {_class(name) for name in below - own}, _word(function)
    overriding = []
    for symbol in symbols if names else ():
        if word in symbol and not _MOVED_OUT.search(symbol):
            its_scope, its_last = _scope_and_last(_plain(_without_type(demangled(_CLONE.sub("", symbol)))))
            if its_scope in names and _same(last, its_last):
                overriding.append(symbol)
    return list(dict.fromkeys(overriding))


def _class(mangled: str) -> str:
    return _plain(demangled("_ZTI" + mangled)[len("typeinfo for ") :])


def _scope_and_last(name: str) -> tuple[str, str]:
    """A plain name's scopes, and its last part with its parameters: the last :: outside brackets parts the two."""
    ends = (place for place in _outside(name, len(_without_parameters(name))) if place and name[place - 1 : place + 1] == "::")
    place = next(ends, None)
    return ("", name) if place is None else (name[: place - 1], name[place + 1 :])


# -- names that are close


def suggestions(function: str, symbols: Iterable[str], most: int = 3) -> list[str]:
    """Names whose last part is close to the function's, or holds it, as they would be written. Those whose other parts are close too come first."""
    scope, last = _scope_and_last(_without_template(_without_parameters(_plain(function))))
    by_part: dict[str, list[str]] = {}
    for symbol in symbols:
        for part in _identifiers(symbol) if symbol.startswith("_Z") else (symbol,):
            by_part.setdefault(part, []).append(symbol)
    holding = {part for part in by_part if len(last) > 3 and last.lower() in part.lower()}
    close = holding.union(difflib.get_close_matches(last, by_part, _MOST_CLOSE, _CLOSE))
    ranks: dict[str, tuple[float, float, int]] = {}
    for symbol in {symbol for part in close for symbol in by_part[part]}:
        name = _without_parameters(_plain(_without_type(demangled(symbol))))
        its_scope, its_last = _scope_and_last(_without_template(name))
        if its_last in close:
            ranks[name] = (-_likeness(last, its_last), -_likeness(scope.split("::")[-1], its_scope.split("::")[-1]), len(name))
    return sorted(ranks, key=lambda name: (ranks[name], name))[:most]


_CLOSE, _MOST_CLOSE = 0.75, 100  # a word of five letters may have two of them swapped


def _likeness(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second).ratio()


def _identifiers(symbol: str) -> tuple[str, ...]:
    """The identifiers in a mangled name (Itanium C++ ABI: each is its length and then itself)."""
    identifiers: list[str] = []
    place = 2
    while match := _LENGTH.search(symbol, place):
        length = int(match[0])
        name = symbol[match.end() : match.end() + length]
        if length == 0 or len(name) < length:
            break
        identifiers.append(name)
        place = match.end() + length
    return tuple(identifiers)


_LENGTH = re.compile(r"\d{1,4}")


@lru_cache(maxsize=None)  # noqa: UP033  (Python 3.8)
def demangled(symbol: str) -> str:
    """A C++ name as people write it; the symbol itself if it is no C++ name or there is no C++ library here."""
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
