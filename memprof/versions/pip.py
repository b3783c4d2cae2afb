"""What pip is asked: which files a runtime needs, to install them, which versions there are. Its failures become sentences.

pip is that of memprof's own environment; with `--python`, which it has since 22.3, it works on another.
The user's settings of pip (an index, a proxy, a folder of wheels) hold. Its report is described in
https://pip.pypa.io/en/stable/reference/installation-report/ and has no sizes, so those come from the index.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from ..base.errors import InputError, UsageError
from ..programs import runtimes
from ..programs.environments import version_key

# They would send packages elsewhere than into the new environment, or show pip packages that are not in it.
_MISLEADING = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_DRY_RUN",
    "PIP_REPORT",
    "PIP_PYTHON",
)
_SIZE_TIMEOUT_S = 10
_SIDE_BY_SIDE = 8
# A wheel of onnxruntime 1.30 takes 3.0 times its size once it is unpacked and compiled, of torch 2.13 4.1, of executorch 1.4 6.5 times.
_UNPACKED = 4
_BLOCK = 4096
_REACHING = ("Retrying (", "NewConnectionError", "NameResolutionError", "Failed to establish", "ConnectTimeout", "Max retries exceeded")

_YANKED = re.compile(r"^\s*Skipping link: yanked for reason: (.*): \S+/([^/\s#]+)(?:#\S*)?(?: \(.*)?$", re.MULTILINE)
_NO_REASON = "<none given>"
_UNREAD = re.compile(r"^\s*Could not fetch URL (\S+?)/[^/\s]+/?: (.*) - skipping$", re.MULTILINE)


class Listed(Struct, frozen=True):
    """The versions of a package that pip lists, the newest first. yanked: why others were withdrawn, by version; pip does not list these.
    unread: the indexes that it could not read, each with the reason."""

    versions: tuple[str, ...] = ()
    yanked: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


class Download(Struct, frozen=True):
    """A file that pip would install. bytes: its size, None if the index does not say. unpacked: what it takes on the disk, about."""

    name: str
    version: str
    bytes: int | None
    unpacked: int | None


def files_for(
    python: str, requirements: Sequence[str], without_wheels: Sequence[str], variables: Mapping[str, str], subject: str
) -> list[Download]:
    """The files that pip would install for these requirements, dependencies included. Nothing is installed.

    variables: for pip's environment; TMPDIR must be among them. subject: what is being installed, as the begin of a sentence. Raises InputError
    in pip's or better words, UsageError for a requirement that is none.
    """
    report = Path(variables["TMPDIR"]) / "report.json"
    words = ["install", "--dry-run", "--ignore-installed", "--report", str(report), *_kinds(without_wheels), *requirements]
    done = subprocess.run(
        _command(python, words),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(variables),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise _refusal(done.stdout.decode("utf-8", "replace"), python, subject)
    listed = json.loads(report.read_bytes())["install"]
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return list(pool.map(_file, listed))


def install(
    python: str,
    packages: Sequence[str],
    without_wheels: Sequence[str],
    variables: Mapping[str, str],
    subject: str,
    say: Callable[[str], None],
) -> None:
    """Install exactly these packages, NAME==VERSION, into the environment of this interpreter.

    variables: for pip's environment. Raises InputError in pip's words.
    """
    words = ["install", "--no-deps", "--progress-bar", "off", "--no-input", *_kinds(without_wheels), *packages]
    with subprocess.Popen(
        _command(python, words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(variables),
        start_new_session=True,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        said = []
        try:
            for line in process.stdout:
                said.append(line)
                if re.match(r"\s*Downloading \S+ \([\d.]+ [MG]B\)", line):
                    say(" ".join(line.split()))
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise _refusal("".join(said), python, subject)


def versions(python: str, distribution: str, pre: bool = False) -> Listed:
    """What pip knows of a package's versions. pre: pre-releases too. Raises InputError if it can tell none."""
    known = listed(python, distribution, pre)
    if not known.versions:
        why = f"pip could not read {', '.join(known.unread)}" if known.unread else "there is no network, or the registry refuses"
        raise InputError(f"pip cannot tell the versions of {distribution}: {why}")
    return known


