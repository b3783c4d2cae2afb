"""Makes an environment for a package at one version, whole or not at all, and keeps those that searches made within a size.

The order: ask pip what it would install, say how large that is, look for room, make the environment, import the runtime in it, write the stamp.
A failure on the way, or Ctrl-C, removes the folder. After a SIGKILL the next memprof ends what was started and removes it (see
memprof.base.leftovers).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ..base.errors import InputError, UsageError, near_or_all, os_reason
from ..base.leftovers import end_leftovers, half_made
from ..base.runners import runners_path
from ..base.units import counted, format_bytes, format_duration
from ..programs import environments, runtimes
from ..programs.environments import Environment
from ..programs.runtimes import Runtime
from . import pip
from .pip import Download

SEARCHES_BYTES = 20 << 30  # of environments that searches made
_SPEED = 10**7  # bytes a second, to say how long a download may take
_UNPACK_SPEED = 4 * 10**7
_CHECK_TIMEOUT_S = 300

Say = Callable[[str], None]


class PipPackage(Struct, frozen=True):
    """What pip installs. name: of its environments: the runtime's, else its own. distribution: its name in an index. needs: requirements that it does
    not say itself. without_wheels: packages that are built here. runtime: imported once all is there, to see whether it can be; None for none."""

    name: str
    distribution: str
    needs: tuple[str, ...] = ()
    without_wheels: tuple[str, ...] = ()
    runtime: str | None = None

    @classmethod
    def of(cls, runtime: Runtime) -> PipPackage:
        """That of a runtime which pip installs."""
        assert runtime.distribution is not None
        return cls(runtime.name, runtime.distribution, runtime.needs, runtime.without_wheels, runtime.name)


class Wish(Struct, frozen=True):
    """What is to be installed. version: None for the newest. beside: further requirements, as pip takes them. python: of the environment. exact: the
    version is a release's, also where it has one number or two."""

    runtime: str
    version: str | None = None
    beside: tuple[str, ...] = ()
    python: str | None = None
    exact: bool = False

    @property
    def is_line(self) -> bool:
        """Whether any release of a line will do."""
        return self.version is not None and not self.exact and environments.is_line(self.version)


class Estimate(Struct, frozen=True):
    """What an installation takes. bytes: to download, known as far as the index says sizes. disk_bytes: afterwards, about."""

    subject: str
    version: str
    files: tuple[Download, ...]
    bytes: int
    disk_bytes: int

    @property
    def sentence(self) -> str:
        """The size and the time, for the user to choose."""
        unknown = sum(file.bytes is None for file in self.files)
        seconds = self.bytes / _SPEED + self.disk_bytes / _UNPACK_SPEED
        largest = sorted((file for file in self.files if file.bytes), key=lambda file: -(file.bytes or 0))[:3]
        names = ", ".join(f"{file.name} {file.version} {format_bytes(file.bytes or 0)}" for file in largest)
        return (
            f"{self.subject}: {counted(len(self.files), 'package')}, {format_bytes(self.bytes)} to download ({names}), about"
            f" {format_bytes(self.disk_bytes)} on the disk; about {format_duration(int(seconds * 1e9))} at 10 MB/s"
            + (f"; the size of {unknown} of them is not known" if unknown else "")
        )


def parse(text: str) -> tuple[str, str | None]:
    """The name and version of `NAME`, `NAME==VERSION` or `NAME@VERSION`; a name of npm's may begin with `npm:@`. Raises UsageError."""
    parts = re.fullmatch(r"((?:npm:@?)?[^@=]+)(?:(?:@|==)([A-Za-z0-9][A-Za-z0-9.+!_-]*))?", text)
    if parts is None:
        raise UsageError(f"{text!r}: write NAME or NAME==VERSION")
    return parts[1], parts[2]


def known(name: str) -> Runtime:
    """The runtime of that name. Raises UsageError if memprof has none, or none that is installed by pip."""
    listed = {runtime.name: runtime for runtime in runtimes.describe(sys.executable)}
    choices = [runtime.name for runtime in listed.values() if runtime.distribution and runtime.name == runtime.package]
    if name in listed and name not in choices and listed[name].distribution:
        name = listed[name].package
    if name not in choices:
        own = f"; {name} needs no installation" if name in listed else near_or_all(name, choices)
        raise UsageError(f"there is no runtime {name!r} to install{own}")
    return listed[name]


