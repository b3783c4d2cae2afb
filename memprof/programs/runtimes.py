"""The runtimes of an interpreter: their versions and knobs, and whether a knob takes a user's value.

The interpreter itself is asked in a short process (`runners describe`), because a runtime may live in another environment than memprof's.
"""

from __future__ import annotations

import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ..base.errors import InputError, UsageError, near, near_or_all, os_reason
from ..base.runners import runners_path
from ..base.units import parse_bytes
from ..models.identity import check_kind
from . import environments

# The extras of pyproject.toml, and the last Python (3.x) for which a runtime has a package; None if it has packages for all.
_EXTRAS = {
    "onnxruntime": None,
    "tflite": 11,
    "litert": None,
    "onert": 12,
    "tvm": None,
    "openvino": None,
    "llamacpp": None,
    "ncnn": None,
    "mnn": None,
    "tflite_micro": None,
    "ctranslate2": None,
}
# Too large to stand beside others, or at odds with them: they live in environments that memprof makes.
_APART = ("torch", "executorch", "genai")
_NATIVE = "-native"  # runtimes of the same package, measured without an interpreter
BUILD_COMMAND = "memprof-build"  # the file in an environment that has the build command which has filled it


class Knob(Struct, frozen=True):
    """One setting of a runtime: its values, and when it acts (build, env or load). env says which variables carry it.

    tries: if the values are a type, those that a search tries. needs: the value that another knob must have, by its name, where this one does
    not have its default. bounds: what its value counts where that is the most that a cache holds, None where it bounds none. call: see
    runners/runtimes/__init__.py.
    """

    name: str
    values: str | tuple[str, ...]
    default: str | None
    acts: str
    meaning: str
    env: str | Mapping[str, Mapping[str, str]] | None = None
    tries: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict)
    bounds: Literal["bytes", "entries"] | None = None
    call: str | Mapping[str, str] | None = None

    def check(self, text: str) -> str:
        """The value in the form that the runtime's side reads: sizes as plain bytes, paths absolute.

        Raises UsageError for a value it cannot have, InputError for a file that is not there.
        """
        if self.values == "bytes":
            return str(parse_bytes(text))
        if self.values == "int":
            if not text.isdigit():
                raise UsageError(f"{self.name}={text}: {self.name} takes a whole number{self._apart(text)}")
            return text
        if self.values == "file":
            if not os.path.isfile(text):
                raise InputError(f"{self.name}={text}: no such file")
            return os.path.abspath(text)
        if self.values == "path":
            return os.path.abspath(text)
        if isinstance(self.values, tuple) and text not in self.values:
            raise UsageError(f"{self.name}={text}: {self.name} takes {'|'.join(self.values)}{near(text, self.values) or self._apart(text)}")
        return text

    def _apart(self, text: str) -> str:
        """A hint for several settings that were given as one, as a variant's are; empty for others."""
        words = f"{self.name}={text}".split(",")
        if len(words) == 1 or any("=" not in word for word in words):
            return ""
        return f"; give each its own option: {' '.join(f'--set {word}' for word in words)}"

    def variables(self, value: str) -> Mapping[str, str]:
        """The environment that carries a checked value."""
        if isinstance(self.env, str):
            return {self.env: value}
        return dict(self.env.get(value, {})) if self.env else {}

    def in_program(self, value: str) -> str:
        """What a program writes for a value, in the runtime's own words, as they are declared where the value may be any; empty where it has none."""
        if self.call is None:
            pairs = self.variables(value).items()
            return f"{' '.join(f'{name}={text}' for name, text in pairs)} in the environment" if pairs else ""
        text = self.call if isinstance(self.call, str) else self.call.get(value, "")
        return text.replace("{value}", value).replace("{flag}", str(value == "on"))

    @property
    def calls(self) -> Mapping[str, str]:
        """The words for each of its values that a program writes any for; of values that are a type, the words for that."""
        values = self.values if isinstance(self.values, tuple) else (self.shown_values,)
        return {value: text for value in values if (text := self.in_program(value))}

    def needed(self, value: str) -> Mapping[str, str]:
        """The values that other knobs must have where this one has this value."""
        return {} if value == self.default else self.needs

    def candidates(self) -> tuple[str, ...]:
        """The values that a search tries beside the default."""
        values = self.values if isinstance(self.values, tuple) else self.tries
        return tuple(value for value in values if value != self.default)

    @property
    def shown_values(self) -> str:
        """The values as a person reads them."""
        words = {"int": "NUMBER", "bytes": "SIZE", "path": "PATH", "file": "FILE", "text": "TEXT"}
        return words[self.values] if isinstance(self.values, str) else "|".join(self.values)


