"""What npm is asked: which versions of a package there are, and to install one into a folder of memprof's cache.

    environments/npm+NAME.TOKEN/
        bin/node                 the node that is on PATH, by a link
        node_modules/            what `npm install --prefix` put there: packages, and their commands in .bin

The user's settings of npm (a registry, a proxy, a cache) hold. Its failures become sentences.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ..base.errors import InputError, UsageError
from ..base.leftovers import end_leftovers, half_made
from ..base.units import format_bytes
from ..programs import environments
from ..programs.environments import Environment
from . import installation
from .pip import Listed

PREFIX = "npm:"
_NAME = re.compile(r"(@[a-z0-9~._-]+/)?[a-z0-9~._-]+", re.IGNORECASE)
_TIMEOUT_S = 120

Say = Callable[[str], None]


class NodePackage(Struct, frozen=True):
    """A package of npm's registry. name: with `npm:`, as its environments are called. beside: further packages, as npm takes them: NAME@VERSION."""

    name: str
    beside: tuple[str, ...] = ()
    tool = "npm"

    @classmethod
    def parse(cls, text: str, beside: Sequence[str]) -> NodePackage:
        """The package of `npm:NAME`. Raises UsageError."""
        if _NAME.fullmatch(text.removeprefix(PREFIX)) is None:
            raise UsageError(f"--package {text}: write npm:NAME")
        return cls(text, tuple(beside))

    @property
    def distribution(self) -> str:
        """Its name in the registry."""
        return self.name.removeprefix(PREFIX)

    def facts(self) -> Mapping[str, str]:
        """The other conditions of its figures. Raises InputError without node."""
        return {"node": _said(["node", "--version"], self.name)}

    def versions(self, pre: bool) -> Listed:
        """What npm knows of its versions. pre: pre-releases too. Raises InputError if it can tell none."""
        answer = json.loads(
            _said(["npm", "view", self.distribution, "versions", "--json"], f"npm cannot tell the versions of {self.distribution}")
        )
        known = [answer] if isinstance(answer, str) else list(answer)  # of one version the text alone
        return Listed(tuple(version for version in reversed(known) if pre or "-" not in version))

    def ensure(self, version: str, say: Say) -> Environment:
        end_leftovers()
        node = _said(["node", "--version"], self.name)
        with environments.locked(self.name, say):
            made = [
                each
                for each in environments.of(self.name)
                if (each.version, each.python, each.requirements) == (version, node, tuple(sorted(self.beside)))
            ] or [self._made(version, node, say)]
            environments.use(made[0])
            return made[0]

    def _made(self, version: str, node: str, say: Say) -> Environment:
        subject = f"{self.name} {version}"
        installation.make_room(0, installation.SEARCHES_BYTES, say)  # npm does not say beforehand how large a package is
        with half_made(environments.place(), environments.file_name(self.name), subject) as made:
            (made.folder / "bin").mkdir(parents=True)
            interpreter = made.folder / "bin" / "node"
            interpreter.symlink_to(_found("node"))
            say(f"{subject}: npm installs it")
            words = ["npm", "install", "--prefix", str(made.folder), "--no-audit", "--no-fund", "--no-save"]
            _said([*words, f"{self.distribution}@{version}", *self.beside], subject, {**os.environ, **made.variables}, timeout_s=None)
            installation.leave_page_cache(made.folder)
            size = installation.disk_bytes(made.folder)
            packages = _packages(made.folder / "node_modules")
            environment = Environment(self.name, version, node, str(interpreter), size, False, packages, tuple(sorted(self.beside)))
            environments.finish(environment)
            say(f"{subject} is installed in {made.folder}: {format_bytes(size)}")
            return environment

    def variables(self, environment: Environment) -> dict[str, str | None]:
        """The variables by which a program finds the node and the packages of an environment."""
        modules = environment.folder / "node_modules"
        folders = (str(modules / ".bin"), str(environment.folder / "bin"), os.environ.get("PATH", os.defpath))
        return {"PATH": os.pathsep.join(folders), "NODE_PATH": str(modules)}


def _packages(modules: Path) -> dict[str, str]:
    """The version of each package."""
    packages = {}
    for file in sorted([*modules.glob("*/package.json"), *modules.glob("@*/*/package.json")]):
        about = json.loads(file.read_bytes())
        packages[str(about.get("name", file.parent.name))] = str(about.get("version", ""))
    return packages


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise InputError(f"--package npm:NAME takes node and npm, and there is no {program} on PATH")
    return os.path.abspath(path)


def _said(words: Sequence[str], subject: str, variables: Mapping[str, str] | None = None, timeout_s: float | None = _TIMEOUT_S) -> str:
    """What a program wrote. subject: the begin of the sentence if it fails. Raises InputError."""
    command = [_found(words[0]), *words[1:]]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=variables,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{subject}: {words[0]} did not answer within {timeout_s:g} s") from None
    if done.returncode:
        raise InputError(f"{subject}: {_reason(done.stderr) or f'{words[0]} ended with exit code {done.returncode}'}")
    return done.stdout.strip()


def _reason(said: str) -> str:
    """The first of npm's own sentences: each line begins with `npm error` (npm 10 and later; `npm ERR!` before) and a code."""
    sentences = re.findall(r"^npm (?:error|ERR!) (?!code |A complete log)(?:[a-z0-9]+ )?(.*\S)", said, re.MULTILINE)
    return str(sentences[0])[:300] if sentences else ""