def install(wish: Wish, say: Say, agree: Callable[[Estimate], None]) -> Environment:
    """The environment of a wish: the one that is there, or a new one that from now on is kept.

    agree: is called with the size before anything is installed; it raises to refuse. Raises UsageError and InputError.
    """
    package = PipPackage.of(known(wish.runtime))
    wish = replace(wish, runtime=package.name)
    end_leftovers()
    with environments.locked(package.name, say):
        # A line of releases, or none, may have a newer release than those that are there: only pip knows.
        made = _made(wish, wish.version) if wish.version is not None and not wish.is_line else []
        return _kept(made[0]) if made else _make(wish, package, say, agree, kept=True)


def ensure(
    package: PipPackage,
    version: str,
    say: Say,
    limit_bytes: int = SEARCHES_BYTES,
    python: str | None = None,
    beside: tuple[str, ...] = (),
) -> Environment:
    """The environment of a package's release, for a search over versions: made if it is missing. Nobody removes it while this memprof runs.

    beside: further requirements. Environments that searches made take at most `limit_bytes` together: those that were used least recently go
    first. What is in use stays, and so does what a person installed. Raises UsageError and InputError.
    """
    wish = Wish(package.name, version, beside, python or sys.executable, exact=True)
    end_leftovers()
    with environments.locked(package.name, say):
        made = _made(wish, version)
        if not made:
            made = [_make(wish, package, say, lambda estimate: make_room(estimate.disk_bytes, limit_bytes, say), kept=False)]
        environments.use(made[0])
        return made[0]


def find(name: str, version: str) -> Environment | None:
    """The environment of a release that is there already, if any. Nobody removes it while this memprof runs."""
    made = next((each for each in environments.of(name, version) if each.version == version), None)
    if made is not None:
        environments.use(made)
    return made


def remove(text: str) -> list[Environment]:
    """Remove the environments of `NAME` or `NAME@VERSION`. Raises UsageError, and InputError if there is none or a memprof uses it."""
    name, version = parse(text)
    if not environments.of(name):
        name = known(name).name
    end_leftovers()
    named = environments.of(name, version)
    if not named:
        there = ", ".join(each.version for each in environments.of(name))
        has = f"; there is {there}" if there else ""
        raise InputError(f"{name}{f' {version}' if version else ''} is in no environment of memprof's{has}")
    for environment in named:
        if not environments.remove(environment):
            raise InputError(
                f"{environment.runtime} {environment.version}: another memprof measures with {environment.folder}; it was left there"
            )
    return named


def _made(wish: Wish, version: str | None) -> list[Environment]:
    """The environments that a wish can have at a version. One that a person asked for serves a wish for nothing beside it, whatever it has."""
    wanted = None if wish.python is None else runtimes.describe(runtimes.interpreter(wish.python))[0].python
    return [
        each
        for each in environments.of(wish.runtime, version)
        if wanted in (None, each.python)
        and (each.requirements == tuple(sorted(wish.beside)) or (each.kept and not wish.beside))
        and (not wish.exact or environments.version_key(each.version) == environments.version_key(str(version)))
    ]


def _kept(environment: Environment) -> Environment:
    if not environment.kept:
        environment = replace(environment, kept=True)
        environments.finish(environment)
    return environment


def make_room(more_bytes: int, limit_bytes: int, say: Say) -> None:
    """Remove environments of searches, those that were used least recently first, until so much more is within the limit."""
    of_searches = sorted((each for each in environments.every() if not each.kept), key=lambda each: each.last_used)
    total = sum(each.bytes for each in of_searches) + more_bytes
    for environment in of_searches:
        if total <= limit_bytes:
            return
        if environments.remove(environment):
            say(
                f"{environment.runtime} {environment.version} was removed, to keep the environments of searches below {format_bytes(limit_bytes)}"
            )
            total -= environment.bytes


def _make(wish: Wish, package: PipPackage, say: Say, agree: Callable[[Estimate], None], kept: bool) -> Environment:
    base = runtimes.interpreter(wish.python)
    subject = f"{package.name} {wish.version or ''}".rstrip()
    with half_made(environments.place(), package.name, subject) as made:
        work = made.folder / "tmp"  # what pip downloads goes with the folder
        work.mkdir(parents=True)
        variables = {**made.variables, "TMPDIR": str(work)}
        files = pip.files_for(base, _requirements(wish, package), package.without_wheels, variables, subject)
        estimate = _estimate(package, files)
        same = [each for each in _made(wish, estimate.version) if each.version == estimate.version]
        if same:  # the newest, or the newest of its line, is there
            return _kept(same[0]) if kept else same[0]
        say(estimate.sentence)
        _look_for_room(estimate)
        agree(estimate)
        environment = _filled(made.folder, base, package, estimate, variables, say)
        environment = replace(environment, kept=kept, requirements=tuple(sorted(wish.beside)))
        environments.finish(environment)
        return environment


