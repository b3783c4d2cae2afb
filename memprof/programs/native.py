"""memprof's own C: compiled on first use and kept in the cache. And how a program that measures a runtime without an interpreter is started.

The key in the cache is the content of all sources, the compiler's version and the machine, so that nothing stale is ever run. runners/native/runner.h
says which words the programs take.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from ..base import cache_folders, files
from ..base.cache import cache_folder
from ..base.errors import InputError, os_reason
from ..base.files import sha256_of
from ..base.runners import runners_path
from ..records.types import Job
from .runtimes import Runtime

_COMPILERS = ("cc", "gcc", "clang")
_PROGRAM = ("-std=gnu99", "-O2")
_LIBRARY = ("-std=gnu99", "-O3", "-shared", "-fPIC")
_LIBRARIES = ("-ldl",)
_PRELOAD = "LD_PRELOAD"
_TIMEOUT_S = 600  # zig compiles a C library the first time, which takes minutes on a busy machine
# deflate makes at most 1,032 bytes of a byte; entries that lie over one another, or another method, make more.
_MOST_UNPACKED = 1100


def argv(runtime: Runtime, job: Job, until: str | None = None) -> list[str] | None:
    """The words that start a job's child if its runtime has a native program, else None. until: the phase after which the job is done."""
    if runtime.native is None:
        return None
    words = [str(ready(runtime)), str(runtime.library), job.built or job.model.path, f"warmup={job.warmup}", f"runs={job.runs}"]
    words += [f"threads={job.threads}"] if job.threads else []
    words += [f"version={runtime.version}"]
    words += ["release=1"] if job.release else []
    words += [f"until={until}"] if until is not None else []
    words += [f"set.{name}={value}" for name, value in job.knobs.items()]
    words += [f"shape.{name}={','.join(map(str, shape))}" for name, shape in job.shapes.items()]
    words += [f"rows.{name}={rows}" for name, rows in job.ranges.items()]
    words += [f"value.{name}={value}" for name, value in job.values.items()]
    words += [f"input.{name}={path}" for name, path in _arrays(job.inputs).items()] if job.inputs else []
    return words


def check(runtime: Runtime, inputs: str | None) -> None:
    """Prepare all that a native runtime needs, so that its errors come before anything is measured. Raises InputError."""
    if runtime.native is not None:
        ready(runtime)
        if inputs is not None:
            _arrays(os.path.abspath(inputs))


def ready(runtime: Runtime) -> Path:
    """The runtime's program, compiled now if it was not before.

    Raises InputError if the wheel carries no library to open, if there is no compiler, or if the compiler fails.
    """
    assert runtime.native is not None
    if runtime.library is None:
        raise InputError(f"{runtime.name}: this package of {runtime.distribution} {runtime.version} carries no library that C could open")
    return compiled(runners_path() / "native" / runtime.native)


@cache
def compiled(source: Path, library: bool = False) -> Path:
    """The program, or the shared library, of a C source, from the cache if it was compiled before. Raises InputError."""
    flags = _LIBRARY if library else _PROGRAM
    compiler = _compiler(source.stem)
    try:
        texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    except OSError as error:
        raise InputError(f"{source}: {os_reason(error)}") from None
    facts = repr((texts, version(compiler), flags, _LIBRARIES, platform.machine()))
    program = cache_folder("native") / f"{source.stem}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    if not program.exists():
        make([compiler, *flags, f"-I{source.parent}"], [source], program, _LIBRARIES)
    return program


def preloaded(source: str, env: Mapping[str, str | None]) -> dict[str, str]:
    """The variable that preloads a library of runners/native/ into a child, before what its environment preloads already. Raises InputError."""
    library = compiled(runners_path() / "native" / source, library=True)
    return {_PRELOAD: " ".join(filter(None, [str(library), env.get(_PRELOAD, os.environ.get(_PRELOAD))]))}


def _compiler(program: str) -> str:
    chosen = os.environ.get("CC")
    for name in (chosen,) if chosen else _COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return path
    looked = chosen or " or ".join(_COMPILERS)
    raise InputError(f"{program} is compiled on first use, and there is no C compiler here ({looked}): apt install gcc, or set CC")


@cache
def version(*compiler: str) -> bytes:
    """What a compiler, with the words that it is started with, says of itself. Raises InputError where it does not answer."""
    try:
        return subprocess.run(
            [*compiler, "--version"], capture_output=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"the C compiler {compiler[0]} does not answer: {error}") from None


def make(compiler: Sequence[str], sources: Sequence[Path], program: Path, libraries: Sequence[str] = ()) -> None:
    """Compile the sources into a program. Raises InputError, with the first of the compiler's complaints."""
    name = sources[0].name if len(sources) == 1 else program.name
    try:
        with files.drafts(program) as (draft,):  # another memprof may be doing the same
            command = [*compiler, "-o", str(draft), *map(str, sources), *libraries]
            process = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
            if process.returncode != 0:
                lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
                first = next((line for line in lines if "error:" in line), lines[0] if lines else f"exit code {process.returncode}")
                raise InputError(f"{name} cannot be compiled with {compiler[0]}: {first}")
    except OSError as error:
        raise InputError(f"{program} cannot be written: {os_reason(error)}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{compiler[0]} did not compile {name} within {_TIMEOUT_S} s") from None


# -- inputs


@cache
def _arrays(path: str) -> dict[str, str]:
    """The arrays of an .npz file (a zip of .npy files) as separate files, by name. Raises InputError."""
    try:
        folder = cache_folder(cache_folders.INPUTS) / sha256_of(Path(path))[0][:32]
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            if sum(archive.getinfo(name).file_size for name in names) > _MOST_UNPACKED * os.path.getsize(path):
                raise InputError(f"{path} cannot be read as .npz: its arrays are larger than what such a file can hold")
            if not folder.exists():
                with cache_folders.whole(folder) as work:
                    for index, name in enumerate(names):
                        with archive.open(name) as member, (work / f"{index}.npy").open("wb") as target:
                            shutil.copyfileobj(member, target)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path} cannot be read as .npz: {error}") from None
    return {name.removesuffix(".npy"): str(folder / f"{index}.npy") for index, name in enumerate(names)}