def listed(python: str, distribution: str, pre: bool = False, retry: bool = True) -> Listed:
    """What pip knows of a package's versions; nothing if it cannot tell. retry: as often as the user's settings say."""
    # Which releases were yanked, and which index refused, pip tells only with its most verbose output (-vv, pip 26.3).
    words = ["-vv", "--no-input", *([] if retry else ["--retries", "0"]), "index", "versions", distribution, *(["--pre"] if pre else [])]
    try:
        done = subprocess.run(
            _command(python, words), capture_output=True, env=_environment({}), stdin=subprocess.DEVNULL, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Listed()
    said = done.stdout.decode("utf-8", "replace")
    line = re.search(r"^Available versions: (.*)$", said, re.MULTILINE)
    yanked = {_version_of(file): reason.replace(_NO_REASON, "") for reason, file in _YANKED.findall(said)}
    return Listed(tuple(line[1].split(", ")) if line and not done.returncode else (), yanked, tuple(_unread(said)))


def _version_of(file: str) -> str:
    """The version in the name of a wheel or of a source archive."""
    name = unquote(file)
    return name.split("-")[1] if name.endswith(".whl") else name.rpartition("-")[2].removesuffix(".zip").removesuffix(".tar.gz")


def _unread(said: str) -> Iterator[str]:
    """The indexes that pip could not read. Of a package that an index lacks it says 404, which is no refusal."""
    for address, reason in dict(_UNREAD.findall(said)).items():
        status = re.match(r"\d{3}(?= )", reason)
        if status is None or status[0] != "404":
            yield f"{address} ({status[0] if status else 'out of reach'})"


def _kinds(without_wheels: Sequence[str]) -> list[str]:
    # A package that must be built first may take hours, or fail in the middle.
    return ["--only-binary", ":all:", *(word for name in without_wheels for word in ("--no-binary", name))]


def _command(python: str, words: Iterable[str]) -> list[str]:
    if find_spec("pip") is None:
        raise InputError(f"installing takes pip, which {sys.executable} does not have: {shlex.quote(sys.executable)} -m ensurepip")
    other = ["--python", python] if python != sys.executable else []  # pip starts another Python with that word, even the same
    return [sys.executable, "-I", "-m", "pip", *other, "--disable-pip-version-check", "--no-color", *words]


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    return {**kept, **variables}


# -- sizes


def _file(entry: Mapping[str, object]) -> Download:
    about = entry["metadata"]
    where = entry["download_info"]
    assert isinstance(about, Mapping) and isinstance(where, Mapping)
    size, unpacked = _sizes(str(where["url"]))
    return Download(str(about["name"]), str(about["version"]), size, unpacked)


def _sizes(url: str) -> tuple[int | None, int | None]:
    parts = urlsplit(url)
    with suppress(OSError, ValueError, zipfile.BadZipFile):
        if parts.scheme == "file":
            path = Path(unquote(parts.path))
            size = path.stat().st_size
            if path.suffix != ".whl":
                return size, int(size * _UNPACKED)
            with zipfile.ZipFile(path) as archive:
                return size, sum(_on_disk(entry.filename, entry.file_size) for entry in archive.infolist())
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=_SIZE_TIMEOUT_S) as answer:
            size = int(answer.headers["Content-Length"])
            return size, int(size * _UNPACKED)
    return None, None


def _on_disk(name: str, size: int) -> int:
    """What a file takes on the disk, about; a module is compiled to a file of about its size."""
    return -(-size // _BLOCK) * _BLOCK * (2 if name.endswith(".py") else 1)


# -- failures


def _refusal(said: str, python: str, subject: str) -> InputError | UsageError:
    """pip's failure as a sentence."""
    missing = re.search(r"Could not find a version that satisfies the requirement (.+?) \(from (?:.* \(from )?versions: (.*)\)", said)
    missing = missing or re.search(r"No matching distribution found for (.+?)()$", said, re.MULTILINE)
    if "No space left on device" in said or "Disk quota exceeded" in said:
        return InputError(f"{subject}: the disk is full; nothing is left of what was installed")
    if missing:
        machine = f"Python {runtimes.describe(python)[0].python} on {platform.system()} {platform.machine()}"
        wanted = missing[1].split(" (from ")[0]
        unread = listed(python, re.split(r"[^\w.-]", wanted, maxsplit=1)[0], retry=False).unread
        if missing[2] in ("", "none") and (unread or any(words in said for words in _REACHING)):
            return InputError(f"{subject}: pip {f'could not read {unread[0]}' if unread else 'cannot reach the package index'}")
        if missing[2] in ("", "none"):
            return InputError(
                f"{subject}: there is no wheel of {wanted} for {machine}; nothing was downloaded (--python takes another interpreter)"
            )
        newest = sorted(missing[2].split(", "), key=version_key, reverse=True)[:5]
        # A folder of wheels may have some versions, and an index that refuses the one that is wanted.
        refused = f"; pip could not read {', '.join(unread)}" if unread else ""
        return InputError(f"{subject}: there is no {wanted} for {machine}; the newest are {', '.join(newest)}{refused}")
    if "Invalid requirement" in said:
        return UsageError(f"{subject}: pip does not understand the requirement: {_last(said)}")
    conflict = re.search(r"The conflict is caused by:\n((?:    .*\n)+)", said)
    if conflict:
        return InputError(
            f"{subject}: the packages exclude one another: {'; '.join(line.strip() for line in conflict[1].strip().splitlines())}"
        )
    if any(
        words in said for words in ("IncompleteRead", "Connection broken", "ReadTimeoutError", "Connection reset", "incomplete-download")
    ):
        return InputError(f"{subject}: the download broke off; nothing is left of it, and the next try starts from the beginning")
    if any(words in said for words in _REACHING):
        return InputError(f"{subject}: pip cannot reach the package index")
    return InputError(f"{subject}: pip failed: {_last(said)}")


def _last(said: str) -> str:
    """The last of pip's errors as one line."""
    errors = (
        re.findall(r"^(?:ERROR: )(.*)$", said, re.MULTILINE)
        or [line for line in said.splitlines() if line.strip()]
        or ["it printed nothing"]
    )
    return " ".join(errors[-1].split())[:300]