def _requirements(wish: Wish, package: PipPackage) -> list[str]:
    pinned = ""
    if wish.version is not None:
        pinned = f"=={wish.version}.*" if wish.is_line else f"=={wish.version}"
    # What the user says of a package stands in place of memprof's own word.
    said = {canonical(text) for text in wish.beside}
    return [f"{package.distribution}{pinned}", *(text for text in package.needs if canonical(text) not in said), *wish.beside]


def canonical(requirement: str) -> str:
    """The name of the package in a requirement, as an index compares names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]).lower()


def _estimate(package: PipPackage, files: Sequence[Download]) -> Estimate:
    version = next(file.version for file in files if canonical(file.name) == canonical(package.distribution))
    return Estimate(
        f"{package.name} {version}",
        version,
        tuple(files),
        sum(file.bytes or 0 for file in files),
        sum(file.unpacked or 0 for file in files),
    )


def _look_for_room(estimate: Estimate) -> None:
    place = environments.place()
    needed, free = estimate.bytes + estimate.disk_bytes, shutil.disk_usage(place).free
    if needed > free:
        raise InputError(
            f"{estimate.subject} needs about {format_bytes(needed)} in {place}, where {format_bytes(free)} are free; nothing was installed"
            " (XDG_CACHE_HOME can name another place)"
        )


def _filled(folder: Path, base: str, package: PipPackage, estimate: Estimate, variables: Mapping[str, str], say: Say) -> Environment:
    """The environment in this folder, once all is in it and the runtime can be imported."""
    began = time.monotonic()
    python = str(folder / "bin" / "python")
    _run([base, "-I", "-m", "venv", "--without-pip", str(folder)], variables, estimate.subject)
    packages = {file.name: file.version for file in estimate.files}

    def get(names: Sequence[str]) -> str | None:
        wanted = [f"{name}=={packages[name]}" for name in names]
        pip.install(python, wanted, package.without_wheels, variables, estimate.subject, say)
        return _import_error(python, package.runtime, variables) if package.runtime is not None else None

    error = get(list(packages))
    numpy = next((name for name in packages if canonical(name) == "numpy"), None)
    if error and numpy and environments.version_key(packages[numpy]) >= environments.version_key("2") and "numpy" in error.lower():
        # Releases from before numpy 2 do not say that they need numpy 1: onnxruntime up to 1.18.
        older = pip.files_for(python, ["numpy<2"], (), variables, estimate.subject)
        say(f"{estimate.subject} cannot be imported with numpy {packages[numpy]}: numpy {older[0].version} takes its place")
        packages[numpy] = older[0].version
        error = get([numpy])
    if error:
        raise InputError(f"{estimate.subject} was installed, but cannot be imported: {error}; the environment was removed")
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    leave_page_cache(folder)
    environment = Environment(
        package.name, estimate.version, runtimes.describe(python)[0].python, python, disk_bytes(folder), False, packages
    )
    took = format_duration(int((time.monotonic() - began) * 1e9))
    say(f"{estimate.subject} is installed in {folder}: {format_bytes(environment.bytes)}, {took}")
    return environment


def leave_page_cache(folder: Path) -> None:
    """Leave no file of a folder in the page cache. Files that were just written lie there in larger pieces than files that were read, and are then
    resident in larger pieces too: 10 to 64 MiB more for a new environment, which looks like a step between two releases."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with suppress(PermissionError), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _import_error(python: str, name: str, variables: Mapping[str, str]) -> str | None:
    """Why the runtime cannot be imported in an environment, with what that wrote; None if it can."""
    try:
        done = subprocess.run(
            [python, str(runners_path()), "check", name],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **variables},
            timeout=_CHECK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its import did not end within {_CHECK_TIMEOUT_S} s"
    said = " ".join(done.stderr.decode("utf-8", "replace").split())
    if done.returncode < 0:
        return f"it ended with {signal.Signals(-done.returncode).name} {said[:300]}".rstrip()
    try:
        error = json.loads(done.stdout.splitlines()[-1]).get("error")
    except (IndexError, ValueError):
        return said[-300:] or "it printed nothing"
    # numpy's own words on an older binary stand on standard error; the exception has others.
    return f"{error} ({said[:300]})" if error and said else error


def _run(command: Sequence[str], variables: Mapping[str, str], subject: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, **variables}, check=False
        )
    except OSError as error:
        raise InputError(f"{command[0]} cannot be started: {os_reason(error)}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise InputError(f"{subject}: {command[0]} cannot make an environment: {said[-1]}")


def disk_bytes(folder: Path) -> int:
    """What a folder takes on the disk; a file with several names counts once."""
    sizes = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        sizes[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
    return sum(sizes.values())
