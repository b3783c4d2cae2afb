"""What `memprof runtimes` says of each runtime: where it is, in which versions and sizes, and which newer versions pip knows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import asdict, replace

from ..base.units import format_bytes
from ..programs import environments, runtimes
from ..programs.environments import Environment
from ..programs.runtimes import Runtime
from . import pip


class RuntimeRow(Runtime, frozen=True):
    """A runtime and its environments. newer: versions that pip knows beyond those that are there, the newest first; None if it cannot tell or
    was not asked. asked: whether it was."""

    environments: tuple[Environment, ...] = ()
    newer: tuple[str, ...] | None = None
    asked: bool = False
    interpreter: str = ""

    @property
    def state(self) -> str:
        """Its version, or how to install it."""
        return f"{self.version}" if self.installed else f"not installed: {self.how_to_install}"

    @property
    def lines(self) -> list[str]:
        """A sentence an environment, and one on newer versions."""
        lines = []
        if self.installed and self.bytes is not None and self.interpreter not in {each.interpreter for each in self.environments}:
            lines.append(f"{self.version} in {self.prefix}, {format_bytes(self.bytes)}")
        for each in self.environments:
            made = "" if each.kept else ", made by a search"
            lines.append(f"{each.version} in {each.folder}, {format_bytes(each.bytes)}: -r {self.name}@{each.version}{made}")
        if self.asked and self.distribution:
            known = "pip cannot tell whether there are newer versions" if self.newer is None else ""
            lines.append(known or (f"newer versions: {', '.join(self.newer or ())}" if self.newer else "there is no newer version"))
        return lines


def listed(described: Sequence[Runtime], interpreter: str, with_environments: bool, newer: bool) -> list[RuntimeRow]:
    """The runtimes as rows.

    A runtime that the interpreter lacks is described by its newest environment. newer: ask pip, which may take the network.
    """
    rows = [_row(runtime, interpreter, with_environments) for runtime in described]
    if not newer:
        return rows
    distributions = sorted({row.distribution for row in rows if row.distribution})
    with ThreadPoolExecutor(4) as pool:
        answers = dict(zip(distributions, pool.map(lambda name: pip.listed(sys.executable, name), distributions), strict=True))
    return [_with_newer(row, answers[row.distribution].versions if row.distribution else ()) for row in rows]


def _row(runtime: Runtime, interpreter: str, with_environments: bool) -> RuntimeRow:
    made = tuple(environments.of(runtime.package)) if with_environments and runtime.distribution else ()
    if made and not runtime.installed:
        interpreter = made[0].interpreter
        runtime = next(each for each in runtimes.describe(interpreter) if each.name == runtime.name)
    return RuntimeRow(**asdict(runtime), environments=made, interpreter=interpreter)


def _with_newer(row: RuntimeRow, known: Sequence[str]) -> RuntimeRow:
    there = [environments.version_key(version) for version in (row.version, *(each.version for each in row.environments)) if version]
    beyond = tuple(version for version in known if environments.version_key(version) > max(there, default=())) if known else None
    return replace(row, newer=beyond, asked=True)
