"""Phases by the names of functions, for a program nobody has changed: the checks beforehand, and the command that starts it under gdb.

What happens inside gdb stands in runners/native/symbols.py. Here a function's name as written in the source (`nnfw_run`, `ml::Model::load`,
`ml::Model::load(int)`, `ml::prepare<float>`) is looked for in the symbol tables of the program and of the libraries it is linked to, so that
a misspelt one is said before anything runs. A program that opens libraries itself (dlopen) may get the function from one of those: then gdb
waits for it, and says at the end if it never came.

ELF as in elf(5); names are demangled by the C++ library's own __cxa_demangle, where there is one.
"""

from __future__ import annotations

import ctypes
import difflib
import json
import os
import platform
import re
import shutil
import stat
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import InputError, UsageError, near, os_reason
from .runtimes import runners_path

_OTHERS = "marks (memprof.h) or --phase-regex give phases without it"
_PHASE = re.compile(r"[A-Za-z0-9_.:-]+")
_USUAL = {"load": "MODEL_LOAD", "prepare": "PREPARE", "warmup": "WARMUP", "execute": "EXECUTE"}
_LEAST_SHEBANG = 2


def parse_phase(text: str) -> tuple[str, str]:
    """`load=nnfw_load_model_from_file` as (phase, function); load, prepare, warmup and execute are memprof's own phases. Raises UsageError."""
    name, equals, function = text.partition("=")
    if not equals or not _PHASE.fullmatch(name) or not function.strip():
        raise UsageError(f"--phase {text!r}: write NAME=FUNCTION, such as load=nnfw_load_model_from_file")
    return _USUAL.get(name, name), " ".join(function.split())


def wrap(argv: Sequence[str], phases: Mapping[str, str] | Sequence[tuple[str, str]], *, cwd: str | None = None) -> tuple[str, ...]:
    """The command that runs `argv` under gdb, which says when these functions are entered and left.

    phases: function by phase; a phase may have several. Raises InputError where gdb is missing or may not trace, where the command cannot be
    found, or where it is known that it has no such function.
    """
    wanted = list(phases.items()) if isinstance(phases, Mapping) else list(phases)
    gdb = _gdb()
    _may_trace()
    command = _command(argv, cwd)
    program = _read(Path(command[0]))
    _runs_here(command[0], program)
    orders = [(phase, function, _locations(function, program, command)) for phase, function in wanted]
    text = json.dumps({"phases": orders})
    script = runners_path() / "native" / "symbols.py"
    return (gdb, "-nx", "-batch", "-ex", f"python MEMPROF = {text!r}", "-x", str(script), "--args", *command)


# -- what must be there


def _gdb() -> str:
    path = shutil.which("gdb")
    if path is None:
        raise InputError(f"--phase needs gdb, which is not installed; {_OTHERS}")
    if not _has_python(path):
        raise InputError(f"--phase needs a gdb with Python, which {path} is not; {_OTHERS}")
    return path


@cache
def _has_python(gdb: str) -> bool:
    try:
        command = [gdb, "-nx", "-batch", "-ex", "python print('py' + 'thon')"]
        done = subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"python" in done.stdout


def _may_trace() -> None:
    """Raises InputError where one process may not trace another: Yama's setting, or a container's filter of system calls."""
    try:
        trace = ctypes.CDLL(None, use_errno=True).ptrace
    except (OSError, AttributeError):
        return
    child = os.fork()
    if child == 0:
        os._exit(0 if trace(0, 0, None, None) == 0 else min(ctypes.get_errno(), 255) or 1)  # PTRACE_TRACEME
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        try:
            scope = Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip()
        except OSError:
            scope = ""
        why = f"kernel.yama.ptrace_scope is {scope}" if scope in ("2", "3") else f"ptrace: {os.strerror(code)}"
        raise InputError(f"--phase needs gdb, which may not trace a program here ({why}); {_OTHERS}")


