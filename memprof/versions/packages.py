"""The packages whose releases are searched: of an index of Python's, by pip, or of npm's registry, by npm."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import UsageError
from ..programs import environments, runtimes
from ..programs.environments import Environment
from ..programs.runtimes import Runtime
from ..subjects.suite import Variant
from . import installation, pip
from .npm import PREFIX, NodePackage
from .pip import Listed

Say = Callable[[str], None]


class Package(Protocol):
    """A package, each release in an environment of its own. name: of its environments. distribution: its name in the registry. tool: what asks that.
    beside: requirements that stay as they are."""

    @property
    def name(self) -> str: ...
    @property
    def distribution(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def beside(self) -> tuple[str, ...]: ...

    def facts(self) -> Mapping[str, str]:
        """The other conditions of its figures, by a name for people. Raises InputError."""

    def versions(self, pre: bool) -> Listed:
        """Its versions, the newest first. pre: pre-releases too. Raises InputError if they cannot be told."""

    def ensure(self, version: str, say: Say) -> Environment:
        """See installation.ensure."""

    def variables(self, environment: Environment) -> dict[str, str | None]:
        """The variables by which a program finds what is in an environment, None for those that it must not have."""


class PythonPackage(Struct, frozen=True):
    """A package that pip installs. python: the interpreter of the environments, None for memprof's own."""

    package: installation.PipPackage
    beside: tuple[str, ...] = ()
    python: str | None = None
    tool = "pip"

    @property
    def name(self) -> str:
        return self.package.name

    @property
    def distribution(self) -> str:
        return self.package.distribution

    @property
    def _interpreter(self) -> str:
        return runtimes.interpreter(self.python)

    def facts(self) -> Mapping[str, str]:
        if self._interpreter == sys.executable:
            return {"Python": sys.version}
        return {"Python": runtimes.describe(self._interpreter)[0].python}

    def versions(self, pre: bool) -> Listed:
        return pip.versions(self._interpreter, self.distribution, pre)

    def ensure(self, version: str, say: Say) -> Environment:
        return installation.ensure(self.package, version, say, python=self.python, beside=self.beside)

    def variables(self, environment: Environment) -> dict[str, str | None]:
        """As the environment's own `activate` has them."""
        return {**environments.activated(environment.folder), "PYTHONHOME": None}


def without_version(runtime: str) -> str:
    """The name of `NAME@VERSION`, or the path of a runtime's file."""
    return runtime if runtime.endswith(".py") else runtime.partition("@")[0]


def inside(variant: Variant, package: Package, environment: Environment) -> Variant:
    """The variant, measured in an environment of a package."""
    if variant.command is not None:
        return replace(variant, command=replace(variant.command, surroundings=package.variables(environment)))
    return replace(variant, runtime=without_version(variant.runtime), python=environment.interpreter)


def runtime_of(name: str) -> Runtime | None:
    """The runtime whose package has this name, or which has it itself; None if there is none. Raises UsageError for one without a package."""
    for runtime in runtimes.describe(sys.executable):
        known = runtime.distribution is not None and installation.canonical(runtime.distribution) == installation.canonical(name)
        if runtime.name == name or (known and runtime.name == runtime.package):
            return installation.known(runtime.name)
    return None


def parse(name: str, runtime: str | None, beside: Sequence[str], python: str | None) -> Package:
    """The package of `NAME` or `npm:NAME`. runtime: what measures it, as -r has it, None for a program. beside: the other packages of its
    environments.

    Raises UsageError.
    """
    if name.startswith(PREFIX):
        if runtime is not None:
            raise UsageError(f"--package {name} is measured by a program: -- node WORD...")
        return NodePackage.parse(name, beside)
    own = runtime_of(name)
    package = installation.PipPackage.of(own) if own is not None else _other(name)
    for text in beside:
        if installation.canonical(text) == installation.canonical(package.distribution):
            raise UsageError(f"--with {text}: that is the package whose versions are searched")
    if runtime is not None and not runtime.endswith(".py"):
        package, beside = _with_runtime(package, runtime, beside)
    return PythonPackage(package, tuple(beside), python)


def _other(name: str) -> installation.PipPackage:
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) is None:
        raise UsageError(f"--package {name!r}: write NAME or npm:NAME")
    return installation.PipPackage(installation.canonical(name), name)


def _with_runtime(package: installation.PipPackage, runtime: str, beside: Sequence[str]) -> tuple[installation.PipPackage, Sequence[str]]:
    """The package, and requirements, with those of a runtime that measures it."""
    name, version = installation.parse(runtime)
    measuring = installation.PipPackage.of(installation.known(name))
    if measuring.distribution == package.distribution:
        if version is not None:
            raise UsageError(f"-r {runtime}: the releases of {package.name} are searched; write -r {name}")
        return package, beside
    said = {installation.canonical(text) for text in beside}
    if installation.canonical(measuring.distribution) in said and version is not None:
        raise UsageError(f"-r {runtime} and --with {measuring.distribution}: the version of {name} is given twice")
    pinned = "" if version is None else f"=={version}.*" if environments.is_line(version) else f"=={version}"
    needed = (f"{measuring.distribution}{pinned}", *measuring.needs)
    beside = (*beside, *(text for text in needed if installation.canonical(text) not in said))
    if package.runtime is None:
        package = replace(package, without_wheels=measuring.without_wheels, runtime=measuring.name)
    return package, beside