class Runtime(Struct, frozen=True):
    """A runtime as one interpreter has it; version is None if it is not installed.

    native: the C program that is started in place of the interpreter. library: the shared library that it opens. See memprof.programs.native.
    always_builds: any model is converted first; converts: the endings of the model files that are. no_converter: why
    that cannot be done here, None if it can.
    bytes: the size of its package's files. prefix: the environment it is in. signature: whether it takes inputs that
    memprof makes. needs, without_wheels, doubling, reshapes, one_shape, env, threads_call: see runners/runtimes/__init__.py.
    """

    name: str
    distribution: str | None = None
    version: str | None = None
    formats: tuple[str, ...] = ()
    knobs: tuple[Knob, ...] = ()
    always_builds: bool = False
    converts: tuple[str, ...] = ()
    no_converter: str | None = None
    build_uses: tuple[str, ...] = ()
    default_threads: int | None = None
    threads_env: str | None = None
    threads_call: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    python: str = ""
    native: str | None = None
    library: str | None = None
    bytes: int | None = None
    prefix: str = ""
    needs: tuple[str, ...] = ()
    without_wheels: tuple[str, ...] = ()
    doubling: str | None = None
    reshapes: bool = True
    one_shape: str | None = None
    signature: bool = True

    @property
    def installed(self) -> bool:
        """Whether it can be used."""
        return self.version is not None

    def knob(self, name: str) -> Knob | None:
        """The knob of that name."""
        return next((knob for knob in self.knobs if knob.name == name), None)

    def in_program(self, settings: Mapping[str, str]) -> tuple[str, ...]:
        """What a program writes for these settings, knobs and `threads`, each in the runtime's own words; without those that have none."""
        words = [knob.in_program(knob.check(value)) for name, value in settings.items() if (knob := self.knob(name)) is not None]
        if (count := settings.get("threads")) is not None:
            by_env = f"{self.threads_env}={{value}} in the environment" if self.threads_env else ""
            words.append((self.threads_call or by_env).replace("{value}", count))
        return tuple(filter(None, words))

    def lacks(self, knobs: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
        """For each value that acts only beside another, and has not got it: its knob, the other knob, and the sentence."""
        for name, value in knobs.items():
            knob = self.knob(name)
            for other, wanted in knob.needed(value).items() if knob is not None else ():
                beside = self.knob(other)
                if beside is not None and knobs.get(other, beside.default) != wanted:
                    yield name, other, f"{self.name}: {name}={value} needs {other}={wanted}"

    def arena_doubles(self, knobs: Mapping[str, str]) -> bool:
        """Whether with these settings it takes memory in regions that double, so that it grows in steps."""
        return self.doubling is not None and knobs.get(self.doubling) != "off"

    def takes(self, path: str) -> bool:
        """Whether a model's name ends in a way this runtime reads, or it is a folder that holds what this runtime looks for."""
        if os.path.isdir(path):
            return not self.formats or any(form[0] == "/" and os.path.exists(path + form) for form in self.formats)
        return not self.formats or _ending(path) in self.formats

    def check_file(self, path: str) -> None:
        """Raises InputError for a file that is something else than its ending says. A user's own runtime may read what it likes."""
        if self.distribution is not None:
            check_kind(path)

    def builds(self, path: str) -> bool:
        """Whether this model is converted with any settings before it can be loaded."""
        return self.always_builds or self.converted(path)

    def converted(self, path: str) -> bool:
        """Whether this model is converted to another format, which may have other names."""
        return _ending(path) in self.converts

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the files it takes as a person reads them; none if it takes any file."""
        return tuple(f"a folder with {ending[1:]}" if ending[0] == "/" else ending for ending in self.formats)

    @property
    def package(self) -> str:
        """The runtime whose package it is: a runtime without an interpreter is measured from the same."""
        return self.name.removesuffix(_NATIVE)

    @property
    def how_to_install(self) -> str:
        """The command that installs it, or why there is none."""
        name = self.package
        if name in _APART:
            return f"memprof runtimes install {name}"
        last = _EXTRAS.get(name)
        if last is not None and self.python and int(self.python.split(".")[1]) > last:
            return f"there is no package for Python {self.python}; the last one is for 3.{last} (--python takes another interpreter)"
        if name in _EXTRAS:
            return f"pip install 'ml-memprof[{name}]'"
        return f"pip install {self.distribution}" if self.distribution else ""


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


class _Described(msgspec.Struct):
    python: str
    runtimes: list[Runtime]


# Where distributions put other allocators.
_ALLOCATORS = ("libjemalloc.so*", "libtcmalloc_minimal.so*", "libmimalloc.so*")
_FOLDERS = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")


def values_to_try(knob: Knob) -> tuple[str, ...]:
    """The values of a knob to try on this machine beside its default."""
    return allocators() if knob.name == "preload" else knob.candidates()


def allocators() -> tuple[str, ...]:
    """Shared libraries of other allocators on this machine, the first of each kind."""
    libraries = []
    for pattern in _ALLOCATORS:
        paths = sorted(path for folder in _FOLDERS for path in glob.glob(f"{folder}/{pattern}"))
        libraries += paths[:1]
    return tuple(libraries)


def interpreter(path: str | None) -> str:
    """The interpreter to use: the given one, looked up on PATH if it is only a name, or the interpreter that runs memprof.

    Raises InputError if there is no such interpreter.
    """
    if path is None:
        return sys.executable
    executable = shutil.which(os.path.expanduser(path))
    if executable is None:
        raise InputError(f"python {path}: no such interpreter")
    return os.path.abspath(executable)


class RuntimeHost(Protocol):
    """A machine that lists its runtimes. name: as the user wrote it."""

    @property
    def name(self) -> str: ...

    def __hash__(self) -> int: ...

    def interpreter(self, path: str | None) -> str:
        """The interpreter to use there: the given one, or the machine's own. Raises InputError if there is none."""

    def runners(self) -> str:
        """The path there of the measured side's programs. Raises InputError."""

    def file(self, path: str) -> str:
        """The path there of a file that is here, which is sent if it was not yet. Raises InputError."""

    def run(self, words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        """Run a program there to its end, without input. Raises OSError, InputError and subprocess.TimeoutExpired."""


class ThisMachine:
    """The machine that memprof runs on."""

    name = "here"

    def interpreter(self, path: str | None) -> str:
        return interpreter(path)

    def runners(self) -> str:
        return str(runners_path())

    def file(self, path: str) -> str:
        return path

    def run(self, words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(list(words), capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False)


_THIS_MACHINE = ThisMachine()


def describe(python: str, user_file: str | None = None, machine: RuntimeHost = _THIS_MACHINE) -> tuple[Runtime, ...]:
    """The runtimes of an interpreter, or the runtime in a user's file. Raises InputError if the interpreter does not answer."""
    # Each is asked once, however this machine is called: `cache` takes a default that is left out for another call than one that is written.
    return _answered(python, user_file, _THIS_MACHINE if machine.name == _THIS_MACHINE.name else machine)


@cache
def _answered(python: str, user_file: str | None, machine: RuntimeHost) -> tuple[Runtime, ...]:
    command = [python, machine.runners(), "describe", *([machine.file(user_file)] if user_file else [])]
    try:
        # Run by path: sys.path then begins with the script's folder and not with the working folder, whose files could be taken for modules.
        process = machine.run(command, 120)
    except OSError as error:
        raise InputError(f"{python} cannot be started: {os_reason(error)}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{python} did not say within 120 s which runtimes it has") from None
    try:
        answer = msgspec.json.decode(process.stdout.splitlines()[-1], type=_Described)
    except (IndexError, msgspec.DecodeError):
        lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InputError(f"{python} is not a usable Python 3.8 or later: {lines[-1] if lines else 'it printed nothing'}") from None
    return tuple(replace(runtime, python=answer.python) for runtime in answer.runtimes)


def forget() -> None:
    """Ask each interpreter again: somebody may have installed what it lacked."""
    _answered.cache_clear()


def described(name: str) -> Runtime:
    """What memprof knows of a runtime by its name, installed or not: for runs that were measured elsewhere. Nothing is known of a user's own."""
    return next((runtime for runtime in describe(sys.executable) if runtime.name == name), Runtime(name))


def native_twin(name: str, python: str) -> str | None:
    """The runtime of the same package that is measured without an interpreter on this machine, None if there is none that can be used."""
    twins = (runtime for runtime in describe(python) if runtime.name == name + _NATIVE and runtime.installed)
    return next((runtime.name for runtime in twins), None)


def named(name: str, python: str, machine: RuntimeHost = _THIS_MACHINE) -> Runtime:
    """The runtime of that name, installed or not. Raises UsageError for an unknown name."""
    known = {runtime.name: runtime for runtime in describe(python, None, machine)}
    if name not in known:
        own = f"; your own is named by its path: -r ./{name}.py" if Path(f"{name}.py").is_file() else ""
        raise UsageError(f"there is no runtime {name!r}{own or near_or_all(name, known)}")
    return known[name]


def _of_build(command: str, install: str) -> str:
    """What says that an environment, which a build command has filled, lacks a package. install: the command that installs it."""
    both = json.dumps(install if command == "true" else f"{command} && {install}")
    return f"in the environment that [build] fills with command = {json.dumps(command)}: command = {both} installs it too"


def find(name: str, python: str, machine: RuntimeHost = _THIS_MACHINE) -> Runtime:
    """The runtime of that name, or in that file, ready for use.

    Raises UsageError for an unknown name, InputError for a runtime that is not installed or a file that cannot be used.
    """
    if name.endswith(".py") or os.sep in name:
        if not os.path.isfile(name):
            raise InputError(f"runtime {name}: no such file")
        (runtime,) = describe(python, os.path.abspath(name), machine)
        if runtime.error:
            raise InputError(f"runtime {name}: {runtime.error}")
        return replace(runtime, name=os.path.abspath(name))
    runtime = named(name, python, machine)
    if not runtime.installed:
        how = runtime.how_to_install
        elsewhere = "" if machine.name == _THIS_MACHINE.name else f" on {machine.name}"
        # That environment need not have memprof, whose extra it would be; and memprof's own environments are of no use to it.
        if (elsewhere or python != sys.executable) and how.startswith(("pip ", "memprof ")):
            built = Path(python).parent.with_name(BUILD_COMMAND)
            if not elsewhere and built.is_file():
                raise InputError(f"{name} is not {_of_build(built.read_text('utf-8'), f'pip install {runtime.distribution}')}")
            how = f"{shlex.quote(python)} -m pip install {runtime.distribution}"
        raise InputError(f"{name} is not installed for {python}{elsewhere}: {how}")
    return runtime


def convert(name: str, model: Path, folder: Path, variables: Mapping[str, str]) -> Path:
    """A model as this runtime loads it, converted into the folder with the runtime's defaults, in the environment that has it. variables: for the
    environment of the converter.

    Raises InputError if the runtime is not installed or its converter refuses.
    """
    runtime, python = located(name, None)
    if runtime.no_converter:
        raise InputError(runtime.no_converter)
    job = {"runtime": name, "model": str(model), "folder": str(folder)}
    command = [python, str(runners_path()), "build"]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, input=json.dumps(job).encode() + b"\n", capture_output=True, env=environment, check=False)
    try:
        answer = json.loads((folder / "built.json").read_bytes())
    except (OSError, ValueError):
        raise InputError(f"{name}: converting {model.name} ended with exit code {done.returncode}") from None
    if "error" in answer:
        raise InputError(f"{name}: {answer['error']}")
    return folder / str(answer["path"])


def located(name: str, python: str | None, machine: RuntimeHost = _THIS_MACHINE) -> tuple[Runtime, str]:
    """The runtime of that name, in that file, or `NAME@VERSION`, ready for use, and the interpreter that has it.

    If no interpreter is named, a runtime with a version is looked for among the environments that memprof made, then in memprof's own;
    without a version the other way round. Raises as `find` does.
    """
    runtime, at, version = (name, "", "") if name.endswith(".py") or os.sep in name else name.partition("@")
    if at and not version:
        raise UsageError(f"{name!r} names no version: write {runtime}@VERSION")
    if at and machine.name != _THIS_MACHINE.name:
        raise UsageError(
            f"{name}: memprof keeps versions on this machine, not on {machine.name}: python in a suite, or --python, names an interpreter there"
        )
    if python is not None or machine.name != _THIS_MACHINE.name:
        chosen = machine.interpreter(python)
        described = find(runtime, chosen, machine)
        if at and not environments.is_of(str(described.version), version):
            raise InputError(f"{chosen} has {runtime} {described.version}, not {version}")
        return described, chosen
    own = sys.executable
    known = next((each for each in describe(own) if each.name == runtime), None)
    if known is None or (known.installed and not at) or known.distribution is None:
        if known is not None and at and known.distribution is None:
            raise UsageError(f"{name!r}: {runtime} is memprof's own and has no versions")
        return find(runtime, own), own
    # What a search made with other packages beside the runtime is of that search alone.
    made = [each for each in environments.of(known.package, version or None) if each.kept or not each.requirements]
    if made:
        chosen = environments.use(made[0])
        return find(runtime, chosen), chosen
    if not at or (known.installed and environments.is_of(str(known.version), version)):
        return find(runtime, own), own
    there = [each.version for each in environments.of(known.package)]
    if known.installed:
        there.insert(0, f"{known.version} beside memprof")
    has = f" (there is {', '.join(there)})" if there else ""
    raise InputError(
        f"{known.package} {version} is in no environment of memprof's{has}: memprof runtimes install {known.package}=={version}"
    )


def unknown_knob(name: str, runtimes: Sequence[Runtime]) -> UsageError:
    """The error for a knob that none of these runtimes has."""
    known = sorted({knob.name for runtime in runtimes for knob in runtime.knobs})
    owners = " nor ".join(sorted({os.path.basename(runtime.name) for runtime in runtimes}))
    verb = "neither " if " nor " in owners else ""
    return UsageError(f"{verb}{owners} has {'a' if verb else 'no'} knob {name!r}{near(name, known) or '; memprof runtimes lists them'}")