def _command(argv: Sequence[str], cwd: str | None) -> list[str]:
    """The command as the kernel would run it: the program's path in full, and a script's interpreter before it. Raises InputError."""
    name = argv[0]
    path = os.path.join(cwd or "", name) if os.sep in name else shutil.which(name)
    if path is None or not os.path.exists(path):
        raise InputError(f"{name}: no such command")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise InputError(f"{name} is not executable")
    mode = os.stat(path).st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise InputError(f"{name} is setuid or setgid, and under gdb the kernel starts it without that right; {_OTHERS}")
    path = os.path.abspath(path)
    try:
        with open(path, "rb") as file:
            first = file.readline(4096)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {os_reason(error)}") from None
    if first.startswith(b"#!"):
        words = os.fsdecode(first[2:]).strip().split(None, 1)
        if words and words[0] != path:
            return _command([*words, path, *argv[1:]], None)
    return [path, *argv[1:]]


def _runs_here(path: str, program: Elf | None) -> None:
    if program is None:
        raise InputError(f"{path} is no program that gdb could start: it is no ELF file")
    machine = platform.machine()
    if machine in _MACHINES and program.machine not in _MACHINES[machine]:
        built = next((name for name, numbers in _MACHINES.items() if program.machine in numbers), f"machine {program.machine}")
        raise InputError(f"{path} is built for {built}, and this is {machine}")


# e_machine of what a kernel of that name runs: EM_386 3, EM_X86_64 62, EM_ARM 40, EM_AARCH64 183, EM_RISCV 243.
_MACHINES = {"x86_64": (62, 3), "aarch64": (183, 40), "armv7l": (40,), "i686": (3,), "riscv64": (243,)}


# -- finding functions


def _locations(function: str, program: Elf | None, command: Sequence[str]) -> list[str]:
    """How gdb is asked for a function: by the names the linker knows where they are known now, by its own name where it may come later."""
    assert program is not None
    files = [program, *_libraries(program)]
    found = list(dict.fromkeys(symbol for file in files for symbol in matching(function, file.functions)))
    if found:
        return [f"-qualified -function {symbol}" for symbol in found]
    if any("dlopen" in file.wanted for file in files if not _is_system(file.path)):
        return [f"-function {function}" if "::" in function else f"-qualified -function {function}"]
    close = suggestions(function, (name for file in files if not _is_system(file.path) for name in file.functions))
    where = f"{os.path.basename(command[0])} and the {len(files) - 1} libraries it is linked to"
    if close:
        raise InputError(f"--phase: there is no function {function} in {where}; did you mean {' or '.join(close)}?")
    if program.stripped:
        raise InputError(f"--phase: there is no function {function} in {where}: {program.path} is stripped, only what it exports has a name")
    raise InputError(f"--phase: there is no function {function} in {where}; the compiler may have inlined it everywhere")


def _is_system(path: Path) -> bool:
    """Whether a library is the C or C++ library's own: it opens libraries for others, and its names are no suggestions."""
    return path.name.startswith(("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libstdc++.", "libgcc_s.", "libc++", "ld-"))


def matching(function: str, symbols: Iterable[str]) -> list[str]:
    """The linker's names of the functions that are written so: a qualified name may lack its first scopes, and without parameters or
    template arguments all overloads and instances are meant."""
    word = _word(function)
    wanted = _spaceless(function)
    found = []
    for symbol in symbols:
        if word not in symbol:
            continue
        bare = _CLONE.sub("", symbol)
        if bare == function:
            found.append(symbol)
        elif bare.startswith("_Z") and _CLONE_LEFT_OUT.search(symbol) is None and _same(wanted, _spaceless(demangled(bare))):
            found.append(symbol)
    return found


# What GCC and LLVM add to the name of a copy of a function; a part that was moved out of it (.part, .cold) has no entry of its own.
_CLONE = re.compile(r"\.(constprop|isra|lto_priv|llvm|localalias)(\.\d+)*$|\.(constprop|isra|lto_priv)\..*$")
_CLONE_LEFT_OUT = re.compile(r"\.(part|cold)\b")


def _same(wanted: str, name: str) -> bool:
    """Whether a demangled name is the wanted one, both without spaces."""
    for candidate in {name, _without_parameters(name), _without_template(_without_parameters(name))}:
        if candidate == wanted:
            return True
        if candidate.endswith(wanted) and (candidate[: -len(wanted)].endswith("::") or _only_a_type(candidate[: -len(wanted)], name)):
            return True
    return False


def _only_a_type(head: str, name: str) -> bool:
    # Of a template's instance the mangled name holds the return type, which stands before its name: `int ml::prepare<int>(int)`.
    return "<" in name and "::" not in head[-1:] and bool(re.fullmatch(r"[\w:<>,*&\[\]]+", head)) and head.rstrip("*&") in _RETURN_TYPES


_RETURN_TYPES = ("void", "bool", "char", "int", "unsignedint", "long", "unsignedlong", "float", "double", "short", "auto", "decltype(auto)")


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


def _spaceless(name: str) -> str:
    return name.replace(" ", "").removesuffix("const") if name.endswith(") const") else name.replace(" ", "")


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


@cache
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


@cache
def _demangler() -> ctypes._NamedFuncPointer | None:
    for name in ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"):
        try:
            call = ctypes.CDLL(name).__cxa_demangle
        except (OSError, AttributeError):
            continue
        call.restype = ctypes.c_void_p
        return call
    return None


# -- ELF


@dataclass(frozen=True)
class Elf:
    """What an ELF file says: the functions it has and the ones it wants from elsewhere, by the linker's names, and the libraries it needs."""

    path: Path
    machine: int
    functions: tuple[str, ...]
    wanted: frozenset[str]
    needed: tuple[str, ...]
    search: tuple[str, ...]
    stripped: bool


def _read(path: Path) -> Elf | None:
    try:
        return read_elf(path)
    except (OSError, struct.error, IndexError, ValueError, OverflowError):
        return None


def read_elf(path: Path) -> Elf:
    """An ELF file's symbols and needs. Raises ValueError or struct.error where it is none or is damaged, OSError where it cannot be read."""
    with path.open("rb") as file:
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
                    functions.setdefault(name) if defined else wanted.add(name)
            elif kind == _DYNAMIC:
                names = content(link)
                for tag, value in struct.iter_unpack(order + ("QQ" if wide else "II"), content(index)):
                    if tag == _DT_NEEDED:
                        needed.append(_text(names, value))
                    elif tag in (_DT_RPATH, _DT_RUNPATH):
                        search += _text(names, value).replace("$ORIGIN", str(path.parent)).replace("${ORIGIN}", str(path.parent)).split(":")
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


def _libraries(program: Elf) -> list[Elf]:
    """The libraries a program is linked to, and theirs, as far as they are found where the loader would look first."""
    found: dict[str, Elf] = {}
    todo = [program]
    while todo:
        for file in [todo.pop()]:
            folders = [*file.search, *os.environ.get("LD_LIBRARY_PATH", "").split(":"), *program.search, *_system_folders()]
            for name in file.needed:
                if name in found:
                    continue
                paths = (Path(folder, name) for folder in folders if folder)
                library = next((elf for path in paths if path.is_file() and (elf := _read(path)) and elf.machine == program.machine), None)
                if library is not None:
                    found[name] = library
                    todo.append(library)
    return list(found.values())


@cache
def _system_folders() -> tuple[str, ...]:
    folders = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"]
    for base in ("/lib", "/usr/lib"):
        folders += [str(path) for path in Path(base).glob("*-linux-*") if path.is_dir()]
    for note in sorted(Path("/etc/ld.so.conf.d").glob("*.conf")) if os.path.isdir("/etc/ld.so.conf.d") else []:
        try:
            folders += [line.strip() for line in note.read_text().splitlines() if line.strip().startswith("/")]
        except OSError:
            continue
    return tuple(dict.fromkeys(folders))
